"""docs/exactness.md shows what its command finds."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
import torch

from plainbert.cli.verify import EQUALLED_TRANSFORMERS, HEADS

transformers = pytest.importorskip("transformers")


@pytest.fixture
def command(root: Path) -> ModuleType:
    specification = importlib.util.spec_from_file_location("exactness", root / "benchmarks" / "exactness.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture
def page(root: Path, command: ModuleType) -> str:
    text = (root / "docs" / "exactness.md").read_text(encoding="utf-8")
    return text.split(command.MARKERS[0])[1].split(command.MARKERS[1])[0]


def test_the_table_has_every_head_and_no_tensor_that_differs(page: str) -> None:
    assert f"transformers {EQUALLED_TRANSFORMERS}" in page
    assert f"torch {torch.__version__.partition('+')[0]}" in page
    assert re.findall(r"^\| (Bert\w+) \|", page, flags=re.MULTILINE) == list(HEADS)
    counts = re.findall(r"(\d+) of (\d+)", page)
    assert len(counts) == 6 * len(HEADS)
    assert [count for count in counts if count[0] != count[1]] == []


@pytest.mark.parametrize(
    ("head", "attention", "column"), [("BertForNextSentencePrediction", "eager", 0), ("BertForMaskedLM", "sdpa", 3)]
)
def test_the_command_finds_what_the_table_shows(
    page: str, command: ModuleType, head: str, attention: str, column: int
) -> None:
    row = next(line for line in page.splitlines() if line.startswith(f"| {head} |"))
    compared, equal = command.compare(transformers, head, attention, torch.float32)
    assert row.split(" | ")[1 + column].strip("| ") == f"{equal} of {compared}"

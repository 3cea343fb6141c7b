"""docs/silence.md says what both packages do today."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import plainbert

pytest.importorskip("transformers")
pytestmark = pytest.mark.xdist_group("silence")  # the run of the whole table is shared


def rows(text: str) -> list[list[str]]:
    """The cells of every row of the table, without its head."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [line.replace("\\|", "\0").strip("| ").split(" | ") for line in lines[1:]]


@pytest.fixture(scope="module")
def found(root: Path) -> list[list[str]]:
    """The rows as a fresh process finds them: transformers says some things once in a process."""
    where = str(Path(plainbert.__file__).parents[1])
    result = subprocess.run(
        [sys.executable, str(root / "benchmarks" / "silence.py")],
        env={**os.environ, "PYTHONPATH": where},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return rows(result.stdout)


def test_the_page_is_current(root: Path, found: list[list[str]]) -> None:
    page = rows((root / "docs" / "silence.md").read_text(encoding="utf-8"))
    assert page == found, "run: python benchmarks/silence.py --write docs/silence.md"


def test_every_row_shows_a_difference(found: list[list[str]]) -> None:
    assert len(found) >= 20
    assert [row for row in found if len(row) != 3 or row[1] == row[2]] == []


def test_whatever_we_raise_is_ours_and_whatever_we_accept_is_right_or_spoken_of(found: list[list[str]]) -> None:
    for title, _, ours in found:
        kind = ours.partition(":")[0]
        if kind.endswith("Error"):
            assert issubclass(getattr(plainbert, kind), plainbert.PlainBertError), title
        else:
            assert ours.startswith(("right", "the loss is 0", "table 128")) or "; warns: " in ours, title

"""Texts to vectors on the command line: options reach the embedder, and its errors and warnings come out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from plainbert import Embedder
from plainbert.checkpoints.tensors import save_tensors


def vectors(stdout: str) -> np.ndarray:
    return np.array([json.loads(line)["embedding"] for line in stdout.splitlines()], dtype=np.float32)


def test_the_vectors_are_those_of_python(run: Callable[..., Any], checkpoint: Path) -> None:
    texts = ["hello there", "今天好"]
    result = run("embed", checkpoint, "--text", texts[0], "--text", texts[1])
    assert np.array_equal(vectors(result.stdout), Embedder.from_pretrained(checkpoint).encode(texts))


def test_options_reach_the_embedder(run: Callable[..., Any], checkpoint: Path) -> None:
    embedder = Embedder.from_pretrained(checkpoint)
    text = "hello there world"

    def embed(*options: str) -> np.ndarray:
        return vectors(run("embed", checkpoint, "--text", text, *options).stdout)

    assert np.array_equal(embed("--no-normalize"), embedder.encode(text, normalize=False))
    assert np.array_equal(embed("--truncate-dim", "5"), embedder.encode(text, truncate_dim=5))
    assert np.array_equal(embed("--prompt", "今天 "), embedder.encode(text, prompt="今天 "))
    assert np.array_equal(
        embed("--max-length", "4"), Embedder.from_pretrained(checkpoint, max_length=4).encode("hello there")
    )
    doubled = Embedder.from_pretrained(checkpoint, dtype=torch.float64)
    assert np.array_equal(embed("--dtype", "float64"), doubled.encode(text))


@pytest.mark.filterwarnings("ignore::plainbert.PlainBertWarning")
def test_cutting_a_text_is_said_once_and_can_be_an_error(run: Callable[..., Any], checkpoint: Path) -> None:
    long = "hello " * 50
    result = run("embed", checkpoint, "--text", long, "--text", long, "--text", "hello")
    assert result.code == 0
    assert result.stderr == "Warning: 2 of 3 texts were cut to 40 tokens (max_length); 24 tokens were dropped\n"
    result = run("embed", checkpoint, "--text", long, "--truncation", "error")
    assert (result.code, result.stdout) == (1, "")
    assert "at most 40 tokens (max_length), got 52" in result.stderr


@pytest.mark.parametrize(
    ("options", "value"),
    [
        (["--truncate-dim", "33"], "got 33"),
        (["--max-length", "41"], "got 41"),
        (["--prompt-name", "query"], "got 'query'"),
        (["--max-length", "1"], "1"),
    ],
)
def test_a_value_the_model_cannot_take_is_exit_1_and_names_it(
    run: Callable[..., Any], checkpoint: Path, options: list[str], value: str
) -> None:
    result = run("embed", checkpoint, "--text", "hello", *options)
    assert (result.code, result.stdout) == (1, "")
    assert value in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("device", ["toaster", "cuda:99", "meta", "cpu:9", "xla"])
def test_a_device_that_is_not_there_is_wrong_usage(run: Callable[..., Any], checkpoint: Path, device: str) -> None:
    result = run("embed", checkpoint, "--text", "hello", "--device", device)
    assert (result.code, result.stdout) == (2, "")
    assert f"got '{device}'" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_checkpoint_without_pooling_gets_the_mean_and_one_warning(
    run: Callable[..., Any], make_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    folder = make_checkpoint(tmp_path / "bare")
    result = run("embed", folder, "--text", "hello")
    assert result.code == 0
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("Warning: ")
    assert "no modules.json" in result.stderr


def test_vectors_that_are_not_finite_are_failed_lines_and_never_printed(
    run: Callable[..., Any], make_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    folder = make_checkpoint(tmp_path / "nan")
    model = __import__("plainbert").BertModel.from_pretrained(folder)
    with torch.no_grad():
        model.embeddings.word_embeddings.weight[6] = float("nan")  # "there"
    save_tensors(dict(model.state_dict()), folder / "model.safetensors")
    result = run("embed", folder, "--text", "hello", "--text", "there")
    assert result.code == 3
    assert [json.loads(line)["text"] for line in result.stdout.splitlines()] == ["hello"]
    assert "text 2 must have a finite vector, got NaN" in result.stderr
    assert "NaN" not in result.stdout

"""The command line through its front door, in this process, and a tiny checkpoint for it to work on."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import plainbert
from plainbert.cli.main import main

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "there", "world", "na", "##ive", "今", "天", "好", "."]


@dataclass(frozen=True)
class Result:
    code: int
    stdout: str
    stderr: str


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """Run ``plainbert`` with these words; ``stdin`` is what is piped in."""

    def call(*words: object, stdin: bytes | io.BytesIO = b"") -> Result:
        stream = io.BytesIO(stdin) if isinstance(stdin, bytes) else stdin
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stream, encoding="utf-8"))
        capsys.readouterr()
        code = main([str(word) for word in words])
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return call


@pytest.fixture(scope="session")
def make_checkpoint(tiny_config: Callable[..., dict[str, Any]]) -> Callable[..., Path]:
    """Write a tiny checkpoint with random weights and a vocabulary of a few words into a folder."""

    def make(folder: Path, head: str = "BertModel", **overrides: Any) -> Path:
        torch.manual_seed(0)
        config = plainbert.BertConfig(**tiny_config(initializer_range=0.3, **overrides))
        getattr(plainbert, head)(config).save_pretrained(folder)
        (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
        (folder / "tokenizer_config.json").write_text('{"do_lower_case": true}', encoding="utf-8")
        return folder

    return make


@pytest.fixture(scope="session")
def checkpoint(make_checkpoint: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny encoder that declares mean pooling and normalisation; to be read, not changed."""
    folder = make_checkpoint(tmp_path_factory.mktemp("models") / "tiny")
    (folder / "modules.json").write_text(
        '[{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},'
        ' {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},'
        ' {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}]'
    )
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(
        '{"word_embedding_dimension": 32, "pooling_mode_mean_tokens": true}'
    )
    return folder

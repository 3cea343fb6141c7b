"""A tokenizer of fifty words, as an object and as files; and any tokenizer.json that differs from it in one part."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plainbert.text.tokenizer import BertTokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = [chr(letter) for letter in range(ord("a"), ord("z") + 1)]
WORDS = ["hello", "world", "##s", "naive", "cafe", "的", "人", "!", ",", "é", "un", "##able"]


@pytest.fixture
def vocab() -> dict[str, int]:
    """Token to id; [PAD] is 0, [CLS] 2, [SEP] 3, ``a`` 5 ... ``z`` 30, ``hello`` 31."""
    return {token: number for number, token in enumerate(SPECIAL + LETTERS + WORDS)}


@pytest.fixture
def tokenizer(vocab: dict[str, int]) -> BertTokenizer:
    """The uncased tokenizer of ``vocab`` for a model of 16 positions."""
    return BertTokenizer(vocab, model_max_length=16)


@pytest.fixture
def write_vocab(tmp_path: Path) -> Callable[[bytes], Path]:
    """Write the bytes of a vocab.txt and return its path."""

    def write(content: bytes) -> Path:
        path = tmp_path / "vocab.txt"
        path.write_bytes(content)
        return path

    return write


@pytest.fixture
def write_json(tmp_path: Path, tokenizer: BertTokenizer) -> Callable[..., Path]:
    """Write a tokenizer.json whose parts are those of ``tokenizer`` except for the ones given, and return its path."""
    tokenizer.save_pretrained(tmp_path / "whole")
    whole = json.loads((tmp_path / "whole" / "tokenizer.json").read_text())

    def write(**parts: Any) -> Path:
        path = tmp_path / "tokenizer.json"
        path.write_text(json.dumps({**whole, **parts}))
        return path

    return write


@pytest.fixture
def load() -> Callable[..., BertTokenizer]:
    """Load a tokenizer from one file of either kind and the content of tokenizer_config.json."""

    def from_file(path: Path, config: dict[str, Any] | None = None, **others: Any) -> BertTokenizer:
        is_json = path.suffix == ".json"
        return BertTokenizer.from_files(
            path if is_json else None,
            None if is_json else path,
            config or {},
            others.pop("special_tokens_map", {}),
            others.pop("added_tokens", {}),
            **others,
        )

    return from_file

"""A tiny encoder on disk, whose declarations each test may change."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import plainbert

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "hello",
    "there",
    "world",
    "query",
    ":",
    "今",
    "天",
    "Hello",
    ".",
]
PREFIX = "sentence_transformers.models"


@pytest.fixture
def encoder(tmp_path: Path, tiny_config: Callable[..., dict[str, Any]]) -> Path:
    """A folder with a model, a tokenizer, and no word about pooling."""
    folder = tmp_path / "encoder"
    torch.manual_seed(0)
    plainbert.BertModel(plainbert.BertConfig(**tiny_config(initializer_range=0.3))).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": true, "model_max_length": 30}')
    return folder


@pytest.fixture
def declare(encoder: Path) -> Callable[..., Path]:
    """Write modules.json, the pooling's config and other small files into the folder."""

    def write(
        pooling: dict[str, Any] | None,
        kinds: tuple[str, ...] = ("Transformer", "Pooling"),
        paths: tuple[str, ...] = ("", "1_Pooling", "2_Normalize", "3"),
        prefix: str = PREFIX,
        **files: dict[str, Any],
    ) -> Path:
        modules = [
            {"idx": index, "name": str(index), "path": paths[index], "type": f"{prefix}.{kind}" if prefix else kind}
            for index, kind in enumerate(kinds)
        ]
        (encoder / "modules.json").write_text(json.dumps(modules))
        if pooling is not None:
            (encoder / "1_Pooling").mkdir(exist_ok=True)
            (encoder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
        for name, content in files.items():
            (encoder / f"{name}.json").write_text(json.dumps(content))
        return encoder

    return write

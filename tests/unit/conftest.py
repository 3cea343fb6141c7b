"""Small checkpoints for the tests of loading and saving."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from plainbert import BertConfig, BertPreTrainedModel

Store = Callable[..., Path]


@pytest.fixture
def small(tiny_config: Callable[..., dict[str, Any]]) -> BertConfig:
    """The tiny configuration with large weights, so that a weight in the wrong place changes the outputs."""
    return BertConfig(**tiny_config(initializer_range=0.3))


@pytest.fixture
def rows(small: BertConfig) -> Tensor:
    """Two rows of seven tokens, none of them padding."""
    return torch.randint(1, small.vocab_size, (2, 7))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Write a checkpoint by hand, with exactly the names given, and return its folder."""

    def write(tensors: Mapping[str, Any], config: BertConfig, name: str = "model.safetensors") -> Path:
        folder = tmp_path / f"checkpoint{len(list(tmp_path.iterdir()))}"
        config.save_pretrained(folder)
        if name.endswith(".bin"):
            torch.save(dict(tensors), folder / name)
        else:
            save_file({key: value.clone().contiguous() for key, value in tensors.items()}, folder / name)
        return folder

    return write


@pytest.fixture
def randomized() -> Callable[[BertPreTrainedModel], Any]:
    """Give every parameter random values, biases and LayerNorm too, and return the model in evaluation mode."""

    def fill(model: BertPreTrainedModel) -> BertPreTrainedModel:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(std=0.3)
        return model.eval()

    return fill

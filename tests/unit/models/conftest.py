"""A tiny configuration as a BertConfig, token numbers for it, and one model of every class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import plainbert
from plainbert import BertConfig, BertModel, BertPreTrainedModel

HEADS = (
    "BertForPreTraining",
    "BertForMaskedLM",
    "BertForNextSentencePrediction",
    "BertForSequenceClassification",
    "BertForMultipleChoice",
    "BertForTokenClassification",
    "BertForQuestionAnswering",
)


@pytest.fixture
def config(tiny_config: Callable[..., dict[str, Any]]) -> BertConfig:
    """The tiny configuration; weights are large, so that a slip changes the outputs."""
    return BertConfig(**tiny_config(initializer_range=0.3))


@pytest.fixture
def model(config: BertConfig) -> BertModel:
    """A bare model in evaluation mode."""
    return BertModel(config).eval()


@pytest.fixture
def ids(config: BertConfig) -> Tensor:
    """Three rows of eight tokens, none of them padding."""
    return torch.randint(1, config.vocab_size, (3, 8))


@pytest.fixture(params=["sdpa", "eager"])
def attention(request: pytest.FixtureRequest) -> str:
    """Each attention implementation in turn."""
    return request.param


@pytest.fixture(params=["BertModel", *HEADS])
def any_model(request: pytest.FixtureRequest, config: BertConfig) -> BertPreTrainedModel:
    """One model of each class in turn, in evaluation mode."""
    return getattr(plainbert, request.param)(config).eval()


@pytest.fixture
def inputs_for(ids: Tensor) -> Callable[[BertPreTrainedModel], dict[str, Tensor]]:
    """Give the ids and a mask in the form that a model takes: with a dimension of choices for multiple choice."""

    def inputs(model: BertPreTrainedModel) -> dict[str, Tensor]:
        mask = torch.ones_like(ids)
        mask[0, 5:] = 0
        if type(model).__name__ == "BertForMultipleChoice":
            return {"input_ids": ids[:, None].expand(3, 2, 8), "attention_mask": mask[:, None].expand(3, 2, 8)}
        return {"input_ids": ids, "attention_mask": mask}

    return inputs

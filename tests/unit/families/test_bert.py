"""The table of BERT's weight names covers every weight of every model, in every spelling, and no other name."""

from __future__ import annotations

import pytest

import plainbert
from plainbert import BertConfig
from plainbert.families.bert import ENCODER_NAMESPACES, WEIGHT_MAP

CLASSES = [name for name in plainbert.__all__ if name.startswith("BertFor")]


@pytest.mark.parametrize("name", CLASSES)
def test_every_weight_of_every_model_is_its_own_name(small: BertConfig, name: str) -> None:
    for weight in getattr(plainbert, name)(small).state_dict():
        assert WEIGHT_MAP.name_here(weight) == weight


def test_every_encoder_weight_may_lack_its_prefix(small: BertConfig) -> None:
    for weight in plainbert.BertModel(small).state_dict():
        assert WEIGHT_MAP.name_here(weight) == f"bert.{weight}"
        assert weight.startswith(ENCODER_NAMESPACES)


def test_every_layer_norm_has_its_names_of_2018(small: BertConfig) -> None:
    norms = [weight for weight in plainbert.BertForPreTraining(small).state_dict() if "LayerNorm" in weight]
    assert len(norms) == 12
    for weight in norms:
        old = weight.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        assert WEIGHT_MAP.name_here(old) == weight


@pytest.mark.parametrize(
    "name",
    [
        "bert.encoder.layer.0.attention.self.query.gamma",
        "encoder.layer.x.output.dense.weight",
        "encoder.layer.-1.output.dense.weight",
        "encoder.layer.0.output.dense.weight.lora",
        "bert.bert.embeddings.word_embeddings.weight",
        "embeddings.word_embeddings.bias",
        "cls.predictions.LayerNorm.weight",
        "bert.cls.predictions.bias",
        "classifier.out_proj.weight",
        "pooler.weight",
        "roberta.embeddings.word_embeddings.weight",
        "embeddings.LayerNorm.gamma.weight",
    ],
)
def test_a_name_that_only_looks_alike_is_in_no_rule(name: str) -> None:
    assert WEIGHT_MAP.name_here(name) is None

"""Files that hold half of something, something twice, or numbers of another kind; and the keywords of others."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import plainbert
from plainbert import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertModel,
    CheckpointError,
    KeywordError,
    PlainBertWarning,
)

Store = Callable[..., Path]
HALVES = ["pooler.dense.weight", "pooler.dense.bias"]


# --- half a pooler ---


@pytest.mark.parametrize("prefix", ["", "bert."])
@pytest.mark.parametrize("lost", HALVES)
def test_half_a_pooler_is_refused_and_the_missing_half_named(
    small: BertConfig, store: Store, prefix: str, lost: str
) -> None:
    state = {prefix + name: tensor for name, tensor in BertModel(small).state_dict().items() if name != lost}
    with pytest.raises(CheckpointError, match=rf"the pooler must be stored whole, got it without {re.escape(lost)};"):
        BertModel.from_pretrained(store(state, small))


def test_a_whole_pooler_is_read_and_an_absent_one_is_left_out(small: BertConfig, store: Store) -> None:
    state = BertModel(small).state_dict()
    assert BertModel.from_pretrained(store(state, small)).pooler is not None
    without = {name: tensor for name, tensor in state.items() if name not in HALVES}
    with pytest.warns(PlainBertWarning, match="has no pooler"):
        assert BertModel.from_pretrained(store(without, small)).pooler is None


# --- twice ---


@pytest.mark.parametrize(
    ("name", "old"),
    [
        ("embeddings.LayerNorm.weight", "embeddings.LayerNorm.gamma"),
        ("encoder.layer.1.output.LayerNorm.bias", "encoder.layer.1.output.LayerNorm.beta"),
    ],
)
@pytest.mark.parametrize("prefix", ["", "bert."])
@pytest.mark.parametrize("head", [BertModel, BertForMaskedLM])
def test_a_weight_stored_under_both_of_its_names_is_refused(
    small: BertConfig, store: Store, head: Any, prefix: str, name: str, old: str
) -> None:
    state = {prefix + key: tensor for key, tensor in BertModel(small).state_dict().items()}
    state[prefix + old] = state[prefix + name].clone()
    sentence = (
        f"the checkpoint must hold (bert.)?{re.escape(name)} once, got it twice, as .*{re.escape(old)}.*; keep one"
    )
    with pytest.raises(CheckpointError, match=sentence):
        head.from_pretrained(store(state, small))


# --- integers ---


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int64, torch.bool], ids=str)
@pytest.mark.parametrize("name", ["embeddings.word_embeddings.weight", "encoder.layer.1.output.dense.bias"])
def test_integers_in_place_of_weights_are_refused_with_name_and_dtype(
    small: BertConfig, store: Store, name: str, dtype: torch.dtype
) -> None:
    state = BertModel(small).state_dict()
    state[name] = torch.ones_like(state[name]).to(dtype)
    sentence = rf"{re.escape(name)} must have a floating-point dtype, got {re.escape(str(dtype))}; .*quantised"
    with pytest.raises(CheckpointError, match=sentence):
        BertModel.from_pretrained(store(state, small))


def test_integers_in_place_of_a_head_are_refused_too(small: BertConfig, store: Store) -> None:
    state = BertForSequenceClassification(small).state_dict()
    state["classifier.weight"] = torch.ones(2, 32, dtype=torch.int8)
    with pytest.raises(CheckpointError, match=r"classifier\.weight must have a floating-point dtype, got torch\.int8"):
        BertForSequenceClassification.from_pretrained(store(state, small))


# --- the dtype of a mixed file ---


def in_two_dtypes(state: dict[str, Tensor], first: torch.dtype, second: torch.dtype) -> dict[str, Tensor]:
    return {name: state[name].to(second if index % 2 else first) for index, name in enumerate(sorted(state))}


MIXED: dict[str, Callable[[dict[str, Tensor]], dict[str, Tensor]]] = {
    "one float32 scalar": lambda state: {**of(state, torch.float16), "logit_scale": torch.ones(())},
    "one float64 scalar": lambda state: {**of(state, torch.float16), "logit_scale": torch.ones(()).double()},
    "one float32 norm": lambda state: {**of(state, torch.bfloat16), "encoder.layer.0.output.LayerNorm.bias": ones()},
    "one float16 scalar": lambda state: {**of(state, torch.float32), "logit_scale": torch.ones(()).half()},
    "float16, bfloat16, float16, ...": lambda state: in_two_dtypes(state, torch.float16, torch.bfloat16),
    "bfloat16, float16, bfloat16, ...": lambda state: in_two_dtypes(state, torch.bfloat16, torch.float16),
}


def of(state: dict[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    return {name: tensor.to(dtype) for name, tensor in state.items()}


def ones() -> Tensor:
    return torch.ones(32)


@pytest.mark.parametrize("asked", [None, "auto"])
@pytest.mark.parametrize("name", MIXED)
def test_one_odd_tensor_does_not_decide_the_dtype_here_or_in_transformers(
    small: BertConfig, store: Store, name: str, asked: str | None
) -> None:
    transformers = pytest.importorskip("transformers")
    folder = store(MIXED[name](BertModel(small).state_dict()), small)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PlainBertWarning)  # of the scalar that nobody uses
        ours = BertModel.from_pretrained(folder, dtype=asked)
    keywords = {} if asked is None else {"dtype": asked}
    theirs = transformers.BertModel.from_pretrained(folder, **keywords)
    assert {parameter.dtype for parameter in ours.parameters()} == {theirs.dtype}


# --- inference mode ---


@pytest.mark.parametrize("head", ["BertModel", "BertForMaskedLM", "BertForSequenceClassification"])
def test_what_was_loaded_in_inference_mode_can_be_trained(
    small: BertConfig, rows: Tensor, store: Store, head: str
) -> None:
    folder = store(BertModel(small).state_dict(), small)
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore", PlainBertWarning)  # of fresh heads
        model = getattr(plainbert, head).from_pretrained(folder)
        assert torch.is_inference_mode_enabled()
    assert not any(parameter.is_inference() for parameter in model.parameters())
    assert all(parameter.requires_grad for parameter in model.parameters())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    before = model.get_input_embeddings().weight.detach().clone()
    model(rows)[0].pow(2).mean().backward()
    optimizer.step()
    assert not torch.equal(model.get_input_embeddings().weight, before)


# --- keywords of others ---


@pytest.mark.parametrize(
    ("keyword", "value", "hint"),
    [
        ("device_map", "auto", "pass device= to say where the weights go"),
        ("low_cpu_mem_usage", True, "leave it out, loading never holds two copies"),
        ("trust_remote_code", True, "leave it out, code of a checkpoint never runs"),
        ("use_safetensors", True, "leave it out, safetensors are taken where there are any"),
        ("output_loading_info", True, "leave it out, what was not simply read is a warning"),
    ],
)
def test_a_keyword_of_transformers_is_refused_with_what_to_do_here(
    small: BertConfig, store: Store, keyword: str, value: Any, hint: str
) -> None:
    folder = store(BertModel(small).state_dict(), small)
    with pytest.raises(KeywordError, match=f"BertModel.from_pretrained has no keyword '{keyword}'; {hint}$"):
        BertModel.from_pretrained(folder, **{keyword: value})


def test_two_keywords_of_transformers_get_both_their_hints(small: BertConfig, store: Store) -> None:
    folder = store(BertModel(small).state_dict(), small)
    with pytest.raises(KeywordError, match=r"'device_map', 'trust_remote_code'; pass device= .*; leave it out, code"):
        BertModel.from_pretrained(folder, trust_remote_code=True, device_map="cpu")

"""Things in place of dense tensors of the right dtype, and numbers that a mask cannot hold."""

from __future__ import annotations

import re
import warnings
from collections import UserDict
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from plainbert import BertConfig, BertForMultipleChoice, BertModel, InputError

NAMES = ["input_ids", "attention_mask", "token_type_ids", "position_ids", "inputs_embeds", "head_mask"]
TEXT = r"tokenize the text first: model\(\*\*tokenizer\(text, return_tensors='pt'\)\)"
ENTRIES = r"give its entries by name: model\(\*\*batch\)"
CONVERT = r"pass return_tensors='pt' to the tokenizer, or convert with torch\.as_tensor\(\.\.\.\)"


# --- no tensors ---


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("wrong", "kind", "hint"),
    [
        ("a text", "str", TEXT),
        ({"input_ids": [1]}, "dict", ENTRIES),
        (UserDict(input_ids=[1]), "UserDict", ENTRIES),
        ([[1, 2]], "list", CONVERT),
        (((1, 2),), "tuple", CONVERT),
        (np.ones((3, 8)), "ndarray", CONVERT),
        (["a", "b"], "list", CONVERT),
        (7, "int", CONVERT),
    ],
)
def test_what_is_no_tensor_is_refused_with_what_to_do(
    model: BertModel, ids: Tensor, name: str, wrong: Any, kind: str, hint: str
) -> None:
    inputs: dict[str, Any] = {"input_ids": ids, name: wrong}
    with pytest.raises(InputError, match=rf"^{name} must be a tensor, got {kind}; {hint}$"):
        model(**inputs)


def test_a_batch_of_transformers_is_told_to_be_spread(model: BertModel, ids: Tensor) -> None:
    transformers = pytest.importorskip("transformers")
    with pytest.raises(InputError, match=rf"input_ids must be a tensor, got BatchEncoding; {ENTRIES}"):
        model(transformers.BatchEncoding({"input_ids": ids}))


def test_a_batch_of_our_tokenizer_is_told_to_be_spread(config: BertConfig, ids: Tensor) -> None:
    for wrong in ({"input_ids": ids}, UserDict(input_ids=ids)):
        with pytest.raises(InputError, match=ENTRIES):
            BertForMultipleChoice(config)(wrong)


# --- other layouts ---


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_a_sparse_tensor_is_refused_by_name(model: BertModel, ids: Tensor, name: str, layout: torch.layout) -> None:
    inputs: dict[str, Any] = {"input_ids": ids}
    if name == "inputs_embeds":
        inputs = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls one of its layouts a beta
        inputs[name] = (
            torch.ones(2, 4).to_sparse(layout=layout) if name == "head_mask" else ids.to_sparse(layout=layout)
        )
    with pytest.raises(InputError, match=rf"{name} must be a dense tensor, got {layout}; convert with \.to_dense\(\)"):
        model(**inputs)


# --- masks ---


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("shape", [(3, 1, 8, 8), (3, 4, 8, 8), (3, 1, 1, 8)], ids=str)
def test_an_added_mask_with_what_is_no_number_is_refused(
    model: BertModel, ids: Tensor, attention: str, shape: tuple[int, ...], dtype: torch.dtype, wrong: float
) -> None:
    model.config.attn_implementation = attention
    mask = torch.zeros(shape, dtype=dtype)
    mask[2, -1, -1, 5] = wrong
    with pytest.raises(InputError, match=r"float attention_mask must hold numbers or -inf, got NaN or \+inf"):
        model(ids, mask)
    mask[2, -1, -1, 5] = -float("inf")
    assert model(ids, mask).last_hidden_state.isfinite().all()


@pytest.mark.parametrize("shape", [(3, 8), (3, 8, 8), (3, 1, 8, 8)], ids=str)
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_a_complex_mask_is_refused(model: BertModel, ids: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    with pytest.raises(InputError, match=rf"attention_mask must be .*got {dtype} {re.escape(str(shape))};"):
        model(ids, torch.ones(shape, dtype=dtype))


# --- word vectors ---


@pytest.mark.parametrize("given", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_vectors_of_another_dtype_are_refused_with_both(model: BertModel, given: torch.dtype) -> None:
    with pytest.raises(InputError, match=rf"inputs_embeds must be torch\.float32, as the model is, got {given};"):
        model(inputs_embeds=torch.zeros(3, 8, 32, dtype=given))
    with pytest.raises(InputError, match=rf"inputs_embeds must be {given}, as the model is, got torch\.float32;"):
        model.to(given)(inputs_embeds=torch.zeros(3, 8, 32))


@pytest.mark.parametrize("given", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_under_autocast_vectors_may_have_its_dtype(model: BertModel, given: torch.dtype) -> None:
    vectors = torch.randn(3, 8, 32)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        found = model(inputs_embeds=vectors.to(given)).last_hidden_state
        expected = model(inputs_embeds=vectors).last_hidden_state
    torch.testing.assert_close(found.float(), expected.float(), rtol=0, atol=0.2)

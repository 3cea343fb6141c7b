"""Masks of every form: the same numbers as transformers makes of the same mask."""

from __future__ import annotations

from typing import Any

import pytest
import torch

LOWEST = {dtype: torch.finfo(dtype).min for dtype in (torch.float32, torch.float64, torch.bfloat16)}


def triangle(rows: int, heads: int = 1) -> torch.Tensor:
    """A mask of queries that each look at themselves and at what stands before."""
    return torch.ones(11, 11, dtype=torch.bool).tril().expand(rows, heads, 11, 11)


def each_head_its_own(rows: int) -> torch.Tensor:
    """A mask that differs between heads; no query is without a key."""
    return (torch.rand(rows, 4, 11, 11) > 0.5) | torch.eye(11, dtype=torch.bool)


def added(look: torch.Tensor, dtype: torch.dtype, number: float | None = None) -> torch.Tensor:
    """The numbers to add to the scores for a mask of True and False."""
    return torch.zeros(look.shape, dtype=dtype).masked_fill(~look, LOWEST[dtype] if number is None else number)


@pytest.mark.parametrize(
    "kind",
    [torch.int64, torch.int32, torch.uint8, torch.bool, torch.float32, torch.float16],
    ids=lambda kind: str(kind)[6:],
)
def test_a_flat_mask_of_any_dtype_is_equal(parity: Any, attention: str, dtype: torch.dtype, kind: torch.dtype) -> None:
    ours, theirs = parity.pair("BertModel", attention, dtype)
    batch = parity.batch()
    theirs_inputs = dict(batch)
    batch["attention_mask"] = batch["attention_mask"].to(kind)
    parity.assert_same_outputs("BertModel", ours, theirs, batch, theirs_inputs)


def test_a_flat_mask_without_padding_is_the_same_as_none(parity: Any, head: str, attention: str) -> None:
    ours, theirs = parity.pair(head, attention)
    batch = parity.batch(head)
    whole = torch.ones_like(batch["attention_mask"])
    without = {**batch, "attention_mask": None}
    outputs = parity.assert_same_outputs(head, ours, theirs, {**batch, "attention_mask": whole}, without)
    again = parity.assert_same_outputs(head, ours, theirs, without, {**batch, "attention_mask": whole})
    parity.assert_equal(outputs.to_tuple(), again.to_tuple())


@pytest.mark.parametrize("make", [triangle, each_head_its_own])
def test_a_mask_of_true_and_false_for_each_query_is_equal(
    parity: Any, attention: str, dtype: torch.dtype, make: Any
) -> None:
    ours, theirs = parity.pair("BertModel", attention, dtype)
    batch, look = parity.batch(), make(3)
    # transformers' eager would add True as 1.0, so it gets the numbers.
    for_theirs = look if attention == "sdpa" else added(look, dtype)
    theirs_inputs = {**batch, "attention_mask": for_theirs}
    parity.assert_same_outputs("BertModel", ours, theirs, {**batch, "attention_mask": look}, theirs_inputs)
    if look.shape[1] == 1:
        parity.assert_same_outputs("BertModel", ours, theirs, {**batch, "attention_mask": look[:, 0]}, theirs_inputs)


@pytest.mark.parametrize("make", [triangle, each_head_its_own])
def test_numbers_added_to_the_scores_are_equal(parity: Any, attention: str, dtype: torch.dtype, make: Any) -> None:
    ours, theirs = parity.pair("BertModel", attention, dtype)
    batch, look = parity.batch(), make(3)
    for mask in (
        added(look, dtype),
        added(look, dtype, -10000.0),
        added(look, dtype, -3.0),
        torch.randn(look.shape).to(dtype),
    ):
        parity.assert_same_outputs("BertModel", ours, theirs, {**batch, "attention_mask": mask})


@pytest.mark.parametrize("number", [-float("inf"), -1e300])
def test_numbers_below_the_lowest_hide_a_key_like_the_lowest(
    parity: Any, attention: str, dtype: torch.dtype, number: float
) -> None:
    ours, theirs = parity.pair("BertModel", attention, dtype)
    batch, look = parity.batch(), triangle(3)
    theirs_inputs = {**batch, "attention_mask": added(look, dtype)}
    mask = added(look, torch.float64, number)
    parity.assert_same_outputs("BertModel", ours, theirs, {**batch, "attention_mask": mask}, theirs_inputs)


@pytest.mark.parametrize(
    "kind", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=lambda k: str(k)[6:]
)
def test_the_numbers_may_have_another_dtype_than_the_model(
    parity: Any, attention: str, dtype: torch.dtype, kind: torch.dtype
) -> None:
    ours, theirs = parity.pair("BertModel", attention, dtype)
    batch, look = parity.batch(), triangle(3)
    theirs_inputs = {**batch, "attention_mask": added(look, dtype)}
    for number in (torch.finfo(kind).min, -float("inf"), -10000.0):
        mask = torch.zeros(look.shape, dtype=kind).masked_fill(~look, number)
        parity.assert_same_outputs("BertModel", ours, theirs, {**batch, "attention_mask": mask}, theirs_inputs)


def test_the_same_keys_for_every_query_may_be_written_once(parity: Any, attention: str, dtype: torch.dtype) -> None:
    ours, theirs = parity.pair("BertModel", attention, dtype)
    batch = parity.batch()
    look = batch["attention_mask"].bool()[:, None, None, :]
    for mask in (look, added(look, dtype)):
        parity.assert_same_outputs("BertModel", ours, theirs, {**batch, "attention_mask": mask}, batch)


def test_maps_and_gradients_under_every_form_are_equal(parity: Any, attention: str) -> None:
    ours, theirs = parity.pair("BertModel", attention)
    batch = parity.batch()
    for look in (triangle(3), each_head_its_own(3)):
        for mask in (look, added(look, torch.float32)):
            inputs = {**batch, "attention_mask": mask}
            theirs_inputs = {**batch, "attention_mask": added(look, torch.float32) if attention == "eager" else mask}
            if attention == "eager":
                asked = {"output_attentions": True}
                parity.assert_same_outputs("BertModel", ours, theirs, inputs | asked, theirs_inputs | asked)
            mine, other = parity.gradients(ours, inputs), parity.gradients(theirs, theirs_inputs)
            parity.assert_same_tensors(mine, other)


def test_a_key_stays_hidden_however_low_the_scores_of_the_others_are(parity: Any, attention: str) -> None:
    ours, theirs = parity.own_pair("BertModel")
    for model in (ours, theirs):
        model.config.attn_implementation = model.config._attn_implementation = attention
        with torch.no_grad():  # scores in the tens of thousands, of both signs
            for layer in model.encoder.layer:
                layer.attention.self.query.weight.mul_(300)
                layer.attention.self.key.weight.mul_(300)
    batch = parity.batch()
    with torch.no_grad():
        maps = ours(**batch, output_attentions=True).attentions
    for one in maps:
        assert bool((one[1, :, :, 7:] == 0).all())
        assert bool((one[2, :, :, 0] == 1).all())
    parity.assert_same_outputs("BertModel", ours, theirs, batch)
    mask = added(batch["attention_mask"].bool()[:, None, None, :].expand(-1, 1, 11, -1), torch.float32)
    parity.assert_same_outputs("BertModel", ours, theirs, {**batch, "attention_mask": mask})


def test_a_masked_key_has_exactly_no_weight(parity: Any, attention: str, dtype: torch.dtype) -> None:
    ours, _ = parity.pair("BertModel", attention, dtype)
    batch = parity.batch()
    hidden_keys = batch["attention_mask"] == 0
    with torch.no_grad():
        maps = ours(**batch, output_attentions=True).attentions
    for one in maps:
        assert one.shape == (3, 4, 11, 11)
        assert torch.equal(one[hidden_keys[:, None, None, :].expand_as(one)].unique(), torch.zeros(1, dtype=dtype))
        assert bool((one[~hidden_keys[:, None, None, :].expand_as(one)] > 0).all())

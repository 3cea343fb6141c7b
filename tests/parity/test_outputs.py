"""Every output of every head equals transformers' to the last bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch


def test_every_output_state_map_and_loss_is_equal(
    parity: Any, head: str, attention: str, dtype: torch.dtype, std: float
) -> None:
    ours, theirs = parity.pair(head, attention, dtype, std)
    asked = {"output_hidden_states": True, "output_attentions": attention == "eager"}
    inputs = {**parity.batch(head), **parity.labels(head), **asked}
    outputs = parity.assert_same_outputs(head, ours, theirs, inputs)
    assert len(outputs.hidden_states) == 3
    parity.assert_same_outputs(head, ours, theirs, parity.batch(head))
    only_ids = {"input_ids": parity.batch(head)["input_ids"]}
    parity.assert_same_outputs(head, ours, theirs, only_ids)


def test_position_ids_are_looked_up_as_given(parity: Any, head: str, attention: str, dtype: torch.dtype) -> None:
    ours, theirs = parity.pair(head, attention, dtype)
    batch = parity.batch(head)
    positions = torch.arange(39, 39 - batch["input_ids"].shape[-1], -1).expand_as(batch["input_ids"])
    parity.assert_same_outputs(head, ours, theirs, {**batch, "position_ids": positions})
    if head != "BertForMultipleChoice":
        parity.assert_same_outputs(head, ours, theirs, {**batch, "position_ids": positions[:1]})


def test_word_vectors_stand_for_ids(parity: Any, head: str, attention: str, dtype: torch.dtype) -> None:
    ours, theirs = parity.pair(head, attention, dtype)
    batch = parity.batch(head)
    with torch.no_grad():
        vectors = theirs.get_input_embeddings()(batch.pop("input_ids")) * 1.5
    parity.assert_same_outputs(head, ours, theirs, {**batch, "inputs_embeds": vectors})
    parity.assert_same_outputs(head, ours, theirs, {"inputs_embeds": vectors})


def test_one_token_and_a_full_row_are_equal(parity: Any, attention: str) -> None:
    ours, theirs = parity.pair("BertModel", attention)
    for rows, length in ((1, 1), (5, 1), (1, 40), (7, 33)):
        ids = torch.randint(1, 99, (rows, length))
        parity.assert_same_outputs("BertModel", ours, theirs, {"input_ids": ids})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_maps_under_sdpa_are_those_of_eager_and_leave_the_states_as_they_are(
    parity: Any, head: str, dtype: torch.dtype
) -> None:
    fused, theirs = parity.pair(head, "sdpa", dtype)
    plain, _ = parity.pair(head, "eager", dtype)
    inputs = {**parity.batch(head), "output_hidden_states": True}
    with torch.no_grad():
        asked, written_out = fused(**inputs, output_attentions=True), plain(**inputs, output_attentions=True)
        states = theirs(**inputs).hidden_states
    parity.assert_equal(asked.hidden_states, states, "hidden_states")
    assert [one.shape for one in asked.attentions] == [one.shape for one in written_out.attentions]
    for one, other in zip(asked.attentions, written_out.attentions, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=0)
        torch.testing.assert_close(one.sum(-1), torch.ones_like(one[..., 0]), atol=1e-5, rtol=0)

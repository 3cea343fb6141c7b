"""Under autocast on the CPU every number equals transformers': also where a mask makes the softmax change its dtype."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor


@pytest.fixture(params=(torch.bfloat16, torch.float16), ids=lambda dtype: str(dtype)[6:])
def narrow(request: pytest.FixtureRequest) -> torch.dtype:
    """Each dtype that autocast computes in on a CPU."""
    found: torch.dtype = request.param
    return found


@contextmanager
def both_in_training(ours: Any, theirs: Any) -> Iterator[None]:
    """Switch dropout on in both models of a pair that other tests share."""
    ours.train(), theirs.train()
    try:
        yield
    finally:
        ours.eval(), theirs.eval()


def found_under_autocast(model: Any, inputs: dict[str, Tensor], narrow: torch.dtype) -> dict[str, Tensor]:
    """Give every output and every gradient of one pass under autocast, from one state of the random numbers."""
    torch.manual_seed(5)
    with torch.autocast("cpu", dtype=narrow):
        outputs = model(**inputs)
        loss = outputs.loss if "loss" in outputs else outputs.last_hidden_state.float().pow(2).mean()
    loss.backward()
    grads = {name: value.grad for name, value in model.named_parameters() if value.grad is not None}
    model.zero_grad()
    return {
        **{f"output {name}": value.detach() for name, value in outputs.items() if isinstance(value, Tensor)},
        **grads,
    }


@pytest.mark.parametrize("masked", [True, False], ids=["mask", "no mask"])
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_loss_logits_and_gradients_are_equal_under_autocast(
    parity: Any, head: str, attention: str, narrow: torch.dtype, masked: bool, training: bool
) -> None:
    ours, theirs = parity.pair(head, attention)
    inputs = {**parity.batch(head), **parity.labels(head)}
    if not masked:
        del inputs["attention_mask"]
    if training:
        with both_in_training(ours, theirs):
            mine, other = (found_under_autocast(model, inputs, narrow) for model in (ours, theirs))
    else:
        mine, other = (found_under_autocast(model, inputs, narrow) for model in (ours, theirs))
    assert any(value.dtype == narrow for value in mine.values()), "autocast must have been on"
    parity.assert_same_tensors(mine, other)


@pytest.mark.parametrize("kind", ["bool", "additive"])
def test_full_masks_are_equal_under_autocast(parity: Any, attention: str, narrow: torch.dtype, kind: str) -> None:
    ours, theirs = parity.pair("BertForMaskedLM", attention)
    inputs = {**parity.batch("BertForMaskedLM"), **parity.labels("BertForMaskedLM")}
    look = torch.ones(11, 11, dtype=torch.bool).tril().expand(3, 1, 11, 11)
    added = torch.zeros(look.shape).masked_fill(~look, torch.finfo(torch.float32).min)
    inputs["attention_mask"] = look if kind == "bool" else added
    # transformers' eager would add True as 1.0, so it gets the numbers.
    theirs_inputs = {**inputs, "attention_mask": added if attention == "eager" else inputs["attention_mask"]}
    mine, other = found_under_autocast(ours, inputs, narrow), found_under_autocast(theirs, theirs_inputs, narrow)
    parity.assert_same_tensors(mine, other)


def test_word_vectors_of_the_dtype_of_autocast_are_taken(parity: Any, narrow: torch.dtype) -> None:
    ours, theirs = parity.pair("BertForSequenceClassification")
    inputs = {**parity.batch(), **parity.labels("BertForSequenceClassification")}
    with torch.no_grad():
        inputs["inputs_embeds"] = theirs.get_input_embeddings()(inputs.pop("input_ids")).to(narrow)
    parity.assert_same_tensors(found_under_autocast(ours, inputs, narrow), found_under_autocast(theirs, inputs, narrow))


def test_a_query_without_a_key_gets_zero_under_autocast(parity: Any, attention: str, narrow: torch.dtype) -> None:
    ours, _ = parity.pair("BertModel", attention)
    batch = parity.batch()
    batch["attention_mask"][1] = 0
    with torch.no_grad(), torch.autocast("cpu", dtype=narrow):
        outputs = ours(**batch, output_attentions=True)
    assert outputs.last_hidden_state.isfinite().all()
    assert all(bool((maps[1] == 0).all()) for maps in outputs.attentions)

"""A query that may look at nothing gives zero, as under sdpa in transformers; its eager gives a mean of all values."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

FOUR_KINDS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def keyless_masks(dtype: torch.dtype) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Masks under which some queries have no key, and where those queries are (B, S)."""
    flat = torch.tensor([[1] * 11, [0] * 11, [1] * 4 + [0] * 7])
    nobody = (flat.sum(-1, keepdim=True) == 0).expand(3, 11)
    look = torch.rand(3, 1, 11, 11) > 0.4
    look[0, 0, 2], look[1] = False, False
    lonely = ~look.any(-1)[:, 0]
    added = torch.zeros(look.shape, dtype=dtype).masked_fill(~look, -math.inf)
    return {
        "flat": (flat, nobody),
        "flat, four dimensions": (flat.bool()[:, None, None], nobody),
        "bool": (look, lonely),
        "bool, three dimensions": (look[:, 0], lonely),
        "bool for each head": (look.expand(3, 4, 11, 11), lonely),
        "-inf added": (added, lonely),
        "-inf added, wider dtype": (added.double(), lonely),
    }


def contexts(model: Any, inputs: dict[str, Any]) -> list[torch.Tensor]:
    """What the attention of each layer gives before its output layer."""
    found: list[torch.Tensor] = []
    hooks = [
        layer.attention.self.register_forward_hook(lambda _, __, output: found.append(output[0]))
        for layer in model.encoder.layer
    ]
    with torch.no_grad():
        model(**inputs)
    for hook in hooks:
        hook.remove()
    return found


@pytest.mark.parametrize("kind", FOUR_KINDS, ids=lambda kind: str(kind)[6:])
def test_a_query_without_a_key_gets_zero_and_disturbs_nobody(parity: Any, attention: str, kind: torch.dtype) -> None:
    ours, _ = parity.pair("BertModel", attention, kind)
    batch = parity.batch()
    for name, (mask, keyless) in keyless_masks(kind).items():
        inputs = {**batch, "attention_mask": mask}
        for context in contexts(ours, inputs):
            assert bool((context[keyless] == 0).all()), name
            assert bool((context[~keyless] != 0).any(-1).all()), name
        with torch.no_grad():
            outputs = ours(**inputs, output_attentions=True)
        for one in outputs.attentions:
            sums = one.float().sum(-1).transpose(1, 2)  # (B, S, H)
            assert bool((sums[keyless] == 0).all()), name
            torch.testing.assert_close(sums[~keyless], torch.ones_like(sums[~keyless]), atol=2e-2, rtol=0)
        assert bool(torch.isfinite(outputs.last_hidden_state).all()), name


def test_a_query_without_a_key_is_as_in_transformers_under_sdpa(parity: Any, dtype: torch.dtype) -> None:
    ours, theirs = parity.pair("BertModel", "sdpa", dtype)
    for name, (mask, _) in keyless_masks(dtype).items():
        if name in ("flat", "bool", "bool for each head", "-inf added"):
            inputs = {**parity.batch(), "attention_mask": mask}
            parity.assert_same_outputs("BertModel", ours, theirs, inputs)
            parity.assert_same_gradients(ours, theirs, inputs)


def test_eager_differs_from_transformers_at_a_query_without_a_key_and_only_there(
    parity: Any, dtype: torch.dtype
) -> None:
    ours, theirs = parity.pair("BertModel", "eager", dtype)
    mask, keyless = keyless_masks(dtype)["flat"]
    inputs = {**parity.batch(), "attention_mask": mask, "output_attentions": True}
    with torch.no_grad():
        mine, other = ours(**inputs), theirs(**inputs)
    parity.assert_equal(mine.last_hidden_state[~keyless], other.last_hidden_state[~keyless])
    assert not torch.equal(mine.last_hidden_state[keyless], other.last_hidden_state[keyless])
    for one, its in zip(mine.attentions, other.attentions, strict=True):
        assert bool((one[1] == 0).all())
        # Every padding weighs the same there.
        torch.testing.assert_close(its[1], torch.full_like(its[1], 1 / 11))
        parity.assert_equal(one[[0, 2]], its[[0, 2]])


def test_the_lowest_number_is_a_number_and_hides_nothing_when_every_key_has_it(
    parity: Any, attention: str, dtype: torch.dtype
) -> None:
    ours, theirs = parity.pair("BertModel", attention, dtype)
    look, lonely = keyless_masks(dtype)["bool"]
    mask = torch.zeros(look.shape, dtype=dtype).masked_fill(~look, torch.finfo(dtype).min)
    inputs = {**parity.batch(), "attention_mask": mask}
    parity.assert_same_outputs("BertModel", ours, theirs, inputs)
    for context in contexts(ours, inputs):
        assert bool((context[lonely] != 0).any(-1).all())


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float16], ids=lambda kind: str(kind)[6:])
def test_a_low_number_stays_a_number_in_a_narrower_dtype(parity: Any, attention: str, kind: torch.dtype) -> None:
    ours, _ = parity.pair("BertModel", attention, kind)
    look, lonely = keyless_masks(kind)["bool"]
    inputs = parity.batch()
    for number in (-1e300, torch.finfo(torch.float32).min, -1e9):
        wide = torch.zeros(look.shape, dtype=torch.float64).masked_fill(~look, number)
        inside = wide.clamp(min=torch.finfo(kind).min).to(kind)
        with torch.no_grad():
            expected = ours(**{**inputs, "attention_mask": inside}).last_hidden_state
            assert torch.equal(ours(**{**inputs, "attention_mask": wide}).last_hidden_state, expected)
        for context in contexts(ours, {**inputs, "attention_mask": wide}):
            assert bool((context[lonely] != 0).any(-1).all()), "such a number hides nothing when every key has it"


@pytest.mark.parametrize("kind", FOUR_KINDS, ids=lambda kind: str(kind)[6:])
@pytest.mark.parametrize("mode", ["eval", "train"])
def test_gradients_stay_finite_where_a_query_has_no_key(
    parity: Any, attention: str, kind: torch.dtype, mode: str
) -> None:
    ours, _ = parity.pair("BertModel", attention, kind)
    ours.train(mode == "train")
    for name, (mask, _) in keyless_masks(kind).items():
        for asked in (False, True):
            inputs = {**parity.batch(), "attention_mask": mask, "output_attentions": asked}
            for parameter, gradient in parity.gradients(ours, inputs).items():
                assert bool(torch.isfinite(gradient).all()), f"{name}: {parameter}"
    ours.eval()


def test_the_pooled_mean_of_a_text_without_tokens_is_zero(parity: Any) -> None:
    from plainbert.models.pooling import pool

    ours, _ = parity.pair("BertModel")
    mask, _ = keyless_masks(torch.float32)["flat"]
    with torch.no_grad():
        hidden = ours(**{**parity.batch(), "attention_mask": mask}).last_hidden_state
    pooled = pool(hidden, mask, ("mean",))
    assert pooled[1].abs().max() == 0
    assert bool((pooled[[0, 2]] != 0).any(-1).all())

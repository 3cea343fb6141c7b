"""The model under the function transforms of torch: checks that look at values stand aside, the numbers stay."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call, grad, vmap
from torch.fx.experimental.proxy_tensor import make_fx

from plainbert import BertForMaskedLM, BertModel

# torch says that it has no batched form of a kernel, and loops.
pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")


@pytest.fixture
def mask() -> Tensor:
    """(3, 8): rows of 8, 5 and 1 tokens."""
    return torch.tensor([[1] * 8, [1] * 5 + [0] * 3, [1] + [0] * 7])


@pytest.mark.parametrize("masked", [True, False])
def test_a_model_mapped_over_rows_gives_what_the_batch_gives(
    model: BertModel, ids: Tensor, mask: Tensor, attention: str, masked: bool
) -> None:
    model.config.attn_implementation = attention
    masks = mask if masked else torch.ones_like(mask)

    def row(row_ids: Tensor, row_mask: Tensor) -> Tensor:
        named = {"attention_mask": row_mask[None], "token_type_ids": row_mask[None]} if masked else {}
        hidden: Tensor = model(row_ids[None], **named).last_hidden_state
        return hidden[0]

    with torch.no_grad():
        found = vmap(row)(ids, masks)
        expected = torch.stack([row(*pair) for pair in zip(ids, masks, strict=True)])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_gradients_of_each_row_are_those_of_the_row_alone(
    model: BertModel, ids: Tensor, mask: Tensor, attention: str
) -> None:
    model.config.attn_implementation = attention
    parameters = {name: value.detach() for name, value in model.named_parameters()}

    def loss(values: dict[str, Tensor], row_ids: Tensor, row_mask: Tensor) -> Tensor:
        outputs = functional_call(model, values, (row_ids[None], row_mask[None]))
        found: Tensor = outputs.last_hidden_state.pow(2).mean() + outputs.pooler_output.sum()
        return found

    each = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, ids, mask)
    for index in range(3):
        loss(dict(model.named_parameters()), ids[index], mask[index]).backward()
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(each[name][index], parameter.grad, rtol=1e-3, atol=1e-4, msg=name)
        model.zero_grad()
        alone = grad(loss)(parameters, ids[index], mask[index])
        assert alone.keys() == each.keys()


def test_labels_may_be_mapped_over(config: Any, ids: Tensor) -> None:
    model = BertForMaskedLM(config).eval()

    def loss(row: Tensor) -> Tensor:
        found: Tensor = model(row[None], labels=row[None]).loss
        return found

    with torch.no_grad():
        found = vmap(loss)(ids)
    torch.testing.assert_close(found.mean(), model(ids, labels=ids).loss, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("form", ["none", "flat", "bool", "additive"])
def test_fake_tensors_go_through(model: BertModel, attention: str, form: str) -> None:
    model.config.attn_implementation = attention
    with FakeTensorMode(allow_non_fake_inputs=True):
        masks = {
            "none": None,
            "flat": torch.ones(3, 8, dtype=torch.long),
            "bool": torch.ones(3, 1, 8, 8, dtype=torch.bool),
            "additive": torch.zeros(3, 1, 8, 8),
        }
        outputs = model(torch.ones(3, 8, dtype=torch.long), masks[form], token_type_ids=torch.zeros(3, 8).long())
        assert outputs.last_hidden_state.shape == (3, 8, 32)
        assert outputs.pooler_output.shape == (3, 32)


@pytest.mark.parametrize("mode", ["fake", "symbolic"])
@pytest.mark.parametrize("masked", [True, False])
def test_a_graph_traced_with_fake_tensors_gives_the_models_numbers(
    model: BertModel, ids: Tensor, mask: Tensor, attention: str, mode: str, masked: bool
) -> None:
    model.config.attn_implementation = attention

    def run(row_ids: Tensor, row_mask: Tensor) -> Tensor:
        hidden: Tensor = model(row_ids, attention_mask=row_mask if masked else None).last_hidden_state
        return hidden

    with torch.no_grad():
        graph = make_fx(run, tracing_mode=mode, _allow_non_fake_inputs=True)(ids, mask)
        others = ids.flip(0)
        torch.testing.assert_close(graph(others, mask), run(others, mask), rtol=0, atol=1e-5)

"""Every head through ``torch.export`` and ``torch.compile``: one graph, and the numbers of the model as it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

# One layer: what is traced is a head, its inputs and a layer, and tracing takes time for each layer.
SHORT = {"num_hidden_layers": 1}


@pytest.fixture(autouse=True)
def no_graphs_left() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def other_batch(head: str) -> dict[str, torch.Tensor]:
    """Give a batch of other sizes than ``parity.batch``, padded."""
    shape = (2, 3, 17) if head == "BertForMultipleChoice" else (5, 17)
    mask = torch.ones(shape, dtype=torch.long)
    mask[1, ..., 9:] = 0
    return {
        "input_ids": torch.randint(1, 99, shape),
        "token_type_ids": torch.randint(0, 2, shape),
        "attention_mask": mask,
    }


def sizes(head: str) -> dict[int, Any]:
    """Say which dimensions of the inputs may be of any size."""
    rows, length = torch.export.Dim("rows", min=2, max=64), torch.export.Dim("length", min=2, max=40)
    if head == "BertForMultipleChoice":
        return {0: rows, 1: torch.export.Dim("choices", min=2, max=8), 2: length}
    return {0: rows, 1: length}


def test_an_exported_head_gives_equal_outputs_at_any_size(parity: Any, head: str) -> None:
    ours, theirs = parity.pair(head, **SHORT)
    batch = parity.batch(head)
    exported = torch.export.export(ours, (), batch, dynamic_shapes=dict.fromkeys(batch, sizes(head))).module()
    for inputs in (batch, other_batch(head)):
        outputs = parity.assert_same_outputs(head, ours, theirs, inputs)
        with torch.no_grad():
            found = exported(**inputs)
        assert type(found) is type(outputs)
        parity.assert_equal(found.to_tuple(), outputs.to_tuple(), head)


@pytest.mark.parametrize("given", [("input_ids",), ("inputs_embeds", "attention_mask")], ids="-".join)
def test_a_model_can_be_exported_with_part_of_its_inputs(parity: Any, given: tuple[str, ...]) -> None:
    ours, theirs = parity.pair("BertModel", "eager", **SHORT)
    batch = {**parity.batch(), "inputs_embeds": torch.randn(3, 11, 32)}
    inputs = {name: batch[name] for name in given}
    exported = torch.export.export(ours, (), inputs, dynamic_shapes=dict.fromkeys(inputs, sizes("BertModel"))).module()
    with torch.no_grad():
        found = exported(**inputs)
    outputs = parity.assert_same_outputs("BertModel", ours, theirs, inputs)
    parity.assert_equal(found.to_tuple(), outputs.to_tuple())


def test_one_exported_graph_takes_every_flat_mask_and_gives_states_and_maps(parity: Any, attention: str) -> None:
    ours, _ = parity.pair("BertModel", attention)
    padded = {**parity.batch(), "output_hidden_states": True, "output_attentions": True}
    ones = torch.ones(3, 11, dtype=torch.long)
    nobody = ones.clone()
    nobody[1] = 0
    exported = torch.export.export(ours, (), padded).module()
    for mask in (padded["attention_mask"], ones, nobody):
        inputs = {**padded, "attention_mask": mask}
        with torch.no_grad():
            found, expected = exported(**inputs), ours(**inputs)
        if mask is ones:  # outside the graph a mask of ones is dropped, and another kernel runs
            scale = float(expected.last_hidden_state.abs().max())
            torch.testing.assert_close(found.to_tuple(), expected.to_tuple(), atol=2e-6 * scale, rtol=0)
        else:
            parity.assert_equal(found.to_tuple(), expected.to_tuple())


def test_a_compiled_head_is_one_graph_with_equal_outputs_and_loss(parity: Any, head: str) -> None:
    ours, theirs = parity.pair(head, **SHORT)
    compiled = torch.compile(ours, backend="eager", fullgraph=True)
    parity.assert_same_outputs(head, compiled, theirs, {**parity.batch(head), **parity.labels(head)})


def test_gradients_of_a_compiled_model_are_equal(parity: Any, attention: str) -> None:
    ours, theirs = parity.pair("BertForPreTraining", attention, **SHORT)
    inputs = {**parity.batch(), **parity.labels("BertForPreTraining")}
    loss = parity.loss(torch.compile(ours, backend="aot_eager", fullgraph=True), inputs)
    loss.backward()
    found = {name: value.grad for name, value in ours.named_parameters() if value.grad is not None}
    ours.zero_grad()
    parity.assert_same_tensors({"loss": loss.detach(), **found}, parity.gradients(theirs, inputs))


def test_a_model_compiled_for_any_size_is_not_compiled_again(parity: Any) -> None:
    ours, theirs = parity.pair("BertModel", **SHORT)
    graphs: list[int] = []

    def count(graph: Any, _: Any) -> Any:
        graphs.append(1)
        return graph.forward

    compiled = torch.compile(ours, backend=count, fullgraph=True, dynamic=True)
    for rows, length in ((3, 11), (2, 7), (5, 40), (9, 3)):
        mask = torch.ones(rows, length, dtype=torch.long)
        mask[0, 2:] = 0
        inputs = {"input_ids": torch.randint(1, 99, (rows, length)), "attention_mask": mask}
        parity.assert_same_outputs("BertModel", compiled, theirs, inputs)
    assert len(graphs) == 1

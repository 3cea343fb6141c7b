"""Outputs are read by name, by key and by index, and are seen through by torch."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree

from plainbert.models import outputs as module
from plainbert.models.outputs import BaseModelOutputWithPooling, MaskedLMOutput, ModelOutput

CLASSES = [
    kind
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, ModelOutput) and kind is not ModelOutput
]


@pytest.fixture
def output() -> BaseModelOutputWithPooling:
    return BaseModelOutputWithPooling(torch.zeros(2, 3, 4), None, (torch.ones(1), torch.ones(2)))


def test_an_index_counts_what_is_there(output: BaseModelOutputWithPooling) -> None:
    assert output[0] is output.last_hidden_state
    assert output[1] is output.hidden_states
    assert output[-1] is output.hidden_states
    assert output[:1] == (output.last_hidden_state,)
    with pytest.raises(IndexError):
        output[2]


def test_a_key_that_is_not_there_is_named_with_those_that_are(output: BaseModelOutputWithPooling) -> None:
    assert output["last_hidden_state"] is output.last_hidden_state
    for absent in ("pooler_output", "logits"):
        with pytest.raises(KeyError, match=f"has no '{absent}'; it has last_hidden_state, hidden_states"):
            output[absent]


def test_an_output_behaves_as_a_mapping_of_what_is_there(output: BaseModelOutputWithPooling) -> None:
    assert output.keys() == list(output) == ["last_hidden_state", "hidden_states"]
    assert len(output) == 2
    assert "pooler_output" not in output
    assert output.get("pooler_output", 7) == 7
    assert output.get("hidden_states") is output.hidden_states
    assert dict(output.items()).keys() == {**output}.keys()
    assert output.to_tuple() == tuple(output.values())


@pytest.mark.parametrize("kind", CLASSES)
def test_every_output_is_a_tree_for_torch(kind: type[ModelOutput]) -> None:
    output = kind(*[torch.full((2,), float(index)) for index in range(len(kind.__dataclass_fields__))])
    leaves, structure = _pytree.tree_flatten(output)
    assert [float(leaf[0]) for leaf in leaves] == [float(index) for index in range(len(leaves))]
    back = _pytree.tree_unflatten(leaves, structure)
    assert type(back) is kind
    assert back.keys() == output.keys()
    mapped = _pytree.tree_map(lambda leaf: leaf + 1, output)
    assert float(mapped[0][0]) == 1.0
    paths, _ = _pytree.tree_flatten_with_path(output)
    assert [_pytree.keystr(path).strip(".") for path, _ in paths] == output.keys()


@pytest.mark.parametrize("kind", CLASSES)
def test_every_output_has_the_field_names_of_transformers(kind: type[ModelOutput]) -> None:
    theirs = pytest.importorskip("transformers.modeling_outputs")
    name = kind.__name__
    if name.startswith("_"):
        return
    other = getattr(theirs, name, None)
    if other is None:
        other = pytest.importorskip("transformers.models.bert.modeling_bert").__dict__[name]
    absent = {"cross_attentions", "past_key_values"}  # of decoders
    assert list(kind.__dataclass_fields__) == [field for field in other.__dataclass_fields__ if field not in absent]


def test_an_output_is_copied_and_pickled(output: BaseModelOutputWithPooling) -> None:
    for other in (copy.deepcopy(output), pickle.loads(pickle.dumps(output))):
        assert other.keys() == output.keys()
        assert torch.equal(other[0], output[0])


def test_two_outputs_are_not_compared_by_their_tensors() -> None:
    """Comparing tensors with == gives a tensor, not an answer."""
    one: Tensor = torch.zeros(2)
    assert MaskedLMOutput(logits=one) != MaskedLMOutput(logits=one)

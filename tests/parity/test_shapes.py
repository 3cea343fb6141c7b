"""What a config can say: every activation, and every shape and habit that changes the arithmetic."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

import plainbert
from plainbert.config import ACTIVATION_NAMES

SHAPES = [
    {"num_attention_heads": 1},
    {"num_attention_heads": 32},
    {"hidden_size": 36, "num_attention_heads": 12},
    {"num_hidden_layers": 1},
    {"num_hidden_layers": 3},
    {"layer_norm_eps": 1e-5},
    {"layer_norm_eps": 0.1},
    {"type_vocab_size": 1},
    {"type_vocab_size": 7},
    {"pad_token_id": 5},
    {"pad_token_id": None},
    {"hidden_dropout_prob": 0.0},
    {"attention_probs_dropout_prob": 0.0},
    {"hidden_dropout_prob": 0.5, "attention_probs_dropout_prob": 0.4},
    {"intermediate_size": 1},
    {"vocab_size": 1021},
]


@pytest.mark.parametrize("name", ACTIVATION_NAMES)
def test_a_model_with_any_activation_is_equal(parity: Any, name: str) -> None:
    ours, theirs = parity.pair("BertForMaskedLM", hidden_act=name)
    inputs = {**parity.batch(), **parity.labels("BertForMaskedLM")}
    parity.assert_same_outputs("BertForMaskedLM", ours, theirs, inputs)
    parity.assert_same_gradients(ours, theirs, inputs)


def test_every_activation_is_equal_on_every_kind_of_number(dtype: torch.dtype) -> None:
    from plainbert.models.activations import ACTIVATIONS

    x = torch.cat([torch.linspace(-12, 12, 4801), torch.randn(2000) * 30, torch.tensor([0.0, -0.0, 1e-30, -1e-30])])
    x = x.to(dtype)
    for name in ACTIVATION_NAMES:
        theirs = transformers.activations.ACT2FN[name](x)
        assert torch.equal(ACTIVATIONS[name](x), theirs), name


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "-".join(f"{key}={value}" for key, value in shape.items()))
def test_a_model_of_any_shape_is_equal(parity: Any, attention: str, shape: dict[str, Any]) -> None:
    ours, theirs = parity.pair("BertForPreTraining", attention, **shape)
    inputs = {**parity.batch(), **parity.labels("BertForPreTraining")}
    segments = shape.get("type_vocab_size", 2)
    inputs["token_type_ids"] = torch.randint(0, segments, inputs["input_ids"].shape)
    asked = {"output_hidden_states": True, "output_attentions": attention == "eager"}
    parity.assert_same_outputs("BertForPreTraining", ours, theirs, inputs | asked)
    for model in (ours.train(), theirs.train()):
        assert model.training
    parity.assert_same_gradients(ours, theirs, inputs)
    ours.eval(), theirs.eval()


def test_an_untied_decoder_is_equal_with_its_own_matrix_and_bias(parity: Any, attention: str) -> None:
    # transformers keeps a `cls.predictions.bias` beside it then, which takes no part.
    with pytest.warns(plainbert.PlainBertWarning, match="cls.predictions.bias and cls.predictions.decoder.bias"):
        ours, theirs = parity.pair("BertForMaskedLM", attention, tie_word_embeddings=False)
    head, table = ours.cls.predictions, ours.bert.embeddings.word_embeddings.weight
    assert not torch.equal(head.decoder.weight, table)
    inputs = {**parity.batch(), **parity.labels("BertForMaskedLM")}
    parity.assert_same_outputs("BertForMaskedLM", ours, theirs, inputs)
    parity.assert_same_gradients(ours, theirs, inputs)


def test_the_row_of_padding_gets_no_gradient_where_transformers_gives_it_none(parity: Any) -> None:
    for pad in (0, 5, None):
        ours, theirs = parity.pair("BertModel", pad_token_id=pad)
        batch = parity.batch()
        batch["input_ids"][:, 2] = 5
        mine, other = parity.gradients(ours, batch), parity.gradients(theirs, batch)
        parity.assert_same_tensors(mine, other)
        row = mine["embeddings.word_embeddings.weight"][5]
        assert bool((row == 0).all()) == (pad == 5)


@pytest.mark.parametrize(
    "shape", [{}, {"tie_word_embeddings": False}, {"pad_token_id": 7}, {"initializer_range": 0.3}], ids=str
)
def test_fresh_weights_are_drawn_as_in_transformers(parity: Any, head: str, shape: dict[str, Any]) -> None:
    fields = parity.fields(head, **shape)
    torch.manual_seed(4)
    ours = getattr(plainbert, head)(plainbert.BertConfig(**fields))
    after = torch.rand(1)
    torch.manual_seed(4)
    theirs = getattr(transformers, head)(transformers.BertConfig(**fields))
    expected = dict(theirs.named_parameters())
    expected.pop("cls.predictions.decoder.bias", None)  # the second name of one parameter here; there it is zeros too
    parity.assert_same_tensors(dict(ours.named_parameters()), expected)
    assert torch.equal(after, torch.rand(1)), "as many numbers are drawn"
    assert ours.training


def test_a_model_counts_its_parameters_as_transformers_does(parity: Any, head: str) -> None:
    ours, theirs = parity.pair(head)
    assert ours.num_parameters() == theirs.num_parameters()
    assert ours.num_parameters(exclude_embeddings=True) == theirs.num_parameters(exclude_embeddings=True)


def test_the_names_of_modules_and_parameters_are_those_of_transformers(parity: Any, head: str) -> None:
    ours, theirs = parity.pair(head)
    assert [name for name, _ in ours.named_parameters()] == [name for name, _ in theirs.named_parameters()]
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert {name for name, _ in ours.named_modules()} == {name for name, _ in theirs.named_modules()}

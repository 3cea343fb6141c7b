"""Resizing what has been shared, replaced, copied or trained: the decoder goes with its table, or is refused."""

from __future__ import annotations

import copy
import io
import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from plainbert import (
    BertConfig,
    BertForMaskedLM,
    BertForPreTraining,
    BertForSequenceClassification,
    BertModel,
    InputError,
)
from plainbert.models.pretraining import BertOnlyMLMHead, BertPreTrainingHeads

Through = Callable[[Any], Any]


@pytest.fixture(params=["outer", "inner"])
def through(request: pytest.FixtureRequest) -> Through:
    """Resize the model, or the encoder inside it."""
    return (lambda model: model) if request.param == "outer" else (lambda model: model.bert)


@pytest.fixture(params=[BertForMaskedLM, BertForPreTraining])
def head(request: pytest.FixtureRequest) -> Any:
    """Each model with a masked LM head."""
    return request.param


def assert_of_size(model: Any, size: int) -> None:
    """Table, decoder, bias, config and outputs agree."""
    predictions = model.cls.predictions
    assert model.bert.embeddings.word_embeddings.weight.shape == predictions.decoder.weight.shape == (size, 32)
    assert predictions.bias.shape == predictions.decoder.bias.shape == (size,)
    assert (model.bert.embeddings.word_embeddings.num_embeddings, predictions.decoder.out_features) == (size, size)
    assert model.config.vocab_size == size
    assert model(torch.tensor([[size - 1]]))[0].shape == (1, 1, size)


# --- two models, one config ---


@pytest.mark.parametrize("size", [200, 60])
def test_each_of_two_models_with_one_config_is_checked_against_its_own_table(config: BertConfig, size: int) -> None:
    resized, other = BertModel(config).eval(), BertModel(config).eval()
    resized.resize_token_embeddings(size)
    assert config.vocab_size == size
    for model, limit in ((resized, size), (other, 99)):
        assert model(torch.tensor([[limit - 1]])).last_hidden_state.shape == (1, 1, 32)
        sentence = rf"input_ids must be from 0 to {limit - 1} \(vocab_size is {limit}\), got {limit};"
        with pytest.raises(InputError, match=sentence):
            model(torch.tensor([[limit]]))


def test_each_of_two_models_with_one_config_can_be_resized(config: BertConfig) -> None:
    first, second = BertForMaskedLM(config).eval(), BertForMaskedLM(config).eval()
    first.resize_token_embeddings(200)
    second.resize_token_embeddings(150)
    assert second(torch.tensor([[149]])).logits.shape == (1, 1, 150)
    assert first(torch.tensor([[199]])).logits.shape == (1, 1, 200)


@pytest.mark.parametrize(
    ("field", "name", "limit"),
    [("type_vocab_size", "token_type_ids", 2), ("max_position_embeddings", "position_ids", 40)],
)
def test_the_other_tables_set_the_limits_too_whatever_the_config_says(
    config: BertConfig, ids: Tensor, field: str, name: str, limit: int
) -> None:
    model = BertModel(config).eval()
    setattr(config, field, 500)
    with pytest.raises(InputError, match=rf"{name} must be from 0 to {limit - 1} \({field} is {limit}\), got {limit}"):
        model(ids, **{name: torch.full_like(ids, limit)})
    if name == "position_ids":
        with pytest.raises(InputError, match=r"41 tokens in a row, .*at most 40"):
            model(torch.ones(1, 41, dtype=torch.long))


def test_the_width_of_the_table_is_that_of_word_vectors_whatever_the_config_says(config: BertConfig) -> None:
    model = BertModel(config).eval()
    config.hidden_size = 64
    with pytest.raises(InputError, match=r"\(texts, tokens, 32\), got \(1, 2, 64\)"):
        model(inputs_embeds=torch.zeros(1, 2, 64))


# --- parts that were replaced ---


def test_a_replaced_encoder_is_resized_with_the_head_above_it(config: BertConfig, head: Any, through: Through) -> None:
    model = head(config).eval()
    model.bert = BertModel(config).eval()
    through(model).resize_token_embeddings(107)
    assert_of_size(model, 107)


def test_a_replaced_head_is_resized_with_the_encoder_below_it(config: BertConfig, head: Any, through: Through) -> None:
    model = head(config).eval()
    replaced = model.cls
    model.cls = (BertOnlyMLMHead if head is BertForMaskedLM else BertPreTrainingHeads)(config)
    through(model).resize_token_embeddings(107)
    assert_of_size(model, 107)
    assert replaced.predictions.decoder.out_features == 99


@pytest.mark.parametrize("tie", [True, False])
@pytest.mark.parametrize("part", ["bert", "cls"])
def test_tying_after_a_replacement_makes_the_table_the_decoder_again(config: BertConfig, part: str, tie: bool) -> None:
    config.tie_word_embeddings = tie
    model = BertForMaskedLM(config).eval()
    setattr(model, part, BertModel(config) if part == "bert" else BertOnlyMLMHead(config))
    table = model.get_input_embeddings()
    model.tie_weights()
    assert (model.get_output_embeddings().weight is table.weight) == tie
    model.resize_token_embeddings(107)
    assert (model.get_output_embeddings().weight is table.weight) == tie
    assert_of_size(model, 107)


def test_models_without_a_decoder_have_nothing_to_tie(config: BertConfig) -> None:
    for model in (BertModel(config), BertForSequenceClassification(config)):
        before = [id(parameter) for parameter in model.parameters()]
        model.tie_weights()
        assert [id(parameter) for parameter in model.parameters()] == before


def test_a_decoder_of_another_size_than_the_table_is_refused_and_nothing_changed(
    config: BertConfig, through: Through
) -> None:
    model = BertForMaskedLM(config)
    larger = copy.deepcopy(config)
    larger.vocab_size = 120
    model.bert = BertModel(larger)
    sentence = r"decoder must have a row for each of the 120 word embeddings, got 99;"
    with pytest.raises(InputError, match=sentence):
        through(model).resize_token_embeddings(107)
    assert model.bert.embeddings.word_embeddings.weight.shape == (120, 32)
    assert model.cls.predictions.decoder.weight.shape == (99, 32)
    assert (model.config.vocab_size, larger.vocab_size) == (99, 120)


# --- sizes ---


@pytest.mark.parametrize("size", [np.int64(107), np.int32(107), torch.tensor(107)], ids=repr)
def test_a_whole_number_of_another_library_is_a_size(config: BertConfig, size: Any) -> None:
    model = BertForMaskedLM(config).eval()
    model.resize_token_embeddings(size)
    assert_of_size(model, 107)
    assert type(config.vocab_size) is int  # for config.json
    assert type(model.cls.predictions.decoder.out_features) is int


@pytest.mark.parametrize("size", [2**25 + 1, 2**40, np.int64(2**40), np.float64(107), np.bool_(True), "107"], ids=repr)
def test_a_size_that_no_vocabulary_has_is_refused_before_memory_is_asked_for(config: BertConfig, size: Any) -> None:
    model = BertForMaskedLM(config)
    with pytest.raises(
        InputError, match=rf"new_num_tokens must be a whole number from 1 .* to {2**25}, got {re.escape(repr(size))};"
    ):
        model.resize_token_embeddings(size)
    assert_of_size(model.eval(), 99)


# --- gradients ---


def test_gradients_of_what_is_not_resized_are_kept(
    config: BertConfig, ids: Tensor, head: Any, through: Through
) -> None:
    model = head(config)
    model(ids, labels=ids).loss.backward()
    of_vocabulary = {"bert.embeddings.word_embeddings.weight", "cls.predictions.bias"}
    before = {name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None}
    assert of_vocabulary < before.keys()
    through(model).resize_token_embeddings(107)
    for name, parameter in model.named_parameters():
        if name in of_vocabulary:
            assert parameter.grad is None, name
        elif name in before:
            assert torch.equal(parameter.grad, before[name]), name


# --- copies ---


def pickled(value: object) -> bytes:
    return pickle.dumps(value)


def saved(value: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("write", [pickled, saved])
def test_a_stored_encoder_leaves_the_head_behind(config: BertConfig, ids: Tensor, write: Callable[..., bytes]) -> None:
    model = BertForMaskedLM(config).eval()
    alone = len(write(BertModel(config, add_pooling_layer=False)))
    assert abs(len(write(model.bert)) - alone) < 500  # the head has 1,219 numbers of its own
    stored = write(model.bert)
    back = pickle.loads(stored) if write is pickled else torch.load(io.BytesIO(stored), weights_only=False)
    assert not any("decoder" in name for name, _ in back.named_modules())
    back.resize_token_embeddings(107)
    assert back(ids).last_hidden_state.shape == (3, 8, 32)
    assert_of_size(model, 99)


def test_a_copied_encoder_leaves_the_head_to_the_original(config: BertConfig) -> None:
    model = BertForMaskedLM(config).eval()
    copy.deepcopy(model.bert).resize_token_embeddings(107)
    assert_of_size(model, 99)
    model.bert.resize_token_embeddings(120)
    assert_of_size(model, 120)


@pytest.mark.parametrize(
    "copied",
    [
        copy.deepcopy,
        lambda model: pickle.loads(pickled(model)),
        lambda model: torch.load(io.BytesIO(saved(model)), weights_only=False),
        lambda model: pickle.loads(pickled(copy.deepcopy(pickle.loads(pickled(model))))),
    ],
    ids=["deepcopy", "pickle", "torch.save", "all"],
)
@pytest.mark.parametrize("tie", [True, False])
def test_a_copy_keeps_its_ties_and_is_resized_alone(
    config: BertConfig, head: Any, through: Through, copied: Callable[[nn.Module], Any], tie: bool
) -> None:
    config.tie_word_embeddings = tie
    model = head(config).eval()
    other = copied(model)
    assert (other.cls.predictions.decoder.weight is other.get_input_embeddings().weight) == tie
    assert other.cls.predictions.bias is other.cls.predictions.decoder.bias
    through(other).resize_token_embeddings(107)
    assert (other.cls.predictions.decoder.weight is other.get_input_embeddings().weight) == tie
    assert_of_size(other, 107)
    assert_of_size(model, 99)


def test_an_encoder_that_was_replaced_no_longer_resizes_the_head(tiny_config: Callable[..., dict[str, Any]]) -> None:
    model = BertForMaskedLM(BertConfig(**tiny_config(vocab_size=99)))
    old = model.bert
    model.bert = BertModel(BertConfig(**tiny_config(vocab_size=99)))
    old.resize_token_embeddings(107)
    assert model.cls.predictions.decoder.out_features == 99
    model.cls = None
    assert model.get_output_embeddings() is None

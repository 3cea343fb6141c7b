"""The heads: their shapes, the labels they take, and what is tied."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import plainbert
from plainbert import (
    BertConfig,
    BertForMaskedLM,
    BertForMultipleChoice,
    BertForPreTraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertPreTrainedModel,
    ConfigError,
    InputError,
)

Inputs = Callable[[BertPreTrainedModel], dict[str, Tensor]]

# class, field, shape for 3 rows of 8 tokens, 2 choices, 5 classes
SHAPES = [
    ("BertForPreTraining", "prediction_logits", (3, 8, 99)),
    ("BertForPreTraining", "seq_relationship_logits", (3, 2)),
    ("BertForMaskedLM", "logits", (3, 8, 99)),
    ("BertForNextSentencePrediction", "logits", (3, 2)),
    ("BertForSequenceClassification", "logits", (3, 5)),
    ("BertForMultipleChoice", "logits", (3, 2)),
    ("BertForTokenClassification", "logits", (3, 8, 5)),
    ("BertForQuestionAnswering", "start_logits", (3, 8)),
    ("BertForQuestionAnswering", "end_logits", (3, 8)),
]


@pytest.mark.parametrize(("name", "field", "shape"), SHAPES)
def test_every_head_gives_logits_of_its_shape(
    config: BertConfig, inputs_for: Inputs, name: str, field: str, shape: tuple[int, ...]
) -> None:
    config.num_labels = 2 if name == "BertForQuestionAnswering" else 5
    model = getattr(plainbert, name)(config).eval()
    outputs = model(**inputs_for(model))
    assert outputs[field].shape == shape
    assert outputs.loss is None


@pytest.mark.parametrize(("name", "field", "shape"), SHAPES)
def test_every_head_takes_an_empty_batch(config: BertConfig, name: str, field: str, shape: tuple[int, ...]) -> None:
    config.num_labels = 2 if name == "BertForQuestionAnswering" else 5
    model = getattr(plainbert, name)(config).eval()
    choices = (2,) if name == "BertForMultipleChoice" else ()
    assert model(torch.ones((0, *choices, 8), dtype=torch.long))[field].shape == (0, *shape[1:])


# --- labels ---


def labels_with_nothing_to_predict(model: BertPreTrainedModel) -> dict[str, Tensor]:
    none = torch.full((3, 8), -100)
    return {
        "BertForPreTraining": {"labels": none, "next_sentence_label": none[:, 0]},
        "BertForQuestionAnswering": {"start_positions": none[:, 0] + 99, "end_positions": none[:, 0] + 200},
        "BertForMaskedLM": {"labels": none},
        "BertForTokenClassification": {"labels": none},
    }.get(type(model).__name__, {"labels": none[:, 0]})


def test_with_nothing_to_predict_a_step_changes_nothing(any_model: BertPreTrainedModel, inputs_for: Inputs) -> None:
    if type(any_model).__name__ == "BertModel":
        return
    before = {name: parameter.detach().clone() for name, parameter in any_model.named_parameters()}
    any_model.train()
    optimizer = torch.optim.AdamW(any_model.parameters(), lr=0.1, weight_decay=0.0)
    loss = any_model(**inputs_for(any_model), **labels_with_nothing_to_predict(any_model)).loss
    loss.backward()
    optimizer.step()
    assert loss == 0.0
    for name, parameter in any_model.named_parameters():
        assert torch.equal(parameter, before[name]), name


def test_pretraining_sums_the_losses_that_were_asked_for(config: BertConfig, ids: Tensor) -> None:
    model = BertForPreTraining(config).eval()
    order = torch.tensor([0, 1, 1])
    both = model(ids, labels=ids, next_sentence_label=order).loss
    words = model(ids, labels=ids).loss
    sentences = model(ids, next_sentence_label=order).loss
    assert torch.equal(both, words + sentences)
    assert torch.equal(model(ids, next_sentence_label=order[:, None]).loss, sentences)
    assert model(ids).loss is None


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"labels": torch.full((3, 8), 99)}, "labels must be -100 or from 0 to 98, got 99"),
        (
            {"labels": torch.zeros(3, 7, dtype=torch.long)},
            r"labels must have the shape \(3, 8\), got \(3, 7\)",
        ),
        ({"next_sentence_label": torch.tensor([0, 1, 2])}, "next_sentence_label must be -100 or from 0 to 1, got 2"),
        ({"next_sentence_label": torch.zeros(3)}, "next_sentence_label must be integers"),
    ],
)
def test_pretraining_names_the_labels_that_are_wrong(
    config: BertConfig, ids: Tensor, labels: dict[str, Tensor], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        BertForPreTraining(config)(ids, **labels)


@pytest.mark.parametrize("head", [BertForMaskedLM, BertForTokenClassification, BertForPreTraining])
def test_labels_of_a_transposed_batch_are_refused(config: BertConfig, ids: Tensor, head: Any) -> None:
    model = head(config).eval()
    labels = ids % 2
    with pytest.raises(InputError, match=r"labels must have the shape \(3, 8\), got \(8, 3\); one label"):
        model(ids, labels=labels.T)
    with pytest.raises(InputError, match=r"labels must have the shape \(3, 8\), got \(8, 3\)"):
        model(ids, labels=labels.T.contiguous())
    assert torch.equal(model(ids, labels=labels.flatten()).loss, model(ids, labels=labels).loss)
    assert torch.equal(model(ids, labels=labels[..., None]).loss, model(ids, labels=labels).loss)


def test_question_answering_ignores_what_lies_outside_the_window(config: BertConfig, ids: Tensor) -> None:
    model = BertForQuestionAnswering(config).eval()
    start, end = torch.tensor([2, -1, 5]), torch.tensor([3, -100, 8])
    outputs = model(ids, start_positions=start, end_positions=end)
    expected = [
        torch.nn.functional.cross_entropy(outputs.start_logits[[0, 2]], start[[0, 2]]),
        torch.nn.functional.cross_entropy(outputs.end_logits[[0]], end[[0]]),
    ]
    torch.testing.assert_close(outputs.loss, sum(expected) / 2)
    columns = model(ids, start_positions=start[:, None], end_positions=end[:, None])
    assert torch.equal(columns.loss, outputs.loss)


@pytest.mark.parametrize("given", ["start_positions", "end_positions"])
def test_half_an_answer_has_no_loss(config: BertConfig, ids: Tensor, given: str) -> None:
    assert BertForQuestionAnswering(config)(ids, **{given: torch.ones(3, dtype=torch.long)}).loss is None


@pytest.mark.parametrize("name", ["start_positions", "end_positions"])
def test_positions_that_are_no_numbers_are_refused_by_name(config: BertConfig, ids: Tensor, name: str) -> None:
    positions: dict[str, Any] = {"start_positions": torch.ones(3).long(), "end_positions": torch.ones(3).long()}
    with pytest.raises(InputError, match=rf"{name} must be integers .*torch\.float32"):
        BertForQuestionAnswering(config)(ids, **{**positions, name: torch.ones(3)})
    with pytest.raises(InputError, match=f"{name} must be a tensor, got list"):
        BertForQuestionAnswering(config)(ids, **{**positions, name: [1, 1, 1]})


@pytest.mark.parametrize("count", [1, 3, 9])
def test_question_answering_needs_two_labels(config: BertConfig, count: int) -> None:
    config.num_labels = count
    with pytest.raises(ConfigError, match=f"num_labels must be 2 .*got {count}"):
        BertForQuestionAnswering(config)


def test_one_model_takes_labels_of_every_kind_in_any_order(config: BertConfig, ids: Tensor) -> None:
    config.num_labels = 2
    model = BertForSequenceClassification(config).eval()
    whole, parts = torch.tensor([0, 1, 1]), torch.rand(3, 2)
    first = [float(model(ids, labels=labels).loss.detach()) for labels in (whole, parts)]
    again = [float(model(ids, labels=labels).loss.detach()) for labels in (parts, whole)]
    assert first == again[::-1]
    assert model.config.problem_type is None


def test_token_labels_out_of_range_are_refused(config: BertConfig, ids: Tensor) -> None:
    with pytest.raises(InputError, match="labels must be -100 or from 0 to 1, got 7"):
        BertForTokenClassification(config)(ids, labels=torch.full((3, 8), 7))


# --- multiple choice ---


def test_each_choice_is_scored_as_if_alone(config: BertConfig, ids: Tensor) -> None:
    model = BertForMultipleChoice(config).eval()
    three = torch.stack([ids, ids.flip(0), ids.flip(1)], 1)  # (3, 3, 8)
    together = model(three, token_type_ids=torch.ones_like(three), labels=torch.tensor([0, 2, 1]))
    for choice in range(3):
        alone = model(three[:, choice : choice + 1], token_type_ids=torch.ones(3, 1, 8, dtype=torch.long))
        torch.testing.assert_close(together.logits[:, choice : choice + 1], alone.logits, rtol=0, atol=1e-5)
    expected = torch.nn.functional.cross_entropy(together.logits, torch.tensor([0, 2, 1]))
    torch.testing.assert_close(together.loss, expected)


def test_choices_may_come_as_vectors(config: BertConfig, ids: Tensor) -> None:
    model = BertForMultipleChoice(config).eval()
    choices = ids[:, None].expand(3, 2, 8)
    vectors = model.get_input_embeddings()(choices)
    assert torch.equal(model(inputs_embeds=vectors).logits, model(choices).logits)


@pytest.mark.parametrize("name", ["input_ids", "attention_mask", "token_type_ids", "position_ids", "inputs_embeds"])
def test_choices_without_their_dimension_are_refused_by_name(config: BertConfig, ids: Tensor, name: str) -> None:
    inputs: dict[str, Any] = {"input_ids": ids[:, None].expand(3, 2, 8)}
    inputs[name] = torch.zeros(3, 8, 32) if name == "inputs_embeds" else torch.ones(3, 8).long()
    with pytest.raises(InputError, match=rf"{name} must have the shape \(texts, choices, tokens .*got \(3, 8"):
        BertForMultipleChoice(config)(**inputs)
    with pytest.raises(InputError, match=f"{name} must be a tensor, got list"):
        BertForMultipleChoice(config)(**{**inputs, name: [[[1]]]})


def test_no_choices_are_refused(config: BertConfig) -> None:
    with pytest.raises(InputError, match=r"input_ids must have the shape .*got \(3, 0, 8\)"):
        BertForMultipleChoice(config)(torch.ones(3, 0, 8, dtype=torch.long))


def test_without_inputs_multiple_choice_says_so(config: BertConfig) -> None:
    with pytest.raises(InputError, match="exactly one of input_ids and inputs_embeds must be given, got neither"):
        BertForMultipleChoice(config)()


# --- weights ---


@pytest.mark.parametrize("head", [BertForMaskedLM, BertForPreTraining])
def test_the_decoder_is_the_embedding_table_and_its_bias_has_two_names(head: type, config: BertConfig) -> None:
    model = head(config)
    predictions = model.cls.predictions
    assert predictions.decoder.weight is model.bert.embeddings.word_embeddings.weight
    assert predictions.decoder.bias is predictions.bias
    assert predictions.decoder.weight.abs().sum() > 0


@pytest.mark.parametrize("head", [BertForMaskedLM, BertForPreTraining])
def test_an_untied_decoder_has_a_table_of_its_own(head: type, config: BertConfig) -> None:
    config.tie_word_embeddings = False
    model = head(config)
    assert model.cls.predictions.decoder.weight is not model.bert.embeddings.word_embeddings.weight
    assert not torch.equal(model.cls.predictions.decoder.weight, model.bert.embeddings.word_embeddings.weight)


@pytest.mark.parametrize(("rate", "used"), [(None, 0.25), (0.0, 0.0), (0.5, 0.5)])
@pytest.mark.parametrize("head", [BertForSequenceClassification, BertForMultipleChoice, BertForTokenClassification])
def test_the_dropout_before_a_classifier_is_its_own_or_that_of_the_layers(
    head: type, config: BertConfig, rate: float | None, used: float
) -> None:
    config.hidden_dropout_prob, config.classifier_dropout = 0.25, rate
    assert head(config).dropout.p == used


def test_fresh_weights_are_drawn_as_the_original_draws_them(any_model: BertPreTrainedModel) -> None:
    for name, parameter in any_model.named_parameters():
        if name.endswith("LayerNorm.weight"):
            assert (parameter == 1).all(), name
        elif name.endswith("bias"):
            assert (parameter == 0).all(), name
        elif "word_embeddings" in name:
            assert (parameter[0] == 0).all(), name
            assert 0.28 < parameter[1:].std() < 0.32, name
        elif parameter.numel() > 500:
            assert 0.25 < parameter.std() < 0.35, name


def test_every_module_of_a_model_is_drawn_once(config: BertConfig) -> None:
    """A head does not draw its encoder a second time: the numbers are those of the encoder alone."""
    torch.manual_seed(1)
    alone = plainbert.BertModel(config, add_pooling_layer=False)
    torch.manual_seed(1)
    below = BertForMaskedLM(config).bert
    for (name, one), other in zip(alone.named_parameters(), below.parameters(), strict=True):
        assert torch.equal(one, other), name


def test_a_copy_of_a_model_is_its_own_with_its_own_ties(config: BertConfig, ids: Tensor) -> None:
    model = BertForMaskedLM(config).eval()
    before = model(ids).logits
    other = copy.deepcopy(model)
    assert other.cls.predictions.decoder.weight is other.bert.embeddings.word_embeddings.weight
    assert other.bert.vocabulary_head is other.cls.predictions
    with torch.no_grad():
        other.bert.embeddings.word_embeddings.weight.zero_()
    assert torch.equal(model(ids).logits, before)

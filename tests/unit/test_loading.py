"""Which stored tensor becomes which parameter: every spelling of a name, and a refusal or a warning for the rest."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import plainbert
from plainbert import (
    BertConfig,
    BertForMaskedLM,
    BertForPreTraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    BertPreTrainedModel,
    CheckpointError,
    KeywordError,
    PlainBertWarning,
)

Store = Callable[..., Path]
Fill = Callable[[BertPreTrainedModel], Any]


def old_names(name: str) -> str:
    return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")


# --- spellings of a name ---


@pytest.mark.parametrize("mixture", ["all", "every other", "weights alone"])
def test_the_layer_norm_names_of_2018_are_read(
    small: BertConfig, rows: Tensor, store: Store, randomized: Fill, mixture: str
) -> None:
    model = randomized(BertForPreTraining(small))
    state = model.state_dict()
    if mixture == "all":
        renamed = {old_names(name): tensor for name, tensor in state.items()}
    elif mixture == "every other":
        renamed = {old_names(name) if index % 2 else name: tensor for index, (name, tensor) in enumerate(state.items())}
    else:
        renamed = {re.sub(r"LayerNorm\.weight", "LayerNorm.gamma", name): tensor for name, tensor in state.items()}
    assert renamed.keys() != state.keys()
    loaded = BertForPreTraining.from_pretrained(store(renamed, small))
    assert torch.equal(loaded(rows).prediction_logits, model(rows).prediction_logits)


@pytest.mark.parametrize("name", ["embeddings.LayerNorm.gamma", "encoder.layer.1.output.LayerNorm.beta"])
@pytest.mark.parametrize("head", [BertModel, BertForPreTraining])
def test_one_encoder_weight_under_two_names_is_refused(
    small: BertConfig, store: Store, name: str, head: type[BertPreTrainedModel]
) -> None:
    state = BertForPreTraining(small).state_dict()
    state[f"bert.{name}"] = torch.ones(32)
    with pytest.raises(CheckpointError, match=re.escape(name)):
        head.from_pretrained(store(state, small))


PREFIXES = ["module.", "_orig_mod.", "model.", "module._orig_mod.", "_orig_mod.module.", "0.auto_model."]


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("head", [BertModel, BertForMaskedLM])
def test_what_a_training_tool_put_before_every_name_is_taken_off(
    small: BertConfig, rows: Tensor, store: Store, randomized: Fill, head: Any, prefix: str,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    model = randomized(head(small))
    folder = store({prefix + name: tensor for name, tensor in model.state_dict().items()}, small)
    with caplog.at_level(logging.INFO, "plainbert"):
        assert torch.equal(head.from_pretrained(folder)(rows)[0], model(rows)[0])
    assert f"took {prefix!r} off every weight name" in caplog.text


def test_a_prefix_that_nobody_knows_is_an_error_and_never_random_weights(small: BertConfig, store: Store) -> None:
    state = {f"student.{name}": tensor for name, tensor in BertModel(small).state_dict().items()}
    with pytest.raises(
        CheckpointError, match=r"lacks \d+ encoder weights of BertModel: embeddings.word_embeddings.weight"
    ):
        BertModel.from_pretrained(store(state, small))


def test_a_prefix_before_some_names_alone_is_an_error(small: BertConfig, store: Store) -> None:
    state = BertModel(small).state_dict()
    mixed = {("module." if "layer.1" in name else "") + name: tensor for name, tensor in state.items()}
    with pytest.raises(CheckpointError, match=r"lacks 16 encoder weights .*encoder\.layer\.1"):
        BertModel.from_pretrained(store(mixed, small))


@pytest.mark.parametrize("key", ["state_dict", "model", "model_state_dict"])
def test_a_state_dict_in_a_dictionary_is_unwrapped(
    small: BertConfig, rows: Tensor, store: Store, randomized: Fill, key: str
) -> None:
    model = randomized(BertModel(small))
    folder = store({key: model.state_dict(), "epoch": 3}, small, "pytorch_model.bin")
    assert torch.equal(BertModel.from_pretrained(folder)(rows)[0], model(rows)[0])


# --- heads and bases ---


@pytest.mark.parametrize("head", ["BertForMaskedLM", "BertForPreTraining", "BertForQuestionAnswering"])
def test_a_base_loads_from_a_file_with_a_head(
    small: BertConfig, rows: Tensor, store: Store, randomized: Fill, head: str
) -> None:
    model = randomized(getattr(plainbert, head)(small))
    base = BertModel.from_pretrained(store(model.state_dict(), small), add_pooling_layer=False)
    assert torch.equal(base(rows).last_hidden_state, model.bert(rows).last_hidden_state)


@pytest.mark.parametrize("written", ["with bert.", "without bert."])
def test_a_head_loads_from_a_base_with_exactly_one_warning(
    small: BertConfig, rows: Tensor, store: Store, randomized: Fill, written: str
) -> None:
    base = randomized(BertModel(small))
    prefix = "bert." if written == "with bert." else ""
    folder = store({prefix + name: tensor for name, tensor in base.state_dict().items()}, small)
    with pytest.warns(PlainBertWarning) as caught:
        model = BertForSequenceClassification.from_pretrained(folder, num_labels=3)
    (warning,) = caught
    assert "has no weights for classifier.weight, classifier.bias of BertForSequenceClassification" in str(
        warning.message
    )
    assert torch.equal(model.bert(rows).last_hidden_state, base(rows).last_hidden_state)
    assert torch.equal(model.bert(rows).pooler_output, base(rows).pooler_output)
    assert 0.2 < model.classifier.weight.std() < 0.4
    assert (model.classifier.bias == 0).all()


def test_a_file_without_bert_may_hold_a_head(small: BertConfig, rows: Tensor, store: Store, randomized: Fill) -> None:
    model = randomized(BertForTokenClassification(small))
    state = {name.removeprefix("bert."): tensor for name, tensor in model.state_dict().items()}
    loaded = BertForTokenClassification.from_pretrained(store(state, small))
    assert torch.equal(loaded(rows).logits, model(rows).logits)


def test_one_encoder_stored_with_and_without_its_prefix_is_refused(small: BertConfig, store: Store) -> None:
    state = BertModel(small).state_dict()
    both = {**state, **{f"bert.{name}": tensor for name, tensor in state.items()}}
    for head in (BertModel, BertForMaskedLM):
        with pytest.raises(CheckpointError, match=r"embeddings\.LayerNorm"):
            head.from_pretrained(store(both, small))


def test_a_bare_model_without_a_stored_pooler_has_none_and_says_so(
    small: BertConfig, rows: Tensor, store: Store
) -> None:
    folder = store(BertForMaskedLM(small).state_dict(), small)
    with pytest.warns(PlainBertWarning, match="has no pooler, so pooler_output is None") as caught:
        model = BertModel.from_pretrained(folder)
    assert len(caught) == 1
    assert model(rows).pooler_output is None
    with pytest.warns(PlainBertWarning, match=r"has no weights for pooler\.dense\.weight, pooler\.dense\.bias"):
        model = BertModel.from_pretrained(folder, add_pooling_layer=True)
    assert model(rows).pooler_output.shape == (2, 32)


@pytest.mark.parametrize(
    "head", ["BertForSequenceClassification", "BertForNextSentencePrediction", "BertForMultipleChoice"]
)
def test_a_head_that_needs_a_pooler_makes_one_and_names_it(small: BertConfig, store: Store, head: str) -> None:
    folder = store(BertForMaskedLM(small).state_dict(), small)
    with pytest.warns(PlainBertWarning, match=r"bert\.pooler\.dense\.weight, bert\.pooler\.dense\.bias") as caught:
        getattr(plainbert, head).from_pretrained(folder)
    assert len(caught) == 1


def test_weights_of_other_heads_are_logged_and_no_warning(
    small: BertConfig, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    folder = store(BertForPreTraining(small).state_dict(), small)
    with caplog.at_level(logging.INFO, "plainbert"):
        BertModel.from_pretrained(folder)
    assert "not used by BertModel: cls.predictions" in caplog.text
    assert "cls.seq_relationship.weight" in caplog.text


def test_weights_that_nobody_knows_are_named_in_a_warning(small: BertConfig, store: Store) -> None:
    state = {**BertForMaskedLM(small).state_dict(), "aux.scorer.weight": torch.ones(3), "logit_scale": torch.ones(1)}
    with pytest.warns(PlainBertWarning, match=r"BertForMaskedLM does not use: aux\.scorer\.weight, logit_scale"):
        BertForMaskedLM.from_pretrained(store(state, small))


@pytest.mark.parametrize(
    "name",
    [
        "encoder.layer.0.attention.self.query.lora_A.weight",
        "encoder.layer.0.attention.self.distance_embedding.weight",
        "encoder.layer.1.output.adapters.x.down.weight",
        "encoder.layer.0.attention.self.query.weight_scale",
        "embeddings.extra_embeddings.weight",
        "encoder.layer.2.output.dense.bias",
        "pooler.other.weight",
    ],
)
@pytest.mark.parametrize("head", [BertModel, BertForMaskedLM])
def test_an_encoder_weight_that_the_model_does_not_have_is_refused(
    small: BertConfig, store: Store, name: str, head: Any
) -> None:
    model = head(small)
    full = name if head is BertModel else f"bert.{name}"
    with pytest.raises(CheckpointError, match=f"encoder weights that this model does not: .*{re.escape(name)}"):
        head.from_pretrained(store({**model.state_dict(), full: torch.ones(32)}, small))


@pytest.mark.parametrize("head", [BertModel, BertForMaskedLM])
@pytest.mark.parametrize("name", ["embeddings.word_embeddings.weight", "encoder.layer.1.attention.self.key.bias"])
def test_a_missing_encoder_weight_is_an_error(small: BertConfig, store: Store, head: Any, name: str) -> None:
    if head is BertForMaskedLM:
        small.tie_word_embeddings = False
    state = {key: tensor for key, tensor in head(small).state_dict().items() if not key.endswith(name)}
    with pytest.raises(CheckpointError, match=f"lacks 1 encoder weights of {head.__name__}: .*{re.escape(name)}"):
        head.from_pretrained(store(state, small))


# --- tables that are computed ---


@pytest.mark.parametrize("prefix", ["", "bert."])
@pytest.mark.parametrize("shape", [(1, 40), (40,), (1, 512)])
def test_stored_position_ids_are_not_needed(
    small: BertConfig, rows: Tensor, store: Store, prefix: str, shape: tuple[int, ...]
) -> None:
    model = (BertForMaskedLM if prefix else BertModel)(small).eval()
    usual = torch.arange(shape[-1]).view(shape)
    state = {
        **model.state_dict(),
        f"{prefix}embeddings.position_ids": usual,
        f"{prefix}embeddings.token_type_ids": torch.zeros_like(usual),
    }
    loaded = type(model).from_pretrained(store(state, small))
    assert torch.equal(loaded(rows)[0], model(rows)[0])
    assert not any("_ids" in name for name in loaded.state_dict())


@pytest.mark.parametrize(
    ("name", "table"), [("position_ids", torch.arange(40).flip(0)), ("token_type_ids", torch.ones(1, 40).long())]
)
def test_an_unusual_table_is_ignored_with_a_warning(small: BertConfig, store: Store, name: str, table: Tensor) -> None:
    state = {**BertModel(small).state_dict(), f"embeddings.{name}": table}
    with pytest.warns(PlainBertWarning, match=rf"embeddings\.{name} in the checkpoint is not the usual table"):
        BertModel.from_pretrained(store(state, small))


# --- sizes ---


@pytest.mark.parametrize("labels", [2, 5])
@pytest.mark.parametrize("head", [BertForSequenceClassification, BertForTokenClassification])
def test_a_head_of_another_size_is_refused_unless_a_new_one_is_asked_for(
    small: BertConfig, rows: Tensor, store: Store, randomized: Fill, head: Any, labels: int
) -> None:
    small.num_labels = 3
    model = randomized(head(small))
    folder = store(model.state_dict(), small)
    sentence = (
        rf"classifier\.(weight|bias) has the shape \(3.* in the checkpoint but \({labels}.*ignore_mismatched_sizes"
    )
    with pytest.raises(CheckpointError, match=sentence):
        head.from_pretrained(folder, num_labels=labels)
    with pytest.warns(PlainBertWarning, match=r"no weights for classifier\.weight, classifier\.bias"):
        loaded = head.from_pretrained(folder, num_labels=labels, ignore_mismatched_sizes=True)
    assert loaded.classifier.weight.shape == (labels, 32)
    assert torch.equal(loaded.bert(rows)[0], model.bert(rows)[0])


@pytest.mark.parametrize(
    ("field", "value", "name"),
    [
        ("vocab_size", 98, "word_embeddings"),
        ("vocab_size", 121, "word_embeddings"),
        ("type_vocab_size", 5, "token_type_embeddings"),
        ("max_position_embeddings", 41, "position_embeddings"),
        ("intermediate_size", 38, "dense"),
        ("hidden_size", 36, "weight|bias"),
    ],
)
@pytest.mark.parametrize("ignore", [True, False])
def test_an_encoder_of_another_size_is_always_refused(
    small: BertConfig, store: Store, field: str, value: int, name: str, ignore: bool
) -> None:
    folder = store(BertForTokenClassification(small).state_dict(), small)
    with pytest.raises(
        CheckpointError, match=rf"({name}).* has the shape \(.*\) in the checkpoint but \(.*{value}"
    ) as caught:
        BertForTokenClassification.from_pretrained(folder, ignore_mismatched_sizes=ignore, **{field: value})
    assert "config.json and the weights disagree" in str(caught.value)


def test_fewer_layers_are_the_lower_ones(small: BertConfig, rows: Tensor, store: Store, randomized: Fill) -> None:
    model = randomized(BertModel(small))
    folder = store(model.state_dict(), small)
    with pytest.warns(PlainBertWarning, match=r"BertModel does not use: encoder\.layer\.1\..*and 10 more"):
        lower = BertModel.from_pretrained(folder, num_hidden_layers=1)
    states = model(rows, output_hidden_states=True).hidden_states
    assert torch.equal(lower(rows).last_hidden_state, states[1])
    small.num_hidden_layers = 1
    with pytest.raises(CheckpointError, match=r"num_hidden_layers is 1"):
        BertModel.from_pretrained(store(model.state_dict(), small))


@pytest.mark.parametrize(
    ("layers", "sentence"),
    [
        (3, r"lacks 16 encoder weights of BertModel: encoder\.layer\.2\.attention"),
        (40, "num_hidden_layers must fit the weights, got 40 for 39 weights"),
        (4000, "num_hidden_layers must fit the weights, got 4000 for 39 weights"),
    ],
)
def test_more_layers_than_are_stored_are_refused(small: BertConfig, store: Store, layers: int, sentence: str) -> None:
    """Thousands of layers are refused before they are built."""
    folder = store(BertModel(small).state_dict(), small)
    with pytest.raises(CheckpointError, match=sentence):
        BertModel.from_pretrained(folder, num_hidden_layers=layers)


# --- keywords ---


@pytest.mark.parametrize("keyword", ["num_label", "subfolder", "attn_implementatio", "is_decoder"])
def test_a_keyword_that_loading_does_not_have_is_refused(small: BertConfig, store: Store, keyword: str) -> None:
    folder = store(BertModel(small).state_dict(), small)
    with pytest.raises(
        KeywordError,
        match=f"from_pretrained has no keyword '{keyword}'; it takes .*revision.*every field of Bert",
    ):
        BertModel.from_pretrained(folder, **{keyword: True})


def test_the_names_of_the_labels_reach_the_head(small: BertConfig, store: Store) -> None:
    folder = store(BertModel(small).state_dict(), small)
    with pytest.warns(PlainBertWarning, match="classifier"):
        model = BertForSequenceClassification.from_pretrained(
            folder,
            id2label={0: "a", 1: "b", 2: "c"},
            problem_type="multi_label_classification",
            hidden_dropout_prob=0.3,
        )
    assert model.classifier.out_features == 3
    assert model.config.label2id == {"a": 0, "b": 1, "c": 2}
    assert model.config.problem_type == "multi_label_classification"
    assert model.dropout.p == 0.3


def test_a_question_answering_head_over_a_classifier_needs_its_two_labels(small: BertConfig, store: Store) -> None:
    small.num_labels = 3
    folder = store(BertForSequenceClassification(small).state_dict(), small)
    with pytest.raises(plainbert.ConfigError, match=r"num_labels must be 2 .*got 3"):
        BertForQuestionAnswering.from_pretrained(folder)
    with pytest.warns(PlainBertWarning, match="qa_outputs"):
        BertForQuestionAnswering.from_pretrained(folder, num_labels=2)

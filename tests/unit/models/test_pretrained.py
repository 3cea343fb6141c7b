"""What every model has besides forward: sizes, another vocabulary, copies and moves, the config it accepts."""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from plainbert import (
    BertConfig,
    BertForMaskedLM,
    BertForPreTraining,
    BertForSequenceClassification,
    BertModel,
    BertPreTrainedModel,
    ConfigError,
    InputError,
    PlainBertWarning,
)

Make = Callable[[], BertForMaskedLM]


@pytest.mark.parametrize("wrong", [None, "bert-base-uncased", {"hidden_size": 32}, 30522])
def test_a_config_of_another_kind_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=rf"config must be a plainbert\.BertConfig, got {type(wrong).__name__}"):
        BertModel(wrong)


def test_the_config_of_transformers_is_refused_with_the_way_out(tiny_config: Callable[..., dict[str, Any]]) -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.BertConfig(**tiny_config())
    with pytest.raises(ConfigError, match=r"BertConfig\.from_dict\(config\.to_dict\(\)\)"):
        BertModel(theirs)
    assert BertModel(BertConfig.from_dict(theirs.to_dict())).config.hidden_size == 32


def test_parameters_are_counted_once_each(config: BertConfig) -> None:
    model = BertForMaskedLM(config)
    assert model.num_parameters() == sum(parameter.numel() for parameter in model.parameters())
    tables = (99 + 40 + 2) * 32
    assert model.num_parameters(exclude_embeddings=True) == model.num_parameters() - tables
    model.bert.pooler = None
    for parameter in model.bert.parameters():
        parameter.requires_grad_(False)
    head = 32 * 32 + 32 + 32 + 32 + 99  # the decoder's matrix is the embedding table
    assert model.num_parameters(only_trainable=True) == head


def test_a_model_says_where_it_is_and_in_what(any_model: BertPreTrainedModel) -> None:
    assert any_model.device == torch.device("cpu")
    assert any_model.dtype == torch.float32
    assert any_model.half().dtype == torch.float16
    assert isinstance(any_model.base_model, BertModel)


def test_checkpointing_of_a_head_is_that_of_its_encoder(config: BertConfig) -> None:
    model = BertForMaskedLM(config)
    assert not model.bert.encoder.gradient_checkpointing
    model.gradient_checkpointing_enable()
    assert model.bert.encoder.gradient_checkpointing
    model.gradient_checkpointing_disable()
    assert not model.bert.encoder.gradient_checkpointing


# --- copies and moves ---


def are_tied(model: BertForMaskedLM) -> bool:
    predictions = model.cls.predictions
    tables = predictions.decoder.weight is model.bert.embeddings.word_embeddings.weight
    return tables and predictions.bias is predictions.decoder.bias


@pytest.mark.parametrize(
    "move",
    [
        copy.deepcopy,
        lambda model: pickle.loads(pickle.dumps(model)),
        lambda model: torch.load(saved(model), weights_only=False),
        lambda model: model.to(torch.float64).to(torch.float32),
        lambda model: model.bfloat16().half().float(),
        lambda model: model.train().eval().requires_grad_(False),
        lambda model: model.to("cpu"),
        lambda model: model.share_memory(),
    ],
)
def test_a_model_that_is_copied_or_moved_stays_tied(config: BertConfig, ids: Tensor, move: Callable[..., Any]) -> None:
    model = BertForMaskedLM(config).eval()
    before = model(ids).logits
    moved = move(model)
    assert are_tied(moved)
    torch.testing.assert_close(moved(ids).logits, before, rtol=0.1, atol=0.1)
    moved.resize_token_embeddings(107)
    assert moved(ids).logits.shape == (3, 8, 107)


def saved(model: nn.Module) -> io.BytesIO:
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    return buffer


# --- plain state_dicts ---


@pytest.mark.parametrize("prefix", ["", "bert."])
def test_a_strict_state_dict_may_hold_the_old_tables(config: BertConfig, ids: Tensor, prefix: str) -> None:
    source = BertForMaskedLM(config) if prefix else BertModel(config)
    state = source.state_dict()
    state[f"{prefix}embeddings.position_ids"] = torch.arange(40)[None]
    state[f"{prefix}embeddings.token_type_ids"] = torch.zeros(1, 40, dtype=torch.long)
    names = set(state)
    target = type(source)(config)
    target.load_state_dict(state, strict=True)
    assert torch.equal(target.eval()(ids)[0], source.eval()(ids)[0])
    assert set(state) == names, "the caller's dictionary was changed"
    assert not any("position_ids" in name for name in target.state_dict())


def test_an_unusual_table_in_a_state_dict_is_named_in_a_warning(config: BertConfig) -> None:
    model = BertModel(config)
    state = {**model.state_dict(), "embeddings.position_ids": torch.arange(40).flip(0)[None]}
    with pytest.warns(PlainBertWarning, match=r"embeddings\.position_ids in the checkpoint is not the usual table"):
        model.load_state_dict(state)


@pytest.mark.parametrize("name", ["embeddings.positions", "position_ids", "encoder.layer.0.position_ids"])
def test_a_strict_state_dict_still_refuses_other_names(config: BertConfig, name: str) -> None:
    model = BertModel(config)
    with pytest.raises(RuntimeError, match=name):
        model.load_state_dict({**model.state_dict(), name: torch.arange(40)[None]})


# --- another vocabulary ---


@pytest.fixture(params=["tied", "untied"])
def tied(request: pytest.FixtureRequest) -> bool:
    return request.param == "tied"


@pytest.fixture(params=["outer", "inner"])
def through(request: pytest.FixtureRequest) -> Callable[[BertPreTrainedModel], BertPreTrainedModel]:
    """Resize the model, or the encoder inside it."""
    return (lambda model: model) if request.param == "outer" else (lambda model: model.base_model)


@pytest.mark.parametrize("head", [BertForMaskedLM, BertForPreTraining])
@pytest.mark.parametrize("size", [107, 128, 60, 99])
def test_table_decoder_bias_and_config_change_together(
    config: BertConfig, ids: Tensor, head: type, size: int, through: Callable[..., Any], tied: bool
) -> None:
    config.tie_word_embeddings = tied
    model = head(config).eval()
    ids %= 60
    kept = min(size, 99)
    with torch.no_grad():
        model.cls.predictions.bias.normal_()
        before = model(ids)
    before = before["logits" if head is BertForMaskedLM else "prediction_logits"]
    table = through(model).resize_token_embeddings(size)
    predictions = model.cls.predictions
    assert table is model.get_input_embeddings()
    assert table.weight.shape == predictions.decoder.weight.shape == (size, 32)
    assert predictions.bias.shape == predictions.decoder.bias.shape == (size,)
    assert predictions.decoder.bias is predictions.bias
    assert (predictions.decoder.weight is table.weight) == tied
    assert model.config.vocab_size == model.bert.config.vocab_size == size
    assert (table.num_embeddings, predictions.decoder.out_features) == (size, size)
    outputs = model(ids, labels=ids)
    after = outputs["logits" if head is BertForMaskedLM else "prediction_logits"]
    torch.testing.assert_close(after[..., :kept], before[..., :kept], rtol=0, atol=1e-5)
    outputs.loss.backward()
    with pytest.raises(InputError, match=f"from 0 to {size - 1} .*got {size}"):
        model(torch.tensor([[size]]))


def test_new_rows_are_drawn_like_fresh_weights_and_old_rows_stay(config: BertConfig) -> None:
    model = BertForMaskedLM(config)
    with torch.no_grad():
        model.cls.predictions.bias.normal_()
    old, bias = model.get_input_embeddings().weight.detach().clone(), model.cls.predictions.bias.detach().clone()
    model.resize_token_embeddings(500)
    table = model.get_input_embeddings().weight
    assert torch.equal(table[:99], old)
    assert 0.28 < table[99:].std() < 0.32
    assert torch.equal(model.cls.predictions.bias[:99], bias)
    assert (model.cls.predictions.bias[99:] == 0).all()
    model.resize_token_embeddings(99)
    assert torch.equal(model.get_input_embeddings().weight, old)


def test_a_model_in_training_can_be_resized_and_go_on(
    config: BertConfig, ids: Tensor, through: Callable[..., Any], tied: bool
) -> None:
    """Gradients of the old shapes, the head's too, are gone."""
    config.tie_word_embeddings = tied
    model = BertForMaskedLM(config).train()
    model(ids, labels=ids).loss.backward()
    through(model).resize_token_embeddings(107)
    optimizer = torch.optim.AdamW(model.parameters())
    model(ids, labels=ids + 8).loss.backward()
    optimizer.step()
    assert model.cls.predictions.bias.grad.shape == (107,)


def test_resizing_a_copy_leaves_the_original(config: BertConfig, ids: Tensor) -> None:
    model = BertForMaskedLM(config).eval()
    other = copy.deepcopy(model)
    other.bert.resize_token_embeddings(107)
    assert other(ids).logits.shape == (3, 8, 107)
    assert model(ids).logits.shape == (3, 8, 99)
    assert model.config.vocab_size == 99


def test_a_decoder_bias_kept_under_two_names_is_resized_under_both(config: BertConfig, ids: Tensor) -> None:
    model = BertForMaskedLM(config)
    model.cls.predictions.decoder.bias = nn.Parameter(torch.randn(99))
    model.resize_token_embeddings(107)
    assert model.cls.predictions.bias.shape == model.cls.predictions.decoder.bias.shape == (107,)
    assert model(ids).logits.shape == (3, 8, 107)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_a_resized_table_keeps_its_dtype(config: BertConfig, dtype: torch.dtype) -> None:
    assert BertForMaskedLM(config).to(dtype).resize_token_embeddings(107).weight.dtype == dtype


def test_heads_without_a_vocabulary_are_resized_too(config: BertConfig, ids: Tensor) -> None:
    model = BertForSequenceClassification(config).eval()
    before = model(ids).logits
    model.resize_token_embeddings(107)
    assert torch.equal(model(ids).logits, before)
    assert model(ids + 8).logits.shape == (3, 2)


@pytest.mark.parametrize("wrong", [0, -1, True, 3.0, "107", None, 2**25 + 1, 10**18])
def test_a_size_that_is_no_positive_number_is_refused(config: BertConfig, wrong: Any) -> None:
    with pytest.raises(InputError, match=f"new_num_tokens must be a whole number from 1 .* to {2**25}, got {wrong!r};"):
        BertModel(config).resize_token_embeddings(wrong)


def test_the_padding_id_cannot_be_cut_off(config: BertConfig) -> None:
    config.pad_token_id = 98
    model = BertModel(config)
    with pytest.raises(InputError, match=r"must be a whole number from 99 \(above pad_token_id\) .*, got 98"):
        model.resize_token_embeddings(98)
    assert model.get_input_embeddings().weight.shape == (99, 32)


def test_transformers_loads_a_resized_model(config: BertConfig, ids: Tensor, tied: bool, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config.tie_word_embeddings = tied
    model = BertForMaskedLM(config).eval()
    model.bert.resize_token_embeddings(107)
    model.save_pretrained(tmp_path)
    theirs, report = transformers.BertForMaskedLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values()), report
    torch.testing.assert_close(theirs.eval()(ids + 8).logits, model(ids + 8).logits, rtol=0, atol=1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = BertForMaskedLM.from_pretrained(tmp_path)
    torch.testing.assert_close(again(ids + 8).logits, model(ids + 8).logits, rtol=0, atol=1e-5)


# --- the embedding table from outside ---


def test_the_table_and_the_decoder_are_found(config: BertConfig) -> None:
    model = BertForMaskedLM(config)
    assert model.get_input_embeddings() is model.bert.get_input_embeddings() is model.bert.embeddings.word_embeddings
    assert model.get_output_embeddings() is model.cls.predictions.decoder
    assert model.bert.get_output_embeddings() is None
    assert BertForSequenceClassification(config).get_output_embeddings() is None


def test_a_decoder_follows_the_table_it_is_tied_to(config: BertConfig, tied: bool) -> None:
    config.tie_word_embeddings = tied
    model = BertForMaskedLM(config)
    table = nn.Embedding(99, 32)
    model.set_input_embeddings(table)
    assert model.get_input_embeddings() is table
    assert (model.cls.predictions.decoder.weight is table.weight) == tied


@pytest.mark.parametrize("shape", [(107, 32), (99, 16)])
def test_a_table_of_another_shape_is_refused(config: BertConfig, shape: tuple[int, int]) -> None:
    with pytest.raises(InputError, match=rf"must have the shape \(99, 32\), got \({shape[0]}, {shape[1]}\)"):
        BertForMaskedLM(config).set_input_embeddings(nn.Embedding(*shape))

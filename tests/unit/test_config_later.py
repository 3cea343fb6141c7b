"""What a config says is checked again where it is used, and a refusal names the place the value came from."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from plainbert import BertConfig, BertForSequenceClassification, BertModel, ConfigError

Fields = Callable[..., dict[str, Any]]


# --- dtypes as torch writes them ---


@pytest.mark.parametrize("asked", [torch.float16, "torch.float16", "float16"])
@pytest.mark.parametrize("word", ["dtype", "torch_dtype"])
def test_a_dtype_may_be_given_as_torch_writes_it_and_under_the_old_word(
    tiny_config: Fields, tmp_path: Path, word: str, asked: Any
) -> None:
    config = BertConfig(**tiny_config(**{word: asked}))
    assert config.dtype == "float16"
    assert config.extra == {}
    config.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))["dtype"] == "float16"
    assert BertConfig.from_dict(tiny_config(dtype="float32"), **{word: asked}).dtype == "float16"
    assert BertConfig.from_pretrained(tmp_path, **{word: torch.bfloat16}).dtype == "bfloat16"


@pytest.mark.parametrize("wrong", [torch.int8, "torch.float8", torch.complex64, 16])
def test_a_dtype_that_no_model_has_is_refused(tiny_config: Fields, wrong: Any) -> None:
    shown = str(wrong).removeprefix("torch.")
    with pytest.raises(ConfigError, match=rf"^dtype must be one of float32, .*got '?{shown}"):
        BertConfig(**tiny_config(dtype=wrong))


# --- one class is no choice ---


def test_one_class_is_refused_where_class_numbers_are_learned(tiny_config: Fields) -> None:
    sentence = "num_labels must be at least 2 for single_label_classification, got 1"
    wrong = {"problem_type": "single_label_classification", "num_labels": 1}
    with pytest.raises(ConfigError, match=sentence):
        BertConfig(**tiny_config(**wrong))
    with pytest.raises(ConfigError, match=sentence):
        BertConfig.from_dict(tiny_config(**wrong))
    with pytest.raises(ConfigError, match=sentence):
        BertConfig(**tiny_config(problem_type="single_label_classification", id2label={0: "only"}))
    config = BertConfig(**tiny_config(num_labels=1))
    config.problem_type = "single_label_classification"
    with pytest.raises(ConfigError, match=sentence):
        BertForSequenceClassification(config)


@pytest.mark.parametrize("problem", [None, "regression", "multi_label_classification"])
def test_one_class_is_fine_elsewhere(tiny_config: Fields, problem: str | None) -> None:
    config = BertConfig(**tiny_config(problem_type=problem, num_labels=1))
    assert BertForSequenceClassification(config).classifier.out_features == 1


# --- fields that are assigned ---


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("hidden_size", 0),
        ("hidden_size", 32.0),
        ("hidden_size", "32"),
        ("vocab_size", None),
        ("num_attention_heads", -4),
        ("hidden_act", "GELU"),
        ("hidden_dropout_prob", 1.5),
        ("layer_norm_eps", float("nan")),
        ("pad_token_id", 99),
        ("problem_type", "bogus"),
        ("attn_implementation", "flash"),
        ("tie_word_embeddings", "yes"),
        ("id2label", {}),
        ("id2label", None),
        ("id2label", 5),
        ("architectures", "BertModel"),
    ],
)
def test_a_field_assigned_to_nonsense_is_refused_where_a_model_is_built(
    tiny_config: Fields, name: str, wrong: Any
) -> None:
    config = BertConfig(**tiny_config())
    setattr(config, name, wrong)
    for build in (BertModel, BertForSequenceClassification, lambda config: config.validate()):
        with pytest.raises(ConfigError, match=rf"^{name} must .*got {wrong!r}"):
            build(config)


def test_heads_assigned_to_what_does_not_divide_are_refused(tiny_config: Fields) -> None:
    config = BertConfig(**tiny_config())
    config.num_attention_heads = 5
    with pytest.raises(ConfigError, match="hidden_size must be a multiple of num_attention_heads, got 32 and 5"):
        BertModel(config)


def test_a_config_that_was_spoilt_is_refused_by_loading_too(tiny_config: Fields, tmp_path: Path) -> None:
    config = BertConfig(**tiny_config())
    BertModel(config).save_pretrained(tmp_path)
    config.layer_norm_eps = -1.0
    with pytest.raises(ConfigError, match=r"layer_norm_eps must be a number .*got -1\.0"):
        BertModel.from_pretrained(tmp_path, config=config)


# --- where the value came from ---


@pytest.mark.parametrize(
    ("name", "wrong"), [("hidden_size", 0), ("hidden_act", "GELU"), ("problem_type", "bogus"), ("id2label", {"x": "a"})]
)
def test_config_json_is_named_when_the_value_stands_there_and_only_then(
    tiny_config: Fields, tmp_path: Path, name: str, wrong: Any
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(tiny_config(**{name: wrong})), encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"^{name} must .*; correct it in config\.json$"):
        BertConfig.from_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=rf"^{name} must .*; correct it in config\.json$"):
        BertConfig.from_pretrained(tmp_path, hidden_dropout_prob=0.0)
    for build in (
        lambda: BertConfig(**tiny_config(**{name: wrong})),
        lambda: BertConfig.from_dict(tiny_config(), **{name: wrong}),
    ):
        with pytest.raises(ConfigError, match=rf"^{name} must ") as caught:
            build()
        assert "config.json" not in str(caught.value)


def test_an_attention_implementation_is_never_in_config_json(tiny_config: Fields, tmp_path: Path) -> None:
    BertModel(BertConfig(**tiny_config())).save_pretrained(tmp_path)
    for load in (BertConfig.from_pretrained, BertModel.from_pretrained):
        with pytest.raises(ConfigError, match=r"attn_implementation must be one of .*got 'flash'") as caught:
            load(tmp_path, attn_implementation="flash")
        assert "config.json" not in str(caught.value)


# --- return_dict ---


@pytest.mark.parametrize("value", [True, False, None])
def test_a_file_that_says_return_dict_loads_and_outputs_are_named(
    tiny_config: Fields, tmp_path: Path, value: bool | None
) -> None:
    BertModel(BertConfig(**tiny_config())).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    stored = {**json.loads(path.read_text(encoding="utf-8")), "return_dict": value}
    path.write_text(json.dumps(stored), encoding="utf-8")
    model = BertModel.from_pretrained(tmp_path)
    assert model(torch.tensor([[5, 6]])).last_hidden_state.shape == (1, 2, 32)
    assert BertConfig(**tiny_config(return_dict=value)).hidden_size == 32

"""A config is checked before anything is allocated, and nothing that a config.json says is lost or passed over."""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plainbert import BertConfig, BertModel, CheckpointError, ConfigError, KeywordError, PlainBertWarning
from plainbert.config import ACTIVATION_NAMES
from plainbert.config_keys import FIXED_KEYS, IGNORED_KEYS

Fields = Callable[..., dict[str, Any]]

# field -> (values outside its range, values of another type), each refused under its name
WRONG_NUMBERS: dict[str, tuple[object, ...]] = {
    "hidden_size": (0, -1, 10**12, 768.5, 768.0, "768", True, None, math.nan, math.inf, [768], {}),
    "vocab_size": (0, -1, 10**12, 30522.5, "30522", True, None),
    "num_hidden_layers": (0, -1, 10**12, 2.0, "2", False, None),
    "num_attention_heads": (0, -1, 10**12, 4.0, "4", True, None),
    "intermediate_size": (0, -1, 10**12, 37.5, "37", True, None),
    "max_position_embeddings": (0, -1, 10**12, 40.5, "40", True, None),
    "type_vocab_size": (0, -1, 10**12, 2.5, "2", True, None),
    "pad_token_id": (-1, 99, 500, 0.0, "0", True),
    "hidden_dropout_prob": (-0.1, 1.1, "0.1", None, True, math.nan, math.inf),
    "attention_probs_dropout_prob": (-0.1, 1.1, "0.1", None, True, math.nan),
    "classifier_dropout": (-0.1, 1.1, "0.1", False, math.nan),
    "initializer_range": (-0.02, 1e6, "0.02", None, True, math.nan, math.inf),
    "layer_norm_eps": (-1e-12, 2, "1e-12", None, True, math.nan, -math.inf),
    "num_labels": (0, -1, 10**12, 2.5, "2", True),
}
WRONG_CHOICES: dict[str, tuple[object, ...]] = {
    "hidden_act": ("GELU", "gelu_old", "", "os.system", None, 3, ["gelu"], {"gelu": 1}),
    "problem_type": ("bogus", "Regression", "", 1, True, ["regression"]),
    "dtype": ("float8", "int8", "half", "", 16, True, ["float16"]),
    "attn_implementation": ("flash_attention_2", "flex", "", None, 1),
    "tie_word_embeddings": (1, 0, "true", None, []),
    "output_hidden_states": (1, "false", []),
    "output_attentions": (0, "true", {}),
    "architectures": ("BertModel", [1], {"0": "BertModel"}, 3),
}
WRONG = [(name, value) for name, values in {**WRONG_NUMBERS, **WRONG_CHOICES}.items() for value in values]
FIXED = [(key, value) for key, (values, _) in FIXED_KEYS.items() for value in values]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_field_refuses_what_no_model_can_be_built_from(tiny_config: Fields, name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=rf"^{name} must be .*got {re.escape(repr(value))}"):
        BertConfig(**tiny_config(**{name: value}))


@pytest.mark.parametrize(
    ("name", "literal", "shown"),
    [
        ("hidden_size", "0", "0"),
        ("hidden_size", "-1", "-1"),
        ("hidden_size", "1000000000000", "1000000000000"),
        ("hidden_size", "768.5", "768.5"),
        ("hidden_size", '"768"', "'768'"),
        ("hidden_size", "true", "True"),
        ("hidden_size", "null", "None"),
        ("hidden_size", "NaN", "NaN"),
        ("hidden_size", "1e400", "1e400"),
        ("layer_norm_eps", "-Infinity", "-Infinity"),
        ("initializer_range", "1e400", "1e400"),
        ("vocab_size", "9" * 5000, "999"),
    ],
)
def test_a_broken_number_in_a_file_is_refused_with_its_name(
    tiny_config: Fields, tmp_path: Path, name: str, literal: str, shown: str
) -> None:
    text = json.dumps(tiny_config(**{name: "@"})).replace('"@"', literal)
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    for load in (BertConfig.from_pretrained, BertModel.from_pretrained):
        with pytest.raises((ConfigError, CheckpointError), match=rf"{name}.*got {re.escape(shown)}"):
            load(tmp_path)


def test_heads_must_divide_the_hidden_size(tiny_config: Fields) -> None:
    with pytest.raises(ConfigError, match="hidden_size must be a multiple of num_attention_heads, got 32 and 5"):
        BertConfig(**tiny_config(num_attention_heads=5))
    with pytest.raises(ConfigError, match="got 32 and 64"):
        BertConfig(**tiny_config(num_attention_heads=64))


@pytest.mark.parametrize("name", ACTIVATION_NAMES)
def test_every_listed_activation_is_accepted(tiny_config: Fields, name: str) -> None:
    assert BertConfig(**tiny_config(hidden_act=name)).hidden_act == name


def test_the_padding_id_may_be_absent_or_the_last_of_the_vocabulary(tiny_config: Fields) -> None:
    assert BertConfig(**tiny_config(pad_token_id=None)).pad_token_id is None
    assert BertConfig(**tiny_config(pad_token_id=98)).pad_token_id == 98


def test_the_defaults_are_bert_base() -> None:
    config = BertConfig()
    shape = (config.vocab_size, config.hidden_size, config.num_hidden_layers, config.num_attention_heads)
    assert shape == (30522, 768, 12, 12)
    assert (config.intermediate_size, config.max_position_embeddings, config.type_vocab_size) == (3072, 512, 2)
    assert (config.layer_norm_eps, config.hidden_act, config.initializer_range) == (1e-12, "gelu", 0.02)
    assert config.id2label == {0: "LABEL_0", 1: "LABEL_1"}


# --- keys that are no fields ---

REFUSED = [
    ("model_type", "roberta"),
    ("model_type", "BERT"),
    ("is_decoder", True),
    ("is_decoder", 1),
    ("is_decoder", 0),
    ("is_decoder", "false"),
    ("is_encoder_decoder", True),
    ("add_cross_attention", True),
    ("position_embedding_type", "relative_key"),
    ("position_embedding_type", "relative_key_query"),
    ("position_embedding_type", "rotary"),
    ("pruned_heads", {"0": [1]}),
    ("pruned_heads", [1]),
    ("quantization_config", {"load_in_8bit": True}),
    ("embedding_size", 128),
]


@pytest.mark.parametrize(("key", "value"), REFUSED)
def test_a_key_that_changes_the_architecture_is_refused_by_name(tiny_config: Fields, key: str, value: object) -> None:
    sentence = rf"^{key} must be .*, got {re.escape(repr(value))}; "
    with pytest.raises(ConfigError, match=sentence):
        BertConfig.from_dict(tiny_config(**{key: value}))
    with pytest.raises(ConfigError, match=sentence):
        BertConfig(**tiny_config(**{key: value}))


@pytest.mark.parametrize(("key", "accepted"), FIXED)
def test_a_fixed_key_is_accepted_with_the_value_of_an_encoder(tiny_config: Fields, key: str, accepted: object) -> None:
    for config in (BertConfig.from_dict(tiny_config(**{key: accepted})), BertConfig(**tiny_config(**{key: accepted}))):
        assert config.hidden_size == 32
        assert config.extra == {}


def test_every_ignored_key_has_its_reason(tiny_config: Fields) -> None:
    assert all(IGNORED_KEYS.values())
    ignored = dict.fromkeys(IGNORED_KEYS.keys() - {"auto_map"}, 1)
    assert BertConfig.from_dict(tiny_config(**ignored)).hidden_size == 32  # and no warning


def test_where_a_file_came_from_is_not_written_back(tiny_config: Fields) -> None:
    """`_name_or_path` is what stops loaders that hand every key on."""
    stored = tiny_config(_name_or_path="bert-base-uncased", transformers_version="4.6.0", use_cache=True)
    written = BertConfig.from_dict(stored).to_dict()
    assert {"_name_or_path", "transformers_version"} & written.keys() == set()
    assert written["use_cache"] is True


def test_unknown_keys_are_named_kept_and_written_back(tiny_config: Fields, tmp_path: Path) -> None:
    unknown = {"future_key": [1, {"deep": None}], "text": "ünïcode 今天", "zero": 0}
    (tmp_path / "config.json").write_text(json.dumps(tiny_config(**unknown)), encoding="utf-8")
    with pytest.warns(PlainBertWarning, match="nothing here reads: future_key, text, zero; they are kept"):
        config = BertConfig.from_pretrained(tmp_path)
    assert config.extra == unknown
    config.save_pretrained(tmp_path / "again")
    written = json.loads((tmp_path / "again" / "config.json").read_text(encoding="utf-8"))
    assert {key: written[key] for key in unknown} == unknown
    assert "extra" not in written


def test_keys_of_other_libraries_are_kept_without_a_warning(tiny_config: Fields) -> None:
    others = {"sentence_transformers": {"activation_fn": "torch.nn.Identity"}, "finetuning_task": "sst2"}
    config = BertConfig.from_dict(tiny_config(**others))
    assert config.extra == others
    assert config.to_dict()["sentence_transformers"] == {"activation_fn": "torch.nn.Identity"}


def test_a_key_named_as_a_field_of_ours_alone_does_not_reach_it(tiny_config: Fields) -> None:
    """A file cannot choose how the model runs, nor put keys past the reader."""
    config = BertConfig.from_dict(tiny_config(attn_implementation="eager", extra={"is_decoder": True}))
    assert config.attn_implementation == "sdpa"
    assert config.extra == {}


def test_code_that_a_file_names_is_not_run(tiny_config: Fields, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    (tmp_path / "modeling.py").write_text(f"open({str(canary)!r}, 'w')\nclass Model: pass\n", encoding="utf-8")
    stored = tiny_config(auto_map={"AutoModel": "modeling.Model", "AutoConfig": "modeling.Model"})
    (tmp_path / "config.json").write_text(json.dumps(stored), encoding="utf-8")
    with pytest.warns(PlainBertWarning, match=r"Python code of its own \(auto_map\); it is not run"):
        config = BertConfig.from_pretrained(tmp_path)
    assert not canary.exists()
    assert "auto_map" not in config.to_dict()


# --- keywords ---


@pytest.mark.parametrize(
    ("keyword", "hint"),
    [
        ("hiden_size", "did you mean hidden_size"),
        ("num_layers", "did you mean num_labels|did you mean num_hidden_layers"),
        ("layer_norm_epsilon", "did you mean layer_norm_eps"),
        ("n", "the fields are architectures"),
    ],
)
def test_a_misspelt_keyword_is_refused_with_a_hint(tiny_config: Fields, keyword: str, hint: str) -> None:
    with pytest.raises(KeywordError, match=f"BertConfig has no field '{keyword}'; .*({hint})"):
        BertConfig(**tiny_config(), **{keyword: 1})
    with pytest.raises(KeywordError, match=f"'{keyword}'"):
        BertConfig.from_dict(tiny_config(), **{keyword: 1})


def test_overrides_replace_what_the_file_says(tiny_config: Fields, tmp_path: Path) -> None:
    BertConfig(**tiny_config(hidden_dropout_prob=0.3)).save_pretrained(tmp_path)
    config = BertConfig.from_pretrained(tmp_path, hidden_dropout_prob=0.0, attn_implementation="eager", num_labels=3)
    assert (config.hidden_dropout_prob, config.attn_implementation, config.num_labels) == (0.0, "eager", 3)
    with pytest.raises(ConfigError, match="hidden_dropout_prob must be a number from 0 to 1, got 7"):
        BertConfig.from_pretrained(tmp_path, hidden_dropout_prob=7)


def test_extra_keys_can_be_given_beside_those_of_the_file(tiny_config: Fields) -> None:
    config = BertConfig.from_dict(tiny_config(finetuning_task="sst2"), extra={"note": "mine"})
    assert config.extra == {"finetuning_task": "sst2", "note": "mine"}


# --- labels ---

NAMES = {0: "no", 1: "yes", 2: "maybe"}


@pytest.mark.parametrize(
    "stored",
    [
        {"id2label": {"0": "no", "1": "yes", "2": "maybe"}},
        {"id2label": {"2": "maybe", "0": "no", "1": "yes"}},
        {"id2label": NAMES},
        {"id2label": ["no", "yes", "maybe"]},
        {"label2id": {"no": 0, "yes": 1, "maybe": 2}},
        {"label2id": {"maybe": "2", "no": "0", "yes": "1"}},
        {"id2label": NAMES, "label2id": {"no": 0, "yes": 1, "maybe": 2}},
        {"id2label": NAMES, "label2id": None},
        {"id2label": None, "label2id": {"no": 0, "yes": 1, "maybe": 2}},
        {"id2label": NAMES, "label2id": {}},
        {"id2label": NAMES, "label2id": {"maybe": "2", "yes": 1, "no": 0}},
        {"id2label": NAMES, "num_labels": 3, "_num_labels": 3},
    ],
)
def test_label_maps_of_every_sort_become_one(tiny_config: Fields, stored: dict[str, Any]) -> None:
    config = BertConfig.from_dict(tiny_config(**stored))
    assert list(config.id2label.items()) == list(NAMES.items())
    assert config.label2id == {"no": 0, "yes": 1, "maybe": 2}
    assert config.num_labels == 3


@pytest.mark.parametrize(
    "label2id", [{"LABEL_0": 0, "LABEL_1": 1}, {"no": 1, "yes": 0, "maybe": 2}, {"no": 0, "yes": 1}, {"no": "x"}]
)
def test_a_label2id_that_contradicts_the_names_loses_with_a_warning(
    tiny_config: Fields, label2id: dict[str, object]
) -> None:
    with pytest.warns(
        PlainBertWarning, match=rf"label2id must be the inverse of id2label, got {re.escape(str(label2id))}"
    ):
        config = BertConfig.from_dict(tiny_config(id2label=NAMES, label2id=label2id))
    assert config.id2label == NAMES
    assert config.label2id == {"no": 0, "yes": 1, "maybe": 2}


def test_two_labels_with_one_number_are_named_in_a_warning(tiny_config: Fields) -> None:
    with pytest.warns(PlainBertWarning, match=r"got \{'a': 0, 'b': 0\}"):
        assert BertConfig.from_dict(tiny_config(label2id={"a": 0, "b": 0})).id2label == {0: "b"}


def test_without_names_classes_are_numbered(tiny_config: Fields) -> None:
    config = BertConfig.from_dict(tiny_config(num_labels=3))
    assert config.id2label == {0: "LABEL_0", 1: "LABEL_1", 2: "LABEL_2"}
    assert config.label2id == {"LABEL_0": 0, "LABEL_1": 1, "LABEL_2": 2}


def test_the_number_of_labels_decides_over_names_and_says_so(tiny_config: Fields) -> None:
    with pytest.warns(PlainBertWarning, match="num_labels is 2 but id2label names 3 classes"):
        config = BertConfig.from_dict(tiny_config(num_labels=2, id2label=NAMES))
    assert config.id2label == {0: "LABEL_0", 1: "LABEL_1"}


def test_an_override_of_the_labels_replaces_all_three_keys(tiny_config: Fields) -> None:
    stored = tiny_config(id2label=NAMES, label2id={"no": 0, "yes": 1, "maybe": 2})
    assert BertConfig.from_dict(stored, num_labels=2).id2label == {0: "LABEL_0", 1: "LABEL_1"}
    renamed = BertConfig.from_dict(stored, id2label={0: "A", 1: "B"})
    assert (renamed.num_labels, renamed.label2id) == (2, {"A": 0, "B": 1})
    assert BertConfig.from_dict(stored, label2id={"A": 0, "B": 1}).id2label == {0: "A", 1: "B"}


@pytest.mark.parametrize("key", ["first", "1.5", "", None])
def test_a_class_number_that_is_none_is_refused(tiny_config: Fields, key: object) -> None:
    with pytest.raises(ConfigError, match=f"id2label must have class numbers as keys, got {key!r}"):
        BertConfig.from_dict(tiny_config(id2label={"0": "no", key: "yes"}))


@pytest.mark.parametrize("wrong", ["no,yes", 3, True])
@pytest.mark.parametrize("key", ["id2label", "label2id"])
def test_a_label_map_that_is_no_map_is_refused(tiny_config: Fields, key: str, wrong: object) -> None:
    with pytest.raises(ConfigError, match=f"id2label and label2id must be JSON objects, got {wrong!r}"):
        BertConfig.from_dict(tiny_config(**{key: wrong}))


def test_classes_not_numbered_from_zero_are_named_in_a_warning(tiny_config: Fields) -> None:
    with pytest.warns(PlainBertWarning, match=r"numbers its 2 classes \[1, 5\], not from 0"):
        assert BertConfig.from_dict(tiny_config(id2label={"5": "b", "1": "a"})).num_labels == 2


def test_setting_the_number_of_labels_renames_the_classes_only_when_it_changes(tiny_config: Fields) -> None:
    config = BertConfig(**tiny_config(id2label=NAMES))
    config.num_labels = 3
    assert config.id2label == NAMES
    config.num_labels = 2
    assert config.id2label == {0: "LABEL_0", 1: "LABEL_1"}
    with pytest.raises(ConfigError, match=r"num_labels must be a whole number .*, got 0"):
        config.num_labels = 0


# --- dtype, copies, files ---


@pytest.mark.parametrize(
    "stored",
    [{"dtype": "float16"}, {"torch_dtype": "float16"}, {"torch_dtype": "torch.float16"}, {"dtype": "torch.float16"}],
)
def test_the_dtype_is_read_under_both_words(tiny_config: Fields, stored: dict[str, Any]) -> None:
    config = BertConfig.from_dict(tiny_config(**stored))
    assert config.dtype == "float16"
    assert {key: value for key, value in config.to_dict().items() if "dtype" in key} == {"dtype": "float16"}


def test_a_config_survives_the_way_through_a_file(tiny_config: Fields, tmp_path: Path) -> None:
    config = BertConfig(
        **tiny_config(
            id2label=NAMES, problem_type="regression", pad_token_id=None, classifier_dropout=0.2, dtype="float16"
        ),
        extra={"finetuning_task": "x"},
        output_attentions=True,
        tie_word_embeddings=False,
        architectures=["BertModel"],
    )
    config.save_pretrained(tmp_path / "new" / "folder")
    assert BertConfig.from_pretrained(tmp_path / "new" / "folder") == config
    assert BertConfig.from_dict(config.to_dict()) == config


def test_transformers_reads_the_file_as_the_same_model(tiny_config: Fields, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = BertConfig(**tiny_config(id2label=NAMES, layer_norm_eps=1e-5, hidden_act="relu", classifier_dropout=0.3))
    config.save_pretrained(tmp_path)
    theirs = transformers.BertConfig.from_pretrained(tmp_path)
    for name, value in config.to_dict().items():
        if name != "model_type":
            assert getattr(theirs, name) == value, name
    assert theirs.model_type == "bert"


def test_a_file_that_transformers_writes_is_read_without_a_word(tiny_config: Fields, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.BertConfig(**tiny_config(id2label=NAMES, classifier_dropout=0.3))
    theirs.save_pretrained(tmp_path)
    config = BertConfig.from_pretrained(tmp_path)  # warnings are errors here
    assert config.id2label == NAMES
    assert config.classifier_dropout == 0.3


def test_a_dictionary_taken_from_a_config_does_not_lead_back_into_it(tiny_config: Fields) -> None:
    config = BertConfig(**tiny_config(id2label=NAMES, architectures=["BertModel"]))
    values = config.to_dict()
    values["id2label"][0] = "changed"
    values["architectures"].append("changed")
    assert config.id2label == NAMES
    assert config.architectures == ["BertModel"]


def test_a_copied_config_is_equal_and_its_own(tiny_config: Fields) -> None:
    config = BertConfig(**tiny_config(id2label=NAMES))
    other = copy.deepcopy(config)
    assert other == config
    other.num_labels = 2
    assert config.num_labels == 3


def test_saving_where_a_file_stands_is_refused(tiny_config: Fields, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("x", encoding="utf-8")
    with pytest.raises(ValueError, match=r"save_directory must be a folder, got .*taken"):
        BertConfig(**tiny_config()).save_pretrained(tmp_path / "taken")


def test_a_folder_without_a_config_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"config\.json"):
        BertConfig.from_pretrained(tmp_path)

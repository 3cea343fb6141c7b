"""What a sentence encoder's folder declares is read in every spelling, and refused by name where it cannot be done."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plainbert import CheckpointError, InputError, MissingFileError, PlainBertWarning
from plainbert.checkpoints.hub import find
from plainbert.tasks.recipe import Recipe, read_recipe

MEAN = {"pooling_mode": "mean"}
OLD = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


@pytest.mark.parametrize(("key", "mode"), OLD.items())
def test_each_mode_is_read_in_both_spellings(declare: Callable[..., Path], key: str, mode: str) -> None:
    old = {**dict.fromkeys(OLD, False), key: True, "word_embedding_dimension": 32}
    assert read_recipe(find(declare(old))).pooling == (mode,)
    assert read_recipe(find(declare({"pooling_mode": mode, "embedding_dimension": 32}))).pooling == (mode,)


def test_booleans_are_concatenated_in_the_fixed_order_and_a_list_in_its_own(declare: Callable[..., Path]) -> None:
    every = dict.fromkeys(reversed(OLD), True)
    assert read_recipe(find(declare(every))).pooling == tuple(OLD.values())
    assert read_recipe(find(declare({"pooling_mode": ["mean", "cls"]}))).pooling == ("mean", "cls")


def test_the_newer_spelling_wins_and_a_file_without_either_means_the_mean(declare: Callable[..., Path]) -> None:
    assert read_recipe(find(declare({"pooling_mode": "max", "pooling_mode_cls_token": True}))).pooling == ("max",)
    assert read_recipe(find(declare({"word_embedding_dimension": 32}))).pooling == ("mean",)


@pytest.mark.parametrize(
    ("pooling", "got"),
    [
        (dict.fromkeys(OLD, False), r"\[\]"),
        ({"pooling_mode": "average"}, "average"),
        ({"pooling_mode": []}, r"\[\]"),
        ({"pooling_mode": 3}, "3"),
        ({"pooling_mode": [["mean"]]}, "mean"),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_first_token": True}, "pooling_mode_first_token"),
        ({"pooling_mode": "mean", "include_prompt": "no"}, "'no'"),
    ],
)
def test_a_pooling_that_cannot_be_honoured_is_refused(
    declare: Callable[..., Path], pooling: dict[str, Any], got: str
) -> None:
    with pytest.raises(CheckpointError, match=got):
        read_recipe(find(declare(pooling)))


def test_normalize_needs_no_folder(declare: Callable[..., Path]) -> None:
    folder = declare(MEAN, ("Transformer", "Pooling", "Normalize"))
    assert not (folder / "2_Normalize").exists()
    assert read_recipe(find(folder)).normalize
    assert not read_recipe(find(declare(MEAN))).normalize


def test_a_pooling_that_is_not_there_is_named_with_its_path(declare: Callable[..., Path]) -> None:
    with pytest.raises(MissingFileError, match=r"1_Pooling/config\.json"):
        read_recipe(find(declare(None)))


@pytest.mark.parametrize(
    "prefix",
    [
        "sentence_transformers.models",
        "sentence_transformers.sentence_transformer.modules.pooling",
        "sentence_transformers.x",
    ],
)
def test_modules_are_known_by_their_class_wherever_it_lives(declare: Callable[..., Path], prefix: str) -> None:
    assert read_recipe(find(declare(MEAN, prefix=prefix))).pooling == ("mean",)


@pytest.mark.parametrize(
    ("kinds", "prefix", "got"),
    [
        (("Transformer", "Pooling", "Dense"), "sentence_transformers.models", "got Dense"),
        (("Transformer", "Pooling", "LayerNorm", "Normalize"), "sentence_transformers.models", "got LayerNorm"),
        (("WordEmbeddings", "Pooling"), "sentence_transformers.models", "got WordEmbeddings"),
        (("Transformer",), "sentence_transformers.models", "got Transformer"),
        (("Pooling", "Transformer"), "sentence_transformers.models", "got Pooling, Transformer"),
        (("Transformer", "Normalize", "Pooling"), "sentence_transformers.models", "Normalize, Pooling"),
        (("Transformer", "Pooling"), "my_code.models", "got my_code.models.Transformer"),
        ((), "sentence_transformers.models", "got none"),
    ],
)
def test_another_pipeline_is_refused_by_name(
    declare: Callable[..., Path], kinds: tuple[str, ...], prefix: str, got: str
) -> None:
    with pytest.raises(CheckpointError, match=got):
        read_recipe(find(declare(MEAN, kinds, prefix=prefix)))


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[1]", '[{"type": 3}]', '[{"path": ""}]', "[" * 10_000, "null", '[{"type": "x", "path": null}]', "\xff"],
)
def test_a_broken_list_of_modules_is_an_error_that_names_the_file(encoder: Path, text: str) -> None:
    (encoder / "modules.json").write_text(text, encoding="latin-1")
    with pytest.raises(CheckpointError, match=r"modules\.json"):
        read_recipe(find(encoder))


def test_a_huge_list_of_modules_is_not_read(encoder: Path) -> None:
    (encoder / "modules.json").write_text("[" + " " * (2 << 20) + "]")
    with pytest.raises(CheckpointError, match="at most 1048576 bytes"):
        read_recipe(find(encoder))


@pytest.mark.parametrize("path", ["../outside", "/etc", "a/../../b", "1_Pooling\x00"])
def test_a_module_outside_the_folder_is_refused(declare: Callable[..., Path], path: str) -> None:
    with pytest.raises(CheckpointError, match="plain relative name"):
        read_recipe(find(declare(MEAN, paths=("", path))))


def test_lengths_case_and_prompts_are_read(declare: Callable[..., Path]) -> None:
    folder = declare(
        MEAN,
        sentence_bert_config={"max_seq_length": 12, "do_lower_case": True},
        config_sentence_transformers={"prompts": {"query": "query: ", "none": None}, "default_prompt_name": "query"},
    )
    recipe = read_recipe(find(folder))
    assert (recipe.max_length, recipe.lower_case) == (12, True)
    assert recipe.prompts == {"query": "query: ", "none": ""}
    assert recipe.default_prompt_name == "query"
    assert recipe.include_prompt


def test_a_prompt_can_be_left_out_of_the_pooling(declare: Callable[..., Path]) -> None:
    assert not read_recipe(find(declare({**MEAN, "include_prompt": False}))).include_prompt


@pytest.mark.parametrize(
    ("name", "content", "got"),
    [
        ("sentence_bert_config", {"max_seq_length": 0}, "max_seq_length .* got 0"),
        ("sentence_bert_config", {"max_seq_length": True}, "max_seq_length .* got True"),
        ("sentence_bert_config", {"max_seq_length": "12"}, "max_seq_length .* got '12'"),
        ("sentence_bert_config", {"do_lower_case": 1}, "do_lower_case .* got 1"),
        ("sentence_bert_config", {"transformer_task": "fill-mask"}, "got 'fill-mask'"),
        ("config_sentence_transformers", {"prompts": ["a"]}, r"prompts .* got \[\"a\"\]"),
        ("config_sentence_transformers", {"prompts": {"a": 3}}, "prompts must be"),
        ("config_sentence_transformers", {"default_prompt_name": "q"}, "default_prompt_name .* got 'q'"),
    ],
)
def test_a_setting_of_the_wrong_sort_is_refused(
    declare: Callable[..., Path], name: str, content: dict[str, Any], got: str
) -> None:
    with pytest.raises(CheckpointError, match=got):
        read_recipe(find(declare(MEAN, **{name: content})))


def test_a_folder_that_declares_nothing_gets_the_mean_and_one_warning(encoder: Path) -> None:
    (encoder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 9}))
    with pytest.warns(PlainBertWarning, match=r"no modules\.json") as caught:
        recipe = read_recipe(find(encoder))
    assert len(caught) == 1
    assert recipe == Recipe(max_length=9)
    assert (recipe.pooling, recipe.normalize) == (("mean",), False)


def test_errors_of_a_folder_are_input_errors() -> None:
    assert issubclass(CheckpointError, InputError)

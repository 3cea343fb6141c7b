"""tokenizer_config.json: lengths, sides, names of entries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plainbert.errors import TokenizerError
from plainbert.text.settings import UNKNOWN_LENGTH, read_settings
from plainbert.text.tokenizer import BertTokenizer


@pytest.mark.parametrize(
    ("given", "length"),
    [
        ({}, UNKNOWN_LENGTH),
        ({"model_max_length": None}, UNKNOWN_LENGTH),
        ({"model_max_length": 1e30}, UNKNOWN_LENGTH),
        ({"model_max_length": 1e25}, UNKNOWN_LENGTH),
        ({"model_max_length": float("inf")}, UNKNOWN_LENGTH),
        ({"model_max_length": 1000000000000000019884624838656}, UNKNOWN_LENGTH),
        ({"model_max_length": 512}, 512),
        ({"model_max_length": 512.0}, 512),
        ({"max_len": 128}, 128),
    ],
)
def test_the_longest_row_is_read(given: dict[str, Any], length: int) -> None:
    assert read_settings(given).model_max_length == length


@pytest.mark.parametrize("value", [0, -1, True, "512", 1.5, [512], float("nan"), -1e30])
def test_what_is_no_length_is_refused(value: object) -> None:
    with pytest.raises(TokenizerError, match="model_max_length must be a whole number of at least 1, got "):
        read_settings({"model_max_length": value})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"padding_side": "top"}, "padding_side must be 'right' or 'left', got 'top'"),
        ({"truncation_side": 1}, "truncation_side must be 'right' or 'left', got 1"),
        ({"split_special_tokens": "yes"}, "split_special_tokens must be True or False, got 'yes'"),
        ({"clean_up_tokenization_spaces": 1}, "clean_up_tokenization_spaces must be True or False, got 1"),
        ({"model_input_names": ["attention_mask"]}, "model_input_names must be a list with 'input_ids', got "),
        ({"model_input_names": "input_ids"}, "model_input_names must be a list with 'input_ids', got 'input_ids'"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(TokenizerError, match=message):
        read_settings(given)


def test_the_entries_of_a_batch_are_those_of_the_class_or_the_config(vocab: dict[str, int]) -> None:
    assert list(BertTokenizer(vocab)("a")) == ["input_ids", "token_type_ids", "attention_mask"]
    without = BertTokenizer(vocab, model_input_names=["attention_mask", "input_ids"])
    assert list(without("a")) == ["input_ids", "attention_mask"]
    assert read_settings({"tokenizer_class": "XLMRobertaTokenizerFast"}).input_names == ("input_ids", "attention_mask")
    assert len(read_settings({"tokenizer_class": "PreTrainedTokenizerFast"}).input_names) == 3


def test_decoding_cleans_up_where_the_config_says_so(vocab: dict[str, int]) -> None:
    tokens = {**vocab, "n't": 43, "'": 44}
    ids = [31, 43, 44, 5]
    assert BertTokenizer(tokens, clean_up_tokenization_spaces=True).decode(ids) == "hellon't'a"
    assert BertTokenizer(tokens).decode(ids) == "hellon't ' a"


def test_the_length_given_beats_the_one_in_the_file(vocab: dict[str, int], tmp_path: Path) -> None:
    BertTokenizer(vocab, model_max_length=16).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    path = tmp_path / "tokenizer.json"
    assert BertTokenizer.from_files(path, None, config, {}, {}).model_max_length == 16
    assert BertTokenizer.from_files(path, None, config, {}, {}, {"model_max_length": 9}).model_max_length == 9

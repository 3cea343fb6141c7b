"""Calls of ``BertTokenizer``: what goes in, what comes out, what is refused."""

from __future__ import annotations

import copy
import pickle
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from plainbert.errors import KeywordError, PlainBertWarning, TokenizerError
from plainbert.text.encoding import BatchEncoding
from plainbert.text.settings import Settings
from plainbert.text.tokenizer import BertTokenizer

Load = Callable[..., BertTokenizer]
LONG = "a b c d e f"  # six tokens


@pytest.fixture(scope="module")
def minilm(minilm_folder: Path) -> BertTokenizer:
    return BertTokenizer.from_pretrained(minilm_folder)


# --- one text, many, pairs ---


def test_one_text_gives_flat_lists(tokenizer: BertTokenizer) -> None:
    batch = tokenizer("a hellos!")
    assert batch["input_ids"] == [2, 5, 31, 33, 38, 3]
    assert batch["token_type_ids"] == [0] * 6
    assert batch["attention_mask"] == [1] * 6
    assert batch.tokens == ["[CLS]", "a", "hello", "##s", "!", "[SEP]"]
    assert batch.offsets == [(0, 0), (0, 1), (2, 7), (7, 8), (8, 9), (0, 0)]
    assert batch.word_ids == [None, 0, 1, 1, 2, None]
    assert batch.special_tokens_mask == [1, 0, 0, 0, 0, 1]
    assert batch.sequence_ids == [None, 0, 0, 0, 0, None]


def test_a_pair_gives_two_segments(tokenizer: BertTokenizer) -> None:
    batch = tokenizer("a", "b c")
    assert batch["input_ids"] == [2, 5, 3, 6, 7, 3]
    assert batch["token_type_ids"] == [0, 0, 0, 1, 1, 1]
    assert batch.word_ids == [None, 0, None, 0, 1, None]
    assert batch.offsets == [(0, 0), (0, 1), (0, 0), (0, 1), (2, 3), (0, 0)]
    assert batch.sequence_ids == [None, 0, None, 1, 1, None]


def test_an_empty_second_text_is_a_second_text(tokenizer: BertTokenizer) -> None:
    assert tokenizer("a", "")["input_ids"] == [2, 5, 3, 3]
    assert tokenizer("a", "")["token_type_ids"] == [0, 0, 0, 1]
    assert tokenizer(["a"], [""])["input_ids"] == [[2, 5, 3, 3]]
    assert tokenizer([("a", "")])["input_ids"] == [[2, 5, 3, 3]]
    assert tokenizer([], [], is_split_into_words=True)["input_ids"] == [2, 3, 3]


def test_pairs_come_as_two_lists_or_as_tuples(tokenizer: BertTokenizer) -> None:
    expected = dict(tokenizer(["a", "b"], ["c", "d"]))
    assert dict(tokenizer([("a", "c"), ("b", "d")])) == expected
    assert dict(tokenizer.batch_encode_plus([["a", "c"], ("b", "d")])) == expected
    assert tokenizer(["a", ("b", "c")])["input_ids"] == [[2, 5, 3], [2, 6, 3, 7, 3]]


def test_an_empty_text_is_a_text_and_an_empty_list_a_batch_of_none(tokenizer: BertTokenizer) -> None:
    assert tokenizer("")["input_ids"] == [2, 3]
    assert tokenizer(["", "a"], padding=True)["input_ids"] == [[2, 3, 0], [2, 5, 3]]
    assert dict(tokenizer([])) == {"input_ids": [], "token_type_ids": [], "attention_mask": []}
    assert tokenizer([]).offsets == []
    batch = tokenizer([], padding=True, truncation=True, max_length=4, return_tensors="pt")
    assert batch["input_ids"].shape == (0, 0)
    assert batch["input_ids"].dtype == torch.int64


def test_words_keep_their_numbers_and_offsets_count_within_a_word(tokenizer: BertTokenizer) -> None:
    batch = tokenizer(["a", "hellos", "", "b!"], is_split_into_words=True)
    assert batch["input_ids"] == [2, 5, 31, 33, 6, 38, 3]
    assert batch.word_ids == [None, 0, 1, 1, 3, 3, None]
    assert batch.offsets == [(0, 0), (0, 1), (0, 5), (5, 6), (0, 1), (1, 2), (0, 0)]
    many = tokenizer([["a"], ("b", "c")], is_split_into_words=True)
    assert many["input_ids"] == [[2, 5, 3], [2, 6, 7, 3]]
    pairs = tokenizer([(["a"], ["b", "c"])], is_split_into_words=True)
    assert pairs["input_ids"] == [[2, 5, 3, 6, 7, 3]]
    assert pairs.word_ids == [[None, 0, None, 0, 1, None]]
    assert tokenizer([], is_split_into_words=True)["input_ids"] == [2, 3]


def test_without_special_tokens_nothing_is_added(tokenizer: BertTokenizer) -> None:
    assert tokenizer("a", "b", add_special_tokens=False)["input_ids"] == [5, 6]
    assert tokenizer("a", "b", add_special_tokens=False)["token_type_ids"] == [0, 1]
    assert tokenizer.encode("a", add_special_tokens=False) == [5]
    assert tokenizer.tokenize("a b") == ["a", "b"]
    assert tokenizer.tokenize("a", add_special_tokens=True) == ["[CLS]", "a", "[SEP]"]
    assert tokenizer.num_special_tokens_to_add() == 2
    assert tokenizer.num_special_tokens_to_add(pair=True) == 3


def test_special_tokens_in_a_text_are_parsed_unless_split(tokenizer: BertTokenizer, load: Load, tmp_path: Path) -> None:
    batch = tokenizer("a [MASK]")
    assert batch["input_ids"] == [2, 5, 4, 3]
    assert batch.special_tokens_mask == [1, 0, 0, 1]
    assert 4 not in tokenizer("a [MASK]", split_special_tokens=True)["input_ids"]
    assert tokenizer("a [MASK]")["input_ids"] == [2, 5, 4, 3]
    tokenizer.save_pretrained(tmp_path)
    plain = load(tmp_path / "tokenizer.json", {"split_special_tokens": True})
    assert 4 not in plain("a [MASK]")["input_ids"]
    assert 4 in plain("a [MASK]", split_special_tokens=False)["input_ids"]


# --- truncation and windows ---


def test_a_text_is_cut_to_max_length(tokenizer: BertTokenizer) -> None:
    assert tokenizer(LONG, truncation=True, max_length=4)["input_ids"] == [2, 5, 6, 3]
    assert tokenizer(LONG, max_length=4)["input_ids"] == [2, 5, 6, 3]
    assert len(tokenizer(LONG, truncation=False)["input_ids"]) == 8
    assert len(tokenizer(LONG * 5, truncation=True)["input_ids"]) == 16
    batch = tokenizer(LONG, truncation=True, max_length=4)
    assert batch.offsets == [(0, 0), (0, 1), (2, 3), (0, 0)]


def test_max_length_equal_to_the_special_tokens_gives_just_those(tokenizer: BertTokenizer) -> None:
    assert tokenizer(LONG, truncation=True, max_length=2)["input_ids"] == [2, 3]
    for strategy in (True, "only_first", "only_second"):
        assert tokenizer(LONG, LONG, truncation=strategy, max_length=3)["input_ids"] == [2, 3, 3]
    assert tokenizer(LONG, truncation=True, max_length=0, add_special_tokens=False)["input_ids"] == []


@pytest.mark.parametrize(
    ("text", "pair", "options", "message"),
    [
        (LONG, None, {"max_length": 1}, "max_length must be at least 2, the special tokens of one text, got 1"),
        (LONG, "a", {"max_length": 2}, "max_length must be at least 3, the special tokens of a pair, got 2"),
        ("a", None, {"max_length": -1}, "max_length must be a whole number of at least 0, got -1"),
        ("a", None, {"max_length": 4.0}, "max_length must be a whole number of at least 0, got 4.0"),
        ("a", None, {"max_length": True}, "max_length must be a whole number of at least 0, got True"),
        ("a", None, {"max_length": 5, "stride": 3}, "stride must be less than 3, the room .* got 3"),
        ("a", None, {"max_length": 2, "stride": 1}, "stride must be less than 0, the room .* got 1"),
        ("a", None, {"max_length": 5, "stride": -1}, "stride must be a whole number of at least 0, got -1"),
        (
            LONG,
            "a b c",
            {"max_length": 6, "truncation": "only_first"},
            "'only_first' must leave .* texts of 6 and 3 .* room for 3",
        ),
        (LONG, "a b c", {"max_length": 9, "truncation": "only_second"}, "'only_second' must leave .* room for 6"),
        (LONG, None, {"max_length": 4, "truncation": "only_second"}, "must have a second text .* one text of 6 tokens"),
        (
            LONG,
            None,
            {"max_length": 4, "truncation": "first"},
            "truncation must be False, True or one of .* got 'first'",
        ),
        (
            LONG,
            None,
            {"max_length": 2, "return_overflowing_tokens": True},
            "leave room for a token in each window, got 2",
        ),
        (
            LONG,
            LONG,
            {"max_length": 7, "stride": 2, "return_overflowing_tokens": True},
            "stride must be less than 2, .* got 2",
        ),
    ],
)
def test_what_cannot_be_cut_as_asked_is_refused_with_the_numbers(
    text: str, pair: str | None, options: dict[str, Any], message: str, tokenizer: BertTokenizer
) -> None:
    with pytest.raises(TokenizerError, match=message):
        tokenizer(text, pair, **{"truncation": True, **options})


def test_truncating_or_padding_to_a_length_that_nobody_knows_is_refused(vocab: dict[str, int]) -> None:
    tokenizer = BertTokenizer(vocab)
    assert tokenizer.model_max_length == int(1e30)
    with pytest.raises(TokenizerError, match="max_length must be given for truncation='longest_first', got None"):
        tokenizer("a", truncation=True)
    with pytest.raises(TokenizerError, match="max_length must be given for padding='max_length', got None"):
        tokenizer("a", padding="max_length")
    assert tokenizer("a", padding=True)["input_ids"] == [2, 5, 3]


def test_the_longer_text_of_a_pair_gives_way_first(tokenizer: BertTokenizer) -> None:
    def kept(first: int, second: int, room: int) -> tuple[int, int]:
        types = tokenizer("a " * first, "b " * second, truncation=True, max_length=room + 3)["input_ids"]
        return types.count(5), types.count(6)

    assert kept(2, 9, 8) == (2, 6)
    assert kept(9, 2, 8) == (6, 2)
    assert kept(9, 9, 8) == (4, 4)
    assert kept(9, 9, 7) == (3, 4)
    assert kept(9, 8, 7) == (4, 3)
    assert kept(5, 6, 100) == (5, 6)


def test_what_is_cut_off_becomes_windows_that_overlap_by_stride(tokenizer: BertTokenizer) -> None:
    batch = tokenizer(["a", LONG], truncation=True, max_length=5, stride=1, return_overflowing_tokens=True)
    assert batch["input_ids"] == [[2, 5, 3], [2, 5, 6, 7, 3], [2, 7, 8, 9, 3], [2, 9, 10, 3]]
    assert batch["overflow_to_sample_mapping"] == [0, 1, 1, 1]
    assert batch.offsets[2] == [(0, 0), (4, 5), (6, 7), (8, 9), (0, 0)]
    assert batch.word_ids[3] == [None, 4, 5, None]
    padded = tokenizer(LONG, truncation=True, max_length=5, stride=1, return_overflowing_tokens=True, padding=True)
    assert padded["input_ids"][-1] == [2, 9, 10, 3, 0]
    assert padded.word_ids[-1] == [None, 4, 5, None, None]


def test_windows_of_the_second_text_repeat_the_first(tokenizer: BertTokenizer) -> None:
    options = {"truncation": "only_second", "max_length": 7, "return_overflowing_tokens": True}
    assert tokenizer("a", LONG, **options)["input_ids"] == [[2, 5, 3, 5, 6, 7, 3], [2, 5, 3, 8, 9, 10, 3]]


def test_the_left_side_can_give_way(vocab: dict[str, int]) -> None:
    tokenizer = BertTokenizer(vocab, truncation_side="left", padding_side="left")
    assert tokenizer(LONG, truncation=True, max_length=4)["input_ids"] == [2, 9, 10, 3]
    windows = tokenizer(LONG, truncation=True, max_length=6, return_overflowing_tokens=True, padding=True)
    assert windows["input_ids"] == [[2, 7, 8, 9, 10, 3], [0, 0, 2, 5, 6, 3]]
    assert windows["attention_mask"][1] == [0, 0, 1, 1, 1, 1]
    assert windows.offsets[1] == [(0, 0), (0, 0), (0, 0), (0, 1), (2, 3), (0, 0)]


# --- padding ---


def test_padding_is_masked_and_of_segment_zero(tokenizer: BertTokenizer) -> None:
    batch = tokenizer([("a", "b"), ("a", "b c")], padding=True)
    assert batch["input_ids"][0] == [2, 5, 3, 6, 3, 0]
    assert batch["token_type_ids"][0] == [0, 0, 0, 1, 1, 0]
    assert batch["attention_mask"][0] == [1, 1, 1, 1, 1, 0]
    assert batch.special_tokens_mask[0] == [1, 0, 1, 0, 1, 1]
    assert batch.offsets[0][-1] == (0, 0)
    assert batch.word_ids[0][-1] is None
    assert batch.tokens[0][-1] == "[PAD]"


def test_padding_goes_to_the_longest_the_maximum_or_a_multiple(tokenizer: BertTokenizer) -> None:
    def lengths(**options: Any) -> list[int]:
        return [len(row) for row in tokenizer(["a", "a b c"], **options)["input_ids"]]

    assert lengths() == [3, 5]
    assert lengths(padding="longest") == [5, 5]
    assert lengths(padding="max_length") == [16, 16]
    assert lengths(padding="max_length", max_length=4) == [4, 5]
    assert lengths(padding="max_length", max_length=9, pad_to_multiple_of=8) == [16, 16]
    assert lengths(padding=True, pad_to_multiple_of=4) == [8, 8]
    assert lengths(padding="do_not_pad") == [3, 5]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"padding": "left"}, "padding must be False, True, 'longest' or 'max_length', got 'left'"),
        ({"padding": True, "pad_to_multiple_of": 0}, "pad_to_multiple_of must be a whole number of at least 1, got 0"),
        (
            {"padding": True, "truncation": True, "max_length": 10, "pad_to_multiple_of": 8},
            "max_length must be a multiple of pad_to_multiple_of=8 .* got 10",
        ),
        ({"return_tensors": "tf"}, "return_tensors must be 'pt', 'np' or None, got 'tf'"),
        ({"return_tensors": "pt"}, "input_ids must have rows of one length .* got 3 to 4; pass padding=True"),
    ],
)
def test_what_cannot_be_padded_or_stacked_is_refused(
    options: dict[str, Any], message: str, tokenizer: BertTokenizer
) -> None:
    with pytest.raises(TokenizerError, match=message):
        tokenizer(["a", "a b"], **options)


def test_padding_without_a_pad_token_is_refused(vocab: dict[str, int]) -> None:
    tokenizer = BertTokenizer(vocab, pad_token=None)
    assert tokenizer(["a"])["input_ids"] == [[2, 5, 3]]
    with pytest.raises(TokenizerError, match="padding must have a pad_token, got None"):
        tokenizer(["a"], padding=True)
    with pytest.raises(TokenizerError, match="padding must have a pad_token, got None"):
        tokenizer.pad({"input_ids": [[2, 3]]})


NEEDS_WINDOWS = r"stride=1 \(without return_overflowing_tokens\) has no effect"
NEEDS_TRUNCATION = r"max_length=4 \(without truncation or padding='max_length'\)"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"padding": True, "max_length": 4}, f"^{NEEDS_TRUNCATION} has no effect"),
        ({"truncation": False, "max_length": 4}, f"^{NEEDS_TRUNCATION} has no effect"),
        ({"padding": "do_not_pad", "max_length": 4}, f"^{NEEDS_TRUNCATION} has no effect"),
        ({"stride": 1}, r"^stride=1 \(without truncation\) has no effect"),
        ({"stride": 1, "truncation": True, "max_length": 9}, f"^{NEEDS_WINDOWS}"),
        ({"return_overflowing_tokens": True}, r"^return_overflowing_tokens=True \(without truncation\) has no effect"),
        ({"pad_to_multiple_of": 8}, r"^pad_to_multiple_of=8 \(without padding\) has no effect"),
        (
            {"truncation": False, "max_length": 4, "stride": 1, "pad_to_multiple_of": 8},
            rf"^{NEEDS_TRUNCATION}, stride=1 \(.*\), pad_to_multiple_of=8 \(.*\) have no effect in this call; leave",
        ),
    ],
)
def test_arguments_that_change_nothing_are_reported_together(
    options: dict[str, Any], message: str, tokenizer: BertTokenizer
) -> None:
    with pytest.warns(PlainBertWarning, match=message) as caught:
        batch = tokenizer([LONG], **options)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert batch["input_ids"] == [[2, 5, 6, 7, 8, 9, 10, 3]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_length": 9}, "max_length=9 .* has no effect"),
        ({"padding": False, "max_length": 9, "pad_to_multiple_of": 4}, "max_length=9 .*, pad_to_multiple_of=4 .* have"),
    ],
)
def test_padding_later_reports_what_changes_nothing(
    options: dict[str, Any], message: str, tokenizer: BertTokenizer
) -> None:
    with pytest.warns(PlainBertWarning, match=message) as caught:
        assert tokenizer.pad({"input_ids": [[2, 3]]}, **options)["input_ids"] == [[2, 3]]
    assert len(caught) == 1


def test_what_is_used_is_not_reported(tokenizer: BertTokenizer) -> None:
    tokenizer([LONG], truncation=True, max_length=5, stride=1, return_overflowing_tokens=True)
    tokenizer([LONG], padding="max_length", max_length=12, pad_to_multiple_of=4)
    tokenizer.pad({"input_ids": [[2, 3]]}, padding="max_length", max_length=9, pad_to_multiple_of=4)


BOOLEANS = ["add_special_tokens", "is_split_into_words", "return_overflowing_tokens", "split_special_tokens"]


@pytest.mark.parametrize("value", ["no", "false", 1, 0, []])
@pytest.mark.parametrize("name", BOOLEANS)
def test_what_is_neither_yes_nor_no_is_refused(name: str, value: Any, tokenizer: BertTokenizer) -> None:
    with pytest.raises(TokenizerError, match=re.escape(f"{name} must be True or False, got {value!r}")):
        tokenizer("a", **{name: value})


def test_yes_and_no_are_checked_on_the_way_back_too(tokenizer: BertTokenizer) -> None:
    for convert in (tokenizer.decode, tokenizer.batch_decode, tokenizer.convert_ids_to_tokens):
        with pytest.raises(TokenizerError, match="skip_special_tokens must be True or False, got 'no'"):
            convert([31], skip_special_tokens="no")
    for decode in (tokenizer.decode, tokenizer.batch_decode):
        with pytest.raises(TokenizerError, match="clean_up_tokenization_spaces must be True or False, got 1"):
            decode([31], clean_up_tokenization_spaces=1)
    with pytest.raises(TokenizerError, match="pair must be True or False, got 'no'"):
        tokenizer.num_special_tokens_to_add("no")


# --- what is refused ---


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((None,), {}, "text must be a str or a list of them, got NoneType None"),
        ((3,), {}, "text must be a str or a list of them, got int 3"),
        ((b"a",), {}, "text must be a str or a list of them, got bytes b'a'"),
        ((np.array(["a"]),), {}, "text must be a str or a list of them, got ndarray"),
        ((["a", None],), {}, r"text\[1\] must be a str, got NoneType None"),
        ((["a", float("nan")],), {}, r"text\[1\] must be a str, got float nan"),
        ((["a", ["b"]],), {}, r"text\[1\] must be a str, got list \['b'\]"),
        (([("a", "b", "c")],), {}, r"text\[0\] must be a str, got tuple"),
        (([("a", 3)],), {}, r"text\[0\]\[1\] must be a str, got int 3"),
        (("a", 3), {}, "text_pair must be a str, got int 3"),
        (("a", ["b"]), {}, "text_pair must be a str, got list"),
        (("a", 0), {}, "text_pair must be a str, got int 0"),
        ((["a"], "b"), {}, "text_pair must be a list where text is one, got str b"),
        ((["a", "b"], ["c"]), {}, "text_pair must be as long as text, got 2 texts and 1 pairs"),
        ((["a"], [None]), {}, r"text_pair\[0\] must be a str, got NoneType"),
        (("a",), {"is_split_into_words": True}, "text must be a list of words or a list of them, got str a; for words"),
        ((["a", 1],), {"is_split_into_words": True}, r"text\[1\] must be a str, got int 1"),
        (([["a"], "b"],), {"is_split_into_words": True}, r"text\[1\] must be a list of words .* got str b"),
        (([["a"], [3]],), {"is_split_into_words": True}, r"text\[1\]\[0\] must be a str, got int 3"),
    ],
)
def test_what_is_no_text_is_refused(
    arguments: tuple[Any, ...], options: dict[str, Any], message: str, tokenizer: BertTokenizer
) -> None:
    with pytest.raises(TokenizerError, match=message):
        tokenizer(*arguments, **options)


@pytest.mark.parametrize("words", [False, True])
def test_a_lone_surrogate_is_refused_with_its_place(words: bool, tokenizer: BertTokenizer) -> None:
    texts: list[Any] = ["ok", "ab\ud800c"]
    if words:
        texts = [["ok"], ["x", "ab\ud800c"]]
    with pytest.raises(
        TokenizerError, match=r"text must be text, got the lone surrogate U\+D800 at code point 2 of index 1"
    ):
        tokenizer(texts, is_split_into_words=words)
    with pytest.raises(TokenizerError, match=r"text_pair must be text, got the lone surrogate U\+DC80"):
        tokenizer("a", "\udc80")


@pytest.mark.parametrize("keyword", ["return_offsets_mapping", "paddding", "padding_side", "text_target"])
def test_a_keyword_that_nothing_takes_is_refused_and_ours_are_named(keyword: str, tokenizer: BertTokenizer) -> None:
    with pytest.raises(KeywordError, match=f"got '{keyword}'.* it knows text, text_pair, .*split_special_tokens"):
        tokenizer("a", **{keyword: True})


def test_a_keyword_that_has_another_way_here_is_told_it(tokenizer: BertTokenizer) -> None:
    with pytest.raises(KeywordError, match=r"batch.offsets is always there"):
        tokenizer("a", return_offsets_mapping=True)
    with pytest.raises(KeywordError, match="pad must get keywords that it knows, got 'return_attention_mask'"):
        tokenizer.pad({"input_ids": [1]}, return_attention_mask=True)
    with pytest.raises(KeywordError, match=r"got 'use_fast'; it knows .*do_lower_case"):
        BertTokenizer.from_pretrained("nowhere", use_fast=True)
    with pytest.raises(TokenizerError, match="must be a list, got str 'a'"):
        tokenizer.batch_encode_plus("a")


def test_the_constructor_takes_a_vocabulary_once(tmp_path: Path, vocab: dict[str, int]) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(vocab))
    for tokenizer in (BertTokenizer(tmp_path / "vocab.txt"), BertTokenizer(vocab_file=tmp_path / "vocab.txt")):
        assert tokenizer("A b")["input_ids"] == [2, 5, 6, 3]
    assert BertTokenizer(vocab, do_lower_case=False)("A b")["input_ids"] == [2, 1, 6, 3]
    with pytest.raises(TokenizerError, match="vocab must be given once, got vocab=None and vocab_file=None"):
        BertTokenizer()
    with pytest.raises(TokenizerError, match=r"vocab must be given once, got vocab={'.*}.* and vocab_file='vocab.txt'"):
        BertTokenizer({"a": 0}, vocab_file="vocab.txt")
    with pytest.raises(TokenizerError, match="vocab must be a path or a mapping of token to id, got 5"):
        BertTokenizer(5)  # type: ignore[arg-type]
    with pytest.raises(KeywordError, match="BertTokenizer must get keywords that it knows, got 'lowercase'"):
        BertTokenizer(vocab, lowercase=True)


# --- decoding ---


def test_ids_become_text(tokenizer: BertTokenizer) -> None:
    ids = tokenizer("hello worlds!")["input_ids"]
    assert tokenizer.decode(ids) == "[CLS] hello worlds! [SEP]"
    assert tokenizer.decode(ids, skip_special_tokens=True) == "hello worlds!"
    assert tokenizer.decode(31) == "hello"
    assert tokenizer.decode([]) == ""
    assert tokenizer.decode([[31], [32]]) == tokenizer.batch_decode([[31], [32]]) == ["hello", "world"]
    assert tokenizer.decode(torch.tensor([31])) == "hello"
    assert tokenizer.batch_decode(torch.tensor([[31], [32]])) == ["hello", "world"]
    assert tokenizer.batch_decode([torch.tensor([31, 32]), np.array([32])]) == ["hello world", "world"]


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([31, 10**6], "must be in the vocabulary, got 1000000 at position 1"),
        ([2**40], "must be in the vocabulary, got 1099511627776"),
        ([31, -100], "ids must be a whole number of at least 0, got -100"),
        ([31.0], "ids must be a whole number of at least 0, got 31.0"),
        (["hello"], "ids must be a whole number of at least 0, got 'hello'"),
    ],
)
def test_what_is_no_id_is_not_decoded(ids: list[Any], message: str, tokenizer: BertTokenizer) -> None:
    with pytest.raises(TokenizerError, match=message):
        tokenizer.decode(ids)


def test_tokens_and_ids_are_converted(tokenizer: BertTokenizer) -> None:
    assert tokenizer.convert_tokens_to_ids("hello") == 31
    assert tokenizer.convert_tokens_to_ids(["hello", "nothing"]) == [31, 1]
    assert tokenizer.convert_ids_to_tokens(31) == "hello"
    assert tokenizer.convert_ids_to_tokens([2, 31, 999]) == ["[CLS]", "hello", None]
    assert tokenizer.convert_ids_to_tokens([2, 31], skip_special_tokens=True) == ["hello"]
    assert tokenizer.convert_tokens_to_ids(np.array(["hello", "a"])) == [31, 5]
    assert len(tokenizer) == tokenizer.vocab_size == len(tokenizer.get_vocab()) == 43


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (None, "tokens must be a str or a list of them, got None"),
        (5, "tokens must be a str or a list of them, got 5"),
        ([5], r"tokens\[0\] must be a str, got 5"),
        (["a", None], r"tokens\[1\] must be a str, got None"),
        ([["a"]], r"tokens\[0\] must be a str, got \['a'\]"),
        (b"a", r"tokens\[0\] must be a str, got 97"),
        ("\ud800", r"tokens must be text, got the lone surrogate U\+D800"),
    ],
)
def test_what_is_no_token_has_no_id(tokens: Any, message: str, tokenizer: BertTokenizer) -> None:
    with pytest.raises(TokenizerError, match=message):
        tokenizer.convert_tokens_to_ids(tokens)


@pytest.mark.parametrize("sequences", [None, 5, "ab", torch.tensor(5)])
def test_what_is_no_list_of_ids_is_not_decoded(sequences: Any, tokenizer: BertTokenizer) -> None:
    with pytest.raises(TokenizerError, match=r"sequences must be a list of lists of ids, got (None|5|'ab')"):
        tokenizer.batch_decode(sequences)


# --- normalisation ---


def test_offsets_count_code_points_of_the_text_as_given(minilm: BertTokenizer) -> None:
    def pieces(text: str) -> list[tuple[str, tuple[int, int]]]:
        batch = minilm(text, add_special_tokens=False)
        return list(zip(batch.tokens, batch.offsets, strict=True))

    assert [span for _, span in pieces("naïve café")] == [(0, 5), (6, 10)]
    assert pieces("nai\u0308ve") == [("naive", (0, 6))]
    assert pieces("a\x00b") == [("ab", (0, 3))]
    assert pieces("\u00adsoft\u00adhyphen")[0] == ("soft", (1, 5))
    assert [span for _, span in pieces("한국어")] == [(0, 1)] * 3 + [(1, 2)] * 3 + [(2, 3)] * 2
    assert pieces("👍🏽 ok") == [("[UNK]", (0, 2)), ("ok", (3, 5))]
    assert pieces("ΑΣ") == [("α", (0, 1)), ("##σ", (1, 2))]
    assert pieces("हिन्दी")[0] == ("ह", (0, 1))


def test_a_word_of_more_than_a_hundred_characters_is_unknown(minilm: BertTokenizer) -> None:
    assert len(minilm.tokenize("x" * 100)) > 1
    assert minilm.tokenize("x" * 101) == ["[UNK]"]
    assert minilm("\x00\u200b\ufffd")["input_ids"] == [101, 102]


def test_huge_texts_are_cut_without_harm(minilm: BertTokenizer) -> None:
    options = {"truncation": True, "max_length": 8}
    assert minilm("x" * 5_000_000, **options).tokens == ["[CLS]", "[UNK]", "[SEP]"]
    assert minilm("東京" * 100_000, **options)["attention_mask"] == [1] * 8
    assert minilm("[MASK]" * 100_000, **options)["input_ids"] == [101] + [103] * 6 + [102]
    assert minilm("e" + "\u0301" * 1_000_000, **options).tokens == ["[CLS]", "e", "[SEP]"]


# --- assigning ---


def test_a_length_that_is_assigned_is_the_length(tokenizer: BertTokenizer) -> None:
    tokenizer.model_max_length = 4
    assert tokenizer.model_max_length == 4
    assert tokenizer(LONG, truncation=True)["input_ids"] == [2, 5, 6, 3]
    assert tokenizer("", padding="max_length")["input_ids"] == [2, 3, 0, 0]
    assert tokenizer.pad({"input_ids": [2, 3]}, padding="max_length")["input_ids"] == [2, 3, 0, 0]
    tokenizer.model_max_length = int(1e30)
    with pytest.raises(TokenizerError, match="max_length must be given for truncation='longest_first', got None"):
        tokenizer(LONG, truncation=True)


def test_a_side_that_is_assigned_is_the_side(tokenizer: BertTokenizer) -> None:
    tokenizer.padding_side = tokenizer.truncation_side = "left"
    assert (tokenizer.padding_side, tokenizer.truncation_side) == ("left", "left")
    assert tokenizer(LONG, truncation=True, max_length=4)["input_ids"] == [2, 9, 10, 3]
    assert tokenizer("", padding="max_length", max_length=4)["input_ids"] == [0, 0, 2, 3]
    assert tokenizer.pad({"input_ids": [2, 3]}, padding="max_length", max_length=3)["input_ids"] == [0, 2, 3]


def test_what_is_assigned_is_kept_by_copies_pickles_and_folders(tokenizer: BertTokenizer, tmp_path: Path) -> None:
    tokenizer.model_max_length, tokenizer.padding_side, tokenizer.truncation_side = 5, "left", "left"
    tokenizer.save_pretrained(tmp_path)
    others = (
        copy.copy(tokenizer),
        copy.deepcopy(tokenizer),
        pickle.loads(pickle.dumps(tokenizer)),
        BertTokenizer.from_pretrained(tmp_path),
    )
    tokenizer.padding_side = "right"  # a copy has its own
    for other in others:
        assert (other.model_max_length, other.padding_side, other.truncation_side) == (5, "left", "left")
        assert other([LONG, ""], truncation=True, padding=True)["input_ids"] == [[2, 8, 9, 10, 3], [0, 0, 0, 2, 3]]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("model_max_length", 0, "model_max_length must be a whole number of at least 1, got 0"),
        ("model_max_length", "8", "model_max_length must be a whole number of at least 1, got '8'"),
        ("model_max_length", True, "model_max_length must be a whole number of at least 1, got True"),
        ("padding_side", "middle", "padding_side must be 'right' or 'left', got 'middle'"),
        ("padding_side", None, "padding_side must be 'right' or 'left', got None"),
        ("truncation_side", ["left"], r"truncation_side must be 'right' or 'left', got \['left'\]"),
        ("pad_token", "[MASK]", r"pad_token must stay as it was made .*got '\[MASK\]'; pass pad_token= to from_pre"),
        ("pad_token_id", 4, "pad_token_id must stay as it was made .* got 4"),
        ("vocab_size", 4, "vocab_size must stay as it was made .* got 4"),
        ("split_special_tokens", True, "split_special_tokens must stay as it was made .* got True"),
        ("do_lower_case", False, "do_lower_case must stay as it was made .* got False"),
        ("_tokenizer", None, "_tokenizer must stay as it was made .* got None"),
        ("anything", 1, r"anything must .*only model_max_length, padding_side, truncation_side can .* got 1"),
    ],
)
def test_what_cannot_be_assigned_is_refused_and_changes_nothing(
    name: str, value: Any, message: str, tokenizer: BertTokenizer
) -> None:
    before = dict(vars(tokenizer))
    with pytest.raises(TokenizerError, match=message):
        setattr(tokenizer, name, value)
    assert vars(tokenizer) == before


def test_names_can_be_completed(tokenizer: BertTokenizer) -> None:
    assert {"padding_side", "mask_token", "mask_token_id", "decode"} <= set(dir(tokenizer))


class Texts(list[str]):
    """A list that calls back while it is tokenized, as another thread might at that moment."""

    def __init__(self, texts: list[str], meanwhile: Callable[[], None]) -> None:
        super().__init__(texts)
        self.meanwhile = meanwhile

    def __iter__(self) -> Any:
        self.meanwhile()
        return super().__iter__()


def test_a_call_that_has_begun_keeps_what_it_found(tokenizer: BertTokenizer) -> None:
    def assign() -> None:
        tokenizer.model_max_length, tokenizer.padding_side, tokenizer.truncation_side = 3, "left", "left"

    options: dict[str, Any] = {"truncation": True, "padding": "max_length"}
    expected = dict(tokenizer([LONG * 3, ""], **options))
    assert dict(tokenizer(Texts([LONG * 3, ""], assign), **options)) == expected
    assert tokenizer.model_max_length == 3


def test_of_assignments_at_once_none_is_lost(tokenizer: BertTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    other = threading.Thread(target=setattr, args=(tokenizer, "padding_side", "left"))
    assigned = Settings.assigned

    def interrupted(settings: Settings, name: str, value: object) -> Settings:
        if name == "model_max_length":
            other.start()
            other.join(timeout=0.1)  # it ends in that time only if nothing holds it back
        return assigned(settings, name, value)

    monkeypatch.setattr(Settings, "assigned", interrupted)
    tokenizer.model_max_length = 8
    other.join()
    assert (tokenizer.model_max_length, tokenizer.padding_side) == (8, "left")


# --- sharing ---


def test_one_tokenizer_serves_threads_with_different_settings(minilm: BertTokenizer) -> None:
    texts = [f"the [MASK] number {number} " + "word " * number for number in range(12)]
    calls: list[dict[str, Any]] = [
        {
            "padding": (False, True, "max_length")[number % 3],
            "truncation": number % 2 == 0,
            "max_length": 6 + number if number % 2 == 0 or number % 3 == 2 else None,
            "stride": number % 3 if number % 4 == 0 else 0,
            "return_overflowing_tokens": number % 4 == 0,
            "split_special_tokens": number % 5 == 0,
            "add_special_tokens": number % 7 != 0,
        }
        for number in range(16)
    ]

    def call(options: dict[str, Any]) -> Any:
        batch = minilm(texts, **options)
        return dict(batch), batch.offsets, batch.word_ids

    expected = [call(options) for options in calls]
    fresh = copy.deepcopy(minilm)
    start = threading.Barrier(16)

    def run(index: int) -> list[Any]:
        start.wait()
        return [
            (dict(batch), batch.offsets, batch.word_ids) for _ in range(8) for batch in [fresh(texts, **calls[index])]
        ]

    with ThreadPoolExecutor(16) as pool:
        for index, results in enumerate(pool.map(run, range(16))):
            assert all(result == expected[index] for result in results)


def test_a_tokenizer_is_copied_and_pickled(tokenizer: BertTokenizer) -> None:
    for other in (copy.copy(tokenizer), copy.deepcopy(tokenizer), pickle.loads(pickle.dumps(tokenizer))):
        assert dict(other("a [MASK]", padding="max_length")) == dict(tokenizer("a [MASK]", padding="max_length"))
        assert other.mask_token_id == 4
        assert other.model_max_length == 16


def test_a_batch_is_pickled(tokenizer: BertTokenizer) -> None:
    batch = pickle.loads(pickle.dumps(tokenizer(["a"], padding="max_length", return_tensors="pt")))
    assert isinstance(batch, BatchEncoding)
    assert batch.input_ids.shape == (1, 16)
    assert len(batch.offsets[0]) == 16


def test_tokenizing_does_not_import_torch(minilm_folder: Path) -> None:
    script = (
        "import sys; from plainbert.text.tokenizer import BertTokenizer\n"
        f"BertTokenizer({str(minilm_folder / 'vocab.txt')!r})(['a'], padding=True)\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_it_says_what_it_is(tokenizer: BertTokenizer) -> None:
    assert repr(tokenizer).startswith("BertTokenizer(43 tokens, model_max_length=16, {'unk_token': '[UNK]'")
    assert tokenizer

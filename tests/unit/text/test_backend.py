"""Tokenizer files: which one wins, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plainbert.errors import MissingFileError, PlainBertWarning, TokenizerError
from plainbert.text.backend import MAX_TOKENIZER_BYTES
from plainbert.text.tokenizer import BertTokenizer

Load = Callable[..., BertTokenizer]
CASED = (
    b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nHello\nhello\nna\xc3\xafve\nnaive\n\xe7\x9a\x84\n\xe7\x9a\x84\xe4\xba\xba\n"
)


def normalizer(**switches: Any) -> dict[str, Any]:
    usual = {"clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True}
    return {"type": "BertNormalizer", **usual, **switches}


def test_a_cased_looking_vocabulary_alone_is_lower_cased_with_a_warning(write_vocab: Any, load: Load) -> None:
    with pytest.warns(
        PlainBertWarning, match="tokens with capitals such as 'Hello'; pass do_lower_case=False"
    ) as caught:
        tokenizer = load(write_vocab(CASED))
    assert len(caught) == 1
    assert tokenizer.tokenize("Hello hello") == ["hello", "hello"]


def test_the_config_decides_about_lower_case(write_vocab: Any, load: Load) -> None:
    path = write_vocab(CASED)
    assert load(path, {"do_lower_case": False}).tokenize("Hello hello") == ["Hello", "hello"]
    assert load(path, {"do_lower_case": True}).tokenize("Hello hello") == ["hello", "hello"]


@pytest.mark.parametrize(
    ("config", "tokens"),
    [
        ({"do_lower_case": True}, ["naive"]),
        ({"do_lower_case": True, "strip_accents": None}, ["naive"]),
        ({"do_lower_case": True, "strip_accents": False}, ["naïve"]),
        ({"do_lower_case": False}, ["naïve"]),
        ({"do_lower_case": False, "strip_accents": True}, ["naive"]),
    ],
)
def test_accents_go_with_lower_case_unless_set(
    config: dict[str, Any], tokens: list[str], write_vocab: Any, load: Load
) -> None:
    assert load(write_vocab(CASED), config).tokenize("naïve") == tokens


def test_ideographs_are_words_unless_switched_off(write_vocab: Any, write_json: Any, load: Load, vocab: Any) -> None:
    path = write_vocab(CASED)
    assert load(path, {"do_lower_case": False}).tokenize("的人") == ["的", "[UNK]"]
    off = {"do_lower_case": False, "tokenize_chinese_chars": False}
    assert load(path, off).tokenize("的人") == ["的人"]
    assert load(write_json(), {"tokenize_chinese_chars": False}).tokenize("的人") == ["[UNK]"]
    assert load(write_json(), {"tokenize_chinese_chars": None}).tokenize("的人") == ["的", "人"]


@pytest.mark.parametrize("value", [True, False])
def test_the_config_overrides_a_tokenizer_json_that_disagrees(value: bool, write_json: Any, load: Load) -> None:
    path = write_json(normalizer=normalizer(lowercase=not value))
    tokenizer = load(path, {"do_lower_case": value})
    assert tokenizer.tokenize("A") == ["a" if value else "[UNK]"]


def test_the_config_reaches_berts_normaliser_inside_a_sequence(write_json: Any, load: Load) -> None:
    sequence = {"type": "Sequence", "normalizers": [{"type": "NFC"}, normalizer()]}
    assert load(write_json(normalizer=sequence), {"do_lower_case": False}).tokenize("A") == ["[UNK]"]


def test_where_the_config_is_silent_tokenizer_json_stays_and_is_reported(write_json: Any, load: Load) -> None:
    path = write_json(normalizer=normalizer(lowercase=False))
    with pytest.warns(PlainBertWarning, match=r"do_lower_case is False, as tokenizer.json says"):
        assert load(path).tokenize("A") == ["[UNK]"]


def test_a_switch_that_another_normaliser_contradicts_is_reported(write_json: Any, load: Load) -> None:
    path = write_json(normalizer={"type": "Lowercase"})
    load(path, {"do_lower_case": True, "tokenize_chinese_chars": False, "strip_accents": None})
    with pytest.warns(PlainBertWarning, match="do_lower_case=False of tokenizer_config.json has no effect"):
        load(path, {"do_lower_case": False})
    with pytest.warns(PlainBertWarning, match="strip_accents=True of tokenizer_config.json has no effect"):
        load(write_json(normalizer=None), {"strip_accents": True})


@pytest.mark.parametrize("key", ["do_lower_case", "strip_accents", "tokenize_chinese_chars"])
def test_a_switch_that_is_no_switch_is_refused(key: str, write_vocab: Any, write_json: Any, load: Load) -> None:
    for path in (write_vocab(CASED), write_json()):
        with pytest.raises(TokenizerError, match=f"{key} must be true, false or null .* got 'no'"):
            load(path, {"do_lower_case": True, key: "no"})


@pytest.mark.parametrize(
    ("key", "value"), [("do_basic_tokenize", False), ("never_split", ["x"]), ("clean_text", False)]
)
def test_a_key_of_the_old_slow_tokenizers_is_reported(key: str, value: object, write_vocab: Any, load: Load) -> None:
    with pytest.warns(PlainBertWarning, match=f"{key}=.* has no effect"):
        load(write_vocab(CASED), {"do_lower_case": True, key: value})


def test_a_vocabulary_of_another_kind_of_tokenizer_is_refused_by_its_class(write_vocab: Any, load: Load) -> None:
    with pytest.raises(TokenizerError, match=r"tokenizer_class must be .* got 'BertJapaneseTokenizer'"):
        load(write_vocab(CASED), {"tokenizer_class": "BertJapaneseTokenizer"})
    assert load(write_vocab(CASED), {"tokenizer_class": "ElectraTokenizerFast", "do_lower_case": True})


def test_padding_and_truncation_stored_in_tokenizer_json_do_not_leak(write_json: Any, load: Load) -> None:
    truncation = {"direction": "Left", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    padding = {
        "strategy": {"Fixed": 9},
        "direction": "Left",
        "pad_to_multiple_of": 5,
        "pad_id": 7,
        "pad_type_id": 1,
        "pad_token": "c",
    }
    tokenizer = load(write_json(truncation=truncation, padding=padding))
    assert len(tokenizer("a b c d e f")["input_ids"]) == 8
    batch = tokenizer(["a b", "a"], padding=True, split_special_tokens=True)
    assert batch["input_ids"] == [[2, 5, 6, 3], [2, 5, 3, 0]]
    assert tokenizer.padding_side == tokenizer.truncation_side == "right"


def test_without_a_post_processor_wordpiece_gets_berts(write_json: Any, load: Load) -> None:
    assert load(write_json(post_processor=None))("a", "b")["input_ids"] == [2, 5, 3, 6, 3]


def test_token_types_are_those_of_the_post_processor(write_json: Any, load: Load) -> None:
    parts = json.loads(write_json().read_text())["post_processor"]
    for piece in parts["pair"]:
        next(iter(piece.values()))["type_id"] = 0
    assert load(write_json(post_processor=parts))("a", "b")["token_type_ids"] == [0] * 5


@pytest.mark.parametrize("cut", [0, 1, 20, 500])
def test_a_truncated_tokenizer_json_is_refused(cut: int, write_json: Any, load: Load) -> None:
    path: Path = write_json()
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(TokenizerError, match=r"reading tokenizer.json must succeed, got .* line"):
        load(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"null", "expected struct Tokenizer"),
        (b"[]", "expected struct Tokenizer"),
        (b"<html>", "expected value"),
        (b"version https://git-lfs.github.com/spec/v1", "expected value"),
        (b"[" * 100_000, "expected struct Tokenizer"),
        (b'{"model":' * 100_000, "recursion limit|did not match"),
        (b"\xff\xfe", "expected value"),
        (b"{}", "Model missing"),
        (b"\x00" * 1000, "expected value"),
    ],
)
def test_what_is_no_tokenizer_json_is_refused(content: bytes, message: str, tmp_path: Path, load: Load) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(TokenizerError, match=message):
        load(tmp_path / "tokenizer.json")


def test_a_byte_order_mark_before_the_json_is_skipped(write_json: Any, load: Load) -> None:
    path: Path = write_json()
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert load(path)("a")["input_ids"] == [2, 5, 3]


def replace(pattern: str) -> dict[str, Any]:
    return {"normalizer": {"type": "Replace", "pattern": {"Regex": pattern}, "content": "b"}}


@pytest.mark.parametrize("pattern", [r"(?<n>\g<n>)", "(" * 5000 + ")" * 5000, "(", "*"])
def test_a_regex_that_cannot_be_compiled_is_refused(pattern: str, write_json: Any, load: Load) -> None:
    with pytest.raises(TokenizerError, match=r"reading tokenizer.json must succeed"):
        load(write_json(**replace(pattern)))


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*$", "(a{0,1000}){0,1000}$"])
def test_a_regex_that_never_ends_is_given_up_and_no_panic_escapes(pattern: str, write_json: Any, load: Load) -> None:
    tokenizer = load(write_json(**replace(pattern)))
    with pytest.raises(TokenizerError, match=r"tokenizing must succeed, got .*retry-limit-in-match"):
        tokenizer("a" * 40 + "!")


def test_a_huge_regex_is_no_harm(write_json: Any, load: Load) -> None:
    assert load(write_json(**replace("x" * 1_000_000))).tokenize("a") == ["a"]


def test_a_million_added_tokens_are_refused_before_they_are_parsed(write_json: Any, load: Load) -> None:
    path: Path = write_json()
    path.write_bytes(path.read_bytes() + b'{"content":""}' * 1_000_000)
    with pytest.raises(TokenizerError, match="at most 100000 added tokens, got 1000005"):
        load(path)


def test_an_added_token_of_no_width_is_refused(write_json: Any, load: Load) -> None:
    parts = json.loads(write_json().read_text())["added_tokens"]
    parts.append({**parts[0], "id": 43, "content": ""})
    with pytest.raises(TokenizerError, match="an added token of no width, got '' with id 43"):
        load(write_json(added_tokens=parts))


def test_an_oversized_tokenizer_json_is_refused_before_it_is_read(tmp_path: Path, load: Load) -> None:
    path = tmp_path / "tokenizer.json"
    with path.open("wb") as file:
        file.truncate(MAX_TOKENIZER_BYTES + 1)
    with pytest.raises(TokenizerError, match=f"at most {MAX_TOKENIZER_BYTES} bytes, got {MAX_TOKENIZER_BYTES + 1}"):
        load(path)


def test_missing_and_unreadable_files_are_named(tmp_path: Path, load: Load) -> None:
    with pytest.raises(MissingFileError, match=r"must exist, got .*tokenizer.json"):
        load(tmp_path / "tokenizer.json")
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(TokenizerError, match=r"must be a readable file, got .*folder.json"):
        load(tmp_path / "folder.json")
    with pytest.raises(TokenizerError, match=r"must have tokenizer.json or vocab.txt, got neither"):
        BertTokenizer.from_files(None, None, {}, {}, {})


def test_a_vocabulary_without_its_unknown_token_is_refused(write_json: Any, load: Load) -> None:
    model = {"type": "WordPiece", "unk_token": "no", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    with pytest.raises(TokenizerError, match="its unk_token in the vocabulary, got 'no'"):
        load(write_json(model={**model, "vocab": {"a": 0}}))


def test_an_empty_vocabulary_is_refused(write_json: Any, load: Load) -> None:
    model = {"type": "BPE", "vocab": {}, "merges": []}
    with pytest.raises(TokenizerError, match="must have a vocabulary, got 0 tokens"):
        load(write_json(model=model, added_tokens=[], post_processor=None))


def test_a_post_processor_that_does_not_surround_texts_is_refused(write_json: Any, load: Load) -> None:
    parts = json.loads(write_json().read_text())["post_processor"]
    twice = {**parts, "single": parts["single"] + [{"Sequence": {"id": "A", "type_id": 0}}]}
    with pytest.raises(TokenizerError, match=r"leave a text whole and use it once, got \['a', 'a'\]"):
        load(write_json(post_processor=twice))
    again = {**parts, "pair": parts["pair"] + [{"Sequence": {"id": "B", "type_id": 1}}]}
    with pytest.raises(TokenizerError, match=r"leave a text whole and use it once, got \['a', 'a', 'a'\]"):
        load(write_json(post_processor=again))
    none = {**parts, "pair": parts["pair"][:3]}
    with pytest.raises(TokenizerError, match=r"use each text, got only \['a'\]"):
        load(write_json(post_processor=none))
    unknown = {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 10**9]}
    with pytest.raises(TokenizerError, match="add tokens of the vocabulary, got the unknown id 1000000000"):
        load(write_json(post_processor=unknown))


def test_a_tokenizer_that_finds_no_token_in_any_text_is_refused(write_json: Any, load: Load) -> None:
    nothing = {"type": "Replace", "pattern": {"Regex": "."}, "content": ""}
    with pytest.raises(TokenizerError, match="must tokenize simple texts, got no token"):
        load(write_json(normalizer=nothing))

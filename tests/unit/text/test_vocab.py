"""vocab.txt and vocabularies given as dictionaries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from plainbert.errors import MissingFileError, PlainBertWarning, TokenizerError
from plainbert.text.vocab import MAX_VOCAB_BYTES, check_vocab, format_vocab, looks_cased, parse_vocab, read_vocab

Write = Callable[[bytes], Path]


def test_the_line_number_is_the_id(write_vocab: Write) -> None:
    assert read_vocab(write_vocab(b"a\nb\nc\n")) == {"a": 0, "b": 1, "c": 2}


def test_a_byte_order_mark_is_no_part_of_the_first_token(write_vocab: Write) -> None:
    assert read_vocab(write_vocab(b"\xef\xbb\xbf[PAD]\na\n")) == {"[PAD]": 0, "a": 1}


def test_carriage_returns_are_no_part_of_a_token(write_vocab: Write) -> None:
    assert read_vocab(write_vocab(b"a\r\nb\r\n")) == {"a": 0, "b": 1}


@pytest.mark.parametrize("content", [b"a\nb", b"a\nb\n", b"a\nb\n\n", b"a\r\nb\r\n\r\n"])
def test_a_last_line_that_is_blank_or_not_ended_changes_nothing(content: bytes, write_vocab: Write) -> None:
    assert read_vocab(write_vocab(content)) == {"a": 0, "b": 1}


def test_a_blank_line_inside_keeps_the_numbers_after_it(write_vocab: Write) -> None:
    assert read_vocab(write_vocab(b"a\n\nb\n")) == {"a": 0, "b": 2}


def test_only_newlines_end_a_line() -> None:
    assert parse_vocab("\u2028a\n\x85b\n\x0bc") == {"\u2028a": 0, "\x85b": 1, "\x0bc": 2}


def test_a_token_that_occurs_again_keeps_its_last_id_and_is_reported(write_vocab: Write) -> None:
    with pytest.warns(PlainBertWarning, match="'a' in line 1 and again in line 3"):
        assert read_vocab(write_vocab(b"a\nb\na\n")) == {"a": 2, "b": 1}


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xef\xbb\xbf", b" \t\r\n"])
def test_a_file_without_tokens_is_refused(content: bytes, write_vocab: Write) -> None:
    with pytest.raises(TokenizerError, match=f"one token a line, got {len(content)} bytes without any"):
        read_vocab(write_vocab(content))


def test_a_file_of_another_encoding_is_refused_with_the_line(write_vocab: Write) -> None:
    with pytest.raises(TokenizerError, match="must be UTF-8, got byte 0xfc in line 2"):
        read_vocab(write_vocab("a\nü\n".encode("latin-1")))


def test_a_file_of_ten_million_lines_is_refused_with_their_number(write_vocab: Write) -> None:
    with pytest.raises(TokenizerError, match="at most 2000000 lines, got 10000001"):
        read_vocab(write_vocab(b"a\n" * 10**7))


def test_one_line_of_fifty_megabytes_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    with path.open("wb") as file:
        file.truncate(50_000_000)
    with pytest.raises(TokenizerError, match=f"at most {MAX_VOCAB_BYTES} bytes, got 50000000"):
        read_vocab(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"must exist, got .*nowhere.txt"):
        read_vocab(tmp_path / "nowhere.txt")


def test_a_folder_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"must be a readable file, got .*directory"):
        read_vocab(tmp_path)


@pytest.mark.parametrize(
    ("vocab", "message"),
    [
        ({}, "at least one token, got an empty dictionary"),
        ({1: 0}, "got the token 1"),
        ({"": 0}, "got the token ''"),
        ({"a": -1}, "'a': -1"),
        ({"a": True}, "'a': True"),
        ({"a": 1.5}, "'a': 1.5"),
        ({"a": 2**31}, "'a': 2147483648"),
        ({"a": 1, "b": 1}, "got 1 for 'a' and 'b'"),
    ],
)
def test_a_dictionary_that_is_no_vocabulary_is_refused(vocab: dict[str, int], message: str) -> None:
    with pytest.raises(TokenizerError, match=message):
        check_vocab(vocab)


def test_what_is_written_is_read_back() -> None:
    vocab = {"[PAD]": 0, "b": 3, "\u2028c": 1}
    text = format_vocab(vocab)
    assert text == "[PAD]\n\u2028c\n\nb\n"
    assert parse_vocab(text) == vocab


@pytest.mark.parametrize("vocab", [{"a\nb": 0}, {"a ": 0}, {"a": 2**30}])
def test_a_vocabulary_that_lines_cannot_hold_is_not_written(vocab: dict[str, int]) -> None:
    assert format_vocab(vocab) is None


def test_capitals_outside_brackets_make_a_vocabulary_look_cased() -> None:
    assert looks_cased({"[CLS]": 0, "<MASK>": 1, "hello": 2}) is None
    assert looks_cased({"[CLS]": 0, "hello": 1, "##Lo": 2}) == "##Lo"

"""What the model sees of a text."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def test_a_row_says_tokens_ids_offsets_and_words(run: Callable[..., Any], checkpoint: Path) -> None:
    result = run("tokenize", checkpoint, "--text", "Naïve 今天")
    assert (result.code, result.stderr) == (0, "")
    assert json.loads(result.stdout) == {
        "index": 0,
        "text": "Naïve 今天",
        "tokens": ["[CLS]", "na", "##ive", "今", "天", "[SEP]"],
        "input_ids": [2, 8, 9, 10, 11, 3],
        "offsets": [[0, 0], [0, 2], [2, 5], [6, 7], [7, 8], [0, 0]],
        "word_ids": [None, 0, 0, 1, 2, None],
    }


def test_the_table_shows_one_token_a_line(run: Callable[..., Any], checkpoint: Path) -> None:
    lines = run("tokenize", checkpoint, "--text", "今天", "--format", "text").stdout.splitlines()
    assert lines[0].split() == ["index", "token", "id", "offsets", "slice", "word"]
    assert [line.split()[1] for line in lines[1:]] == ["[CLS]", "今", "天", "[SEP]"]


def test_special_tokens_can_be_left_out_or_read_as_letters(run: Callable[..., Any], checkpoint: Path) -> None:
    def tokens(*options: str) -> list[str]:
        return json.loads(run("tokenize", checkpoint, "--text", "hello [MASK]", *options).stdout)["tokens"]

    assert tokens() == ["[CLS]", "hello", "[MASK]", "[SEP]"]
    assert tokens("--no-special-tokens") == ["hello", "[MASK]"]
    assert "[MASK]" not in tokens("--split-special-tokens")


def test_texts_are_cut_only_when_asked(run: Callable[..., Any], checkpoint: Path) -> None:
    long = "hello " * 100
    assert len(json.loads(run("tokenize", checkpoint, "--text", long).stdout)["input_ids"]) == 102
    assert len(json.loads(run("tokenize", checkpoint, "--text", long, "--max-length", "7").stdout)["input_ids"]) == 7


def test_odd_texts_are_texts(run: Callable[..., Any], checkpoint: Path) -> None:
    odd = ["\u202eabc", "👨\u200d👩\u200d👧", "e\u0301" * 1000, "\ufffe", "x" * 100_000]
    result = run("tokenize", checkpoint, "-", stdin="\n".join(odd).encode())
    assert result.code == 0
    assert [json.loads(line)["text"] for line in result.stdout.split("\n")[:-1]] == odd


def test_a_vocabulary_that_does_not_fit_is_one_line(
    run: Callable[..., Any], make_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    folder = make_checkpoint(tmp_path / "small", vocab_size=6)
    result = run("embed", folder, "--text", "hello there")
    assert (result.code, result.stdout) == (1, "")
    assert "Traceback" not in result.stderr
    assert result.stderr.splitlines()[-1].startswith("Error: ")
    (folder / "vocab.txt").write_text("")
    result = run("tokenize", folder, "--text", "hello")
    assert (result.code, result.stdout) == (1, "")
    assert len(result.stderr.splitlines()) == 1


def test_an_old_vocabulary_file_is_read_as_it_was_meant(
    run: Callable[..., Any], make_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    folder = make_checkpoint(tmp_path / "old")
    plain = run("tokenize", folder, "--text", "hello 今").stdout
    words = (folder / "vocab.txt").read_bytes()
    (folder / "vocab.txt").write_bytes(b"\xef\xbb\xbf" + words.replace(b"\n", b"\r\n"))
    assert run("tokenize", folder, "--text", "hello 今").stdout == plain


def test_a_vocabulary_of_another_language_is_said_once(run: Callable[..., Any], checkpoint: Path) -> None:
    result = run("tokenize", checkpoint, "--text", "สวัสดี hello", "--text", "ไทย")
    assert result.code == 0
    assert result.stderr.startswith("Warning: 2 of 3 tokens (67%) are the unknown token, ")
    assert result.stderr.endswith("is this model made for this language?\n")
    assert len(result.stderr.splitlines()) == 1
    result = run("embed", checkpoint, "--text", "สวัสดี hello", "--text", "ไทย")
    assert result.stderr.startswith("Warning: 2 of 3 tokens (67%)")
    # A third is not more than a third.
    assert run("tokenize", checkpoint, "--text", "ไทย hello there").stderr == ""


@pytest.mark.parametrize("verb", ["tokenize", "embed", "verify"])
def test_a_checkpoint_without_a_tokenizer_is_named(
    run: Callable[..., Any], make_checkpoint: Callable[..., Path], tmp_path: Path, verb: str
) -> None:
    folder = make_checkpoint(tmp_path / "my-classifier", head="BertForSequenceClassification")
    (folder / "vocab.txt").unlink()
    result = run(verb, folder, "--text", "hello")
    assert (result.code, result.stdout) == (1, "")
    error = result.stderr.splitlines()[-1]
    assert error.startswith(f"Error: {folder} must have a tokenizer, tokenizer.json or vocab.txt, got neither; ")
    assert error.endswith("save it there with tokenizer.save_pretrained(...)")

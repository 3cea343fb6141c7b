"""Errors of Python in the words of the command line, and the pages that help."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import plainbert.__main__
from plainbert.cli.convert import command as convert
from plainbert.cli.embed import command as embed
from plainbert.cli.wording import as_typed


@pytest.mark.parametrize(
    ("said", "typed"),
    [
        ("name must be a folder, got './a'", "MODEL must be a folder, got './a'"),
        ("max_length must be a number, got 9", "--max-length must be a number, got 9"),
        ("x; pass local_files_only=True to use", "x; pass --offline to use"),
        ("if private pass token= or set HF_TOKEN", "if private pass --token or set HF_TOKEN"),
        ("or pass truncation='truncate'", "or pass --truncation truncate"),
        ("pass max_length=40.", "pass --max-length 40."),
        ("pass add_pooling_layer=False", "pass add_pooling_layer=False"),
        ("name=x must be, got 'max_length=3'", "MODEL x must be, got 'max_length=3'"),
        ("at /a?token=b and a.token=c", "at /a?token=b and a.token=c"),
        ("config.json must be, got no name", "config.json must be, got no name"),
        ("give the cache_dir that has it", "give the --cache-dir that has it"),
        ("pass tokenizer_file or cache_dir", "pass tokenizer_file or cache_dir"),
        ("pass the string 'a'", "give 'a'"),
    ],
)
def test_keywords_become_options(said: str, typed: str) -> None:
    assert as_typed(said, embed) == typed
    assert as_typed(said, None) == said


def test_the_argument_is_called_as_in_the_verbs_own_help() -> None:
    assert as_typed("name must be", convert) == "SRC must be"


def test_a_folder_that_is_not_there_is_called_model(run: Callable[..., Any]) -> None:
    said = run("embed", "./nope", "--text", "a").stderr
    assert said.startswith("Error: MODEL must be a folder that exists or a Hub repo id")
    assert said.endswith("; if a Hub repo is meant, give 'nope'\n")


def test_an_option_out_of_range_is_called_as_it_was_typed(run: Callable[..., Any], checkpoint: Path) -> None:
    assert run("embed", checkpoint, "--text", "a", "--max-length", "41").stderr.startswith("Error: --max-length must")
    said = run("embed", checkpoint, "--text", "hello " * 50, "--truncation", "error").stderr
    assert "pass --truncation truncate" in said


@pytest.mark.parametrize("words", [[], ["--debug"]])
def test_no_verb_prints_the_help_unfolded(run: Callable[..., Any], words: list[str]) -> None:
    result = run(*words)
    assert (result.code, result.stdout) == (2, "")
    assert result.stderr == run("--help").stdout


def test_help_is_a_word_too(run: Callable[..., Any]) -> None:
    assert run("help") == run("--help")
    assert run("help", "embed") == run("embed", "--help")
    assert run("help", "emded").code == 2


@pytest.mark.parametrize("verb", ["embed", "tokenize"])
def test_help_says_what_becomes_of_odd_lines(run: Callable[..., Any], verb: str) -> None:
    page = " ".join(run(verb, "--help").stdout.split())
    assert "a blank line is a text too" in page
    assert "left out" in page


def test_an_interrupt_while_the_command_is_imported_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(ModuleType):
        def __getattr__(self, _: str) -> None:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "plainbert.cli.main", Interrupted("plainbert.cli.main"))
    assert plainbert.__main__.main() == 130

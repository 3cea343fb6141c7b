"""Verbs, exit codes, and that whatever happens is one line on stderr."""

from __future__ import annotations

import importlib
import os
import shlex
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from plainbert.cli.main import VERBS
from plainbert.errors import PlainBertError, PlainBertWarning


def command_of(verb: str) -> click.Command:
    return importlib.import_module(f"plainbert.cli.{verb.replace('-', '_')}").command


@pytest.fixture
def breaking(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Let the verb ``info`` end in an exception."""

    def replace(error: BaseException) -> None:
        def callback(**_: Any) -> None:
            raise error

        monkeypatch.setattr(command_of("info"), "callback", callback)

    return replace


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_names_every_verb(run: Callable[..., Any], flag: str) -> None:
    result = run(flag)
    assert (result.code, result.stderr) == (0, "")
    assert all(f"  {verb} " in result.stdout for verb in VERBS)


def test_version_names_what_decides_the_numbers(run: Callable[..., Any]) -> None:
    import torch

    import plainbert

    result = run("--version")
    assert result.code == 0
    assert f"plainbert {plainbert.__version__}" in result.stdout
    assert f"torch {torch.__version__}" in result.stdout


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_and_two_examples_that_parse(run: Callable[..., Any], verb: str) -> None:
    result = run(verb, "--help")
    assert result.code == 0
    examples = [line.strip() for line in result.stdout.splitlines() if line.strip().startswith(f"plainbert {verb} ")]
    assert len(examples) >= 2
    for example in examples:
        assert command_of(verb).make_context(verb, shlex.split(example)[2:], obj={}).params["name"]


@pytest.mark.parametrize(("typed", "meant"), [("emded", "embed"), ("tokenise", "tokenize"), ("inf", "info")])
def test_a_wrong_verb_is_wrong_usage_and_the_right_one_is_suggested(
    run: Callable[..., Any], typed: str, meant: str
) -> None:
    result = run(typed, "minilm")
    assert result.code == 2
    assert f"got {typed!r}; did you mean {meant}?" in result.stderr
    assert result.stdout == ""


def test_a_word_like_no_verb_gets_the_list(run: Callable[..., Any]) -> None:
    said = run("xyzzy").stderr
    assert said.startswith("Error: VERB must be one of verify, info, tokenize, embed, convert, got 'xyzzy'; see")


@pytest.mark.parametrize(
    "words", [["embed"], ["embed", "minilm", "--dtype", "int3"], ["embed", "minilm", "--frmat", "csv"]]
)
def test_wrong_usage_is_exit_2_and_one_line(run: Callable[..., Any], words: list[str]) -> None:
    result = run(*words)
    assert (result.code, result.stdout) == (2, "")
    assert result.stderr.startswith("Error: ")
    assert len(result.stderr.splitlines()) == 1


def test_an_error_of_ours_is_one_line_and_exit_1(run: Callable[..., Any], breaking: Callable[..., None]) -> None:
    breaking(PlainBertError("x must be y,\ngot z"))
    result = run("info", "minilm")
    assert (result.code, result.stdout, result.stderr) == (1, "", "Error: x must be y, got z\n")


def test_any_other_error_is_one_line_that_says_how_to_see_where(
    run: Callable[..., Any], breaking: Callable[..., None]
) -> None:
    breaking(ZeroDivisionError("by\nnought"))
    result = run("info", "minilm")
    assert (result.code, result.stdout) == (1, "")
    assert result.stderr == "Error: ZeroDivisionError: by nought; --debug shows where\n"


@pytest.mark.parametrize("words", [["--debug", "info", "minilm"], ["info", "minilm", "--debug"]])
def test_debug_shows_where(run: Callable[..., Any], breaking: Callable[..., None], words: list[str]) -> None:
    breaking(ZeroDivisionError("by nought"))
    result = run(*words)
    assert result.code == 1
    assert "Traceback" in result.stderr
    assert result.stderr.splitlines()[-1] == "Error: ZeroDivisionError: by nought"


def test_the_environment_can_ask_for_the_traceback_too(
    run: Callable[..., Any], breaking: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    breaking(PlainBertError("no"))
    assert "Traceback" not in run("info", "minilm").stderr
    monkeypatch.setenv("PLAINBERT_DEBUG", "1")
    assert "Traceback" in run("info", "minilm").stderr


def test_an_interrupt_is_exit_130_without_a_traceback(run: Callable[..., Any], breaking: Callable[..., None]) -> None:
    breaking(KeyboardInterrupt())
    result = run("info", "minilm")
    assert result.code == 130
    assert result.stderr.strip() == ""


def test_terminal_codes_in_a_message_are_defused(run: Callable[..., Any], breaking: Callable[..., None]) -> None:
    breaking(PlainBertError("got \x1b[2J\x07\r今天"))
    assert run("info", "minilm").stderr == "Error: got \\x1b[2J\\x07 今天\n"


def test_a_warning_is_one_line_without_a_file_name(run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def callback(**_: Any) -> int:
        warnings.warn("mind\nthe gap", PlainBertWarning, stacklevel=1)
        return 0

    monkeypatch.setattr(command_of("info"), "callback", callback)
    result = run("info", "minilm")
    assert (result.code, result.stdout, result.stderr) == (0, "", "Warning: mind the gap\n")


def test_a_model_that_is_nowhere_is_an_error_of_one_line(run: Callable[..., Any], tmp_path: Path) -> None:
    for verb in ("embed", "tokenize"):
        result = run(verb, tmp_path / "nothing", "--text", "hello", "--offline")
        assert (result.code, result.stdout) == (1, "")
        assert len(result.stderr.splitlines()) == 1
        assert "nothing" in result.stderr


def test_a_reader_that_goes_away_is_no_error_message(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("hello there world\n" * 3000)
    words = [sys.executable, "-m", "plainbert", "tokenize", str(checkpoint), str(tmp_path / "texts.txt")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ}) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode in (0, 1)


def test_the_module_is_the_command() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "plainbert", "emded"], capture_output=True, text=True, check=False, env={**os.environ}
    )
    assert result.returncode == 2
    assert "did you mean embed?" in result.stderr

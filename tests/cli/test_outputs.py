"""Names of files that say what they hold, streams that break, and what a person at a terminal is told."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from plainbert.cli.common import shorten


@pytest.mark.parametrize(
    ("name", "form"),
    [("v.npy", "csv"), ("v.csv", "npy"), ("v.jsonl", "json"), ("v.JSON", "csv"), ("v.txt", "npy"), ("v.npy", "text")],
)
def test_a_format_that_the_ending_contradicts_is_wrong_usage(
    run: Callable[..., Any], tmp_path: Path, name: str, form: str
) -> None:
    result = run("embed", "no-model", "--text", "a", "--output", tmp_path / name, "--format", form)
    assert result.code == 2
    assert f"must say the same, got {form} and {str(tmp_path / name)!r}; " in result.stderr
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize(("verb", "name"), [("embed", "v.xyz"), ("embed", "v.tsv"), ("tokenize", "v.npy")])
def test_an_ending_that_is_not_written_needs_a_format(
    run: Callable[..., Any], tmp_path: Path, verb: str, name: str
) -> None:
    result = run(verb, "no-model", "--text", "a", "--output", tmp_path / name)
    assert result.code == 2
    assert "--output must end in one of .jsonl, .json, .csv, " in result.stderr
    assert name in result.stderr
    assert (".npy" in result.stderr.split("got")[0]) == (verb == "embed")


@pytest.mark.parametrize(
    ("name", "options"),
    [("v.xyz", ["--format", "csv"]), ("v.txt", ["--format", "csv"]), ("v.csv", []), ("v.csv", ["--format", "csv"])],
)
def test_a_format_that_fits_the_ending_is_written(
    run: Callable[..., Any], checkpoint: Path, tmp_path: Path, name: str, options: list[str]
) -> None:
    assert run("tokenize", checkpoint, "--text", "hello", "--output", tmp_path / name, *options).code == 0
    assert (tmp_path / name).read_text().startswith("index,text,tokens")


def test_a_name_without_an_ending_and_a_device_get_jsonl(
    run: Callable[..., Any], checkpoint: Path, tmp_path: Path
) -> None:
    assert run("tokenize", checkpoint, "--text", "hello", "--output", tmp_path / "out").code == 0
    assert (tmp_path / "out").read_text().startswith('{"index": 0')
    assert run("tokenize", checkpoint, "--text", "hello", "--output", os.devnull).code == 0


@pytest.mark.parametrize("verb", ["embed", "tokenize"])
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".JSONL", ".json", ".parquet"])
def test_a_file_of_records_is_read_as_lines_with_one_warning(
    run: Callable[..., Any], checkpoint: Path, tmp_path: Path, verb: str, suffix: str
) -> None:
    path = tmp_path / f"texts{suffix}"
    path.write_text("hello\nthere\n")
    result = run(verb, checkpoint, path)
    assert result.code == 0
    assert len(result.stdout.splitlines()) == 2
    assert result.stderr.startswith(f"Warning: {path} is read as lines of text")
    assert len(result.stderr.splitlines()) == 1


class Breaking(io.RawIOBase):
    """An input that gives one line and then fails."""

    given = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self.given:
            raise OSError(5, "Input/output error")
        self.given = True
        buffer[:6] = b"hello\n"
        return 6


@pytest.mark.parametrize("output", [True, False])
def test_an_input_that_breaks_off_is_an_error_of_the_input(
    run: Callable[..., Any], checkpoint: Path, tmp_path: Path, output: bool
) -> None:
    options = ["--output", tmp_path / "out.jsonl"] if output else []
    result = run("tokenize", checkpoint, "-", *options, stdin=io.BufferedReader(Breaking(), buffer_size=8))
    assert result.code == 1
    assert result.stderr.startswith("Error: INPUT must be readable to its end, got Input/output error from stdin; "), (
        result.stderr
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [["--version"], ["tokenize", "minilm", "--text", "a"], ["--help"]])
def test_a_closed_stdout_is_one_line(words: list[str]) -> None:
    command = '"$0" -m plainbert "$@" >&-'
    result = subprocess.run(
        ["sh", "-c", command, sys.executable, *words], stderr=subprocess.PIPE, text=True, check=False
    )
    assert result.returncode == 1
    assert result.stderr == "Error: stdout is closed; redirect it to a file or to /dev/null\n"


def test_a_closed_stdin_is_wrong_usage(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from plainbert.cli.main import main

    monkeypatch.setattr(sys, "stdin", None)
    assert main(["tokenize", "minilm", "-"]) == 2
    assert "INPUT must be given, got a closed stdin; " in capsys.readouterr().err


def test_loading_is_told_at_a_terminal_and_nowhere_else(
    run: Callable[..., Any], checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("embed", checkpoint, "--text", "hello").stderr == ""
    monkeypatch.setattr(type(sys.stderr), "isatty", lambda _: True)
    said = re.sub(r"\x1b\[[0-9;]*m", "", run("embed", checkpoint, "--text", "hello").stderr)
    assert said == f"loading {checkpoint} ...\n"


def test_the_table_of_vectors_fits_80_columns(
    run: Callable[..., Any], checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda _: True)
    monkeypatch.setenv("COLUMNS", "80")
    table = run("embed", checkpoint, "--text", "hello there " * 20, "--text", "今天好" * 20).stdout
    rows = [line for line in table.splitlines() if "1.0000" in line]
    assert len(rows) == 2
    assert len(table.strip().splitlines()) == 4
    for row in rows:
        assert re.search(r"… +32 +1\.0000 +([+-]\d\.\d{4} ){3}…$", row), row


@pytest.mark.parametrize("text", ["hello " * 20, "今天" * 30, "a今" * 30, "สวัสดี" * 20, "x\ty" * 30, "e\u0301" * 60])
def test_a_long_text_is_cut_to_its_columns_with_one_ellipsis(text: str) -> None:
    short = shorten(text, 30)
    assert short.endswith("…")
    assert short.count("…") == 1
    assert 10 <= cell_len(short) <= 30
    assert shorten("今天", 4) == "今天"

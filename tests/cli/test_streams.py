"""Texts in and rows out: every way in gives the same bytes, nothing is lost in silence, files are whole or absent."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plainbert.cli.main import main

TEXTS = ["hello there", "今天好", "", "naïve world."]


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("verb", ["embed", "tokenize"])
@pytest.mark.parametrize("form", ["jsonl", "json", "csv", "text"])
def test_file_stdin_and_options_give_the_same_bytes(
    run: Callable[..., Any], checkpoint: Path, texts: Path, verb: str, form: str
) -> None:
    options = [word for text in TEXTS for word in ("--text", text)]
    results = [
        run(verb, checkpoint, texts, "--format", form),
        run(verb, checkpoint, "-", "--format", form, stdin=texts.read_bytes()),
        run(verb, checkpoint, "--format", form, stdin=texts.read_bytes()),
        run(verb, checkpoint, *options, "--format", form),
    ]
    assert {(result.code, result.stderr) for result in results} == {(0, "")}
    assert len({result.stdout for result in results}) == 1
    assert results[0].stdout


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"hello", ["hello"]),
        (b"hello\n", ["hello"]),
        (b"hello\n\n", ["hello", ""]),
        (b"hello\r\nthere\r\n", ["hello", "there"]),
        (b"\xef\xbb\xbfhello\n", ["hello"]),
        ("a\u2028b\x0bc\x85d\x1ce\rf\n".encode(), ["a\u2028b\x0bc\x85d\x1ce\rf"]),
        (b"a\x00b\n", ["a\x00b"]),
    ],
    ids=["nothing", "empty line", "no end", "end", "empty last", "crlf", "bom", "other breaks", "nul"],
)
def test_lines_end_where_lines_end(run: Callable[..., Any], checkpoint: Path, data: bytes, expected: list[str]) -> None:
    result = run("tokenize", checkpoint, "-", stdin=data)
    assert result.code == 0
    assert "Error" not in result.stderr
    rows = [json.loads(line) for line in result.stdout.split("\n")[:-1]]
    assert [row["text"] for row in rows] == expected
    assert [row["index"] for row in rows] == list(range(len(expected)))


@pytest.mark.parametrize("verb", ["embed", "tokenize"])
def test_a_line_that_is_not_utf8_is_named_and_the_others_come_out(
    run: Callable[..., Any], checkpoint: Path, tmp_path: Path, verb: str
) -> None:
    path = tmp_path / "broken.txt"
    path.write_bytes(b"hello\nab\xffcd\nthere\n\xc3\n")
    result = run(verb, checkpoint, path)
    assert result.code == 3
    assert [json.loads(line)["index"] for line in result.stdout.splitlines()] == [0, 2]
    assert [json.loads(line)["text"] for line in result.stdout.splitlines()] == ["hello", "there"]
    assert result.stderr.splitlines() == [
        "Error: line 2 must be UTF-8, got byte 0xff at byte 3; it was left out",
        "Error: line 4 must be UTF-8, got byte 0xc3 at byte 1; it was left out",
    ]


def test_a_text_option_that_is_not_utf8_is_a_broken_line_too(run: Callable[..., Any], checkpoint: Path) -> None:
    result = run("embed", checkpoint, "--text", "hello", "--text", "\udcff", "--text", "a\ud800")
    assert result.code == 3
    assert len(result.stdout.splitlines()) == 1
    assert "--text number 2 must be UTF-8, got byte 0xff" in result.stderr
    assert "--text number 3 must be UTF-8, got byte 0xed" in result.stderr


@pytest.mark.parametrize("name", ["no-such-file.txt", "hello there", "今天.txt", "a\nb"])
def test_a_mistyped_path_is_an_error_and_never_data(run: Callable[..., Any], checkpoint: Path, name: str) -> None:
    result = run("embed", checkpoint, name)
    assert (result.code, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1
    assert repr(name)[1:-1] in result.stderr
    assert "--text" in result.stderr


def test_a_folder_is_no_input(run: Callable[..., Any], checkpoint: Path, tmp_path: Path) -> None:
    result = run("tokenize", checkpoint, tmp_path)
    assert result.code == 2
    assert "Is a directory" in result.stderr


def test_input_and_text_together_are_wrong_usage(run: Callable[..., Any], checkpoint: Path, texts: Path) -> None:
    result = run("embed", checkpoint, texts, "--text", "hello")
    assert result.code == 2
    assert "must not both be given" in result.stderr
    assert "texts.txt" in result.stderr


class Terminal(io.BytesIO):
    def isatty(self) -> bool:
        return True


def test_no_input_at_a_terminal_is_wrong_usage_and_does_not_wait(run: Callable[..., Any], checkpoint: Path) -> None:
    result = run("embed", checkpoint, stdin=Terminal(b"hello\n"))
    assert result.code == 2
    assert result.stderr.startswith("Error: INPUT must be given, got no text")
    assert run("tokenize", checkpoint, "-", stdin=Terminal(b"hello\n")).code == 0


def test_the_numbers_are_the_same_in_every_format(
    run: Callable[..., Any], checkpoint: Path, texts: Path, tmp_path: Path
) -> None:
    lines = [json.loads(line) for line in run("embed", checkpoint, texts).stdout.splitlines()]
    listed = json.loads(run("embed", checkpoint, texts, "--format", "json").stdout)
    table = list(csv.reader(io.StringIO(run("embed", checkpoint, texts, "--format", "csv").stdout, newline="")))
    assert run("embed", checkpoint, texts, "--output", tmp_path / "vectors.npy").stdout == ""
    vectors = np.load(tmp_path / "vectors.npy")
    assert vectors.shape == (4, 32)
    assert vectors.dtype == np.float32
    assert [line["text"] for line in lines] == TEXTS
    assert listed == lines
    assert table[0] == ["index", "text", *(f"e{number}" for number in range(32))]
    assert [row[1] for row in table[1:]] == TEXTS
    for found in (
        np.array([line["embedding"] for line in lines], dtype=np.float32),
        np.array([row[2:] for row in table[1:]], dtype=np.float32),
    ):
        assert np.array_equal(found, vectors)


def test_npy_goes_through_a_pipe(checkpoint: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    with open(sys.__stdout__.fileno(), "w", closefd=False) as stdout, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", stdout)
        assert main(["embed", str(checkpoint), "--text", "hello", "--format", "npy"]) == 0
    assert np.load(io.BytesIO(capfdbinary.readouterr().out)).shape == (1, 32)


def test_nothing_in_gives_nothing_of_the_right_shape(run: Callable[..., Any], checkpoint: Path, tmp_path: Path) -> None:
    assert run("embed", checkpoint, "-").stdout == ""
    assert run("embed", checkpoint, "-", "--format", "json").stdout == "[]\n"
    assert run("embed", checkpoint, "-", "--format", "csv").stdout.startswith("index,text,e0,e1")
    assert run("embed", checkpoint, "-", "--output", tmp_path / "none.npy").code == 0
    assert np.load(tmp_path / "none.npy").shape == (0, 32)


def test_the_output_is_whole_or_not_there(
    run: Callable[..., Any], checkpoint: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out.jsonl"
    output.write_text("before")
    with monkeypatch.context() as patch:

        def full(_: int) -> None:
            raise OSError(28, "No space left on device")

        patch.setattr("os.fsync", full)
        result = run("tokenize", checkpoint, texts, "--output", output)
    assert result.code == 1
    assert "No space left on device" in result.stderr
    assert output.read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.jsonl", "texts.txt"]
    assert run("tokenize", checkpoint, texts, "--output", output).code == 0
    assert len(output.read_text(encoding="utf-8").splitlines()) == 4


@pytest.mark.parametrize("target", ["", "no/such/folder/out.jsonl"])
def test_an_output_that_cannot_be_is_refused_before_any_work(
    run: Callable[..., Any], tmp_path: Path, target: str
) -> None:
    result = run("embed", "no-model-is-looked-for", "--text", "hello", "--output", tmp_path / target)
    assert result.code == 2
    assert "--output must be the path of a file" in result.stderr


def test_a_terminal_gets_a_table_and_never_bytes(
    run: Callable[..., Any], checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda _: True)
    table = run("embed", checkpoint, "--text", "hello [bold] 今天\x1b[2J").stdout
    assert "hello [bold] 今天" in table
    assert "\x1b[2J" not in table
    assert "norm" in table
    assert "1.0000" in table
    with pytest.raises(ValueError, match="Expecting value"):
        json.loads(table)
    result = run("embed", checkpoint, "--text", "hello", "--format", "npy")
    assert result.code == 2
    assert "must go to a file or a pipe, got a terminal; " in result.stderr


def test_a_piped_table_has_no_colour_and_one_line_a_row(run: Callable[..., Any], checkpoint: Path) -> None:
    result = run("embed", checkpoint, "--text", "hello " * 40, "--text", "今天", "--format", "text")
    assert "\x1b" not in result.stdout
    assert len(result.stdout.splitlines()) == 3


class Source(io.RawIOBase):
    """Endless input, line by line, which remembers how much of it has been asked for."""

    def __init__(self, lines: int) -> None:
        self.left, self.given = lines, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self.left:
            return 0
        self.left -= 1
        self.given += 1
        buffer[:6] = b"hello\n"
        return 6


@pytest.mark.parametrize("verb", ["embed", "tokenize"])
@pytest.mark.parametrize("form", ["jsonl", "csv", "json"])
def test_rows_are_out_before_the_rest_of_the_input_is_read(
    run: Callable[..., Any], checkpoint: Path, monkeypatch: pytest.MonkeyPatch, verb: str, form: str
) -> None:
    monkeypatch.setattr("plainbert.cli.lines.CHUNK", 3)
    source = Source(10)
    seen: list[tuple[int, int]] = []

    class Out(io.BytesIO):
        def flush(self) -> None:
            seen.append((source.given, self.getvalue().count(b"hello")))

    out = io.TextIOWrapper(Out(), encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(source, buffer_size=8), encoding="utf-8"))
    assert main([verb, str(checkpoint), "-", "--format", form]) == 0
    # Of ten lines, three at a time: the first rows are out when the reader has asked for no more than the fourth.
    words = 2 if verb == "tokenize" else 1  # the text and its token
    rows = [(given, count // words) for given, count in seen if count]
    assert [count for _, count in rows][:4] == [3, 6, 9, 10]
    assert [given <= count + 1 for given, count in rows[:3]] == [True] * 3


@pytest.mark.parametrize("verb", ["embed", "tokenize"])
@pytest.mark.parametrize("form", ["jsonl", "json", "csv", "text"])
def test_chunks_leave_no_seam(
    run: Callable[..., Any],
    checkpoint: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
    form: str,
) -> None:
    path = tmp_path / "many.txt"
    path.write_bytes(b"hello\nthere\n\xff\nworld\n\xff\n\xff\n\xff\n\nhello there\n")
    whole = run(verb, checkpoint, path, "--format", form)
    monkeypatch.setattr("plainbert.cli.lines.CHUNK", 2)
    parts = run(verb, checkpoint, path, "--format", form)
    assert (whole.code, whole.stderr) == (parts.code, parts.stderr)
    assert whole.code == 3
    if verb == "tokenize" or form == "text":
        assert parts.stdout == whole.stdout
    elif form == "csv":
        assert [row[:2] for row in csv.reader(io.StringIO(parts.stdout, newline=""))] == [
            row[:2] for row in csv.reader(io.StringIO(whole.stdout, newline=""))
        ]
    else:
        rows = [json.loads(line) for line in parts.stdout.splitlines()] if form == "jsonl" else json.loads(parts.stdout)
        assert [row["index"] for row in rows] == [0, 1, 3, 7, 8]


def test_the_tokenizer_is_called_once_a_chunk(
    run: Callable[..., Any], checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from plainbert import BertTokenizer

    calls = []
    call = BertTokenizer.__call__
    monkeypatch.setattr(
        BertTokenizer, "__call__", lambda self, text, **more: calls.append(len(text)) or call(self, text, **more)
    )
    assert run("tokenize", checkpoint, "-", stdin=b"hello\n" * 1500).code == 0
    assert calls == [1024, 476]


def test_an_array_of_chunks_is_one_array(
    run: Callable[..., Any], checkpoint: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plainbert.cli.lines.CHUNK", 3)
    assert run("embed", checkpoint, texts, "--output", tmp_path / "vectors.npy").code == 0
    assert np.load(tmp_path / "vectors.npy").shape == (4, 32)

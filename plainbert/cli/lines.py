"""Texts in: ``--text`` values, a file or stdin, in chunks, so that a long input is never held whole."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import click

from plainbert.cli.common import Failures
from plainbert.errors import InputError, warn

# Texts that are worked on together. What comes of them is written before the next ones are read.
CHUNK = 1024
# Their lines are records, or no lines at all.
_NOT_LINES = {".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet", ".arrow", ".xlsx", ".gz", ".zip"}
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Line:
    """One text of the input."""

    index: int
    """Its place in the input, from 0; broken lines count."""
    text: str


def read_lines(source: str | None, texts: Sequence[str], failures: Failures) -> Iterator[list[Line]]:
    r"""Read the texts of a verb: ``--text`` values, a file, or stdin.

    A file holds one text per line, UTF-8. Lines end in ``\n`` or ``\r\n`` and in nothing else, so that characters which
    Python's ``splitlines`` would also break at stay in their text. A byte order mark at the start is dropped. An empty
    line is an empty text; the end of the last line does not begin another.

    Args:
        source: a path, ``-`` for stdin, or None for stdin unless texts are given.
        texts: the values of ``--text``.
        failures: is told of each broken line, which is left out.

    Returns:
        The good lines, at most ``CHUNK`` at once. The input is opened before this returns and read as it is asked for.

    Raises:
        click.UsageError: no input, two inputs, or a path that cannot be read.
        InputError: the input breaks off while it is read.
    """
    if texts and source is not None:
        raise click.UsageError(f"INPUT and --text must not both be given, got {source!r} and --text; leave one out.")
    if texts:
        return _decoded(map(_encode, texts), "--text number", failures)
    stream = _open(source)
    if source is not None and Path(source).suffix.lower() in _NOT_LINES:
        warn(
            f"{source} is read as lines of text, each of them whole one text; give a file with one text per line if "
            f"the texts are in fields of {Path(source).suffix}"
        )
    return _decoded(_split(stream, source), "line", failures)


def _decoded(raw: Iterable[bytes], place: str, failures: Failures) -> Iterator[list[Line]]:
    numbered = enumerate(raw)
    while some := list(itertools.islice(numbered, CHUNK)):
        lines = []
        for index, one in some:
            try:
                lines.append(Line(index, one.decode("utf-8")))
            except UnicodeDecodeError as error:
                failures.say(
                    f"{place} {index + 1} must be UTF-8, got byte 0x{one[error.start]:02x} at byte {error.start + 1}; "
                    "it was left out"
                )
        yield lines


def _encode(text: str) -> bytes:
    """Give a command line's word as the bytes it was typed as; those that are no UTF-8 stay no UTF-8."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # half a surrogate pair, which Windows lets through
        return text.encode("utf-8", "surrogatepass")


def _open(source: str | None) -> BinaryIO:
    if source is None or source == "-":
        if sys.stdin is None:
            raise click.UsageError("INPUT must be given, got a closed stdin; name a file, or give --text TEXT.")
        stream = sys.stdin.buffer
        if source is None and stream.isatty():
            raise click.UsageError("INPUT must be given, got no text; name a file, - to type texts, or --text TEXT.")
        return stream
    try:
        return click.get_current_context().with_resource(Path(source).open("rb"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise click.UsageError(
            f"INPUT must be a file that can be read, got {source!r}: {reason}; a text itself is given by --text TEXT."
        ) from error


def _split(stream: BinaryIO, source: str | None) -> Iterator[bytes]:
    for index, line in enumerate(_unbroken(stream, source)):
        if index == 0:
            line = line.removeprefix(_BYTE_ORDER_MARK)
            if not line:
                continue
        yield line.removesuffix(b"\n").removesuffix(b"\r")


def _unbroken(stream: BinaryIO, source: str | None) -> Iterator[bytes]:
    """Give the lines; an error of reading is one of the input, whatever output is open around it."""
    try:
        yield from stream
    except OSError as error:
        name = "stdin" if source in (None, "-") else repr(source)
        raise InputError(
            f"INPUT must be readable to its end, got {error.strerror or error} from {name}; see what is behind it"
        ) from error

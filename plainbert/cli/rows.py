"""Rows out: JSON Lines, JSON, CSV or a table, to stdout or to a file that appears whole."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import click

from plainbert.checkpoints.atomic import replacing
from plainbert.cli.common import printable

Row = dict[str, Any]
_ENDINGS = {".jsonl": "jsonl", ".json": "json", ".csv": "csv", ".npy": "npy", ".txt": "text"}


def choose_format(form: str | None, output: Path | None, formats: Sequence[str]) -> str:
    """Settle the format and see, before any work, that the output can be written.

    Args:
        form: what ``--format`` said.
        output: what ``--output`` said; None for stdout.
        formats: what the verb can write.

    Raises:
        click.UsageError: a path that no file can be written to, an ending that says another format or none that is
            known, or bytes for a terminal.
    """
    if output is not None:
        if output.is_dir() or not output.absolute().parent.is_dir():
            reason = "is a folder" if output.is_dir() else "has no folder to stand in"
            raise click.UsageError(
                f"--output must be the path of a file, got {str(output)!r}, which {reason}; name a file in a folder "
                "that exists."
            )
        return _by_ending(form, output, formats)
    terminal = sys.stdout.isatty()
    if form == "npy" and terminal:
        raise click.UsageError("--format npy must go to a file or a pipe, got a terminal; give --output PATH.")
    return form or ("text" if terminal else "jsonl")


def _by_ending(form: str | None, output: Path, formats: Sequence[str]) -> str:
    """Settle the format of a file; a name without an ending, and a pipe or a device, can hold any."""
    suffix = output.suffix.lower()
    if not suffix or (output.exists() and not output.is_file()):
        return form or "jsonl"
    ending = _ENDINGS.get(suffix)
    if form is None:
        if ending not in formats:
            known = ", ".join(known for known, form in _ENDINGS.items() if form in formats)
            raise click.UsageError(f"--output must end in one of {known}, got {str(output)!r}; or give --format.")
        return str(ending)
    # All of them but npy are text, which is what .txt says.
    if ending is not None and ending != form and (ending != "text" or form == "npy"):
        raise click.UsageError(
            f"--format and the ending of --output must say the same, got {form} and {str(output)!r}; leave --format "
            "out or change the ending."
        )
    return form


@contextmanager
def open_output(path: Path | None) -> Iterator[BinaryIO]:
    """Open stdout or a file for bytes; a file appears under its name only when all of it is written."""
    if path is None:
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    target = path.resolve()
    if target.exists() and not target.is_file():  # a pipe or a device: nothing to put in its place
        with target.open("wb") as stream:
            yield stream
        return
    with replacing(target) as partial, partial.open("wb") as stream:
        yield stream


@dataclass(frozen=True)
class _Form:
    """How rows become a stream: what stands before, between and after them, and in place of none."""

    row: Callable[[Row], bytes]
    before: bytes = b""
    between: bytes = b""
    after: bytes = b""
    none: bytes = b""


def write_rows(chunks: Iterable[Sequence[Row]], form: str, output: Path | None, columns: Sequence[str]) -> None:
    """Write rows as they come; those of one chunk are out before the next is asked for.

    Args:
        chunks: dictionaries, one per result; values are numbers, strings, None and lists of them.
        form: jsonl: one object a line. json: one list. csv: a header and one line each; lists as JSON.
        output: a file, or None for stdout.
        columns: names of the columns, for csv, also when there is no row.
    """
    header = _csv_line(columns)
    how = {
        "jsonl": _Form(lambda row: _json(row) + b"\n"),
        "json": _Form(_json, before=b"[\n", between=b",\n", after=b"\n]\n", none=b"[]\n"),
        "csv": _Form(lambda row: _csv_line([row[column] for column in columns]), before=header, none=header),
    }[form]
    with open_output(output) as stream:
        begun = False
        for rows in filter(None, chunks):
            stream.write((how.between if begun else how.before) + how.between.join(map(how.row, rows)))
            stream.flush()
            begun = True
        stream.write(how.after if begun else how.none)


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")


def _csv_line(values: Sequence[Any]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerow([_json(v).decode() if isinstance(v, list) else v for v in values])
    return text.getvalue().encode("utf-8")


def write_table(rows: Sequence[Row], output: Path | None) -> None:
    """Write rows of strings as a table, to a file or to stdout."""
    with open_output(output) as stream:
        stream.write(render_table(rows, terminal=output is None and sys.stdout.isatty()).encode("utf-8"))


def render_table(rows: Sequence[Row], *, terminal: bool, right: Sequence[str] = (), whole: Sequence[str] = ()) -> str:
    """Draw rows of strings as an aligned table: with rules and colour on a terminal, plain elsewhere.

    Args:
        rows: dictionaries with the same keys, which become the header.
        terminal: whether a person looks at it, in a window of some width; otherwise no cell is wrapped.
        right: columns to align right, for numbers.
        whole: columns whose cells are never folded, however narrow the window.
    """
    if not rows:
        return ""
    from rich import box
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD if terminal else None, pad_edge=False, header_style="bold" if terminal else "")
    for column in rows[0]:
        drawn.add_column(
            Text(column),
            justify="right" if column in right else "left",
            no_wrap=not terminal or column in whole,
            overflow="fold",  # nothing is cut: what is too long for its column goes on below
            min_width=max(cell_len(str(row[column])) for row in rows) if column in whole else None,
        )
    for row in rows:
        # Text, because a [bold] in a plain string would be read as markup.
        drawn.add_row(*(Text(printable(str(value))) for value in row.values()))
    buffer = io.StringIO()
    if terminal:
        Console(file=buffer, force_terminal=True, highlight=False).print(drawn)
    else:
        Console(file=buffer, force_terminal=False, no_color=True, width=100_000, highlight=False).print(drawn)
    return "".join(f"{line.rstrip()}\n" for line in buffer.getvalue().splitlines())

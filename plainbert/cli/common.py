"""What the verbs share: loading options, texts in, rows out, messages of one line.

Data goes to stdout or to ``--output``, everything else to stderr. Nothing here imports torch before a model is wanted.
"""

from __future__ import annotations

import csv
import importlib.metadata
import io
import json
import os
import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import click

if TYPE_CHECKING:
    import torch

    from plainbert.checkpoints.folder import Source

DONE, COULD_NOT, WRONG_USAGE, SOME_FAILED, INTERRUPTED = 0, 1, 2, 3, 130
DTYPES = ("float32", "float64", "bfloat16", "float16")
_ENDINGS = {".jsonl": "jsonl", ".json": "json", ".csv": "csv", ".npy": "npy", ".txt": "text"}

_Function = TypeVar("_Function", bound=Callable[..., Any])
Row = dict[str, Any]


def say(kind: str, message: str) -> None:
    """Print ``kind: message`` as one line on stderr."""
    click.echo(f"{kind}: {' '.join(printable(message).split())}", err=True)


def printable(text: str) -> str:
    """Defuse what would move a terminal's cursor: line breaks become spaces, other control characters escapes."""
    return "".join(c if c.isprintable() else " " if c.isspace() else c.encode("unicode_escape").decode() for c in text)


def shorten(text: str, width: int = 40) -> str:
    """Cut a text for a table."""
    return text if len(text) <= width else text[: width - 3] + "..."


def installed(package: str) -> str:
    """Version of an installed package, or ``not installed``."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


# -- options ----------------------------------------------------------------------------------------------------------


def _stack(*decorators: Callable[[_Function], _Function]) -> Callable[[_Function], _Function]:
    """Make one decorator of several, which then show in the help in the order given."""

    def decorate(function: _Function) -> _Function:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


def _remember_debug(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and isinstance(ctx.obj, dict):
        ctx.obj["debug"] = True


model_argument = click.argument("name", metavar="MODEL")

debug_option = click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    callback=_remember_debug,
    help="Show the traceback of an error; so does PLAINBERT_DEBUG=1.",
)

hub_options = _stack(
    click.option("--revision", help="Branch, tag or commit of a Hub repo."),
    click.option("--cache-dir", type=click.Path(file_okay=False), help="Another Hub cache."),
    click.option("--token", help="A Hub token; better kept in the environment variable HF_TOKEN."),
    click.option("--local-files-only", "--offline", is_flag=True, help="Open no connection."),
)

device_option = click.option("--device", default="cpu", show_default=True, help="Where the model runs.")

dtype_option = click.option(
    "--dtype", type=click.Choice(DTYPES), default="float32", show_default=True, help="Type of the parameters."
)

text_options = _stack(
    click.argument("source", metavar="[INPUT]", required=False),
    click.option("--text", "texts", multiple=True, metavar="TEXT", help="A text, in place of INPUT; may be repeated."),
)


def output_options(*formats: str) -> Callable[[_Function], _Function]:
    """Give the options ``--format`` and ``--output`` of a verb that can write these formats."""
    return _stack(
        click.option(
            "--format",
            "form",
            type=click.Choice(formats),
            help="Default: by the ending of --output, else a table on a terminal and jsonl elsewhere.",
        ),
        click.option(
            "--output", type=click.Path(path_type=Path), metavar="PATH", help="Write to this file, whole or not at all."
        ),
    )


def torch_dtype(name: str) -> torch.dtype:
    """Give the torch dtype of that name."""
    import torch

    dtype: torch.dtype = getattr(torch, name)
    return dtype


def check_device(name: str) -> str:
    """Give the name back if torch knows that device and has it.

    Raises:
        click.BadParameter: it does not, or has not.
    """
    import torch

    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise click.BadParameter(f"--device must be one that torch can use here, got {name!r}: {reason}") from error
    return name


def has_tokenizer(source: Source) -> bool:
    """Tell whether a checkpoint has the files of a tokenizer."""
    return any(source.path(filename) is not None for filename in ("tokenizer.json", "vocab.txt"))


# -- texts in ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """One text of the input."""

    index: int
    """Its place in the input, from 0; broken lines count."""
    text: str


def read_lines(source: str | None, texts: Sequence[str]) -> tuple[list[Line], list[str]]:
    r"""Read the texts of a verb: ``--text`` values, a file, or stdin.

    A file holds one text per line, UTF-8. Lines end in ``\n`` or ``\r\n`` and in nothing else, so that characters which
    Python's ``splitlines`` would also break at stay in their text. A byte order mark at the start is dropped. An empty
    line is an empty text; the end of the last line does not begin another.

    Args:
        source: a path, ``-`` for stdin, or None for stdin unless texts are given.
        texts: the values of ``--text``.

    Returns:
        The good lines, and one complaint for each broken one.

    Raises:
        click.UsageError: no input, two inputs, or a path that cannot be read.
    """
    if texts and source is not None:
        raise click.UsageError(f"INPUT and --text must not both be given, got {source!r} and --text; leave one out.")
    if texts:
        raw = [_encode(text) for text in texts]
        place = "--text number"
    else:
        raw = _split(_read_bytes(source))
        place = "line"
    lines, complaints = [], []
    for index, one in enumerate(raw):
        try:
            lines.append(Line(index, one.decode("utf-8")))
        except UnicodeDecodeError as error:
            complaints.append(
                f"{place} {index + 1} must be UTF-8, got byte 0x{one[error.start]:02x} at byte {error.start + 1}; "
                "it was left out"
            )
    return lines, complaints


def _encode(text: str) -> bytes:
    """Give a command line's word as the bytes it was typed as; those that are no UTF-8 stay no UTF-8."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # half a surrogate pair, which Windows lets through
        return text.encode("utf-8", "surrogatepass")


def _read_bytes(source: str | None) -> bytes:
    if source is None or source == "-":
        stream = sys.stdin.buffer
        if source is None and stream.isatty():
            raise click.UsageError("No texts: give a file as INPUT, - to type them, or --text TEXT.")
        return stream.read()
    try:
        return Path(source).read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise click.UsageError(
            f"INPUT must be a file that can be read, got {source!r}: {reason}; a text itself is given by --text TEXT."
        ) from error


def _split(data: bytes) -> list[bytes]:
    data = data.removeprefix(b"\xef\xbb\xbf")
    if not data:
        return []
    return [line.removesuffix(b"\r") for line in data.removesuffix(b"\n").split(b"\n")]


# -- rows out ---------------------------------------------------------------------------------------------------------


def choose_format(form: str | None, output: Path | None, formats: Sequence[str]) -> str:
    """Settle the format and see, before any work, that the output can be written.

    Args:
        form: what ``--format`` said.
        output: what ``--output`` said; None for stdout.
        formats: what the verb can write.

    Raises:
        click.UsageError: a path that no file can be written to, or bytes for a terminal.
    """
    if output is not None:
        if output.is_dir() or not output.absolute().parent.is_dir():
            reason = "is a folder" if output.is_dir() else "has no folder to stand in"
            raise click.UsageError(f"--output must be the path of a file, got {str(output)!r}, which {reason}.")
        ending = _ENDINGS.get(output.suffix.lower(), "jsonl")
        return form or (ending if ending in formats else "jsonl")
    terminal = sys.stdout.isatty()
    if form == "npy" and terminal:
        raise click.UsageError("--format npy must not go to a terminal; give --output PATH or pipe it.")
    return form or ("text" if terminal else "jsonl")


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
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
    try:
        with partial.open("xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def write_rows(
    rows: Sequence[Row], form: str, output: Path | None, columns: Sequence[str], table: Sequence[Row]
) -> None:
    """Write rows as jsonl, json, csv or text.

    Args:
        rows: one dictionary per result; values are numbers, strings, None and lists of them.
        form: jsonl: one object a line. json: one list. csv: a header and one line each; lists as JSON. text: a table.
        output: a file, or None for stdout.
        columns: names of the columns, for csv, also when there is no row.
        table: what the table shows in place of the rows: fewer columns, shortened values.
    """
    with open_output(output) as stream:
        if form == "jsonl":
            for row in rows:
                stream.write(_json(row) + b"\n")
        elif form == "json":
            body = b",\n".join(_json(row) for row in rows)
            stream.write(b"[\n" + body + b"\n]\n" if rows else b"[]\n")
        elif form == "csv":
            text = io.StringIO(newline="")
            writer = csv.writer(text, lineterminator="\n")
            writer.writerow(columns)
            for row in rows:
                values = (row[column] for column in columns)
                writer.writerow([_json(v).decode() if isinstance(v, list) else v for v in values])
            stream.write(text.getvalue().encode("utf-8"))
        else:
            terminal = output is None and sys.stdout.isatty()
            stream.write(render_table(table, terminal=terminal).encode("utf-8"))


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")


def render_table(rows: Sequence[Row], *, terminal: bool, right: Sequence[str] = ()) -> str:
    """Draw rows of strings as an aligned table: with rules and colour on a terminal, plain elsewhere.

    Args:
        rows: dictionaries with the same keys, which become the header.
        terminal: whether a person looks at it, in a window of some width; otherwise no cell is wrapped.
        right: columns to align right, for numbers.
    """
    if not rows:
        return ""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD if terminal else None, pad_edge=False, header_style="bold" if terminal else "")
    for column in rows[0]:
        drawn.add_column(Text(column), justify="right" if column in right else "left", no_wrap=not terminal)
    for row in rows:
        # Text, because a [bold] in a plain string would be read as markup.
        drawn.add_row(*(Text(printable(str(value))) for value in row.values()))
    buffer = io.StringIO()
    if terminal:
        Console(file=buffer, force_terminal=True, highlight=False).print(drawn)
    else:
        Console(file=buffer, force_terminal=False, no_color=True, width=100_000, highlight=False).print(drawn)
    return "".join(f"{line.rstrip()}\n" for line in buffer.getvalue().splitlines())


def report_failures(complaints: Sequence[str]) -> int:
    """Say on stderr which lines failed, and give the exit code that goes with it."""
    for complaint in complaints:
        say("Error", complaint)
    return SOME_FAILED if complaints else DONE

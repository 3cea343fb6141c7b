"""What the verbs share: options, messages of one line, exit codes; ``lines.py`` reads texts, ``rows.py`` writes rows.

Data goes to stdout or to ``--output``, everything else to stderr. Nothing here imports torch before a model is wanted.
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from plainbert.config import DTYPE_NAMES
from plainbert.errors import InputError

if TYPE_CHECKING:
    import torch

DONE, COULD_NOT, WRONG_USAGE, SOME_FAILED, INTERRUPTED = 0, 1, 2, 3, 130

_Function = TypeVar("_Function", bound=Callable[..., Any])


def say(kind: str, message: str) -> None:
    """Print ``kind: message`` as one line on stderr."""
    click.echo(f"{kind}: {' '.join(printable(message).split())}", err=True)


def printable(text: str) -> str:
    """Defuse what would move a terminal's cursor: line breaks become spaces, other control characters escapes."""
    return "".join(c if c.isprintable() else " " if c.isspace() else c.encode("unicode_escape").decode() for c in text)


def shorten(text: str, width: int = 40) -> str:
    """Cut a text for a table to so many columns of a terminal, of which a Chinese character takes two."""
    from rich.cells import cell_len

    text = printable(text)
    if cell_len(text) <= width:
        return text
    text = text[:width]
    while cell_len(text) > width - 1:
        text = text[:-1]
    return text + "…"


def say_status(message: str) -> None:
    """Tell a person at a terminal what takes so long; say nothing when stderr goes elsewhere."""
    if sys.stderr is not None and sys.stderr.isatty():
        click.echo(click.style(f"{printable(message)} ...", dim=True), err=True)


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
    "--dtype", type=click.Choice(DTYPE_NAMES), default="float32", show_default=True, help="Type of the parameters."
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
            help="Default: by the ending of --output, without one jsonl; else a table on a terminal, jsonl elsewhere.",
        ),
        click.option(
            "--output", type=click.Path(path_type=Path), metavar="PATH", help="Write to this file, whole or not at all."
        ),
    )


def device_named(name: str) -> torch.device:
    """Give the device of that name; one that is not there is wrong usage.

    Raises:
        click.UsageError: torch does not know that device, or has not got it.
    """
    from plainbert.models.placement import resolve_device

    try:
        return resolve_device(name)
    except InputError as error:
        raise click.UsageError(f"--{error}.") from error


class Failures:
    """Lines of the input that failed: said as they are met, counted for the exit code."""

    def __init__(self) -> None:
        self._count = 0

    def say(self, complaint: str) -> None:
        """Print one complaint on stderr."""
        say("Error", complaint)
        self._count += 1

    @property
    def code(self) -> int:
        """The exit code that goes with them."""
        return SOME_FAILED if self._count else DONE

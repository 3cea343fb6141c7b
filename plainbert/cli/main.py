"""The command ``plainbert``: finds the verb, and turns every outcome into a line and an exit code.

A verb's module is imported when the verb is used, so ``plainbert --help`` costs neither torch nor tokenizers. What the
verbs share is in ``common.py``; each verb has a file of its name.
"""

from __future__ import annotations

import difflib
import errno
import importlib
import os
import platform
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Any

import click

from plainbert import __version__
from plainbert.cli.common import COULD_NOT, DONE, INTERRUPTED, WRONG_USAGE, debug_option, installed, say
from plainbert.cli.wording import as_typed
from plainbert.errors import PlainBertError, PlainBertWarning

# verb -> what `plainbert --help` says about it; its command is `command` in plainbert/cli/<verb>.py.
VERBS = {
    "verify": "Run the same texts here and in transformers and compare every output.",
    "info": "Say what a checkpoint holds: config, parameters, files, head, pooling, names.",
    "tokenize": "Split texts into tokens: ids, offsets, words.",
    "embed": "Turn texts into vectors, pooled as the checkpoint declares.",
    "convert": "Write a checkpoint as one safetensors file with today's names.",
}


class LazyGroup(click.Group):
    """A group whose verbs are imported when they are used, not when they are listed."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read ``help`` and ``help VERB`` as ``--help`` and ``VERB --help``."""
        return super().parse_args(ctx, [*args[1:2], "--help"] if args[:1] == ["help"] else args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Give the verbs in the order of the table."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the verb's module, or give None for a word that is no verb."""
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"plainbert.cli.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb, or say which one may have been meant."""
        word = args[0]
        if word not in VERBS and not word.startswith("-"):
            close = difflib.get_close_matches(word, VERBS, n=1)
            meant = f"did you mean {close[0]}?" if close else "see what each does."
            raise click.UsageError(f"VERB must be one of {', '.join(VERBS)}, got {word!r}; {meant}", ctx)
        name, command, rest = super().resolve_command(ctx, args)
        if isinstance(ctx.obj, dict):
            ctx.obj["command"] = command  # whose options an error may have to name
        return name, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the verbs from the table, without importing them."""
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


def _show_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    """Print the versions that decide what comes out; read from metadata, because importing torch takes seconds."""
    if not wanted or ctx.resilient_parsing:
        return
    click.echo(f"plainbert {__version__}, torch {installed('torch')}, python {platform.python_version()}")
    ctx.exit()


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    no_args_is_help=False,
    subcommand_metavar="VERB [MODEL] [INPUT] ...",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\b\nExamples:\n  plainbert embed minilm --text 今天天气真好\n  plainbert verify minilm",
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show versions and exit."
)
@debug_option
@click.pass_context
def cli(ctx: click.Context) -> None:
    """BERT in PyTorch that you can read and trust.

    MODEL is a local folder, a Hugging Face repo id, or minilm. `plainbert VERB --help` says more about a verb.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(WRONG_USAGE)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and give its exit code; nothing is raised.

    Args:
        arguments: the words after ``plainbert``; None: those of this process.

    Returns:
        0 done, 1 could not, 2 wrong usage, 3 some lines failed, 130 interrupted.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("always", PlainBertWarning)
        warnings.showwarning = _show_warning
        return _run(arguments)


def _run(arguments: Sequence[str] | None) -> int:
    settings: dict[str, Any] = {"debug": os.environ.get("PLAINBERT_DEBUG", "0") not in ("", "0"), "command": None}
    if sys.stdout is None:
        # The next file opened would get its number, and whatever prints to it would write into that file.
        say("Error", "stdout is closed; redirect it to a file or to /dev/null")
        return COULD_NOT
    try:
        # Outside of standalone mode, click gives the code of ctx.exit() as the result.
        result = cli.main(
            None if arguments is None else list(arguments), prog_name="plainbert", standalone_mode=False, obj=settings
        )
        sys.stdout.flush()
        return result if isinstance(result, int) else DONE
    except click.UsageError as error:
        where = f" See `{error.ctx.command_path} --help`." if error.ctx else ""
        say("Error", error.format_message().rstrip() + where)
        return WRONG_USAGE
    except click.ClickException as error:
        say("Error", error.format_message())
        return error.exit_code
    except SystemExit as error:  # click's own answer to a reader of our output that went away
        return error.code if isinstance(error.code, int) else COULD_NOT
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except PlainBertError as error:
        if settings["debug"]:
            traceback.print_exc()
        say("Error", as_typed(str(error), settings["command"]))
        return COULD_NOT
    except Exception as error:  # noqa: BLE001 - the outermost place: whatever it is becomes one line
        if isinstance(error, OSError) and error.errno == errno.EPIPE:
            # Whoever read our output has seen enough, as in `| head`. Python flushes stdout once more at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return COULD_NOT
        if settings["debug"]:
            traceback.print_exc()
        say("Error", f"{type(error).__name__}: {error}" + ("" if settings["debug"] else "; --debug shows where"))
        return COULD_NOT


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    say("Warning", str(message))

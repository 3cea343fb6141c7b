#!/usr/bin/env python3
"""Write the pages of docs/ that are generated: `python tools/docs.py`.

`docs/cli.md` is what `plainbert --help` and `plainbert VERB --help` print. A test compares the page with what this file
would write, so it cannot fall behind.
"""

from __future__ import annotations

from pathlib import Path

import click

from plainbert.cli.main import cli

COLUMNS = 100
DOCS = Path(__file__).parents[1] / "docs"
HEAD = """# The command line

This page is written by `make docs`. Data goes to stdout, everything else to stderr. Exit codes: 0 done, 1 could not,
2 wrong usage, 3 some lines failed, 130 interrupted.
"""


def context_of(command: click.Command, word: str, above: click.Context | None = None) -> click.Context:
    """The context in which click formats help: a terminal of COLUMNS columns, and the settings of the command."""
    sizes = {"terminal_width": COLUMNS, "max_content_width": COLUMNS}
    return click.Context(command, parent=above, info_name=word, **{**command.context_settings, **sizes})


def help_in(context: click.Context) -> str:
    """What `--help` prints there, as a block of Markdown."""
    lines = context.command.get_help(context).splitlines()
    return "\n".join(["```text", *(line.rstrip() for line in lines), "```", ""])


def cli_page() -> str:
    """The text of docs/cli.md."""
    top = context_of(cli, "plainbert")
    sections = [HEAD, help_in(top)]
    for verb in cli.list_commands(top):
        command = cli.get_command(top, verb)
        assert command is not None, verb
        sections.append(f"## {verb}\n\n{help_in(context_of(command, verb, top))}")
    return "\n".join(sections)


def main() -> None:
    """Write every generated page."""
    (DOCS / "cli.md").write_text(cli_page(), encoding="utf-8")


if __name__ == "__main__":
    main()

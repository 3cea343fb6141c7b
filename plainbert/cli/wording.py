"""Errors of the Python interface in the words of the command line: its options in place of keywords."""

from __future__ import annotations

import re

import click


def as_typed(message: str, command: click.Command | None) -> str:
    """Name the options of a verb where a message names keywords.

    ``max_length=40`` becomes ``--max-length 40``, ``local_files_only=True`` becomes ``--offline``, ``token=`` becomes
    ``--token``; the subject of ``name must be ...`` becomes ``MODEL``. Keywords that are no option of the verb stay.

    Args:
        message: what the error says.
        command: the verb that was run; None when none was found.
    """
    if command is None:
        return message
    words = {param.name: _typed(param) for param in command.params if param.name}
    flags = {param.name for param in command.params if isinstance(param, click.Option) and param.is_flag}

    def subject(match: re.Match[str]) -> str:
        return words.get(match[1], match[1]) + match[2]

    def keyword(match: re.Match[str]) -> str:
        name, value = match[1], match[2].strip("'\"")
        if name not in words:
            return match[0]
        return words[name] + (f" {value}" if value and name not in flags else "")

    def bare(match: re.Match[str]) -> str:
        return match[1] + words.get(match[2], match[2])

    message = re.sub(r"^(\w+)( must\b)", subject, message)
    message = re.sub(r"(?<![^\s(])([a-z_]+)=('[^']*'|\"[^\"]*\"|\w*)", keyword, message)
    # The bare word, where it is what to give: "give the cache_dir that has it".
    message = re.sub(r"\b((?:pass|give)(?: the)? )([a-z]+_[a-z_]+)\b(?![=.(])", bare, message)
    return message.replace("pass the string ", "give ")


def _typed(param: click.Parameter) -> str:
    """Give the word that a user types for a parameter; of an option, its last spelling, which says most."""
    if isinstance(param, click.Option):
        return param.opts[-1]
    return (param.metavar or param.name or "").strip("[]")

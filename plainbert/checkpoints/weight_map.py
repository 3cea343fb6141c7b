"""The two-way table between weight names on disk and parameter names in a model; knows no model itself.

A family lists its rules (``families/``). Each rule is a pattern for the whole name, so that nothing is renamed by
accident in the middle of another name, and a template that gives the name here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from plainbert.errors import CheckpointError

# Prefixes that training tools put before every name of a model.
_WRAPPERS = ("module.", "_orig_mod.", "model.", "0.auto_model.", "auto_model.")


@dataclass(frozen=True)
class Rule:
    r"""One line of the table.

    Attributes:
        stored: regular expression that a whole name on disk must match.
        ours: the name here, with the groups of ``stored`` as ``\1``.
    """

    stored: str
    ours: str


class WeightMap:
    """Rules in order; the first whose pattern matches the whole name decides."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules = [(re.compile(rule.stored), rule.ours) for rule in rules]

    def name_here(self, stored: str) -> str | None:
        """Return the name here of a name on disk, or None for a name that is in no rule."""
        for pattern, template in self._rules:
            match = pattern.fullmatch(stored)
            if match:
                return match.expand(template)
        return None

    def map_names(self, stored: Iterable[str]) -> tuple[dict[str, str], list[str]]:
        """Map all names of a checkpoint.

        Returns:
            name here -> name on disk; and the names on disk that are in no rule.

        Raises:
            CheckpointError: two names on disk mean the same parameter.
        """
        found: dict[str, str] = {}
        unknown: list[str] = []
        for name in stored:
            here = self.name_here(name)
            if here is None:
                unknown.append(name)
            elif here in found:
                twice = f"as {found[here]!r} and as {name!r}"
                raise CheckpointError(f"the checkpoint must hold {here} once, got it twice, {twice}; keep one")
            else:
                found[here] = name
        return found, unknown


def wrapper_prefix(names: Iterable[str]) -> str:
    """Return what a training tool has put before every one of ``names``, as "module." or "model.module."; else ""."""
    names = list(names)
    prefix = ""
    while names:
        found = next((w for w in _WRAPPERS if all(name.startswith(prefix + w) for name in names)), None)
        if found is None:
            break
        prefix += found
    return prefix

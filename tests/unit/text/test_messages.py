"""Every refusal reads alike: what must hold, what was got, what to do."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

FORM = re.compile(r"^.* must .*,? got .*; .", re.DOTALL)


def spelled(node: ast.expr) -> str:
    """The text of a message, with a placeholder for each value in it."""
    if isinstance(node, ast.JoinedStr):
        return "".join(spelled(part) for part in node.values)
    return str(node.value) if isinstance(node, ast.Constant) else "<value>"


def messages(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        # AttributeError has the words that Python gives it.
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and "Attribute" not in ast.unparse(node.exc):
            yield node.lineno, spelled(node.exc.args[0])


@pytest.mark.parametrize("folder", ["text"])
def test_every_message_says_the_rule_the_value_and_the_way_out(folder: str, root: Path) -> None:
    found = {
        f"{path.name}:{line}": message
        for path in (root / "plainbert" / folder).glob("*.py")
        for line, message in messages(path)
    }
    assert len(found) > 50
    assert {place: message for place, message in found.items() if not FORM.match(message)} == {}

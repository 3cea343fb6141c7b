"""The tree of exceptions is the tree that is drawn, each branch is used, and nothing swallows."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator

from plainbert import errors

OUTERMOST = {"cli/main.py", "server/app.py"}
# Protocols of Python itself: who implements one raises what it asks for.
PROTOCOLS = {
    "__getattr__": ("AttributeError",),
    "__delattr__": ("AttributeError",),
    "__getitem__": ("KeyError", "IndexError"),
    "__next__": ("StopIteration",),
}


def classes() -> dict[str, type]:
    found = inspect.getmembers(errors, inspect.isclass)
    return {name: kind for name, kind in found if kind.__module__ == errors.__name__}


def drawn() -> dict[str, set[str]]:
    """The tree in the docstring: each class with its bases, the one it hangs from and those in brackets."""
    tree: dict[str, set[str]] = {}
    above: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"^([ |`-]{4,})([A-Z]\w+)(?: \(([\w, ]+)\))?(?: {2,}.*)?$", line)
        if not match:
            continue
        indent, name, others = match.groups()
        above = [(depth, parent) for depth, parent in above if depth < len(indent)]
        tree[name] = {above[-1][1]} if above else set()
        tree[name] |= set((others or "").replace(" ", "").split(",")) - {""}
        above.append((len(indent), name))
    return tree


def handlers(tree: ast.Module) -> Iterator[ast.ExceptHandler]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler))


def caught(handler: ast.ExceptHandler) -> set[str]:
    """The names that an `except` names; an empty one for a bare `except:`."""
    return set(re.findall(r"\w+", ast.unparse(handler.type))) if handler.type else {""}


def passes_on(handler: ast.ExceptHandler) -> bool:
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


def raises(tree: ast.Module) -> Iterator[tuple[ast.Raise, str]]:
    """Every raise of a module, with the name of the function around it."""
    waiting: list[tuple[ast.AST, str]] = [(tree, "")]
    while waiting:
        node, function = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
        if isinstance(node, ast.Raise):
            yield node, function
        waiting.extend((child, function) for child in ast.iter_child_nodes(node))


def test_the_drawn_tree_is_the_tree() -> None:
    real = {name: {base.__name__ for base in kind.__bases__} for name, kind in classes().items()}
    assert {name: bases - {"Exception"} for name, bases in real.items()} == drawn()


def test_every_class_says_when_it_is_raised() -> None:
    assert [name for name, kind in classes().items() if not kind.__doc__] == []


def test_every_exception_is_raised_somewhere(trees: dict[str, ast.Module]) -> None:
    used = {
        node.id
        for path, tree in trees.items()
        if path not in {"errors.py", "__init__.py"}
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        # `raise KeywordError(...)`, and `warnings.warn(..., PlainBertWarning)`.
        for node in (call.func, *call.args, *(keyword.value for keyword in call.keywords))
        if isinstance(node, ast.Name)
    }
    # PlainBertError itself is for catching.
    assert set(classes()) - used <= {"PlainBertError"}


def test_only_the_outermost_places_catch_everything(trees: dict[str, ast.Module]) -> None:
    """A handler that tidies up and ends in a bare `raise` keeps nothing back."""
    found = {
        f"{path}:{handler.lineno}"
        for path, tree in trees.items()
        if path not in OUTERMOST
        for handler in handlers(tree)
        if caught(handler) & {"", "Exception", "BaseException"} and not passes_on(handler)
    }
    assert found == set()


def test_only_exceptions_of_the_tree_are_raised(trees: dict[str, ast.Module]) -> None:
    """One of ours, one that came in (`raise error`), click's own in the command line, or Python's protocols.

    A package may have an exception of its own that never leaves it: somewhere in that package it is caught by name.
    """
    found = []
    for path, tree in trees.items():
        folder = path.rpartition("/")[0]
        inside = {
            name
            for other, its_tree in trees.items()
            if other.rpartition("/")[0] == folder
            for handler in handlers(its_tree)
            for name in caught(handler)
        }
        private = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)} & inside
        for node, function in raises(tree):
            if node.exc is None:
                continue
            name = ast.unparse(node.exc.func if isinstance(node.exc, ast.Call) else node.exc)
            allowed = name in classes() or name in private or name in PROTOCOLS.get(function, ())
            of_the_terminal = path.startswith("cli/") and (name.startswith("click.") or name == "SystemExit")
            if name[:1].isupper() and not allowed and not of_the_terminal:
                found.append(f"{path}:{node.lineno} {name}")
    assert found == []


def test_no_warning_goes_out_under_another_name(trees: dict[str, ast.Module]) -> None:
    found = [
        f"{path}:{node.lineno}"
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "warnings.warn"
        and "PlainBertWarning" not in ast.unparse(node)
    ]
    assert found == []

"""Who may import what, beyond the layers that import-linter checks."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator

import pytest

PEERS = {"transformers", "sentence_transformers"}
MAY_COMPARE = {"cli/verify.py", "cli/bench.py"}


def imported(node: ast.AST) -> Iterator[str]:
    """The full names of the modules that one import statement names."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        yield node.module


def imports_while_loading(tree: ast.Module) -> Iterator[str]:
    """What importing a module imports: everything outside functions and outside `if TYPE_CHECKING`."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield from imported(node)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            waiting.extend(node.orelse)
            continue
        waiting.extend(ast.iter_child_nodes(node))


def top(module: str) -> str:
    return module.partition(".")[0]


def python(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)


def test_the_package_does_not_import_its_peers(trees: dict[str, ast.Module]) -> None:
    found = {
        path
        for path, tree in trees.items()
        for node in ast.walk(tree)
        for module in imported(node)
        if top(module) in PEERS
    }
    assert found <= MAY_COMPARE


def test_verify_and_bench_import_the_peers_only_when_they_run(trees: dict[str, ast.Module]) -> None:
    found = {path for path, tree in trees.items() if PEERS & {top(module) for module in imports_while_loading(tree)}}
    assert found == set()


def test_peers_are_not_imported_by_name_in_a_string_either(trees: dict[str, ast.Module]) -> None:
    found = {
        path
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in {"importlib.import_module", "import_module", "__import__"}
        if any(isinstance(one, ast.Constant) and str(one.value) in PEERS for one in node.args)
    }
    assert found <= MAY_COMPARE


def test_text_and_the_command_line_start_without_torch(trees: dict[str, ast.Module]) -> None:
    quiet = [path for path in trees if path.startswith("text/") or path in {"cli/main.py", "__init__.py", "errors.py"}]
    found = {path for path in quiet if "torch" in {top(module) for module in imports_while_loading(trees[path])}}
    assert quiet
    assert found == set()


def test_modules_import_each_other_by_full_name(trees: dict[str, ast.Module]) -> None:
    """`from plainbert import BertModel` inside the package would go round the layers; so would a relative import."""
    found = []
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.ImportFrom):
                continue
            if node.level or (node.module == "plainbert" and {alias.name for alias in node.names} - {"__version__"}):
                found.append(f"{path}:{node.lineno} {ast.unparse(node)}")
    assert found == []


@pytest.mark.parametrize(
    "start",
    ["import plainbert", "from plainbert import PlainBertError", "import plainbert.text.tokenizer"],
)
def test_importing_does_not_import_torch(start: str) -> None:
    result = python("-c", f"{start}; import sys; sys.exit('torch' in sys.modules)")
    assert result.returncode == 0, result.stderr or f"{start!r} imports torch"


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["embed", "--help"], ["no-such-verb"]])
def test_the_command_line_talks_without_torch(words: list[str]) -> None:
    result = python(
        "-c",
        "import atexit, sys\n"
        "atexit.register(lambda: print('torch' in sys.modules, file=sys.stderr))\n"
        "from plainbert.cli.main import main\n"
        f"sys.exit(main({words!r}))\n",
    )
    assert result.returncode == (2 if words == ["no-such-verb"] else 0), result.stderr
    assert result.stderr.splitlines()[-1] == "False"


def test_every_public_name_resolves_and_is_listed() -> None:
    import plainbert

    assert {name for name in plainbert.__all__ if getattr(plainbert, name) is None} == set()
    assert set(plainbert.__all__) <= set(dir(plainbert))
    with pytest.raises(AttributeError, match="no_such_name"):
        plainbert.no_such_name  # noqa: B018


def test_the_names_for_type_checkers_are_the_lazy_names(trees: dict[str, ast.Module]) -> None:
    import plainbert

    typed = {
        alias.asname
        for node in ast.walk(trees["__init__.py"])
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("plainbert.")
        for alias in node.names
    }
    assert typed == set(plainbert.__all__) - {"__version__"}

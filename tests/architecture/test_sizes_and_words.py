"""Rooms stay small and every thing keeps its one word."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

# What other projects call it -> what it is called here.
OTHER_WORDS = {
    "attn_mask": "attention_mask",
    "attention_masks": "attention_mask",
    "bsz": "batch_size, or B in a shape comment",
    "d_model": "hidden_size",
    "dir_path": "folder",
    "dirname": "folder",
    "directory": "folder",
    "file_path": "path",
    "filepath": "path",
    "hidden_dim": "hidden_size",
    "hidden_state": "hidden_states (argument), hidden (local)",
    "model_dir": "folder",
    "n_heads": "num_attention_heads",
    "n_layers": "num_hidden_layers",
    "segment_ids": "token_type_ids",
    "sentence_embedding": "embedding",
    "sentence_embeddings": "embeddings",
    "seq_len": "S in a shape comment, or input_ids.shape[1]",
    "seq_length": "S in a shape comment, or input_ids.shape[1]",
    "seqlen": "S in a shape comment, or max_seqlen of packed rows",
    "seqlens": "cu_seqlens",
    "sequence_length": "S in a shape comment, or input_ids.shape[1]",
    "token_types": "token_type_ids",
}
OTHER_ENDINGS = {
    "_sec": "_s",
    "_secs": "_s",
    "_seconds": "_s",
    "_millis": "_ms",
    "_msec": "_ms",
    "_nbytes": "_bytes",
    "_dir": "_folder",
    "_directory": "_folder",
    "_filepath": "_path",
}
# Keywords that users bring from the Hub's libraries and from transformers, where they have these names.
OURS_ALL_THE_SAME = {"cache_dir", "save_directory", "token_ids"}
VAGUE_FILES = {"utils.py", "util.py", "helpers.py", "helper.py", "misc.py", "tools.py"}


def names_in(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Names that a module gives: what it assigns, its functions and classes, their arguments, attributes it sets."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node.lineno


def other_word(name: str) -> str | None:
    """What to call a thing that is called by another project's word here, or None where the name is ours."""
    bare = name.lstrip("_")
    if bare in OURS_ALL_THE_SAME:
        return None
    for ending, ours in OTHER_ENDINGS.items():
        if bare.endswith(ending):
            return bare.removesuffix(ending) + ours
    return OTHER_WORDS.get(bare)


def test_the_model_is_one_file_that_can_be_read_in_one_sitting(package: Path) -> None:
    lines = (package / "models" / "bert.py").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 400
    assert max(map(len, lines)) <= 120


def test_no_file_outgrows_its_room(package: Path) -> None:
    sizes = {
        path.relative_to(package).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in package.rglob("*.py")
    }
    assert sizes
    assert {name: size for name, size in sizes.items() if size > 400} == {}


def test_every_file_is_named_after_what_it_holds(package: Path) -> None:
    assert [path.name for path in package.rglob("*.py") if path.name in VAGUE_FILES] == []


def test_every_module_says_what_is_in_it(trees: dict[str, ast.Module]) -> None:
    assert [name for name, tree in trees.items() if tree.body and not ast.get_docstring(tree)] == []


def test_every_thing_keeps_its_one_word(trees: dict[str, ast.Module]) -> None:
    found = {
        f"{path}:{line} {name}": other_word(name)
        for path, tree in trees.items()
        for name, line in names_in(tree)
        if other_word(name)
    }
    assert found == {}


def test_nothing_is_left_for_later(package: Path) -> None:
    # Spelt apart, so that this line does not find itself in an editor's search.
    marks = ["TO" + "DO", "FIX" + "ME", "XX" + "X"]
    found = [
        f"{path.relative_to(package)}:{number}"
        for path in package.rglob("*.py")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if any(mark in line for mark in marks)
    ]
    assert found == []

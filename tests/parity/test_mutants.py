"""The mutation run (``make mutants``) is only worth its time while every mutant still applies."""

from __future__ import annotations

import ast
import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

import plainbert


@pytest.fixture(scope="module")
def mutants(root: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("plainbert_mutants", root / "tests" / "mutants.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_every_mutant_finds_its_text_once_and_leaves_a_program(mutants: ModuleType, tmp_path: Path) -> None:
    assert len(mutants.MUTANTS) >= 20
    assert len({mutant.name for mutant in mutants.MUTANTS}) == len(mutants.MUTANTS)
    stale = []
    for index, mutant in enumerate(mutants.MUTANTS):
        copy = tmp_path / str(index) / mutant.path
        copy.parent.mkdir(parents=True)
        original = Path(plainbert.__file__).parent / mutant.path
        shutil.copy(original, copy)
        try:
            mutant.apply(tmp_path / str(index))
        except ValueError as error:
            stale.append(str(error))
            continue
        before, after = original.read_text(encoding="utf-8"), copy.read_text(encoding="utf-8")
        assert ast.dump(ast.parse(before)) != ast.dump(ast.parse(after)), mutant.name
    assert not stale, "\n\n".join(stale)


def test_every_mutant_names_tests_that_exist(mutants: ModuleType, root: Path) -> None:
    for mutant in mutants.MUTANTS:
        assert mutant.tests
        for test in mutant.tests:
            path, _, function = test.partition("::")
            assert (root / path).is_file(), f"{mutant.name}: {test}"
            assert f"def {function}" in (root / path).read_text(encoding="utf-8"), f"{mutant.name}: {test}"


def test_a_mutant_whose_text_is_gone_is_refused(mutants: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\nx = 1\n", encoding="utf-8")
    for old, count in (("y", 0), ("x = 1", 2)):
        with pytest.raises(ValueError, match=f"a.py holds the text {count} times"):
            mutants.Mutant("slip", "a.py", old, "z").apply(tmp_path)

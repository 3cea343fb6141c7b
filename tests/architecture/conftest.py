"""The package read as source: which files it has, what each one's syntax tree says."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import plainbert

PACKAGE = Path(plainbert.__file__).parent


@pytest.fixture(scope="session")
def package() -> Path:
    """The folder of the package under test: the source tree, or the unpacked wheel."""
    return PACKAGE


@pytest.fixture(scope="session")
def trees() -> dict[str, ast.Module]:
    """The syntax tree of every module, by its path inside the package: `models/bert.py`."""
    return {
        path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
        for path in sorted(PACKAGE.rglob("*.py"))
    }

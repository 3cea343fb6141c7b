"""The package as it is shipped: what is in the wheel, what it needs, which releases are pinned."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# The wheel is built once: every test of this file runs in the same worker.
pytestmark = pytest.mark.xdist_group("package")

# Its argument names modules that must not be found: importing one of them fails as it does where it is not installed.
# Then every module of the package is imported.
MINIMAL = """
import importlib, importlib.metadata, json, pkgutil, sys

absent = set(json.loads(sys.argv[1]))

class Absent:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None

sys.meta_path.insert(0, Absent)
import plainbert
names = [module.name for module in pkgutil.walk_packages(plainbert.__path__, "plainbert.")]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
print(json.dumps({"file": plainbert.__file__, "modules": names, "absent": sorted(absent & set(sys.modules))}))
"""


@pytest.fixture(scope="session")
def project(root: Path) -> dict[str, Any]:
    return tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="session")
def pins(root: Path) -> dict[str, Requirement]:
    lines = (root / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(pin.name): pin for pin in pinned}


@pytest.fixture(scope="session")
def wheel(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy, so that nothing that lies about in the working folder gets in."""
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("built")
    shutil.copytree(root / "plainbert", source / "plainbert", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(root / name, source)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", str(built), str(source)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    (found,) = built.glob("*.whl")
    return found


@pytest.fixture(scope="session")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def needed_by(requirements: list[str], extras: frozenset[str] = frozenset()) -> set[str]:
    """The canonical names of what a list of requirements installs here, all the way down."""
    found: set[str] = set()
    waiting = [(Requirement(line), extras) for line in requirements]
    while waiting:
        requirement, wanted = waiting.pop()
        if requirement.marker and not any(requirement.marker.evaluate({"extra": extra}) for extra in {"", *wanted}):
            continue
        name = canonicalize_name(requirement.name)
        if name in found:
            continue
        found.add(name)
        try:
            below = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # not installed here: its name is known, what it needs is not
        waiting.extend((Requirement(line), frozenset(requirement.extras)) for line in below)
    return found


def modules_outside(distributions: set[str]) -> list[str]:
    """The importable names, of everything installed here, that none of these distributions brings."""
    return sorted(
        module
        for module, owners in importlib.metadata.packages_distributions().items()
        if module != "plainbert"
        and not {canonicalize_name(owner) for owner in owners} & distributions
        and module not in sys.stdlib_module_names
    )


def run_outside(folder: Path, site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python in another folder, where plainbert is the one in `site`."""
    environment = {**os.environ, "PYTHONPATH": str(site)}
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_wheel_holds_the_source_byte_for_byte(root: Path, unpacked: Path) -> None:
    def files(folder: Path) -> dict[str, bytes]:
        return {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }

    assert files(unpacked / "plainbert") == files(root / "plainbert")


def test_the_wheel_says_who_it_is(unpacked: Path, project: dict[str, Any]) -> None:
    import plainbert

    (metadata,) = unpacked.glob("*.dist-info/METADATA")
    text = metadata.read_text(encoding="utf-8")
    assert f"\nVersion: {plainbert.__version__}\n" in text
    assert "\nLicense-Expression: Apache-2.0\n" in text
    assert (metadata.parent / "licenses" / "LICENSE").is_file()
    assert (metadata.parent / "licenses" / "NOTICE").is_file()
    assert "plainbert = plainbert.__main__:main" in (metadata.parent / "entry_points.txt").read_text(encoding="utf-8")
    assert (unpacked / "plainbert" / "py.typed").is_file()


def test_every_module_imports_in_the_minimal_install(unpacked: Path, project: dict[str, Any], tmp_path: Path) -> None:
    import json

    absent = modules_outside(needed_by(project["dependencies"]))
    assert {"transformers", "pytest", "hypothesis"} <= set(absent)
    result = run_outside(tmp_path, unpacked, "-c", MINIMAL, json.dumps(absent))
    assert result.returncode == 0, result.stderr
    said = json.loads(result.stdout)
    assert Path(said["file"]).parent == unpacked / "plainbert"
    assert {"plainbert.models.bert", "plainbert.cli.verify", "plainbert.loading"} <= set(said["modules"])
    assert said["absent"] == []


def test_the_wheel_embeds_without_its_peers(
    unpacked: Path, project: dict[str, Any], minilm_folder: Path, tmp_path: Path
) -> None:
    import json

    absent = modules_outside(needed_by(project["dependencies"]))
    use = (
        "from plainbert import Embedder\n"
        f"print(Embedder.from_pretrained({str(minilm_folder)!r}).encode(['hello', '今天天气真好']).shape)\n"
    )
    result = run_outside(tmp_path, unpacked, "-c", MINIMAL + use, json.dumps(absent))
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "(2, 384)"


def test_everything_that_demo_and_test_install_is_pinned(project: dict[str, Any], pins: dict[str, Requirement]) -> None:
    extras = project["optional-dependencies"]
    used = needed_by([*project["dependencies"], *extras["demo"], *extras["test"], *extras["lint"]])
    unpinned = {
        name for name in used if name not in pins and not name.startswith(("nvidia-", "cuda-")) and name != "triton"
    }
    assert unpinned == set()


def test_every_pin_is_one_release(pins: dict[str, Requirement]) -> None:
    loose = [str(pin) for pin in pins.values() if not re.fullmatch(r"==[\w.]+", str(pin.specifier))]
    assert loose == []


def test_one_release_of_transformers_is_compared_against(project: dict[str, Any], pins: dict[str, Requirement]) -> None:
    """The pin, both extras and the constant that `plainbert verify` prints are one number, and it is installed here."""
    from plainbert.cli.verify import EQUALLED_TRANSFORMERS

    asked = {
        str(Requirement(line).specifier)
        for extra in ("demo", "test")
        for line in project["optional-dependencies"][extra]
        if Requirement(line).name == "transformers"
    }
    assert asked == {f"=={EQUALLED_TRANSFORMERS}"}
    assert str(pins["transformers"].specifier) == f"=={EQUALLED_TRANSFORMERS}"
    assert importlib.metadata.version("transformers") == EQUALLED_TRANSFORMERS


def test_transformers_is_asked_for_by_demo_and_test_alone(project: dict[str, Any]) -> None:
    asking = {
        extra
        for extra, lines in {"": project["dependencies"], **project["optional-dependencies"]}.items()
        if any(Requirement(line).name in {"transformers", "sentence-transformers"} for line in lines)
    }
    assert asking == {"demo", "test"}


def test_the_extras_are_those_that_are_promised(project: dict[str, Any]) -> None:
    promised = {"demo", "train", "jobs", "ray", "server", "export", "view", "test", "docs", "all"}
    assert promised <= set(project["optional-dependencies"])

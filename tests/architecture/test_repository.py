"""What a reader of the repository trusts: links lead somewhere, examples run, nothing points to one machine."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")


def tracked(root: Path) -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True).stdout
    return [root / name for name in listed.split("\0") if name and (root / name).is_file()]


def blocks(page: Path, *languages: str) -> list[str]:
    """The fenced code blocks of a Markdown page in these languages."""
    fence = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    return [body for language, body in fence.findall(page.read_text(encoding="utf-8")) if language in languages]


def slug(heading: str) -> str:
    """The anchor that a heading gets where Markdown is shown."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.fixture
def elsewhere(root: Path, tmp_path: Path) -> dict[str, object]:
    """Arguments for a process in an empty folder that finds the package under test."""
    import plainbert

    where = str(Path(plainbert.__file__).parents[1])
    found = os.pathsep.join([where, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    environment = {**os.environ, "PYTHONPATH": found, "PYTHONWARNINGS": "default"}
    return {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True, "check": False}


def test_every_link_of_the_pages_leads_somewhere(root: Path) -> None:
    pages = [root / name for name in PAGES] + sorted((root / "docs").rglob("*.md"))
    broken = []
    for page in pages:
        text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = target.partition("#")
            aimed = (page.parent / name) if name else page
            if not aimed.exists():
                broken.append(f"{page.name}: {target}")
            elif anchor:
                headings = re.findall(r"^#+ (.+)$", aimed.read_text(encoding="utf-8"), flags=re.MULTILINE)
                if anchor not in map(slug, headings):
                    broken.append(f"{page.name}: {target}")
    assert broken == []


def test_the_python_of_the_readme_runs(root: Path, elsewhere: dict, minilm_folder: Path) -> None:
    """In one process, top to bottom, in an empty folder: as a reader would paste it."""
    code = blocks(root / "README.md", "python")
    assert code
    result = subprocess.run([sys.executable, "-c", "\n".join(code)], **elsewhere)
    assert result.returncode == 0, result.stderr


def test_the_commands_of_the_readme_run(root: Path, elsewhere: dict, minilm_folder: Path) -> None:
    """Every line of a shell block that begins with `plainbert`, in one folder, in order."""
    lines = [line for block in blocks(root / "README.md", "sh", "bash", "console") for line in block.splitlines()]
    commands = [line.removeprefix("$ ") for line in lines if line.removeprefix("$ ").startswith("plainbert ")]
    assert commands
    for command in commands:
        shell = re.sub(r"\bplainbert ", f"{shlex.quote(sys.executable)} -m plainbert ", command)
        result = subprocess.run(["bash", "-c", shell], **elsewhere)
        assert result.returncode == 0, f"{command}\n{result.stderr}"


def test_every_target_that_the_pages_name_is_in_the_makefile(root: Path) -> None:
    targets = set(re.findall(r"^([\w-]+):", (root / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    named = {
        target
        for name in PAGES
        for target in re.findall(r"(?:`|^|\$ )make ([a-z-]+)", (root / name).read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert named
    assert named <= targets


def test_every_file_that_the_makefile_runs_is_there(root: Path) -> None:
    named = re.findall(r"python ([\w/]+\.py)", (root / "Makefile").read_text(encoding="utf-8"))
    assert named
    assert [name for name in named if not (root / name).is_file()] == []


def test_the_generated_pages_are_current(root: Path) -> None:
    specification = importlib.util.spec_from_file_location("docs_tool", root / "tools" / "docs.py")
    tool = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(tool)
    assert (root / "docs" / "cli.md").read_text(encoding="utf-8") == tool.cli_page(), "run: make docs"


def test_the_tables_of_the_readme_hold_what_was_measured(root: Path) -> None:
    page = (root / "README.md").read_text(encoding="utf-8")
    tables = page.split("<!-- tables: written by benchmarks/load.py -->")[1].split("<!-- end of tables -->")[0]
    rows = [line for line in tables.splitlines() if line.startswith("| plainbert |")]
    assert [len(re.findall(r"\d+\.\d\d", row)) for row in rows] == [2, 1], "run: python benchmarks/load.py --write"


def test_no_file_names_a_place_on_one_machine(root: Path) -> None:
    # Spelt apart, so that this file does not find itself.
    place = re.compile(
        "|".join(["/wo" + "rk/", "/ro" + "ot/", "/ho" + r"me/\w", "/Us" + r"ers/\w", "/op" + "t/", "bash_" + "jobs"])
    )
    found = []
    for path in tracked(root):
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{path.relative_to(root)}:{n}" for n, line in enumerate(text.splitlines(), 1) if place.search(line)]
    assert found == []


def test_no_large_file_is_tracked(root: Path) -> None:
    assert [str(path) for path in tracked(root) if path.stat().st_size > 1024 * 1024] == []


def test_every_text_file_ends_in_one_newline(root: Path) -> None:
    kinds = {".py", ".md", ".toml", ".txt", ""}
    texts = [path for path in tracked(root) if path.suffix in kinds and path.name != "py.typed"]
    wrong = [str(path) for path in texts if not re.search(rb"[^\n]\n\Z", path.read_bytes()) and path.stat().st_size]
    assert wrong == []

"""Every verb on a repo that lies in the Hub's cache, without a connection, all files of one commit."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(checkpoint: Path, tmp_path: Path) -> Path:
    """A cache that holds the repo org/tiny at its branch main."""
    storage = tmp_path / "cache" / "models--org--tiny"
    (storage / "refs").mkdir(parents=True)
    (storage / "refs" / "main").write_text(COMMIT)
    for path in checkpoint.rglob("*"):
        if path.is_file():
            blob = storage / "blobs" / hashlib.sha256(path.read_bytes()).hexdigest()
            link = storage / "snapshots" / COMMIT / path.relative_to(checkpoint)
            for folder in (blob.parent, link.parent):
                folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, blob)
            link.symlink_to(blob)
    return tmp_path / "cache"


def test_every_verb_reads_a_cached_repo_without_a_connection(
    run: Callable[..., Any], cache: Path, checkpoint: Path, tmp_path: Path
) -> None:
    name = "org/tiny"
    options = ["--cache-dir", cache, "--offline"]
    text = ["--text", "hello 今天"]
    for verb in ("embed", "tokenize"):
        result = run(verb, name, *text, *options)
        assert (result.code, result.stderr) == (0, "")
        assert result.stdout == run(verb, checkpoint, *text).stdout
    report = json.loads(run("info", name, "--json", *options).stdout)
    assert report["commit"] == COMMIT
    assert {file["name"] for file in report["files"]} >= {"config.json", "1_Pooling/config.json"}
    assert all(file["sha256"] for file in report["files"])
    assert run("convert", name, tmp_path / "new", *options).code == 0
    assert run("embed", tmp_path / "new", *text).stdout == run("embed", checkpoint, *text).stdout
    result = run("verify", name, *options, "--attention", "eager")
    assert (result.code, result.stderr) == (0, "")


def test_a_repo_that_is_not_in_the_cache_is_one_line(run: Callable[..., Any], tmp_path: Path) -> None:
    result = run("info", "org/other", "--cache-dir", tmp_path, "--local-files-only")
    assert (result.code, result.stdout) == (1, "")
    assert len(result.stderr.splitlines()) == 1
    assert "org/other" in result.stderr

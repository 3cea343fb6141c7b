"""Caches made by hand, loaded without a connection: not one socket is opened."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import plainbert
from plainbert.checkpoints.hub import find
from plainbert.errors import CheckpointError, MissingFileError

COMMIT = "0123456789abcdef0123456789abcdef01234567"
NAMES = ("config.json", "vocab.txt", "1_Pooling/config.json", "model.safetensors")


@pytest.fixture
def cache(checkpoint: Path, tmp_path: Path) -> Path:
    """A cache as huggingface_hub leaves it: blobs, a snapshot of links to them, a ref of one branch and one tag."""
    repo = tmp_path / "cache" / "models--plain--tiny"
    (repo / "blobs").mkdir(parents=True)
    for name in NAMES:
        body = (checkpoint / name).read_bytes()
        blob = repo / "blobs" / hashlib.sha256(body).hexdigest()
        blob.write_bytes(body)
        pointer = repo / "snapshots" / COMMIT / name
        pointer.parent.mkdir(parents=True, exist_ok=True)
        pointer.symlink_to(os.path.relpath(blob, pointer.parent))
    for ref in ("main", "v1", "refs/pr/1"):
        (repo / "refs" / ref).parent.mkdir(parents=True, exist_ok=True)
        (repo / "refs" / ref).write_text(COMMIT)
    return tmp_path / "cache"


@pytest.fixture(autouse=True)
def sockets(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Count the sockets that are made, and fail when there is one."""
    made: list[Any] = []

    class Counted(socket.socket):
        def __init__(self, *arguments: Any, **keywords: Any) -> None:
            made.append(arguments)
            super().__init__(*arguments, **keywords)

    monkeypatch.setattr(socket, "socket", Counted)
    yield made
    assert made == []


@pytest.fixture(params=["keyword", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def offline(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Each way to say that there is no connection; the variables are set long after huggingface_hub was imported."""
    import huggingface_hub

    assert huggingface_hub.hf_hub_download  # imported, with its environment read
    if request.param == "keyword":
        return {"local_files_only": True}
    monkeypatch.setenv(request.param, "1")
    return {}


@pytest.mark.parametrize("revision", [None, "main", "v1", "refs/pr/1", COMMIT])
def test_a_cached_repo_loads_without_a_socket(
    cache: Path, checkpoint: Path, offline: dict[str, Any], revision: str | None
) -> None:
    source = find("plain/tiny", revision=revision, cache_dir=cache, **offline)
    for name in NAMES:
        assert source.require(name).read_bytes() == (checkpoint / name).read_bytes()
    assert source.path("modules.json") is None
    assert source.commit == COMMIT
    assert source.filenames() == sorted(NAMES)


@pytest.mark.parametrize("revision", [None, "v1", COMMIT])
def test_an_optional_file_that_is_asked_for_first_is_none(
    cache: Path, offline: dict[str, Any], revision: str | None
) -> None:
    source = find("plain/tiny", revision=revision, cache_dir=cache, **offline)
    assert source.path("modules.json") is None
    assert source.commit == COMMIT


def test_a_required_file_that_is_missing_is_named_with_the_cache_path(cache: Path, offline: dict[str, Any]) -> None:
    source = find("plain/tiny", cache_dir=cache, **offline)
    with pytest.raises(MissingFileError, match=r"tokenizer\.json must be in the Hub repo 'plain/tiny'") as caught:
        source.require("tokenizer.json")
    assert str(cache / "models--plain--tiny") in str(caught.value)
    assert COMMIT in str(caught.value)
    assert "there is no connection; load it once with one" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "revision"), [("plain/other", None), ("plain/tiny", "v2"), ("plain/tiny", COMMIT[::-1]), ("other", None)]
)
def test_what_was_never_cached_is_an_error_for_any_file(
    cache: Path, offline: dict[str, Any], name: str, revision: str | None
) -> None:
    source = find(name, revision=revision, cache_dir=cache, **offline)
    for ask in (source.path, source.require, lambda _: source.filenames()):
        with pytest.raises(MissingFileError, match=f"Hub repo '{name}'.*{revision or 'main'}.*no connection") as caught:
            ask("modules.json")
        assert str(cache) in str(caught.value)


def test_a_ref_without_its_snapshot_is_not_taken(cache: Path) -> None:
    refs = cache / "models--plain--tiny" / "refs"
    for number, content in enumerate(["", "f" * 40, "../refs", "..", "a/b", "\0", "\udc80"]):
        (refs / f"v{number}").write_bytes(content.encode(errors="surrogateescape"))
        with pytest.raises(MissingFileError, match=f"v{number}"):
            find("plain/tiny", revision=f"v{number}", cache_dir=cache, local_files_only=True).path("config.json")


def test_a_ref_with_a_line_end_is_read(cache: Path) -> None:
    (cache / "models--plain--tiny" / "refs" / "main").write_text(COMMIT + "\n")
    assert find("plain/tiny", cache_dir=cache, local_files_only=True).path("config.json") is not None


def test_a_blob_that_was_deleted_is_named_by_its_link(cache: Path) -> None:
    pointer = cache / "models--plain--tiny" / "snapshots" / COMMIT / "config.json"
    (cache / "models--plain--tiny" / "blobs" / os.readlink(pointer).rpartition("/")[2]).unlink()
    source = find("plain/tiny", cache_dir=cache, local_files_only=True)
    with pytest.raises(MissingFileError, match=r"'config\.json'.*link to '\.\./\.\./blobs/[0-9a-f]{64}'"):
        source.path("config.json")


def test_a_link_of_the_cache_that_leads_out_of_its_blobs_is_refused(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("{}")
    pointer = cache / "models--plain--tiny" / "snapshots" / COMMIT / "config.json"
    pointer.unlink()
    pointer.symlink_to(tmp_path / "secret")
    source = find("plain/tiny", cache_dir=cache, local_files_only=True)
    with pytest.raises(CheckpointError, match=r"must lie inside that folder, got a link to '.*secret'"):
        source.path("config.json")


def test_the_cache_may_be_reached_by_a_link(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "linked").symlink_to(cache)
    source = find("plain/tiny", cache_dir=str(tmp_path / "linked"), local_files_only=True)
    assert [source.path(name) is None for name in NAMES] == [False] * len(NAMES)


def test_what_the_cache_knows_to_be_absent_is_not_asked_for(cache: Path) -> None:
    no_exist = cache / "models--plain--tiny" / ".no_exist" / COMMIT / "1_Pooling" / "more.json"
    no_exist.parent.mkdir(parents=True)
    no_exist.touch()
    source = find("plain/tiny", revision=COMMIT, cache_dir=cache)  # with a connection, of which nothing is used
    assert source.path("1_Pooling/more.json") is None
    assert source.path("config.json") is not None


@pytest.mark.parametrize("variable", ["HF_HOME", "HF_HUB_CACHE"])
def test_a_fresh_process_loads_without_importing_a_transport(cache: Path, tmp_path: Path, variable: str) -> None:
    code = (
        "import sys; from plainbert.checkpoints.hub import find\n"
        "source = find('plain/tiny'); source.require('model.safetensors'); source.path('modules.json')\n"
        "print(sorted({'socket', 'httpx', 'httpx2', 'requests', 'torch', 'ssl'} & set(sys.modules)))"
    )
    if variable == "HF_HOME":
        (tmp_path / "home").mkdir()
        (tmp_path / "home" / "hub").symlink_to(cache)
    environment = {
        **{name: value for name, value in os.environ.items() if name not in ("HF_HOME", "HF_HUB_CACHE")},
        variable: str(tmp_path / "home" if variable == "HF_HOME" else cache),
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": str(Path(plainbert.__file__).parents[1]),
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")

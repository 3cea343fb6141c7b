"""Files written whole or not at all: whatever goes wrong, the old one is there (CASE 17 of hostile, saving)."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from plainbert.checkpoints import atomic
from plainbert.checkpoints.atomic import replacing
from plainbert.errors import CheckpointError


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A file that is there already, alone in its folder."""
    path = tmp_path / "file"
    path.write_text("old")
    return path


def is_as_it_was(path: Path) -> bool:
    return path.read_text() == "old" and os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("name", ["file", "absent"])
def test_the_new_file_takes_the_name_and_nothing_is_left_over(old: Path, name: str) -> None:
    path = old.with_name(name)
    with replacing(path) as temporary:
        assert temporary.parent == path.parent  # a name can be given to a file of the same disk only
        assert temporary.read_bytes() == b""
        temporary.write_text("new")
        assert old.read_text() == "old"
    assert path.read_text() == "new"
    assert sorted(os.listdir(path.parent)) == sorted({"file", name})


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, CheckpointError])
def test_an_error_in_the_block_leaves_the_old_file_and_is_passed_on(old: Path, error: type[BaseException]) -> None:
    def write() -> None:
        with replacing(old) as temporary:
            temporary.write_text("ne")
            raise error("half written")

    with pytest.raises(error, match="half written"):
        write()
    assert is_as_it_was(old)


@pytest.mark.parametrize("step", ["open", "fsync", "chmod", "replace"])
def test_a_system_call_that_fails_leaves_the_old_file_and_is_a_checkpoint_error(
    old: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def fail(*arguments: object, **keywords: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, step, fail)
        said = r"file must be writable, got No space left .*; nothing was changed"
        with pytest.raises(CheckpointError, match=said), replacing(old):
            pass
    assert is_as_it_was(old)


def test_a_folder_that_cannot_be_flushed_is_no_failure(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "fsync", fsync)
    with replacing(old) as temporary:
        temporary.write_text("new")
    assert old.read_text() == "new"


def test_the_bytes_are_flushed_through_a_writable_descriptor_before_the_name_changes(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fcntl = pytest.importorskip("fcntl")
    done = []

    def fsync(descriptor: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        done.append((kind, fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE, old.read_text()))

    monkeypatch.setattr(os, "fsync", fsync)
    with replacing(old) as temporary:
        temporary.write_text("new")
    # Windows refuses to flush what is open for reading only, and to open folders at all.
    assert done == [("file", os.O_RDWR, "old"), ("folder", os.O_RDONLY, "new")]


def test_windows_is_not_asked_to_open_a_folder(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed = []
    original = atomic._flush_to_disk
    monkeypatch.setattr(atomic, "_flush_to_disk", lambda path, flags: flushed.append(path) or original(path, flags))
    monkeypatch.setattr(atomic, "os", type("os", (), {**vars(os), "name": "nt"}))
    with replacing(old) as temporary:
        temporary.write_text("new")
    assert [path.parent for path in flushed] == [old.parent]


@pytest.mark.skipif(os.name != "posix", reason="file modes")
@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o222, 0o444)])
def test_the_mode_is_that_of_any_new_file_whatever_the_writer_made_of_it(old: Path, mask: int, mode: int) -> None:
    before = os.umask(mask)
    try:
        with replacing(old) as temporary:
            temporary.chmod(0o600)
            temporary.write_text("new")
    finally:
        os.umask(before)
    assert stat.S_IMODE(old.stat().st_mode) == mode


KILLED = """
import os, signal, sys
from pathlib import Path
from plainbert.checkpoints import atomic
os.replace = lambda *names: os.kill(os.getpid(), signal.SIGKILL)
with atomic.replacing(Path(sys.argv[1])) as temporary:
    temporary.write_text("new")
"""


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
def test_a_process_killed_between_writing_and_renaming_leaves_the_old_file(old: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(old)], timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    assert old.read_text() == "old"
    left = [path.read_text() for path in old.parent.iterdir() if path != old]
    assert left == ["new"]  # written whole, under a name that no reader looks for
    with replacing(old) as temporary:
        temporary.write_text("newer")
    assert old.read_text() == "newer"

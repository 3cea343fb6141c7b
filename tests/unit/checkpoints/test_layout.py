"""Which files hold the weights, and JSON that cannot mislead or exhaust the reader (CASES s7, hostile 12 to 15)."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from plainbert.checkpoints.layout import read_json, weight_files
from plainbert.errors import CheckpointError, MissingFileError

FILES = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")


def put_index(folder: Path, weight_map: Any, name: str = "model.safetensors.index.json", **others: Any) -> None:
    (folder / name).write_text(json.dumps({"weight_map": weight_map, **others}))


@pytest.mark.parametrize("first", range(4))
def test_safetensors_come_before_pickles_and_one_file_before_several(source: Any, tmp_path: Path, first: int) -> None:
    (tmp_path / "shard").touch()
    for name in FILES[first:]:
        put_index(tmp_path, {"a": "shard"}, name)
    chosen = weight_files(source)
    assert chosen.kind == ("safetensors" if first < 2 else "pickle")
    if first % 2:
        assert chosen.paths == (tmp_path / "shard",)
        assert chosen.index_path == tmp_path / FILES[first]
    else:
        assert chosen.paths == (tmp_path / FILES[first],)
        assert chosen.index is None


def test_an_index_needs_no_metadata_and_each_shard_is_given_once(source: Any, tmp_path: Path) -> None:
    for name in ("1.safetensors", "2.safetensors", "unlisted.safetensors"):
        (tmp_path / name).touch()
    put_index(tmp_path, {"a": "1.safetensors", "b": "2.safetensors", "c": "1.safetensors"})
    chosen = weight_files(source)
    assert chosen.paths == (tmp_path / "1.safetensors", tmp_path / "2.safetensors")
    assert chosen.index == {
        "a": tmp_path / "1.safetensors",
        "b": tmp_path / "2.safetensors",
        "c": tmp_path / "1.safetensors",
    }


def test_a_missing_shard_is_named(source: Any, tmp_path: Path) -> None:
    (tmp_path / "1.safetensors").touch()
    put_index(tmp_path, {"a": "1.safetensors", "b": "2.safetensors"}, metadata={"total_size": 8})
    with pytest.raises(MissingFileError, match=r"index\.json must list files that are there, got '2\.safetensors'"):
        weight_files(source)


@pytest.mark.parametrize(
    "filename",
    [
        "../../other.safetensors", "/etc/passwd", "..\\x", "a/../../b", "a/b", "C:\\x", "C:x", "\\\\host\\x",
        "a\0b", "", ".", "..", "/", "\ud800", "a\nb", "x" * 256, None, 3, ["a"], {"a": 1}, True, "/dev/zero",
    ],
)  # fmt: skip
def test_a_file_outside_the_folder_is_refused_before_the_disk_is_touched(
    source: Any, tmp_path: Path, filename: Any
) -> None:
    (tmp_path / "good.safetensors").touch()
    put_index(tmp_path, {"good": "good.safetensors", "bad": filename})
    with pytest.raises(CheckpointError, match=r"weight_map\['bad'\] must be the plain name|lone surrogate"):
        weight_files(source)
    assert source.asked == list(FILES[:2])


@pytest.mark.parametrize("weight_map", [None, [], {}, "x", 3])
def test_an_index_must_map_names_to_files(source: Any, tmp_path: Path, weight_map: Any) -> None:
    put_index(tmp_path, weight_map)
    with pytest.raises(CheckpointError, match="weight_map must map weight names to files, got"):
        weight_files(source)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["tf_model.h5"], r"'tf_model.h5' \(TensorFlow\).*from_tf=True"),
        (["flax_model.msgpack"], r"'flax_model.msgpack' \(Flax\).*from_flax=True"),
        (["bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001"], r"bert_model.ckpt.*\(TensorFlow\)"),
        (["bert_model.ckpt.data-00000-of-00001"], r"bert_model.ckpt.*\(TensorFlow\)"),
        (["model.onnx"], r"'model.onnx' \(ONNX\)"),
        (["adapter_model.safetensors"], "got an adapter alone; load the model it was trained on"),
        (["weights.safetensors"], "got 'weights.safetensors'; rename it"),
        (["config.json", "vocab.txt"], "got 'config.json', 'vocab.txt'; is it the folder of a model"),
        ([], "got no files"),
    ],
)
def test_without_weights_it_says_what_is_there_and_what_to_do(
    source: Any, tmp_path: Path, names: list[str], said: str
) -> None:
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(MissingFileError, match="must have model.safetensors or pytorch_model.bin.*" + said):
        weight_files(source)


def test_a_shard_that_is_a_link_out_of_the_folder_is_refused_by_the_source(tmp_path: Path) -> None:
    hub = pytest.importorskip("plainbert.checkpoints.hub")
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.safetensors").touch()
    (folder / "1.safetensors").symlink_to(tmp_path / "secret.safetensors")
    put_index(folder, {"a": "1.safetensors"})
    with pytest.raises(CheckpointError, match=r"1\.safetensors"):
        weight_files(hub.find(folder))


def read(tmp_path: Path, content: bytes, **options: Any) -> dict[str, Any]:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    return read_json(path, **options)


def test_a_json_object_is_read(tmp_path: Path) -> None:
    content = {"a": [1, 2.5, None, True, {"b": 'ü \\ " ] } 😀'}], "n": -(10**12), "[": "{[", "\\": '"', "e": 1e-400}
    assert read(tmp_path, json.dumps(content).encode()) == content
    assert read(tmp_path, json.dumps(content, ensure_ascii=False).encode()) == content


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    assert read(tmp_path, b'\xef\xbb\xbf{"a": 1}') == {"a": 1}


@pytest.mark.parametrize(
    "literal", ["NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1" + "0" * 400 + ".5", "9" * 101]
)
@pytest.mark.parametrize("shape", ['{{"a": {{"hidden_size": {}}}}}', '{{"hidden_size": [1, [{}]]}}'])
def test_a_number_that_is_not_finite_is_refused_with_its_key(tmp_path: Path, literal: str, shape: str) -> None:
    with pytest.raises(
        CheckpointError, match=r"config\.json must have a finite number for 'hidden_size', got -?[NI19]"
    ):
        read(tmp_path, shape.format(literal).encode())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "must be JSON, got Expecting value"),
        (b"{", "must be JSON, got"),
        (b'{"a": 1} x', "must be JSON, got Extra data"),
        (b'{"a": tru}', "must be JSON, got"),
        (b"[1]", "must be a JSON object, got list"),
        (b"NaN", "must be a JSON object, got 'NaN'"),
        (b'"text"', "must be a JSON object, got str"),
        (b"null", "must be a JSON object, got NoneType"),
        (b'{"a": 1, "b": 2, "a": 3}', "must give each key once, got 'a' twice"),
        (b'{"x": {"a": 1, "a": 1}}', "must give each key once, got 'a' twice"),
        ('{"a": "ä"}'.encode("latin-1"), "must be UTF-8, got byte 0xe4"),
        ('{"a": 1}'.encode("utf-16"), "must be UTF-8, got byte 0xff"),
        (b'{"a": "\\ud800"}', "must be Unicode text, got a lone surrogate"),
        (b'{"\\udfff": 1}', "must be Unicode text, got a lone surrogate"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer; run `git lfs pull`"),
    ],
)
def test_what_is_not_a_json_object_is_refused_with_the_reason(tmp_path: Path, content: bytes, said: str) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json.*" + said):
        read(tmp_path, content)


@pytest.mark.parametrize("unit", [b"[", b"{", b'{"a":', b"[[],", b'[{"a":', b'["\\\\",', b'["\\"",', b"]"])
@pytest.mark.parametrize("count", [200, 10_000, 300_000])
def test_nesting_is_bounded_without_recursion(tmp_path: Path, unit: bytes, count: int) -> None:
    with pytest.raises(CheckpointError, match="nested at most 64 deep"):
        read(tmp_path, b'{"a": ' + unit * count)


def test_closed_nesting_is_bounded_too_and_brackets_in_strings_do_not_count(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="nested at most 64 deep"):
        read(tmp_path, b'{"a": ' + b"[" * 500 + b"]" * 500 + b"}")
    text = "[" * 5000 + '"{\\' + "{" * 5000
    assert read(tmp_path, json.dumps({"a": text, "b": [[[]]] * 3000}).encode())["a"] == text


@pytest.mark.parametrize("unit", [b"[],", b"{},", b"1,", b'"a",', b'"[",', b"[]"])
def test_the_number_of_items_is_bounded(tmp_path: Path, unit: bytes) -> None:
    with pytest.raises(CheckpointError, match="must hold at most 1500000 items, got more"):
        read(tmp_path, b'{"a": [' + unit * 1_500_001 + b"1]}")


def test_a_file_above_the_limit_is_refused_unread(tmp_path: Path) -> None:
    assert read(tmp_path, b'{"a": 10}', max_bytes=9) == {"a": 10}
    with pytest.raises(CheckpointError, match="must hold at most 8 bytes of JSON, got more"):
        read(tmp_path, b'{"a": 10}', max_bytes=8)
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(CheckpointError, match="must hold at most 16777216 bytes"):
        read_json(tmp_path / "config.json")


@pytest.mark.skipif(sys.platform == "win32", reason="FIFOs and devices")
def test_what_is_not_a_regular_file_is_refused_without_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "fifo")
    listener = socket.socket(socket.AF_UNIX)
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    listener.bind("socket")
    listener.close()
    (tmp_path / "zero").symlink_to("/dev/zero")
    for path, kind in (
        (tmp_path / "fifo", "a FIFO"),
        (tmp_path / "socket", "a socket"),
        (tmp_path, "a folder"),
        (Path("/dev/zero"), "a device"),
        (tmp_path / "zero", "a device"),
    ):
        with pytest.raises(CheckpointError, match=f"must be a regular file, got {kind}"):
            read_json(path)


@pytest.mark.skipif(sys.platform == "win32", reason="FIFOs")
def test_a_fifo_that_takes_the_place_of_a_file_is_refused_without_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the check of a name and the opening of it, the name may be given to something else."""
    path, opened = tmp_path / "config.json", []
    path.write_text("{}")

    def swap(name: Any, flags: int) -> int:
        assert flags & os.O_NONBLOCK, "a FIFO would be waited for"
        path.unlink()
        os.mkfifo(path)
        opened.append(original(name, flags))
        return opened[0]

    original = os.open
    monkeypatch.setattr(os, "open", swap)
    with pytest.raises(CheckpointError, match="must be a regular file, got a FIFO"):
        read_json(path)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened[0])


def test_a_missing_file_a_broken_link_and_a_circle_of_links_are_named(tmp_path: Path) -> None:
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    for name in ("absent", "broken"):
        with pytest.raises(MissingFileError, match=rf"{name} must be a file, got nothing of that name"):
            read_json(tmp_path / name)
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    with pytest.raises(CheckpointError, match="circle must be readable, got"):
        read_json(tmp_path / "circle")

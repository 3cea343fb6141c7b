"""What torch.save wrote: read where it holds tensors, else refused unexecuted (CASES 3, 5, hostile 9 to 11)."""

from __future__ import annotations

import collections
import io
import logging
import os
import pickle
import random
import struct
import sys
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from plainbert.checkpoints import pickled
from plainbert.checkpoints.tensors import open_tensors
from plainbert.errors import CheckpointError

Write = Callable[..., None]
BOTH_FORMS = pytest.mark.parametrize("plain", [False, True], ids=["zip", "plain"])
ADVICE = "nothing of it was executed; convert it to safetensors on a machine where you trust it"


def read_all(source: Any) -> dict[str, torch.Tensor]:
    with open_tensors(source) as stored:
        return {name: stored.read(name) for name in stored.infos}


def save(value: Any, folder: Path, plain: bool = False) -> Path:
    path = folder / "pytorch_model.bin"
    torch.save(value, path, _use_new_zipfile_serialization=not plain)
    return path


@BOTH_FORMS
def test_every_dtype_shape_and_stride_is_read_as_it_was_saved(source: Any, tmp_path: Path, plain: bool) -> None:
    base = torch.arange(24.0).reshape(4, 6)
    tensors = {str(dtype): torch.ones(2, 3).to(dtype) for dtype in (
        torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
        torch.uint8, torch.bool,
    )}  # fmt: skip
    tensors |= {
        "transposed": base.t(),
        "slice": base[1:3, ::2],
        "tied": base,
        "also tied": base.view(24),
        "scalar": torch.tensor(3),
        "empty": torch.empty(0, 5),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "position_ids": torch.arange(7).expand(1, -1),
    }
    save(tensors, tmp_path, plain)
    with open_tensors(source) as stored:
        infos = dict(stored.infos)
        assert stored.paths == (tmp_path / "pytorch_model.bin",)
        found = {name: stored.read(name) for name in infos}
    for name, tensor in tensors.items():
        assert torch.equal(found[name], tensor.detach())
        assert infos[name].dtype == found[name].dtype == tensor.dtype
        assert infos[name].shape == found[name].shape == tensor.shape
        assert type(found[name]) is torch.Tensor
        assert found[name].is_contiguous()
        assert not found[name].requires_grad
        # Memory of its own: nothing is kept alive beside the elements.
        assert found[name].untyped_storage().nbytes() == tensor.numel() * tensor.dtype.itemsize
    assert len({tensor.data_ptr() for tensor in found.values() if tensor.numel()}) == len(found) - 1


@BOTH_FORMS
def test_a_state_dict_of_a_module_with_its_version_numbers_is_read(source: Any, tmp_path: Path, plain: bool) -> None:
    state = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.LayerNorm(3)).state_dict()
    save(state, tmp_path, plain)
    found = read_all(source)
    assert found.keys() == state.keys()
    assert all(torch.equal(found[name], state[name]) for name in state)


def test_shards_of_pickles_are_one_set_of_tensors(source: Any, tmp_path: Path) -> None:
    torch.save({"a": torch.ones(2)}, tmp_path / "1.bin")
    torch.save({"b": torch.zeros(2)}, tmp_path / "2.bin")
    (tmp_path / "pytorch_model.bin.index.json").write_text('{"weight_map": {"a": "1.bin", "b": "2.bin"}}')
    assert {name: tensor.tolist() for name, tensor in read_all(source).items()} == {"a": [1, 1], "b": [0, 0]}


@pytest.mark.parametrize("key", ["state_dict", "model", "model_state_dict"])
@BOTH_FORMS
def test_a_wrapped_state_dict_is_unwrapped_with_a_log_line(
    source: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, key: str, plain: bool
) -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = {
        "state": {0: {"step": torch.tensor(1.0), "exp_avg": torch.ones(2)}},
        "param_groups": [{"betas": (0.9, 1)}],
    }
    others = {"epoch": 3, "optimizer": optimizer, "best": 0.5, "args": {"lr": 1e-5, "names": ["a"]}}
    save({key: {"w": weight}, **others}, tmp_path, plain)
    with caplog.at_level(logging.INFO, logger="plainbert"):
        found = read_all(source)
    assert list(found) == ["w"]
    assert torch.equal(found["w"], weight.detach())
    assert f"the weights are in '{key}'" in caplog.text
    assert "not read, as no part of a model: 'epoch', 'optimizer', 'best', 'args'" in caplog.text


def test_plain_metadata_beside_the_weights_is_left_out_with_a_log_line(
    source: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save({"w": torch.ones(2), "epoch": 3, "global_step": 7}, tmp_path)
    with caplog.at_level(logging.INFO, logger="plainbert"):
        assert list(read_all(source)) == ["w"]
    assert "not read, as no part of a model: 'epoch', 'global_step'" in caplog.text


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (torch.ones(2), "hold a dictionary of tensors by name, got "),
        ([torch.ones(2)], "hold a dictionary of tensors by name, got"),
        ({"w": torch.ones(2), "temperature": 0.5}, "hold tensors by name, got 0.5 for 'temperature'"),
        ({"w": torch.ones(2), "epoch": [1]}, r"hold tensors by name, got \[1\] for 'epoch'"),
        ({"w": torch.ones(2), "nested": {"a": torch.ones(2)}}, "hold tensors by name, got .* for 'nested'"),
        ({"w": [torch.ones(2)]}, "hold tensors by name, got .* for 'w'"),
        ({3: torch.ones(2)}, "hold tensors by name, got .* for 3"),
        ({"model": {"state_dict": {"w": torch.ones(2)}}}, "hold tensors by name, got .* for 'state_dict'"),
        ({"model": {}, "state_dict": {}}, "hold one model, got the dictionaries 'state_dict', 'model'"),
        ({"model": {}, "classifier.weight": torch.ones(2)}, "got the tensor 'classifier.weight' beside it"),
    ],
)  # fmt: skip
def test_what_is_not_tensors_by_name_is_refused_with_the_key(
    source: Any, tmp_path: Path, value: Any, said: str
) -> None:
    save(value, tmp_path)
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin must .*" + said):
        open_tensors(source)


class Payload:
    """Pickles as a call of `function`."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.function, self.arguments


class Pair(tuple):
    """A tuple subclass, whose pickle carries its content in the arguments of a call."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Pair, (tuple(self),)


def payloads(canary: Path) -> dict[str, Any]:
    touch = Payload(os.system, f"touch {canary}")
    return {
        "alone": touch,
        "in a dictionary": {"w": torch.ones(2), "x": touch},
        "in a list": {"w": torch.ones(2), "x": [1, [touch]]},
        "in a wrapper": {"model": {"w": torch.ones(2)}, "epoch": touch},
        "as a key": {touch: 1},
        "in a tuple subclass": {"w": Pair((1, touch))},
        "eval": {"w": Payload(eval, f"open({str(canary)!r}, 'w')")},
        "exec": {"w": Payload(exec, f"open({str(canary)!r}, 'w')")},
        "open": {"w": Payload(open, str(canary), "w")},
        "getattr": {"w": Payload(getattr, touch, "x")},
        "torch.load": {"w": Payload(torch.load, str(canary))},
        "torch.save": {"w": Payload(torch.save, 1, str(canary))},
        "argparse": {"w": torch.ones(1), "args": Payload(io.BytesIO, b"x")},
    }


@pytest.mark.parametrize("kind", payloads(Path("x")))
@BOTH_FORMS
def test_a_pickle_that_calls_something_is_refused_and_nothing_runs(
    source: Any, tmp_path: Path, kind: str, plain: bool
) -> None:
    canary = tmp_path / "canary"
    save(payloads(canary)[kind], tmp_path, plain)
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin must hold tensors and nothing else.*" + ADVICE):
        open_tensors(source)
    assert not canary.exists()


@pytest.mark.parametrize("protocol", range(6))
def test_a_bare_pickle_is_refused_and_nothing_runs(source: Any, tmp_path: Path, protocol: int) -> None:
    for name, value in payloads(tmp_path / "canary").items():
        value = {"w": value} if name == "alone" else value
        with (tmp_path / "pytorch_model.bin").open("wb") as file:
            pickle.dump(value, file, protocol)
        with pytest.raises(CheckpointError, match=r"must be a file of torch\.save, got"):
            open_tensors(source)
        assert not (tmp_path / "canary").exists()


def test_a_pickle_of_a_newer_protocol_is_refused(source: Any, tmp_path: Path, write_torch: Write) -> None:
    for protocol in (0, 1, 3, 4, 5):
        for plain in (False, True):
            program = pickle.dumps({"w": Payload(os.system, f"touch {tmp_path}/canary")}, protocol)
            write_torch(tmp_path / "pytorch_model.bin", program=program, plain=plain)
            with pytest.raises(CheckpointError, match=r"instructions of pickle protocol 2|use of 'posix"):
                open_tensors(source)
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_the_tar_form_is_refused_and_nothing_runs(source: Any, tmp_path: Path, form: int) -> None:
    payload = pickle.dumps(Payload(os.system, f"touch {tmp_path}/canary"), 2)
    with tarfile.open(tmp_path / "pytorch_model.bin", "w", format=form) as archive:
        for name in ("storages", "tensors", "pickle"):
            member = tarfile.TarInfo(name)
            member.size = len(payload)
            archive.addfile(member, io.BytesIO(payload))
    with pytest.raises(CheckpointError, match=r"torch 1\.6 or later, got the tar form of 2017; " + ADVICE):
        open_tensors(source)
    assert not (tmp_path / "canary").exists()


def test_torch_load_alone_gets_the_file_with_weights_only(
    source: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were the inspection to miss something, torch's own restricted reader still stands behind it."""
    calls = []

    def load(file: Any, **keywords: Any) -> Any:
        calls.append(keywords)
        return original(file, **keywords)

    original = torch.load
    monkeypatch.setattr(torch, "load", load)
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    monkeypatch.setattr(pickled.PickledFile, "_inspect", lambda self: ({}, pickled.Described()))
    save({"w": Payload(os.system, f"touch {tmp_path}/canary")}, tmp_path)
    file = pickled.PickledFile(tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="loadable with weights_only=True, got UnpicklingError.*" + ADVICE):
        file.load()
    assert calls == [{"map_location": "cpu", "weights_only": True}]
    assert not (tmp_path / "canary").exists()


HUGE = 2**40
OUTSIDE: dict[str, tuple[dict[str, Any], str]] = {
    "size beyond the storage": ({"view": (0, (5,), (1,))}, r"shape \(5,\), strides \(1,\), offset 0 in a storage of 4"),
    "offset beyond the storage": ({"view": (3, (4,), (1,))}, "offset 3 in a storage of 4"),
    "offset of nothing beyond the storage": ({"view": (9, (0,), (1,))}, "offset 9 in a storage of 4"),
    "stride beyond the storage": ({"view": (0, (2,), (4,))}, r"strides \(4,\), offset 0 in a storage of 4"),
    "huge size": ({"view": (0, (HUGE,), (1,))}, "in a storage of 4"),
    "size that overflows": ({"view": (0, (HUGE, HUGE), (HUGE, 1))}, "in a storage of 4"),
    "size of 2000 bits": ({"view": (0, (2**2000,), (1,))}, "in a storage of 4"),
    "stride 0 that repeats": ({"view": (0, (HUGE, 2**20), (0, 0))}, "strides .* that repeats a storage of 4"),
    "negative offset": ({"view": (-1, (2,), (1,))}, r"no negative size, stride or offset, got \(-1, \(2,\), \(1,\)\)"),
    "negative stride": ({"view": (3, (4,), (-1,))}, "no negative size, stride or offset"),
    "negative size": ({"view": (0, (-4,), (1,))}, "no negative size, stride or offset"),
    "size that is a bool": ({"view": (0, (True,), (1,))}, "no negative size, stride or offset"),
    "size that is a float": ({"view": (0, (4.0,), (1,))}, "no negative size, stride or offset"),
    "fewer strides than sizes": ({"view": (0, (2, 2), (1,))}, "nothing else, got a call of"),
    "offset that is a text": ({"view": ("0", (4,), (1,))}, "nothing else, got a call of"),
    "size that is a list": ({"view": (0, "4", (1,))}, "nothing else, got a call of"),
    "storage declared larger": ({"declared": 10**9}, "(hold|have) 40000.* bytes for"),
    "storage declared huge, tensor too": ({"declared": 10**15, "view": (0, (10**15,), (1,))}, "4000000.* bytes"),
    "storage declared smaller": ({"declared": 2, "view": (0, (2,), (1,))}, "(hold|have) .* bytes for"),
    "storage declared negative": ({"declared": -4}, "describe storages as torch.save does, got .*-4"),
    "storage declared as a float": ({"declared": 4.0}, "describe storages as torch.save does, got .*4.0"),
    "storage declared as a bool": ({"declared": True, "data": bytes(4)}, "describe storages as .*True"),
}  # fmt: skip


@pytest.mark.parametrize("case", OUTSIDE)
@BOTH_FORMS
def test_a_tensor_outside_its_storage_is_refused_before_anything_is_built(
    source: Any, tmp_path: Path, write_torch: Write, monkeypatch: pytest.MonkeyPatch, case: str, plain: bool
) -> None:
    arguments, said = OUTSIDE[case]
    write_torch(tmp_path / "pytorch_model.bin", plain=plain, **arguments)
    monkeypatch.delattr(torch, "load")
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin must .*" + said):
        open_tensors(source)


@BOTH_FORMS
def test_the_hand_made_file_without_a_fault_is_read(
    source: Any, tmp_path: Path, write_torch: Write, plain: bool
) -> None:
    write_torch(tmp_path / "pytorch_model.bin", plain=plain, data=struct.pack("<4f", 1, 2, 3, 4), view=(1, (2,), (2,)))
    assert read_all(source)["w"].tolist() == [2, 4]


@pytest.mark.parametrize("keys", [(), ("0", "0"), ("1",), ("0", "1"), (0,), ([],)])
def test_a_plain_file_that_leaves_storages_unfilled_is_refused(
    source: Any, tmp_path: Path, write_torch: Write, keys: Any
) -> None:
    # torch.load would give whatever was in memory before.
    write_torch(tmp_path / "pytorch_model.bin", plain=True, keys=keys)
    with pytest.raises(CheckpointError, match="list its storages once each, got"):
        open_tensors(source)


def test_a_plain_file_of_another_machine_or_version_is_refused(source: Any, tmp_path: Path) -> None:
    path = save({"w": torch.ones(2)}, tmp_path, plain=True)
    content = path.read_bytes()
    for part, other in ((b"little_endianq\x02\x88", b"little_endianq\x02\x89"), (b"M\xe9\x03.", b"M\xea\x03.")):
        assert content.count(part) == 1
        path.write_bytes(content.replace(part, other))
        with pytest.raises(CheckpointError, match="must be little-endian and of version 1001, got version"):
            open_tensors(source)


def test_many_names_for_one_storage_cannot_multiply_its_memory(source: Any, tmp_path: Path) -> None:
    weight = torch.ones(100_000)
    save({"one": weight, "two": weight}, tmp_path)
    assert sum(tensor.numel() for tensor in read_all(source).values()) == 200_000
    for value in ({str(i): weight for i in range(1000)}, {str(i): weight.view(100_000) for i in range(1000)}):
        save(value, tmp_path)
        with pytest.raises(CheckpointError, match="share storages between few names, got 400000000 bytes"):
            open_tensors(source)


def test_one_storage_of_two_descriptions_is_refused(source: Any, tmp_path: Path, write_torch: Write) -> None:
    path = tmp_path / "pytorch_model.bin"
    write_torch(path)
    with zipfile.ZipFile(path) as archive:
        item = archive.read("archive/data.pkl")
    start, stop = item.index(b"ctorch._utils"), item.rindex(b"s.")
    again = item[start:stop]
    for old, new in ((b"K\x04t", b"K\x03t"), (b"FloatStorage", b"IntStorage")):
        assert old in again
        write_torch(path, program=item[:stop] + b"s" + b"X\x01\0\0\0v" + again.replace(old, new) + b"s.")
        with pytest.raises(CheckpointError, match="describe storage '0' in one way, got StoredRun"):
            open_tensors(source)


def rewrite(path: Path, change: Callable[[zipfile.ZipFile, zipfile.ZipInfo, bytes], None]) -> None:
    """Write a zip archive again, entry by entry."""
    with zipfile.ZipFile(path) as archive:
        entries = [(entry, archive.read(entry)) for entry in archive.infolist()]
    with zipfile.ZipFile(path, "w") as archive:
        for entry, content in entries:
            change(archive, zipfile.ZipInfo(entry.filename), content)


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_bomb_is_refused_on_what_it_declares(source: Any, tmp_path: Path, method: int) -> None:
    with zipfile.ZipFile(tmp_path / "pytorch_model.bin", "w", method) as archive:
        archive.writestr("archive/data.pkl", bytes(30_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError, match=r"got 'archive/data\.pkl' compressed or encrypted"):
            open_tensors(source)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../../x", "a\\x", "..", "a/..", "\x1b[31m"])
def test_an_entry_with_a_path_for_a_name_is_refused(source: Any, tmp_path: Path, name: str) -> None:
    path = save({"w": torch.ones(2)}, tmp_path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(name, b"x")
    with pytest.raises(CheckpointError, match="hold entries with plain names, got "):
        open_tensors(source)


def test_an_entry_given_twice_is_refused(source: Any, tmp_path: Path, write_torch: Write) -> None:
    write_torch(tmp_path / "pytorch_model.bin")
    with zipfile.ZipFile(tmp_path / "pytorch_model.bin", "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("archive/data/0", bytes(16))
    with pytest.raises(CheckpointError, match="hold each entry once, got 'archive/data/0' twice"):
        open_tensors(source)


def central(content: bytes, name: bytes) -> int:
    """Where the archive's directory describes an entry."""
    return content.rindex(name) - 46


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        # (offset in the directory's record, little-endian bytes, what is said)
        (24, struct.pack("<I", 2**31), "compressed or encrypted"),
        (20, struct.pack("<II", 2**31, 2**31), "hold 'archive/data/0' whole, got a file of|side by side"),
        (20, struct.pack("<II", 15, 15), "hold 16 bytes for storage '0', got 15"),
        (20, struct.pack("<II", 40, 40), "side by side, got 'archive/version'"),
        (42, struct.pack("<I", 0), "side by side|another name"),
        (42, struct.pack("<I", 2**31), "side by side"),
        (8, struct.pack("<H", 1), "compressed or encrypted"),
        (8, struct.pack("<H", 32), "compressed or encrypted"),
        (10, struct.pack("<H", 99), "compressed or encrypted"),
        (46, b"Archive", "say the same in both places|side by side|got another name"),
    ],
)
def test_an_entry_of_a_wrong_size_or_place_is_refused(
    source: Any, tmp_path: Path, write_torch: Write, field: int, value: bytes, said: str
) -> None:
    path = tmp_path / "pytorch_model.bin"
    write_torch(path)
    content = bytearray(path.read_bytes())
    at = central(content, b"archive/data/0") + field
    content[at : at + len(value)] = value
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin must .*" + said):
        open_tensors(source)


def test_bytes_before_or_after_the_archive_are_refused(source: Any, tmp_path: Path, write_torch: Write) -> None:
    path = tmp_path / "pytorch_model.bin"
    write_torch(path)
    content = path.read_bytes()
    path.write_bytes(content + b"x")
    with pytest.raises(CheckpointError, match="end with the directory of its zip archive, got other bytes"):
        open_tensors(source)
    path.write_bytes(b"PK\x03\x04" + content)
    with pytest.raises(CheckpointError, match=r"side by side, got 'archive/data\.pkl' at byte 4"):
        open_tensors(source)


@pytest.mark.parametrize(
    ("rename", "said"),
    [
        ({"archive/data.pkl": "archive/other.pkl"}, "hold one data.pkl, got none"),
        ({"archive/version": "second/data.pkl"}, "hold one data.pkl, got 'archive/data.pkl', 'second/data.pkl'"),
        ({"archive/data.pkl": "a/b/data.pkl"}, "hold one data.pkl, got 'a/b/data.pkl'"),
        ({"archive/version": "archive/constants.pkl"}, "hold tensors, got a TorchScript program"),
        ({"archive/data/0": "archive/data/1"}, "hold 16 bytes for storage '0', got none"),
        ({"archive/byteorder": "archive/x", "archive/version": "archive/byteorder"}, "little-endian, got b'3"),
    ],
)
def test_an_archive_of_other_entries_is_refused(
    source: Any, tmp_path: Path, write_torch: Write, rename: dict[str, str], said: str
) -> None:
    path = tmp_path / "pytorch_model.bin"
    write_torch(path)
    rewrite(path, lambda archive, entry, content: archive.writestr(rename.get(entry.filename, entry.filename), content))
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin must .*" + said):
        open_tensors(source)


def test_a_pickle_above_the_limit_is_refused_unread(source: Any, tmp_path: Path, write_torch: Write) -> None:
    write_torch(tmp_path / "pytorch_model.bin", program=b"\x80\x02" + b"N0" * 600_000 + b".")
    with pytest.raises(CheckpointError, match=r"a data\.pkl of at most 1048576 bytes, got 1200003"):
        open_tensors(source)
    write_torch(tmp_path / "pytorch_model.bin", program=b"\x80\x02" + b"N" * 2_000_000 + b".", plain=True)
    with pytest.raises(CheckpointError, match="hold a whole pickle, got"):
        open_tensors(source)


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (b"\x80\x02.", "describe one object, got 0|hold a whole pickle"),
        (b"\x80\x02NN.", "describe one object, got 2"),
        (b"\x80\x02(N.", "describe one object, got 1"),
        (b"\x80\x02N", "hold a whole pickle, got|describe one object, got 2"),
        (b"\x80\x02N\x85\x86.", "make tuples of what is there, got TUPLE2 of 1"),
        (b"\x80\x02h\x05.", "hold a whole pickle, got"),
        (b"\x80\x02N(NNe.", "fill a list, got None"),
        (b"\x80\x02]NNs.", r"fill a dict, got \[\]"),
        (b"\x80\x02](NNu.", r"fill a dict, got \[\]"),
        (b"\x80\x02}(Nu.", "hold a whole pickle, got"),
        (b"\x80\x02}]Ns.", r"use strings and numbers as keys, got \[\]"),
        (b"\x80\x02}}b.", "got attributes set: {}"),
        (b"\x80\x02}}X\x05\0\0\0itemsNsb.", "got attributes set: {'items': None}"),
        (b"\x80\x02NQ.", "describe storages as torch.save does, got None"),
        (b"\x80\x02K\x05Q.", "describe storages as torch.save does, got 5"),
        (b"\x80\x02ccollections\nOrderedDict\nN\x85R.", "got a call of .*OrderedDict"),
        (b"\x80\x02ctorch\nFloatStorage\nK\x05\x85R.", "got a call of .*FloatStorage"),
        (b"\x80\x02cbuiltins\nbytearray\nJ\xff\xff\xff\x7f\x85R.", "got a use of 'builtins.bytearray'"),
        (b"\x80\x02ctorch\nTensor\nJ\xff\xff\xff\x7f\x85R.", "got a use of 'torch.Tensor'"),
        (
            b"\x80\x02ctorch.storage\nUntypedStorage\nJ\xff\xff\xff\x7f\x85R.",
            "got a use of 'torch.storage.UntypedStorage'",
        ),
        (b"\x80\x02ctorch._utils\n_rebuild_sparse_tensor\n.", "got a use of 'torch._utils._rebuild_sparse_tensor'"),
        (b"\x80\x02ctorch\nComplexFloatStorage\n.", "got a use of 'torch.ComplexFloatStorage'"),
        (b"\x80\x02c__builtin__\neval\n.", "got a use of '__builtin__.eval'"),
        (b"\x80\x02ios\nsystem\n.", "instructions of pickle protocol 2 that torch.save uses, got INST"),
        (b"\x80\x02r\xff\xff\xff\xff.", "hold a whole pickle, got"),
        (b"\x80\x02X\xff\xff\xff\xffx.", "hold a whole pickle, got"),
        (b"\x80\x02\x8b\xff\xff\xff\x7fx.", "hold a whole pickle, got"),
    ],
)
@BOTH_FORMS
def test_instructions_that_torch_save_does_not_write_are_refused(
    source: Any, tmp_path: Path, write_torch: Write, program: bytes, said: str, plain: bool
) -> None:
    write_torch(tmp_path / "pytorch_model.bin", program=program, plain=plain)
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin must .*" + said):
        open_tensors(source)


def test_references_that_stand_for_gigabytes_of_text_cost_nothing(
    source: Any, tmp_path: Path, write_torch: Write
) -> None:
    # Each tuple holds the one before it three times: 3 ** 60 of them if written out, in a message for instance.
    bomb = b"\x80\x02}X\x01\0\0\0wN" + b"q\x010h\x01h\x01h\x01\x87" * 60
    for end in (b"s.", b"Q.", b"s}h\x01b.", b"\x85R."):
        write_torch(tmp_path / "pytorch_model.bin", program=bomb + end)
        with pytest.raises(CheckpointError, match="must") as caught:
            open_tensors(source)
        assert len(str(caught.value)) < 1000


# Both get past a list of allowed names, and do their harm in torch.load(weights_only=True), on any device.
HARM = {
    "copies of a dictionary": (
        b"\x80\x02}q\x01(" + b"".join(b"J%bN" % struct.pack("<i", i) for i in range(60_000)) + b"u]("
        + b"ccollections\nOrderedDict\nh\x01\x85R" * 300 + b"e.",
        "got a call of .*OrderedDict",
    ),
    "a deep tuple as a key": (b"\x80\x02}N" + b"\x85" * 900_000 + b"Ns.", "use strings and numbers as keys, got"),
}  # fmt: skip


@pytest.mark.parametrize("kind", HARM)
@BOTH_FORMS
def test_what_allowed_names_alone_would_let_through_is_refused_at_once(
    source: Any, tmp_path: Path, write_torch: Write, monkeypatch: pytest.MonkeyPatch, kind: str, plain: bool
) -> None:
    program, said = HARM[kind]
    write_torch(tmp_path / "pytorch_model.bin", program=program, plain=plain)
    monkeypatch.delattr(torch, "load")
    with pytest.raises(CheckpointError, match=said):
        open_tensors(source)


@BOTH_FORMS
def test_a_file_cut_off_anywhere_is_refused(source: Any, tmp_path: Path, plain: bool) -> None:
    path = save(
        {"a": torch.randn(20, 20), "b": torch.nn.Parameter(torch.randn(5)), "c": torch.tensor(3)}, tmp_path, plain
    )
    size = path.stat().st_size
    with path.open("r+b") as file:
        for cut in sorted({*range(min(4096, size)), *range(4096, size, 37)}, reverse=True):
            file.truncate(cut)
            with pytest.raises(CheckpointError, match=r"pytorch_model\.bin must"):
                open_tensors(source)


@BOTH_FORMS
def test_flipped_bits_never_get_past_a_checkpoint_error(source: Any, tmp_path: Path, plain: bool) -> None:
    state = collections.OrderedDict(a=torch.randn(3, 4), b=torch.arange(6).half(), c=torch.nn.Parameter(torch.randn(5)))
    path = save(state, tmp_path, plain)
    content = path.read_bytes()
    chance = random.Random(0)
    outcomes = set()
    for _ in range(1000):
        broken = bytearray(content)
        for _ in range(chance.choice((1, 1, 2, 5))):
            broken[chance.randrange(len(broken))] ^= 1 << chance.randrange(8)
        path.write_bytes(broken)
        try:
            read_all(source)  # a flip in the numbers themselves, or in a name
            outcomes.add("read")
        except CheckpointError:
            outcomes.add("refused")
    assert outcomes == {"read", "refused"}


@BOTH_FORMS
def test_a_file_changed_after_it_was_opened_gives_no_tensor(source: Any, tmp_path: Path, plain: bool) -> None:
    path = save({"w": torch.randn(3000)}, tmp_path, plain)
    size = path.stat().st_size
    stored = open_tensors(source)
    os.truncate(path, size - 5000)
    with stored, pytest.raises(CheckpointError, match="must be loadable with weights_only=True, got"):
        stored.read("w")
    save({"w": torch.randn(3000)}, tmp_path, plain)
    stored = open_tensors(source)
    other = save({"w": torch.randn(3000).int()}, tmp_path, plain).read_bytes()
    path.write_bytes(other)
    with (
        stored,
        pytest.raises(CheckpointError, match="must stay as it was while it is loaded, got another tensor for 'w'"),
    ):
        stored.read("w")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "got an empty file"),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
            "got a Git LFS pointer .*`git lfs pull`",
        ),
        (b"<!DOCTYPE html><html></html>", "got an HTML or XML page"),
        (b'{"error": "not found"}', "got JSON text"),
        (b"\x80\x02}q\x00.", r"be a file of torch\.save, got the first bytes b'\\x80\\x02}q\\x00.'"),
        (bytes(600), r"be a file of torch\.save, got the first bytes b'\\x00"),
        (b"PK\x03\x04", "end with the directory of its zip archive"),
        (struct.pack("<Q", 2) + b"{}", r"be a file of torch\.save, got the first bytes"),
    ],
)
def test_what_torch_save_did_not_write_is_recognised(source: Any, tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin must .*" + said):
        open_tensors(source)


@pytest.mark.skipif(sys.platform == "win32", reason="FIFOs")
def test_a_fifo_is_refused_without_waiting(source: Any, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin must be a regular file, got a FIFO"):
        open_tensors(source)

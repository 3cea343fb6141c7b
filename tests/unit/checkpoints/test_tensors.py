"""The safetensors reader, shards and saving (CASES 4, s7, hostile 1 to 8, 12, 14 and 17)."""

from __future__ import annotations

import json
import os
import random
import resource
import struct
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from plainbert.checkpoints.folder import FolderSource
from plainbert.checkpoints.tensors import StoredTensors, count_non_finite, open_tensors, save_tensors
from plainbert.errors import CheckpointError, MissingFileError

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.bool,
]  # fmt: skip
Build = Callable[..., bytes]


def read_all(source: Any) -> dict[str, torch.Tensor]:
    with open_tensors(source) as stored:
        return read_rest(stored)


def read_rest(stored: StoredTensors) -> dict[str, torch.Tensor]:
    return {name: stored.read(name) for name in stored.infos}


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    return (
        one.dtype == other.dtype
        and one.shape == other.shape
        and torch.equal(one.reshape(-1).view(torch.uint8), other.reshape(-1).view(torch.uint8))
    )


def entry(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


@st.composite
def tensor_dicts(draw: st.DrawFn) -> dict[str, torch.Tensor]:
    names = draw(
        st.lists(st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12), max_size=6, unique=True)
    )
    result = {}
    for name in names:
        if name == "__metadata__":
            continue
        dtype = draw(st.sampled_from(DTYPES))
        shape = draw(st.lists(st.integers(0, 5), max_size=4))
        count = torch.empty(shape, dtype=dtype).numel() * dtype.itemsize
        raw = torch.tensor(list(draw(st.binary(min_size=count, max_size=count))), dtype=torch.uint8)
        result[name] = ((raw % 2).bool() if dtype == torch.bool else raw.view(dtype)).reshape(shape)
    return result


@settings(max_examples=60, deadline=None)
@given(tensor_dicts())
def test_what_the_safetensors_library_writes_is_read_to_the_bit_and_the_reverse(
    tensors: dict[str, torch.Tensor],
) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "model.safetensors"
        save_file(tensors, path, metadata={"format": "pt"})
        theirs = path.read_bytes()
        found = read_all(FolderSource(name, Path(name)))
        assert found.keys() == tensors.keys()
        assert all(same_bits(found[key], tensors[key]) for key in tensors)
        save_tensors(found, path)
        assert path.read_bytes() == theirs
        assert os.listdir(name) == ["model.safetensors"]


def test_a_real_checkpoint_is_read_as_the_library_reads_it(minilm_folder: Path) -> None:
    path = minilm_folder / "model.safetensors"
    reference = load_file(path)
    with open_tensors(FolderSource("minilm", minilm_folder)) as stored:
        assert stored.paths == (path,)
        assert stored.infos.keys() == reference.keys()
        for name, info in stored.infos.items():
            tensor = stored.read(name)
            assert (info.name, info.dtype, info.shape, info.path) == (name, tensor.dtype, tuple(tensor.shape), path)
            assert same_bits(tensor, reference[name])


def test_every_tensor_has_fresh_aligned_memory_of_its_own(source: Any, tmp_path: Path) -> None:
    save_tensors(
        {"a": torch.ones(3), "b": torch.ones(5, dtype=torch.int8), "c": torch.tensor(2.0)},
        tmp_path / "model.safetensors",
    )
    found = read_all(source)
    for tensor in found.values():
        assert tensor.data_ptr() % 16 == 0
        assert tensor.is_contiguous()
        assert not tensor.requires_grad
        assert tensor.untyped_storage().nbytes() == tensor.numel() * tensor.dtype.itemsize
    (tmp_path / "model.safetensors").write_bytes(b"")  # a mapping of the file would die here
    assert found["a"].add_(1).tolist() == [2, 2, 2]


LONG = 2**40
A_TO_8 = {"a": entry()}
BROKEN_HEADERS: list[tuple[Any, int, str]] = [
    # (header, bytes of data, what is said)
    ({"a": entry(offsets=(0, 4))}, 8, r"must have 8 bytes for 'a' of shape \[2\] and dtype F32, got 4"),
    ({"a": entry(shape=(3,))}, 8, "must have 12 bytes for 'a'"),
    ({"a": entry(dtype="F64")}, 8, "must have 16 bytes for 'a'"),
    ({"a": entry(offsets=(0, 16))}, 8, r"data_offsets within its 8 bytes for 'a', got \[0, 16\]"),
    ({"a": entry(offsets=(-8, 0))}, 8, r"data_offsets within .* for 'a', got \[-8, 0\]"),
    ({"a": entry(offsets=(8, 0))}, 8, r"data_offsets within .* for 'a', got \[8, 0\]"),
    ({"a": entry(offsets=(0, 8.0))}, 8, r"data_offsets within .* for 'a', got \[0, 8.0\]"),
    ({"a": entry(offsets=(0, True))}, 8, r"data_offsets within .* for 'a', got \[0, True\]"),
    ({"a": entry(offsets=(0, "8"))}, 8, r"data_offsets within .* for 'a', got \[0, '8'\]"),
    ({"a": entry(offsets=(0, 8, 8))}, 8, r"data_offsets within .* for 'a', got \[0, 8, 8\]"),
    ({"a": entry(offsets=())}, 8, r"data_offsets within .* for 'a', got \[\]"),
    ({"a": entry(offsets=(0, 2**63))}, 8, r"data_offsets within .* for 'a', got \[0, 9223372036854775808\]"),
    ({"a": entry(shape=(LONG, LONG))}, 8, r"shape that can be counted for 'a', got \[1099511627776, 1099511627776\]"),
    ({"a": entry(shape=(LONG, LONG, 0), offsets=(0, 0))}, 0, "shape that can be counted for 'a'"),
    ({"a": entry(shape=(0, LONG, LONG), offsets=(0, 0))}, 0, "shape that can be counted for 'a'"),
    ({"a": entry(shape=(2**32, 2**30), offsets=(0, 0))}, 0, "must have 18446744073709551616|shape that can be counted"),
    ({"a": entry(shape=(LONG,))}, 8, "must have 4398046511104 bytes for 'a'"),
    ({"a": entry(shape=(-2,))}, 8, r"shape of non-negative integers for 'a', got \[-2\]"),
    ({"a": entry(shape=(-1, -2))}, 8, r"shape of non-negative integers for 'a', got \[-1, -2\]"),
    ({"a": entry(shape=(2.0,))}, 8, r"shape of non-negative integers for 'a', got \[2.0\]"),
    ({"a": entry(shape=(True, 2))}, 8, r"shape of non-negative integers for 'a', got \[True, 2\]"),
    ({"a": entry(shape=(None,))}, 8, r"shape of non-negative integers for 'a', got \[None\]"),
    ({"a": {**entry(), "shape": 2}}, 8, "shape of non-negative integers for 'a', got 2"),
    ({"a": entry(dtype="F99")}, 8, "dtype out of F64, F32, .* for 'a', got 'F99'"),
    ({"a": entry(dtype=["F32"])}, 8, r"dtype out of .* for 'a', got \['F32'\]"),
    ({"a": entry(dtype="F8_E4M3", shape=(8,))}, 8, r"got 'F8_E4M3' \(an 8-bit float: dequantise"),
    ({"a": entry(dtype="F8_E5M2", shape=(8,))}, 8, r"got 'F8_E5M2' \(an 8-bit float: dequantise"),
    ({"a": {"dtype": "F32", "shape": [2]}}, 8, "give dtype, shape and data_offsets for 'a', got"),
    ({"a": {**entry(), "more": 1}}, 8, "give dtype, shape and data_offsets for 'a', got"),
    ({"a": [1, 2]}, 8, r"give dtype, shape and data_offsets for 'a', got \[1, 2\]"),
    ({"a": entry(), "b": entry(offsets=(4, 12))}, 12, "side by side, got 'b' at byte 4, which overlaps"),
    ({"a": entry(), "b": entry()}, 8, "side by side, got 'b' at byte 0, which overlaps"),
    ({"a": entry(), "b": entry(offsets=(12, 20))}, 20, "side by side, got 'b' at byte 12, which leaves a hole"),
    ({"a": entry(offsets=(4, 12))}, 12, "side by side, got 'a' at byte 4, which leaves a hole"),
    ({"a": entry(), "e": entry(shape=(0,), offsets=(4, 4))}, 8, "side by side, got 'e' at byte 4, which overlaps"),
    (A_TO_8, 24, "end with its last tensor, got 16 bytes after it"),
    ({}, 1, "end with its last tensor, got 1 bytes after it"),
    ({**A_TO_8, "__metadata__": {"format": 1}}, 8, "have texts as __metadata__, got {'format': 1}"),
    ({**A_TO_8, "__metadata__": []}, 8, r"have texts as __metadata__, got \[\]"),
    (b'{"a": 1, "b": 2, "a": 3}', 8, "give each key once, got 'a' twice"),
    (b'{"a": {"dtype": "F32", "shape": [2], "shape": [3], "data_offsets": [0, 8]}}', 8, "got 'shape' twice"),
    (b'{"\xff": 1}', 8, "UTF-8, got byte 0xff"),
    (b'{"\\ud800": 1}', 8, "lone surrogate"),
    (
        b'{"a": {"dtype": "F32", "shape": [1e400], "data_offsets": [0, 8]}}',
        8,
        "must have a finite number for 'shape', got 1e400",
    ),
    (b" {}", 8, r"begins with \{, got b' \{\}'"),
    (b"[]", 8, r"begins with \{, got b'\[\]'"),
    (b"", 8, r"begins with \{, got b''"),
    (b"{" + b'"a":{' * 10_000 + b"}" * 10_001, 8, "nested at most 64 deep"),
    (b'{"a":' + b"[" * 10_000 + b"]" * 10_000 + b"}", 8, "nested at most 64 deep"),
    (b"{}\0\0", 0, "must be JSON, got Extra data"),
]


@pytest.mark.parametrize(("header", "data_bytes", "said"), BROKEN_HEADERS)
def test_a_broken_header_is_refused_with_tensor_and_value(
    source: Any, tmp_path: Path, safetensors_bytes: Build, header: Any, data_bytes: int, said: str
) -> None:
    (tmp_path / "model.safetensors").write_bytes(safetensors_bytes(header, bytes(data_bytes)))
    with pytest.raises(CheckpointError, match=r"model\.safetensors.*" + said):
        open_tensors(source)


def test_spaces_after_the_header_and_tensors_out_of_order_are_fine(
    source: Any, tmp_path: Path, safetensors_bytes: Build
) -> None:
    header = {"b": entry(offsets=(8, 16)), "e": entry(shape=(0, 3), offsets=(8, 8)), "a": entry()}
    content = safetensors_bytes(json.dumps(header).encode() + b"   ", struct.pack("<4f", 1, 2, 3, 4))
    (tmp_path / "model.safetensors").write_bytes(content)
    found = read_all(source)
    assert {name: tensor.tolist() for name, tensor in found.items()} == {"a": [1, 2], "b": [3, 4], "e": []}
    assert found["e"].shape == (0, 3)


@pytest.mark.parametrize("first", b"<{\n \x80P")
def test_a_header_whose_length_looks_like_another_format_is_fine(
    source: Any, tmp_path: Path, safetensors_bytes: Build, first: int
) -> None:
    header = json.dumps(A_TO_8).encode()
    content = safetensors_bytes(header + b" " * (256 + first - len(header)), struct.pack("<2f", 1, 2))
    assert content[0] == first
    (tmp_path / "model.safetensors").write_bytes(content)
    assert read_all(source)["a"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "got an empty file"),
        (b"\x02", "must have a header, got 1 bytes in all"),
        (struct.pack("<Q", 2**63) + bytes(8), "header length 9223372036854775808 exceeds the file"),
        (struct.pack("<Q", 2**62) + bytes(8), "header length 4611686018427387904 exceeds the file"),
        (struct.pack("<Q", 2**64 - 1), "header length 18446744073709551615 exceeds the file"),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
            "got a Git LFS pointer .*run `git lfs pull`",
        ),
        (b"<!DOCTYPE html><html></html>", "got an HTML or XML page"),
        (b"\n\n  <html></html>", "got an HTML or XML page"),
        (b"\xef\xbb\xbf<html></html>", "got an HTML or XML page"),
        (b'{"error": "Repository not found"}', "got JSON text"),
        (b"PK\x03\x04" + bytes(40), "got a zip archive; .* is named pytorch_model.bin"),
        (b"\x80\x02}q\x00." + bytes(40), "got a Python pickle; .* is named pytorch_model.bin"),
    ],
)
def test_what_is_no_safetensors_file_is_recognised(source: Any, tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"model\.safetensors .*" + said):
        open_tensors(source)


def test_a_polyglot_with_a_zip_after_the_tensors_is_refused(
    source: Any, tmp_path: Path, safetensors_bytes: Build
) -> None:
    (tmp_path / "model.safetensors").write_bytes(safetensors_bytes(A_TO_8, bytes(8)) + b"PK\x05\x06" + bytes(18))
    with pytest.raises(CheckpointError, match="got 22 bytes after it"):
        open_tensors(source)


def test_a_header_above_the_cap_is_refused_without_reading_it(source: Any, tmp_path: Path) -> None:
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", 90_000_000) + b"{")
        file.truncate(100_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError, match="a header of at most 16777216 bytes, got 90000000"):
            open_tensors(source)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.fixture
def small(tmp_path: Path) -> bytes:
    """A valid file of 5 kB in `tmp_path`."""
    generator = torch.Generator().manual_seed(0)
    tensors = {f"layer.{i}.weight": torch.randn(4, 4, generator=generator) for i in range(32)}
    save_tensors(tensors | {"ids": torch.arange(90), "flag": torch.tensor(True)}, tmp_path / "model.safetensors")
    return (tmp_path / "model.safetensors").read_bytes()


def test_a_file_cut_off_anywhere_is_refused(source: Any, tmp_path: Path, small: bytes) -> None:
    assert len(small) > 4500
    path = tmp_path / "model.safetensors"
    cuts = [*range(4096), *random.Random(0).sample(range(4096, len(small)), 100), len(small) - 1]
    path.write_bytes(small)
    with path.open("r+b") as file:
        for cut in sorted(cuts, reverse=True):
            file.truncate(cut)
            with pytest.raises(CheckpointError, match=r"model\.safetensors"):
                open_tensors(source)


def test_flipped_bits_in_the_header_never_get_past_a_checkpoint_error(
    source: Any, tmp_path: Path, small: bytes
) -> None:
    header_bytes = 8 + int.from_bytes(small[:8], "little")
    chance = random.Random(0)
    outcomes = set()
    for _ in range(1000):
        broken = bytearray(small)
        for _ in range(chance.choice((1, 1, 1, 2, 8))):
            broken[chance.randrange(header_bytes)] ^= 1 << chance.randrange(8)
        (tmp_path / "model.safetensors").write_bytes(broken)
        try:
            # What still reads has changed names or metadata only: the bytes are all accounted for.
            found = read_all(source)
            outcomes.add("read")
            assert sum(tensor.numel() * tensor.dtype.itemsize for tensor in found.values()) == len(small) - header_bytes
        except CheckpointError:
            outcomes.add("refused")
    assert outcomes == {"read", "refused"}


def test_a_file_cut_off_while_it_is_read_is_an_error_and_gives_no_tensor(
    source: Any, tmp_path: Path, small: bytes
) -> None:
    stored = open_tensors(source)
    assert stored.read("ids").tolist() == list(range(90))
    os.truncate(tmp_path / "model.safetensors", len(small) - 30)
    with stored, pytest.raises(CheckpointError, match="must stay whole while it is read, got its end in the middle of"):
        read_rest(stored)


def test_a_bool_that_is_neither_0_nor_1_is_refused(source: Any, tmp_path: Path, safetensors_bytes: Build) -> None:
    content = safetensors_bytes({"flag": entry("BOOL", (3,), (0, 3))}, b"\0\1\2")
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match="must hold 0 and 1 for 'flag', which is of dtype BOOL, got 2"):
        read_all(source)


LIMITED = """
import resource, sys
from pathlib import Path
from plainbert.checkpoints.folder import FolderSource
from plainbert.checkpoints.tensors import open_tensors
from plainbert.errors import CheckpointError

status = Path("/proc/self/status").read_text()
limit = int(status.split("VmSize:")[1].split()[0]) * 1024 + 80_000_000
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for folder in sys.argv[1:]:
    try:
        with open_tensors(FolderSource(folder, Path(folder))) as stored:
            print(len([stored.read(name) for name in stored.infos]))
    except CheckpointError as error:
        print(str(error)[:200])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_is_bounded_by_the_tensors_whatever_the_header_says(tmp_path: Path, safetensors_bytes: Build) -> None:
    """One process, which may take 80 MB more than it has after its imports."""
    hostile: list[tuple[Any, int | None, str]] = [
        ({"a": entry(shape=(2**34,), offsets=(0, 2**36))}, None, "data_offsets within"),
        ({"a": entry(shape=(2**34,))}, None, "must have 68719476736 bytes"),
        ({"a": entry(shape=(2**40, 2**40))}, None, "overflow"),
        (b"{}", 2**63, "exceeds the file"),
        (b'{"a":' + b"[" * 900_000, None, "nested at most"),
    ]
    folders = [tmp_path / str(number) for number in range(len(hostile))]
    for folder, (header, length, _) in zip(folders, hostile, strict=True):
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(safetensors_bytes(header, bytes(8), length))
    save_tensors({str(i): torch.ones(1_000_000) for i in range(13)}, tmp_path / "model.safetensors")
    done = subprocess.run(
        # 52 of the 80 MB, three times, so nothing is left behind either
        [sys.executable, "-W", "error", "-c", LIMITED, *map(str, folders), *[str(tmp_path)] * 3],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    *refusals, first, second, third = done.stdout.splitlines()
    assert [first, second, third] == ["13"] * 3
    for refusal, (_, _, said) in zip(refusals, hostile, strict=True):
        assert said in refusal


def put_shards(folder: Path, shards: dict[str, dict[str, float]], weight_map: dict[str, str]) -> None:
    for filename, values in shards.items():
        save_tensors({name: torch.tensor(value) for name, value in values.items()}, folder / filename)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def test_shards_are_one_set_of_tensors_and_no_other_file_is_opened(source: Any, tmp_path: Path) -> None:
    put_shards(tmp_path, {"1.st": {"a": 1.0, "b": 2.0}, "2.st": {"c": 3.0}}, {"a": "1.st", "c": "2.st", "b": "1.st"})
    (tmp_path / "3.st").write_bytes(b"not opened")
    with open_tensors(source) as stored:
        assert stored.paths == (tmp_path / "1.st", tmp_path / "2.st")
        assert {name: stored.read(name).item() for name in stored.infos} == {"a": 1.0, "b": 2.0, "c": 3.0}
        assert stored.infos["c"].path == tmp_path / "2.st"


@pytest.mark.parametrize(
    ("shards", "weight_map", "said"),
    [
        ({"1.st": "a", "2.st": "ab"}, {"a": "1.st", "b": "2.st"}, "got 'a' in both 1.st and 2.st"),
        ({"1.st": "a", "2.st": "b"}, {"a": "1.st", "b": "2.st", "x": "2.st"}, r"got 'x', which .* not hold \('2.st'\)"),
        ({"1.st": "a", "2.st": "b"}, {"a": "2.st", "b": "2.st", "c": "1.st"}, "got 'a', 'c', which the shard does not"),
        ({"1.st": "ae"}, {"a": "1.st"}, r"got 'e', which a shard holds unlisted \('1.st'\)"),
        ({"1.st": "a"}, dict.fromkeys("abcdefgh", "1.st"), "got 'b', 'c', 'd', 'e', 'f' and 2 more, which the shard"),
    ],
)
def test_index_and_shards_that_disagree_are_refused_with_the_names(
    source: Any, tmp_path: Path, shards: dict[str, str], weight_map: dict[str, str], said: str
) -> None:
    put_shards(tmp_path, {shard: dict.fromkeys(names, 1.0) for shard, names in shards.items()}, weight_map)
    with pytest.raises(CheckpointError, match=r"index\.json.*" + said):
        open_tensors(source)


def test_a_broken_shard_is_named_and_no_file_stays_open(source: Any, tmp_path: Path) -> None:
    put_shards(tmp_path, {"1.st": {"a": 1.0}, "2.st": {"b": 1.0}}, {"a": "1.st", "b": "2.st"})
    (tmp_path / "2.st").write_bytes((tmp_path / "2.st").read_bytes()[:-1])
    # A file left open is a ResourceWarning, which the test run turns into a failure.
    with pytest.raises(CheckpointError, match=r"2\.st must"):
        open_tensors(source)


@pytest.mark.skipif(sys.platform == "win32", reason="FIFOs and devices")
def test_a_shard_that_is_no_regular_file_is_refused_without_waiting(source: Any, tmp_path: Path) -> None:
    for name, make in (
        ("fifo", os.mkfifo),
        ("folder", os.mkdir),
        ("zero", lambda path: os.symlink("/dev/zero", path)),
    ):
        make(tmp_path / name)
        put_shards(tmp_path, {}, {"a": name})
        with pytest.raises(CheckpointError, match=rf"{name} must be a regular file, got a "):
            open_tensors(source)


def test_values_that_are_not_finite_are_read_and_can_be_counted(source: Any, tmp_path: Path) -> None:
    nan, inf = float("nan"), float("inf")
    tensors = {
        "fine": torch.full((9,), 60_000.0, dtype=torch.float16),  # the sum is beyond float16
        "big": torch.full((9,), 3e38),
        "huge": torch.full((9,), 1.7e308, dtype=torch.float64),
        "one_inf": torch.tensor([1.0, -inf]),
        "both": torch.tensor([inf, -inf, nan, 1.0], dtype=torch.bfloat16),
        "all": torch.full((3, 2), nan),
        "cancelled": torch.tensor([inf, -inf] * 40 + [nan]),
        "ids": torch.arange(4),
        "empty": torch.empty(0),
    }
    save_tensors(tensors, tmp_path / "model.safetensors")
    counts = {name: count_non_finite(tensor) for name, tensor in read_all(source).items()}
    assert counts == {
        "fine": 0,
        "big": 0,
        "huge": 0,
        "one_inf": 1,
        "both": 3,
        "all": 6,
        "cancelled": 81,
        "ids": 0,
        "empty": 0,
    }


def test_every_tensor_has_writable_memory_of_its_own_at_an_aligned_address(source: Any, tmp_path: Path) -> None:
    written = {str(size): torch.arange(size, dtype=torch.float32) for size in (1, 1000, 2**18 - 1, 2**18, 300_001)}
    save_tensors(written, tmp_path / "model.safetensors")
    found = read_all(source)
    for name, tensor in found.items():
        assert tensor.data_ptr() % 64 == 0
        assert tensor.untyped_storage().nbytes() == tensor.nbytes
        tensor.add_(1)
        assert torch.equal(tensor, written[name] + 1)
    assert all(torch.equal(tensor, written[name]) for name, tensor in read_all(source).items())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_process_does_not_share_what_it_writes(source: Any, tmp_path: Path) -> None:
    save_tensors({"w": torch.zeros(2**18)}, tmp_path / "model.safetensors")
    tensor = read_all(source)["w"].numpy()
    child = os.fork()
    if not child:
        tensor[:] = 1
        os._exit(0)
    os.waitpid(child, 0)
    assert not tensor.any()


def test_saving_takes_any_strides_shared_memory_and_parameters(source: Any, tmp_path: Path) -> None:
    base = torch.arange(12.0).reshape(3, 4)
    tensors = {"t": base.t(), "row": base[1], "whole": base, "p": torch.nn.Parameter(base), "e": base[:, :0]}
    save_tensors(tensors, tmp_path / "model.safetensors")
    found = read_all(source)
    assert all(same_bits(found[name], tensor.detach().contiguous()) for name, tensor in tensors.items())
    raw = (tmp_path / "model.safetensors").read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    assert header["__metadata__"] == {"format": "pt"}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([1.0], r"'w' must be a dense tensor with data to be saved, got \[1.0\]"),
        (torch.ones(2, 2).to_sparse(), "'w' must be a dense tensor with data to be saved, got"),
        (torch.ones(2, device="meta"), "'w' must be a dense tensor with data to be saved, got"),
        (torch.ones(2, dtype=torch.complex64), r"'w' must have a dtype out of .* to be saved, got torch\.complex64"),
    ],
)
def test_what_cannot_be_saved_is_refused_and_the_old_file_stays(tmp_path: Path, value: Any, said: str) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"old")
    with pytest.raises(CheckpointError, match=said):
        save_tensors({"a": torch.ones(1), "w": value}, path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["model.safetensors"]


@pytest.mark.skipif(sys.platform == "win32", reason="file modes and limits")
def test_saving_is_atomic_and_gives_the_mode_of_a_new_file(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    before = os.umask(0o027)
    try:
        save_tensors({"w": torch.ones(1)}, path)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o640
    old = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(CheckpointError, match=r"model\.safetensors must be writable, got .*File too large"):
            save_tensors({"w": torch.ones(10_000)}, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == old
    assert os.listdir(tmp_path) == ["model.safetensors"]


def test_saving_where_no_file_can_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"absent/model\.safetensors must be writable, got .*No such file"):
        save_tensors({"w": torch.ones(1)}, tmp_path / "absent" / "model.safetensors")
    (tmp_path / "model.safetensors").mkdir()
    with pytest.raises(CheckpointError, match=r"must be writable, got .*[Dd]irectory"):
        save_tensors({"w": torch.ones(1)}, tmp_path / "model.safetensors")
    assert os.listdir(tmp_path) == ["model.safetensors"]


def test_a_weight_file_that_is_gone_is_a_missing_file(source: Any, tmp_path: Path) -> None:
    put_shards(tmp_path, {"1.st": {"a": 1.0}}, {"a": "1.st"})
    source.path = lambda filename: tmp_path / filename if filename != "model.safetensors" else None
    (tmp_path / "1.st").unlink()
    with pytest.raises(MissingFileError, match=r"1\.st must be a file, got nothing of that name"):
        open_tensors(source)

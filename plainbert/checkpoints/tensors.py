"""Bytes to named tensors, and back.

Here: the safetensors format, several files as one set of tensors, and saving. `layout` chooses the files, `pickled`
reads what torch.save wrote. A file is never mapped into memory: another process may cut it off at any time, which
would kill this one, and the last bit of a product can depend on the address at which the weights start.
"""

from __future__ import annotations

import math
import mmap
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Protocol

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from plainbert.checkpoints.atomic import replacing
from plainbert.checkpoints.folder import Source
from plainbert.checkpoints.layout import WeightFiles, weight_files
from plainbert.checkpoints.pickled import PickledFile
from plainbert.checkpoints.safe import (
    open_regular,
    parse_object,
    read_at_most,
    refuse_known_strangers,
    show,
    show_some,
)
from plainbert.errors import CheckpointError

# Source of the format: the "Format" section of the safetensors README; its own limit is 100 MB.
MAX_HEADER_BYTES = 16 * 1024 * 1024

_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_MAX_INT64 = 2**63 - 1
_LARGE = 1024 * 1024


@dataclass(frozen=True)
class TensorInfo:
    """What is known of a stored tensor before it is read: its name, dtype, shape, and the file that holds it."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    path: Path


class _WeightFile(Protocol):
    """One open file of tensors."""

    infos: dict[str, TensorInfo]

    def read(self, name: str) -> torch.Tensor:
        """Give a tensor that has its memory to itself; once for each name."""

    def close(self) -> None:
        """Close the file and drop what is not read yet."""


class StoredTensors:
    """The tensors of a checkpoint, described when opened and read one by one; a context manager.

    Args:
        files: The open files; no name occurs in two of them.

    Attributes:
        infos: The description of every tensor by name.
        paths: The files.
    """

    def __init__(self, files: dict[Path, _WeightFile]) -> None:
        self._files = files
        self.paths = tuple(files)
        self.infos = {name: info for file in files.values() for name, info in file.infos.items()}

    def read(self, name: str) -> torch.Tensor:
        """Read a tensor into fresh memory of its own. To be called once for each name.

        Args:
            name: A key of `infos`.

        Returns:
            The tensor on the CPU, contiguous, of the stored dtype and shape, starting at an aligned address.

        Raises:
            CheckpointError: The file was cut off or changed since it was opened, or holds no such values.
        """
        return self._files[self.infos[name].path].read(name)

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()

    def __enter__(self) -> StoredTensors:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_tensors(source: Source) -> StoredTensors:
    """Open the weight files of a checkpoint and check them, without reading a tensor yet.

    Args:
        source: The checkpoint.

    Returns:
        Its tensors, to be read by name.

    Raises:
        MissingFileError: No weight file, or a listed shard is not there.
        CheckpointError: A file is broken or unsafe, or the index and the shards disagree; names the file.
    """
    chosen = weight_files(source)
    files: dict[Path, _WeightFile] = {}
    with ExitStack() as undo:
        for path in chosen.paths:
            files[path] = _SafetensorsFile(path) if chosen.kind == "safetensors" else _TorchFile(path)
            undo.callback(files[path].close)
        _check_shards(chosen, files)
        undo.pop_all()
    return StoredTensors(files)


def _check_shards(chosen: WeightFiles, files: dict[Path, _WeightFile]) -> None:
    owner: dict[str, Path] = {}
    for path, file in files.items():
        for name in file.infos:
            if name in owner:
                raise CheckpointError(
                    f"{chosen.index_path}: every weight must be in one shard, got {show(name)} in both "
                    f"{owner[name].name} and {path.name}; save the checkpoint again"
                )
            owner[name] = path
    if chosen.index is None:
        return
    absent = [name for name, path in chosen.index.items() if name not in files[path].infos]
    unlisted = [name for name in owner if name not in chosen.index]
    for names, what in ((absent, "which the shard does not hold"), (unlisted, "which a shard holds unlisted")):
        if names:
            shards = sorted({(chosen.index | owner)[name].name for name in names})
            raise CheckpointError(
                f"{chosen.index_path} must list exactly what the shards hold, got {show_some(names)}, {what} "
                f"({show_some(shards)}); save the checkpoint again"
            )


class _TorchFile:
    """Tensors of one torch.save file; all are loaded when the first is read."""

    def __init__(self, path: Path) -> None:
        self._file = PickledFile(path)
        self._loaded: dict[str, torch.Tensor] | None = None
        self.infos = {
            name: TensorInfo(name, view.storage.dtype, view.shape, path) for name, view in self._file.views.items()
        }
        self._users: dict[str, int] = {}
        for view in self._file.views.values():
            self._users[view.storage.key] = self._users.get(view.storage.key, 0) + 1

    def read(self, name: str) -> torch.Tensor:
        if self._loaded is None:
            self._loaded = self._file.load()
        tensor, view = self._loaded.pop(name), self._file.views[name]
        # The only user of a whole storage has its memory to itself already.
        if self._users[view.storage.key] == 1 and view.numel == view.storage.numel and tensor.is_contiguous():
            return tensor
        return tensor.clone(memory_format=torch.contiguous_format)

    def close(self) -> None:
        self._file.close()
        self._loaded = {}


class _SafetensorsFile:
    """Tensors of one safetensors file; the header is checked in full before anything is allocated."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.infos: dict[str, TensorInfo] = {}
        self._starts: dict[str, int] = {}
        with ExitStack() as undo:
            self._file = undo.enter_context(open_regular(path))
            self._read_header()
            undo.pop_all()

    def read(self, name: str) -> torch.Tensor:
        info = self.infos[name]
        tensor = _empty(info.shape, info.dtype)
        as_bytes = tensor.reshape(-1).view(torch.uint8)
        # One pass: the kernel copies from its cache straight into the tensor.
        rest = as_bytes.numpy().data
        self._file.seek(self._starts[name])
        while len(rest) > 0:
            count = self._file.readinto(rest)  # type: ignore[attr-defined]
            if not count:
                self._refuse(f"stay whole while it is read, got its end in the middle of {show(name)}")
            rest = rest[count:]
        if info.dtype == torch.bool and bool((as_bytes > 1).any()):
            self._refuse(f"hold 0 and 1 for {show(name)}, which is of dtype BOOL, got {int(as_bytes.max())}")
        return tensor

    def close(self) -> None:
        self._file.close()

    def _refuse(self, rule_and_value: str) -> NoReturn:
        raise CheckpointError(f"{self.path} must {rule_and_value}; download or save it again")

    def _read_header(self) -> None:
        size = self._file.seek(0, 2)
        self._file.seek(0)
        head = read_at_most(self._file, 64)
        length = int.from_bytes(head[:8], "little")
        # Only where the length is out of the question: a header of 60 bytes makes the file begin with "<".
        if size < 8 or length > min(size - 8, MAX_HEADER_BYTES):
            refuse_known_strangers(self.path, size, head, "a safetensors file")
        if size < 8:
            self._refuse(f"have a header, got {size} bytes in all")
        if length > size - 8:
            self._refuse(f"be whole, got a file of {size} bytes whose header length {length} exceeds the file")
        if length > MAX_HEADER_BYTES:
            self._refuse(f"have a header of at most {MAX_HEADER_BYTES} bytes, got {length}")
        self._file.seek(8)
        header = read_at_most(self._file, length)
        if len(header) < length or not header.startswith(b"{"):
            self._refuse(f"have a header that begins with {{, got {show(header[:8])}")
        entries = parse_object(header, f"{self.path}: the header")
        metadata = entries.pop("__metadata__", {})
        if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
            self._refuse(f"have texts as __metadata__, got {show(metadata)}")
        spans = sorted((self._entry(name, entry, size - 8 - length), name) for name, entry in entries.items())
        end = 0
        for (start, stop), name in spans:
            if start != end:
                fault = "overlaps the tensor before it" if start < end else "leaves a hole before it"
                self._refuse(
                    f"have its tensors side by side, got {show(name)} at byte {start}, which {fault} (at {end})"
                )
            self._starts[name] = 8 + length + start
            end = stop
        if end != size - 8 - length:
            self._refuse(f"end with its last tensor, got {size - 8 - length - end} bytes after it")

    def _entry(self, name: str, entry: Any, data_bytes: int) -> tuple[int, int]:
        """Check the header's entry of one tensor, note it in `infos`, and give where its bytes begin and end."""
        if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
            self._refuse(f"give dtype, shape and data_offsets for {show(name)}, got {show(entry)}")
        dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        if not isinstance(dtype, str) or dtype not in _DTYPES:
            eight_bit = isinstance(dtype, str) and dtype.startswith("F8")
            advice = " (an 8-bit float: dequantise the checkpoint first)" if eight_bit else ""
            self._refuse(f"have a dtype out of {', '.join(_DTYPES)} for {show(name)}, got {show(dtype)}{advice}")
        if not _are_counts(shape):
            self._refuse(f"have a shape of non-negative integers for {show(name)}, got {show(shape)}")
        if not _are_counts(offsets) or len(offsets) != 2 or not offsets[0] <= offsets[1] <= data_bytes:
            self._refuse(f"have data_offsets within its {data_bytes} bytes for {show(name)}, got {show(offsets)}")
        # Zeros do not hide an overflow: torch multiplies the other sizes for the strides.
        needed = strides = _DTYPES[dtype].itemsize
        for length in shape:
            needed, strides = needed * length, strides * max(length, 1)
            if strides > _MAX_INT64:
                self._refuse(f"have a shape that can be counted for {show(name)}, got {show(shape)} (overflow)")
        if needed != offsets[1] - offsets[0]:
            self._refuse(
                f"have {needed} bytes for {show(name)} of shape {show(shape)} and dtype {dtype}, "
                f"got {offsets[1] - offsets[0]}"
            )
        self.infos[name] = TensorInfo(name, _DTYPES[dtype], tuple(shape), self.path)
        return offsets[0], offsets[1]


def _empty(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Give a tensor on the CPU, whatever the default device is, with memory of its own.

    Most of the time of loading goes into the kernel handing out memory page by page, as it is first written to. Asking
    for all pages of a large tensor at once saved a fifth of the time of reading bert-base. Where a system cannot be
    asked, torch's own memory does.
    """
    size = math.prod(shape) * dtype.itemsize
    if size < _LARGE or not hasattr(mmap, "MAP_POPULATE"):
        return torch.empty(shape, dtype=dtype, device="cpu")
    # Private: a process that is forked off must not share what it trains.
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
    return torch.frombuffer(mmap.mmap(-1, size, flags=flags), dtype=dtype).view(shape)


def _are_counts(numbers: Any) -> bool:
    return isinstance(numbers, list) and all(type(number) is int and number >= 0 for number in numbers)


def count_non_finite(tensor: torch.Tensor) -> int:
    """Count NaN and infinite elements; 0 for integers.

    Args:
        tensor: Any shape and dtype, in main memory.

    Returns:
        The count. One pass when it is 0, as a sum is finite only if all of its terms are.
    """
    if not tensor.is_floating_point():
        return 0
    if tensor.dtype in (torch.float32, torch.float64):
        # numpy sums in this thread; torch would wake its pool for each tensor, which costs more than the sum. The
        # plain sum of einsum takes two thirds of the time of the pairwise one of np.sum, whose digits nobody needs.
        total = float(np.einsum("i->", tensor.numpy().reshape(-1)))
    else:
        total = float(tensor.sum())
    return 0 if math.isfinite(total) else int((~tensor.isfinite()).sum())


def save_tensors(tensors: dict[str, torch.Tensor], path: Path) -> None:
    """Write tensors to a safetensors file, whole or not at all.

    A temporary file in the same folder takes the name when all of it is on the disk. The order of the tensors in the
    file is that of the safetensors library. Tensors that share memory are each written in full.

    Args:
        tensors: The tensors by name, on any device, of any strides.
        path: The file, replaced if it is there.

    Raises:
        CheckpointError: A value is not a dense tensor of a dtype that can be stored, or the file cannot be written.
    """
    ready: dict[str, torch.Tensor] = {}
    owners: set[int] = set()
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided or tensor.is_meta:
            raise CheckpointError(f"{show(name)} must be a dense tensor with data to be saved, got {show(tensor)}")
        if tensor.dtype not in _DTYPES.values():
            known = ", ".join(str(dtype) for dtype in _DTYPES.values())
            raise CheckpointError(f"{show(name)} must have a dtype out of {known} to be saved, got {tensor.dtype}")
        plain = tensor.detach().to("cpu").contiguous()
        # The library refuses two names for one memory, which tied weights have.
        if plain.numel() > 0 and plain.untyped_storage().data_ptr() in owners:
            plain = plain.clone()
        owners.add(plain.untyped_storage().data_ptr())
        ready[name] = plain
    with replacing(path) as temporary:
        try:
            save_file(ready, temporary, metadata={"format": "pt"})
        except SafetensorError as error:
            raise CheckpointError(f"{path} must be writable, got {error}; nothing was changed") from error

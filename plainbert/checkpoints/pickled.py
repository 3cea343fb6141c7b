"""Reading what torch.save wrote, without trusting it.

A pickle is a program. Before `torch.load(weights_only=True)` gets it, `pickle_program` finds which tensors it
describes without executing it; anything but tensors in containers is refused, and so is a tensor that does not lie
inside its storage, or a storage that is not in the file. Both the zip form (torch 1.6 and later) and the older plain
form are read; the tar form of 2017 is not.

torch.load alone, which keeps a file from running code, does not keep it from taking the machine down (torch 2.13):

- 384 bytes that call `bytearray(2**30)`, an allowed name, take that gigabyte, on the "meta" device too.
- With tensors' names alone, 360 kB that copy one OrderedDict 300 times by calling its class take 1.7 GB and a minute.
- With no name at all, 900 kB of tuples in tuples used as a key end the process: hashing them overflows the C stack.

A list of allowed names in front of it stops the first. The others need the arguments of each call and the keys of
each dictionary, which is what `pickle_program` follows.
"""

from __future__ import annotations

import io
import logging
import pickle
import struct
import sys
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import torch

from plainbert.checkpoints.pickle_program import Described, ProgramReader, StoredView
from plainbert.checkpoints.safe import open_regular, read_at_most, refuse_known_strangers, show, show_some
from plainbert.errors import CheckpointError

_LOG = logging.getLogger("plainbert")

MAX_PICKLE_BYTES = 1024 * 1024  # a model of 1000 tensors needs 200 kB; going through it is slow
_TRUST = "convert it to safetensors on a machine where you trust it"
_AGAIN = "download or save it again"

_ZIP_START = b"PK\x03\x04"
# The first pickle of the older form: torch.serialization.MAGIC_NUMBER and the end of that pickle.
_PLAIN_START = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
_WRAPPERS = ("state_dict", "model", "model_state_dict")
# What training scripts put beside the weights, without a dictionary around these.
_METADATA = {"epoch", "global_step", "step", "iteration", "version", "best_metric", "config_name"}
# What torch.load raises for broken files, found by cutting and flipping bytes; RuntimeError covers torch's own reader.
_TORCH_LOAD_ERRORS = (
    pickle.UnpicklingError, RuntimeError, ValueError, TypeError, KeyError, IndexError, AttributeError, AssertionError,
    EOFError, OSError, OverflowError, MemoryError, struct.error,
)  # fmt: skip


class PickledFile:
    """One file of torch.save that holds the tensors of a model by name, checked when it is opened.

    Args:
        path: The file.

    Attributes:
        views: What it says about each tensor, by the tensor's name.

    Raises:
        MissingFileError: No such file.
        CheckpointError: It is broken, is of a form that is not read, or would do more than hold tensors.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with ExitStack() as undo:
            self.file = undo.enter_context(open_regular(path))
            contents, found = self._inspect()
            self._check_views(found.views)
            self._wrapper, self.views = self._named(contents)
            self._check_total()
            undo.pop_all()

    def load(self) -> dict[str, torch.Tensor]:
        """Load the tensors with torch.load(weights_only=True) on the CPU, and close the file.

        Returns:
            The tensors of `views` by name. Those that share a storage in the file share their memory.

        Raises:
            CheckpointError: torch refuses the file, or it was changed since it was inspected.
        """
        with io.BufferedReader(self.file) as file:  # type: ignore[type-var]
            file.seek(0)
            try:
                loaded = torch.load(file, map_location="cpu", weights_only=True)
                named = loaded if self._wrapper is None else loaded[self._wrapper]
                tensors = {name: named[name].detach() for name in self.views}
            except _TORCH_LOAD_ERRORS as error:
                reason = str(error).strip().split("\n")[0]
                self._refuse(f"be loadable with weights_only=True, got {type(error).__name__}: {reason[:200]}")
        for name, view in self.views.items():
            if tensors[name].shape != view.shape or tensors[name].dtype != view.storage.dtype:
                self._refuse(f"stay as it was while it is loaded, got another tensor for {show(name)}", _AGAIN)
        return tensors

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    def _named(self, contents: Any) -> tuple[str | None, dict[str, StoredView]]:
        """Find the tensors by name in what the pickle holds, with the key of the wrapper they are in."""
        if not isinstance(contents, dict):
            self._refuse(f"hold a dictionary of tensors by name, got {show(contents)}")
        wrappers = [key for key in _WRAPPERS if isinstance(contents.get(key), dict)]
        if len(wrappers) > 1:
            self._refuse(f"hold one model, got the dictionaries {show_some(wrappers)}")
        wrapper = wrappers[0] if wrappers else None
        views: dict[str, StoredView] = {}
        ignored = []
        if wrapper is not None:
            for key, value in contents.items():
                if isinstance(value, StoredView):
                    self._refuse(
                        f"hold all tensors of the model in {show(wrapper)}, got the tensor {show(key)} beside it"
                    )
            ignored = [str(key) for key in contents if key != wrapper]
            _LOG.info("%s: the weights are in %r; read from there", self.path, wrapper)
        for key, value in (contents if wrapper is None else contents[wrapper]).items():
            if isinstance(key, str) and isinstance(value, StoredView):
                views[key] = value
            elif key in _METADATA and isinstance(value, (bool, int, float, str, type(None))):
                ignored.append(key)
            else:
                self._refuse(f"hold tensors by name, got {show(value)} for {show(key)}")
        if ignored:
            _LOG.info("%s: not read, as no part of a model: %s", self.path, show_some(ignored))
        return wrapper, views

    def _refuse(self, rule_and_value: str, advice: str = _TRUST) -> NoReturn:
        raise CheckpointError(f"{self.path} must {rule_and_value}; nothing of it was executed; {advice}") from None

    def _inspect(self) -> tuple[Any, Described]:
        size = self.file.seek(0, 2)
        self.file.seek(0)
        head = read_at_most(self.file, 512)
        if head.startswith(_ZIP_START):
            return self._inspect_zip(size)
        if head.startswith(_PLAIN_START):
            return self._inspect_plain(size)
        if head[257:262] == b"ustar" or head.startswith(b"storages\0"):
            self._refuse("be in the form of torch 1.6 or later, got the tar form of 2017")
        if not head.startswith(b"\x80"):
            refuse_known_strangers(self.path, size, head, "a file of torch.save")
        self._refuse(f"be a file of torch.save, got the first bytes {show(head[:8])}", _AGAIN)

    def _inspect_zip(self, size: int) -> tuple[Any, Described]:
        sizes = dict(self._zip_entries(size))
        pickles = [name for name in sizes if name == "data.pkl" or name.endswith("/data.pkl")]
        if len(pickles) != 1 or pickles[0].count("/") > 1:
            self._refuse(f"hold one data.pkl, got {show_some(pickles) or 'none'}")
        folder = pickles[0].removesuffix("data.pkl")
        if f"{folder}constants.pkl" in sizes:
            self._refuse("hold tensors, got a TorchScript program")
        with zipfile.ZipFile(self.file) as archive:
            if archive.getinfo(pickles[0]).file_size > MAX_PICKLE_BYTES:
                self._refuse(f"have a data.pkl of at most {MAX_PICKLE_BYTES} bytes, got {sizes[pickles[0]]}")
            try:
                program = io.BytesIO(archive.read(pickles[0]))
                order = archive.read(f"{folder}byteorder") if f"{folder}byteorder" in sizes else b"little"
            except (zipfile.BadZipFile, EOFError) as error:
                self._refuse(f"be a whole zip archive, got {error}", _AGAIN)
        if order != sys.byteorder.encode():
            self._refuse(f"be {sys.byteorder}-endian, got {show(order)}")
        found = Described()
        contents = self._read_program(program, found, plain=False)
        for storage in found.storages.values():
            stored = sizes.get(f"{folder}data/{storage.key}")
            if stored != storage.numel * storage.dtype.itemsize:
                self._refuse(
                    f"hold {storage.numel * storage.dtype.itemsize} bytes for storage {show(storage.key)}, "
                    f"got {'none' if stored is None else stored}"
                )
        return contents, found

    def _zip_entries(self, size: int) -> Iterator[tuple[str, int]]:
        """Give name and length of every entry, having checked that all lie plainly side by side in the file."""
        self.file.seek(max(0, size - 22))
        end = read_at_most(self.file, 22)
        if end[:4] != b"PK\x05\x06" or end[20:] != b"\0\0":
            self._refuse(
                "end with the directory of its zip archive, got other bytes there (cut off, or added to)", _AGAIN
            )
        try:
            with zipfile.ZipFile(self.file) as archive:
                entries = sorted(archive.infolist(), key=lambda entry: entry.header_offset)
        except (zipfile.BadZipFile, ValueError, struct.error, OSError, RuntimeError) as error:
            self._refuse(f"be a whole zip archive, got {show(str(error))}", _AGAIN)
        seen: set[str] = set()
        free = 0  # where the next entry may begin
        for entry in entries:
            name = entry.orig_filename
            if not name.isprintable() or "\\" in name or name.startswith("/") or ".." in name.split("/"):
                self._refuse(f"hold entries with plain names, got {show(name)}")
            if name in seen:
                self._refuse(f"hold each entry once, got {show(name)} twice")
            if (
                entry.compress_type != zipfile.ZIP_STORED
                or entry.compress_size != entry.file_size
                or entry.flag_bits & ~0x808
            ):
                self._refuse(f"hold entries as they are, got {show(name)} compressed or encrypted")
            self.file.seek(max(0, entry.header_offset))
            header = read_at_most(self.file, 30)
            if (
                entry.header_offset < free
                or len(header) < 30
                or header[:4] != _ZIP_START
                or (not seen and entry.header_offset != 0)
            ):
                self._refuse(f"hold entries side by side, got {show(name)} at byte {entry.header_offset}")
            method, name_bytes, extra_bytes = struct.unpack("<8xH16xHH", header)
            if method != zipfile.ZIP_STORED or read_at_most(self.file, name_bytes) != name.encode():
                self._refuse(f"say the same in both places of the archive, got another name or form for {show(name)}")
            free = entry.header_offset + 30 + name_bytes + extra_bytes + entry.file_size
            if free > size:
                self._refuse(f"hold {show(name)} whole, got a file of {size} bytes where it ends at {free}", _AGAIN)
            seen.add(name)
            yield name, entry.file_size

    def _inspect_plain(self, size: int) -> tuple[Any, Described]:
        self.file.seek(0)
        program = io.BytesIO(read_at_most(self.file, MAX_PICKLE_BYTES))
        found = Described()
        self._read_program(program, found)
        version, system, contents, keys = (self._read_program(program, found) for _ in range(4))
        if version != 1001 or not isinstance(system, dict) or system.get("little_endian") is not True:
            self._refuse(f"be little-endian and of version 1001, got version {show(version)} of {show(system)}")
        if (
            not isinstance(keys, list)
            or not all(isinstance(key, str) for key in keys)
            or sorted(keys) != sorted(found.storages)
        ):
            self._refuse(f"list its storages once each, got {show(keys)}")
        # The storages follow in that order, each after its length.
        data = sum(8 + storage.numel * storage.dtype.itemsize for storage in found.storages.values())
        if program.tell() + data != size:
            self._refuse(f"have {program.tell() + data} bytes for the storages it declares, got {size}", _AGAIN)
        return contents, found

    def _read_program(self, program: BinaryIO, found: Described, plain: bool = True) -> Any:
        return ProgramReader(program, found, self._refuse, plain).read()

    def _check_views(self, views: list[StoredView]) -> None:
        for view in views:
            where = f"a tensor of shape {show(view.shape)}, strides {show(view.stride)}, offset {view.offset}"
            if view.end > view.storage.numel:
                self._refuse(f"hold tensors inside their storages, got {where} in a storage of {view.storage.numel}")
            if view.numel > view.storage.numel:
                self._refuse(f"hold every element, got {where} that repeats a storage of {view.storage.numel}")

    def _check_total(self) -> None:
        # Names may share a storage, as tied weights do, or a whole tensor, and each becomes a tensor of its own.
        total = sum(view.numel * view.storage.dtype.itemsize for view in self.views.values())
        size = self.file.seek(0, 2)
        if total > 2 * size:
            self._refuse(f"share storages between few names, got {total} bytes of tensors in a file of {size}")

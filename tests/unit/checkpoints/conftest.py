"""Checkpoint folders made by hand: what a source is asked for, and files broken in a chosen way."""

from __future__ import annotations

import collections
import io
import json
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from plainbert.checkpoints.folder import FolderSource


class AskedSource(FolderSource):
    """A local folder that counts what it was asked for, and leaves every file, whatever it is, to its reader."""

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder), folder)
        self.asked: list[str] = []

    def _locate(self, filename: str) -> Path | None:
        self.asked.append(filename)
        found = self.folder / filename
        return found if found.exists() else None


@pytest.fixture
def source(tmp_path: Path) -> AskedSource:
    """The folder `tmp_path` as a source."""
    return AskedSource(tmp_path)


@pytest.fixture(scope="session")
def safetensors_bytes() -> Callable[..., bytes]:
    """Give the bytes of a safetensors file from its header (a dictionary, or raw bytes) and its data."""

    def build(header: dict[str, Any] | bytes, data: bytes = b"", length: int | None = None) -> bytes:
        raw = header if isinstance(header, bytes) else json.dumps(header).encode()
        return struct.pack("<Q", len(raw) if length is None else length) + raw + data

    return build


class _Storage:
    """Stands in a pickle for storage `key` of float32."""

    def __init__(self, key: str, numel: Any) -> None:
        self.key, self.numel = key, numel


class _Tensor:
    """Pickles as the call that rebuilds a tensor, with arguments no real tensor could have."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return torch._utils._rebuild_tensor_v2, (*self.arguments, False, collections.OrderedDict())


@pytest.fixture(scope="session")
def write_torch() -> Callable[..., None]:
    """Write a file in either form of torch.save by hand.

    `declared` is the numel that the pickle gives for storage "0", `view` is (offset, shape, stride); or `program` is
    the whole pickle. `data` are the bytes stored.
    """

    def write(
        path: Path,
        declared: Any = 4,
        view: tuple[Any, Any, Any] = (0, (4,), (1,)),
        data: bytes = bytes(16),
        plain: bool = False,
        program: bytes | None = None,
        keys: Any = ("0",),
    ) -> None:
        class Pickler(pickle.Pickler):
            def persistent_id(self, item: Any) -> Any:
                if not isinstance(item, _Storage):
                    return None
                return ("storage", torch.FloatStorage, item.key, "cpu", item.numel) + (None,) * plain

        def pickled(item: Any) -> bytes:
            buffer = io.BytesIO()
            Pickler(buffer, 2).dump(item)
            return buffer.getvalue()

        if program is None:
            program = pickled({"w": _Tensor(_Storage("0", declared), *view)})
        if plain:
            system = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}
            start = pickled(0x1950A86A20F9469CFC6C) + pickled(1001) + pickled(system)
            path.write_bytes(start + program + pickled(list(keys)) + struct.pack("<q", len(data) // 4) + data)
            return
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("archive/data.pkl", program)
            archive.writestr("archive/byteorder", "little")
            archive.writestr("archive/data/0", data)
            archive.writestr("archive/version", "3\n")

    return write

"""Which files of a checkpoint hold its weights, and its JSON files read with care.

`tensors` opens what is chosen here; `hub` says where the files are.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from plainbert.checkpoints.folder import Source, is_plain
from plainbert.checkpoints.safe import open_regular, parse_object, read_at_most, show
from plainbert.errors import CheckpointError, MissingFileError

MAX_JSON_BYTES = 16 * 1024 * 1024

_SAFETENSORS = "model.safetensors"
_PICKLE = "pytorch_model.bin"
# What other frameworks leave beside, or instead of, PyTorch weights; matched at the end of the name.
_FOREIGN = {
    ".h5": "TensorFlow",
    ".msgpack": "Flax",
    ".ckpt": "TensorFlow",
    ".ckpt.index": "TensorFlow",
    ".ckpt.meta": "TensorFlow",
    ".data-00000-of-00001": "TensorFlow",
    ".onnx": "ONNX",
    ".ot": "Rust",
    ".gguf": "GGUF",
}


@dataclass(frozen=True)
class WeightFiles:
    """The files that hold a checkpoint's weights.

    Attributes:
        kind: How they are read: "safetensors", or "pickle" for what torch.save wrote.
        paths: The files, each once.
        index: The file of every weight by name, where there are several files and an index lists them.
        index_path: That index.
    """

    kind: Literal["safetensors", "pickle"]
    paths: tuple[Path, ...]
    index: dict[str, Path] | None = None
    index_path: Path | None = None


def weight_files(source: Source) -> WeightFiles:
    """Choose the files with the weights: safetensors before pickles, one file before several.

    Args:
        source: The checkpoint.

    Returns:
        The files of the first of model.safetensors, model.safetensors.index.json, pytorch_model.bin and
        pytorch_model.bin.index.json that is there.

    Raises:
        MissingFileError: None of them is there (says what is), or a listed shard is not.
        CheckpointError: The index is broken or names a file outside the folder.
    """
    kinds: tuple[tuple[str, Literal["safetensors", "pickle"]], ...] = (
        (_SAFETENSORS, "safetensors"),
        (_PICKLE, "pickle"),
    )
    for filename, kind in kinds:
        if (path := source.path(filename)) is not None:
            return WeightFiles(kind, (path,))
        if (path := source.path(f"{filename}.index.json")) is not None:
            return _sharded(source, kind, path)
    raise MissingFileError(_what_is_there_instead(source))


def read_json(path: Path, max_bytes: int = MAX_JSON_BYTES) -> dict[str, Any]:
    """Read a JSON object from a file.

    A UTF-8 byte order mark, which some editors write, is skipped.

    Args:
        path: The file.
        max_bytes: The most it may hold.

    Returns:
        The object; its numbers are finite and no key occurred twice.

    Raises:
        MissingFileError: No such file.
        CheckpointError: Not a regular file, larger than `max_bytes`, or not such JSON (see `safe.parse_object`).
    """
    with open_regular(path) as file:
        data = read_at_most(file, max_bytes + 1)
    if len(data) > max_bytes:
        raise CheckpointError(f"{path} must hold at most {max_bytes} bytes of JSON, got more; is it another file?")
    if data.startswith(b"version https://git-lfs"):
        raise CheckpointError(f"{path} must be JSON, got a Git LFS pointer; run `git lfs pull`")
    return parse_object(data.removeprefix(b"\xef\xbb\xbf"), str(path))


def _sharded(source: Source, kind: Literal["safetensors", "pickle"], index_path: Path) -> WeightFiles:
    # Some writers leave out "metadata"; nothing here needs it.
    weight_map = read_json(index_path).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{index_path}: weight_map must map weight names to files, got {show(weight_map)}")
    # Every name is checked before the first of them reaches the disk or the Hub.
    for weight, filename in weight_map.items():
        # The longest name that file systems take is 255; asking them for more is an error of its own on each.
        plain = isinstance(filename, str) and is_plain(filename) and "/" not in filename and len(filename) <= 255
        if not plain:
            raise CheckpointError(
                f"{index_path}: weight_map[{show(weight)}] must be the plain name of a file in the same folder, "
                f"got {show(filename)}; refused without opening it"
            )
    paths: dict[str, Path] = {}
    for filename in sorted(set(weight_map.values())):
        path = source.path(filename)
        if path is None:
            raise MissingFileError(
                f"{index_path} must list files that are there, got {show(filename)}, which is not; download it again"
            )
        paths[filename] = path
    index = {weight: paths[filename] for weight, filename in weight_map.items()}
    return WeightFiles(kind, tuple(paths.values()), index, index_path)


def _what_is_there_instead(source: Source) -> str:
    names = source.filenames()
    wanted = f"the checkpoint must have {_SAFETENSORS} or {_PICKLE} (or the index of its shards)"
    foreign = {kind: name for name in names for end, kind in _FOREIGN.items() if name.endswith(end)}
    others = [name for name in names if name.endswith((".safetensors", ".bin", ".pt", ".pth")) and "/" not in name]
    if any(name.startswith("adapter_model.") for name in names):
        return f"{wanted}, got an adapter alone; load the model it was trained on and merge the adapter into it first"
    if others:
        return f"{wanted}, got {show(others[0])}; rename it if it holds this model's weights"
    if foreign:
        found = ", ".join(f"{show(name)} ({kind})" for kind, name in sorted(foreign.items()))
        return (
            f"{wanted}, got only weights of other frameworks: {found}; load them with the library that wrote them "
            "(TensorFlow and Flax: transformers 4 with from_tf=True or from_flax=True) and save them as safetensors"
        )
    return f"{wanted}, got {', '.join(show(name) for name in names[:8]) or 'no files'}; is it the folder of a model?"

"""``plainbert convert``: a checkpoint of any stored form as one safetensors file with today's names."""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from plainbert.cli import common
from plainbert.errors import CheckpointError, InputError

if TYPE_CHECKING:
    from torch import Tensor

    from plainbert.checkpoints.folder import Source

# What describes a model and its tokenizer. Weights of other frameworks and code stay behind.
_COPIED = {".json", ".txt", ".md", ".model", ".jinja"}
_INDEXES = {"model.safetensors.index.json", "pytorch_model.bin.index.json"}
_TABLES = ("bert.embeddings.position_ids", "bert.embeddings.token_type_ids")


@click.command(
    "convert",
    epilog="""\b
Examples:
  plainbert convert old-bert-folder new-bert-folder
  plainbert convert google-bert/bert-base-chinese bert-base-chinese
""",
)
@click.argument("name", metavar="SRC")
@click.argument("target", metavar="DST", type=click.Path(path_type=Path))
@common.hub_options
@common.debug_option
def command(name: str, target: Path, **hub: Any) -> int:
    """Write the checkpoint SRC into the folder DST: model.safetensors, its config, its tokenizer.

    SRC is a local folder, a Hugging Face repo id, or minilm, with weights in safetensors or pytorch_model.bin, whole
    or in shards. Names of 2018 (gamma, beta) and prefixes of training tools become today's; values and dtypes stay.
    DST must not exist, or be empty. It appears when everything is written and read back equal, or not at all.
    """
    target = target.absolute()
    if target.exists() and Path(name).exists() and target.samefile(name):
        raise InputError(f"DST must be another folder than SRC, got {str(target)!r} for both; name a new one")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InputError(f"DST must be a new or empty folder, got {str(target)!r}, which is there; name a new one")
    if not target.parent.is_dir():
        raise InputError(f"DST must be in a folder that exists, got {str(target)!r}; make {str(target.parent)!r} first")

    from plainbert.checkpoints.folder import FolderSource
    from plainbert.checkpoints.hub import find
    from plainbert.checkpoints.tensors import save_tensors

    source = find(name, **hub)
    tensors, renamed, left_out = _read(source)
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
    partial.mkdir()
    try:
        save_tensors(tensors, partial / "model.safetensors")
        left_behind = _copy_others(source, partial)
        _compare(FolderSource(str(partial), partial), tensors)
        if target.exists():
            target.rmdir()  # empty: a rename over it works on some systems only
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    size = (target / "model.safetensors").stat().st_size
    click.echo(f"{common.printable(str(target))}: {len(tensors)} weights in model.safetensors, {size / 1e6:.1f} MB")
    click.echo(f"renamed: {len(renamed)}{''.join(f'{chr(10)}  {old} -> {new}' for old, new in renamed[:4])}")
    for what, names in (("not written, since it follows from the rest", left_out), ("not copied", left_behind)):
        if names:
            common.say("Note", f"{what}: {', '.join(names)}")
    return common.DONE


def _read(source: Source) -> tuple[dict[str, Tensor], list[tuple[str, str]], list[str]]:
    """Read every weight under the name it has today.

    Returns:
        Name to tensor; the renamed ones, old and new; and the names of those that need not be stored.
    """
    import torch

    from plainbert.checkpoints.layout import read_json
    from plainbert.checkpoints.tensors import open_tensors
    from plainbert.checkpoints.weight_map import wrapper_prefix
    from plainbert.config import BertConfig
    from plainbert.families.bert import WEIGHT_MAP

    config = BertConfig.from_dict(read_json(source.require("config.json")))
    tensors: dict[str, Tensor] = {}
    stored_as: dict[str, str] = {}
    left_out = []
    with open_tensors(source) as stored:
        wrapper = wrapper_prefix(stored.infos)
        for name in stored.infos:
            plain = name.removeprefix(wrapper)
            here = WEIGHT_MAP.name_here(plain) or plain
            tensor = stored.read(name)
            if here in _TABLES and torch.equal(tensor.flatten(), _usual_table(here, tensor)):
                left_out.append(name)
                continue
            # The table's names carry the prefix of a model with a head; a bare encoder is stored without it.
            today = here if plain.startswith("bert.") else here.removeprefix("bert.")
            if today in tensors:
                raise CheckpointError(f"{today} must be stored once, got {stored_as[today]!r} and {name!r}; keep one")
            tensors[today] = tensor
            stored_as[today] = name
    if config.tie_word_embeddings:
        for copy, original in (
            ("cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"),
            ("cls.predictions.decoder.bias", "cls.predictions.bias"),
        ):
            if copy in tensors and original in tensors and torch.equal(tensors[copy], tensors[original]):
                del tensors[copy]
                left_out.append(stored_as[copy])
    return tensors, [(old, new) for new, old in stored_as.items() if old != new and new in tensors], left_out


def _usual_table(name: str, tensor: Tensor) -> Tensor:
    """Give what the model computes in place of a stored table: positions 0, 1, 2 ..., or segments 0."""
    import torch

    table = torch.arange(tensor.numel()) if name.endswith("position_ids") else torch.zeros(tensor.numel())
    return table.to(tensor.dtype)


def _copy_others(source: Source, folder: Path) -> list[str]:
    """Copy what describes the model; give the names of what stays behind."""
    left_behind = []
    for filename in source.filenames():
        if filename in _INDEXES or filename.startswith(("model.safetensors", "model-", "pytorch_model")):
            continue  # these weights are in the new file
        if Path(filename).suffix.lower() not in _COPIED:
            left_behind.append(filename)
            continue
        copy = folder / filename
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source.require(filename), copy)
    return left_behind


def _compare(written: Source, tensors: dict[str, Tensor]) -> None:
    """Read the new file back and see that every value is there, to the bit."""
    import torch

    from plainbert.checkpoints.tensors import open_tensors

    with open_tensors(written) as stored:
        if set(stored.infos) != set(tensors):
            raise CheckpointError(
                f"{written.name} must hold {len(tensors)} weights, got {len(stored.infos)}; try again"
            )
        for name, tensor in tensors.items():
            again = stored.read(name)
            same = again.dtype == tensor.dtype and again.shape == tensor.shape
            # Compared as bytes, because NaN equals nothing.
            if not same or not torch.equal(_bytes(again), _bytes(tensor)):
                raise CheckpointError(f"{name} must read back as written, got other values; is the disk failing?")


def _bytes(tensor: Tensor) -> Tensor:
    import torch

    return tensor.contiguous().reshape(-1).view(torch.uint8)

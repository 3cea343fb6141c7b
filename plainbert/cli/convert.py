"""``plainbert convert``: a checkpoint of any stored form as one safetensors file with today's names."""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from plainbert.cli import common
from plainbert.cli.declared import plan_of
from plainbert.errors import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor

    from plainbert.checkpoints.folder import Source

# What describes a model and its tokenizer. Weights of other frameworks and code stay behind.
_COPIED = {".json", ".txt", ".md", ".model", ".jinja"}
_INDEXES = {"model.safetensors.index.json", "pytorch_model.bin.index.json"}


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
        raise click.UsageError(f"DST must be another folder than SRC, got {str(target)!r} for both; name a new one.")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise click.UsageError(f"DST must be a new or empty folder, got {str(target)!r}, which is there; name another.")
    if not target.parent.is_dir():
        raise click.UsageError(
            f"DST must be in a folder that exists, got {str(target)!r}; make {str(target.parent)!r} first."
        )

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

    Raises:
        CheckpointError: weights that loading would refuse.
    """
    import torch

    from plainbert.checkpoints.layout import read_json
    from plainbert.checkpoints.tensors import open_tensors
    from plainbert.config import BertConfig
    from plainbert.families.bert import WEIGHT_MAP
    from plainbert.models.pretrained import warn_of_odd_table

    config: BertConfig = BertConfig.from_dict(read_json(source.require("config.json")))
    tensors: dict[str, Tensor] = {}
    today_of: dict[str, str] = {}
    with open_tensors(source) as stored:
        model, plan = plan_of(config, stored.infos, ignore_mismatched_sizes=True)
        left_out = list(plan.buffers)
        for name in left_out:
            warn_of_odd_table(name, stored.read(name))
        planned = {name: here for here, name in plan.sources.items()}
        for name in stored.infos:
            if name in left_out:
                continue
            plain = name.removeprefix(plan.wrapper)
            # Heads that the declared model does not have are in no plan, and keep their values all the same.
            here = (planned.get(name) or WEIGHT_MAP.name_here(plain) or plain).removeprefix("bert.")
            # What is stored as a bare encoder, without the prefix of a model with a head, stays one.
            today = f"bert.{here}" if plain.startswith("bert.") else here
            if today in tensors:
                raise CheckpointError(f"{today} must be stored once, got it as {name!r} too; keep one")
            tensors[today] = stored.read(name)
            today_of[name] = today
    # A parameter with several names, such as a decoder tied to the embedding, is stored under the first of them.
    first: dict[int, str] = {}
    for here, parameter in model.state_dict(keep_vars=True).items():
        name = plan.sources.get(here, "")
        original = first.setdefault(id(parameter), name) if name else name
        if original != name and torch.equal(tensors[today_of[original]], tensors[today_of[name]]):
            del tensors[today_of.pop(name)]
            left_out.append(name)
    return tensors, [(old, new) for old, new in today_of.items() if old != new], left_out


def _copy_others(source: Source, folder: Path) -> list[str]:
    """Copy what describes the model; give the names of what stays behind."""
    from plainbert.checkpoints.layout import weight_files

    files = weight_files(source)
    read = {path.name for path in (*files.paths, files.index_path) if path is not None}  # they are in the new file
    left_behind = []
    for filename in source.filenames():
        if filename in read:
            continue
        if filename in _INDEXES or Path(filename).suffix.lower() not in _COPIED:
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

"""What the folder of a sentence encoder declares: pooling, normalisation, lengths, prompts.

Read from ``modules.json`` and the files it points to; ``embed.py`` does what they say.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plainbert.checkpoints.folder import FolderSource, Source
from plainbert.checkpoints.layout import read_json
from plainbert.checkpoints.safe import open_regular, parse_object, read_at_most
from plainbert.errors import CheckpointError, warn
from plainbert.models.pooling import POOLING_MODES

# The older spelling of 1_Pooling/config.json: one boolean per mode, in the order of concatenation.
_MODE_KEYS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_MAX_MODULES_BYTES = 1 << 20


@dataclass(frozen=True)
class Recipe:
    """What a folder says about turning token vectors into one vector a text."""

    pooling: tuple[str, ...] = ("mean",)
    """Pooling modes; their results are concatenated."""
    normalize: bool = False
    """Whether the vectors are scaled to length 1."""
    max_length: int | None = None
    """Longest text in tokens, special tokens included; None where the folder does not say."""
    lower_case: bool = False
    """Whether texts are lower-cased before the tokenizer sees them."""
    include_prompt: bool = True
    """Whether the tokens of a prompt count in the pooling."""
    prompts: Mapping[str, str] = field(default_factory=dict)
    """Prompts by name."""
    default_prompt_name: str | None = None
    """The prompt used when a call names none."""
    folder: str = ""
    """Where, inside the checkpoint, the encoder's own files are; empty for the root."""


def read_recipe(source: Source) -> Recipe:
    """Read ``modules.json`` and the files it points to.

    Args:
        source: the checkpoint.

    Returns:
        What they declare; for a checkpoint without ``modules.json``, the mean over the tokens, not normalised, with one
        warning.

    Raises:
        MissingFileError: the pooling's config.json is not there.
        CheckpointError: a module that is not built here, modules in another order, or a setting that is not honoured.

    Source: the folder layout of sentence-transformers, whose current and older spellings are both read.
    """
    path = source.path("modules.json")
    if path is None:
        warn(
            f"{source.name} has no modules.json, so nothing says how it pools; the mean over the tokens is used, not "
            "normalised"
        )
        return Recipe(**_read_prompts(source), **read_lengths(source, ""))
    modules = _read_modules(path)
    kinds = [kind for kind, _ in modules]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        unknown = [kind for kind in kinds if kind not in ("Transformer", "Pooling", "Normalize")]
        raise CheckpointError(
            f"{path}: the modules must be Transformer, Pooling and, if wanted, Normalize, got "
            f"{', '.join(unknown or kinds) or 'none'}; use BertModel for the token vectors"
        )
    folder, pooling_folder = modules[0][1], modules[1][1]
    pooling, include_prompt = _read_pooling(source.require(_join(pooling_folder, "config.json")))
    return Recipe(
        pooling=pooling,
        normalize="Normalize" in kinds,
        include_prompt=include_prompt,
        folder=folder,
        **_read_prompts(source),
        **read_lengths(source, folder),
    )


def _read_modules(path: Path) -> list[tuple[str, str]]:
    """Read modules.json: kind and folder of each module, in order."""
    with open_regular(path) as file:
        data = read_at_most(file, _MAX_MODULES_BYTES + 1).removeprefix(b"\xef\xbb\xbf")
    if len(data) > _MAX_MODULES_BYTES:
        raise CheckpointError(f"{path} must hold at most {_MAX_MODULES_BYTES} bytes, got more; it is a short list")
    # The one list among a checkpoint's JSON files: dressed as an object, it gets the checks that those get.
    entries = parse_object(b'{"modules": ' + data + b"}", str(path))["modules"]
    modules = []
    for entry in entries if isinstance(entries, list) else [entries]:
        kind = entry.get("type") if isinstance(entry, dict) else None
        folder = entry.get("path", "") if isinstance(entry, dict) else None
        if not isinstance(kind, str) or not isinstance(folder, str):
            raise CheckpointError(
                f'{path} must be a list of objects with a "type" and a "path", got {json.dumps(entry)[:80]}; '
                "save the model again with sentence-transformers"
            )
        # A type outside of sentence_transformers is code of somebody's own, whatever its last word is.
        ours = kind.split(".")[0] == "sentence_transformers"
        modules.append((kind.rsplit(".", 1)[-1] if ours else kind, folder))
    return modules


def _read_pooling(path: Path) -> tuple[tuple[str, ...], bool]:
    """Read a pooling's config.json in either spelling: its modes, and whether a prompt counts."""
    config = read_json(path)
    modes = config.get("pooling_mode")
    if modes is None:
        # Neither spelling present: sentence-transformers' own default. All of them false is no pooling at all.
        told = any(key in config for key in _MODE_KEYS)
        modes = [mode for key, mode in _MODE_KEYS.items() if config.get(key)] if told else ["mean"]
    modes = [modes] if isinstance(modes, str) else modes
    known = isinstance(modes, list) and bool(modes) and all(mode in POOLING_MODES for mode in modes)
    unknown = [key for key in config if key.startswith("pooling_mode") and key not in {"pooling_mode", *_MODE_KEYS}]
    if not known or any(config[key] for key in unknown):
        raise CheckpointError(
            f"{path}: the pooling must name at least one of {', '.join(POOLING_MODES)}, got "
            f"{', '.join(unknown) or json.dumps(modes)}; see whether the file is complete"
        )
    include_prompt = config.get("include_prompt", True)
    if not isinstance(include_prompt, bool):
        raise CheckpointError(f"{path}: include_prompt must be true or false, got {include_prompt!r}; correct the file")
    return tuple(modes), include_prompt


def read_lengths(source: Source, folder: str) -> dict[str, Any]:
    """Read ``sentence_bert_config.json``: the longest text, and whether texts are lower-cased."""
    path = source.path(_join(folder, "sentence_bert_config.json"))
    if path is None:
        return {}
    config = read_json(path)
    length, lower_case = config.get("max_seq_length"), config.get("do_lower_case", False)
    if length is not None and (not is_number(length) or length < 1):
        raise CheckpointError(f"{path}: max_seq_length must be a number from 1 on, got {length!r}; correct the file")
    if not isinstance(lower_case, bool):
        raise CheckpointError(f"{path}: do_lower_case must be true or false, got {lower_case!r}; correct the file")
    # Newer files name the task; only this one ends in token vectors of the bare encoder.
    task = config.get("transformer_task", "feature-extraction")
    if task != "feature-extraction":
        raise CheckpointError(
            f"{path}: transformer_task must be 'feature-extraction', got {task!r}; this one ends in no token vectors"
        )
    return {"max_length": length, "lower_case": lower_case}


def _read_prompts(source: Source) -> dict[str, Any]:
    """Read the prompts and the name of the default one from ``config_sentence_transformers.json``."""
    path = source.path("config_sentence_transformers.json")
    if path is None:
        return {}
    config = read_json(path)
    prompts, default = config.get("prompts") or {}, config.get("default_prompt_name")
    if not isinstance(prompts, dict) or not all(isinstance(text, str | None) for text in prompts.values()):
        raise CheckpointError(
            f"{path}: prompts must be an object of strings, got {json.dumps(prompts)[:80]}; correct the file"
        )
    if default is not None and default not in prompts:
        raise CheckpointError(
            f"{path}: default_prompt_name must be one of the prompts, {sorted(prompts)}, got {default!r}; correct it"
        )
    return {"prompts": {name: text or "" for name, text in prompts.items()}, "default_prompt_name": default}


def encoder_folder(source: Source, folder: str) -> Path:
    """Give the local folder of an encoder that is not at the root of its checkpoint, as very old ones have it."""
    if not isinstance(source, FolderSource):
        raise CheckpointError(
            f"{source.name}: the encoder must be at the root of a repo, got {folder!r} in modules.json; "
            "download the repo (hf download) and give the local folder"
        )
    return source.require(_join(folder, "config.json")).parent


def _join(folder: str, name: str) -> str:
    return f"{folder.rstrip('/')}/{name}" if folder else name


def is_number(value: object) -> bool:
    """Tell whether a value is a whole number; JSON's true and Python's True are not."""
    return isinstance(value, int) and not isinstance(value, bool)

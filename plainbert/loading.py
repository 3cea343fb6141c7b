"""The one place where files, family and model meet: load a checkpoint into a model, and save it again.

Loading is done in two steps. ``loading_plan.py`` decides from names and shapes alone which stored tensor becomes which
parameter, and refuses what does not fit. ``load_model`` then reads each tensor once, straight into the memory that the
parameter keeps.
"""

from __future__ import annotations

import copy
import inspect
import json
import logging
import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from plainbert.checkpoints.atomic import replacing
from plainbert.checkpoints.folder import Source
from plainbert.checkpoints.hub import find
from plainbert.checkpoints.layout import read_json
from plainbert.checkpoints.tensors import StoredTensors, count_non_finite, open_tensors, save_tensors
from plainbert.config import BertConfig
from plainbert.errors import CheckpointError, InputError, KeywordError, warn
from plainbert.loading_plan import LoadingPlan, listed, plan_loading
from plainbert.models.bert import BertModel
from plainbert.models.placement import resolve_device, resolve_dtype
from plainbert.models.pretrained import (
    BertPreTrainedModel,
    check_config,
    draw_parameter,
    warn_of_odd_table,
    without_weights,
)

if TYPE_CHECKING:
    from plainbert.text.tokenizer import BertTokenizer

logger = logging.getLogger("plainbert")

# What people pass to transformers, and what to do here.
_OTHER_WORDS = {
    "device_map": "pass device= to say where the weights go",
    "low_cpu_mem_usage": "leave it out, loading never holds two copies",
    "trust_remote_code": "leave it out, code of a checkpoint never runs",
    "use_safetensors": "leave it out, safetensors are taken where there are any",
    "output_loading_info": "leave it out, what was not simply read is a warning",
}

_Model = TypeVar("_Model", bound=BertPreTrainedModel)
_Config = TypeVar("_Config", bound=BertConfig)


# --- config and tokenizer ---


def load_config(cls: type[_Config], name: str | os.PathLike[str], hub: Mapping[str, Any], overrides: Any) -> _Config:
    """Read the config.json of ``name``; see ``BertConfig.from_pretrained``."""
    return _config_of(cls, find(name, **hub), overrides)


def _config_of(cls: type[_Config], source: Source, overrides: Mapping[str, Any]) -> _Config:
    return cls.from_dict(read_json(source.require("config.json")), **overrides)


def save_config(config: BertConfig, folder: Path) -> None:
    """Write config.json into ``folder``, at once or not at all; see ``BertConfig.save_pretrained``."""
    text = json.dumps(config.to_dict(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    with replacing(_writable(folder) / "config.json") as temporary:
        temporary.write_text(text, encoding="utf-8")


def save_tokenizer(tokenizer: BertTokenizer, folder: Path) -> None:
    """Write the tokenizer's files into ``folder``, each at once or not at all."""
    folder = _writable(folder)
    for filename, content in tokenizer.to_files().items():
        with replacing(folder / filename) as temporary:
            temporary.write_bytes(content)


def load_tokenizer(
    cls: type[BertTokenizer], name: str | os.PathLike[str], hub: Mapping[str, Any], overrides: Mapping[str, Any]
) -> BertTokenizer:
    """Read the tokenizer files of ``name``; ``overrides`` replace entries of tokenizer_config.json."""
    source = find(name, **hub)
    small = {}
    for filename in ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"):
        path = source.path(filename)
        small[filename] = {} if path is None else read_json(path)
    return cls.from_files(
        tokenizer_json=source.path("tokenizer.json"),
        vocab_txt=source.path("vocab.txt"),
        tokenizer_config=small["tokenizer_config.json"],
        special_tokens_map=small["special_tokens_map.json"],
        added_tokens=small["added_tokens.json"],
        overrides=overrides,
    )


# --- filling the model ---


@torch.inference_mode(False)  # parameters made in inference mode could never be trained
def load_model(
    cls: type[_Model],
    name: str | os.PathLike[str],
    *,
    hub: Mapping[str, Any],
    dtype: torch.dtype | str | None,
    device: torch.device | str,
    attn_implementation: str | None,
    config: BertConfig | None,
    ignore_mismatched_sizes: bool,
    overrides: Mapping[str, Any],
) -> _Model:
    """Load ``name`` into a ``cls``; see ``BertPreTrainedModel.from_pretrained`` for the arguments."""
    settings, arguments, old_dtype = _sort_keywords(cls, overrides)
    if dtype is not None and old_dtype is not None:
        raise InputError(
            f"dtype must be given once, got dtype={dtype!r} and torch_dtype={old_dtype!r}; drop the old word"
        )
    if attn_implementation is not None:
        settings["attn_implementation"] = attn_implementation
    place = resolve_device(device)
    source = find(name, **hub)
    if config is None:
        config = _config_of(BertConfig, source, settings)
    else:
        values = {key: value for key, value in check_config(config).to_dict().items() if key not in config.extra}
        run = {"attn_implementation": config.attn_implementation, "extra": config.extra}
        config = type(config).from_dict(values, **{**run, **settings})
    with open_tensors(source) as stored:
        if config.num_hidden_layers > len(stored.infos):  # building thousands of layers to find none takes minutes
            wrong = f"{config.num_hidden_layers} for {len(stored.infos)} weights"
            raise CheckpointError(f"num_hidden_layers must fit the weights, got {wrong}; correct config.json")
        with without_weights():
            model = cls(config, **arguments)
        plan = plan_loading(
            model,
            stored.infos,
            ignore_mismatched_sizes=ignore_mismatched_sizes,
            fewer_layers="num_hidden_layers" in settings,
        )
        if isinstance(model, BertModel) and not arguments.get("add_pooling_layer"):
            _drop_fresh_pooler(model, plan, name)
        target = _target_dtype(dtype if dtype is not None else old_dtype, config, stored)
        _fill(model, plan, stored, target, place)
    config.dtype = str(target).removeprefix("torch.")
    _report(model, plan, str(name))
    return model.eval()


def _drop_fresh_pooler(model: BertModel, plan: LoadingPlan, name: str | os.PathLike[str]) -> None:
    """Take the pooler away where the checkpoint has none: a made-up pooler_output would look like a real one."""
    fresh = [weight for weight in plan.fresh if weight.startswith("pooler.")]
    if not fresh:
        return
    if len(fresh) < len(list(model.pooler.parameters() if model.pooler else ())):
        raise CheckpointError(f"the pooler must be stored whole, got it without {listed(fresh)}; is the file complete?")
    model.pooler = None
    plan.fresh = [weight for weight in plan.fresh if weight not in fresh]
    warn(f"{name} has no pooler, so pooler_output is None; pass add_pooling_layer=True for a fresh one")


def _sort_keywords(
    cls: type[BertPreTrainedModel], overrides: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any], torch.dtype | str | None]:
    """Sort keywords into config fields, arguments of the constructor, and ``torch_dtype``; refuse the rest."""
    names = {item.name for item in fields(BertConfig)}
    own = list(inspect.signature(cls.__init__).parameters)[2:]
    settings = {key: value for key, value in overrides.items() if key in names}
    arguments = {key: value for key, value in overrides.items() if key in own and key not in names}
    unknown = sorted(overrides.keys() - names - set(own) - {"torch_dtype"})
    if unknown:
        takes = list(inspect.signature(BertPreTrainedModel.from_pretrained).parameters)[:-1] + own
        elsewhere = [_OTHER_WORDS[key] for key in unknown if key in _OTHER_WORDS]
        raise KeywordError(
            f"{cls.__name__}.from_pretrained has no keyword {', '.join(map(repr, unknown))}; "
            f"{'; '.join(elsewhere) or 'it takes ' + ', '.join(takes) + ', and every field of BertConfig'}"
        )
    return settings, arguments, overrides.get("torch_dtype")


def _target_dtype(dtype: torch.dtype | str | None, config: BertConfig, stored: StoredTensors) -> torch.dtype:
    """Return the dtype asked for, else the config's, else that of the first floating-point tensor stored."""
    if dtype is None or dtype == "auto":
        # By name: safetensors puts the widest dtype first, and one odd tensor must not decide for all.
        found = (
            stored.infos[name].dtype for name in sorted(stored.infos) if stored.infos[name].dtype.is_floating_point
        )
        dtype = config.dtype or next(found, torch.float32)
    return resolve_dtype(dtype)


def _fill(
    model: BertPreTrainedModel, plan: LoadingPlan, stored: StoredTensors, dtype: torch.dtype, device: torch.device
) -> None:
    """Read every tensor once into the memory that its parameter keeps, and draw what is fresh."""
    expected = model.state_dict(keep_vars=True)
    names_of: dict[int, list[str]] = {}
    for here, tensor in expected.items():
        names_of.setdefault(id(tensor), []).append(here)
    odd: list[str] = []

    def read(name: str) -> Tensor:
        tensor = stored.read(name)
        tensor = tensor.to(dtype) if tensor.is_floating_point() else tensor
        if count_non_finite(tensor):  # after the conversion: 1e6 is no number in float16
            odd.append(name)
        return tensor.to(device)

    for here_names in names_of.values():
        old = expected[here_names[0]]
        found = {here: read(plan.sources[here]) for here in here_names if here in plan.sources}
        values = list(found.values())
        if not found and old.is_meta:
            _replace(model, here_names, old, torch.empty(old.shape, dtype=dtype, device=device))
            path, _, leaf = here_names[0].rpartition(".")
            draw_parameter(model.get_submodule(path), leaf, model.config.initializer_range)
        elif found and all(torch.equal(values[0], other) for other in values[1:]):
            _replace(model, here_names, old, values[0])
        elif found:
            for here, tensor in found.items():
                _assign(model, here, nn.Parameter(tensor, requires_grad=old.requires_grad))
            warn(f"{' and '.join(found)} are stored with different values; both are kept, untied")
    for buffer in plan.buffers:
        warn_of_odd_table(buffer, stored.read(buffer))
    for tensor in (*model.parameters(), *model.buffers()):  # what a subclass made itself follows the rest
        tensor.data = tensor.data.to(device, dtype if tensor.is_floating_point() else tensor.dtype)
    if odd:
        warn(f"the weights hold, as {dtype}, NaN or Inf in {listed(odd)}; outputs will not be finite")


def _replace(model: nn.Module, names: list[str], old: Tensor, value: Tensor) -> None:
    """Let the parameter or buffer known by ``names`` hold ``value`` (in its own memory)."""
    if not old.is_meta:
        old.data = value
        return
    new = nn.Parameter(value, requires_grad=old.requires_grad)
    for name in names:
        _assign(model, name, new)


def _assign(model: nn.Module, name: str, parameter: nn.Parameter) -> None:
    path, _, leaf = name.rpartition(".")
    setattr(model.get_submodule(path), leaf, parameter)


def _report(model: BertPreTrainedModel, plan: LoadingPlan, name: str) -> None:
    """Say what was not simply read: one warning for fresh weights, one for weights that nobody used."""
    if plan.wrapper:
        logger.info("%s: took %r off every weight name", name, plan.wrapper)
    if plan.other_heads:
        logger.info("%s: not used by %s: %s", name, type(model).__name__, ", ".join(plan.other_heads))
    if plan.fresh:
        warn(
            f"{name} has no weights for {listed(plan.fresh)} of {type(model).__name__}; they are fresh, "
            "so train the model before using them"
        )
    if left := plan.unknown + plan.dropped_layers:
        warn(f"{name} has weights that {type(model).__name__} does not use: {listed(left)}")


# --- saving ---


def save_model(model: BertPreTrainedModel, folder: Path) -> None:
    """Write model.safetensors and config.json; see ``BertPreTrainedModel.save_pretrained``."""
    folder = _writable(folder)
    tensors: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in model.state_dict(keep_vars=True).items():
        # A tied parameter is stored once, under its first name. An untied decoder's bias keeps both names, because
        # transformers then looks for `decoder.bias`.
        if id(tensor) in seen and model.config.tie_word_embeddings:
            continue
        seen.add(id(tensor))
        tensors[name] = tensor.detach()
    save_tensors(tensors, folder / "model.safetensors")
    config = copy.deepcopy(model.config)
    config.architectures = [type(model).__name__]
    config.dtype = str(model.dtype).removeprefix("torch.")
    save_config(config, folder)


def _writable(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"save_directory must be a folder, got {folder} ({error.strerror})") from error
    return folder

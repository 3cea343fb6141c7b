"""The one place where files, family and model meet: load a checkpoint into a model, and save it again.

Loading is done in two steps. ``plan_loading`` decides from names and shapes alone which stored tensor becomes which
parameter, and refuses what does not fit. ``load_model`` then reads each tensor once, straight into the memory that the
parameter keeps.
"""

from __future__ import annotations

import copy
import inspect
import json
import logging
import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from plainbert.checkpoints.atomic import replacing
from plainbert.checkpoints.folder import Source
from plainbert.checkpoints.hub import find
from plainbert.checkpoints.layout import read_json
from plainbert.checkpoints.tensors import StoredTensors, TensorInfo, count_non_finite, open_tensors, save_tensors
from plainbert.checkpoints.weight_map import wrapper_prefix
from plainbert.config import BertConfig
from plainbert.errors import CheckpointError, InputError, KeywordError, PlainBertWarning
from plainbert.families.bert import ENCODER_NAMESPACES, WEIGHT_MAP
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


# --- which stored tensor becomes which parameter ---


@dataclass
class LoadingPlan:
    """What a checkpoint means for a model, decided from names and shapes.

    Attributes:
        sources: name in the model -> name on disk. Tied parameters have several names here.
        fresh: names in the model whose parameter the checkpoint does not have, so that it is drawn or left as a
            subclass made it.
        other_heads: names on disk of heads that this model does not have.
        unknown: names on disk that nothing here knows; outside the encoder.
        dropped_layers: names on disk of layers above ``num_hidden_layers``, which the caller has lowered.
        buffers: names on disk of tables that are computed here (``position_ids``).
        wrapper: what stands before every name on disk and was taken off, as "module.".
    """

    sources: dict[str, str] = field(default_factory=dict)
    fresh: list[str] = field(default_factory=list)
    other_heads: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    dropped_layers: list[str] = field(default_factory=list)
    buffers: list[str] = field(default_factory=list)
    wrapper: str = ""


def plan_loading(
    model: BertPreTrainedModel,
    infos: Mapping[str, TensorInfo],
    *,
    ignore_mismatched_sizes: bool = False,
    fewer_layers: bool = False,
) -> LoadingPlan:
    """Decide which stored tensor becomes which parameter of ``model``.

    Args:
        model: built, with or without memory.
        infos: name on disk -> dtype and shape.
        ignore_mismatched_sizes: a head parameter of another shape becomes fresh instead of an error.
        fewer_layers: the caller has lowered ``num_hidden_layers``, so that layers above are dropped.

    Raises:
        CheckpointError: encoder weights that are missing, unknown, of another shape, or stored twice.
    """
    expected = model.state_dict(keep_vars=True)
    plan = LoadingPlan(wrapper="" if infos.keys() & expected.keys() else wrapper_prefix(infos))
    prefix = "" if isinstance(model, BertModel) else f"{model.base_model_prefix}."
    plain = {name.removeprefix(plan.wrapper): name for name in infos}
    # A name that the model itself has means that parameter, whatever it is called: a subclass names its own freely.
    # In a file of a bare encoder the table comes first, since a subclass may have a `pooler` of its own.
    bare = prefix and "embeddings.word_embeddings.weight" in plain
    exact = {name for name in plain.keys() & expected.keys() if not (bare and WEIGHT_MAP.name_here(name))}
    mapped, unknown = WEIGHT_MAP.map_names(name for name in plain if name not in exact)
    plan.sources = {name: stored for name, stored in plain.items() if name in exact}
    layers = r"bert\.encoder\.layer\.(\d+)\..*"
    for ours, short in mapped.items():
        here = prefix + ours.removeprefix("bert.") if ours.startswith("bert.") else ours
        layer = re.fullmatch(layers, ours)
        if here in expected and here not in plan.sources:
            plan.sources[here] = plain[short]
        elif ours in ("bert.embeddings.position_ids", "bert.embeddings.token_type_ids"):
            plan.buffers.append(plain[short])
        elif layer and fewer_layers and int(layer[1]) >= model.config.num_hidden_layers:
            plan.dropped_layers.append(plain[short])
        elif layer or here in plan.sources:
            unknown.append(short)
        else:
            plan.other_heads.append(plain[short])
    of_encoder = (*ENCODER_NAMESPACES, prefix) if prefix else ENCODER_NAMESPACES
    _refuse_unknown_encoder_weights(model, [name for name in unknown if name.startswith(of_encoder)])
    plan.unknown = [plain[name] for name in unknown if not name.startswith(of_encoder)]
    _check_shapes(model, plan, expected, infos, ignore_mismatched_sizes)
    _find_missing(model, plan, expected)
    return plan


def _is_encoder_name(model: BertPreTrainedModel, name: str) -> bool:
    """Whether a name in the model belongs to the part that must come from the checkpoint: all below the pooler."""
    prefix = "" if isinstance(model, BertModel) else f"{model.base_model_prefix}."
    return name.startswith((f"{prefix}embeddings.", f"{prefix}encoder."))


def _refuse_unknown_encoder_weights(model: BertPreTrainedModel, names: list[str]) -> None:
    if names:
        raise CheckpointError(
            f"the checkpoint has encoder weights that this model does not: {_listed(names)}; "
            f"num_hidden_layers is {model.config.num_hidden_layers}. Adapters must be merged into the weights first, "
            "other architectures are not BERT"
        )


def _check_shapes(
    model: BertPreTrainedModel,
    plan: LoadingPlan,
    expected: Mapping[str, Tensor],
    infos: Mapping[str, TensorInfo],
    ignore_mismatched_sizes: bool,
) -> None:
    for here, stored in list(plan.sources.items()):
        shape, wanted = infos[stored].shape, tuple(expected[here].shape)
        if shape == wanted:
            continue
        if ignore_mismatched_sizes and not _is_encoder_name(model, here):
            del plan.sources[here]
            continue
        if _is_encoder_name(model, here):
            hint = "config.json and the weights disagree"
        else:
            hint = "load with the checkpoint's own labels, or pass ignore_mismatched_sizes=True to train a new head"
        raise CheckpointError(
            f"{stored} has the shape {shape} in the checkpoint but {wanted} in {type(model).__name__}; {hint}"
        )


def _find_missing(model: BertPreTrainedModel, plan: LoadingPlan, expected: Mapping[str, Tensor]) -> None:
    present = {id(expected[name]) for name in plan.sources}  # one name is enough for a tied parameter
    plan.fresh = [name for name, tensor in expected.items() if id(tensor) not in present]
    lost = [name for name in plan.fresh if _is_encoder_name(model, name) and expected[name].is_meta]
    if lost:
        raise CheckpointError(
            f"the checkpoint lacks {len(lost)} encoder weights of {type(model).__name__}: {_listed(lost)}; "
            "is this a BERT checkpoint, and is the file complete?"
        )


# --- filling the model ---


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
    if any(fresh.startswith("pooler.") for fresh in plan.fresh):
        model.pooler = None
        plan.fresh = [fresh for fresh in plan.fresh if not fresh.startswith("pooler.")]
        _warn(f"{name} has no pooler, so pooler_output is None; pass add_pooling_layer=True for a fresh one")


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
        raise KeywordError(
            f"{cls.__name__}.from_pretrained has no keyword {', '.join(map(repr, unknown))}; it takes "
            f"{', '.join(takes)}, and the fields of BertConfig: {', '.join(sorted(names))}"
        )
    return settings, arguments, overrides.get("torch_dtype")


def _target_dtype(dtype: torch.dtype | str | None, config: BertConfig, stored: StoredTensors) -> torch.dtype:
    """Return the dtype asked for, else the config's, else that of the first floating-point tensor stored."""
    if dtype is None or dtype == "auto":
        found = (info.dtype for info in stored.infos.values() if info.dtype.is_floating_point)
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
                _replace(model, [here], old, tensor)
            _warn(f"{' and '.join(found)} are stored with different values; both are kept, untied")
    for buffer in plan.buffers:
        warn_of_odd_table(buffer, stored.read(buffer))
    for tensor in (*model.parameters(), *model.buffers()):  # what a subclass made itself follows the rest
        tensor.data = tensor.data.to(device, dtype if tensor.is_floating_point() else tensor.dtype)
    if odd:
        _warn(f"the weights hold, as {dtype}, NaN or Inf in {_listed(odd)}; outputs will not be finite")


def _replace(model: nn.Module, names: list[str], old: Tensor, value: Tensor) -> None:
    """Let the parameter or buffer known by ``names`` hold ``value`` (in its own memory)."""
    if not old.is_meta:
        old.data = value
        return
    new = nn.Parameter(value, requires_grad=old.requires_grad)
    for name in names:
        path, _, leaf = name.rpartition(".")
        setattr(model.get_submodule(path), leaf, new)


def _report(model: BertPreTrainedModel, plan: LoadingPlan, name: str) -> None:
    """Say what was not simply read: one warning for fresh weights, one for weights that nobody used."""
    if plan.wrapper:
        logger.info("%s: took %r off every weight name", name, plan.wrapper)
    if plan.other_heads:
        logger.info("%s: not used by %s: %s", name, type(model).__name__, ", ".join(plan.other_heads))
    if plan.fresh:
        _warn(
            f"{name} has no weights for {_listed(plan.fresh)} of {type(model).__name__}; they are fresh, "
            "so train the model before using them"
        )
    if left := plan.unknown + plan.dropped_layers:
        _warn(f"{name} has weights that {type(model).__name__} does not use: {_listed(left)}")


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


def _listed(names: list[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def _warn(message: str) -> None:
    warnings.warn(message, PlainBertWarning, stacklevel=5)

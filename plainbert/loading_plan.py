"""Which stored tensor becomes which parameter: decided from names and shapes, before a byte of a weight is read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from plainbert.checkpoints.safe import show
from plainbert.checkpoints.tensors import TensorInfo
from plainbert.checkpoints.weight_map import wrapper_prefix
from plainbert.errors import CheckpointError
from plainbert.families.bert import ENCODER_NAMESPACES, WEIGHT_MAP
from plainbert.models.bert import BertModel
from plainbert.models.pretrained import BertPreTrainedModel


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
    prefix = _encoder_prefix(model)
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
        elif here in plan.sources:
            twice = f"as {plan.sources[here]!r} and as {plain[short]!r}"
            raise CheckpointError(f"the checkpoint must hold {here} once, got it twice, {twice}; keep one")
        elif layer:
            unknown.append(short)
        else:
            plan.other_heads.append(plain[short])
    of_encoder = (*ENCODER_NAMESPACES, prefix) if prefix else ENCODER_NAMESPACES
    _refuse_unknown_encoder_weights(model, [name for name in unknown if name.startswith(of_encoder)])
    plan.unknown = [plain[name] for name in unknown if not name.startswith(of_encoder)]
    _check_shapes(model, plan, expected, infos, ignore_mismatched_sizes)
    _find_missing(model, plan, expected)
    return plan


def _encoder_prefix(model: BertPreTrainedModel) -> str:
    """What stands before the names of the encoder in a model: nothing where the model is the encoder."""
    return "" if isinstance(model, BertModel) else f"{model.base_model_prefix}."


def _is_encoder_name(model: BertPreTrainedModel, name: str) -> bool:
    """Whether a name in the model belongs to the part that must come from the checkpoint: all below the pooler."""
    prefix = _encoder_prefix(model)
    return name.startswith((f"{prefix}embeddings.", f"{prefix}encoder."))


def _refuse_unknown_encoder_weights(model: BertPreTrainedModel, names: list[str]) -> None:
    if names:
        raise CheckpointError(
            f"the checkpoint has encoder weights that this model does not: {listed(names)}; "
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
        if infos[stored].dtype.is_floating_point != expected[here].is_floating_point():
            kind = "a floating-point dtype" if expected[here].is_floating_point() else "integers"
            raise CheckpointError(
                f"{listed([stored])} must have {kind}, got {infos[stored].dtype}; are these weights quantised? "
                "Use the original checkpoint"
            )
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
            f"the checkpoint lacks {len(lost)} encoder weights of {type(model).__name__}: {listed(lost)}; "
            "is this a BERT checkpoint, and is the file complete?"
        )


def listed(names: list[str]) -> str:
    """Join names for a message: the first six and a count, escaped, since a file's names are a stranger's."""
    return ", ".join(show(name)[1:-1] for name in names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")

"""What a checkpoint declares, seen before any of its weights is read: its head, and the plan of loading it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import plainbert

if TYPE_CHECKING:
    from plainbert.checkpoints.tensors import TensorInfo
    from plainbert.config import BertConfig
    from plainbert.loading_plan import LoadingPlan
    from plainbert.models.pretrained import BertPreTrainedModel

HEADS = ("BertModel", *(name for name in plainbert.__all__ if name.startswith("BertFor")))


def declared_head(config: BertConfig) -> str:
    """Name the model that a checkpoint was saved from, or the bare encoder where none of ours is named."""
    return next((name for name in config.architectures or () if name in HEADS), "BertModel")


def plan_of(
    config: BertConfig, infos: Mapping[str, TensorInfo], *, ignore_mismatched_sizes: bool = False
) -> tuple[BertPreTrainedModel, LoadingPlan]:
    """Plan the load of the declared head, without carrying it out.

    Args:
        config: of the checkpoint.
        infos: name on disk -> dtype and shape.
        ignore_mismatched_sizes: a head weight of another shape than the config says is left out of the plan.

    Returns:
        The model as shapes alone, and where each of its parameters is stored.

    Raises:
        CheckpointError: what loading would refuse by names and shapes.
    """
    from plainbert.loading_plan import plan_loading
    from plainbert.models.pretrained import without_weights

    with without_weights():
        model: BertPreTrainedModel = getattr(plainbert, declared_head(config))(config)
    return model, plan_loading(model, infos, ignore_mismatched_sizes=ignore_mismatched_sizes)

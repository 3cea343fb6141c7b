"""The losses of the task heads: means over what there is to predict, 0 where there is nothing."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from plainbert.config import BertConfig
from plainbert.errors import InputError
from plainbert.models.inputs import check_tensors, sees_values

IGNORED_LABEL = -100  # the label that says "nothing to predict here", as everywhere in PyTorch


def cross_entropy(logits: Tensor, labels: Tensor, name: str = "labels") -> Tensor:
    """Return the mean of ``-log softmax(logits)[label]`` over the labels that are not -100; 0 when all are.

    Args:
        logits: (N, C).
        labels: N integers in any shape, -100 or from 0 to C - 1.
        name: how the caller knows the labels, for the error.

    Raises:
        InputError: a count, dtype or value that does not fit the logits.
    """
    check_tensors(**{name: labels})
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise InputError(f"{name} must be integers (class numbers), got {labels.dtype}")
    if labels.numel() != logits.shape[0]:
        raise InputError(f"{name} must hold one label for each of {logits.shape[0]} rows, got {tuple(labels.shape)}")
    labels = labels.flatten()
    classes = logits.shape[1]
    if sees_values(labels):
        wrong = labels[(labels != IGNORED_LABEL) & ((labels < 0) | (labels >= classes))]
        if wrong.numel():
            raise InputError(f"{name} must be {IGNORED_LABEL} or from 0 to {classes - 1}, got {int(wrong[0])}")
    labels = labels.long()
    total = F.cross_entropy(logits, labels, ignore_index=IGNORED_LABEL, reduction="sum")
    return total / (labels != IGNORED_LABEL).sum().clamp(min=1)


def position_loss(logits: Tensor, positions: Tensor, name: str) -> Tensor:
    """Return the cross entropy of ``logits`` (B, S) at one position a row; positions outside the row are ignored."""
    check_tensors(**{name: positions})
    inside = (positions >= 0) & (positions < logits.shape[1])
    return cross_entropy(logits, positions.where(inside, IGNORED_LABEL), name)


def classification_loss(config: BertConfig, logits: Tensor, labels: Tensor) -> Tensor:
    """Return the loss () of sequence classification for ``logits`` (B, C).

    The kind of problem is decided for each call, and the config is not changed by it.

    Raises:
        InputError: labels of another shape or value.
    """
    check_tensors(labels=labels)
    problem = config.problem_type
    if problem is None:
        whole = not labels.is_floating_point() and labels.dtype != torch.bool
        problem = "single_label_classification" if whole else "multi_label_classification"
        problem = "regression" if config.num_labels == 1 else problem
    if problem == "single_label_classification":
        return cross_entropy(logits, labels)
    if problem == "regression" and logits.shape[1] == 1 and labels.ndim == 1:
        labels = labels[:, None]
    if labels.shape != logits.shape:
        raise InputError(f"labels must have the shape {tuple(logits.shape)} for {problem}, got {tuple(labels.shape)}")
    labels = labels if labels.is_floating_point() else labels.to(logits.dtype)
    criterion = F.mse_loss if problem == "regression" else F.binary_cross_entropy_with_logits
    # The mean of nothing would be NaN.
    return criterion(logits, labels, reduction="mean" if labels.numel() else "sum")

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
    """Return the mean of ``-log softmax(logits)[label]``, a scalar, over the labels that are not -100; 0 without any.

    Args:
        logits: (..., C).
        labels: integers, -100 or from 0 to C - 1, in the shape of the logits without C; or all in one dimension.
        name: how the caller knows the labels, for the error.

    Raises:
        InputError: a shape, dtype or value that does not fit the logits.
    """
    check_tensors(**{name: labels})
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise InputError(f"{name} must be integers (class numbers), got {labels.dtype}; convert with .long()")
    wanted, given, classes = tuple(logits.shape[:-1]), tuple(labels.shape), logits.shape[-1]
    logits, labels = logits.flatten(0, -2), labels.flatten()
    if given not in (wanted, (*wanted, 1), tuple(logits.shape[:1])):
        raise InputError(f"{name} must have the shape {wanted}, got {given}; one label for each row of logits")
    if sees_values(labels):
        wrong = labels[(labels != IGNORED_LABEL) & ((labels < 0) | (labels >= classes))]
        if wrong.numel():
            raise InputError(
                f"{name} must be {IGNORED_LABEL} or from 0 to {classes - 1}, got {int(wrong[0])}; is num_labels right?"
            )
    labels = labels.long()
    total = F.cross_entropy(logits, labels, ignore_index=IGNORED_LABEL, reduction="sum")
    return total / (labels != IGNORED_LABEL).sum().clamp(min=1)


def position_loss(logits: Tensor, positions: Tensor, name: str) -> Tensor:
    """Return the cross entropy of ``logits`` (B, S) at one position a row; positions outside the row are ignored."""
    check_tensors(**{name: positions})
    inside = (positions >= 0) & (positions < logits.shape[1])
    return cross_entropy(logits, positions.where(inside, IGNORED_LABEL), name)


def classification_loss(config: BertConfig, logits: Tensor, labels: Tensor) -> Tensor:
    """Return the loss of sequence classification, a scalar, for ``logits`` (B, C).

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
        raise InputError(
            f"labels must have the shape {tuple(logits.shape)} for {problem}, got {tuple(labels.shape)}; "
            "set problem_type if another problem is meant"
        )
    labels = labels if labels.is_floating_point() else labels.to(logits.dtype)
    if problem == "multi_label_classification" and sees_values(labels):
        wrong = labels[~((labels >= 0) & (labels <= 1))]  # probabilities are fine, NaN is not
        if wrong.numel():
            raise InputError(f"labels must be from 0 to 1 for {problem}, got {wrong[0].item():g}; set problem_type?")
    criterion = F.mse_loss if problem == "regression" else F.binary_cross_entropy_with_logits
    # The mean of nothing would be NaN.
    return criterion(logits, labels, reduction="mean" if labels.numel() else "sum")

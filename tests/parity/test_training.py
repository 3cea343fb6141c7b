"""Every gradient, with dropout off and on, and what an optimizer makes of it, equals transformers' to the last bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch


def test_gradients_are_equal_with_dropout_off_and_on(
    parity: Any, head: str, attention: str, dtype: torch.dtype, std: float
) -> None:
    ours, theirs = parity.pair(head, attention, dtype, std)
    inputs = {**parity.batch(head), **parity.labels(head)}
    parity.assert_same_gradients(ours, theirs, inputs)
    off = parity.gradients(ours, inputs)
    ours.train(), theirs.train()
    parity.assert_same_gradients(ours, theirs, inputs)
    on = parity.gradients(ours, inputs)
    ours.eval(), theirs.eval()
    assert any(not torch.equal(on[name], off[name]) for name in off), "dropout must have been on"


def test_outputs_states_and_maps_are_equal_while_dropout_is_on(parity: Any, head: str, attention: str) -> None:
    ours, theirs = parity.pair(head, attention)
    inputs = {**parity.batch(head), "output_hidden_states": True, "output_attentions": attention == "eager"}
    outputs = []
    for model in (ours.train(), theirs.train()):
        torch.manual_seed(3)
        with torch.no_grad():
            outputs.append(model(**inputs))
        model.eval()
    for name, value in outputs[0].items():
        parity.assert_equal(value, getattr(outputs[1], name), name)


def test_three_steps_of_adamw_lead_to_the_same_parameters(
    parity: Any, head: str, attention: str, dtype: torch.dtype, std: float
) -> None:
    ours, theirs = parity.pair(head, attention, dtype, std)
    inputs = {**parity.batch(head), **parity.labels(head)}
    parity.assert_same_tensors(parity.after_steps(ours, inputs), parity.after_steps(theirs, inputs))


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_gradient_checkpointing_changes_no_gradient(parity: Any, head: str, attention: str, mode: str) -> None:
    ours, theirs = parity.pair(head, attention)
    ours.train(mode == "train"), theirs.train(mode == "train")
    inputs = {**parity.batch(head), **parity.labels(head)}
    plain = parity.gradients(ours, inputs)
    ours.gradient_checkpointing_enable()
    runs = []
    hook = ours.base_model.encoder.layer[0].intermediate.register_forward_hook(lambda *_: runs.append(1))
    parity.assert_same_tensors(parity.gradients(ours, inputs), plain)
    assert len(runs) == (2 if mode == "train" else 1), "a layer is computed again, while training only"
    hook.remove()
    parity.assert_same_gradients(ours, theirs, inputs)
    theirs.activation_checkpointing_enable()
    parity.assert_same_gradients(ours, theirs, inputs)
    ours.gradient_checkpointing_disable()
    theirs.activation_checkpointing_disable()
    parity.assert_same_tensors(parity.gradients(ours, inputs), plain)
    ours.eval(), theirs.eval()


@pytest.mark.parametrize(
    ("kind", "classes", "declared"),
    [
        ("single_label_classification", 3, True),
        ("single_label_classification", 3, False),
        ("multi_label_classification", 3, True),
        ("multi_label_classification", 3, False),
        ("multi_label_classification", 1, True),
        ("regression", 3, True),
        ("regression", 1, True),
        ("regression", 1, False),
    ],
)
def test_the_losses_of_sequence_classification_are_equal(
    parity: Any, kind: str, classes: int, declared: bool, dtype: torch.dtype
) -> None:
    head = "BertForSequenceClassification"
    labels = {
        "single_label_classification": torch.tensor([0, classes - 1, 0]),
        "multi_label_classification": torch.randint(0, 2, (3, classes)).to(dtype),
        "regression": torch.randn((3, classes) if classes > 1 else 3, dtype=dtype),
    }[kind]
    # Where the config does not declare the problem the labels decide; in transformers for good, so nothing is shared.
    ours, theirs = parity.own_pair(head, dtype=dtype, problem_type=kind if declared else None, num_labels=classes)
    inputs = {**parity.batch(head), "labels": labels}
    parity.assert_same_outputs(head, ours, theirs, inputs)
    parity.assert_same_gradients(ours, theirs, inputs)


def test_a_loss_is_equal_whatever_part_of_the_labels_is_to_be_predicted(parity: Any) -> None:
    for head, classes in (("BertForMaskedLM", 99), ("BertForTokenClassification", 3)):
        ours, theirs = parity.pair(head)
        for kept in (1, 2, 3, 7, 20, 33):
            labels = torch.randint(0, classes, (33,))
            labels[torch.randperm(33)[kept:]] = -100
            inputs = {**parity.batch(head, seed=kept), "labels": labels.view(3, 11)}
            parity.assert_same_outputs(head, ours, theirs, inputs)


def test_a_fresh_classifier_learns_as_in_transformers_with_its_own_dropout(parity: Any) -> None:
    for head in ("BertForSequenceClassification", "BertForTokenClassification", "BertForMultipleChoice"):
        ours, theirs = parity.pair(head, classifier_dropout=0.5, hidden_dropout_prob=0.2)
        inputs = {**parity.batch(head), **parity.labels(head)}
        parity.assert_same_tensors(parity.after_steps(ours, inputs), parity.after_steps(theirs, inputs))

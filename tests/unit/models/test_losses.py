"""Losses: means over what there is to predict, nothing over nothing, and a refusal for what cannot be a label."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from plainbert import BertConfig, InputError
from plainbert.models.losses import classification_loss, cross_entropy, position_loss


@pytest.fixture
def logits() -> Tensor:
    return torch.randn(6, 5, requires_grad=True)


def test_the_loss_is_the_mean_over_what_is_not_ignored(logits: Tensor) -> None:
    labels = torch.tensor([1, -100, 4, 0, -100, 2])
    assert torch.equal(cross_entropy(logits, labels), F.cross_entropy(logits, labels))
    assert torch.equal(cross_entropy(logits, labels.int()), cross_entropy(logits, labels))
    assert torch.equal(cross_entropy(logits.view(2, 3, 5), labels.view(2, 3)), cross_entropy(logits, labels))


def test_with_nothing_to_predict_the_loss_is_zero_and_so_is_its_gradient(logits: Tensor) -> None:
    loss = cross_entropy(logits, torch.full((6,), -100))
    loss.backward()
    assert loss == 0.0
    assert (logits.grad == 0).all()


def test_an_empty_batch_has_a_loss_of_zero() -> None:
    assert float(cross_entropy(torch.zeros(0, 5), torch.zeros(0, dtype=torch.long))) == 0.0


@pytest.mark.parametrize("wrong", [5, -1, -99, -101, 2**40])
def test_a_label_outside_the_classes_is_refused(logits: Tensor, wrong: int) -> None:
    with pytest.raises(InputError, match=f"next_sentence_label must be -100 or from 0 to 4, got {wrong}"):
        cross_entropy(logits, torch.tensor([1, 2, wrong, 0, 0, 0]), "next_sentence_label")


@pytest.mark.parametrize("shape", [(5,), (7,), (6, 2), (), (0,)])
def test_another_number_of_labels_is_refused(logits: Tensor, shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=rf"labels must have the shape \(6,\), got {re.escape(str(shape))}"):
        cross_entropy(logits, torch.zeros(shape, dtype=torch.long))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bool], ids=str)
def test_labels_that_are_no_class_numbers_are_refused(logits: Tensor, dtype: torch.dtype) -> None:
    with pytest.raises(InputError, match=rf"labels must be integers \(class numbers\), got {dtype}"):
        cross_entropy(logits, torch.zeros(6, dtype=dtype))


@pytest.mark.parametrize(
    "loss",
    [
        lambda config, logits, labels: cross_entropy(logits, labels),
        lambda config, logits, labels: position_loss(logits, labels, "labels"),
        classification_loss,
    ],
)
def test_labels_that_are_no_tensor_are_refused(
    logits: Tensor, loss: Callable[[BertConfig, Tensor, object], Tensor], config: BertConfig
) -> None:
    with pytest.raises(InputError, match="labels must be a tensor, got list"):
        loss(config, logits, [0] * 6)


@pytest.mark.parametrize("outside", [-1, -100, -5, 5, 1000])
def test_a_position_outside_the_row_is_ignored(logits: Tensor, outside: int) -> None:
    positions = torch.tensor([0, outside, 4, outside, 2, 1])
    kept = torch.tensor([0, 2, 4, 5])
    torch.testing.assert_close(
        position_loss(logits, positions, "start_positions"), F.cross_entropy(logits[kept], positions[kept])
    )
    nothing = position_loss(logits, torch.full((6, 1), outside), "start_positions")
    nothing.backward()
    assert nothing == 0.0
    assert (logits.grad == 0).all()


# --- sequence classification ---


@pytest.mark.parametrize(
    ("classes", "labels", "expected"),
    [
        (3, torch.tensor([0, 2]), "cross entropy"),
        (3, torch.tensor([[0], [2]]), "cross entropy"),
        (3, torch.tensor([0, 2], dtype=torch.int32), "cross entropy"),
        (3, torch.tensor([[1.0, 0, 1], [0, 0, 1]]), "binary"),
        (3, torch.tensor([[1, 0, 1], [0, 0, 1]]).bool(), "binary"),
        (1, torch.tensor([0.5, -1.0]), "squares"),
        (1, torch.tensor([[0.5], [-1.0]]), "squares"),
        (1, torch.tensor([1, 3]), "squares"),
    ],
)
def test_without_a_problem_type_the_labels_decide(
    config: BertConfig, classes: int, labels: Tensor, expected: str
) -> None:
    config.num_labels = classes
    logits = torch.randn(2, classes)
    losses = {
        "cross entropy": lambda: F.cross_entropy(logits, labels.flatten().long()),
        "binary": lambda: F.binary_cross_entropy_with_logits(logits, labels.float()),
        "squares": lambda: F.mse_loss(logits, labels.float().view(2, 1)),
    }
    assert torch.equal(classification_loss(config, logits, labels), losses[expected]())


def test_each_call_decides_anew_and_the_config_stays_as_it_was(config: BertConfig) -> None:
    config.num_labels = 3
    logits, before = torch.randn(2, 3), config.to_dict()
    whole, parts = torch.tensor([0, 2]), torch.tensor([[1.0, 0, 1], [0, 0, 1]])
    first = classification_loss(config, logits, whole), classification_loss(config, logits, parts)
    again = classification_loss(config, logits, whole), classification_loss(config, logits, parts)
    assert [float(loss) for loss in first] == [float(loss) for loss in again]
    assert first[0] != first[1]
    assert config.to_dict() == before
    assert config.problem_type is None


@pytest.mark.parametrize(("classes", "shape"), [(1, (4,)), (1, (4, 1)), (2, (4, 2)), (3, (4, 3))])
def test_regression_takes_one_number_for_each_output(config: BertConfig, classes: int, shape: tuple[int, ...]) -> None:
    config.num_labels, config.problem_type = classes, "regression"
    logits, labels = torch.randn(4, classes), torch.randn(shape)
    assert torch.equal(classification_loss(config, logits, labels), F.mse_loss(logits, labels.view(4, classes)))


@pytest.mark.parametrize(
    ("problem", "classes", "shape"),
    [
        ("regression", 2, (3,)),
        ("regression", 2, (4,)),
        ("regression", 1, (3,)),
        ("regression", 1, (4, 2)),
        ("multi_label_classification", 3, (4,)),
        ("multi_label_classification", 3, (4, 2)),
        ("multi_label_classification", 1, (4,)),
        ("multi_label_classification", 3, (12,)),
    ],
)
def test_labels_of_another_shape_are_refused(
    config: BertConfig, problem: str, classes: int, shape: tuple[int, ...]
) -> None:
    config.num_labels, config.problem_type = classes, problem
    sentence = rf"labels must have the shape \(4, {classes}\) for {problem}, got \({shape[0]},"
    with pytest.raises(InputError, match=sentence):
        classification_loss(config, torch.randn(4, classes), torch.zeros(shape))


def test_single_labels_must_be_class_numbers(config: BertConfig) -> None:
    config.num_labels, config.problem_type = 3, "single_label_classification"
    with pytest.raises(InputError, match=r"labels must be integers \(class numbers\), got torch\.float32"):
        classification_loss(config, torch.randn(2, 3), torch.zeros(2))
    with pytest.raises(InputError, match="labels must be -100 or from 0 to 2, got 3"):
        classification_loss(config, torch.randn(2, 3), torch.tensor([0, 3]))


@pytest.mark.parametrize("problem", ["regression", "multi_label_classification", "single_label_classification"])
def test_no_texts_have_a_loss_of_zero(config: BertConfig, problem: str) -> None:
    config.num_labels, config.problem_type = 3, problem
    labels = torch.zeros(0, dtype=torch.long) if problem.startswith("single") else torch.zeros(0, 3)
    assert float(classification_loss(config, torch.zeros(0, 3), labels)) == 0.0


# --- shapes and values of labels ---


@pytest.mark.parametrize("given", [(2, 3), (2, 3, 1), (6,)])
def test_labels_may_have_the_shape_of_the_rows_or_a_column_or_be_flat(given: tuple[int, ...]) -> None:
    logits, labels = torch.randn(2, 3, 5), torch.tensor([0, 1, 2, 3, 4, 0])
    expected = F.cross_entropy(logits.view(6, 5), labels)
    assert torch.equal(cross_entropy(logits, labels.view(given)), expected)


@pytest.mark.parametrize("given", [(3, 2), (6, 1), (1, 6), (1, 2, 3), (2, 1, 3), (3, 2, 1)])
def test_as_many_labels_in_another_shape_are_refused(given: tuple[int, ...]) -> None:
    """A transposed batch has the right count, and would teach every token the label of another."""
    with pytest.raises(
        InputError, match=rf"labels must have the shape \(2, 3\), got {re.escape(str(given))}; one label"
    ):
        cross_entropy(torch.randn(2, 3, 5), torch.zeros(given, dtype=torch.long))


@pytest.mark.parametrize("given", [(1, 4), (2, 2), (4, 1, 1)])
def test_as_many_class_numbers_in_another_shape_are_refused(config: BertConfig, given: tuple[int, ...]) -> None:
    config.num_labels, config.problem_type = 3, "single_label_classification"
    with pytest.raises(InputError, match=rf"labels must have the shape \(4,\), got {re.escape(str(given))}"):
        classification_loss(config, torch.randn(4, 3), torch.zeros(given, dtype=torch.long))
    with pytest.raises(InputError, match=rf"end_positions must have the shape \(4,\), got {re.escape(str(given))}"):
        position_loss(torch.randn(4, 3), torch.zeros(given, dtype=torch.long), "end_positions")


@pytest.mark.parametrize("wrong", [2, -1, -100, 1.5, -0.25, float("nan"), float("inf")])
@pytest.mark.parametrize("declared", [True, False])
def test_a_label_for_each_class_must_be_from_0_to_1(config: BertConfig, wrong: float, declared: bool) -> None:
    config.num_labels, config.problem_type = 3, "multi_label_classification" if declared else None
    labels = torch.tensor([[0.0, 1.0, 0.3], [1.0, wrong, 0.0]])
    sentence = f"labels must be from 0 to 1 for multi_label_classification, got {wrong:g}; set problem_type"
    with pytest.raises(InputError, match=sentence):
        classification_loss(config, torch.randn(2, 3), labels)


def test_a_label_for_each_class_may_be_whole_or_a_probability(config: BertConfig) -> None:
    config.num_labels, config.problem_type = 3, "multi_label_classification"
    logits = torch.randn(2, 3)
    for labels in (torch.rand(2, 3), torch.tensor([[0, 1, 1], [1, 0, 0]]), torch.ones(2, 3).bool()):
        expected = F.binary_cross_entropy_with_logits(logits, labels.float())
        assert torch.equal(classification_loss(config, logits, labels), expected)
    with pytest.raises(InputError, match=r"labels must be from 0 to 1 .*got 2"):
        classification_loss(config, logits, torch.tensor([[0, 1, 2], [1, 0, 0]]))


def test_regression_takes_any_number(config: BertConfig) -> None:
    config.num_labels, config.problem_type = 3, "regression"
    logits, labels = torch.randn(2, 3), torch.tensor([[-7.0, 1e3, 0.5]] * 2)
    assert torch.equal(classification_loss(config, logits, labels), F.mse_loss(logits, labels))

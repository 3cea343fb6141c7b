"""The batch: a mapping, with what is known about its tokens beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from plainbert.errors import TokenizerError
from plainbert.text.encoding import BatchEncoding, as_tensors
from plainbert.text.tokenizer import BertTokenizer


def test_a_batch_is_a_mapping_of_what_a_model_takes(tokenizer: BertTokenizer) -> None:
    batch = tokenizer(["a", "b c"], padding=True, return_tensors="pt")
    assert isinstance(batch, Mapping)
    assert list(batch) == list(batch.keys()) == ["input_ids", "token_type_ids", "attention_mask"]
    assert len(batch) == 3
    assert set(dict(**batch)) == set(batch)
    assert batch["input_ids"] is batch.input_ids
    assert {value.dtype for value in batch.values()} == {torch.int64}
    with pytest.raises(KeyError):
        batch["offsets"]
    with pytest.raises(AttributeError, match="batch has no 'labels', only"):
        _ = batch.labels


def test_entries_are_added_and_taken_out(tokenizer: BertTokenizer) -> None:
    batch = tokenizer("a")
    batch["labels"] = [1]
    assert batch.pop("token_type_ids") == [0, 0, 0]
    del batch["attention_mask"]
    assert dict(batch) == {"input_ids": [2, 5, 3], "labels": [1]}
    assert repr(batch) == "{'input_ids': [2, 5, 3], 'labels': [1]}"


def test_what_is_known_has_the_form_of_the_ids(tokenizer: BertTokenizer) -> None:
    assert tokenizer("a").offsets == [(0, 0), (0, 1), (0, 0)]
    assert tokenizer(["a"]).offsets == [[(0, 0), (0, 1), (0, 0)]]
    assert tokenizer("a", return_tensors="np").word_ids == [[None, 0, None]]
    assert tokenizer("a", truncation=True, return_overflowing_tokens=True).special_tokens_mask == [[1, 0, 1]]


def test_moving_is_done_in_place_and_needs_tensors(tokenizer: BertTokenizer) -> None:
    batch = tokenizer("a", return_tensors="pt")
    assert batch.to("meta") is batch
    assert {value.device.type for value in batch.values()} == {"meta"}
    for kind in (None, "np"):
        batch = tokenizer("a", return_tensors=kind)
        batch["labels"] = torch.tensor([1])
        with pytest.raises(TokenizerError, match=r"must have tensors to move, got (list|ndarray) for input_ids"):
            batch.to("meta")


def test_ids_alone_say_nothing_about_a_text() -> None:
    with pytest.raises(TokenizerError, match=r"batch.offsets must come from text, got one made from ids"):
        _ = BatchEncoding({"input_ids": [1]}).offsets


def test_arrays_are_whole_numbers_or_fractions() -> None:
    arrays = as_tensors({"a": [[1, 2]], "b": [0.5], "c": [True], "d": [], "e": [[], []]}, "np")
    assert {name: (value.dtype, value.shape) for name, value in arrays.items()} == {
        "a": (np.dtype("i8"), (1, 2)),
        "b": (np.dtype("f4"), (1,)),
        "c": (np.dtype("?"), (1,)),
        "d": (np.dtype("i8"), (0, 0)),
        "e": (np.dtype("i8"), (2, 0)),
    }
    assert as_tensors({"a": [[1, 2]]}, "pt")["a"].tolist() == [[1, 2]]


@pytest.mark.parametrize("value", [["x"], [None], [[1], 2], [{}]])
def test_what_is_no_number_becomes_no_tensor(value: list[Any]) -> None:
    with pytest.raises(TokenizerError, match=r"labels must hold numbers to become a tensor, got \["):
        as_tensors({"labels": value}, "np")

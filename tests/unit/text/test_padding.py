"""Filling up ids that are already there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from plainbert.errors import TokenizerError
from plainbert.text.tokenizer import BertTokenizer


def test_the_items_of_a_loader_become_a_batch(tokenizer: BertTokenizer) -> None:
    items = [{**tokenizer("a"), "labels": 0}, {**tokenizer("a b"), "labels": 1}]
    batch = tokenizer.pad(items, return_tensors="pt")
    assert batch["input_ids"].tolist() == [[2, 5, 3, 0], [2, 5, 6, 3]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
    assert batch["token_type_ids"].shape == (2, 4)
    assert batch["labels"].tolist() == [0, 1]


def test_padding_later_is_padding_at_once(tokenizer: BertTokenizer) -> None:
    texts = ["a", "a b c", ""]
    expected = tokenizer(texts, padding=True, pad_to_multiple_of=4)
    for given in (tokenizer(texts), [tokenizer(text) for text in texts]):
        batch = tokenizer.pad(given, pad_to_multiple_of=4)
        assert dict(batch) == dict(expected)
        assert batch.offsets == expected.offsets
        assert batch.word_ids == expected.word_ids
        assert batch.special_tokens_mask == expected.special_tokens_mask


def test_one_text_stays_one_text(tokenizer: BertTokenizer) -> None:
    batch = tokenizer.pad(tokenizer("a"), padding="max_length", max_length=4)
    assert dict(batch) == {
        "input_ids": [2, 5, 3, 0],
        "token_type_ids": [0] * 4,
        "attention_mask": [1, 1, 1, 0],
    }
    assert batch.offsets == [(0, 0), (0, 1), (0, 0), (0, 0)]


def test_arrays_and_tensors_come_back_as_such(tokenizer: BertTokenizer) -> None:
    for given, kind in ((np.array([2, 3]), np.ndarray), (torch.tensor([2, 3]), torch.Tensor)):
        batch = tokenizer.pad({"input_ids": given}, padding="max_length", max_length=3)
        assert isinstance(batch["input_ids"], kind)
        assert batch["input_ids"].tolist() == [2, 3, 0]
        assert isinstance(tokenizer.pad([{"input_ids": given}])["attention_mask"], kind)


def test_without_padding_only_the_mask_is_added(tokenizer: BertTokenizer) -> None:
    batch = tokenizer.pad({"input_ids": [[2, 3], [2, 5, 3]]}, padding=False)
    assert dict(batch) == {"input_ids": [[2, 3], [2, 5, 3]], "attention_mask": [[1, 1], [1, 1, 1]]}
    assert dict(tokenizer.pad([])) == {"input_ids": [], "attention_mask": []}


def test_what_was_known_of_other_ids_is_forgotten(tokenizer: BertTokenizer) -> None:
    given = tokenizer(["a", "b c"])
    given["input_ids"] = [[2, 3], [2, 3]]
    given["attention_mask"] = given["token_type_ids"] = [[1, 1], [1, 1]]
    with pytest.raises(TokenizerError, match=r"batch.offsets must come from text"):
        _ = tokenizer.pad(given).offsets


def test_the_left_side_can_be_filled(vocab: dict[str, int]) -> None:
    tokenizer = BertTokenizer(vocab, padding_side="left")
    batch = tokenizer.pad({"input_ids": [[2, 3], [2, 5, 3]], "special_tokens_mask": [[1, 1], [1, 0, 1]]})
    assert batch["input_ids"] == [[0, 2, 3], [2, 5, 3]]
    assert batch["special_tokens_mask"] == [[1, 1, 1], [1, 0, 1]]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("abc", "pad must get a mapping with input_ids, or a list of such mappings, got str"),
        ([[2, 3]], "pad must get a mapping with input_ids, or a list of such mappings, got list"),
        ({"labels": [1]}, r"pad must get input_ids, got \['labels'\]"),
        ([{"input_ids": [2]}, {"input_ids": [2], "labels": 1}], "pad must get the same names for each text, got "),
        ([{"input_ids": [[2, 3]]}], "pad must get one list of input_ids a text, got lists of lists"),
        (
            {"input_ids": [[2, 3]], "attention_mask": [[1]]},
            r"attention_mask must have as many numbers as input_ids, got \[1\] in rows of \[2\]",
        ),
        ({"input_ids": [[2, 3]], "token_type_ids": [0]}, "token_type_ids must have as many numbers as input_ids"),
    ],
)
def test_what_cannot_be_padded_is_refused(given: Any, message: str, tokenizer: BertTokenizer) -> None:
    with pytest.raises(TokenizerError, match=message):
        tokenizer.pad(given)

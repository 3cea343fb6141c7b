"""What holds of every text and every setting, whatever the tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plainbert import BertTokenizer

EXAMPLES = settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    st.lists(st.sampled_from(["naïve", "[MASK]", "한국어", "हिन्दी", "👍🏽", "的人", " ", "word", "x\u0301"])).map(
        " ".join
    ),
)


@pytest.fixture(scope="module")
def tokenizer(minilm_folder: Path) -> BertTokenizer:
    return BertTokenizer.from_pretrained(minilm_folder)


@EXAMPLES
@given(st.lists(TEXTS, max_size=5), st.booleans())
def test_a_batch_is_its_texts_one_by_one(tokenizer: BertTokenizer, texts: list[str], literal: bool) -> None:
    batch = tokenizer(texts, split_special_tokens=literal)
    alone = [tokenizer(text, split_special_tokens=literal) for text in texts]
    for name in ("input_ids", "token_type_ids", "attention_mask"):
        assert batch[name] == [one[name] for one in alone]
    assert batch.offsets == [one.offsets for one in alone]
    assert batch.word_ids == [one.word_ids for one in alone]


@EXAMPLES
@given(st.lists(TEXTS, min_size=1, max_size=5), st.sampled_from([None, 4, 8]))
def test_padding_only_adds_at_the_end(tokenizer: BertTokenizer, texts: list[str], multiple: int | None) -> None:
    bare, padded = tokenizer(texts), tokenizer(texts, padding=True, pad_to_multiple_of=multiple)
    width = {len(row) for row in padded["input_ids"]}
    assert len(width) == 1
    assert width.pop() % (multiple or 1) == 0
    for row, ids in enumerate(bare["input_ids"]):
        rest = len(padded["input_ids"][row]) - len(ids)
        assert padded["input_ids"][row] == ids + [tokenizer.pad_token_id] * rest
        assert padded["attention_mask"][row] == [1] * len(ids) + [0] * rest
        assert padded.offsets[row] == bare.offsets[row] + [(0, 0)] * rest
        assert padded.word_ids[row] == bare.word_ids[row] + [None] * rest
        assert padded.special_tokens_mask[row] == bare.special_tokens_mask[row] + [1] * rest


@EXAMPLES
@given(TEXTS, TEXTS)
def test_offsets_are_slices_of_the_text_they_belong_to(tokenizer: BertTokenizer, first: str, second: str) -> None:
    batch = tokenizer(first, second)
    texts = (first, second)
    for source, (start, end) in zip(batch.sequence_ids, batch.offsets, strict=True):
        if source is None:
            assert (start, end) == (0, 0)
        else:
            assert 0 <= start < end <= len(texts[source])


@EXAMPLES
@given(TEXTS, TEXTS, st.integers(3, 20), st.sampled_from(["longest_first", "only_first", "only_second"]))
def test_no_row_is_longer_than_asked(
    tokenizer: BertTokenizer, first: str, second: str, limit: int, strategy: str
) -> None:
    whole = len(tokenizer(first, second)["input_ids"])
    fixed = len(tokenizer(second if strategy == "only_first" else first)["input_ids"]) + 1
    if strategy != "longest_first" and 3 < limit < whole and limit <= fixed:
        with pytest.raises(ValueError, match="must leave a token of the text that it shortens"):
            tokenizer(first, second, truncation=strategy, max_length=limit)
        return
    row = tokenizer(first, second, truncation=strategy, max_length=limit)["input_ids"]
    assert len(row) == min(limit, whole)


@EXAMPLES
@given(TEXTS, st.integers(3, 12), st.data())
def test_windows_hold_every_token_in_order(tokenizer: BertTokenizer, text: str, limit: int, data: Any) -> None:
    stride = data.draw(st.integers(0, limit - 3))
    windows = tokenizer(text, truncation=True, max_length=limit, stride=stride, return_overflowing_tokens=True)
    whole = tokenizer(text, add_special_tokens=False)
    rows = [ids[1:-1] for ids in windows["input_ids"]]
    joined = rows[0] + [token for row in rows[1:] for token in row[stride:]]
    assert joined == whole["input_ids"]
    assert all(len(row) == limit - 2 for row in rows[:-1])
    spans = [span[1:-1] for span in windows.offsets]
    assert spans[0] + [pair for row in spans[1:] for pair in row[stride:]] == whole.offsets


@EXAMPLES
@given(st.lists(TEXTS, max_size=6))
def test_words_are_numbered_as_given(tokenizer: BertTokenizer, words: list[str]) -> None:
    batch = tokenizer(words, is_split_into_words=True, add_special_tokens=False)
    for word, (start, end) in zip(batch.word_ids, batch.offsets, strict=True):
        if word is not None:  # a special token spelled in a word has none
            assert 0 <= start < end <= len(words[word])
    numbers = [word for word in batch.word_ids if word is not None]
    assert numbers == sorted(numbers)


@EXAMPLES
@given(TEXTS)
def test_ids_always_become_text_again(tokenizer: BertTokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.convert_tokens_to_ids(tokenizer.convert_ids_to_tokens(ids)) == ids
    assert isinstance(tokenizer.decode(ids, skip_special_tokens=True), str)

"""Keywords of other libraries, the repr, modes under threads, and unknown tokens."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from plainbert import Embedder, KeywordError, PlainBertWarning
from plainbert.tasks.still import held_still


@pytest.fixture
def embedder(declare: Callable[..., Path]) -> Embedder:
    return Embedder.from_pretrained(declare({"pooling_mode": "mean"}, ("Transformer", "Pooling", "Normalize")))


@pytest.mark.parametrize(
    ("keyword", "hint"),
    [
        ("batch_size", "max_batch_tokens="),
        ("convert_to_tensor", "torch.from_numpy"),
        ("normalize_embeddings", "normalize="),
        ("show_progress_bar", "progress="),
        ("device", "Embedder.from_pretrained"),
        ("nonsense", "it takes texts, prompt, "),
    ],
)
def test_a_keyword_of_another_library_is_told_what_to_write(embedder: Embedder, keyword: str, hint: str) -> None:
    with pytest.raises(KeywordError, match=f"has no argument '{keyword}'; .*{hint}.*progress$"):
        embedder.encode("hello", **{keyword: 32})


def test_the_repr_says_size_pooling_and_length(embedder: Embedder) -> None:
    count = embedder.model.num_parameters()
    assert repr(embedder) == (
        f"Embedder(parameters={count:,}, dimension=32, pooling=mean, normalize=True, max_length=30)"
    )


def test_threads_that_share_a_training_model_get_the_vectors_without_dropout(embedder: Embedder) -> None:
    texts = ["hello there world", "world", "today", "hello hello"]
    expected = embedder.encode("hello there world")
    embedder.model.train()
    frozen = embedder.model.embeddings.eval()
    before = {name: module.training for name, module in embedder.model.named_modules()}
    wrong = []

    def work(number: int) -> None:
        for turn in range(30):
            # Of different lengths in time, so that one thread ends in the middle of another.
            if not np.allclose(embedder.encode(texts[:1] * (1 + (number + turn) % 5))[0], expected[0], atol=1e-5):
                wrong.append((number, turn))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert not frozen.training
    assert {name: module.training for name, module in embedder.model.named_modules()} == before


def test_the_first_of_two_that_ends_leaves_the_model_still() -> None:
    model = torch.nn.Sequential(torch.nn.Dropout(), torch.nn.Dropout().eval())
    first, second = held_still(model), held_still(model)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not model[0].training
    second.__exit__(None, None, None)
    assert [module.training for module in model.modules()] == [True, True, False]


def test_more_than_a_third_of_unknown_tokens_is_one_warning(embedder: Embedder) -> None:
    with pytest.warns(PlainBertWarning, match=r"3 of 5 tokens \(60%\) are the unknown token.*this language") as said:
        embedder.encode(["ไทย hello", "ไทย สวัสดี there"])
    assert len(said) == 1
    embedder.encode(["ไทย hello there", ""])  # a third is not more, and no warning is an error here
    embedder.encode([])

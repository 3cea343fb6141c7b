"""Exceptions can be caught as what a caller expects them to be, and say the sentence they were given."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import plainbert
from plainbert import BertConfig, errors
from plainbert.errors import (
    CheckpointError,
    ConfigError,
    HubError,
    InputError,
    KeywordError,
    MissingFileError,
    PlainBertError,
    PlainBertWarning,
    TokenizerError,
)

EXCEPTIONS = (InputError, ConfigError, CheckpointError, MissingFileError, TokenizerError, KeywordError, HubError)


@pytest.mark.parametrize("kind", EXCEPTIONS)
def test_every_exception_is_caught_as_ours(kind: type[Exception]) -> None:
    with pytest.raises(PlainBertError, match=r"^got 7$"):
        raise kind("got 7")


@pytest.mark.parametrize("kind", [InputError, ConfigError, CheckpointError, MissingFileError, TokenizerError])
def test_what_the_caller_can_change_is_a_value_error(kind: type[Exception]) -> None:
    assert issubclass(kind, ValueError)


@pytest.mark.parametrize(
    ("kind", "builtin"), [(KeywordError, TypeError), (MissingFileError, FileNotFoundError), (HubError, OSError)]
)
def test_other_exceptions_are_what_python_would_raise(kind: type[Exception], builtin: type[Exception]) -> None:
    assert issubclass(kind, builtin)
    assert not issubclass(KeywordError, ValueError)


@pytest.mark.parametrize("kind", EXCEPTIONS)
def test_an_exception_prints_its_sentence_and_nothing_else(kind: type[Exception]) -> None:
    """Relatives of OSError would print an errno."""
    assert str(kind("model.safetensors must be there, got nothing")) == "model.safetensors must be there, got nothing"
    assert str(kind()) == ""


@pytest.mark.parametrize("kind", EXCEPTIONS)
def test_an_exception_survives_the_way_between_processes(kind: type[Exception]) -> None:
    back = pickle.loads(pickle.dumps(kind("got 7")))
    assert type(back) is kind
    assert str(back) == "got 7"


def test_the_warning_is_a_warning_of_the_user_and_no_exception_of_ours() -> None:
    assert issubclass(PlainBertWarning, UserWarning)
    assert not issubclass(PlainBertWarning, PlainBertError)


def test_all_exceptions_are_public() -> None:
    named = {name for name, kind in vars(errors).items() if isinstance(kind, type)}
    assert named <= set(plainbert.__all__)


# --- where a warning points ---

HERE = str(Path(__file__))
TINY = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "max_position_embeddings": 40,
}


class Wrapped(torch.nn.Module):
    """Somebody's own module around a model of ours: its line is the caller's."""

    def __init__(self, model: plainbert.BertModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor) -> Any:
        return self.model(ids)


def bare_encoder_without_a_pooler(folder: Path) -> Path:
    plainbert.BertModel(BertConfig(**TINY), add_pooling_layer=False).save_pretrained(folder)
    return folder


# Each gives a function that is to be called in one line of this file, and warns at its own depth.
WARNERS: dict[str, Callable[[Path], Callable[[], Any]]] = {
    "model": lambda _: partial(plainbert.BertModel(BertConfig(**TINY)), torch.zeros(1, 4, dtype=torch.long)),
    "head": lambda _: partial(plainbert.BertForMaskedLM(BertConfig(**TINY)), torch.zeros(1, 4, dtype=torch.long)),
    "sequence": lambda _: partial(
        torch.nn.Sequential(plainbert.BertModel(BertConfig(**TINY))), torch.zeros(1, 4, dtype=torch.long)
    ),
    "config": lambda _: partial(BertConfig, id2label={1: "a", 5: "b"}),
    "config of a dictionary": lambda _: partial(BertConfig.from_dict, {"unheard_of": 1}),
    "weights of a file": lambda folder: partial(
        plainbert.BertModel.from_pretrained, bare_encoder_without_a_pooler(folder)
    ),
    "weights of a file, subclassed": lambda folder: partial(
        plainbert.BertForSequenceClassification.from_pretrained, bare_encoder_without_a_pooler(folder)
    ),
    "state_dict": lambda _: partial(
        (model := plainbert.BertModel(BertConfig(**TINY))).load_state_dict,
        {**model.state_dict(), "embeddings.position_ids": torch.arange(40).flip(0)},
    ),
    "no depth": lambda _: partial(errors.warn, "got 7"),
}


def call(warner: Callable[[], Any]) -> Any:
    return warner()


@pytest.mark.parametrize("name", WARNERS)
def test_a_warning_carries_the_file_and_line_of_the_caller(name: str, tmp_path: Path) -> None:
    warner = WARNERS[name](tmp_path)
    with pytest.warns(PlainBertWarning) as caught:
        call(warner)
    line = call.__code__.co_firstlineno + 1
    assert [(warning.filename, warning.lineno) for warning in caught] == [(HERE, line)] * len(caught)


def test_a_warning_carries_the_line_of_the_callers_own_module() -> None:
    outer = Wrapped(plainbert.BertModel(BertConfig(**TINY)))
    with pytest.warns(PlainBertWarning) as caught:
        outer(torch.zeros(1, 4, dtype=torch.long))
    assert (caught[0].filename, caught[0].lineno) == (HERE, Wrapped.forward.__code__.co_firstlineno + 1)

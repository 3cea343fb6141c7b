"""Exceptions can be caught as what a caller expects them to be, and say the sentence they were given."""

from __future__ import annotations

import pickle

import pytest

from plainbert import errors
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
    import plainbert

    named = {name for name, kind in vars(errors).items() if isinstance(kind, type)}
    assert named <= set(plainbert.__all__)

"""What tokenizer_config.json says about how texts are prepared, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from plainbert.errors import TokenizerError
from plainbert.text.arguments import flag, refuse_keywords, whole_number
from plainbert.text.backend import class_name
from plainbert.text.rows import ENTRIES
from plainbert.text.special import ROLES

# What transformers writes as model_max_length where nobody knows it.
UNKNOWN_LENGTH = int(1e30)
# Anything beyond this is that number, however a JSON writer rounded it.
_LARGEST_LENGTH = int(1e20)
INPUT_NAMES = tuple(ENTRIES)
# Classes of transformers whose tokenizers return no token_type_ids.
_WITHOUT_TYPES = (
    "CamembertTokenizer",
    "DistilBertTokenizer",
    "MPNetTokenizer",
    "RobertaTokenizer",
    "XLMRobertaTokenizer",
)
# What may be assigned to a tokenizer later on: it is asked at each call and is no part of the vocabulary.
ASSIGNABLE = ("model_max_length", "padding_side", "truncation_side")
# Keys that a caller may give instead of a file.
SETTING_KEYS = frozenset(
    (
        *ROLES,
        "do_lower_case",
        "strip_accents",
        "tokenize_chinese_chars",
        "additional_special_tokens",
        "extra_special_tokens",
        "model_max_length",
        "padding_side",
        "truncation_side",
        "split_special_tokens",
        "model_input_names",
        "clean_up_tokenization_spaces",
    )
)


@dataclass(frozen=True)
class Settings:
    """The part of tokenizer_config.json that is not inside the tokenizer itself.

    Attributes:
        model_max_length: In tokens; ``UNKNOWN_LENGTH`` where not given.
        padding_side: ``right`` or ``left``.
        truncation_side: ``right`` or ``left``.
        split_special_tokens: Whether special tokens spelled in a text are text.
        input_names: Which of ``INPUT_NAMES`` a batch has.
        clean_up: Whether decoding removes blanks before punctuation.
    """

    model_max_length: int
    padding_side: str
    truncation_side: str
    split_special_tokens: bool
    input_names: tuple[str, ...]
    clean_up: bool

    def assigned(self, name: str, value: object) -> Settings:
        """Return these settings with ``name``, one of ``ASSIGNABLE``, replaced; a TokenizerError for no such value."""
        if name == "model_max_length":
            return replace(self, model_max_length=_length(value))
        side = _side(value, name)
        return replace(self, padding_side=side) if name == "padding_side" else replace(self, truncation_side=side)

    def limit(self, max_length: int | None, what: str) -> int:
        """Return the ``max_length`` that a call means.

        Args:
            max_length: As given; None is ``model_max_length``.
            what: What needs it, for the message.

        Raises:
            TokenizerError: Not a length, or None while nobody knows the model's.
        """
        if max_length is not None:
            return whole_number(max_length, "max_length", 0)
        if self.model_max_length == UNKNOWN_LENGTH:
            raise TokenizerError(
                f"max_length must be given for {what}, got None, and this tokenizer's files do not say "
                "model_max_length; pass the first or assign the second"
            )
        return self.model_max_length


def refuse_assignment(name: str, value: object) -> None:
    """Raise a TokenizerError for an attribute that is settled once a tokenizer is made."""
    if name not in ASSIGNABLE:
        raise TokenizerError(
            f"{name} must stay as it was made (only {', '.join(ASSIGNABLE)} can be assigned), got {value!r:.60}; "
            f"pass {name}= to from_pretrained"
        )


def refuse_settings(given: Mapping[str, Any], where: str) -> None:
    """Raise a KeywordError for a key of ``given`` that is no setting."""
    unknown = {key: given[key] for key in given if key not in SETTING_KEYS}
    refuse_keywords(unknown, ", ".join(sorted(SETTING_KEYS)), where)


def read_settings(config: Mapping[str, Any]) -> Settings:
    """Read the settings; a key that is missing or null has the default of transformers."""
    return Settings(
        model_max_length=_length(config.get("model_max_length", config.get("max_len"))),
        padding_side=_side(config.get("padding_side"), "padding_side", "right"),
        truncation_side=_side(config.get("truncation_side"), "truncation_side", "right"),
        split_special_tokens=flag(config.get("split_special_tokens"), "split_special_tokens", False),
        input_names=_input_names(config),
        clean_up=flag(config.get("clean_up_tokenization_spaces"), "clean_up_tokenization_spaces", False),
    )


def _length(value: Any) -> int:
    if value is None:
        return UNKNOWN_LENGTH
    # Files hold 1e30 and 512.0 too.
    number = int(value) if isinstance(value, float) and value.is_integer() else value
    if number == float("inf") or (isinstance(number, int) and number > _LARGEST_LENGTH):
        return UNKNOWN_LENGTH
    return whole_number(number, "model_max_length", 1)


def _side(value: object, name: str, default: str | None = None) -> str:
    if value is None and default is not None:
        return default
    if not isinstance(value, str) or value not in ("right", "left"):
        raise TokenizerError(f"{name} must be 'right' or 'left', got {value!r}; pass one of the two")
    return value


def _input_names(config: Mapping[str, Any]) -> tuple[str, ...]:
    names = config.get("model_input_names")
    if names is None:
        return ("input_ids", "attention_mask") if class_name(config) in _WITHOUT_TYPES else INPUT_NAMES
    if not isinstance(names, (list, tuple)) or "input_ids" not in names:
        raise TokenizerError(f"model_input_names must be a list with 'input_ids', got {names!r:.60}; add it")
    return tuple(name for name in INPUT_NAMES if name in names)

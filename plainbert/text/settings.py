"""What tokenizer_config.json says about how texts are prepared, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from plainbert.errors import TokenizerError
from plainbert.text.arguments import refuse_keywords, whole_number
from plainbert.text.backend import class_name
from plainbert.text.layout import ENTRIES
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
                f"max_length must be given for {what}, got None, and this tokenizer's files do not say model_max_length"
            )
        return self.model_max_length


def refuse_settings(given: Mapping[str, Any], where: str) -> None:
    """Raise a KeywordError for a key of ``given`` that is no setting."""
    unknown = {key: given[key] for key in given if key not in SETTING_KEYS}
    refuse_keywords(unknown, ", ".join(sorted(SETTING_KEYS)), where)


def read_settings(config: Mapping[str, Any]) -> Settings:
    """Read the settings; a key that is missing or null has the default of transformers."""
    return Settings(
        model_max_length=_length(config),
        padding_side=_side(config, "padding_side"),
        truncation_side=_side(config, "truncation_side"),
        split_special_tokens=_flag(config, "split_special_tokens"),
        input_names=_input_names(config),
        clean_up=_flag(config, "clean_up_tokenization_spaces"),
    )


def _length(config: Mapping[str, Any]) -> int:
    value = config.get("model_max_length", config.get("max_len"))
    if value is None:
        return UNKNOWN_LENGTH
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and value > _LARGEST_LENGTH:
        return UNKNOWN_LENGTH
    if not is_number or value < 1 or value != int(value):
        raise TokenizerError(f"model_max_length must be a whole number of at least 1, got {value!r}")
    return int(value)


def _side(config: Mapping[str, Any], key: str) -> str:
    value = config.get(key)
    if value is None:
        return "right"
    if value not in ("right", "left"):
        raise TokenizerError(f"{key} must be 'right' or 'left', got {value!r}")
    return str(value)


def _flag(config: Mapping[str, Any], key: str) -> bool:
    value = config.get(key)
    if value is not None and not isinstance(value, bool):
        raise TokenizerError(f"{key} must be true or false, got {value!r}")
    return bool(value)


def _input_names(config: Mapping[str, Any]) -> tuple[str, ...]:
    names = config.get("model_input_names")
    if names is None:
        return ("input_ids", "attention_mask") if class_name(config) in _WITHOUT_TYPES else INPUT_NAMES
    if not isinstance(names, (list, tuple)) or "input_ids" not in names:
        raise TokenizerError(f"model_input_names must be a list with 'input_ids', got {names!r}")
    return tuple(name for name in INPUT_NAMES if name in names)

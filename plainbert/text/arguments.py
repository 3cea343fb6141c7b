"""What a caller hands to the tokenizer, checked and brought to one form before any of it is tokenized."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from plainbert.errors import KeywordError, TokenizerError, warn
from plainbert.text.truncation import STRATEGIES

CALL_KEYWORDS = (
    "text, text_pair, add_special_tokens, padding, truncation, max_length, stride, is_split_into_words, "
    "pad_to_multiple_of, return_overflowing_tokens, return_tensors, split_special_tokens"
)
# Keywords of transformers that have another way here.
_INSTEAD = {
    "return_offsets_mapping": "batch.offsets is always there",
    "return_special_tokens_mask": "batch.special_tokens_mask is always there",
    "return_token_type_ids": "take batch['token_type_ids'] or leave it",
    "return_attention_mask": "take batch['attention_mask'] or leave it",
    "return_length": "take len() of the ids",
    "padding_side": "assign tokenizer.padding_side, or pass it to from_pretrained",
    "truncation_side": "assign tokenizer.truncation_side, or pass it to from_pretrained",
    "truncation_strategy": "use truncation=",
    "pad_to_max_length": "use padding='max_length'",
    "text_target": "tokenize targets in a call of their own",
    "verbose": "warnings are filtered with the warnings module",
}


class Texts(NamedTuple):
    """The texts of one call.

    Attributes:
        first: One string each, or one list of words each.
        second: As many, or None for a text without a pair.
        batched: Whether a list of texts was given, and not one text.
    """

    first: list[Any]
    second: list[Any]
    batched: bool


def refuse_keywords(unknown: Mapping[str, Any], accepted: str, where: str) -> None:
    """Raise a KeywordError for the first of ``unknown`` that names what ``where`` takes."""
    for name in unknown:
        hint = f"{_INSTEAD[name]}; " if name in _INSTEAD else ""
        raise KeywordError(f"{where} must get keywords that it knows, got {name!r}; {hint}it knows {accepted}")


def collect_texts(text: object, text_pair: object, is_split_into_words: bool) -> Texts:
    """Sort out one text or many, single or in pairs.

    A list of (first, second) tuples is a list of pairs. An empty second text is a second text.

    Raises:
        TokenizerError: Something that is no text, or two lists of different lengths.
    """
    kind = "list of words" if is_split_into_words else "str"
    if isinstance(text, str) if not is_split_into_words else _is_words(text):
        if text_pair is not None:
            _check_text(text_pair, "text_pair", is_split_into_words)
        _check_text(text, "text", is_split_into_words)
        return Texts([text], [text_pair], False)
    if not isinstance(text, (list, tuple)):
        hint = "for words pass a list of str" if is_split_into_words else "pass text, or a list of texts"
        raise TokenizerError(f"text must be a {kind} or a list of them, got {_show(text)}; {hint}")
    first: list[Any] = []
    second: list[Any] = []
    if text_pair is None:
        for index, item in enumerate(text):
            pair = _as_pair(item, is_split_into_words)
            if pair is not None:
                item, other = pair
                _check_text(other, f"text[{index}][1]", is_split_into_words)
                second.append(other)
            else:
                second.append(None)
            _check_text(item, f"text[{index}]", is_split_into_words)
            first.append(item)
        return Texts(first, second, True)
    if not isinstance(text_pair, (list, tuple)):
        raise TokenizerError(f"text_pair must be a list where text is one, got {_show(text_pair)}; pass one for each")
    if len(text) != len(text_pair):
        raise TokenizerError(
            f"text_pair must be as long as text, got {len(text)} texts and {len(text_pair)} pairs; pass one for each"
        )
    for index, (item, other) in enumerate(zip(text, text_pair, strict=True)):
        _check_text(item, f"text[{index}]", is_split_into_words)
        _check_text(other, f"text_pair[{index}]", is_split_into_words)
    return Texts(list(text), list(text_pair), True)


def _is_words(text: object) -> bool:
    """Whether ``text`` is one text given as words; an empty list is a text without words, as in transformers."""
    return isinstance(text, (list, tuple)) and not (text and isinstance(text[0], (list, tuple)))


def _as_pair(item: object, is_split_into_words: bool) -> tuple[Any, Any] | None:
    if not isinstance(item, (list, tuple)) or len(item) != 2:
        return None
    if is_split_into_words and not all(isinstance(part, (list, tuple)) for part in item):
        return None
    return item[0], item[1]


def _check_text(text: object, name: str, is_split_into_words: bool) -> None:
    if not is_split_into_words:
        if not isinstance(text, str):
            raise TokenizerError(f"{name} must be a str, got {_show(text)}; pass text")
        return
    if not isinstance(text, (list, tuple)):
        raise TokenizerError(f"{name} must be a list of words (is_split_into_words=True), got {_show(text)}; split it")
    for index, word in enumerate(text):
        if not isinstance(word, str):
            raise TokenizerError(f"{name}[{index}] must be a str, got {_show(word)}; pass text")


def _show(value: object) -> str:
    return f"{type(value).__name__} {value!s:.60}"


def find_surrogate(texts: Sequence[Any], name: str) -> None:
    """Raise the error for the first lone surrogate in ``texts``; return if there is none.

    A lone surrogate (from an escape in JSON, or from ``errors="surrogateescape"``) is half a character. It is refused
    and not replaced, because offsets would then point into another text than the caller's.
    """
    for index, text in enumerate(texts):
        for word in [text] if isinstance(text, str) else text:
            try:
                word.encode()
            except UnicodeEncodeError as error:
                raise TokenizerError(
                    f"{name} must be text, got the lone surrogate U+{ord(word[error.start]):04X} at code point "
                    f"{error.start} of index {index}; replace it, e.g. with text.encode(errors='replace').decode()"
                ) from None


def padding_mode(padding: object) -> str | None:
    """Bring ``padding`` to ``longest``, ``max_length`` or None."""
    if padding is False or padding is None or padding == "do_not_pad":
        return None
    if padding is True or padding == "longest":
        return "longest"
    if padding == "max_length":
        return "max_length"
    raise TokenizerError(f"padding must be False, True, 'longest' or 'max_length', got {padding!r}; pass one of them")


def truncation_strategy(truncation: object) -> str | None:
    """Bring ``truncation`` to one of ``STRATEGIES``, or None."""
    if truncation is False or truncation is None or truncation == "do_not_truncate":
        return None
    if truncation is True:
        return "longest_first"
    if isinstance(truncation, str) and truncation in STRATEGIES:
        return truncation
    raise TokenizerError(
        f"truncation must be False, True or one of {', '.join(STRATEGIES)}, got {truncation!r}; pass one of them"
    )


def whole_number(value: object, name: str, least: int) -> int:
    """Check a count; a bool is none."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TokenizerError(f"{name} must be a whole number of at least {least}, got {value!r:.60}; pass an int")
    number = int(value.__index__())
    if number < least:
        raise TokenizerError(f"{name} must be a whole number of at least {least}, got {number}; raise it")
    return number


def flag(value: object, name: str, default: bool | None = None) -> bool:
    """Check a yes or no; neither a word nor a number is one, and None only where there is a default."""
    if value is None and default is not None:
        return default
    if not isinstance(value, bool):
        raise TokenizerError(f"{name} must be True or False, got {value!r:.60}; pass one of the two")
    return value


def warn_of_unused(
    padding: str | None,
    truncation: str | None,
    windows: bool,
    max_length: int | None,
    stride: int,
    multiple: int | None,
) -> None:
    """Say in one warning which arguments of a call change nothing, given the others.

    Args:
        padding: From ``padding_mode``.
        truncation: From ``truncation_strategy``.
        windows: ``return_overflowing_tokens``.
        max_length: As given.
        stride: Checked.
        multiple: From ``multiple_of``.
    """
    unused = []
    if truncation is None and padding != "max_length" and max_length is not None:
        unused.append(f"max_length={max_length} (without truncation or padding='max_length')")
    if truncation is None and windows:
        unused.append("return_overflowing_tokens=True (without truncation)")
    if stride and truncation is None:
        unused.append(f"stride={stride} (without truncation)")
    elif stride and not windows:
        unused.append(f"stride={stride} (without return_overflowing_tokens)")
    if padding is None and multiple is not None:
        unused.append(f"pad_to_multiple_of={multiple} (without padding)")
    if unused:
        verb = "has" if len(unused) == 1 else "have"
        message = (
            f"{', '.join(unused)} {verb} no effect in this call; leave out what is not used, or pass what it needs"
        )
        warn(message)


def check_divisible(max_length: int, multiple: int | None) -> None:
    """Check that rows cut to ``max_length`` can be padded to ``multiple`` without growing beyond it."""
    if multiple is not None and max_length % multiple:
        raise TokenizerError(
            f"max_length must be a multiple of pad_to_multiple_of={multiple} when both truncating and padding, got "
            f"{max_length}; take a multiple, or leave out one of the two"
        )


def multiple_of(pad_to_multiple_of: int | None) -> int | None:
    """Check ``pad_to_multiple_of``."""
    return None if pad_to_multiple_of is None else whole_number(pad_to_multiple_of, "pad_to_multiple_of", 1)

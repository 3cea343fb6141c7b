"""Which tokens of a text, or of a pair, are kept when they are more than ``max_length`` leaves room for.

The rules are those of the tokenizers library, which transformers uses; they are applied here to spans of tokens
because the library keeps them as a setting of the tokenizer, shared by everybody who uses it.
"""

from __future__ import annotations

from typing import NamedTuple

from plainbert.errors import TokenizerError

STRATEGIES = ("longest_first", "only_first", "only_second")
Span = tuple[int, int]


class Truncation(NamedTuple):
    """What one call asks for.

    Attributes:
        strategy: Which text of a pair gives way, one of ``STRATEGIES``.
        max_length: Most tokens in a row, added ones included.
        stride: Tokens that a window has in common with the one before it.
        side: ``right`` keeps the beginning, ``left`` the end.
        windows: Whether the rest becomes further rows.
    """

    strategy: str
    max_length: int
    stride: int
    side: str
    windows: bool


def check_room(truncation: Truncation, added: int, kind: str) -> int:
    """Return the room that ``max_length`` leaves for texts beside ``added`` tokens.

    Raises:
        TokenizerError: Not even the added tokens fit, or the overlap is no smaller than the room.
    """
    room = truncation.max_length - added
    if room < 0:
        raise TokenizerError(
            f"max_length must be at least {added}, the special tokens of {kind}, got {truncation.max_length}; "
            "raise it, or pass add_special_tokens=False"
        )
    if truncation.stride > 0 and truncation.stride >= room:
        raise TokenizerError(
            f"stride must be less than {room}, the room that max_length={truncation.max_length} leaves beside {added} "
            f"special tokens, got {truncation.stride}; lower stride or raise max_length"
        )
    return room


def truncate(truncation: Truncation, lengths: tuple[int, ...], room: int, sample: int) -> list[tuple[Span, ...]]:
    """Cut one text or one pair.

    Args:
        truncation: What was asked for.
        lengths: Tokens of each text, one or two.
        room: Tokens that may be kept in all, from ``check_room``.
        sample: Index of the text, for messages.

    Returns:
        Per row one span per text. The first row is the truncated one; with ``windows`` there follow, as in
        transformers, for each window of the first text those of the second, then the first window of the first text
        with the further ones of the second.

    Raises:
        TokenizerError: The strategy cannot make them fit, or a window would hold nothing new.
    """
    if sum(lengths) <= room:
        return [tuple((0, length) for length in lengths)]
    keep = _lengths_to_keep(truncation.strategy, lengths, room, sample)
    if not truncation.windows:
        return [tuple(_first_span(length, kept, truncation.side) for length, kept in zip(lengths, keep, strict=True))]
    spans = [_windows(truncation, length, kept, sample) for length, kept in zip(lengths, keep, strict=True)]
    if len(spans) == 1:
        return [(span,) for span in spans[0]]
    firsts, seconds = spans
    rows: list[tuple[Span, ...]] = [(firsts[0], seconds[0])]
    rows += [(first, second) for first in firsts[1:] for second in seconds]
    rows += [(firsts[0], second) for second in seconds[1:]]
    return rows


def _lengths_to_keep(strategy: str, lengths: tuple[int, ...], room: int, sample: int) -> tuple[int, ...]:
    if room == 0:
        return (0,) * len(lengths)
    if strategy == "longest_first":
        if len(lengths) == 1:
            return (room,)
        shorter, longer = sorted(lengths)
        # The shorter text stays whole if it takes no more than half of the room; else both get half of it.
        longer = shorter if shorter > room else max(shorter, room - shorter)
        if shorter + longer > room:
            shorter = room // 2
            longer = shorter + room % 2
        return (longer, shorter) if lengths[0] > lengths[1] else (shorter, longer)
    index = 0 if strategy == "only_first" else 1
    if index >= len(lengths):
        raise TokenizerError(
            f"truncation='only_second' must have a second text to shorten, got one text of {lengths[0]} tokens at "
            f"index {sample} and room for {room}; pass text_pair, or truncation=True"
        )
    kept = room - (sum(lengths) - lengths[index])
    if kept < 1:
        raise TokenizerError(
            f"truncation={strategy!r} must leave a token of the text that it shortens, got texts of "
            f"{' and '.join(map(str, lengths))} tokens at index {sample} and room for {room}; pass "
            "truncation='longest_first' or a larger max_length"
        )
    return tuple(kept if position == index else length for position, length in enumerate(lengths))


def _first_span(length: int, kept: int, side: str) -> Span:
    kept = min(length, kept)
    return (length - kept, length) if side == "left" else (0, kept)


def _windows(truncation: Truncation, length: int, kept: int, sample: int) -> list[Span]:
    if length <= kept:
        return [(0, length)]
    if kept == 0:
        raise TokenizerError(
            f"max_length must leave room for a token in each window, got {truncation.max_length}, which leaves none "
            f"for a text of {length} tokens at index {sample}; raise it, or pass return_overflowing_tokens=False"
        )
    if kept <= truncation.stride:
        raise TokenizerError(
            f"stride must be less than {kept}, the tokens that each window holds of a text of {length} tokens at index "
            f"{sample} with max_length={truncation.max_length}, got {truncation.stride}; lower it or raise max_length"
        )
    step = kept - truncation.stride
    spans: list[Span] = []
    for start in range(0, length, step):
        stop = min(start + kept, length)
        spans.append((start, stop) if truncation.side == "right" else (length - stop, length - start))
        if stop == length:
            break
    return spans

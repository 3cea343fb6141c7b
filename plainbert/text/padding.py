"""Filling rows up to one length: rows just tokenized, and rows of ids that somebody else made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from plainbert.errors import TokenizerError
from plainbert.text.encoding import BatchEncoding
from plainbert.text.rows import Padding, Row

# What an entry is filled up with. Other entries (labels ...) are left as they are, as in transformers.
_FILLING = {"attention_mask": 0, "token_type_ids": 0, "special_tokens_mask": 1}


class PadToken(NamedTuple):
    """The pad token of a tokenizer and the side it stands on, ``left`` or ``right``."""

    token_id: int
    token: str
    side: str


def target_length(lengths: Sequence[int], mode: str, max_length: int | None, multiple: int | None) -> int:
    """Return the length that rows of ``lengths`` are filled up to.

    Args:
        lengths: Tokens in each row.
        mode: ``longest``, or ``max_length``.
        max_length: Needed for that mode. A row that is longer stays as it is.
        multiple: The result is raised to a multiple of this.
    """
    length = max(lengths, default=0) if mode == "longest" or max_length is None else max_length
    return length if multiple is None else -(-length // multiple) * multiple


def pad_rows(rows: Sequence[Row], length: int, pad: PadToken) -> list[Row]:
    """Return ``rows`` filled up to ``length``."""
    padded = []
    for row in rows:
        missing = max(0, length - len(row))
        done = row.padding or Padding(pad.token_id, pad.token, 0, 0)
        left, right = (missing, 0) if pad.side == "left" else (0, missing)
        padded.append(replace(row, padding=done._replace(left=done.left + left, right=done.right + right)))
    return padded


def pad_batch(
    encoded: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    mode: str | None,
    max_length: int | None,
    multiple: int | None,
    pad: PadToken | None,
) -> tuple[BatchEncoding, str | None]:
    """Fill up ids that are already there; the method ``BertTokenizer.pad`` describes it.

    Returns:
        The batch, of lists; and ``pt`` or ``np`` where that is what was given.
    """
    rows: list[Row] | None = None
    if isinstance(encoded, Mapping):
        data = dict(encoded)
        rows = list(encoded.rows) if isinstance(encoded, BatchEncoding) and encoded.rows is not None else None
    elif isinstance(encoded, (list, tuple)) and all(isinstance(item, Mapping) for item in encoded):
        names = list(encoded[0]) if encoded else ["input_ids"]
        if any(set(item) != set(names) for item in encoded):
            names_of = [sorted(item) for item in encoded]
            raise TokenizerError(f"pad must get the same names for each text, got {names_of!s:.200}; add what lacks")
        data = {name: [item[name] for item in encoded] for name in names}
        batches = [item for item in encoded if isinstance(item, BatchEncoding)]
        made = [batch.rows[0] for batch in batches if batch.rows and len(batch.rows) == 1]
        rows = made if len(made) == len(encoded) else None
    else:
        raise TokenizerError(
            f"pad must get a mapping with input_ids, or a list of such mappings, got {type(encoded).__name__}; "
            "pass one of them"
        )
    if "input_ids" not in data:
        raise TokenizerError(f"pad must get input_ids, got {sorted(data)}; tokenize the texts first")
    kind = None
    for name, value in data.items():
        kind = kind or _tensor_kind(value)
        data[name] = _as_lists(value)
    ids = data["input_ids"]
    flat = bool(ids) and not isinstance(ids[0], list)
    if not flat and any(row and isinstance(row[0], list) for row in ids):
        raise TokenizerError("pad must get one list of input_ids a text, got lists of lists; pass one mapping instead")
    if flat:
        data = {name: [value] for name, value in data.items()}
    lengths = [len(row) for row in data["input_ids"]]
    data.setdefault("attention_mask", [[1] * length for length in lengths])
    if mode is not None and pad is not None:
        target = target_length(lengths, mode, max_length, multiple)
        for name, filling in {"input_ids": pad.token_id, **_FILLING}.items():
            if name in data:
                data[name] = _fill_rows(data[name], lengths, target, filling, pad.side, name)
        # The ids may have been replaced since; then what the rows say would no longer be true of them.
        if rows is not None and [len(row) for row in rows] == lengths:
            rows = pad_rows(rows, target, pad)
    if rows is not None and [len(row) for row in rows] != [len(row) for row in data["input_ids"]]:
        rows = None
    if flat:
        data = {name: value[0] for name, value in data.items()}
    return BatchEncoding(data, rows, flat), kind


def _fill_rows(
    rows: list[list[int]], lengths: list[int], target: int, filling: int, side: str, name: str
) -> list[list[int]]:
    got = [len(row) if isinstance(row, list) else 0 for row in rows]
    if got != lengths:
        raise TokenizerError(
            f"{name} must have as many numbers as input_ids, got {got!s:.80} in rows of {lengths!s:.80} ids; "
            "give each id its number"
        )
    filled = []
    for row in rows:
        extra = [filling] * (target - len(row))
        filled.append(extra + row if side == "left" else row + extra)
    return filled


def _tensor_kind(value: Any) -> str | None:
    item = value[0] if isinstance(value, (list, tuple)) and value else value
    if not hasattr(item, "tolist"):
        return None
    return "np" if type(item).__module__ == "numpy" else "pt"


def _as_lists(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [_as_lists(item) for item in value]
    return value

"""Rows of tokens to batches of about equal length, so that little is spent on padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

Row = dict[str, "np.ndarray[Any, np.dtype[np.int32]]"]


def batches(lengths: list[int], max_batch_tokens: int) -> Iterator[list[int]]:
    """Group the indices of rows, longest first, so that rows times the longest stays within the bound."""
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > max_batch_tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def padded(rows: Sequence[Row], pad_token_id: int) -> dict[str, torch.Tensor]:
    """Fill rows up to the longest: (B, S) int64 each.

    On the right, whatever side the tokenizer prefers: positions count from the first token, so that filling up on the
    left would make a text's vector depend on its neighbours.
    """
    longest = max(len(row["input_ids"]) for row in rows)
    batch = {}
    for name in rows[0]:
        table = np.full((len(rows), longest), pad_token_id if name == "input_ids" else 0, dtype=np.int64)
        for filled, row in zip(table, rows, strict=True):
            filled[: len(row[name])] = row[name]
        batch[name] = torch.from_numpy(table)
    return batch

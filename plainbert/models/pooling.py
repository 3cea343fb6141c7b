"""From token vectors to one vector a text.

The six ways that released sentence encoders use, alone or laid side by side. Which of them a checkpoint wants
is read from its folder by ``tasks/embed.py``; the token vectors come from ``models/bert.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from plainbert.errors import InputError

#: Names as in a sentence-transformers folder, in the order in which that package lays several side by side.
POOLING_MODES = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")


def pool(hidden: Tensor, attention_mask: Tensor, modes: Sequence[str] = ("mean",), prompt_length: int = 0) -> Tensor:
    """Reduce the token vectors of each row to one vector.

    With m the mask (1 = a token, 0 = padding) and h the vectors::

        cls                    h of the first token
        max                    max over the tokens, dimension by dimension
        mean                   sum(m * h) / sum(m)
        mean_sqrt_len_tokens   sum(m * h) / sqrt(sum(m))
        weightedmean           sum(m * w * h) / sum(m * w), w = 1, 2, 3 ... from the first token on
        lasttoken              h of the last token

    Half-precision vectors are summed, and returned, in float32. What stands at padding has no effect, whatever
    it is; a row without any token gives zeros.

    Args:
        hidden: (B, S, E) token vectors, any floating dtype.
        attention_mask: (B, S), 1 or True where there is a token.
        modes: names out of ``POOLING_MODES``; the results are concatenated in the order given.
        prompt_length: this many tokens at the start of each row are left out, as INSTRUCTOR models want it for
            their instruction; the weights of ``weightedmean`` still count from the first token of the row.

    Returns:
        (B, E * number of modes), float32, or float64 for float64 vectors.

    Raises:
        InputError: an unknown mode, no mode at all, or a mask of another shape.

    Source: Reimers and Gurevych, "Sentence-BERT", section 3; the names and their order are those in
    ``1_Pooling/config.json`` of released checkpoints.
    """
    check_modes(modes)
    if attention_mask.shape != hidden.shape[:2]:
        raise InputError(
            f"attention_mask must have the shape of the token vectors, {tuple(hidden.shape[:2])}, got "
            f"{tuple(attention_mask.shape)}; give one entry per token"
        )
    hidden = hidden.to(torch.promote_types(hidden.dtype, torch.float32))
    present = attention_mask.bool()  # (B, S)
    order = present.cumsum(1)  # 1 for the first token of a row, 2 for the second ...
    present = present & (order > prompt_length)
    # masked_fill and not a product: 0 * inf would be NaN.
    kept = hidden.masked_fill(~present[..., None], 0.0)  # (B, S, E)
    count = present.sum(1, keepdim=True).to(hidden.dtype).clamp(min=1)  # (B, 1)
    vectors = []
    for mode in modes:
        if mode == "cls":
            vectors.append(_pick(kept, present.int().argmax(1)))
        elif mode == "max":
            highest = hidden.masked_fill(~present[..., None], float("-inf")).amax(1)
            vectors.append(highest.masked_fill(~present.any(1, keepdim=True), 0.0))
        elif mode == "mean":
            vectors.append(kept.sum(1) / count)
        elif mode == "mean_sqrt_len_tokens":
            vectors.append(kept.sum(1) / count.sqrt())
        elif mode == "weightedmean":
            weights = (order * present).to(hidden.dtype)  # (B, S)
            vectors.append((kept * weights[..., None]).sum(1) / weights.sum(1, keepdim=True).clamp(min=1))
        else:
            last = present.shape[1] - 1 - present.flip(1).int().argmax(1)
            vectors.append(_pick(kept, last))
    return torch.cat(vectors, dim=-1)


def check_modes(modes: Sequence[str]) -> None:
    """Raise InputError unless ``modes`` names at least one pooling mode, and only known ones."""
    unknown = [mode for mode in modes if mode not in POOLING_MODES]
    if unknown or not modes or isinstance(modes, str):
        raise InputError(
            f"pooling modes must be a sequence of names out of {', '.join(POOLING_MODES)}, got "
            f"{modes if isinstance(modes, str) else list(modes)!r}; choose at least one"
        )


def _pick(hidden: Tensor, index: Tensor) -> Tensor:
    """Vector ``index[b]`` of each row b: (B, S, E), (B,) -> (B, E)."""
    return hidden.gather(1, index[:, None, None].expand(-1, 1, hidden.shape[-1])).squeeze(1)

"""Ids to text and to tokens, and tokens to ids."""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Any

from tokenizers import Tokenizer, models

from plainbert.errors import TokenizerError
from plainbert.text.arguments import find_surrogate, whole_number
from plainbert.text.backend import library_errors

# In this order, on the whole text. Source: google's and transformers' detokenization of English.
_CLEANED = (
    (" .", "."),
    (" ?", "?"),
    (" !", "!"),
    (" ,", ","),
    (" ' ", "'"),
    (" n't", "n't"),
    (" 'm", "'m"),
    (" 's", "'s"),
    (" 've", "'ve"),
    (" 're", "'re"),
)


def decode_ids(tokenizer: Tokenizer, token_ids: Any, skip_special_tokens: bool, clean_up: bool) -> Any:
    """Turn ids into text; ``BertTokenizer.decode`` describes it."""
    ids = token_ids.tolist() if hasattr(token_ids, "tolist") else token_ids
    if not isinstance(ids, (list, tuple)):
        ids = [ids]
    elif ids and (isinstance(ids[0], (list, tuple)) or getattr(ids[0], "ndim", None)):
        return [decode_ids(tokenizer, row, skip_special_tokens, clean_up) for row in ids]
    tokens = ids_to_tokens(tokenizer, ids, frozenset())
    if None in tokens:
        at = tokens.index(None)
        raise TokenizerError(f"token_ids must be in the vocabulary, got {ids[at]} at position {at}; leave it out")
    with library_errors("decoding"):
        text = str(tokenizer.decode([int(number) for number in ids], skip_special_tokens=skip_special_tokens))
    # BPE keeps blanks as part of its tokens: removing some would change the text.
    if clean_up and not isinstance(tokenizer.model, models.BPE):
        for before, after in _CLEANED:
            text = text.replace(before, after)
    return text


def check_sequences(sequences: Any) -> Any:
    """Return ``sequences`` as a list; a TokenizerError if it is none, nor an array or tensor of one axis or more."""
    rows = sequences.tolist() if hasattr(sequences, "tolist") else sequences
    if not isinstance(rows, (list, tuple)):
        raise TokenizerError(f"sequences must be a list of lists of ids, got {rows!r:.60}; for one id use decode")
    return rows


def ids_to_tokens(tokenizer: Tokenizer, ids: Any, skipped: Set[int]) -> Any:
    """Turn an id into its token, or a list of ids into theirs; None for an id beyond the vocabulary."""
    ids = ids.tolist() if hasattr(ids, "tolist") else ids
    if isinstance(ids, (list, tuple)):
        numbers = [whole_number(number, "ids", 0) for number in ids]
        return [_token(tokenizer, number) for number in numbers if number not in skipped]
    return _token(tokenizer, whole_number(ids, "ids", 0))


def tokens_to_ids(tokenizer: Tokenizer, tokens: Any, unknown: int | None) -> Any:
    """Turn a token into its id, or several into theirs; ``unknown`` for a token that is not in the vocabulary."""
    if not isinstance(tokens, (str, Iterable)):
        raise TokenizerError(f"tokens must be a str or a list of them, got {tokens!r}; for ids use decode")
    items = [tokens] if isinstance(tokens, str) else list(tokens)
    for index, token in enumerate(items):
        if not isinstance(token, str):
            raise TokenizerError(f"tokens[{index}] must be a str, got {token!r:.60}; pass tokens as text")
    find_surrogate(items, "tokens")
    numbers = [tokenizer.token_to_id(token) for token in items]
    numbers = [unknown if number is None else number for number in numbers]
    return numbers[0] if isinstance(tokens, str) else numbers


def _token(tokenizer: Tokenizer, number: int) -> str | None:
    # The library's ids are 32 bits wide.
    return tokenizer.id_to_token(number) if number < 2**32 else None

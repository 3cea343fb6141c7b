"""The batch that the tokenizer returns: a mapping for ``model(**batch)``, and what is known about each token.

``rows.py`` beside this file makes its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from typing import Any

from plainbert.errors import TokenizerError
from plainbert.text.rows import Row

_TENSOR_KINDS = ("pt", "np")


class BatchEncoding(MutableMapping[str, Any]):
    """Tokenized texts by name: ``batch["input_ids"]``, ``batch.input_ids``, ``model(**batch)``.

    Beside the mapping, and not in it, stand ``offsets``, ``word_ids``, ``special_tokens_mask``, ``sequence_ids`` and
    ``tokens``: one list per row, as long as its ids, or the list itself where ``input_ids`` is one flat list. They
    describe the rows as they were made; an entry that is assigned to the mapping later does not change them.
    """

    def __init__(self, data: dict[str, Any], rows: Sequence[Row] | None = None, flat: bool = False) -> None:
        """Wrap ``data``.

        Args:
            data: Name to list, array or tensor.
            rows: What the rows were made of; None for a batch that was not made from text.
            flat: Whether ``data`` is one text without the outer list.
        """
        self._data = data
        self._rows = rows
        self._flat = flat

    @property
    def offsets(self) -> list[Any]:
        """First and end code point of each token in its text (in its word, if words were given); added: (0, 0)."""
        return self._described(Row.offsets, "offsets")

    @property
    def word_ids(self) -> list[Any]:
        """Index of each token's word in its text; added: None."""
        return self._described(Row.word_ids, "word_ids")

    @property
    def special_tokens_mask(self) -> list[Any]:
        """1 for an added or padding token, 0 for a token of a text, even if the text spells ``[MASK]``."""
        return self._described(Row.special_tokens_mask, "special_tokens_mask")

    @property
    def sequence_ids(self) -> list[Any]:
        """0 or 1, the text of a pair that each token is of; added: None."""
        return self._described(Row.sequence_ids, "sequence_ids")

    @property
    def tokens(self) -> list[Any]:
        """The tokens as text."""
        return self._described(Row.tokens, "tokens")

    @property
    def rows(self) -> Sequence[Row] | None:
        """What the rows were made of."""
        return self._rows

    @property
    def flat(self) -> bool:
        """Whether the entries are those of one text, without the outer list."""
        return self._flat

    def _described(self, describe: Callable[[Row], list[Any]], name: str) -> list[Any]:
        if self._rows is None:
            raise TokenizerError(f"batch.{name} must come from text, got one made from ids; tokenize the texts")
        return describe(self._rows[0]) if self._flat else [describe(row) for row in self._rows]

    def to(self, device: Any, non_blocking: bool = False) -> BatchEncoding:
        """Move every tensor to ``device``, in place as in transformers.

        Args:
            device: What ``torch.Tensor.to`` takes.
            non_blocking: Whether the copy may still be under way when this returns.

        Returns:
            This batch.

        Raises:
            TokenizerError: An entry is no tensor.
        """
        for name, value in self._data.items():
            if not hasattr(value, "to"):
                raise TokenizerError(
                    f"batch.to must have tensors to move, got {type(value).__name__} for {name}; "
                    "pass return_tensors='pt'"
                )
        for name, value in self._data.items():
            self._data[name] = value.to(device, non_blocking=non_blocking)
        return self

    def __getitem__(self, name: str) -> Any:
        return self._data[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._data[name] = value

    def __delitem__(self, name: str) -> None:
        del self._data[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def __getattr__(self, name: str) -> Any:
        # Reached only where there is no such attribute; ``_data`` is missing while a copy is being unpickled.
        data = self.__dict__.get("_data", {})
        if name in data:
            return data[name]
        raise AttributeError(f"batch has no {name!r}, only {sorted(data)}")

    def __repr__(self) -> str:
        return repr(self._data)


def check_tensor_kind(return_tensors: object) -> str | None:
    """Check ``return_tensors``: ``pt``, ``np`` or None."""
    if return_tensors is None or (isinstance(return_tensors, str) and return_tensors in _TENSOR_KINDS):
        return return_tensors
    raise TokenizerError(f"return_tensors must be 'pt', 'np' or None, got {return_tensors!r}; pass one of them")


def as_tensors(data: dict[str, Any], kind: str) -> dict[str, Any]:
    """Turn lists of numbers into arrays or tensors.

    Args:
        data: Name to list, or to list of lists of one length.
        kind: ``pt`` or ``np``.

    Returns:
        The same names; shape (B, S), or (B,) for a flat list; int64, or float32 for fractions. No rows give (0, 0).

    Raises:
        TokenizerError: Rows differ in length, or hold something else than numbers.
    """
    import numpy as np

    arrays: dict[str, Any] = {}
    for name, value in data.items():
        lengths = {len(row) for row in value if isinstance(row, (list, tuple))}
        if len(lengths) > 1:
            raise TokenizerError(
                f"{name} must have rows of one length to become a tensor, got {min(lengths)} to {max(lengths)}; pass "
                "padding=True, and truncation=True where texts may be longer than max_length"
            )
        try:
            array = np.array(value) if lengths != {0} and len(value) else np.zeros((len(value), 0), dtype=np.int64)
        except ValueError:  # numpy: rows and numbers mixed
            array = np.array(None)
        if array.dtype.kind not in "iubf":
            raise TokenizerError(f"{name} must hold numbers to become a tensor, got {value!s:.80}; take it out")
        arrays[name] = array if array.dtype.kind == "b" else array.astype("f4" if array.dtype.kind == "f" else "i8")
    if kind == "np":
        return arrays
    import torch

    return {name: torch.from_numpy(array) for name, array in arrays.items()}

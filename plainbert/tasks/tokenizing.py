"""What the tasks ask of a tokenizer: that it is there, and that it knows the language. Imports no torch."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from plainbert.checkpoints.folder import Source
from plainbert.checkpoints.hub import find
from plainbert.errors import MissingFileError, TokenizerError, warn
from plainbert.text.tokenizer import BertTokenizer


def has_tokenizer(source: Source) -> bool:
    """Tell whether a checkpoint has the files of a tokenizer."""
    return any(source.path(filename) is not None for filename in ("tokenizer.json", "vocab.txt"))


def tokenizer_of(name: str | os.PathLike[str], **hub: Any) -> BertTokenizer:
    """Load the tokenizer of a checkpoint.

    Args:
        name: a local folder, a Hugging Face repo id, or ``minilm``.
        hub: revision, cache_dir, token, local_files_only.

    Raises:
        MissingFileError: the checkpoint, which is named, was saved without one.
        TokenizerError: one that cannot be honoured.
    """
    try:
        return BertTokenizer.from_pretrained(name, **hub)
    except TokenizerError:
        if not has_tokenizer(find(name, **hub)):
            raise MissingFileError(
                f"{name} must have a tokenizer, tokenizer.json or vocab.txt, got neither; "
                "save it there with tokenizer.save_pretrained(...)"
            ) from None
        raise


@dataclass
class UnknownTokens:
    """Counts the tokens of a run that stand for what the vocabulary lacks."""

    tokens: int = 0
    """Tokens of the texts themselves: without [CLS], [SEP] and padding."""
    unknown: int = 0

    def count(self, tokenizer: BertTokenizer, rows: Iterable[Iterable[int]]) -> None:
        """Look at the ids of some texts."""
        around = {tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id} - {tokenizer.unk_token_id}
        for row in rows:
            of_text = [number for number in row if number not in around]
            self.tokens += len(of_text)
            self.unknown += of_text.count(tokenizer.unk_token_id) if tokenizer.unk_token_id is not None else 0

    def report(self) -> None:
        """Warn once when they are more than a third."""
        if 3 * self.unknown > self.tokens:
            warn(
                f"{self.unknown} of {self.tokens} tokens ({self.unknown / self.tokens:.0%}) are the unknown token, "
                "since the vocabulary lacks what stands there; is this model made for this language?"
            )

"""The tokenizers library's object in a form that any number of threads can use at once.

The library keeps truncation, padding and the treatment of special tokens as settings of its object, and changing one
while another thread tokenizes is an error or a wrong result. So nothing is set here after the object is made.
"""

from __future__ import annotations

import threading
from typing import Any

from tokenizers import Encoding, Tokenizer

from plainbert.text.arguments import Texts, find_surrogate
from plainbert.text.backend import library_errors
from plainbert.text.layout import Layout, Row, measure_layout
from plainbert.text.truncation import Truncation, check_room, truncate


class SharedTokenizer:
    """Texts to rows, with nothing that a call could change for another."""

    def __init__(self, parsing: Tokenizer) -> None:
        """Take over ``parsing``, a tokenizer without truncation and padding that parses special tokens in texts."""
        self.parsing = parsing
        self._literal: Tokenizer | None = None
        self._lock = threading.Lock()
        with library_errors("measuring the post_processor"):
            self._layouts = {
                (pair, added): measure_layout(parsing, pair, added) for pair in (False, True) for added in (False, True)
            }

    def layout(self, pair: bool, add_special_tokens: bool) -> Layout:
        """Return where added tokens stand around one text, or around a pair."""
        return self._layouts[(pair, add_special_tokens)]

    def rows(
        self,
        texts: Texts,
        add_special_tokens: bool,
        truncation: Truncation | None,
        is_split_into_words: bool,
        literal: bool,
    ) -> list[Row]:
        """Tokenize and cut ``texts``; the rows of a text follow each other.

        Args:
            texts: What to tokenize.
            add_special_tokens: Whether the post-processor's tokens are added.
            truncation: None keeps every token.
            is_split_into_words: Whether a text is a list of words.
            literal: Whether special tokens spelled in a text are text.
        """
        firsts = self._tokenize(texts.first, "text", is_split_into_words, literal)
        paired = [index for index, second in enumerate(texts.second) if second is not None]
        others = self._tokenize([texts.second[index] for index in paired], "text_pair", is_split_into_words, literal)
        seconds = dict(zip(paired, others, strict=True))
        rows: list[Row] = []
        rooms: dict[bool, int] = {}
        for index, first in enumerate(firsts):
            pair = index in seconds
            parts = (first, seconds[index]) if pair else (first,)
            layout = self.layout(pair, add_special_tokens)
            lengths = tuple(len(part) for part in parts)
            if truncation is None:
                rows.append(Row(layout, parts, tuple((0, length) for length in lengths), index))
                continue
            if pair not in rooms:
                rooms[pair] = check_room(truncation, layout.added, "a pair" if pair else "one text")
            rows += [Row(layout, parts, spans, index) for spans in truncate(truncation, lengths, rooms[pair], index)]
        return rows

    def _tokenize(self, texts: list[Any], name: str, is_split_into_words: bool, literal: bool) -> list[Encoding]:
        """Tokenize texts without added tokens; the library does so in parallel and without the GIL."""
        if not texts:
            return []
        try:
            with library_errors("tokenizing"):
                return list(
                    self._variant(literal).encode_batch(
                        [list(text) for text in texts] if is_split_into_words else texts,
                        is_pretokenized=is_split_into_words,
                        add_special_tokens=False,
                    )
                )
        except TypeError:  # how the library refuses a str that is not Unicode
            find_surrogate(texts, name)
            raise

    def _variant(self, literal: bool) -> Tokenizer:
        """Return the object that parses special tokens in texts, or the one that does not, made when first needed."""
        if not literal:
            return self.parsing
        with self._lock:
            if self._literal is None:
                other = Tokenizer.from_str(self.parsing.to_str())
                other.encode_special_tokens = True
                self._literal = other
            return self._literal

"""Texts to the rows of a batch: tokens, with those that are added around them, and padding.

Where added tokens stand (``[CLS] A [SEP]``, ``[CLS] A [SEP] B [SEP]``, ``<s> A </s></s> B </s>``) is measured once
from the tokenizer's own post-processor, and a row is then texts and spans put into that layout. So nothing about the
shared tokenizer is ever changed for a call, which is what makes it safe for threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tokenizers import Encoding, Tokenizer

from plainbert.errors import TokenizerError
from plainbert.text.arguments import Texts, find_surrogate
from plainbert.text.backend import library_errors
from plainbert.text.truncation import Truncation, check_room, truncate

# Texts to measure with: the first that is not empty once tokenized.
_PROBES = ("a", "0", "a b c", "的")
_CORRECT = "correct it in tokenizer.json"


class Segment(NamedTuple):
    """A piece of a layout: a run of added tokens, or one of the texts.

    Attributes:
        text: 0 or 1, which text stands here; None for added tokens.
        type_id: ``token_type_ids`` of the piece.
        ids: The added ids, empty for a text.
        tokens: The added tokens, empty for a text.
    """

    text: int | None
    type_id: int
    ids: tuple[int, ...] = ()
    tokens: tuple[str, ...] = ()


@dataclass(frozen=True)
class Layout:
    """Segments from left to right, and how many tokens they add to the texts."""

    segments: tuple[Segment, ...]
    added: int


def measure_layout(tokenizer: Tokenizer, pair: bool, add_special_tokens: bool) -> Layout:
    """See what the post-processor of ``tokenizer`` puts around one text, or around two.

    Raises:
        TokenizerError: It does something else than surround the texts, such as repeating one.
    """
    for probe in _PROBES:
        alone = tokenizer.encode(probe, add_special_tokens=False).ids
        if alone:
            break
    else:
        raise TokenizerError(
            f"tokenizer.json must tokenize simple texts, got no token for any of {_PROBES}; correct its normalizer"
        )
    encoding = tokenizer.encode(probe, probe if pair else None, add_special_tokens=add_special_tokens)
    sources, added = encoding.sequence_ids, encoding.special_tokens_mask
    segments: list[Segment] = []
    seen: list[int] = []
    at = 0
    while at < len(sources):
        text, type_id = sources[at], encoding.type_ids[at]
        if added[at]:
            segments.append(Segment(None, type_id, (encoding.ids[at],), (encoding.tokens[at],)))
            at += 1
            continue
        end = at + len(alone)
        # A text that stands twice has lost its number in the first place.
        if text is None or encoding.ids[at:end] != alone or set(encoding.type_ids[at:end]) != {type_id}:
            raise TokenizerError(
                f"post_processor must leave a text whole and use it once, got {encoding.tokens}; {_CORRECT}"
            )
        segments.append(Segment(text, type_id))
        seen.append(text)
        at = end
    if sorted(seen) != list(range(1 + pair)):
        raise TokenizerError(f"post_processor must use each text, got only {encoding.tokens}; {_CORRECT}")
    for segment in segments:
        for number in segment.ids:
            if tokenizer.id_to_token(number) is None:
                raise TokenizerError(
                    f"post_processor must add tokens of the vocabulary, got the unknown id {number}; {_CORRECT}"
                )
    return Layout(tuple(segments), sum(len(segment.ids) for segment in segments))


class Padding(NamedTuple):
    """How a row is filled up: the pad token, on which side, and how many."""

    token_id: int
    token: str
    left: int
    right: int


@dataclass
class Row:
    """One row of a batch: which part of which tokenized text stands where. Lists are made when asked for.

    Attributes:
        layout: The layout of its kind, one text or two.
        texts: The tokenized texts, without added tokens; offsets already count code points.
        spans: First and end token of each text that are kept.
        sample: Index of the text that the row comes from.
        padding: None until padded.
    """

    layout: Layout
    texts: Sequence[Encoding]
    spans: Sequence[tuple[int, int]]
    sample: int
    padding: Padding | None = None

    def __len__(self) -> int:
        """Tokens in the row, added and padding ones included."""
        filled = 0 if self.padding is None else self.padding.left + self.padding.right
        return self.layout.added + filled + sum(end - start for start, end in self.spans)

    def ids(self) -> list[int]:
        """``input_ids``."""
        pad = 0 if self.padding is None else self.padding.token_id
        return self._collect(lambda segment: segment.ids, lambda text: text.ids, pad)

    def tokens(self) -> list[str]:
        """The tokens as text; an unknown piece as the tokenizer shows it."""
        pad = "" if self.padding is None else self.padding.token
        return self._collect(lambda segment: segment.tokens, lambda text: text.tokens, pad)

    def offsets(self) -> list[tuple[int, int]]:
        """First and end code point of each token in its text, or in its word if words were given."""
        return self._collect(lambda segment: [(0, 0)] * len(segment.ids), lambda text: text.offsets, (0, 0))

    def word_ids(self) -> list[int | None]:
        """Index of the word of each token within its text."""
        return self._collect(lambda segment: [None] * len(segment.ids), lambda text: text.word_ids, None)

    def type_ids(self) -> list[int]:
        """``token_type_ids``; padding is 0."""
        return self._fill(lambda segment: segment.type_id, 0)

    def attention_mask(self) -> list[int]:
        """1 where there is a token, 0 for padding."""
        return self._fill(lambda segment: 1, 0)

    def special_tokens_mask(self) -> list[int]:
        """1 for a token that is no part of a text: added or padding."""
        return self._fill(lambda segment: int(segment.text is None), 1)

    def sequence_ids(self) -> list[int | None]:
        """0 or 1, the text that each token is of; None for a token that is no part of a text."""
        return self._fill(lambda segment: segment.text, None)

    def _collect(
        self, added: Callable[[Segment], Iterable[Any]], kept: Callable[[Encoding], list[Any]], pad: Any
    ) -> list[Any]:
        values: list[Any] = [] if self.padding is None else [pad] * self.padding.left
        for segment in self.layout.segments:
            if segment.text is None:
                values += added(segment)
            else:
                start, end = self.spans[segment.text]
                whole = kept(self.texts[segment.text])
                values += whole if end - start == len(whole) else whole[start:end]
        return values if self.padding is None else values + [pad] * self.padding.right

    def _fill(self, value: Callable[[Segment], Any], pad: Any) -> list[Any]:
        values: list[Any] = [] if self.padding is None else [pad] * self.padding.left
        for segment in self.layout.segments:
            if segment.text is None:
                count = len(segment.ids)
            else:
                start, end = self.spans[segment.text]
                count = end - start
            values += [value(segment)] * count
        return values if self.padding is None else values + [pad] * self.padding.right


# The entries of a batch, in the order in which they are listed.
ENTRIES: dict[str, Callable[[Row], list[int]]] = {
    "input_ids": Row.ids,
    "token_type_ids": Row.type_ids,
    "attention_mask": Row.attention_mask,
}


class SharedTokenizer:
    """Texts to rows, by any number of threads at once.

    The library keeps truncation, padding and the treatment of special tokens as settings of its object, and changing
    one while another thread tokenizes is an error or a wrong result. So nothing is set here after the object is made.
    """

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

"""``BertTokenizer``: text to ids and back, with the names, defaults and results of transformers.

The work is done by the tokenizers library; ``backend.py`` beside this file reads the files, ``rows.py``,
``truncation.py`` and ``padding.py`` make rows, ``encoding.py`` is the batch, ``saving.py`` its files.

Where transformers 5.24 differs: what cannot be done is an error here (a ``max_length`` below the special tokens, a
``stride`` that leaves no room, truncation or padding to an unknown length, a keyword that nothing takes), an empty
second text is a second text, and a special token that the vocabulary lacks is None and not a new id.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from plainbert.errors import TokenizerError
from plainbert.text.arguments import (
    CALL_KEYWORDS,
    check_divisible,
    collect_texts,
    flag,
    multiple_of,
    padding_mode,
    refuse_keywords,
    truncation_strategy,
    warn_of_unused,
    whole_number,
)
from plainbert.text.backend import Backend, build, read_source
from plainbert.text.decoding import check_sequences, decode_ids, ids_to_tokens, tokens_to_ids
from plainbert.text.encoding import BatchEncoding, as_tensors, check_tensor_kind
from plainbert.text.padding import PadToken, pad_batch, pad_rows, target_length
from plainbert.text.rows import ENTRIES, SharedTokenizer
from plainbert.text.saving import tokenizer_files
from plainbert.text.settings import ASSIGNABLE, Settings, read_settings, refuse_assignment, refuse_settings
from plainbert.text.special import ROLES
from plainbert.text.truncation import Truncation
from plainbert.text.vocab import given_vocab


class BertTokenizer:
    """Tokenizer of one checkpoint, which any number of threads may share.

    Besides the methods it has ``cls_token``, ``cls_token_id`` and so on for bos, eos, unk, sep, pad, cls and mask:
    None where the tokenizer has no such token.

    The three attributes below, and no others, may be assigned. A call that has begun keeps what it found; copies,
    pickles and saved folders have what was assigned.

    Attributes:
        model_max_length: Most tokens in a row that the model takes; ``int(1e30)`` where no file says it.
        padding_side: ``right`` or ``left``, as tokenizer_config.json says. With ``left`` a model with absolute
            positions needs ``position_ids`` of its own, or it reads the text as standing further right.
        truncation_side: ``right`` keeps the beginning of a text, ``left`` its end.
    """

    model_max_length: int
    padding_side: str
    truncation_side: str
    _backend: Backend
    _config: dict[str, Any]
    _settings: Settings
    _shared: SharedTokenizer
    _assigning = threading.Lock()  # of two assignments at once none may be lost

    def __init__(
        self,
        vocab: str | os.PathLike[str] | Mapping[str, int] | None = None,
        do_lower_case: bool = True,
        *,
        vocab_file: str | os.PathLike[str] | None = None,
        **settings: Any,
    ) -> None:
        """Make a WordPiece tokenizer from a vocabulary.

        Args:
            vocab: A vocab.txt, or a dictionary of token to id.
            do_lower_case: Whether text is lower-cased first.
            vocab_file: Another name for ``vocab``.
            **settings: Any key of tokenizer_config.json: ``strip_accents``, ``tokenize_chinese_chars``,
                ``cls_token`` ..., ``additional_special_tokens``, ``model_max_length``, ``padding_side`` ...

        Raises:
            TokenizerError: The vocabulary or a setting cannot be used.
            KeywordError: A setting that no tokenizer has.
        """
        refuse_settings(settings, "BertTokenizer")
        config = {"do_lower_case": do_lower_case, **settings}
        self._adopt(build(given_vocab(vocab, vocab_file), config, {}, {}), config)

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | os.PathLike[str],
        *,
        revision: str | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        token: str | bool | None = None,
        local_files_only: bool = False,
        **overrides: Any,
    ) -> BertTokenizer:
        """Load the tokenizer of a checkpoint: a local folder, a Hub repo id, or ``minilm``.

        Args:
            pretrained_model_name_or_path: The checkpoint.
            revision: Branch, tag or commit on the Hub.
            cache_dir: Folder of the Hub's cache.
            token: Access token for the Hub.
            local_files_only: Whether the network is left alone.
            **overrides: Keys of tokenizer_config.json that replace its own.
        """
        from plainbert.loading import load_tokenizer

        refuse_settings(overrides, "BertTokenizer.from_pretrained")
        hub = {"revision": revision, "cache_dir": cache_dir, "token": token, "local_files_only": local_files_only}
        return load_tokenizer(cls, pretrained_model_name_or_path, hub, overrides)

    @classmethod
    def from_files(
        cls,
        tokenizer_json: Path | None,
        vocab_txt: Path | None,
        tokenizer_config: Mapping[str, Any],
        special_tokens_map: Mapping[str, Any],
        added_tokens: Mapping[str, Any],
        overrides: Mapping[str, Any] | None = None,
    ) -> BertTokenizer:
        """Make the tokenizer from its files; a tokenizer.json is preferred to a vocab.txt.

        Args:
            tokenizer_json: tokenizer.json, of any kind (WordPiece, Unigram, BPE).
            vocab_txt: vocab.txt, read where there is no tokenizer.json.
            tokenizer_config: tokenizer_config.json, empty where there is none.
            special_tokens_map: special_tokens_map.json, likewise.
            added_tokens: added_tokens.json, token to id, likewise.
            overrides: Keys of tokenizer_config.json given by the caller, stronger than any file.

        Raises:
            TokenizerError: A file is broken or contradicts another, or neither of the first two is given.
        """
        given = dict(overrides or {})
        config = {**tokenizer_config, **given}
        named = {key: value for key, value in special_tokens_map.items() if key not in given}
        tokenizer = cls.__new__(cls)
        tokenizer._adopt(build(read_source(tokenizer_json, vocab_txt), config, named, added_tokens), config)
        return tokenizer

    def _adopt(self, backend: Backend, config: Mapping[str, Any], settings: Settings | None = None) -> None:
        self.__dict__.update(
            _backend=backend,
            _config=dict(config),
            _settings=settings or read_settings(config),
            _tokenizer=backend.tokenizer,
            _shared=SharedTokenizer(backend.tokenizer),
        )

    def __getstate__(self) -> dict[str, Any]:
        return {"backend": self._backend, "config": self._config, "settings": self._settings}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._adopt(**state)

    def __getattr__(self, name: str) -> Any:
        # Reached for what is no entry of __dict__; that is empty only while this object is being made.
        if name in ASSIGNABLE and self.__dict__:
            return getattr(self._settings, name)
        if name.removesuffix("_id") in ROLES and self.__dict__:
            token = self._backend.special.named[name.removesuffix("_id")]
            return token if token is None or not name.endswith("_id") else self._tokenizer.token_to_id(token)
        raise AttributeError(f"BertTokenizer has no attribute {name!r}")

    def __setattr__(self, name: str, value: object) -> None:
        refuse_assignment(name, value)
        with self._assigning:
            self.__dict__["_settings"] = self._settings.assigned(name, value)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *ASSIGNABLE, *ROLES, *(f"{role}_id" for role in ROLES)]

    def __call__(
        self,
        text: str | Sequence[Any],
        text_pair: str | Sequence[Any] | None = None,
        add_special_tokens: bool = True,
        padding: bool | str = False,
        truncation: bool | str | None = None,
        max_length: int | None = None,
        stride: int = 0,
        is_split_into_words: bool = False,
        pad_to_multiple_of: int | None = None,
        return_overflowing_tokens: bool = False,
        return_tensors: str | None = None,
        split_special_tokens: bool | None = None,
        **unknown: Any,
    ) -> BatchEncoding:
        """Tokenize one text, or many.

        Args:
            text: A str or a list of them; with ``is_split_into_words`` a list of words or a list of such lists. A
                list may hold (first, second) tuples instead.
            text_pair: The second text, in the same form.
            add_special_tokens: Whether [CLS] and [SEP], or what the tokenizer has for them, are added.
            padding: False; True or ``longest``: to the longest row; ``max_length``: to ``max_length``.
            truncation: False; True or ``longest_first``: token by token from the longer text; ``only_first``;
                ``only_second``. None is False, except that ``max_length`` alone, without padding, truncates.
            max_length: Tokens in a row, added ones included; None is ``model_max_length``.
            stride: Tokens that a window repeats of the one before it.
            is_split_into_words: Whether a text is a list of words; offsets then count within a word, and
                ``word_ids`` number the words given.
            pad_to_multiple_of: Padded rows get a multiple of this many tokens.
            return_overflowing_tokens: Whether what is cut off becomes further rows; ``overflow_to_sample_mapping``
                then tells the text of each row.
            return_tensors: ``pt``, ``np``, or None for lists.
            split_special_tokens: Whether special tokens spelled in a text are text. None: as tokenizer_config.json
                says, else False.
            **unknown: Refused by name.

        Returns:
            ``input_ids``, ``token_type_ids``, ``attention_mask``, each (B, S), or (S,) for one text as lists; and
            beside the mapping ``offsets``, ``word_ids``, ``special_tokens_mask``, ``sequence_ids``, ``tokens``.

        Raises:
            TokenizerError: A value cannot be used, or what is asked for cannot be done; with the numbers.
            KeywordError: An unknown keyword.
        """
        settings = self._settings  # once: another thread may assign others meanwhile
        refuse_keywords(unknown, CALL_KEYWORDS, "tokenizer")
        if truncation is None and max_length is not None and padding is False:
            truncation = True
        mode, strategy, kind = padding_mode(padding), truncation_strategy(truncation), check_tensor_kind(return_tensors)
        stride, multiple = whole_number(stride, "stride", 0), multiple_of(pad_to_multiple_of)
        added, words = flag(add_special_tokens, "add_special_tokens"), flag(is_split_into_words, "is_split_into_words")
        windows = flag(return_overflowing_tokens, "return_overflowing_tokens")
        literal = flag(split_special_tokens, "split_special_tokens", settings.split_special_tokens)
        texts = collect_texts(text, text_pair, words)
        cut = None
        if strategy is not None:
            limit = settings.limit(max_length, f"truncation={strategy!r}")
            cut = Truncation(strategy, limit, stride, settings.truncation_side, windows)
            check_divisible(limit, multiple if mode is not None else None)
        pad = None if mode is None else self._pad_token(settings.padding_side)
        length = settings.limit(max_length, "padding='max_length'") if mode == "max_length" else None

        rows = self._shared.rows(texts, added, cut, words, literal)
        if mode is not None and pad is not None:
            rows = pad_rows(rows, target_length([len(row) for row in rows], mode, length, multiple), pad)
        data: dict[str, Any] = {name: [ENTRIES[name](row) for row in rows] for name in settings.input_names}
        if windows:
            data["overflow_to_sample_mapping"] = [row.sample for row in rows]
        flat = not texts.batched and kind is None and not windows
        if flat:
            data = {name: value[0] for name, value in data.items()}
        # Last, because what cannot be done is an error, with or without warnings.
        warn_of_unused(mode, strategy, windows, max_length, stride, multiple)
        return BatchEncoding(data if kind is None else as_tensors(data, kind), rows, flat)

    def batch_encode_plus(self, batch_text_or_text_pairs: Sequence[Any], **keywords: Any) -> BatchEncoding:
        """Tokenize a list of texts or of (first, second) pairs; keywords and result of a call."""
        if isinstance(batch_text_or_text_pairs, str):
            raise TokenizerError(f"the batch must be a list, got str {batch_text_or_text_pairs!r:.60}; put it into one")
        return self(batch_text_or_text_pairs, **keywords)

    def encode(self, text: str | Sequence[Any], text_pair: str | Sequence[Any] | None = None, **keywords: Any) -> Any:
        """Tokenize as a call does and return ``input_ids`` alone."""
        return self(text, text_pair, **keywords)["input_ids"]

    def tokenize(
        self, text: str | Sequence[Any], pair: str | Sequence[Any] | None = None, **keywords: Any
    ) -> list[Any]:
        """Return the tokens of a text as text, without added ones unless ``add_special_tokens=True``."""
        return self(text, pair, **{"add_special_tokens": False, **keywords}).tokens

    def pad(
        self,
        encoded_inputs: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        padding: bool | str = True,
        max_length: int | None = None,
        pad_to_multiple_of: int | None = None,
        return_tensors: str | None = None,
        **unknown: Any,
    ) -> BatchEncoding:
        """Fill up ids that are already there, such as the items of a data loader.

        Args:
            encoded_inputs: A mapping with ``input_ids``, or a list of mappings of one text each. ``attention_mask``,
                ``token_type_ids`` and ``special_tokens_mask`` are filled up too, other entries kept as they are.
            padding: As in a call.
            max_length: As in a call; nothing is cut off.
            pad_to_multiple_of: As in a call.
            return_tensors: As in a call; None is what was given.
            **unknown: Refused by name.
        """
        refuse_keywords(unknown, "padding, max_length, pad_to_multiple_of, return_tensors", "pad")
        settings = self._settings
        mode, multiple = padding_mode(padding), multiple_of(pad_to_multiple_of)
        batch, given = pad_batch(
            encoded_inputs,
            mode,
            settings.limit(max_length, "padding='max_length'") if mode == "max_length" else None,
            multiple,
            self._pad_token(settings.padding_side) if mode is not None else None,
        )
        warn_of_unused(mode, None, False, max_length, 0, multiple)
        kind = check_tensor_kind(return_tensors) or given
        return batch if kind is None else BatchEncoding(as_tensors(dict(batch), kind), batch.rows, batch.flat)

    def decode(
        self, token_ids: Any, skip_special_tokens: bool = False, clean_up_tokenization_spaces: bool | None = None
    ) -> Any:
        """Turn ids back into text.

        Args:
            token_ids: One id, a list of ids, or a list of such lists; also as array or tensor.
            skip_special_tokens: Whether special tokens are left out.
            clean_up_tokenization_spaces: Whether " ." becomes "." and the like; None as tokenizer_config.json says.

        Returns:
            A str, or a list of them for a list of lists.

        Raises:
            TokenizerError: An id is not in the vocabulary (transformers leaves it out).
        """
        clean = flag(clean_up_tokenization_spaces, "clean_up_tokenization_spaces", self._settings.clean_up)
        return decode_ids(self._tokenizer, token_ids, flag(skip_special_tokens, "skip_special_tokens"), clean)

    def batch_decode(
        self, sequences: Any, skip_special_tokens: bool = False, clean_up_tokenization_spaces: bool | None = None
    ) -> list[str]:
        """Turn a list of lists of ids into a list of str; see ``decode``."""
        rows = check_sequences(sequences)
        texts = self.decode(rows, skip_special_tokens, clean_up_tokenization_spaces) if rows else []
        return [texts] if isinstance(texts, str) else texts

    def convert_tokens_to_ids(self, tokens: str | Sequence[str]) -> Any:
        """Return the id of a token, or the list of ids of a list; an unknown token has ``unk_token_id``."""
        return tokens_to_ids(self._tokenizer, tokens, self.unk_token_id)

    def convert_ids_to_tokens(self, ids: Any, skip_special_tokens: bool = False) -> Any:
        """Return the token of an id, or the list of tokens of a list; None for an id beyond the vocabulary."""
        skip = flag(skip_special_tokens, "skip_special_tokens")
        return ids_to_tokens(self._tokenizer, ids, set(self.all_special_ids) if skip else set())

    def get_vocab(self) -> dict[str, int]:
        """Return token to id, added tokens included."""
        return dict(self._tokenizer.get_vocab(with_added_tokens=True))

    def num_special_tokens_to_add(self, pair: bool = False) -> int:
        """Return how many tokens are added to one text, or to a pair."""
        return self._shared.layout(flag(pair, "pair"), True).added

    @property
    def kind(self) -> str:
        """How words are split: ``WordPiece``, ``Unigram``, ``BPE`` or ``WordLevel``."""
        return type(self._tokenizer.model).__name__

    @property
    def vocab_size(self) -> int:
        """Tokens of the vocabulary, without added ones."""
        return int(self._tokenizer.get_vocab_size(with_added_tokens=False))

    @property
    def special_tokens_map(self) -> dict[str, str]:
        """Role to token, for the roles that this tokenizer has."""
        return {role: token for role, token in self._backend.special.named.items() if token is not None}

    @property
    def all_special_tokens(self) -> list[str]:
        """The special tokens, each once."""
        return list(dict.fromkeys([*self.special_tokens_map.values(), *self._backend.special.extra]))

    @property
    def all_special_ids(self) -> list[int]:
        """The ids of ``all_special_tokens``."""
        return [number for number in map(self._tokenizer.token_to_id, self.all_special_tokens) if number is not None]

    def __len__(self) -> int:
        """Tokens of the vocabulary, added ones included."""
        return int(self._tokenizer.get_vocab_size(with_added_tokens=True))

    def __repr__(self) -> str:
        return f"BertTokenizer({len(self)} tokens, model_max_length={self.model_max_length}, {self.special_tokens_map})"

    def to_files(self) -> dict[str, bytes]:
        """Return the files that ``save_pretrained`` writes, name to content."""
        return tokenizer_files(self._backend, self._config, self._settings)

    def save_pretrained(self, save_directory: str | os.PathLike[str]) -> None:
        """Write the files from which we and transformers load this tokenizer again, with equal ids."""
        from plainbert.loading import save_tokenizer

        save_tokenizer(self, Path(save_directory))

    def _pad_token(self, side: str) -> PadToken:
        if self.pad_token is None:
            raise TokenizerError("padding must have a pad_token, got None; pass pad_token= to from_pretrained")
        return PadToken(self.pad_token_id, self.pad_token, side)

"""Texts to vectors, as the folder of a sentence encoder declares it.

What the folder says is read by ``recipe.py``; the arithmetic of pooling is in ``models/pooling.py``.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from plainbert.checkpoints.folder import FolderSource
from plainbert.checkpoints.hub import find
from plainbert.errors import InputError, PlainBertWarning
from plainbert.models.bert import BertModel
from plainbert.models.pooling import check_modes, pool
from plainbert.tasks.recipe import Recipe, encoder_folder, is_number, read_recipe
from plainbert.text.tokenizer import BertTokenizer

# What the tokenizer knows of a text takes far more memory than its ids, and is dropped after so many texts.
_TOKENIZED_AT_ONCE = 1024

_Row = dict[str, "np.ndarray[Any, np.dtype[np.int32]]"]


class Embedder:
    """A BERT encoder that gives one vector per text.

    Example:
        >>> embedder = Embedder.from_pretrained("minilm")
        >>> embedder.encode(["The weather is lovely today.", "今天天气真好。"]).shape
        (2, 384)
    """

    def __init__(self, model: BertModel, tokenizer: BertTokenizer, recipe: Recipe | None = None) -> None:
        """Put a model and its tokenizer together.

        Args:
            model: the encoder; it is run without dropout whatever mode it is in.
            tokenizer: the tokenizer that the model was trained with.
            recipe: pooling and its like; None means the mean over the tokens, not normalised.

        Raises:
            InputError: a maximal length that the model cannot take, an unknown pooling mode, or a default prompt
                that is not among the prompts.
        """
        recipe = recipe or Recipe()
        check_modes(recipe.pooling)
        positions = model.config.max_position_embeddings
        length = recipe.max_length
        if length is None:
            length = min(tokenizer.model_max_length or positions, positions)
        if not is_number(length) or not 1 <= length <= positions:
            raise InputError(
                f"max_length must be a number from 1 to {positions} (max_position_embeddings), got {length!r}; "
                "this model has no position for a later token"
            )
        if recipe.default_prompt_name is not None and recipe.default_prompt_name not in recipe.prompts:
            raise InputError(
                f"default_prompt_name must be one of the prompts {sorted(recipe.prompts)}, got "
                f"{recipe.default_prompt_name!r}; correct config_sentence_transformers.json"
            )
        self.model = model
        self.tokenizer = tokenizer
        self.recipe = replace(recipe, max_length=length)

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | os.PathLike[str],
        device: str | torch.device = "cpu",
        dtype: torch.dtype = torch.float32,
        max_length: int | None = None,
        *,
        revision: str | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        token: str | bool | None = None,
        local_files_only: bool = False,
    ) -> Embedder:
        """Load an encoder with the pooling, normalisation, length and prompts that its folder declares.

        A checkpoint without ``modules.json`` says nothing about pooling: it gets the mean over its tokens, not
        normalised, and one warning.

        Args:
            pretrained_model_name_or_path: a local folder, a Hugging Face repo id, or ``minilm``.
            device: where the model runs.
            dtype: the type of its parameters; the vectors are float32 whatever it is.
            max_length: longest text in tokens, special tokens included; None: as the folder says.
            revision: branch, tag or commit of a repo.
            cache_dir: another Hub cache.
            token: a Hub token.
            local_files_only: open no connection.

        Raises:
            MissingFileError: a file that ``modules.json`` points to is not there.
            CheckpointError: a module that is not built here, or a file that cannot be honoured.
        """
        name = pretrained_model_name_or_path
        source = find(name, revision=revision, cache_dir=cache_dir, token=token, local_files_only=local_files_only)
        recipe = read_recipe(source)
        if max_length is not None:
            recipe = replace(recipe, max_length=max_length)
        if recipe.folder:
            name = encoder_folder(source, recipe.folder)
        hub: dict[str, Any] = {
            # The commit that the recipe was read at, so that a branch that moves meanwhile cannot mix two versions.
            "revision": None if isinstance(source, FolderSource) else source.commit or revision,
            "cache_dir": cache_dir,
            "token": token,
            "local_files_only": local_files_only,
        }
        # The pooler plays no part in any of the poolings; without it, checkpoints that lack one load without a warning.
        model = BertModel.from_pretrained(name, device=device, dtype=dtype, add_pooling_layer=False, **hub)
        tokenizer = BertTokenizer.from_pretrained(name, **hub)
        positions = model.config.max_position_embeddings
        if max_length is None and recipe.max_length is not None and recipe.max_length > positions:
            warnings.warn(
                f"{source.name}: max_seq_length must be at most {positions} (max_position_embeddings), got "
                f"{recipe.max_length}; {positions} is used",
                PlainBertWarning,
                stacklevel=2,
            )
            recipe = replace(recipe, max_length=positions)
        return cls(model, tokenizer, recipe)

    @property
    def dimension(self) -> int:
        """Width of the vectors, before any ``truncate_dim``."""
        return int(self.model.config.hidden_size) * len(self.recipe.pooling)

    @property
    def max_length(self) -> int:
        """Longest text in tokens, special tokens included."""
        assert self.recipe.max_length is not None  # __init__ set it
        return self.recipe.max_length

    def encode(
        self,
        texts: str | Sequence[str],
        prompt: str | None = None,
        prompt_name: str | None = None,
        normalize: bool | None = None,
        truncate_dim: int | None = None,
        max_batch_tokens: int = 16384,
        truncation: str = "truncate",
        progress: bool = False,
    ) -> np.ndarray:
        """Give one vector per text.

        Texts are sorted by length and run in batches of about equal length, so that little is spent on padding;
        the vectors come back in the order of the texts.

        Args:
            texts: one text or several; an empty text is a text.
            prompt: put before every text.
            prompt_name: the name of a prompt that the folder defines, in place of ``prompt``.
            normalize: scale to length 1 or not; None: as the folder declares. It happens after ``truncate_dim``.
            truncate_dim: keep this many dimensions, for models trained to allow it.
            max_batch_tokens: bound on rows times length of a batch; one text longer than it runs alone.
            truncation: what to do with a text of more than ``max_length`` tokens: ``"truncate"`` drops the end and
                says so in one warning, ``"error"`` raises.
            progress: show a bar on stderr.

        Returns:
            (n, d) float32, also for one text; (0, d) for none.

        Raises:
            InputError: a text that is not a string, an option outside its range, or a text too long under
                ``truncation="error"``.
        """
        texts = [texts] if isinstance(texts, str) else list(texts)
        for index, text in enumerate(texts):
            if not isinstance(text, str):
                raise InputError(f"texts must be strings, got {type(text).__name__} at index {index}; convert it first")
        if truncation not in ("truncate", "error"):
            raise InputError(f"truncation must be 'truncate' or 'error', got {truncation!r}; choose one of them")
        if not is_number(max_batch_tokens) or max_batch_tokens < 1:
            raise InputError(f"max_batch_tokens must be a number from 1 on, got {max_batch_tokens!r}; 16384 is usual")
        width = self.dimension if truncate_dim is None else truncate_dim
        if not is_number(width) or not 1 <= width <= self.dimension:
            raise InputError(
                f"truncate_dim must be a number from 1 to {self.dimension} (the width of the vectors), got {width!r}; "
                "leave it out to keep them whole"
            )
        normalize = self.recipe.normalize if normalize is None else normalize
        prompt = self._prompt(prompt, prompt_name)
        rows = self._tokenize([prompt + text for text in texts], truncation)
        left_out = 0 if self.recipe.include_prompt or not prompt else self._prompt_length(prompt)
        vectors = np.empty((len(rows), width), dtype=np.float32)
        device = next(self.model.parameters()).device
        training = self.model.training
        self.model.eval()
        try:
            for indices in _shown(_batches([len(row["input_ids"]) for row in rows], max_batch_tokens), rows, progress):
                batch = _padded([rows[index] for index in indices], self.tokenizer.pad_token_id or 0)
                batch = {name: table.to(device) for name, table in batch.items()}
                with torch.inference_mode():
                    hidden = self.model(**batch).last_hidden_state
                    pooled = pool(hidden, batch["attention_mask"], self.recipe.pooling, left_out)[:, :width]
                    if normalize:
                        pooled = torch.nn.functional.normalize(pooled, dim=-1)
                vectors[indices] = pooled.float().cpu().numpy()
        finally:
            self.model.train(training)
        return vectors

    def _prompt(self, prompt: str | None, prompt_name: str | None) -> str:
        """Resolve the two ways of asking for a prompt to its text."""
        if prompt is not None:
            if prompt_name is not None:
                raise InputError(
                    f"prompt and prompt_name must not be given together, got {prompt!r} and {prompt_name!r}; "
                    "leave one out"
                )
            return prompt
        prompt_name = self.recipe.default_prompt_name if prompt_name is None else prompt_name
        if prompt_name is None:
            return ""
        if prompt_name not in self.recipe.prompts:
            raise InputError(
                f"prompt_name must be one of the prompts of this model, {sorted(self.recipe.prompts)}, got "
                f"{prompt_name!r}; give the text itself as prompt"
            )
        return self.recipe.prompts[prompt_name]

    def _tokenize(self, texts: list[str], truncation: str) -> list[_Row]:
        """Tokenise texts to rows of at most ``max_length`` tokens, and say what was dropped."""
        rows = self._rows(texts)
        lengths = [len(row["input_ids"]) for row in rows]
        long = [index for index, length in enumerate(lengths) if length > self.max_length]
        if not long:
            return rows
        dropped = sum(lengths[index] - self.max_length for index in long)
        if truncation == "error":
            raise InputError(
                f"texts must have at most {self.max_length} tokens (max_length), got {lengths[long[0]]} at index "
                f"{long[0]} ({len(long)} in all are longer); shorten them or pass truncation='truncate'"
            )
        warnings.warn(
            f"{len(long)} of {len(texts)} texts were cut to {self.max_length} tokens (max_length); "
            f"{dropped} tokens were dropped",
            PlainBertWarning,
            stacklevel=3,
        )
        cut = self._rows([texts[index] for index in long], truncation=True, max_length=self.max_length)
        for index, row in zip(long, cut, strict=True):
            rows[index] = row
        return rows

    def _rows(self, texts: list[str], **options: Any) -> list[_Row]:
        """Tokenise without padding: what the model takes, one dictionary a text."""
        rows: list[_Row] = []
        for start in range(0, len(texts), _TOKENIZED_AT_ONCE):
            some = texts[start : start + _TOKENIZED_AT_ONCE]
            batch = self.tokenizer([_lower(text) for text in some] if self.recipe.lower_case else some, **options)
            names = [name for name in ("input_ids", "token_type_ids", "attention_mask") if name in batch]
            rows += [
                {name: np.asarray(batch[name][index], dtype=np.int32) for name in names} for index in range(len(some))
            ]
        return rows

    def _prompt_length(self, prompt: str) -> int:
        """Tokens of a prompt on its own, [CLS] included and [SEP] not, which in the joined text comes later."""
        batch = self.tokenizer([_lower(prompt) if self.recipe.lower_case else prompt])
        return len(batch["input_ids"][0]) - batch.special_tokens_mask[0][-1]


def _batches(lengths: list[int], max_batch_tokens: int) -> Iterator[list[int]]:
    """Group the indices of rows, longest first, so that rows times the longest stays within the bound."""
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > max_batch_tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def _padded(rows: Sequence[_Row], pad_token_id: int) -> dict[str, torch.Tensor]:
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


def _shown(batches: Iterable[list[int]], rows: Sequence[object], progress: bool) -> Iterator[list[int]]:
    """Pass batches on and, if asked, draw a bar over the texts on stderr."""
    if not progress:
        yield from batches
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("Texts", total=len(rows))
        for batch in batches:
            yield batch
            bar.advance(task, len(batch))


def _lower(text: str) -> str:
    """Lower-case letter by letter, as tokenizers do; Python's lower() looks around and ends words in another sigma."""
    return "".join(map(str.lower, text))

"""Texts to vectors, as the folder of a sentence encoder declares it.

What the folder says is read by ``recipe.py``; the arithmetic of pooling is in ``models/pooling.py``.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from plainbert.checkpoints.folder import FolderSource
from plainbert.checkpoints.hub import find
from plainbert.errors import InputError, warn
from plainbert.models.bert import BertModel
from plainbert.models.pooling import check_modes, pool
from plainbert.tasks.batching import Row, batches, padded
from plainbert.tasks.options import Run, progress_bar, refuse_keywords
from plainbert.tasks.recipe import Recipe, encoder_folder, is_number, read_recipe
from plainbert.tasks.still import held_still
from plainbert.tasks.tokenizing import tokenizer_of
from plainbert.text.tokenizer import BertTokenizer

# What the tokenizer knows of a text takes far more memory than its ids, and is dropped after so many texts.
_TOKENIZED_AT_ONCE = 1024


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
        if length is None:  # where no file says it, model_max_length is beyond any number of positions
            length = min(tokenizer.model_max_length, positions)
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
        dtype: torch.dtype | str = torch.float32,
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
        tokenizer = tokenizer_of(name, **hub)
        # The pooler plays no part in any of the poolings; without it, checkpoints that lack one load without a warning.
        model = BertModel.from_pretrained(name, device=device, dtype=dtype, add_pooling_layer=False, **hub)
        positions = model.config.max_position_embeddings
        if max_length is None and recipe.max_length is not None and recipe.max_length > positions:
            warn(
                f"{source.name}: max_seq_length must be at most {positions} (max_position_embeddings), got "
                f"{recipe.max_length}; {positions} is used"
            )
            recipe = replace(recipe, max_length=positions)
        return cls(model, tokenizer, recipe)

    def __repr__(self) -> str:
        return (
            f"Embedder(parameters={self.model.num_parameters():,}, dimension={self.dimension}, "
            f"pooling={'+'.join(self.recipe.pooling)}, normalize={self.recipe.normalize}, max_length={self.max_length})"
        )

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
        **unknown: Any,
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
            unknown: there is no other keyword; those of other libraries are told what to write here.

        Returns:
            (n, d) float32, also for one text; (0, d) for none.

        Raises:
            InputError: a text that is not a string, an option outside its range, or a text too long under
                ``truncation="error"``.
            KeywordError: a keyword that is not listed here.
        """
        if unknown:
            refuse_keywords(unknown, list(inspect.signature(self.encode).parameters)[:-1])
        run = self._run(prompt, prompt_name, normalize, truncate_dim, max_batch_tokens, truncation)
        texts = _checked([texts] if isinstance(texts, str) else texts, 0)
        with progress_bar(progress, len(texts)) as advance:
            vectors = self._encode(texts, run, advance)
        run.report()
        return vectors

    def encode_chunks(
        self,
        chunks: Iterable[Sequence[str]],
        prompt: str | None = None,
        prompt_name: str | None = None,
        normalize: bool | None = None,
        truncate_dim: int | None = None,
        max_batch_tokens: int = 16384,
        truncation: str = "truncate",
        progress: bool = False,
    ) -> Iterator[np.ndarray]:
        """Give the vectors of texts that come in chunks, of which one is held at a time.

        Args:
            chunks: lists of texts, asked for one by one; a thousand texts are enough to fill batches well.
            prompt: as in ``encode``, and so are all the others; the one warning of cut texts comes at the end.

        Returns:
            (n, d) float32 for each chunk, as ``encode`` gives it.

        Raises:
            InputError: as ``encode``; an option at once, a text when its chunk is reached.
        """
        run = self._run(prompt, prompt_name, normalize, truncate_dim, max_batch_tokens, truncation)

        def encoded() -> Iterator[np.ndarray]:
            with progress_bar(progress, None) as advance:
                for texts in chunks:
                    yield self._encode(_checked(texts, run.texts), run, advance)
            run.report()

        return encoded()

    def _run(
        self,
        prompt: str | None,
        prompt_name: str | None,
        normalize: bool | None,
        truncate_dim: int | None,
        max_batch_tokens: int,
        truncation: str,
    ) -> Run:
        """Check the options of a run and settle those that the folder declares."""
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
        prompt = self._prompt(prompt, prompt_name)
        return Run(
            prompt=prompt,
            left_out=0 if self.recipe.include_prompt or not prompt else self._prompt_length(prompt),
            normalize=self.recipe.normalize if normalize is None else normalize,
            width=width,
            max_batch_tokens=max_batch_tokens,
            refuse_long=truncation == "error",
            max_length=self.max_length,
        )

    def _encode(self, texts: list[str], run: Run, advance: Callable[[int], None]) -> np.ndarray:
        """Give the vectors of texts that are held together: (n, d) float32."""
        rows = self._tokenize([run.prompt + text for text in texts], run)
        vectors = np.empty((len(rows), run.width), dtype=np.float32)
        device = next(self.model.parameters()).device
        with held_still(self.model):
            for indices in batches([len(row["input_ids"]) for row in rows], run.max_batch_tokens):
                batch = padded([rows[index] for index in indices], self.tokenizer.pad_token_id or 0)
                batch = {name: table.to(device) for name, table in batch.items()}
                with torch.inference_mode():
                    hidden = self.model(**batch).last_hidden_state
                    pooled = pool(hidden, batch["attention_mask"], self.recipe.pooling, run.left_out)[:, : run.width]
                    if run.normalize:
                        pooled = torch.nn.functional.normalize(pooled, dim=-1)
                vectors[indices] = pooled.float().cpu().numpy()
                advance(len(indices))
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

    def _tokenize(self, texts: list[str], run: Run) -> list[Row]:
        """Tokenise texts to rows of at most ``max_length`` tokens, and count what was dropped."""
        rows = self._rows(texts)
        lengths = [len(row["input_ids"]) for row in rows]
        long = [index for index, length in enumerate(lengths) if length > self.max_length]
        if long and run.refuse_long:
            raise InputError(
                f"texts must have at most {self.max_length} tokens (max_length), got {lengths[long[0]]} at index "
                f"{run.texts + long[0]} ({len(long)} in all are longer); shorten them or pass truncation='truncate'"
            )
        cut = self._rows([texts[index] for index in long], truncation=True, max_length=self.max_length)
        for index, row in zip(long, cut, strict=True):
            rows[index] = row
        run.unknown.count(self.tokenizer, (row["input_ids"].tolist() for row in rows))
        run.texts += len(texts)
        run.cut += len(long)
        run.dropped += sum(lengths[index] - self.max_length for index in long)
        return rows

    def _rows(self, texts: list[str], **options: Any) -> list[Row]:
        """Tokenise without padding: what the model takes, one dictionary a text."""
        rows: list[Row] = []
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


def _checked(texts: Sequence[str], before: int) -> list[str]:
    """Refuse what is not a string, by its index; so many texts came before these."""
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(
                f"texts must be strings, got {type(text).__name__} at index {before + index}; convert it first"
            )
    return list(texts)


def _lower(text: str) -> str:
    """Lower-case letter by letter, as tokenizers do; Python's lower() looks around and ends words in another sigma."""
    return "".join(map(str.lower, text))

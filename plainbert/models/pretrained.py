"""What every model has besides ``forward``: loading and saving, fresh weights, resizing, sizes.

The work of loading and saving is in ``plainbert/loading.py``; what stands here is the part that belongs to a model.
"""

from __future__ import annotations

import contextlib
import inspect
import operator
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from plainbert.config import MOST_TOKENS, BertConfig
from plainbert.errors import ConfigError, InputError, KeywordError, warn

if TYPE_CHECKING:
    from plainbert.models.bert import BertModel

_Model = TypeVar("_Model", bound="BertPreTrainedModel")
_construction = threading.local()

# What every forward takes besides inputs and labels.
FORWARD_OPTIONS = ("head_mask", "output_hidden_states", "output_attentions", "return_dict")


class BertPreTrainedModel(nn.Module):
    """Base of every model here, and of a user's own: ``self.bert = BertModel(config)``, then what goes on top.

    Attributes:
        config: the shape, shared by the model and its inner encoder.
        base_model_prefix: attribute name of the inner encoder, and the prefix of its weights in a file.
    """

    base_model_prefix = "bert"

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = check_config(config)

    # --- building ---

    @contextlib.contextmanager
    def building(self) -> Iterator[None]:
        """Give the modules made inside fresh weights, or, under ``from_pretrained``, no memory at all.

        Weights that a file is about to replace are neither allocated nor drawn. Only what is made inside is treated
        so: the lines that a subclass adds around it run as they always do.
        """
        if getattr(_construction, "without_weights", False):
            with torch.device("meta"), _SkipInitialisation():
                yield
        else:
            yield
            self.post_init()

    def post_init(self) -> None:
        """Draw the weights of every module that has not been drawn by an inner model already."""
        if not getattr(_construction, "without_weights", False):
            for module in self.modules():
                if not getattr(module, "_is_drawn", False):
                    draw_weights(module, self.config.initializer_range)
                    module._is_drawn = True  # type: ignore[assignment]

    # --- files ---

    @classmethod
    def from_pretrained(
        cls: type[_Model],
        pretrained_model_name_or_path: str | os.PathLike[str],
        *,
        revision: str | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        token: str | bool | None = None,
        local_files_only: bool = False,
        dtype: torch.dtype | str | None = None,
        device: torch.device | str = "cpu",
        attn_implementation: str | None = None,
        config: BertConfig | None = None,
        ignore_mismatched_sizes: bool = False,
        **overrides: Any,
    ) -> _Model:
        """Load a model with its weights, in evaluation mode.

        Args:
            pretrained_model_name_or_path: a local folder, a Hub repository id, or ``minilm``.
            revision: branch, tag or commit on the Hub.
            cache_dir: folder of the shared Hub cache, when not the usual one.
            token: Hub access token; True for the stored one.
            local_files_only: open no connection.
            dtype: of the loaded weights, as ``torch.float16`` or "float16"; None or "auto": as the checkpoint says.
            device: where the weights go.
            attn_implementation: "sdpa" (fused, the default) or "eager" (the formula written out).
            config: replaces the checkpoint's config.json.
            ignore_mismatched_sizes: make a task head anew when its stored shape is another; never the encoder.
            **overrides: config fields (``num_labels=3``), and ``torch_dtype``, the old word for dtype.
                ``add_pooling_layer`` for ``BertModel``.

        Raises:
            MissingFileError: nothing there to load.
            CheckpointError: broken or refused files, encoder weights that are missing or of another shape.
            KeywordError: a keyword that is neither listed here nor a config field.
        """
        from plainbert.loading import load_model

        return load_model(
            cls,
            pretrained_model_name_or_path,
            hub={"revision": revision, "cache_dir": cache_dir, "token": token, "local_files_only": local_files_only},
            dtype=dtype,
            device=device,
            attn_implementation=attn_implementation,
            config=config,
            ignore_mismatched_sizes=ignore_mismatched_sizes,
            overrides=overrides,
        )

    def save_pretrained(self, save_directory: str | os.PathLike[str]) -> None:
        """Write config.json and model.safetensors, which transformers and plainbert load back without a difference."""
        from plainbert.loading import save_model

        save_model(self, Path(save_directory))

    # --- the model from outside ---

    @property
    def base_model(self) -> BertModel:
        """The encoder: ``self.bert`` in a model with a head, the model itself otherwise."""
        model: BertModel = getattr(self, self.base_model_prefix, self)  # type: ignore[arg-type]
        return model

    @property
    def device(self) -> torch.device:
        """Where the first parameter is."""
        return next(self.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the first floating-point parameter."""
        return next(parameter.dtype for parameter in self.parameters() if parameter.is_floating_point())

    def num_parameters(self, only_trainable: bool = False, exclude_embeddings: bool = False) -> int:
        """Count parameters, tied ones once; optionally only those with gradients, or without the three tables."""
        tables = set()
        if exclude_embeddings:
            tables = {id(module.weight) for module in self.modules() if isinstance(module, nn.Embedding)}
        return sum(
            parameter.numel()
            for parameter in self.parameters()
            if id(parameter) not in tables and (parameter.requires_grad or not only_trainable)
        )

    def gradient_checkpointing_enable(self) -> None:
        """Forget what is inside a layer during training and compute it again in backward: less memory, same numbers."""
        self.base_model.encoder.gradient_checkpointing = True

    def gradient_checkpointing_disable(self) -> None:
        """Keep what is inside a layer for backward: the default."""
        self.base_model.encoder.gradient_checkpointing = False

    # --- vocabulary ---

    def get_input_embeddings(self) -> nn.Embedding:
        """Return the word embedding table."""
        return self.base_model.embeddings.word_embeddings

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        """Replace the word embedding table by one of the same shape; a decoder tied to it follows.

        Raises:
            InputError: another shape.
        """
        old = self.get_input_embeddings().weight
        if value.weight.shape != old.shape:
            raise InputError(
                f"the word embedding table must have the shape {tuple(old.shape)}, got {tuple(value.weight.shape)}; "
                "resize_token_embeddings changes the number of rows"
            )
        self.base_model.embeddings.word_embeddings = value
        head = self.base_model.vocabulary_head
        if head is not None and head.decoder.weight is old:
            head.decoder.weight = value.weight

    def get_output_embeddings(self) -> nn.Linear | None:
        """Return the masked LM decoder, or None where the model has none."""
        head = self.base_model.vocabulary_head
        return None if head is None or self.base_model is self else head.decoder

    def tie_weights(self) -> None:
        """Tie what the config says is tied; a model without a masked LM head has nothing to tie."""

    def resize_token_embeddings(self, new_num_tokens: int) -> nn.Embedding:
        """Change the size of the vocabulary V: word embeddings, masked LM decoder, its bias and the config together.

        Rows of ids that stay keep their values. New rows are drawn like fresh weights, from a normal distribution with
        the standard deviation ``initializer_range``, and their bias is 0; train them before trusting them. The inner
        encoder of a model with a head does the same, head included.

        Returns:
            The word embedding table.

        Raises:
            InputError: a size that is no positive number or would cut off ``pad_token_id``, or a decoder of another
                size than the table.
        """
        try:
            rows = 0 if isinstance(new_num_tokens, bool) else operator.index(new_num_tokens)
        except TypeError:
            rows = 0
        table, head, std = self.get_input_embeddings(), self.base_model.vocabulary_head, self.config.initializer_range
        if not (table.padding_idx or 0) < rows <= MOST_TOKENS:
            raise InputError(
                f"new_num_tokens must be a whole number from {(table.padding_idx or 0) + 1} (above pad_token_id) to "
                f"{MOST_TOKENS}, got {new_num_tokens!r}; pass the new size of the vocabulary"
            )
        if head is not None and head.decoder.out_features != table.num_embeddings:
            raise InputError(
                f"the masked LM decoder must have a row for each of the {table.num_embeddings} word embeddings, got "
                f"{head.decoder.out_features}; resize before replacing parts of the model"
            )
        # New rows are drawn with a standard deviation; those of a bias are 0. A tied decoder is the table itself.
        spreads: dict[Tensor, float] = {table.weight: std}
        if head is not None:
            spreads = {table.weight: std, head.decoder.weight: std, head.decoder.bias: 0.0, head.bias: 0.0}
            head.decoder.out_features = rows
        for parameter, spread in spreads.items():
            parameter.data = _resized(parameter.data, rows, spread)
            parameter.grad = None  # of the old shape, it would stop the next step
        table.num_embeddings = self.config.vocab_size = rows
        return table


class _SkipInitialisation(TorchFunctionMode):
    """Leave parameters as they are made: drawing numbers into the meta device costs 1.5 s of imports and gives nothing.

    Active in one thread and only while a model is built for ``from_pretrained``.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        target = args[0] if args else kwargs.get("tensor")  # nn.init hands its tensor over by keyword
        name = getattr(func, "__name__", "")
        writes = name.endswith("_") and not name.endswith("__") and name != "requires_grad_"
        if writes and isinstance(target, Tensor) and target.is_meta:
            return target
        return func(*args, **kwargs)


@contextlib.contextmanager
def without_weights() -> Iterator[None]:
    """Build the models made inside, in this thread, as shapes on the meta device."""
    before = getattr(_construction, "without_weights", False)  # a constructor may load another model
    _construction.without_weights = True
    try:
        yield
    finally:
        _construction.without_weights = before


def draw_weights(module: nn.Module, std: float) -> None:
    """Draw the weights of one module as the original does; its submodules are left alone.

    Matrices from a normal distribution, biases 0, LayerNorm the identity, the row of [PAD] 0.

    Source: google-research/bert modeling.py, ``create_initializer`` (which truncates at two standard deviations; the
    PyTorch descendants never did, and neither do we).
    """
    if isinstance(module, (nn.Linear, nn.Embedding, nn.LayerNorm)):
        for name, _ in module.named_parameters(recurse=False):
            draw_parameter(module, name, std)


@torch.no_grad()
def draw_parameter(module: nn.Module, name: str, std: float) -> None:
    """Draw the parameter ``name`` of one module; see ``draw_weights``."""
    parameter = module.get_parameter(name)
    if isinstance(module, nn.LayerNorm) and name == "weight":
        parameter.fill_(1.0)
    elif isinstance(module, (nn.Linear, nn.Embedding)) and name == "weight":
        parameter.normal_(std=std)
        if isinstance(module, nn.Embedding) and module.padding_idx is not None:
            parameter[module.padding_idx].zero_()
    else:
        parameter.zero_()


def check_config(config: object) -> BertConfig:
    """Return ``config``, or refuse a name or the config of another library in its place.

    Raises:
        ConfigError: another type, or a field that has been given a value no model can be built from.
    """
    if isinstance(config, BertConfig):
        config.validate()  # fields may have been assigned since it was made
    else:
        raise ConfigError(
            f"config must be a plainbert.BertConfig, got {type(config).__name__}; "
            "to load weights use from_pretrained, to copy a config BertConfig.from_dict(config.to_dict())"
        )
    return config


def ignore_stored_tables(module: nn.Module, state_dict: dict[str, Any], prefix: str, *_: object) -> None:
    """Take out of a state_dict the two tables that old releases stored and that are computed here."""
    for name in ("position_ids", "token_type_ids"):
        if prefix + name in state_dict:
            warn_of_odd_table(prefix + name, state_dict.pop(prefix + name))


def warn_of_odd_table(name: str, table: Tensor) -> None:
    """Warn where a stored ``position_ids`` is not 0, 1, 2, ... or a stored ``token_type_ids`` not 0, 0, 0, ..."""
    table = table.flatten()
    usual = torch.zeros_like(table)
    if name.endswith("position_ids"):
        usual = torch.arange(table.numel(), device=table.device).to(table.dtype)
    if not torch.equal(table, usual):
        warn(f"{name} in the checkpoint is not the usual table; it is ignored, pass such ids to forward instead")


def _resized(old: Tensor, rows: int, std: float) -> Tensor:
    """Return ``old`` with ``rows`` rows: cut, or grown by rows drawn with ``std``."""
    new = old.new_empty(rows, *old.shape[1:])
    kept = min(rows, old.shape[0])
    new[:kept] = old[:kept]
    new[kept:].normal_(std=std) if std else new[kept:].zero_()
    return new


def refuse_keywords(model: nn.Module, unknown: Iterable[str]) -> None:
    """Refuse keywords that the ``forward`` of ``model`` does not have.

    Raises:
        KeywordError: names them, and those that exist.
    """
    unknown = sorted(unknown)
    if unknown:
        known = list(inspect.signature(type(model).forward).parameters)[1:-1]  # without self and the collecting last
        known += [name for name in FORWARD_OPTIONS if name not in known]
        raise KeywordError(
            f"{type(model).__name__}.forward has no argument {', '.join(map(repr, unknown))}; "
            f"it takes {', '.join(known)}"
        )

"""The shape of a BERT and the habits of its heads, under the names that config.json uses.

Every key of a config.json is *used* (a field of ``BertConfig``), *fixed* (only the value that makes an encoder is
accepted), *ignored with a reason*, or kept in ``BertConfig.extra`` and written back by ``save_pretrained``: without a
word where others read it, with one warning where nobody is known to. ``config_keys.py`` lists the last three kinds.
What a model does with the fields is in ``models/bert.py`` and ``models/heads.py``.
"""

from __future__ import annotations

import difflib
import math
import os
from dataclasses import dataclass, field, fields
from functools import wraps
from pathlib import Path
from typing import Any, ClassVar, TypeVar, overload

from plainbert.config_keys import FIXED_KEYS, IGNORED_KEYS, KNOWN_ELSEWHERE, NOT_WRITTEN_BACK
from plainbert.errors import ConfigError, KeywordError, warn

# The functions are in models/activations.py; the names stand here so that a config is checked without importing torch.
ACTIVATION_NAMES = (
    "gelu", "gelu_python", "gelu_new", "gelu_accurate", "gelu_python_tanh", "gelu_pytorch_tanh", "gelu_fast",
    "gelu_10", "quick_gelu", "relu", "relu2", "relu6", "leaky_relu", "silu", "swish", "hardswish", "mish", "sigmoid",
    "tanh", "linear",
)  # fmt: skip
PROBLEM_TYPES = ("regression", "single_label_classification", "multi_label_classification")
ATTENTION_IMPLEMENTATIONS = ("sdpa", "eager")
# float64 stands here because tests and `verify` save it; no released BERT does.
DTYPE_NAMES = ("float32", "float16", "bfloat16", "float64")

MOST_TOKENS = 2**25  # of a vocabulary; far above any BERT, and small enough to allocate

_Config = TypeVar("_Config", bound="BertConfig")


class _NumLabels:
    """The number of classes C, as a field that is always the length of ``id2label``.

    With a plain field, ``config.num_labels = 5`` would leave two names for five classes. Setting another number names
    the classes LABEL_0, LABEL_1, ...
    """

    @overload
    def __get__(self, config: None, owner: type) -> int | None: ...

    @overload
    def __get__(self, config: BertConfig, owner: type) -> int: ...

    def __get__(self, config: BertConfig | None, owner: type) -> int | None:
        return None if config is None else len(config.id2label)  # None: the default of the constructor

    def __set__(self, config: BertConfig, value: int | None) -> None:
        if value is None:
            return
        _check_integer("num_labels", value, 1, 2**20)
        if not config._is_built:
            config.__dict__["_asked_labels"] = value  # for __post_init__, which knows id2label too
        elif value != len(config.id2label):
            config._name_labels(value)


@dataclass(kw_only=True)
class BertConfig:
    """What decides the shape and the arithmetic of a BERT.

    The defaults are bert-base-uncased. Field names are config.json's. Changing a field of a built model's config does
    not rebuild the model.

    Args:
        vocab_size: V, rows of the word embedding table.
        hidden_size: E, width of a token vector between layers.
        num_hidden_layers: L, how many layers the encoder stacks.
        num_attention_heads: H, must divide ``hidden_size``; each head is D = E / H wide.
        intermediate_size: F, width inside the feed-forward network.
        hidden_act: activation of the feed-forward network and of the masked LM head, one of ``ACTIVATION_NAMES``.
            "gelu" is the exact one (erf), as in google-research/bert's PyTorch descendants.
        hidden_dropout_prob: dropout after embeddings and after both output layers; a probability.
        attention_probs_dropout_prob: dropout on the attention probabilities; a probability.
        max_position_embeddings: longest row of tokens that has positions.
        type_vocab_size: number of segments that ``token_type_ids`` may name.
        initializer_range: standard deviation of fresh weights.
        layer_norm_eps: added to the variance inside LayerNorm; 1e-12 in the original, 1e-5 in some relatives.
        pad_token_id: id whose embedding receives no gradient, or None.
        classifier_dropout: dropout before a classification head; None means ``hidden_dropout_prob``.
        tie_word_embeddings: whether the masked LM decoder is the word embedding table itself.
        num_labels: number of classes C; names them LABEL_0 ... when ``id2label`` is absent.
        id2label: class number to name; a list and string keys are accepted.
        label2id: name to class number; the inverse of ``id2label``, from which it is made when absent.
        problem_type: loss of the sequence classification head, one of ``PROBLEM_TYPES``; None decides by the labels.
        output_hidden_states: default of the forward argument of that name.
        output_attentions: default of the forward argument of that name.
        architectures: class names that the weights were saved from.
        dtype: name of the dtype in which the weights are stored, as "float16"; None when the file does not say.
        attn_implementation: "sdpa" (fused) or "eager" (the formula written out); a choice of the run, never saved.
        extra: config.json keys that nothing here reads; written back on save.

    Raises:
        ConfigError: a value no model can be built from; the message names the field.
        KeywordError: a keyword that is no field.

    Source: Devlin et al. 2018, sections 3 and A.2; config.json of google-bert/bert-base-uncased.
    """

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    pad_token_id: int | None = 0
    classifier_dropout: float | None = None
    tie_word_embeddings: bool = True
    id2label: dict[int, str] = field(default_factory=dict)
    label2id: dict[str, int] = field(default_factory=dict)
    num_labels: _NumLabels = _NumLabels()
    problem_type: str | None = None
    output_hidden_states: bool = False
    output_attentions: bool = False
    architectures: list[str] | None = None
    dtype: str | None = None
    attn_implementation: str = "sdpa"
    extra: dict[str, Any] = field(default_factory=dict)

    model_type: ClassVar[str] = "bert"
    _is_built: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if str(self.dtype).startswith("torch."):  # torch.float16 and "torch.float16" are "float16"
            self.dtype = str(self.dtype).removeprefix("torch.")
        self.id2label = _class_names(self.id2label, self.label2id)
        asked = self.__dict__.pop("_asked_labels", None)
        count = asked or len(self.id2label) or 2
        if len(self.id2label) != count:
            if self.id2label:
                warn(
                    f"num_labels is {count} but id2label names {len(self.id2label)} classes; num_labels decides, "
                    "and the classes are now LABEL_0, LABEL_1, ..."
                )
            self._name_labels(count)
        else:
            self.label2id = _numbers_of(self.id2label, self.label2id)
        self.__dict__["_is_built"] = True
        self.validate()

    def validate(self) -> None:
        """Refuse what no model can be built from, before anything is allocated.

        Raises:
            ConfigError: the field and its value.
        """
        _check_fields(self)

    def _name_labels(self, num_labels: int) -> None:
        self.id2label = {index: f"LABEL_{index}" for index in range(num_labels)}
        self.label2id = {label: index for index, label in self.id2label.items()}

    @classmethod
    def from_pretrained(
        cls: type[_Config],
        pretrained_model_name_or_path: str | os.PathLike[str],
        *,
        revision: str | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        token: str | bool | None = None,
        local_files_only: bool = False,
        **overrides: Any,
    ) -> _Config:
        """Read config.json of a local folder, a Hub repository or ``minilm``; ``overrides`` replace its fields."""
        from plainbert.loading import load_config

        hub = {"revision": revision, "cache_dir": cache_dir, "token": token, "local_files_only": local_files_only}
        return load_config(cls, pretrained_model_name_or_path, hub, overrides)

    def save_pretrained(self, save_directory: str | os.PathLike[str]) -> None:
        """Write config.json into the folder, which is made if needed; ``transformers`` reads it too."""
        from plainbert.loading import save_config

        save_config(self, Path(save_directory))

    @classmethod
    def from_dict(cls: type[_Config], values: dict[str, Any], **overrides: Any) -> _Config:
        """Build from what a config.json holds.

        Args:
            values: the parsed JSON object.
            overrides: fields that replace those of the file; unlike the file's keys they must be fields.

        Raises:
            ConfigError: a refused key or value, named.
            KeywordError: an override that is no field.
        """
        names = {item.name for item in fields(cls)}
        if "torch_dtype" in overrides:  # the old word
            overrides.setdefault("dtype", overrides.pop("torch_dtype"))
        stored = {key: value for key, value in values.items() if key not in ("extra", "attn_implementation")}
        if "torch_dtype" in stored:  # the old word
            stored.setdefault("dtype", stored.pop("torch_dtype"))
        if {"num_labels", "id2label", "label2id"} & overrides.keys():
            for key in ("num_labels", "id2label", "label2id"):
                stored.pop(key, None)
        for key in ("id2label", "label2id", "output_attentions", "output_hidden_states"):
            if stored.get(key, ()) is None:  # null: the file leaves it to us
                del stored[key]
        if "auto_map" in stored:
            warn("config.json names Python code of its own (auto_map); it is not run, the weights are read as BERT")
        unknown = sorted(stored.keys() - names - FIXED_KEYS.keys() - IGNORED_KEYS.keys() - KNOWN_ELSEWHERE)
        if unknown:
            warn(f"config.json has keys that nothing here reads: {', '.join(unknown)}; they are kept in config.extra")
        for key, value in stored.items():
            _check_fixed(key, value)
        extra = {k: v for k, v in stored.items() if k not in names | FIXED_KEYS.keys() | NOT_WRITTEN_BACK}
        used = {key: value for key, value in stored.items() if key in names}
        try:
            return cls(**{**used, **overrides, "extra": {**extra, **overrides.get("extra", {})}})
        except ConfigError as error:
            if str(error).split()[0] in overrides or not str(error).endswith("correct it"):
                raise
            raise ConfigError(f"{error} in config.json") from None

    def to_dict(self) -> dict[str, Any]:
        """Return what config.json would hold, with integer keys in ``id2label``."""
        values: dict[str, Any] = {**self.extra, "model_type": self.model_type}
        default = type(self)()
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name in ("attn_implementation", "extra", "num_labels"):
                continue
            if item.name in _WRITTEN_IF_SET and value == getattr(default, item.name):
                continue
            values[item.name] = value.copy() if isinstance(value, (dict, list)) else value
        return values


# Left out of config.json while they have their default, as transformers leaves them out.
_WRITTEN_IF_SET = {
    "id2label", "label2id", "problem_type", "output_hidden_states", "output_attentions", "architectures", "dtype",
}  # fmt: skip


def _accept_fixed_keywords(cls: type[BertConfig]) -> None:
    """Let the constructor take what transformers' takes: fixed keys with their only value, and ignored keys."""
    init = cls.__init__

    @wraps(init)
    def __init__(self: BertConfig, **values: Any) -> None:
        names = {item.name for item in fields(cls)}
        if "torch_dtype" in values:  # the old word
            values.setdefault("dtype", values.pop("torch_dtype"))
        for key in list(values):
            if key in names:
                continue
            if key in FIXED_KEYS:
                _check_fixed(key, values.pop(key))
            elif key in IGNORED_KEYS:
                values.pop(key)
            else:
                close = difflib.get_close_matches(key, names, n=1)
                hint = f"did you mean {close[0]}?" if close else f"the fields are {', '.join(sorted(names))}"
                raise KeywordError(f"BertConfig has no field {key!r}; {hint}")
        init(self, **values)

    cls.__init__ = __init__  # type: ignore[method-assign]


_accept_fixed_keywords(BertConfig)


# --- checks --------------------------------------------------------------------------------------------------------


def _check_fixed(key: str, value: object) -> None:
    if key in FIXED_KEYS:
        accepted, reason = FIXED_KEYS[key]
        if value not in accepted or type(value) is int:  # 0 == False, but no released file says so
            raise ConfigError(f"{key} must be {accepted[0]!r}, got {value!r}; {reason}")


def _check_integer(name: str, value: object, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigError(f"{name} must be a whole number from {low} to {high}, got {value!r}; correct it")


def _check_number(name: str, value: object, low: float, high: float) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if not number or not low <= value <= high:  # type: ignore[operator]
        raise ConfigError(f"{name} must be a number from {low:g} to {high:g}, got {value!r}; correct it")


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in choices:
        raise ConfigError(f"{name} must be one of {', '.join(choices)}, got {value!r}; correct it")


def _check_fields(config: BertConfig) -> None:
    """Refuse what no model can be built from, before anything is allocated. Upper bounds are far above any BERT."""
    _check_integer("vocab_size", config.vocab_size, 1, MOST_TOKENS)
    _check_integer("hidden_size", config.hidden_size, 1, 2**17)
    _check_integer("num_hidden_layers", config.num_hidden_layers, 1, 2**12)
    _check_integer("num_attention_heads", config.num_attention_heads, 1, 2**17)
    _check_integer("intermediate_size", config.intermediate_size, 1, 2**20)
    _check_integer("max_position_embeddings", config.max_position_embeddings, 1, 2**22)
    _check_integer("type_vocab_size", config.type_vocab_size, 1, 2**16)
    if config.hidden_size % config.num_attention_heads:
        raise ConfigError(
            f"hidden_size must be a multiple of num_attention_heads, got {config.hidden_size} and "
            f"{config.num_attention_heads}; correct it"
        )
    if config.pad_token_id is not None:
        _check_integer("pad_token_id", config.pad_token_id, 0, config.vocab_size - 1)
    _check_choice("hidden_act", config.hidden_act, ACTIVATION_NAMES)
    _check_choice("attn_implementation", config.attn_implementation, ATTENTION_IMPLEMENTATIONS)
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
        _check_number(name, getattr(config, name), 0.0, 1.0)
    if config.classifier_dropout is not None:
        _check_number("classifier_dropout", config.classifier_dropout, 0.0, 1.0)
    _check_number("initializer_range", config.initializer_range, 0.0, 1e3)
    _check_number("layer_norm_eps", config.layer_norm_eps, 0.0, 1.0)
    if not isinstance(config.id2label, (dict, list)) or not config.id2label:  # it can be assigned
        raise ConfigError(f"id2label must name at least one class, got {config.id2label!r}; correct it")
    if config.problem_type is not None:
        _check_choice("problem_type", config.problem_type, PROBLEM_TYPES)
        if config.problem_type == "single_label_classification" and len(config.id2label) == 1:
            raise ConfigError("num_labels must be at least 2 for single_label_classification, got 1; correct it")
    if config.dtype is not None:
        _check_choice("dtype", config.dtype, DTYPE_NAMES)
    for name in ("tie_word_embeddings", "output_hidden_states", "output_attentions"):
        value = getattr(config, name)
        if not isinstance(value, bool):
            raise ConfigError(f"{name} must be true or false, got {value!r}; correct it")
    names = config.architectures
    if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise ConfigError(f"architectures must be a list of class names, got {names!r}; correct it")


def _class_names(id2label: object, label2id: object) -> dict[int, str]:
    """Bring every released form of a label map to class number -> name, in the order of the numbers."""
    if isinstance(id2label, list):  # some exporters write the names in order
        id2label = dict(enumerate(id2label))
    if not isinstance(id2label, dict) or not isinstance(label2id, dict):
        wrong = label2id if isinstance(id2label, dict) else id2label
        raise ConfigError(f"id2label and label2id must be JSON objects, got {wrong!r}; correct it")
    pairs = id2label.items() or [(index, label) for label, index in label2id.items()]
    names: dict[int, str] = {}
    for index, label in pairs:
        try:
            number = int(index)
        except (TypeError, ValueError):
            raise ConfigError(f"id2label must have class numbers as keys, got {index!r}; correct it") from None
        names[number] = str(label)
    if sorted(names) != list(range(len(names))):
        warn(f"id2label numbers its {len(names)} classes {sorted(names)[:8]}, not from 0; some outputs have no name")
    return dict(sorted(names.items()))


def _numbers_of(id2label: dict[int, str], label2id: dict[str, int]) -> dict[str, int]:
    """Return the inverse of ``id2label``, and say so where ``label2id`` is another map."""
    inverse = {label: index for index, label in id2label.items()}
    if label2id and {label: str(index) for label, index in label2id.items()} != {k: str(v) for k, v in inverse.items()}:
        warn(f"label2id must be the inverse of id2label, got {str(label2id)[:80]}; id2label decides")
    return inverse

"""What ``forward`` returns: named tensors, under the names that transformers uses.

An output is read by name (``outputs.logits``), by key (``outputs["logits"]``) or by index (``outputs[0]``), where index
counts the values that are there. Each class is registered as a pytree, so that ``torch.export`` sees its tensors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from torch import Tensor
from torch.utils import _pytree

_Output = TypeVar("_Output", bound="ModelOutput")


class ModelOutput:
    """Base of all outputs: a dataclass that can also be read like a dictionary or a tuple of what is not None."""

    def to_tuple(self) -> tuple[Any, ...]:
        """Return the values that are not None, in the order of the fields."""
        return tuple(self.values())

    def keys(self) -> list[str]:
        """Return the names of the fields that are not None."""
        return [item.name for item in fields(self) if getattr(self, item.name) is not None]  # type: ignore[arg-type]

    def values(self) -> list[Any]:
        """Return the values that are not None."""
        return [getattr(self, name) for name in self.keys()]

    def items(self) -> list[tuple[str, Any]]:
        """Return (name, value) for every field that is not None."""
        return [(name, getattr(self, name)) for name in self.keys()]

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a field, or ``default`` where there is none."""
        return getattr(self, name) if name in self else default

    def __getitem__(self, key: str | int | slice) -> Any:
        if not isinstance(key, str):
            return self.to_tuple()[key]
        if key not in self:
            raise KeyError(f"{type(self).__name__} has no {key!r}; it has {', '.join(self.keys())}")
        return getattr(self, key)

    def __contains__(self, name: object) -> bool:
        return name in self.keys()

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self.keys())

    def __init_subclass__(cls) -> None:
        _pytree.register_pytree_node(
            cls,
            _flatten,
            lambda values, names: cls(**dict(zip(names, values, strict=True))),
            serialized_type_name=f"{cls.__module__}.{cls.__qualname__}",
            flatten_with_keys_fn=_flatten_with_keys,
        )


def _flatten(output: ModelOutput) -> tuple[list[Any], list[str]]:
    return output.values(), output.keys()


def _flatten_with_keys(output: ModelOutput) -> tuple[list[tuple[_pytree.KeyEntry, Any]], list[str]]:
    return [(_pytree.GetAttrKey(name), value) for name, value in output.items()], output.keys()


@dataclass(eq=False)
class BaseModelOutput(ModelOutput):
    """What the encoder returns.

    Attributes:
        last_hidden_state: (B, S, E), the last layer's vectors.
        hidden_states: L + 1 tensors (B, S, E): the embeddings, then each layer's output; None unless asked for.
        attentions: L tensors (B, H, S, S), rows summing to 1 over what may be looked at; None unless asked for.
    """

    last_hidden_state: Tensor
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


@dataclass(eq=False)
class BaseModelOutputWithPooling(ModelOutput):
    """What ``BertModel`` returns: the encoder's output and ``pooler_output`` (B, E), None without a pooler."""

    last_hidden_state: Tensor
    pooler_output: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


@dataclass(eq=False)
class BertForPreTrainingOutput(ModelOutput):
    """``prediction_logits`` (B, S, V), ``seq_relationship_logits`` (B, 2) and the sum of the losses asked for, ()."""

    loss: Tensor | None = None
    prediction_logits: Tensor | None = None
    seq_relationship_logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


@dataclass(eq=False)
class _LogitsOutput(ModelOutput):
    loss: Tensor | None = None
    logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


class MaskedLMOutput(_LogitsOutput):
    """``logits`` (B, S, V) over the vocabulary, and ``loss`` () when labels were given."""


class NextSentencePredictorOutput(_LogitsOutput):
    """``logits`` (B, 2): column 0 "the second text follows the first", column 1 "it is a random one"."""


class SequenceClassifierOutput(_LogitsOutput):
    """``logits`` (B, C), and ``loss`` () when labels were given."""


class MultipleChoiceModelOutput(_LogitsOutput):
    """``logits`` (B, number of choices), and ``loss`` () when labels were given."""


class TokenClassifierOutput(_LogitsOutput):
    """``logits`` (B, S, C), and ``loss`` () when labels were given."""


@dataclass(eq=False)
class QuestionAnsweringModelOutput(ModelOutput):
    """``start_logits`` and ``end_logits`` (B, S), and ``loss`` () when positions were given."""

    loss: Tensor | None = None
    start_logits: Tensor | None = None
    end_logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None

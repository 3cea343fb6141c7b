"""What ``forward`` accepts: checks with the numbers in the message, and masks of every form brought to one.

Ids are checked before the embedding lookup, masks after it. While a model is compiled or exported only shapes and
dtypes are checked, because looking at values would cut the graph.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from plainbert.config import BertConfig
from plainbert.errors import InputError, warn

if TYPE_CHECKING:
    from plainbert.models.bert import BertEmbeddings


def sees_values(tensor: Tensor) -> bool:
    """Whether the numbers in ``tensor`` may be looked at: not while compiling or exporting, under vmap, or on meta."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing():  # type: ignore[attr-defined]
        return False
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor(tensor)  # by vmap or grad
    return type(tensor) in (Tensor, nn.Parameter) and not (wrapped or tensor.is_meta or tensor.numel() == 0)


def check_tensors(**given: object) -> None:
    """Refuse what is given, not None, and no tensor: a list, an array.

    Raises:
        InputError: with the name and the type.
    """
    for name, value in given.items():
        if isinstance(value, Tensor) and value.layout != torch.strided:
            raise InputError(f"{name} must be a dense tensor, got {value.layout}; convert with .to_dense()")
        if value is None or isinstance(value, Tensor):
            continue
        if isinstance(value, str):
            hint = "tokenize the text first: model(**tokenizer(text, return_tensors='pt'))"
        elif isinstance(value, Mapping):
            hint = "give its entries by name: model(**batch)"
        else:
            hint = "pass return_tensors='pt' to the tokenizer, or convert with torch.as_tensor(...)"
        raise InputError(f"{name} must be a tensor, got {type(value).__name__}; {hint}")


def check_range(name: str, tensor: Tensor, limit: int, meaning: str) -> None:
    """Refuse integers outside 0 ... limit - 1, which would read outside a table.

    Raises:
        InputError: another dtype than int64 or int32, or a value outside, named.
    """
    if tensor.dtype not in (torch.int64, torch.int32):
        raise InputError(f"{name} must be integers (int64 or int32), got {tensor.dtype}; convert with .long()")
    if sees_values(tensor):
        low, high = torch.stack(torch.aminmax(tensor)).tolist()  # together: one wait for a GPU
        if low < 0 or high >= limit:
            raise InputError(
                f"{name} must be from 0 to {limit - 1} ({meaning} is {limit}), got {low if low < 0 else high}; "
                "are the ids from this model's own tokenizer?"
            )


def check_inputs(
    tables: BertEmbeddings,
    input_ids: Tensor | None,
    attention_mask: Tensor | None,
    token_type_ids: Tensor | None,
    position_ids: Tensor | None,
    inputs_embeds: Tensor | None,
) -> None:
    """Refuse what the embeddings cannot look up.

    Args:
        tables: the embeddings; the sizes of their tables are the limits.
        input_ids: (B, S) integers below V.
        attention_mask: only looked at for being there; ``prepare_mask`` checks it.
        token_type_ids: (B, S) or (1, S) integers below ``type_vocab_size``.
        position_ids: (B, S) or (1, S) integers below ``max_position_embeddings``.
        inputs_embeds: (B, S, E) floats.

    Raises:
        InputError: with the value, the limit and the config field that sets it.
    """
    vocab_size, hidden_size = tables.word_embeddings.weight.shape
    positions, types = tables.position_embeddings.num_embeddings, tables.token_type_embeddings.num_embeddings
    check_tensors(
        input_ids=input_ids, token_type_ids=token_type_ids, position_ids=position_ids, inputs_embeds=inputs_embeds
    )
    if (input_ids is None) == (inputs_embeds is None):
        given = "both" if input_ids is not None else "neither"
        raise InputError(
            f"exactly one of input_ids and inputs_embeds must be given, got {given}; ids are the usual one"
        )
    if input_ids is not None:
        if input_ids.ndim != 2:
            raise InputError(
                f"input_ids must have the shape (texts, tokens), got {tuple(input_ids.shape)}; "
                "one text is a batch of one: input_ids[None]"
            )
        rows, length = input_ids.shape
    elif inputs_embeds is not None:
        if inputs_embeds.ndim != 3 or inputs_embeds.shape[2] != hidden_size:
            raise InputError(
                f"inputs_embeds must have the shape (texts, tokens, {hidden_size}), got {tuple(inputs_embeds.shape)}; "
                "take vectors of this model's word_embeddings"
            )
        if not inputs_embeds.is_floating_point():
            raise InputError(
                f"inputs_embeds must be floating-point vectors, got {inputs_embeds.dtype}; are these input_ids?"
            )
        dtype = tables.LayerNorm.weight.dtype
        if inputs_embeds.dtype != dtype and not torch.is_autocast_enabled(inputs_embeds.device.type):
            raise InputError(f"inputs_embeds must be {dtype}, as the model is, got {inputs_embeds.dtype}; convert them")
        rows, length = inputs_embeds.shape[:2]
    if length == 0:
        raise InputError(f"a row must hold at least one token, got {rows} rows of 0 tokens; drop empty rows")
    if position_ids is None and length > positions:
        raise InputError(
            f"input_ids has {length} tokens in a row, but this model takes at most {positions} "
            "(max_position_embeddings); truncate the texts, or split them into windows"
        )
    if input_ids is not None:
        check_range("input_ids", input_ids, vocab_size, "vocab_size")
        if attention_mask is None:
            _warn_of_unmasked_padding(tables.word_embeddings.padding_idx, input_ids)
    for name, ids, limit, meaning in (
        ("token_type_ids", token_type_ids, types, "type_vocab_size"),
        ("position_ids", position_ids, positions, "max_position_embeddings"),
    ):
        if ids is not None:
            if ids.ndim != 2 or ids.shape[0] not in (1, rows) or ids.shape[1] != length:
                raise InputError(
                    f"{name} must have the shape of the tokens, ({rows}, {length}), got {tuple(ids.shape)}; "
                    "pass what the tokenizer returned with these ids"
                )
            check_range(name, ids, limit, meaning)


def _warn_of_unmasked_padding(pad_token_id: int | None, input_ids: Tensor) -> None:
    if pad_token_id is not None and sees_values(input_ids) and bool((input_ids == pad_token_id).any()):
        warn(
            f"input_ids holds the padding id {pad_token_id} and no attention_mask was given, so the padding is read as "
            "text; pass the tokenizer's attention_mask"
        )


def prepare_mask(config: BertConfig, attention_mask: Tensor | None, hidden: Tensor) -> Tensor | None:
    """Bring an attention mask to one of three forms that attention understands.

    Args:
        config: the model's shape.
        attention_mask: one of
            (B, S), any dtype, holding only 0 and 1: 1 or True means that every token may look at this one;
            bool (B, S, S), (B, 1, S, S) or (B, H, S, S): True means that the row's token may look at the column's;
            float (B, 1, S, S) or (B, H, S, S): added to the scores; -inf means "may not look".
            In four dimensions the third may also be 1, for "the same for every row".
        hidden: (B, S, E), the embeddings that the mask is for.

    Returns:
        None where everything may be looked at; a bool tensor, True = look; or a float tensor in the dtype of
        ``hidden``, never below its lowest number except -inf. Both broadcast to (B, H, S, S).

    Raises:
        InputError: another shape, dtype or value.
    """
    if attention_mask is None:
        return None
    check_tensors(attention_mask=attention_mask)
    mask = attention_mask.to(hidden.device)
    rows, length, heads = hidden.shape[0], hidden.shape[1], config.num_attention_heads
    shape = tuple(mask.shape)
    if mask.ndim == 2 and not mask.is_complex():
        if shape != (rows, length):
            raise InputError(
                f"attention_mask must have the shape of the tokens, ({rows}, {length}), got {shape}; "
                "pass the mask that the tokenizer returned with these ids"
            )
        look = mask.to(torch.bool)
        if sees_values(mask):
            if mask.dtype != torch.bool and not bool((mask == look).all()):
                wrong = mask[mask != look][0].item()
                raise InputError(
                    f"a (B, S) attention_mask must hold only 0 and 1, got {wrong:g}; "
                    "numbers to add to the scores must come as (B, 1, S, S)"
                )
            if bool(look.all()):
                return None
        # Every query sees the same keys. Expanded as transformers does, so that the same kernel runs.
        return look[:, None, None, :].expand(rows, 1, length, length)
    if mask.ndim == 3 and mask.dtype == torch.bool:
        mask = mask[:, None]
    fits = (
        mask.ndim == 4
        and mask.shape[0] == rows
        and mask.shape[1] in (1, heads)
        and mask.shape[2] in (1, length)
        and mask.shape[3] == length
    )
    if not fits or not (mask.dtype == torch.bool or mask.is_floating_point()):
        raise InputError(
            f"attention_mask must be ({rows}, {length}) of 0 and 1, or bool ({rows}, {length}, {length}), or bool or "
            f"float ({rows}, 1 or {heads}, {length} or 1, {length}), got {attention_mask.dtype} {shape}; "
            "most often the tokenizer's own mask is meant"
        )
    if mask.is_floating_point() and sees_values(mask) and bool((mask.isnan() | (mask == math.inf)).any()):
        raise InputError(
            "a float attention_mask must hold numbers or -inf, got NaN or +inf; 0 means that a token may look"
        )
    if mask.is_floating_point() and mask.dtype != hidden.dtype:
        # A mask of -1e9 says "a very low number". Cast to float16 it would become -inf, which says "no key".
        lowest = max(torch.finfo(hidden.dtype).min, torch.finfo(mask.dtype).min)
        mask = torch.where(mask == -math.inf, mask, mask.clamp(min=lowest)).to(hidden.dtype)
    return mask.expand(rows, mask.shape[1], length, length)


def check_head_mask(config: BertConfig, head_mask: Tensor | None, hidden: Tensor) -> Tensor | None:
    """Bring a head mask (H,) or (L, H) to factors (L, H, 1, 1) in the dtype of ``hidden``.

    Raises:
        InputError: another shape.
    """
    if head_mask is None:
        return None
    check_tensors(head_mask=head_mask)
    layers, heads = config.num_hidden_layers, config.num_attention_heads
    if tuple(head_mask.shape) not in ((heads,), (layers, heads)):
        raise InputError(
            f"head_mask must have the shape ({heads},) or ({layers}, {heads}), got {tuple(head_mask.shape)}; "
            "1 keeps a head and 0 takes it away"
        )
    return head_mask.to(hidden).expand(layers, heads)[:, :, None, None]

"""BERT, top to bottom: from token numbers to one vector a token, and one vector a text.

Read in the order of the code, which is the order in which a tensor travels::

    input_ids -> BertEmbeddings -> BertEncoder: L x BertLayer(BertAttention -> feed-forward) -> last_hidden_state
                                                                  BertPooler(last_hidden_state) -> pooler_output

Shape letters, here and in every module: B rows in a batch (a row is one text, or one pair of texts), S tokens in a row,
E hidden size, H attention heads, D = E / H head width, F feed-forward width, V vocabulary, L layers, C classes. Class,
module and parameter names are those of released checkpoints.

Beside this file: ``inputs.py`` checks what ``forward`` accepts and brings every mask to one form, ``heads.py`` puts
tasks on top, ``pretrained.py`` has what every model offers besides ``forward`` (loading, saving, resizing).

Sources: Devlin et al. 2018, "BERT"; Vaswani et al. 2017, "Attention Is All You Need"; google-research/bert modeling.py.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from plainbert.config import BertConfig
from plainbert.errors import InputError
from plainbert.models.activations import Activation
from plainbert.models.inputs import check_head_mask, check_inputs, prepare_mask
from plainbert.models.outputs import BaseModelOutput, BaseModelOutputWithPooling
from plainbert.models.pretrained import BertPreTrainedModel, ignore_stored_tables, refuse_keywords

if TYPE_CHECKING:
    from plainbert.models.pretraining import BertLMPredictionHead


class BertEmbeddings(nn.Module):
    """Turn token numbers into vectors: what the token is, where it stands, which segment it belongs to.

    ``LayerNorm(word[input_ids] + token_type[token_type_ids] + position[position_ids])``, then dropout. Attention has
    no sense of order, so the position must be in the vector. The token type tells the first text (0) of a pair from
    the second (1); it was learned by next-sentence prediction, and every model that scores pairs depends on it.
    ``LayerNorm(x) = (x - mean) / sqrt(variance + eps) * weight + bias``, over the E numbers of each token.

    Source: Devlin et al. 2018, section 3 and figure 2.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        # padding_idx: [PAD] starts at zero and gets no gradient. It does not hide [PAD] from attention; the mask does.
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.register_load_state_dict_pre_hook(ignore_stored_tables)  # checkpoints of 2019 hold position_ids

    def forward(
        self,
        input_ids: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
    ) -> Tensor:
        """Return (B, S, E) from ``input_ids`` (B, S), or from word vectors ``inputs_embeds`` (B, S, E) in their place.

        ``token_type_ids`` defaults to zeros, ``position_ids`` to 0 ... S-1; both (B, S), or (1, S) for all rows.
        """
        words = self.word_embeddings(input_ids) if inputs_embeds is None else inputs_embeds  # (B, S, E)
        if position_ids is None:
            position_ids = torch.arange(words.shape[1], device=words.device)[None]  # (1, S)
        if token_type_ids is None:
            token_type_ids = torch.zeros(words.shape[:2], dtype=torch.long, device=words.device)  # (B, S)
        # The order of the two sums decides the last bit of the result.
        embeddings = words + self.token_type_embeddings(token_type_ids)
        embeddings = embeddings + self.position_embeddings(position_ids)
        return self.dropout(self.LayerNorm(embeddings))


class BertSelfAttention(nn.Module):
    """Let every token gather information from the tokens it finds relevant.

    For each head: ``softmax(Q K^T / sqrt(D) + mask) V``, where Q, K and V hold a query, a key and a value (D) for each
    token. A token's query is compared with the keys of all tokens in its row; the softmax makes these scores
    probabilities, the attention map, which sum to 1; the result is that average of the values.

    *Why heads.* One softmax has one opinion on what is relevant. Splitting E into H heads of width D gives H
    independent opinions for the same number of multiplications, and training makes them different.

    *Why [PAD] must be masked.* Rows of a batch are filled with [PAD] to the same length. [PAD] has an embedding like
    any token, so it has keys and values, and would take part in every average: a text would mean something else in a
    longer batch. The mask gives the scores of [PAD] the lowest number there is: beside any real score its exponential
    is exactly 0, and so is its probability. [PAD]'s own query still produces a vector; nobody looks at it.

    A query without any key to look at (in a row that is all padding) gets the zero vector.

    Source: Vaswani et al. 2017, sections 3.2.1 and 3.2.2.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        self.num_attention_heads = config.num_attention_heads
        self.attention_head_size = config.hidden_size // config.num_attention_heads
        self.scale = self.attention_head_size**-0.5  # Q K^T grows with D; unscaled, one key would take it all
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)
        self.dropout = nn.Dropout(config.attention_probs_dropout_prob)

    def split_heads(self, hidden: Tensor) -> Tensor:
        """Cut the last dimension into heads and move them beside the batch: (B, S, E) -> (B, H, S, D)."""
        B, S, _ = hidden.shape
        return hidden.view(B, S, self.num_attention_heads, self.attention_head_size).transpose(1, 2)

    def probabilities(self, query: Tensor, key: Tensor, attention_mask: Tensor | None, dtype: torch.dtype) -> Tensor:
        """Return ``softmax(query key^T * scale + mask)`` (B, H, S, S); zero where a query may not look.

        ``dtype`` is that of the hidden states: under autocast a masked softmax runs in it, as in transformers.
        """
        scores = torch.matmul(query, key.transpose(2, 3)) * self.scale  # (B, H, S, S)
        if attention_mask is None:
            return F.softmax(scores, dim=-1)
        scores, lowest = scores.to(dtype), torch.finfo(dtype).min
        if attention_mask.dtype == torch.bool:
            masked_keys = ~attention_mask
            scores = scores.masked_fill(masked_keys, lowest)  # exp(lowest - highest) is exactly 0
        else:
            masked_keys = attention_mask == -math.inf
            # In float16 a score of -60000 plus a mask of -60000 would be -inf, and a query with only such keys NaN.
            scores = (scores + attention_mask).clamp(min=lowest)
        # Without any key the softmax over equal lowest numbers is uniform; everywhere else these are zeros already.
        return F.softmax(scores, dim=-1).masked_fill(masked_keys, 0.0)

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        head_mask: Tensor | None = None,
        output_attentions: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the mixed values (B, S, E) and, when asked, the attention maps (B, H, S, S).

        Args:
            hidden_states: (B, S, E).
            attention_mask: None; or bool, True = look; or float, added to the scores. Broadcasts to (B, H, S, S).
            head_mask: (H, 1, 1), multiplies the probabilities of each head.
            output_attentions: whether to return the maps. Under "sdpa" they come from the same queries and keys by
                the formula written out, before dropout; under "eager" they are the very factors that were used.
        """
        B, S, E = hidden_states.shape
        query = self.split_heads(self.query(hidden_states))  # (B, H, S, D)
        key = self.split_heads(self.key(hidden_states))  # (B, H, S, D)
        value = self.split_heads(self.value(hidden_states))  # (B, H, S, D)
        maps = None
        if self.config.attn_implementation == "eager" or output_attentions:
            maps = self.probabilities(query, key, attention_mask, hidden_states.dtype)  # (B, H, S, S)
        if self.config.attn_implementation == "eager":
            maps = self.dropout(maps)
            maps = maps if head_mask is None else maps * head_mask
            context = torch.matmul(maps, value)  # (B, H, S, D)
        else:
            # The same formula in one kernel, which stores no (S, S) scores. (Maps asked for are computed beside it.)
            dropout = self.dropout.p if self.training else 0.0
            context = F.scaled_dot_product_attention(query, key, value, attention_mask, dropout, scale=self.scale)
            if head_mask is not None:  # a factor of the probabilities is a factor of the average
                context = context * head_mask
                maps = maps if maps is None else maps * head_mask
        context = context.transpose(1, 2).reshape(B, S, E)  # heads side by side again: (B, H, S, D) -> (B, S, E)
        return context, maps if output_attentions else None


class BertSelfOutput(nn.Module):
    """Let the heads talk to each other, and add the result to what went in: ``LayerNorm(dropout(W x + b) + input)``.

    The sum is the residual connection: a layer only has to learn what to change.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, hidden_states: Tensor, input_tensor: Tensor) -> Tensor:
        """(B, S, E), (B, S, E) -> (B, S, E)."""
        return self.LayerNorm(self.dropout(self.dense(hidden_states)) + input_tensor)


class BertAttention(nn.Module):
    """Self-attention and its output layer: the first half of a layer."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.self = BertSelfAttention(config)  # "self" is its name in checkpoints
        self.output = BertSelfOutput(config)

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        head_mask: Tensor | None = None,
        output_attentions: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """(B, S, E) -> (B, S, E) and the maps (B, H, S, S) or None."""
        context, maps = self.self(hidden_states, attention_mask, head_mask, output_attentions)
        return self.output(context, hidden_states), maps


class BertIntermediate(nn.Module):
    """Look at each token alone, in a wider space: ``gelu(W x + b)``.

    ``gelu(x) = x * P(X <= x)`` for a standard normal X: close to x where x is large, close to 0 where it is very
    negative, smooth between. Some relatives use another activation (``hidden_act``).
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.intermediate_size)
        self.intermediate_act_fn = Activation(config.hidden_act)

    def forward(self, hidden_states: Tensor) -> Tensor:
        """(B, S, E) -> (B, S, F)."""
        return self.intermediate_act_fn(self.dense(hidden_states))


class BertOutput(nn.Module):
    """Come back from the wide space and add to what went in: ``LayerNorm(dropout(W x + b) + input)``."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.intermediate_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, hidden_states: Tensor, input_tensor: Tensor) -> Tensor:
        """(B, S, F), (B, S, E) -> (B, S, E)."""
        return self.LayerNorm(self.dropout(self.dense(hidden_states)) + input_tensor)


class BertLayer(nn.Module):
    """One layer: tokens exchange information (attention), then each digests it alone (feed-forward).

    Source: Vaswani et al. 2017, figure 1, left half.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.attention = BertAttention(config)
        self.intermediate = BertIntermediate(config)
        self.output = BertOutput(config)

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        head_mask: Tensor | None = None,
        output_attentions: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """(B, S, E) -> (B, S, E) and the maps (B, H, S, S) or None."""
        attended, maps = self.attention(hidden_states, attention_mask, head_mask, output_attentions)
        wide = self.intermediate(attended)  # (B, S, F)
        return self.output(wide, attended), maps  # (B, S, E)


class BertEncoder(nn.Module):
    """The stack of L layers, each reading what the one below wrote."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.layer = nn.ModuleList([BertLayer(config) for _ in range(config.num_hidden_layers)])
        self.gradient_checkpointing = False

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        head_mask: Tensor | None = None,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> BaseModelOutput:
        """Run the layers over ``hidden_states`` (B, S, E).

        Args:
            hidden_states: (B, S, E).
            attention_mask: as ``BertSelfAttention`` takes it, the same in every layer.
            head_mask: (L, H, 1, 1) or None.
            output_hidden_states: whether to return all L + 1 states: the embeddings, then each layer's output.
            output_attentions: whether to return the L attention maps.
        """
        states, maps = [hidden_states], []
        for index, layer in enumerate(self.layer):
            factors = None if head_mask is None else head_mask[index]  # (H, 1, 1)
            if self.gradient_checkpointing and self.training:  # forget what is inside a layer, redo it in backward
                arguments = (hidden_states, attention_mask, factors, output_attentions)
                hidden_states, layer_maps = checkpoint(layer, *arguments, use_reentrant=False)
            else:
                hidden_states, layer_maps = layer(hidden_states, attention_mask, factors, output_attentions)
            states.append(hidden_states)
            maps.append(layer_maps)
        return BaseModelOutput(
            last_hidden_state=hidden_states,
            hidden_states=tuple(states) if output_hidden_states else None,
            attentions=tuple(maps) if output_attentions else None,
        )


class BertPooler(nn.Module):
    """One vector for the whole row: ``tanh(W h + b)`` of the first token, [CLS].

    Pretraining asked [CLS] whether the second text follows the first, which taught it to gather from the whole row. As
    a sentence vector out of the box it is poor; classifiers fine-tune it, embedding models use ``pooling.py`` instead.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = nn.Tanh()

    def forward(self, hidden_states: Tensor) -> Tensor:
        """(B, S, E) -> (B, E)."""
        first = hidden_states[:, 0]  # (B, E)
        return self.activation(self.dense(first))


class BertModel(BertPreTrainedModel):
    """BERT without a task: embeddings, encoder, pooler.

    Args:
        config: sizes and rates; see ``BertConfig``.
        add_pooling_layer: whether to have a pooler; without one ``pooler_output`` is None.

    Example:
        >>> model = BertModel.from_pretrained("minilm")
        >>> model(torch.tensor([[101, 7592, 102]])).last_hidden_state.shape
        torch.Size([1, 3, 384])
    """

    def __init__(self, config: BertConfig, add_pooling_layer: bool = True) -> None:
        super().__init__(config)
        self.vocabulary_head: BertLMPredictionHead | None = None  # a masked LM head on top, which is resized with us
        with self.building():  # fresh weights; or no memory at all, while from_pretrained builds us
            self.embeddings = BertEmbeddings(config)
            self.encoder = BertEncoder(config)
            self.pooler: BertPooler | None = BertPooler(config) if add_pooling_layer else None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "vocabulary_head": None}  # a pickled encoder leaves the head behind

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        head_mask: Tensor | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        return_dict: bool | None = None,
        **unknown: Any,
    ) -> BaseModelOutputWithPooling:
        """Encode a batch of token rows.

        Args:
            input_ids: (B, S) integers, each from 0 to V-1.
            attention_mask: what each token may look at; see ``inputs.prepare_mask`` for the forms. Most often (B, S),
                1 for a token and 0 for [PAD]. None: everything, [PAD] included.
            token_type_ids: (B, S) or (1, S), 0 for the first text of a pair and 1 for the second; zeros when None.
            position_ids: (B, S) or (1, S); 0 ... S-1 when None. Rows padded on the left need their own.
            inputs_embeds: (B, S, E) word vectors in place of ``input_ids``.
            head_mask: (H,) or (L, H), multiplies the attention probabilities of each head.
            output_hidden_states: whether to return the L + 1 states; None: as the config says.
            output_attentions: whether to return the L attention maps (B, H, S, S); None: as the config says.
            return_dict: accepted as True or None; outputs are always named.

        Returns:
            ``last_hidden_state`` (B, S, E), ``pooler_output`` (B, E) or None, ``hidden_states``, ``attentions``.

        Raises:
            InputError: ids, masks or lengths that the model cannot take, with the numbers.
            KeywordError: a keyword that this method does not have.
        """
        refuse_keywords(self, unknown)
        if return_dict is False:
            raise InputError("return_dict must be True, got False; outputs are named, .to_tuple() makes them a tuple")
        check_inputs(self.embeddings, input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        hidden = self.embeddings(input_ids, token_type_ids, position_ids, inputs_embeds)  # (B, S, E)
        encoded = self.encoder(
            hidden,
            prepare_mask(self.config, attention_mask, hidden),  # None, or bool or float that broadcasts to (B, H, S, S)
            check_head_mask(self.config, head_mask, hidden),  # (L, H, 1, 1) or None
            self.config.output_hidden_states if output_hidden_states is None else output_hidden_states,
            self.config.output_attentions if output_attentions is None else output_attentions,
        )
        last = encoded.last_hidden_state  # (B, S, E)
        pooled = None if self.pooler is None else self.pooler(last)  # (B, E)
        return BaseModelOutputWithPooling(last, pooled, encoded.hidden_states, encoded.attentions)

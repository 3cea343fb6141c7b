"""What stands on the encoder during pretraining, under the attribute ``cls`` of a model: words, and sentence order.

``heads.py`` makes models of them. Shape letters are those of ``bert.py``.
"""

from __future__ import annotations

from torch import Tensor, nn

from plainbert.config import BertConfig
from plainbert.models.activations import Activation


class BertPredictionHeadTransform(nn.Module):
    """Prepare token vectors for the decoder: ``LayerNorm(act(W h + b))``."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.transform_act_fn = Activation(config.hidden_act)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, hidden_states: Tensor) -> Tensor:
        """(B, S, E) -> (B, S, E)."""
        return self.LayerNorm(self.transform_act_fn(self.dense(hidden_states)))


class BertLMPredictionHead(nn.Module):
    """Score every word of the vocabulary at every position: ``decoder(transform(h))``.

    The decoder's matrix is the word embedding table (when ``tie_word_embeddings``): a vector scores high for the words
    it resembles. Its bias has two names in checkpoints, ``bias`` and ``decoder.bias``, for one parameter.

    Source: Devlin et al. 2018, section 3.1, task 1; google-research/bert run_pretraining.py, ``get_masked_lm_output``.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.transform = BertPredictionHeadTransform(config)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size)
        self.bias = self.decoder.bias

    def forward(self, hidden_states: Tensor) -> Tensor:
        """(B, S, E) -> (B, S, V)."""
        return self.decoder(self.transform(hidden_states))


class BertOnlyMLMHead(nn.Module):
    """The masked LM head under the name ``cls``."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.predictions = BertLMPredictionHead(config)

    def forward(self, hidden_states: Tensor) -> Tensor:
        """(B, S, E) -> (B, S, V)."""
        return self.predictions(hidden_states)


class BertOnlyNSPHead(nn.Module):
    """The next-sentence head under the name ``cls``."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.seq_relationship = nn.Linear(config.hidden_size, 2)

    def forward(self, pooled: Tensor) -> Tensor:
        """(B, E) -> (B, 2)."""
        return self.seq_relationship(pooled)


class BertPreTrainingHeads(nn.Module):
    """Both pretraining heads under the name ``cls``."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.predictions = BertLMPredictionHead(config)
        self.seq_relationship = nn.Linear(config.hidden_size, 2)

    def forward(self, hidden_states: Tensor, pooled: Tensor) -> tuple[Tensor, Tensor]:
        """(B, S, E), (B, E) -> (B, S, V), (B, 2)."""
        return self.predictions(hidden_states), self.seq_relationship(pooled)

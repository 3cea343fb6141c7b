"""The seven task heads of BERT and their losses.

Each is the encoder of ``bert.py`` and a small layer on top. ``forward`` takes what ``BertModel.forward`` takes, and
labels. The losses are in ``losses.py``: where there is nothing to predict they are 0 with zero gradient, not NaN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

from torch import Tensor, nn

from plainbert.config import BertConfig
from plainbert.errors import ConfigError, InputError
from plainbert.models.bert import BertModel
from plainbert.models.inputs import check_tensors
from plainbert.models.losses import classification_loss, cross_entropy, position_loss
from plainbert.models.outputs import (
    BaseModelOutputWithPooling,
    BertForPreTrainingOutput,
    MaskedLMOutput,
    MultipleChoiceModelOutput,
    NextSentencePredictorOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from plainbert.models.pretrained import FORWARD_OPTIONS, BertPreTrainedModel, refuse_keywords
from plainbert.models.pretraining import BertOnlyMLMHead, BertOnlyNSPHead, BertPreTrainingHeads

if TYPE_CHECKING:
    from typing_extensions import Unpack


class ForwardOptions(TypedDict, total=False):
    """What every ``forward`` takes besides inputs and labels; the meaning is in ``BertModel.forward``."""

    head_mask: Tensor | None
    output_hidden_states: bool | None
    output_attentions: bool | None
    return_dict: bool | None


class _BertWithHead(BertPreTrainedModel):
    """What the heads share: the encoder under ``bert``, and the way to call it."""

    pooled = False  # whether the head reads pooler_output

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        with self.building():
            self.bert = BertModel(config, add_pooling_layer=self.pooled)

    def tie_weights(self) -> None:
        """Make the decoder of a masked LM head the word embedding table itself, when the config says so.

        Call it after replacing ``bert`` or ``cls``, as in transformers.
        """
        decoder = self.get_output_embeddings()
        if decoder is not None and self.config.tie_word_embeddings:
            decoder.weight = self.bert.embeddings.word_embeddings.weight

    def __setattr__(self, name: str, value: Any) -> None:
        replaced = self._modules.get("bert") if name == "bert" else None
        super().__setattr__(name, value)
        if replaced is not None:
            object.__setattr__(replaced, "vocabulary_head", None)
        if name in ("bert", "cls"):  # an encoder resizes with the masked LM head on top of it, also a later one
            self._attach_vocabulary_head()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._attach_vocabulary_head()

    def _attach_vocabulary_head(self) -> None:
        bert = self._modules.get("bert")
        if bert is not None:  # a reference, not a submodule of the encoder
            object.__setattr__(bert, "vocabulary_head", getattr(self._modules.get("cls"), "predictions", None))

    def run_encoder(
        self,
        input_ids: Tensor | None,
        attention_mask: Tensor | None,
        token_type_ids: Tensor | None,
        position_ids: Tensor | None,
        inputs_embeds: Tensor | None,
        options: ForwardOptions,
    ) -> BaseModelOutputWithPooling:
        """Run the encoder, after refusing options that do not exist."""
        refuse_keywords(self, options.keys() - set(FORWARD_OPTIONS))
        return self.bert(input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, **options)


def _classifier_dropout(config: BertConfig) -> nn.Dropout:
    """Make the dropout before a classifier: ``classifier_dropout``, or the layers' own where that is None."""
    rate = config.hidden_dropout_prob if config.classifier_dropout is None else config.classifier_dropout
    return nn.Dropout(rate)


class BertForPreTraining(_BertWithHead):
    """Masked LM and next-sentence prediction together, as BERT was pretrained."""

    pooled = True

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        with self.building():
            self.cls = BertPreTrainingHeads(config)
        self.tie_weights()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        next_sentence_label: Tensor | None = None,
        **options: Unpack[ForwardOptions],
    ) -> BertForPreTrainingOutput:
        """Score words and sentence order; ``loss`` is the sum of the losses whose labels were given.

        Args:
            labels: (B, S) the words that were masked, -100 elsewhere.
            next_sentence_label: (B,), 0 where the second text follows the first, 1 where it is a random one.
            **options: the inputs before the labels and these options, as in ``BertModel.forward``.
        """
        encoded = self.run_encoder(input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, options)
        words, order = self.cls(encoded.last_hidden_state, encoded.pooler_output)  # (B, S, V), (B, 2)
        losses = []
        if labels is not None:
            losses.append(cross_entropy(words, labels))
        if next_sentence_label is not None:
            losses.append(cross_entropy(order, next_sentence_label, "next_sentence_label"))
        loss = sum(losses[1:], losses[0]) if losses else None
        return BertForPreTrainingOutput(loss, words, order, encoded.hidden_states, encoded.attentions)


class BertForMaskedLM(_BertWithHead):
    """Guess the words behind [MASK]."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        with self.building():
            self.cls = BertOnlyMLMHead(config)
        self.tie_weights()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **options: Unpack[ForwardOptions],
    ) -> MaskedLMOutput:
        """Score every word at every position; ``labels`` (B, S) are the true words, -100 where there is no guess."""
        encoded = self.run_encoder(input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, options)
        logits = self.cls(encoded.last_hidden_state)  # (B, S, V)
        loss = None if labels is None else cross_entropy(logits, labels)
        return MaskedLMOutput(loss, logits, encoded.hidden_states, encoded.attentions)


class BertForNextSentencePrediction(_BertWithHead):
    """Tell whether the second text of a pair follows the first."""

    pooled = True

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        with self.building():
            self.cls = BertOnlyNSPHead(config)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **options: Unpack[ForwardOptions],
    ) -> NextSentencePredictorOutput:
        """Score a pair; ``labels`` (B,): 0 where the second text follows the first, 1 where it is a random one."""
        encoded = self.run_encoder(input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, options)
        logits = self.cls(encoded.pooler_output)  # (B, 2)
        loss = None if labels is None else cross_entropy(logits, labels)
        return NextSentencePredictorOutput(loss, logits, encoded.hidden_states, encoded.attentions)


class BertForSequenceClassification(_BertWithHead):
    """Put a text or a pair into classes, or give it a number."""

    pooled = True

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        with self.building():
            self.dropout = _classifier_dropout(config)
            self.classifier = nn.Linear(config.hidden_size, config.num_labels)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **options: Unpack[ForwardOptions],
    ) -> SequenceClassifierOutput:
        """Score the classes.

        Args:
            labels: (B,) class numbers; or (B, C) with 0 or 1 for each class (multi label); or (B,), (B, 1) or (B, C)
                numbers (regression). ``config.problem_type`` says which; where it is None the labels of each call do:
                regression with one class, class numbers where they are integers, multi label otherwise.
            **options: the inputs before the labels and these options, as in ``BertModel.forward``.
        """
        encoded = self.run_encoder(input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, options)
        logits = self.classifier(self.dropout(encoded.pooler_output))  # (B, C)
        loss = None if labels is None else classification_loss(self.config, logits, labels)
        return SequenceClassifierOutput(loss, logits, encoded.hidden_states, encoded.attentions)


class BertForMultipleChoice(_BertWithHead):
    """Choose which of several continuations fits, each scored as a pair with the prompt."""

    pooled = True

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        with self.building():
            self.dropout = _classifier_dropout(config)
            self.classifier = nn.Linear(config.hidden_size, 1)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **options: Unpack[ForwardOptions],
    ) -> MultipleChoiceModelOutput:
        """Score the choices.

        Args:
            input_ids: (B, choices, S); so are the masks and ids that follow.
            inputs_embeds: (B, choices, S, E) in place of ``input_ids``.
            labels: (B,) number of the right choice.
            **options: as in ``BertModel.forward``; states and maps have B * choices rows.

        Raises:
            InputError: inputs without the dimension of the choices.
        """

        def flat(name: str, value: Tensor | None, dimensions: int = 3) -> Tensor | None:
            check_tensors(**{name: value})
            if value is not None and (value.ndim != dimensions or value.shape[1] == 0):
                raise InputError(f"{name} must have the shape (texts, choices, tokens ...), got {tuple(value.shape)}")
            return None if value is None else value.flatten(0, 1)

        encoded = self.run_encoder(
            flat("input_ids", input_ids),
            flat("attention_mask", attention_mask),
            flat("token_type_ids", token_type_ids),
            flat("position_ids", position_ids),
            flat("inputs_embeds", inputs_embeds, 4),
            options,
        )
        choices = next(value.shape[1] for value in (input_ids, inputs_embeds) if value is not None)
        logits = self.classifier(self.dropout(encoded.pooler_output)).view(-1, choices)  # (B, choices)
        loss = None if labels is None else cross_entropy(logits, labels)
        return MultipleChoiceModelOutput(loss, logits, encoded.hidden_states, encoded.attentions)


class BertForTokenClassification(_BertWithHead):
    """Label every token: names, parts of speech."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        with self.building():
            self.dropout = _classifier_dropout(config)
            self.classifier = nn.Linear(config.hidden_size, config.num_labels)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **options: Unpack[ForwardOptions],
    ) -> TokenClassifierOutput:
        """Score the classes of each token; ``labels`` (B, S) are class numbers, -100 where there is none."""
        encoded = self.run_encoder(input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, options)
        logits = self.classifier(self.dropout(encoded.last_hidden_state))  # (B, S, C)
        loss = None if labels is None else cross_entropy(logits, labels)
        return TokenClassifierOutput(loss, logits, encoded.hidden_states, encoded.attentions)


class BertForQuestionAnswering(_BertWithHead):
    """Point at the first and the last token of the answer in a context."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        if config.num_labels != 2:
            raise ConfigError(f"num_labels must be 2 (start and end) for question answering, got {config.num_labels}")
        with self.building():
            self.qa_outputs = nn.Linear(config.hidden_size, config.num_labels)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        **options: Unpack[ForwardOptions],
    ) -> QuestionAnsweringModelOutput:
        """Score each token as start and as end of the answer.

        Args:
            start_positions: (B,) or (B, 1), number of the first token of the answer. A position below 0 or past the
                row says that the answer is not in this window: it is ignored, where transformers takes -1 for [CLS].
            end_positions: likewise, of the last token.
            **options: the inputs before the labels and these options, as in ``BertModel.forward``.

        Returns:
            The logits (B, S), and as ``loss`` the mean of the two cross entropies when both positions were given.
        """
        encoded = self.run_encoder(input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, options)
        start_logits, end_logits = self.qa_outputs(encoded.last_hidden_state).unbind(-1)  # (B, S), (B, S)
        start_logits, end_logits = start_logits.contiguous(), end_logits.contiguous()
        loss = None
        if start_positions is not None and end_positions is not None:
            start_loss = position_loss(start_logits, start_positions, "start_positions")
            loss = (start_loss + position_loss(end_logits, end_positions, "end_positions")) / 2
        return QuestionAnsweringModelOutput(loss, start_logits, end_logits, encoded.hidden_states, encoded.attentions)

"""The model by itself: what it returns when asked, and what its parts do."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from plainbert import BertConfig, BertModel, BertPreTrainedModel, InputError, KeywordError
from plainbert.models.activations import ACTIVATIONS, Activation
from plainbert.models.bert import BertSelfAttention

Inputs = Callable[[BertPreTrainedModel], dict[str, Tensor]]


def test_nothing_is_returned_that_was_not_asked_for(model: BertModel, ids: Tensor) -> None:
    outputs = model(ids)
    assert outputs.keys() == ["last_hidden_state", "pooler_output"]
    assert outputs.last_hidden_state.shape == (3, 8, 32)
    assert outputs.pooler_output.shape == (3, 32)


def test_hidden_states_are_the_embeddings_and_the_output_of_each_layer(model: BertModel, ids: Tensor) -> None:
    outputs = model(ids, output_hidden_states=True)
    assert len(outputs.hidden_states) == 3
    assert torch.equal(outputs.hidden_states[0], model.embeddings(ids))
    assert torch.equal(outputs.hidden_states[-1], outputs.last_hidden_state)
    again, _ = model.encoder.layer[0](outputs.hidden_states[0])
    assert torch.equal(outputs.hidden_states[1], again)


def test_maps_under_the_fused_kernel_are_those_of_the_formula(
    any_model: BertPreTrainedModel, inputs_for: Inputs
) -> None:
    inputs = inputs_for(any_model)
    fused = any_model(**inputs, output_attentions=True, output_hidden_states=True)
    any_model.config.attn_implementation = "eager"
    written_out = any_model(**inputs, output_attentions=True, output_hidden_states=True)
    mask = inputs["attention_mask"].flatten(0, -2).bool()
    for ours, theirs in zip(fused.attentions, written_out.attentions, strict=True):
        assert ours.shape == (len(mask), 4, 8, 8)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)
        torch.testing.assert_close(ours.sum(-1), torch.ones(len(mask), 4, 8))
        assert (ours[~mask[:, None, None, :].expand_as(ours)] == 0).all()
    for ours, theirs in zip(fused.hidden_states, written_out.hidden_states, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


def test_asking_for_maps_does_not_change_the_other_outputs(model: BertModel, ids: Tensor, attention: str) -> None:
    model.config.attn_implementation = attention
    assert torch.equal(model(ids, output_attentions=True).last_hidden_state, model(ids).last_hidden_state)


def test_the_config_says_what_is_returned_unless_the_call_does(config: BertConfig, ids: Tensor) -> None:
    config.output_attentions = config.output_hidden_states = True
    model = BertModel(config)
    assert model(ids).keys() == ["last_hidden_state", "pooler_output", "hidden_states", "attentions"]
    silent = model(ids, output_attentions=False, output_hidden_states=False)
    assert silent.keys() == ["last_hidden_state", "pooler_output"]


def test_without_a_pooler_there_is_no_pooled_vector(config: BertConfig, ids: Tensor) -> None:
    model = BertModel(config, add_pooling_layer=False)
    assert model(ids).pooler_output is None
    assert not any(name.startswith("pooler") for name in model.state_dict())


# --- keywords ---


@pytest.mark.parametrize(
    "keyword", ["attention_msk", "attention_masks", "past_key_values", "use_cache", "label", "labels2"]
)
def test_a_keyword_that_forward_does_not_have_is_refused_with_those_it_has(
    any_model: BertPreTrainedModel, inputs_for: Inputs, keyword: str
) -> None:
    with pytest.raises(
        KeywordError, match=rf"forward has no argument '{keyword}'; it takes .*attention_mask"
    ) as caught:
        any_model(**inputs_for(any_model), **{keyword: None})
    assert isinstance(caught.value, TypeError)
    for name in ("input_ids", "head_mask", "output_attentions", "return_dict"):
        assert name in str(caught.value)


def test_the_bare_model_takes_no_labels(model: BertModel, ids: Tensor) -> None:
    with pytest.raises(KeywordError, match=r"BertModel\.forward has no argument 'labels'"):
        model(ids, labels=ids)


def test_return_dict_may_be_said_and_only_be_true(any_model: BertPreTrainedModel, inputs_for: Inputs) -> None:
    inputs = inputs_for(any_model)
    assert any_model(**inputs, return_dict=True).keys() == any_model(**inputs, return_dict=None).keys()
    with pytest.raises(InputError, match="return_dict must be True, got False"):
        any_model(**inputs, return_dict=False)


def test_every_forward_names_its_inputs_in_the_order_of_transformers(any_model: BertPreTrainedModel) -> None:
    names = list(inspect.signature(any_model.forward).parameters)
    assert names[:5] == ["input_ids", "attention_mask", "token_type_ids", "position_ids", "inputs_embeds"]


# --- head masks ---


@pytest.mark.parametrize("asked", [True, False])
def test_a_head_mask_multiplies_the_probabilities(model: BertModel, ids: Tensor, attention: str, asked: bool) -> None:
    model.config.attn_implementation = attention
    mask = torch.tensor([[1.0, 0.0, 0.5, 1.0], [0.0, 1.0, 1.0, 2.0]])
    plain = model(ids, output_attentions=True)
    masked = model(ids, head_mask=mask, output_attentions=asked)
    if asked:
        expected = plain.attentions[0] * mask[0][:, None, None]
        torch.testing.assert_close(masked.attentions[0], expected, rtol=0, atol=1e-6)
        assert (masked.attentions[1][:, 0] == 0).all()
    # The same by hand: a head's values scaled by its factor.
    with torch.no_grad():
        for factors, layer in zip(mask, model.encoder.layer, strict=True):
            value = layer.attention.self.value
            value.weight.mul_(factors.repeat_interleave(8)[:, None])
            value.bias.mul_(factors.repeat_interleave(8))
        torch.testing.assert_close(masked.last_hidden_state, model(ids).last_hidden_state, rtol=0, atol=1e-5)


def test_one_head_mask_for_all_layers_is_that_mask_in_each(model: BertModel, ids: Tensor) -> None:
    mask = torch.tensor([1, 0, 1, 1])
    once = model(ids, head_mask=mask).last_hidden_state
    assert torch.equal(once, model(ids, head_mask=mask.expand(2, 4)).last_hidden_state)
    assert torch.equal(model(ids, head_mask=torch.ones(4)).last_hidden_state, model(ids).last_hidden_state)
    assert not torch.allclose(once, model(ids).last_hidden_state)


def test_every_head_passes_its_options_on(any_model: BertPreTrainedModel, inputs_for: Inputs) -> None:
    inputs = inputs_for(any_model)
    asked = any_model(**inputs, head_mask=torch.zeros(4), output_attentions=True, output_hidden_states=True)
    assert len(asked.hidden_states) == 3
    assert all((maps == 0).all() for maps in asked.attentions)


# --- parts ---


def test_attention_is_the_formula(config: BertConfig) -> None:
    layer, hidden = BertSelfAttention(config).double().eval(), torch.randn(2, 5, 32).double()
    mask = torch.rand(2, 1, 5, 5) > 0.3
    mask[..., 0] = True
    context, _ = layer(hidden, mask)
    for head in range(4):
        part = slice(8 * head, 8 * head + 8)
        query, key, value = (
            F.linear(hidden, linear.weight[part], linear.bias[part]) for linear in (layer.query, layer.key, layer.value)
        )
        scores = (query @ key.transpose(1, 2) / math.sqrt(8)).masked_fill(~mask[:, 0], -math.inf)
        torch.testing.assert_close(context[..., part], scores.softmax(-1) @ value)


def test_the_pooler_reads_the_first_token_alone(model: BertModel, ids: Tensor) -> None:
    hidden = torch.randn(2, 5, 32)
    dense = model.pooler.dense
    assert torch.equal(model.pooler(hidden), torch.tanh(F.linear(hidden[:, 0], dense.weight, dense.bias)))


def test_padding_gets_no_gradient_and_every_other_row_used_does(model: BertModel, ids: Tensor) -> None:
    ids[0, 5:] = 0
    hidden = model(ids, attention_mask=(ids != 0).long()).last_hidden_state
    (hidden * torch.randn(3, 8, 32)).sum().backward()
    gradient = model.embeddings.word_embeddings.weight.grad
    assert (gradient[0] == 0).all()
    assert (gradient[ids[ids != 0]].abs().sum(-1) > 0).all()


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_every_activation_is_finite_and_shows_its_name(name: str) -> None:
    x = torch.linspace(-30, 30, 121, dtype=torch.float64)
    y = Activation(name)(x)
    assert y.isfinite().all()
    assert str(Activation(name)) == f"Activation({name})"
    if "gelu" in name:
        tolerance = 21.0 if name == "gelu_10" else 0.03  # one is cut at 10, one is a coarse approximation
        assert (y - F.gelu(x)).abs().max() < tolerance


def test_checkpointing_keeps_outputs_and_gradients(config: BertConfig, ids: Tensor) -> None:
    config.attention_probs_dropout_prob = config.hidden_dropout_prob = 0.1
    model = BertModel(config).train()
    results = []
    for switch in (model.gradient_checkpointing_enable, model.gradient_checkpointing_disable):
        switch()
        model.zero_grad()
        torch.manual_seed(3)
        outputs = model(ids, output_attentions=True, output_hidden_states=True)
        outputs.last_hidden_state.square().sum().backward()
        results.append((outputs, {name: parameter.grad for name, parameter in model.named_parameters()}))
    (one, gradients), (other, others) = results
    assert torch.equal(one.last_hidden_state, other.last_hidden_state)
    assert all(torch.equal(a, b) for a, b in zip(one.attentions, other.attentions, strict=True))
    assert all(gradients[name] is None or torch.equal(gradients[name], others[name]) for name in gradients)


def test_checkpointing_really_computes_a_layer_twice(config: BertConfig, ids: Tensor) -> None:
    model = BertModel(config).train()
    calls: list[Any] = []
    model.encoder.layer[0].intermediate.register_forward_hook(lambda *_: calls.append(1))
    model.gradient_checkpointing_enable()
    model(ids).last_hidden_state.sum().backward()
    assert len(calls) == 2


def test_a_model_in_evaluation_is_the_same_twice_and_in_training_is_not(config: BertConfig, ids: Tensor) -> None:
    model = BertModel(config)
    assert model.training
    assert not torch.equal(model(ids).last_hidden_state, model(ids).last_hidden_state)
    model.eval()
    assert torch.equal(model(ids).last_hidden_state, model(ids).last_hidden_state)

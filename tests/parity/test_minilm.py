"""The real model: all-MiniLM-L6-v2, six layers of trained weights, on texts in several scripts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import plainbert

SENTENCE_PAIRS = [
    ("The weather is lovely today.", "It is sunny outside."),
    ("今天天气真好。", "我们去公园散步，晒晒太阳吧。"),
    ("Ein kurzer Satz", "Почему бы и нет? 👍🏽 naïve café"),
]


@pytest.fixture(scope="module")
def inputs(minilm_folder: Path) -> dict[str, torch.Tensor]:
    tokenizer = plainbert.BertTokenizer.from_pretrained(minilm_folder)
    batch = tokenizer.batch_encode_plus(SENTENCE_PAIRS, add_special_tokens=True, padding=True, return_tensors="pt")
    return dict(batch)


def test_the_block_at_the_end_of_the_article_prints_true_and_true(
    minilm_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from transformers import AutoModel

    from plainbert import BertModel, BertTokenizer

    name, sentence_pairs = minilm_folder, SENTENCE_PAIRS
    tokenizer = BertTokenizer.from_pretrained(pretrained_model_name_or_path=name)
    mine = BertModel.from_pretrained(pretrained_model_name_or_path=name).eval()
    theirs = AutoModel.from_pretrained(pretrained_model_name_or_path=name).eval()
    inputs = tokenizer.batch_encode_plus(sentence_pairs, add_special_tokens=True, padding=True, return_tensors="pt")
    print(torch.allclose(mine(**inputs).last_hidden_state, theirs(**inputs).last_hidden_state, atol=1e-5))
    print(torch.equal(mine(**inputs).last_hidden_state, theirs(**inputs).last_hidden_state))
    assert capsys.readouterr().out == "True\nTrue\n"


def test_every_output_of_the_real_model_is_equal(
    parity: Any, minilm_folder: Path, inputs: dict[str, torch.Tensor], attention: str, dtype: torch.dtype
) -> None:
    ours, theirs = parity.load("BertModel", minilm_folder, attn_implementation=attention, dtype=dtype)
    assert inputs["token_type_ids"].unique().tolist() == [0, 1]
    assert inputs["attention_mask"].unique().tolist() == [0, 1]
    asked = {"output_hidden_states": True, "output_attentions": attention == "eager"}
    outputs = parity.assert_same_outputs("BertModel", ours, theirs, {**inputs, **asked})
    assert len(outputs.hidden_states) == 7
    if dtype is torch.float32:
        parity.assert_same_gradients(ours, theirs, inputs)


def test_maps_of_the_real_model_asked_under_sdpa_are_those_of_eager(
    minilm_folder: Path, inputs: dict[str, torch.Tensor]
) -> None:
    fused = plainbert.BertModel.from_pretrained(minilm_folder)
    plain = plainbert.BertModel.from_pretrained(minilm_folder, attn_implementation="eager")
    with torch.no_grad():
        ours, eager = fused(**inputs, output_attentions=True), plain(**inputs, output_attentions=True)
        unasked = fused(**inputs)
    assert torch.equal(ours.last_hidden_state, unasked.last_hidden_state)
    assert len(ours.attentions) == 6
    for one, other in zip(ours.attentions, eager.attentions, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=0)


def test_half_precision_stays_near_float32_and_hides_padding_exactly(
    minilm_folder: Path, inputs: dict[str, torch.Tensor], attention: str
) -> None:
    hidden_keys = inputs["attention_mask"] == 0
    states = {}
    for kind in (torch.float32, torch.float16):
        model = plainbert.BertModel.from_pretrained(minilm_folder, attn_implementation=attention, dtype=kind)
        with torch.no_grad():
            outputs = model(**inputs, output_attentions=True)
        states[kind] = outputs.last_hidden_state
        for one in outputs.attentions:
            assert one.dtype == kind
            everywhere = hidden_keys[:, None, None, :].expand_as(one)
            assert bool((one[everywhere] == 0).all()), "a masked key has no weight at all"
            torch.testing.assert_close(one.float().sum(-1), torch.ones(one.shape[:-1]), atol=5e-3, rtol=0)
    assert states[torch.float16].dtype == torch.float16
    apart = (states[torch.float16].float() - states[torch.float32]).abs().max().item()
    assert 0 < apart <= 5e-3 * states[torch.float32].abs().max().item()


@pytest.mark.parametrize("number", [-float("inf"), -1e9, -65504.0])
def test_numbers_to_add_that_half_precision_cannot_hold_hide_a_key_and_make_no_nan(
    parity: Any, inputs: dict[str, torch.Tensor], minilm_folder: Path, attention: str, number: float
) -> None:
    model = plainbert.BertModel.from_pretrained(minilm_folder, attn_implementation=attention, dtype=torch.float16)
    length = inputs["input_ids"].shape[1]
    look = inputs["attention_mask"].bool()[:, None, None, :].expand(-1, 1, length, -1)
    mask = torch.zeros(look.shape).masked_fill(~look, number)
    with torch.no_grad():
        added = model(**{**inputs, "attention_mask": mask}, output_attentions=True)
        flat = model(**inputs, output_attentions=True)
    parity.assert_equal(added.last_hidden_state, flat.last_hidden_state, "last_hidden_state")
    parity.assert_equal(added.attentions, flat.attentions, "attentions")

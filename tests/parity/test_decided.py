"""Where we differ from transformers on purpose: each test shows both sides, so that a change on either is seen."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import plainbert
from plainbert import ConfigError, InputError, PlainBertWarning

# --- a loss with nothing to predict ---

NOWHERE = {
    "BertForPreTraining": {"labels": torch.full((3, 11), -100), "next_sentence_label": torch.full((3,), -100)},
    "BertForMaskedLM": {"labels": torch.full((3, 11), -100)},
    "BertForNextSentencePrediction": {"labels": torch.full((3,), -100)},
    "BertForSequenceClassification": {"labels": torch.full((3,), -100)},
    "BertForMultipleChoice": {"labels": torch.full((3,), -100)},
    "BertForTokenClassification": {"labels": torch.full((3, 11), -100)},
    "BertForQuestionAnswering": {"start_positions": torch.tensor([11, 40, 99]), "end_positions": torch.full((3,), 11)},
}


@pytest.mark.parametrize("name", NOWHERE)
def test_a_loss_with_nothing_to_predict_is_zero_with_no_gradient_where_transformers_gives_nan(
    parity: Any, name: str, dtype: torch.dtype
) -> None:
    ours, theirs = parity.pair(name, dtype=dtype)
    inputs = {**parity.batch(name), **NOWHERE[name]}
    mine, other = parity.gradients(ours, inputs), parity.gradients(theirs, inputs)
    assert mine["loss"].item() == 0
    assert math.isnan(other["loss"].item())
    assert len(mine) == len(other) > 1
    assert all(bool((gradient == 0).all()) for gradient in mine.values())


@pytest.mark.parametrize("name", NOWHERE)
def test_a_step_with_nothing_to_predict_leaves_the_parameters_alone(parity: Any, name: str) -> None:
    ours, _ = parity.own_pair(name)
    before = {key: value.clone() for key, value in ours.state_dict().items()}
    optimizer = torch.optim.AdamW(ours.parameters(), lr=1e-2, weight_decay=0.0)
    ours(**parity.batch(name), **NOWHERE[name]).loss.backward()
    optimizer.step()
    parity.assert_same_tensors(ours.state_dict(), before)


def test_one_head_with_nothing_to_predict_leaves_the_loss_of_the_other(parity: Any) -> None:
    ours, theirs = parity.pair("BertForPreTraining")
    labels, nowhere = parity.labels("BertForPreTraining"), NOWHERE["BertForPreTraining"]
    mixed = {"labels": nowhere["labels"], "next_sentence_label": labels["next_sentence_label"]}
    with torch.no_grad():
        mine, other = ours(**parity.batch(), **mixed), theirs(**parity.batch(), **mixed)
        expected = torch.nn.functional.cross_entropy(other.seq_relationship_logits, labels["next_sentence_label"])
    assert torch.equal(mine.loss, expected)
    assert math.isnan(other.loss.item())


# --- positions of answers ---


def test_a_position_before_the_row_is_no_answer_where_transformers_trains_on_cls(parity: Any) -> None:
    ours, theirs = parity.pair("BertForQuestionAnswering")
    batch = parity.batch()

    def losses(model: Any, start: list[int], end: list[int]) -> torch.Tensor:
        with torch.no_grad():
            found: torch.Tensor = model(
                **batch, start_positions=torch.tensor(start), end_positions=torch.tensor(end)
            ).loss
        return found

    for outside in (-1, -100):
        mine = losses(ours, [3, outside, 0], [5, outside, 0])
        assert torch.equal(mine, losses(ours, [3, 11, 0], [5, 11, 0])), "as if it were past the row"
        assert torch.equal(losses(theirs, [3, outside, 0], [5, outside, 0]), losses(theirs, [3, 0, 0], [5, 0, 0]))
        assert torch.equal(mine, losses(theirs, [3, 11, 0], [5, 11, 0])), "past the row both ignore it"
        assert losses(ours, [outside] * 3, [outside] * 3).item() == 0
    assert torch.equal(losses(ours, [0, 10, 400], [0, 10, 7]), losses(theirs, [0, 10, 400], [0, 10, 7]))


def test_positions_in_a_column_mean_the_same(parity: Any) -> None:
    ours, theirs = parity.pair("BertForQuestionAnswering")
    labels = {name: value[:, None] for name, value in parity.labels("BertForQuestionAnswering").items()}
    parity.assert_same_outputs("BertForQuestionAnswering", ours, theirs, {**parity.batch(), **labels})


# --- masks that transformers takes in silence ---


def test_masks_that_transformers_takes_in_silence_are_refused_or_made_right(parity: Any) -> None:
    ours, theirs = parity.pair("BertModel", "eager")
    batch = {"input_ids": parity.batch()["input_ids"]}
    look = torch.ones(11, 11, dtype=torch.bool).tril().expand(3, 1, 11, 11)
    lowest = torch.finfo(torch.float32).min
    right = torch.zeros(look.shape).masked_fill(~look, lowest)
    with torch.no_grad():
        expected = theirs(**batch, attention_mask=right).last_hidden_state
        # True and False of four dimensions: transformers adds them to the scores as 1 and 0.
        assert not torch.allclose(theirs(**batch, attention_mask=look).last_hidden_state, expected, atol=1e-3)
        assert torch.equal(ours(**batch, attention_mask=look).last_hidden_state, expected)
        assert torch.equal(ours(**batch, attention_mask=look[:, 0]).last_hidden_state, expected)
        # Whole numbers of four dimensions say neither "1 is look" nor "added".
        theirs(**batch, attention_mask=look.long())
        with pytest.raises(InputError, match="int64"):
            ours(**batch, attention_mask=look.long())
        # Numbers to add, but flat: transformers takes everything that is not zero for "look".
        flat = torch.zeros(3, 11).masked_fill(torch.arange(11) > 6, -10000.0)
        kept = theirs(**batch, attention_mask=(flat != 0).long()).last_hidden_state
        assert torch.equal(theirs(**batch, attention_mask=flat).last_hidden_state, kept)
        with pytest.raises(InputError, match="-10000"):
            ours(**batch, attention_mask=flat)
        # A mask of another length.
        for length in (7, 12):
            wrong = torch.ones(3, length, dtype=torch.long)
            theirs(**batch, attention_mask=wrong)
            with pytest.raises(InputError, match=rf"\(3, 11\).*\(3, {length}\)"):
                ours(**batch, attention_mask=wrong)


@pytest.mark.parametrize("keyword", ["attention_msk", "token_type", "labels_", "input_id"])
def test_a_misspelt_keyword_has_no_effect_there_and_is_an_error_here(parity: Any, head: str, keyword: str) -> None:
    ours, theirs = parity.pair(head)
    inputs = {**parity.batch(head), keyword: torch.zeros(3, 11)}
    with torch.no_grad():
        theirs(**inputs)
    with pytest.raises(TypeError, match=f"{head}.forward has no argument '{keyword}'"):
        ours(**inputs)


def test_a_head_mask_works_here_and_has_no_effect_there(parity: Any, attention: str) -> None:
    ours, theirs = parity.pair("BertModel", attention)
    batch, mask = parity.batch(), torch.tensor([1.0, 0.0, 0.5, 1.0])
    with torch.no_grad():
        assert torch.equal(theirs(**batch, head_mask=mask).last_hidden_state, theirs(**batch).last_hidden_state), (
            "transformers 5 takes it in silence"
        )
        mine = ours(**batch, head_mask=mask, output_attentions=True)
        plain = ours(**batch, output_attentions=True)
    assert not torch.allclose(mine.last_hidden_state, plain.last_hidden_state, atol=1e-3)
    parity.assert_equal(mine.attentions[0], plain.attentions[0] * mask[:, None, None])


# --- labels and problems ---


def test_each_call_decides_by_its_labels_where_transformers_stays_with_the_first(parity: Any) -> None:
    ours, theirs = parity.own_pair("BertForSequenceClassification")
    batch, numbers = parity.batch(), torch.tensor([0, 2, 1])
    flags = torch.nn.functional.one_hot(numbers, 3).float()
    with torch.no_grad():
        first = ours(**batch, labels=numbers).loss
        assert torch.equal(first, theirs(**batch, labels=numbers).loss)
        assert theirs.config.problem_type == "single_label_classification"
        assert ours.config.problem_type is None
        _, fresh = parity.own_pair("BertForSequenceClassification")
        assert torch.equal(ours(**batch, labels=flags).loss, fresh(**batch, labels=flags).loss)
        assert torch.equal(ours(**batch, labels=numbers).loss, first)
        with pytest.raises(ValueError, match="batch_size"):
            theirs(**batch, labels=flags)


def test_a_problem_type_that_does_not_exist_is_refused_where_transformers_gives_no_loss(parity: Any) -> None:
    fields = parity.fields("BertForSequenceClassification")
    with pytest.raises(ConfigError, match="bogus"):
        plainbert.BertConfig(**fields, problem_type="bogus")
    _, theirs = parity.own_pair("BertForSequenceClassification")
    theirs.config.problem_type = "bogus"
    with torch.no_grad():
        assert theirs(**parity.batch(), labels=torch.tensor([0, 1, 2])).loss is None


def test_regression_of_two_numbers_from_one_says_so(parity: Any) -> None:
    ours, theirs = parity.own_pair("BertForSequenceClassification", problem_type="regression", num_labels=2)
    batch, labels = parity.batch(), torch.randn(3)
    with pytest.raises(InputError, match=r"\(3, 2\) for regression, got \(3,\)"):
        ours(**batch, labels=labels)
    with pytest.raises(RuntimeError), pytest.warns(UserWarning, match="target size"):
        theirs(**batch, labels=labels)


def test_the_loss_of_pretraining_is_of_the_labels_given_where_transformers_gives_none(parity: Any) -> None:
    ours, theirs = parity.pair("BertForPreTraining")
    batch, labels = parity.batch(), parity.labels("BertForPreTraining")
    with torch.no_grad():
        both = theirs(**batch, **labels)
        words = ours(**batch, labels=labels["labels"]).loss
        order = ours(**batch, next_sentence_label=labels["next_sentence_label"]).loss
        for name, value in labels.items():
            assert theirs(**batch, **{name: value}).loss is None
        assert ours(**batch).loss is None
    assert torch.equal(words + order, both.loss)
    assert words.item() > 0
    assert order.item() > 0


# --- padding ---


def test_padding_without_a_mask_is_warned_of(parity: Any, head: str) -> None:
    ours, theirs = parity.pair(head)
    ids = parity.batch(head)["input_ids"].clone()
    ids[..., -2:] = 0
    with torch.no_grad(), pytest.warns(PlainBertWarning, match="padding id 0 and no attention_mask"):
        ours(input_ids=ids)
    with torch.no_grad():
        mask = (ids != 0).long()
        parity.assert_same_outputs(head, ours, theirs, {"input_ids": ids, "attention_mask": mask})
        theirs(input_ids=ids)


def test_rows_padded_on_the_left_need_their_own_positions(parity: Any, attention: str) -> None:
    ours, theirs = parity.pair("BertModel", attention)
    ids = torch.randint(1, 99, (2, 7))
    right = torch.nn.functional.pad(ids, (0, 4))
    left, mask = right.roll(4, dims=1), (right != 0).long().roll(4, dims=1)
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    with torch.no_grad():
        alone = ours(input_ids=ids).last_hidden_state
        shifted = parity.assert_same_outputs("BertModel", ours, theirs, {"input_ids": left, "attention_mask": mask})
        inputs = {"input_ids": left, "attention_mask": mask, "position_ids": positions}
        placed = parity.assert_same_outputs("BertModel", ours, theirs, inputs)
    assert (shifted.last_hidden_state[:, 4:] - alone).abs().max() > 0.1
    torch.testing.assert_close(placed.last_hidden_state[:, 4:], alone, atol=2e-5, rtol=1e-5)


# --- files ---


def rewrite(folder: Path, change: Any) -> None:
    """Change the tensors of a saved model."""
    tensors = load_file(folder / "model.safetensors")
    save_file(change(tensors), folder / "model.safetensors", metadata={"format": "pt"})


def test_a_stored_decoder_that_differs_from_the_table_is_kept_untied_on_both_sides(parity: Any, tmp_path: Path) -> None:
    _, reference = parity.own_pair("BertForMaskedLM")
    reference.save_pretrained(tmp_path)
    rewrite(tmp_path, lambda tensors: {**tensors, "cls.predictions.decoder.weight": torch.randn(99, 32)})
    with pytest.warns(PlainBertWarning, match="different values; both are kept, untied") as caught:
        ours = parity.fresh(plainbert.BertForMaskedLM.from_pretrained(tmp_path))
    assert len([one for one in caught if issubclass(one.category, PlainBertWarning)]) == 1
    theirs = parity.fresh(transformers.BertForMaskedLM.from_pretrained(tmp_path).eval())
    inputs = {**parity.batch(), **parity.labels("BertForMaskedLM")}
    parity.assert_same_outputs("BertForMaskedLM", ours, theirs, inputs)
    assert not torch.equal(ours.cls.predictions.decoder.weight, ours.bert.embeddings.word_embeddings.weight)


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "model."])
def test_a_prefix_of_a_training_tool_is_taken_off_where_transformers_draws_weights_at_random(
    parity: Any, tmp_path: Path, prefix: str
) -> None:
    _, reference = parity.own_pair("BertForSequenceClassification")
    reference.save_pretrained(tmp_path)
    rewrite(tmp_path, lambda tensors: {prefix + name: tensor for name, tensor in tensors.items()})
    ours = parity.fresh(plainbert.BertForSequenceClassification.from_pretrained(tmp_path))
    parity.assert_same_outputs("BertForSequenceClassification", ours, parity.fresh(reference), parity.batch())
    if prefix == "module.":
        theirs = transformers.BertForSequenceClassification.from_pretrained(tmp_path).eval()
        with torch.no_grad():
            drawn, right = theirs(**parity.batch()).logits, reference(**parity.batch()).logits
        assert not torch.allclose(drawn, right, atol=1e-2)


@pytest.mark.parametrize(
    ("key", "value"),
    [("position_embedding_type", "relative_key"), ("is_decoder", True), ("add_cross_attention", True)],
)
def test_a_config_of_another_arithmetic_is_refused_by_name(
    parity: Any, tmp_path: Path, key: str, value: object
) -> None:
    _, reference = parity.own_pair("BertModel")
    reference.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    (tmp_path / "config.json").write_text(json.dumps({**config, key: value}), encoding="utf-8")
    with pytest.raises(ConfigError, match=f"{key} must be .*{value!r}"):
        plainbert.BertModel.from_pretrained(tmp_path)


def test_relative_positions_are_ignored_by_transformers(parity: Any, tmp_path: Path) -> None:
    _, reference = parity.own_pair("BertModel")
    reference.config.position_embedding_type = "relative_key_query"
    reference.save_pretrained(tmp_path)
    theirs = transformers.BertModel.from_pretrained(tmp_path).eval()
    parity.assert_same_outputs("BertModel", parity.fresh(theirs), parity.fresh(reference), parity.batch())
    with pytest.raises(ConfigError, match="relative_key_query"):
        plainbert.BertModel.from_pretrained(tmp_path)


def test_an_index_needs_no_metadata_here(parity: Any, tmp_path: Path) -> None:
    _, reference = parity.own_pair("BertModel")
    reference.save_pretrained(tmp_path, max_shard_size="20KB")
    path = tmp_path / "model.safetensors.index.json"
    index = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({"weight_map": index["weight_map"]}), encoding="utf-8")
    ours = parity.fresh(plainbert.BertModel.from_pretrained(tmp_path))
    parity.assert_same_outputs("BertModel", ours, parity.fresh(reference), parity.batch())
    lost = sorted(set(index["weight_map"].values()))[1]
    (tmp_path / lost).unlink()
    with pytest.raises(plainbert.PlainBertError, match=lost):
        plainbert.BertModel.from_pretrained(tmp_path)


def test_a_model_without_a_pooler_gives_none_where_transformers_makes_one_up(parity: Any) -> None:
    folder = parity.saved("BertForMaskedLM", 0.3, ())
    with pytest.warns(PlainBertWarning, match="has no pooler, so pooler_output is None"):
        ours = plainbert.BertModel.from_pretrained(folder)
    theirs = transformers.BertModel.from_pretrained(folder).eval()
    with torch.no_grad():
        assert ours(**parity.batch()).pooler_output is None
        assert theirs(**parity.batch()).pooler_output is not None
    for name in ("BertForSequenceClassification", "BertForNextSentencePrediction", "BertForMultipleChoice"):
        with pytest.warns(PlainBertWarning, match="pooler"):
            fresh = getattr(plainbert, name).from_pretrained(folder)
        assert fresh(**parity.batch(name)).logits.isfinite().all()


def test_an_empty_batch_and_a_row_too_long_have_answers_here(parity: Any) -> None:
    ours, theirs = parity.pair("BertModel", "sdpa")
    with torch.no_grad():
        assert ours(input_ids=torch.zeros(0, 8, dtype=torch.long)).last_hidden_state.shape == (0, 8, 32)
    long = torch.ones(1, 41, dtype=torch.long)
    with pytest.raises(InputError, match="41 tokens in a row, but this model takes at most 40"):
        ours(input_ids=long)
    with pytest.raises(RuntimeError):
        theirs(input_ids=long)

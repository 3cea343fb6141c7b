"""Every stored form of the masked LM decoder, against what transformers makes of the same file."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from plainbert import BertConfig, BertForMaskedLM, BertForPreTraining, PlainBertWarning

transformers = pytest.importorskip("transformers")
Store = Callable[..., Path]

WEIGHT, BIAS, DECODER_BIAS = (f"cls.predictions.{name}" for name in ("decoder.weight", "bias", "decoder.bias"))
WEIGHTS = ("absent", "equal", "different")
BIASES = ("absent", "bias", "decoder.bias", "both", "both different")
FORMS = list(itertools.product(WEIGHTS, BIASES, (True, False)))


def stored(model: BertForMaskedLM, weight: str, bias: str) -> dict[str, Tensor]:
    """The model's weights with its decoder in one of the forms."""
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = {name: tensor for name, tensor in state.items() if name not in (WEIGHT, BIAS, DECODER_BIAS)}
    table = state["bert.embeddings.word_embeddings.weight"]
    if weight != "absent":
        state[WEIGHT] = table.clone() if weight == "equal" else torch.randn_like(table)
    numbers = torch.randn(len(table))
    if bias in ("bias", "both", "both different"):
        state[BIAS] = numbers.clone()
    if bias in ("decoder.bias", "both", "both different"):
        state[DECODER_BIAS] = numbers + (1.0 if bias == "both different" else 0.0)
    return state


def theirs_from(folder: Path, seed: int) -> BertForMaskedLM:
    torch.manual_seed(seed)
    return transformers.BertForMaskedLM.from_pretrained(folder).eval()


@pytest.mark.parametrize(("weight", "bias", "tie"), FORMS)
def test_a_stored_decoder_means_what_it_means_to_transformers(
    small: BertConfig, rows: Tensor, store: Store, weight: str, bias: str, tie: bool
) -> None:
    small.tie_word_embeddings = tie
    folder = store(stored(BertForMaskedLM(small), weight, bias), small)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ours = BertForMaskedLM.from_pretrained(folder)
    said = " ".join(str(warning.message) for warning in caught if issubclass(warning.category, PlainBertWarning))
    theirs = theirs_from(folder, 1)
    logits, reference = ours(rows).logits, theirs(rows).logits
    known = torch.equal(reference, theirs_from(folder, 2)(rows).logits)
    assert ours.get_output_embeddings().weight.isfinite().all()
    if weight == "absent" and not tie:
        assert not known  # transformers made one up too
        assert WEIGHT in said
    elif bias == "absent":
        assert BIAS in said
        torch.testing.assert_close(logits, reference, rtol=0, atol=1e-5)
    elif tie or bias in ("both", "both different") or bias == "decoder.bias":
        assert known
        torch.testing.assert_close(logits, reference, rtol=0, atol=1e-5)
    tables = ours.get_output_embeddings().weight is ours.get_input_embeddings().weight
    assert tables == (theirs.cls.predictions.decoder.weight is theirs.bert.embeddings.word_embeddings.weight)
    if tie:
        assert ("stored with different values; both are kept, untied" in said) == ("different" in weight + bias)


@pytest.mark.parametrize("weight", ["equal", "different"])
def test_an_untied_bias_stored_under_either_name_is_used(
    small: BertConfig, rows: Tensor, store: Store, weight: str
) -> None:
    """transformers leaves `cls.predictions.bias` of such a file behind and runs with zeros."""
    small.tie_word_embeddings = False
    state = stored(BertForMaskedLM(small), weight, "bias")
    ours = BertForMaskedLM.from_pretrained(store(state, small))
    state[DECODER_BIAS] = state.pop(BIAS)
    other = BertForMaskedLM.from_pretrained(store(state, small))
    assert torch.equal(ours(rows).logits, other(rows).logits)
    assert ours.cls.predictions.decoder.bias.abs().sum() > 0


@pytest.mark.parametrize(("weight", "bias", "tie"), [form for form in FORMS if "absent" not in form])
def test_what_was_loaded_is_saved_and_loaded_again(
    small: BertConfig, rows: Tensor, store: Store, tmp_path: Path, weight: str, bias: str, tie: bool
) -> None:
    small.tie_word_embeddings = tie
    folder = store(stored(BertForMaskedLM(small), weight, bias), small)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PlainBertWarning)
        model = BertForMaskedLM.from_pretrained(folder)
        model.save_pretrained(tmp_path / "again")
        again = BertForMaskedLM.from_pretrained(tmp_path / "again")
    assert torch.equal(again(rows).logits, model(rows).logits)
    theirs, report = transformers.BertForMaskedLM.from_pretrained(tmp_path / "again", output_loading_info=True)
    assert not any(report.values()), report
    torch.testing.assert_close(theirs.eval()(rows).logits, model(rows).logits, rtol=0, atol=1e-5)


def test_a_base_gives_the_decoder_its_table_and_the_rest_of_the_head_is_fresh(small: BertConfig, store: Store) -> None:
    state = {name: tensor for name, tensor in BertForMaskedLM(small).state_dict().items() if name.startswith("bert.")}
    with pytest.warns(PlainBertWarning, match=r"has no weights for cls\.predictions\.bias") as caught:
        model = BertForMaskedLM.from_pretrained(store(state, small))
    assert len(caught) == 1
    assert model.cls.predictions.decoder.weight is model.bert.embeddings.word_embeddings.weight
    assert torch.equal(model.get_input_embeddings().weight, state["bert.embeddings.word_embeddings.weight"])
    assert (model.cls.predictions.bias == 0).all()
    assert (model.cls.predictions.transform.LayerNorm.weight == 1).all()


def test_a_sentence_head_missing_beside_a_whole_decoder_is_the_only_fresh_one(small: BertConfig, store: Store) -> None:
    folder = store(BertForMaskedLM(small).state_dict(), small)
    with pytest.warns(PlainBertWarning, match="pooler.*seq_relationship") as caught:
        BertForPreTraining.from_pretrained(folder)
    assert len(caught) == 1
    assert "predictions" not in str(caught[0].message)

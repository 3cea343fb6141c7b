"""The same weights through other files, under other heads, and back into transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import plainbert

WITHOUT_POOLER = ("BertForMaskedLM", "BertForTokenClassification", "BertForQuestionAnswering")
NOTHING_LEFT = {"missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"}


def stored_as(kind: str, reference: Any, folder: Path) -> Path:
    """Write ``reference`` into ``folder`` as one of the forms that released checkpoints have."""
    folder.mkdir()
    reference.config.save_pretrained(folder)
    if kind == "safetensors":
        reference.save_pretrained(folder)
    elif kind == "shards":
        reference.save_pretrained(folder, max_shard_size="20KB")
        assert len(list(folder.glob("*.safetensors"))) > 2
    elif kind == "bin":
        torch.save(reference.state_dict(), folder / "pytorch_model.bin")
    elif kind == "old-bin":
        torch.save(reference.state_dict(), folder / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    elif kind == "bin-shards":
        state = reference.state_dict()
        place = {name: f"pytorch_model-{1 + index % 2:05d}-of-00002.bin" for index, name in enumerate(state)}
        for path in set(place.values()):
            torch.save({name: tensor for name, tensor in state.items() if place[name] == path}, folder / path)
        index = {"metadata": {}, "weight_map": place}
        (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index), encoding="utf-8")
    elif kind == "gamma-beta":
        reference.save_pretrained(folder)
        tensors = load_file(folder / "model.safetensors")
        old = {
            name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
            for name, tensor in tensors.items()
        }
        assert len(old.keys() - tensors.keys()) >= 10
        save_file(old, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("kind", ["safetensors", "shards", "bin", "old-bin", "bin-shards", "gamma-beta"])
def test_the_form_of_the_file_changes_nothing(parity: Any, tmp_path: Path, head: str, kind: str) -> None:
    _, theirs = parity.pair(head)
    folder = stored_as(kind, theirs, tmp_path / kind)
    ours = parity.fresh(getattr(plainbert, head).from_pretrained(folder))
    parity.assert_same_outputs(head, ours, theirs, {**parity.batch(head), **parity.labels(head)})


@pytest.mark.parametrize("shape", [{}, {"tie_word_embeddings": False}, {"pad_token_id": None}], ids=str)
def test_what_is_saved_here_loads_in_transformers_with_nothing_left_over(
    parity: Any, tmp_path: Path, head: str, shape: dict[str, Any]
) -> None:
    torch.manual_seed(2)
    ours = getattr(plainbert, head)(plainbert.BertConfig(**parity.fields(head, initializer_range=0.3, **shape))).eval()
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.normal_(std=0.3)
    ours.save_pretrained(tmp_path)
    theirs, info = getattr(transformers, head).from_pretrained(tmp_path, output_loading_info=True)
    assert {name: value for name, value in info.items() if value and name in NOTHING_LEFT} == {}
    assert NOTHING_LEFT & info.keys() >= {"missing_keys", "unexpected_keys", "mismatched_keys"}
    theirs = parity.fresh(theirs.eval())
    inputs = {**parity.batch(head), **parity.labels(head)}
    parity.assert_same_outputs(head, parity.fresh(ours), theirs, inputs)
    assert theirs.config.architectures == [head]
    again = parity.fresh(getattr(plainbert, head).from_pretrained(tmp_path))
    parity.assert_same_outputs(head, again, theirs, inputs)


@pytest.mark.parametrize(
    "kind", [torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=lambda k: str(k)[6:]
)
def test_the_dtype_stored_is_the_dtype_loaded_as_in_transformers(
    parity: Any, tmp_path: Path, kind: torch.dtype
) -> None:
    _, theirs = parity.own_pair("BertForPreTraining")
    theirs.to(kind).save_pretrained(tmp_path)
    ours, theirs = parity.load("BertForPreTraining", tmp_path)
    assert ours.dtype == theirs.dtype == kind
    parity.assert_same_outputs("BertForPreTraining", ours, theirs, parity.batch())
    ours.save_pretrained(tmp_path / "again")
    back = transformers.BertForPreTraining.from_pretrained(tmp_path / "again")
    assert back.dtype == kind
    parity.assert_same_tensors(dict(ours.state_dict()), dict(back.state_dict()))


def test_the_encoder_of_any_head_is_read_from_its_file(parity: Any, head: str, attention: str) -> None:
    folder = parity.saved(head, 0.3, ())
    if head in WITHOUT_POOLER:
        with pytest.warns(plainbert.PlainBertWarning, match="has no pooler"):
            ours = plainbert.BertModel.from_pretrained(folder, attn_implementation=attention)
        assert ours.pooler is None
        theirs = transformers.BertModel.from_pretrained(folder, attn_implementation=attention, add_pooling_layer=False)
    else:
        ours = plainbert.BertModel.from_pretrained(folder, attn_implementation=attention)
        theirs = transformers.BertModel.from_pretrained(folder, attn_implementation=attention)
    outputs = parity.assert_same_outputs("BertModel", parity.fresh(ours), parity.fresh(theirs.eval()), parity.batch())
    assert (outputs.pooler_output is None) == (head in WITHOUT_POOLER)


def test_any_head_is_put_on_the_file_of_the_encoder(parity: Any, head: str) -> None:
    folder = parity.saved("BertModel", 0.3, ())
    fields = {} if head != "BertForQuestionAnswering" else {"num_labels": 2}
    if head == "BertModel":
        ours = plainbert.BertModel.from_pretrained(folder)
    else:
        with pytest.warns(plainbert.PlainBertWarning, match="has no weights for"):
            ours = getattr(plainbert, head).from_pretrained(folder, **fields)
    theirs = transformers.BertModel.from_pretrained(folder).eval()
    with torch.no_grad():
        mine, other = parity.fresh(ours).base_model(**parity.batch()), parity.fresh(theirs)(**parity.batch())
    parity.assert_equal(mine.last_hidden_state, other.last_hidden_state, "last_hidden_state")
    if ours.base_model.pooler is not None:
        parity.assert_equal(mine.pooler_output, other.pooler_output, "pooler_output")
    # What is fresh is drawn, and small.
    fresh = {name: value for name, value in ours.named_parameters() if not name.startswith("bert.")}
    for name, value in fresh.items() if head != "BertModel" else ():
        if value.ndim == 2:
            assert 0.5 * 0.3 < value.std().item() < 1.5 * 0.3, name
        else:
            assert value.unique().tolist() == [1.0 if name.endswith("LayerNorm.weight") else 0.0], name


def test_plain_state_dicts_pass_strictly_in_both_directions(parity: Any, head: str) -> None:
    ours, theirs = parity.own_pair(head)
    for one, other in ((ours, theirs), (theirs, ours)):
        with torch.no_grad():
            for parameter in one.parameters():
                parameter.normal_(std=0.3)
        found = other.load_state_dict(one.state_dict(), strict=True)
        assert found.missing_keys == found.unexpected_keys == []
        parity.assert_same_outputs(head, ours, theirs, parity.batch(head))


def test_a_smaller_or_larger_vocabulary_gives_old_ids_their_old_scores(parity: Any) -> None:
    ours, theirs = parity.own_pair("BertForMaskedLM")
    inputs = parity.batch()
    with torch.no_grad():
        before = ours(**inputs).logits
        ours.resize_token_embeddings(107)
        grown = ours(**inputs).logits
    assert grown.shape == (3, 11, 107)
    torch.testing.assert_close(grown[..., :99], before)
    ours.resize_token_embeddings(99)
    parity.assert_same_outputs(
        "BertForMaskedLM", parity.fresh(ours), theirs, {**inputs, **parity.labels("BertForMaskedLM")}
    )

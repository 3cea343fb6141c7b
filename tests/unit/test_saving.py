"""What is saved is loaded back without a difference, by us and by transformers, whole or not at all."""

from __future__ import annotations

import json
import os
import stat
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

import plainbert
from plainbert import BertConfig, BertForMaskedLM, BertModel, BertPreTrainedModel, InputError, PlainBertWarning
from plainbert.errors import CheckpointError

Fill = Callable[[BertPreTrainedModel], Any]
CLASSES = [
    name for name in plainbert.__all__ if name.startswith("Bert") and name.split("Bert")[1].startswith(("For", "Model"))
]


@pytest.fixture(autouse=True)
def every_warning_is_an_error() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error", PlainBertWarning)
        yield


@pytest.fixture(params=["tied", "untied"])
def tied(request: pytest.FixtureRequest, small: BertConfig) -> BertConfig:
    small.tie_word_embeddings = request.param == "tied"
    return small


@pytest.mark.parametrize("name", CLASSES)
def test_a_round_trip_changes_no_bit(tied: BertConfig, randomized: Fill, tmp_path: Path, name: str) -> None:
    model = randomized(getattr(plainbert, name)(tied))
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path)
    assert loaded.state_dict().keys() == model.state_dict().keys()
    for key, tensor in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[key], tensor), key
    assert len(list(loaded.parameters())) == len(list(model.parameters()))


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_transformers_finds_every_weight_and_no_other(
    tied: BertConfig, randomized: Fill, tmp_path: Path, name: str, dtype: str
) -> None:
    transformers = pytest.importorskip("transformers")
    model = randomized(getattr(plainbert, name)(tied)).to(getattr(torch, dtype))
    model.save_pretrained(tmp_path)
    theirs, report = getattr(transformers, name).from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values()), report
    assert theirs.dtype == model.dtype
    for key, tensor in model.state_dict().items():
        assert torch.equal(theirs.state_dict()[key], tensor), key


@pytest.mark.parametrize("name", CLASSES)
def test_the_config_says_what_was_saved(small: BertConfig, tmp_path: Path, name: str) -> None:
    model = getattr(plainbert, name)(small).half()
    model.save_pretrained(tmp_path)
    written = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert written["architectures"] == [name]
    assert written["dtype"] == "float16"
    assert written["model_type"] == "bert"
    assert model.config.dtype is None, "saving changed the model's own config"


def test_the_file_is_of_the_kind_that_libraries_expect(small: BertConfig, tmp_path: Path) -> None:
    BertModel(small).save_pretrained(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}


def test_what_is_tied_is_stored_once(small: BertConfig, tmp_path: Path) -> None:
    BertForMaskedLM(small).save_pretrained(tmp_path)
    names = load_file(tmp_path / "model.safetensors").keys()
    assert "cls.predictions.bias" in names
    assert {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"} & names == set()
    loaded = BertForMaskedLM.from_pretrained(tmp_path)
    assert loaded.cls.predictions.decoder.weight is loaded.bert.embeddings.word_embeddings.weight
    assert loaded.cls.predictions.decoder.bias is loaded.cls.predictions.bias


def test_what_is_untied_is_stored_apart(small: BertConfig, rows: Tensor, randomized: Fill, tmp_path: Path) -> None:
    small.tie_word_embeddings = False
    model = randomized(BertForMaskedLM(small))
    model.save_pretrained(tmp_path)
    loaded = BertForMaskedLM.from_pretrained(tmp_path)
    assert loaded.config.tie_word_embeddings is False
    assert loaded.cls.predictions.decoder.weight is not loaded.bert.embeddings.word_embeddings.weight
    assert torch.equal(loaded(rows).logits, model(rows).logits)


def test_a_decoder_that_a_user_replaced_is_stored(small: BertConfig, rows: Tensor, tmp_path: Path) -> None:
    """The config still says tied; the weights decide, and the warning names them."""
    model = BertForMaskedLM(small).eval()
    model.cls.predictions.decoder.weight = torch.nn.Parameter(torch.randn(99, 32))
    model.save_pretrained(tmp_path)
    with pytest.warns(PlainBertWarning, match="stored with different values; both are kept, untied"):
        loaded = BertForMaskedLM.from_pretrained(tmp_path)
    assert torch.equal(loaded(rows).logits, model(rows).logits)


def test_extra_keys_are_written_back_without_a_word(small: BertConfig, tmp_path: Path) -> None:
    small.extra = {"note": {"deep": [1, None]}, "use_cache": True}
    BertModel(small).save_pretrained(tmp_path)
    written = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert written["note"] == {"deep": [1, None]}
    assert written["use_cache"] is True


def test_saving_over_the_folder_it_was_loaded_from_is_safe(small: BertConfig, rows: Tensor, tmp_path: Path) -> None:
    BertModel(small).save_pretrained(tmp_path)
    model = BertModel.from_pretrained(tmp_path)
    before = model(rows).last_hidden_state
    model.save_pretrained(tmp_path)
    assert torch.equal(model(rows).last_hidden_state, before)
    assert torch.equal(BertModel.from_pretrained(tmp_path)(rows).last_hidden_state, before)


def test_a_model_moved_into_strides_or_views_is_stored_as_its_values(small: BertConfig, tmp_path: Path) -> None:
    model = BertModel(small)
    dense = model.encoder.layer[0].output.dense
    dense.weight.data = dense.weight.data.t().contiguous().t()
    block = torch.randn(2, 32)
    model.encoder.layer[0].output.dense.bias.data = block[0]
    model.encoder.layer[1].output.dense.bias.data = block[1]
    model.save_pretrained(tmp_path)
    loaded = BertModel.from_pretrained(tmp_path)
    for key, tensor in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[key], tensor), key
    assert (tmp_path / "model.safetensors").stat().st_size < 4 * model.num_parameters() + 10_000


# --- the folder ---


def test_a_folder_is_made_with_those_above_it(small: BertConfig, tmp_path: Path) -> None:
    BertModel(small).save_pretrained(str(tmp_path / "a" / "b"))
    assert BertModel.from_pretrained(str(tmp_path / "a" / "b")).config.hidden_size == 32


@pytest.mark.parametrize("below", ["", "model", "model/deeper"])
def test_a_file_in_the_place_of_the_folder_is_refused_and_kept(small: BertConfig, tmp_path: Path, below: str) -> None:
    (tmp_path / "taken").write_text("mine", encoding="utf-8")
    with pytest.raises(InputError, match=r"save_directory must be a folder, got .*taken"):
        BertModel(small).save_pretrained(tmp_path / "taken" / below)
    assert (tmp_path / "taken").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("failing", ["fsync", "replace"])
@pytest.mark.parametrize("what", ["model", "config"])
def test_a_failure_half_way_leaves_the_old_file(
    small: BertConfig, rows: Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, what: str
) -> None:
    old = BertModel(small).eval()
    old.save_pretrained(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    new = BertModel(small)
    with monkeypatch.context() as patch:
        patch.setattr(os, failing, fail)
        with pytest.raises(CheckpointError, match=r"must be writable, got .*No space left"):
            (new if what == "model" else new.config).save_pretrained(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert torch.equal(BertModel.from_pretrained(tmp_path)(rows).last_hidden_state, old(rows).last_hidden_state)


def test_an_interrupt_half_way_leaves_the_old_file_and_no_other(
    small: BertConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    BertModel(small).save_pretrained(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        BertModel(small).save_pretrained(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.skipif(os.name == "nt", reason="modes are POSIX's")
@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_files_have_the_mode_of_any_new_file(small: BertConfig, tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        BertModel(small).save_pretrained(tmp_path)
    finally:
        os.umask(before)
    for path in tmp_path.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask, path.name


def test_a_model_without_memory_cannot_be_saved(small: BertConfig, tmp_path: Path) -> None:
    with torch.device("meta"):
        model = BertModel(small)
    with pytest.raises(CheckpointError, match="embeddings"):
        model.save_pretrained(tmp_path)
    assert not (tmp_path / "model.safetensors").exists()

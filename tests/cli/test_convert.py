"""Checkpoints of every stored form become one safetensors file, whole or not at all."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import plainbert
from plainbert.checkpoints.hub import find
from plainbert.checkpoints.tensors import open_tensors


def stored(folder: Path) -> dict[str, torch.Tensor]:
    with open_tensors(find(folder)) as tensors:
        return {name: tensors.read(name) for name in tensors.infos}


@pytest.fixture
def old(make_checkpoint: Callable[..., Path], tmp_path: Path) -> Path:
    """A masked language model as it was saved in 2018: a pickle, gamma and beta, position ids, a decoder of its own."""
    folder = make_checkpoint(tmp_path / "old", head="BertForMaskedLM")
    weights = stored(folder)
    (folder / "model.safetensors").unlink()
    names = {
        name: name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        for name in weights
    }
    weights = {names[name]: tensor for name, tensor in weights.items()}
    weights["bert.embeddings.position_ids"] = torch.arange(40)[None]
    weights["cls.predictions.decoder.weight"] = weights["bert.embeddings.word_embeddings.weight"]
    torch.save(weights, folder / "pytorch_model.bin")
    (folder / "modeling_special.py").write_text("raise SystemExit('code of a checkpoint ran')")
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text("{}")
    return folder


def test_old_names_become_todays_and_every_value_stays(run: Callable[..., Any], old: Path, tmp_path: Path) -> None:
    result = run("convert", old, tmp_path / "new")
    assert result.code == 0, result.stderr
    before, after = stored(old), stored(tmp_path / "new")
    assert not any("gamma" in name or "beta" in name for name in after)
    assert len(after) == len(before) - 2
    assert torch.equal(after["bert.embeddings.LayerNorm.weight"], before["bert.embeddings.LayerNorm.gamma"])
    assert "bert.embeddings.position_ids" not in after
    assert "cls.predictions.decoder.weight" not in after
    mine, theirs = (plainbert.BertForMaskedLM.from_pretrained(folder) for folder in (old, tmp_path / "new"))
    for name, parameter in mine.state_dict().items():
        assert torch.equal(parameter, theirs.state_dict()[name]), name
    assert "renamed: 12" in result.stdout


def test_what_describes_the_model_is_copied_and_code_stays_behind(
    run: Callable[..., Any], old: Path, tmp_path: Path
) -> None:
    result = run("convert", old, tmp_path / "new")
    files = sorted(
        path.relative_to(tmp_path / "new").as_posix() for path in (tmp_path / "new").rglob("*") if path.is_file()
    )
    assert files == ["1_Pooling/config.json", "config.json", "model.safetensors", "tokenizer_config.json", "vocab.txt"]
    assert (tmp_path / "new" / "config.json").read_bytes() == (old / "config.json").read_bytes()
    assert "not copied: modeling_special.py" in result.stderr
    assert "bert.embeddings.position_ids" in result.stderr


def test_shards_become_one_file(run: Callable[..., Any], old: Path, tmp_path: Path) -> None:
    weights = torch.load(old / "pytorch_model.bin", weights_only=True)
    (old / "pytorch_model.bin").unlink()
    shards = {"pytorch_model-1-of-2.bin": list(weights)[:9], "pytorch_model-2-of-2.bin": list(weights)[9:]}
    for shard, names in shards.items():
        torch.save({name: weights[name].clone() for name in names}, old / shard)
    weight_map = {name: shard for shard, names in shards.items() for name in names}
    (old / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": weight_map}))
    assert run("convert", old, tmp_path / "new").code == 0
    assert not list((tmp_path / "new").glob("*.bin*"))
    assert torch.equal(
        stored(tmp_path / "new")["bert.embeddings.word_embeddings.weight"],
        weights["bert.embeddings.word_embeddings.weight"],
    )


def test_a_decoder_that_differs_from_the_embedding_is_kept(run: Callable[..., Any], old: Path, tmp_path: Path) -> None:
    weights = torch.load(old / "pytorch_model.bin", weights_only=True)
    weights["cls.predictions.decoder.weight"] = weights["cls.predictions.decoder.weight"] + 1
    torch.save(weights, old / "pytorch_model.bin")
    assert run("convert", old, tmp_path / "new").code == 0
    assert torch.equal(
        stored(tmp_path / "new")["cls.predictions.decoder.weight"], weights["cls.predictions.decoder.weight"]
    )


@pytest.mark.parametrize("prefix", ["module.", ""])
def test_names_of_a_bare_encoder_stay_bare_and_wrappers_go(
    run: Callable[..., Any], make_checkpoint: Callable[..., Path], tmp_path: Path, prefix: str
) -> None:
    folder = make_checkpoint(tmp_path / "bare")
    weights = stored(folder)
    (folder / "model.safetensors").unlink()
    torch.save({prefix + name: tensor.half() for name, tensor in weights.items()}, folder / "pytorch_model.bin")
    assert run("convert", folder, tmp_path / "new").code == 0
    after = stored(tmp_path / "new")
    assert set(after) == set(weights)
    assert {tensor.dtype for tensor in after.values()} == {torch.float16}


def test_nan_and_names_nobody_knows_pass_through(run: Callable[..., Any], old: Path, tmp_path: Path) -> None:
    weights = torch.load(old / "pytorch_model.bin", weights_only=True)
    weights["my_own.gamma"] = torch.tensor([float("nan"), 1.0])
    torch.save(weights, old / "pytorch_model.bin")
    assert run("convert", old, tmp_path / "new").code == 0
    assert torch.equal(stored(tmp_path / "new")["my_own.gamma"].isnan(), torch.tensor([True, False]))


def test_the_same_weight_under_two_names_is_refused(run: Callable[..., Any], old: Path, tmp_path: Path) -> None:
    weights = torch.load(old / "pytorch_model.bin", weights_only=True)
    weights["bert.embeddings.LayerNorm.weight"] = weights["bert.embeddings.LayerNorm.gamma"] + 1
    torch.save(weights, old / "pytorch_model.bin")
    result = run("convert", old, tmp_path / "new")
    assert result.code == 1
    assert "bert.embeddings.LayerNorm.gamma" in result.stderr
    assert not (tmp_path / "new").exists()


def test_a_folder_that_is_there_is_not_written_over(run: Callable[..., Any], old: Path, tmp_path: Path) -> None:
    for target, said in (
        (old, "another folder than SRC"),
        (tmp_path, "new or empty folder"),
        (old / "vocab.txt", "new or"),
    ):
        before = sorted(tmp_path.rglob("*"))
        result = run("convert", old, target)
        assert (result.code, result.stdout) == (2, "")
        assert said in result.stderr
        assert f"got {str(target)!r}" in result.stderr
        assert sorted(tmp_path.rglob("*")) == before
    (tmp_path / "empty").mkdir()
    assert run("convert", old, tmp_path / "empty").code == 0
    assert (tmp_path / "empty" / "model.safetensors").is_file()
    result = run("convert", old, tmp_path / "no" / "such" / "place")
    assert result.code == 2
    assert "in a folder that exists" in result.stderr


def test_a_conversion_that_fails_leaves_nothing(
    run: Callable[..., Any], old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    before = sorted(tmp_path.rglob("*"))
    result = run("convert", old, tmp_path / "new")
    assert result.code == 1
    assert "No space left on device" in result.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_values_that_read_back_otherwise_are_an_error(
    run: Callable[..., Any], old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from plainbert.checkpoints import tensors

    save = tensors.save_tensors

    def flipped(weights: dict[str, torch.Tensor], path: Path) -> None:
        save({name: tensor + (name == "cls.predictions.bias") for name, tensor in weights.items()}, path)

    monkeypatch.setattr(tensors, "save_tensors", flipped)
    result = run("convert", old, tmp_path / "new")
    assert result.code == 1
    assert "cls.predictions.bias must read back as written" in result.stderr
    assert not (tmp_path / "new").exists()

    def short(weights: dict[str, torch.Tensor], path: Path) -> None:
        save({name: tensor for name, tensor in weights.items() if name != "cls.predictions.bias"}, path)

    monkeypatch.setattr(tensors, "save_tensors", short)
    assert "got 41" in run("convert", old, tmp_path / "new").stderr


def test_a_pickle_that_would_run_code_runs_nothing(run: Callable[..., Any], old: Path, tmp_path: Path) -> None:
    class Payload:
        def __reduce__(self) -> tuple[Any, ...]:
            import os

            return os.system, (f"touch {tmp_path / 'canary'}",)

    torch.save({"bert.pooler.dense.weight": Payload()}, old / "pytorch_model.bin")
    result = run("convert", old, tmp_path / "new")
    assert result.code == 1
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "canary").exists()
    assert not (tmp_path / "new").exists()


def test_everything_that_stays_behind_is_listed(run: Callable[..., Any], old: Path, tmp_path: Path) -> None:
    """What is called like a shard and is none, and weights beside those that are read."""
    (old / "model-card.md").write_text("a card")
    (old / "model-notes.rst").write_text("notes")
    (old / "pytorch_model_old.bin").write_bytes(b"old")
    (old / "pytorch_model.bin.index.json").write_text('{"weight_map": {}}')
    result = run("convert", old, tmp_path / "new")
    assert result.code == 0, result.stderr
    assert (tmp_path / "new" / "model-card.md").read_text() == "a card"
    line = next(line for line in result.stderr.splitlines() if "not copied" in line)
    assert line == (
        "Note: not copied: model-notes.rst, modeling_special.py, pytorch_model.bin.index.json, pytorch_model_old.bin"
    )


def test_a_table_that_is_not_the_usual_one_is_left_out_with_a_warning(
    run: Callable[..., Any], old: Path, tmp_path: Path
) -> None:
    weights = torch.load(old / "pytorch_model.bin", weights_only=True)
    weights["bert.embeddings.position_ids"] = torch.arange(40)[None].flip(1)
    torch.save(weights, old / "pytorch_model.bin")
    result = run("convert", old, tmp_path / "new")
    assert result.code == 0
    assert "bert.embeddings.position_ids in the checkpoint is not the usual table" in result.stderr
    assert "bert.embeddings.position_ids" not in stored(tmp_path / "new")


def test_what_loading_would_refuse_is_refused(run: Callable[..., Any], old: Path, tmp_path: Path) -> None:
    weights = torch.load(old / "pytorch_model.bin", weights_only=True)
    lacking = {name: tensor for name, tensor in weights.items() if "layer.1.output.dense.bias" not in name}
    for broken, said in (
        ({**weights, "bert.encoder.layer.0.lora_A.weight": torch.zeros(2)}, "lora_A"),
        (lacking, "layer.1.output.dense.bias"),
    ):
        torch.save(broken, old / "pytorch_model.bin")
        result = run("convert", old, tmp_path / "new")
        assert (result.code, result.stdout) == (1, "")
        assert said in result.stderr
        assert not (tmp_path / "new").exists()


def test_a_head_of_another_size_than_the_config_says_is_kept(
    run: Callable[..., Any], make_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    folder = make_checkpoint(tmp_path / "labels", head="BertForTokenClassification")
    weights = stored(folder)
    weights["classifier.weight"], weights["classifier.bias"] = torch.ones(7, 32), torch.ones(7)
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    assert run("convert", folder, tmp_path / "new").code == 0
    assert torch.equal(stored(tmp_path / "new")["classifier.weight"], torch.ones(7, 32))

"""Stored tiny checkpoints give their stored outputs, on any machine, with or without transformers installed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import plainbert

HERE = Path(__file__).parent
FOLDERS = sorted(path.parent.name for path in HERE.glob("*/expected.safetensors"))
HEADS = {name: "BertForPreTraining" if name == "old_names" else name for name in FOLDERS}


def test_there_is_a_checkpoint_for_every_head_and_one_under_old_names() -> None:
    heads = {name for name in plainbert.__all__ if name.startswith("BertFor")} | {"BertModel"}
    assert len(heads) == 8
    assert set(FOLDERS) == heads | {"old_names"}
    old = load_file(HERE / "old_names" / "model.safetensors")
    assert sum(name.endswith((".gamma", ".beta")) for name in old) == 12
    assert not any("LayerNorm.weight" in name for name in old)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("name", FOLDERS)
def test_a_stored_checkpoint_gives_its_stored_outputs(name: str, attention: str, dtype: torch.dtype) -> None:
    stored = load_file(HERE / name / "expected.safetensors")
    model = getattr(plainbert, HEADS[name]).from_pretrained(HERE / name, attn_implementation=attention, dtype=dtype)
    inputs = {key.removeprefix("inputs."): value for key, value in stored.items() if key.startswith("inputs.")}
    with torch.no_grad():
        outputs = model(**inputs, output_hidden_states=True, output_attentions=True)
    compared = 0
    for key, expected in stored.items():
        if key.startswith("outputs."):
            field, _, index = key.removeprefix("outputs.").partition(".")
            found = getattr(outputs, field)
            found = found[int(index)] if index else found
            assert found.dtype == dtype
            off = (found.double() - expected.double()).abs().max()
            assert off <= 1e-5 * expected.abs().max(), f"{key} is off by {off:.1e}"
            compared += 1
    assert compared >= 6
    assert len(outputs.hidden_states) == 3
    assert len(outputs.attentions) == 2


@pytest.mark.parametrize("name", FOLDERS)
def test_a_stored_checkpoint_is_saved_with_the_same_bits(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(HERE / name, folder)
    model = getattr(plainbert, HEADS[name]).from_pretrained(folder)
    assert model.dtype == torch.float16
    model.save_pretrained(tmp_path / "again")
    before, after = load_file(folder / "model.safetensors"), load_file(tmp_path / "again" / "model.safetensors")
    if name == "old_names":
        before = load_file(HERE / "BertForPreTraining" / "model.safetensors")
    assert sorted(before) == sorted(after)
    assert all(torch.equal(before[key], after[key]) for key in before)

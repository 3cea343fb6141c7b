"""What a checkpoint holds, said as a page and as JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import plainbert


@pytest.fixture
def info(run: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    def call(folder: Path) -> dict[str, Any]:
        result = run("info", folder, "--json")
        assert (result.code, result.stderr) == (0, "")
        return json.loads(result.stdout)

    return call


def test_the_report_counts_parameters_and_hashes_files(info: Callable[..., Any], checkpoint: Path) -> None:
    report = info(checkpoint)
    count = plainbert.BertModel.from_pretrained(checkpoint).num_parameters()
    assert report["head"] == "BertModel"
    assert report["parameters"] == count
    assert report["memory_bytes"] == {
        "float32": 4 * count,
        "float16": 2 * count,
        "bfloat16": 2 * count,
        "float64": 8 * count,
    }
    assert report["config"]["hidden_size"] == 32
    files = {file["name"]: file for file in report["files"]}
    assert set(files) >= {"config.json", "model.safetensors", "vocab.txt", "1_Pooling/config.json"}
    data = (checkpoint / "model.safetensors").read_bytes()
    assert files["model.safetensors"]["bytes"] == len(data)
    assert files["model.safetensors"]["sha256"] == hashlib.sha256(data).hexdigest()
    assert report["pooling"]["modes"] == ["mean"]
    assert report["pooling"]["normalize"] is True
    assert report["tokenizer"]["kind"] == "WordPiece"
    assert report["tokenizer"]["file"] == "vocab.txt"
    assert report["tokenizer"]["tokens"] == 14


def test_names_heads_and_leftovers_are_told(
    info: Callable[..., Any], make_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    folder = make_checkpoint(tmp_path / "mlm", head="BertForPreTraining")
    weights = plainbert.BertForPreTraining.from_pretrained(folder).state_dict()
    (folder / "model.safetensors").unlink()
    weights = {
        "module." + name.replace("LayerNorm.weight", "LayerNorm.gamma"): tensor.clone()
        for name, tensor in weights.items()
    }
    weights["module.bert.embeddings.position_ids"] = torch.arange(40)[None]
    weights["module.my.own"] = torch.zeros(1)
    torch.save(weights, folder / "pytorch_model.bin")
    report = info(folder)
    names = report["weights"]
    assert report["head"] == "BertForPreTraining"
    assert report["pooling"] is None
    assert names["wrapper"] == "module."
    assert names["computed_here"] == ["module.bert.embeddings.position_ids"]
    assert names["unknown"] == ["module.my.own"]
    assert names["fresh"] == []
    assert names["parts"] == ["pooler", "masked language model", "next sentence"]
    assert names["renamed"]["module.bert.embeddings.LayerNorm.gamma"] == "bert.embeddings.LayerNorm.weight"


def test_a_pooler_that_is_not_stored_is_not_counted(
    info: Callable[..., Any], make_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    folder = make_checkpoint(tmp_path / "mlm", head="BertForMaskedLM")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["SomethingElse"]}))
    report = info(folder)
    encoder = plainbert.BertModel(plainbert.BertConfig.from_pretrained(folder), add_pooling_layer=False)
    assert report["head"] == "BertModel"
    assert report["architectures"] == ["SomethingElse"]
    assert report["parameters"] == encoder.num_parameters()
    assert report["weights"]["fresh"] == []
    assert "cls.predictions.bias" in report["weights"]["of_other_heads"]


def test_a_checkpoint_without_a_tokenizer_has_none(
    run: Callable[..., Any], make_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    folder = make_checkpoint(tmp_path / "bare")
    (folder / "vocab.txt").unlink()
    (folder / "tokenizer_config.json").unlink()
    result = run("info", folder, "--json")
    assert result.code == 0
    assert json.loads(result.stdout)["tokenizer"] is None
    assert "tokenizer   none" in run("info", folder).stdout


def test_the_page_is_for_reading(run: Callable[..., Any], checkpoint: Path) -> None:
    page = run("info", checkpoint).stdout
    for piece in (
        "BertModel",
        "parameters",
        "float32 0.1 MB",
        "mean, normalised",
        "WordPiece",
        "hidden_size",
        "sha256",
    ):
        assert piece in page
    assert all(line == line.rstrip() for line in page.splitlines())


def test_broken_and_hostile_folders_are_one_line(
    run: Callable[..., Any], make_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    folder = make_checkpoint(tmp_path / "broken")
    good = (folder / "config.json").read_text()
    hostile = {
        "hidden_size": 0,
        "num_attention_heads": 5,
        "vocab_size": 768.5,
        "hidden_act": "\x1b[2J",
        "num_hidden_layers": "2",
        "layer_norm_eps": float("nan"),
    }
    for key, value in hostile.items():
        (folder / "config.json").write_text(json.dumps({**json.loads(good), key: value}))
        for verb in ("info", "embed", "convert"):
            target = [tmp_path / "new"] if verb == "convert" else ["--text", "hello"] if verb == "embed" else []
            result = run(verb, folder, *target)
            assert (result.code, result.stdout) == (1, ""), (key, verb)
            assert key in result.stderr.splitlines()[-1]
            assert "Traceback" not in result.stderr
            assert "\x1b" not in result.stderr
    (folder / "config.json").write_text(good)
    (folder / "model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    result = run("info", folder)
    assert result.code == 1
    assert "git lfs pull" in result.stderr


def test_a_length_that_nobody_declares_is_unknown(
    run: Callable[..., Any], info: Callable[..., Any], make_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    folder = make_checkpoint(tmp_path / "tiny")
    assert info(folder)["tokenizer"]["max_length"] is None
    page = run("info", folder).stdout
    assert "14 tokens, no longest text declared" in page
    assert "00000" not in page.split("sha256")[0].split("config\n")[0]
    (folder / "tokenizer_config.json").write_text('{"model_max_length": 40}')
    assert info(folder)["tokenizer"]["max_length"] == 40
    assert "14 tokens, at most 40 in a row" in run("info", folder).stdout


@pytest.mark.parametrize("kind", ["WordPiece", "Unigram", "WordLevel"])
def test_the_kind_of_a_tokenizer_is_told(
    info: Callable[..., Any], make_checkpoint: Callable[..., Path], tmp_path: Path, kind: str
) -> None:
    from tokenizers import Tokenizer, models

    folder = make_checkpoint(tmp_path / "tiny")
    (folder / "tokenizer_config.json").unlink()
    words = (folder / "vocab.txt").read_text(encoding="utf-8").split()
    model = {
        "WordPiece": lambda: models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"),
        "Unigram": lambda: models.Unigram([(word, -1.0) for word in words], unk_id=1),
        "WordLevel": lambda: models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"),
    }[kind]()
    Tokenizer(model).save(str(folder / "tokenizer.json"))
    report = info(folder)["tokenizer"]
    assert (report["kind"], report["file"]) == (kind, "tokenizer.json")


def test_the_page_says_in_words_what_is_stored_used_and_cut(
    run: Callable[..., Any], make_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    folder = make_checkpoint(tmp_path / "tiny")
    page = run("info", folder).stdout
    assert "stored under the name that plainbert uses, 0 renamed on loading\n" in page
    assert "not loaded  none: every stored weight is used\n" in page
    assert "drawn       none: every parameter is stored, none starts from random numbers\n" in page
    assert "embed       cuts texts to 40 tokens, unless --max-length says otherwise\n" in page  # what the model has
    (folder / "tokenizer_config.json").write_text('{"model_max_length": 39}')
    assert "embed       cuts texts to 39 tokens" in run("info", folder).stdout
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 38}')
    assert "embed       cuts texts to 38 tokens" in run("info", folder).stdout
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 99}')
    assert "embed       cuts texts to 40 tokens" in run("info", folder).stdout
    (folder / "vocab.txt").unlink()
    assert "embed       cannot run without a tokenizer\n" in run("info", folder).stdout

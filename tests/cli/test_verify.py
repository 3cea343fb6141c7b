"""The comparison with transformers: it says yes when every bit is equal, and no when one is not."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import plainbert
from plainbert.cli.declared import HEADS
from plainbert.cli.verify import EQUALLED_TRANSFORMERS

transformers = pytest.importorskip("transformers")


@pytest.fixture
def verify(run: Callable[..., Any]) -> Callable[..., Any]:
    def call(*words: object) -> tuple[int, dict[str, Any]]:
        result = run("verify", *words, "--json")
        assert result.stderr == ""
        return result.code, json.loads(result.stdout)

    return call


def test_the_release_that_is_equalled_is_the_one_installed() -> None:
    assert transformers.__version__ == EQUALLED_TRANSFORMERS


@pytest.mark.parametrize("head", HEADS)
def test_every_head_is_equal_in_every_dtype(
    verify: Callable[..., Any], make_checkpoint: Callable[..., Path], tmp_path: Path, head: str
) -> None:
    folder = make_checkpoint(tmp_path / head, head=head)
    dtypes = [word for dtype in ("float32", "float64", "bfloat16") for word in ("--dtype", dtype)]
    code, report = verify(folder, *dtypes)
    assert (code, report["equal"], report["allclose"], report["head"]) == (0, True, True, head)
    assert all(row["equal"] and row["difference"] == 0 for row in report["rows"])
    runs = {(row["dtype"], row["attention"]) for row in report["rows"]}
    assert runs == {("int64", None)} | {(d, a) for d in ("float32", "float64", "bfloat16") for a in ("eager", "sdpa")}
    outputs = {row["output"] for row in report["rows"] if row["attention"] == "eager"}
    assert outputs >= {"hidden_states", "attentions"}
    assert len(outputs) > 2


def test_the_table_ends_as_the_article_does(run: Callable[..., Any], checkpoint: Path) -> None:
    result = run("verify", checkpoint)
    assert (result.code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[-2:] == ["torch.allclose(mine, theirs, atol=1e-5): True", "torch.equal(mine, theirs): True"]
    header = next(line for line in lines if "output" in line)
    assert re.split(r" {2,}", header.strip()) == [
        "dtype",
        "attention",
        "output",
        "shape",
        "max diff",
        "ours-f64",
        "theirs-f64",
        "equal",
    ]
    assert any(line.split()[2:3] == ["last_hidden_state"] for line in lines)
    assert f"plainbert {plainbert.__version__}" in lines[-4]
    assert f"transformers {transformers.__version__}" in lines[-4]
    assert f"torch {torch.__version__}" in lines[-4]


@pytest.mark.parametrize("columns", [80, 120])
def test_in_a_terminal_no_output_is_cut_and_no_shape_folded(
    run: Callable[..., Any],
    make_checkpoint: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    columns: int,
) -> None:
    folder = make_checkpoint(tmp_path / "pretraining", head="BertForPreTraining")
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda _: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    page = re.sub(r"\x1b\[[0-9;]*m", "", run("verify", folder, "--dtype", "bfloat16").stdout)
    for name, shape in (
        ("prediction_logits", r"2x\d+x\d+"),
        ("seq_relationship_logits", "2x2"),
        ("attentions", r"2x2x\d+x\d+x\d+"),
    ):
        assert re.search(rf"\b{name} +{shape} +0 +\d\.\de-\d\d +\d\.\de-\d\d +yes$", page, re.M), page
    assert "…" not in page
    table = page.split("plainbert 0")[0].splitlines()[1:]  # without the line of the folder and the head
    assert max(map(len, table)) <= columns
    assert ("bfloat16 sdpa" in table) == (columns == 80)


def test_a_legend_says_what_the_columns_mean(run: Callable[..., Any], checkpoint: Path) -> None:
    page = run("verify", checkpoint).stdout
    assert "ours-f64, theirs-f64: how far each is from the same model in float64 (rounding).\n" in page
    assert "Under sdpa, transformers returns no attention maps.\n" in page
    assert "no attention maps" not in run("verify", checkpoint, "--attention", "eager").stdout


def test_texts_can_be_given(verify: Callable[..., Any], checkpoint: Path) -> None:
    code, report = verify(checkpoint, "--text", "今天好", "--text", "hello " * 100, "--attention", "sdpa")
    assert code == 0
    assert report["rows"][0]["output"] == "input_ids"
    assert report["rows"][0]["shape"] == [2, 40]
    assert {row["attention"] for row in report["rows"]} == {None, "sdpa"}
    tables = ["input_ids", "token_type_ids", "attention_mask"]
    assert [row["output"] for row in report["rows"] if row["dtype"] == "int64"] == tables


def test_one_wrong_number_is_a_no(run: Callable[..., Any], checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forward = plainbert.BertModel.forward

    def off(self: Any, **inputs: Any) -> Any:
        output = forward(self, **inputs)
        output.last_hidden_state[0, 0, 0] += 1e-6
        return output

    monkeypatch.setattr(plainbert.BertModel, "forward", off)
    result = run("verify", checkpoint, "--attention", "eager")
    assert result.code == 1
    assert result.stdout.splitlines()[-2:] == [
        "torch.allclose(mine, theirs, atol=1e-5): True",
        "torch.equal(mine, theirs): False",
    ]
    row = next(line for line in result.stdout.splitlines() if "last_hidden_state" in line)
    assert row.split()[-1] == "NO"
    assert "pooler_output" in result.stdout


@pytest.mark.parametrize("missing", ["last_hidden_state", "hidden_states", "attentions", "pooler_output"])
@pytest.mark.parametrize("wrong", ["none", "short"])
def test_an_output_that_is_missing_here_is_a_no(
    verify: Callable[..., Any], checkpoint: Path, monkeypatch: pytest.MonkeyPatch, missing: str, wrong: str
) -> None:
    forward = plainbert.BertModel.forward

    def without(self: Any, **inputs: Any) -> Any:
        output = forward(self, **inputs)
        setattr(output, missing, None if wrong == "none" else getattr(output, missing)[:-1])
        return output

    monkeypatch.setattr(plainbert.BertModel, "forward", without)
    code, report = verify(checkpoint, "--attention", "eager")
    assert (code, report["equal"], report["allclose"]) == (1, False, False)
    assert [row["output"] for row in report["rows"] if not row["equal"]] == [missing]


def test_an_output_that_only_we_give_is_a_no(
    verify: Callable[..., Any], checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    their = transformers.BertModel.forward

    def without(self: Any, **inputs: Any) -> Any:
        output = their(self, **inputs)
        output["pooler_output"] = None
        return output

    monkeypatch.setattr(transformers.BertModel, "forward", without)
    code, report = verify(checkpoint, "--attention", "eager")
    assert code == 1
    assert [row["output"] for row in report["rows"] if not row["equal"]] == ["pooler_output"]


@pytest.mark.parametrize("key", ["input_ids", "token_type_ids", "attention_mask"])
def test_each_table_of_the_tokenizer_has_a_row_of_its_own(
    verify: Callable[..., Any], checkpoint: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    call = plainbert.BertTokenizer.__call__

    def off(self: Any, *texts: Any, **options: Any) -> Any:
        batch = call(self, *texts, **options)
        batch[key][0, -1] = 1 - batch[key][0, -1]
        return batch

    monkeypatch.setattr(plainbert.BertTokenizer, "__call__", off)
    code, report = verify(checkpoint, "--attention", "eager")
    assert code == 1
    assert [row["output"] for row in report["rows"] if not row["equal"]] == [key]


def test_other_ids_are_a_no(run: Callable[..., Any], checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call = plainbert.BertTokenizer.__call__

    def off(self: Any, *texts: Any, **options: Any) -> Any:
        batch = call(self, *texts, **options)
        batch["input_ids"][0, 1] = 7
        return batch

    monkeypatch.setattr(plainbert.BertTokenizer, "__call__", off)
    result = run("verify", checkpoint, "--attention", "eager")
    assert result.code == 1
    assert next(line for line in result.stdout.splitlines() if "input_ids" in line).split()[-1] == "NO"


@pytest.mark.filterwarnings("ignore::plainbert.PlainBertWarning")
def test_weights_that_both_sides_draw_get_the_same_draw(
    run: Callable[..., Any], make_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    result = run("verify", make_checkpoint(tmp_path / "bare"), "--head", "BertForTokenClassification", "--json")
    assert result.code == 0, result.stdout
    assert all(row["equal"] for row in json.loads(result.stdout)["rows"])
    assert "classifier.weight" in result.stderr


def test_a_pooler_that_is_not_stored_is_not_compared(
    run: Callable[..., Any], make_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    folder = make_checkpoint(tmp_path / "mlm", head="BertForMaskedLM")
    result = run("verify", folder, "--head", "BertModel", "--json")
    assert result.code == 0
    assert "pooler_output" not in {row["output"] for row in json.loads(result.stdout)["rows"]}


def test_a_checkpoint_without_a_tokenizer_is_compared_on_ids(
    run: Callable[..., Any], make_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    folder = make_checkpoint(tmp_path / "bare", type_vocab_size=1)
    (folder / "vocab.txt").unlink()
    (folder / "tokenizer_config.json").unlink()
    result = run("verify", folder)
    assert result.code == 0
    assert "drawn at random" in result.stderr
    assert "input_ids" not in result.stdout
    assert run("verify", folder, "--text", "hello").code == 1


def test_one_segment_is_enough(
    verify: Callable[..., Any], make_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    code, report = verify(make_checkpoint(tmp_path / "one", type_vocab_size=1))
    assert code == 0
    assert report["rows"][0]["shape"][0] == 4


def test_without_transformers_it_says_what_to_install(
    run: Callable[..., Any], checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    result = run("verify", checkpoint)
    assert (result.code, result.stdout) == (1, "")
    assert f"pip install transformers=={EQUALLED_TRANSFORMERS}" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_another_release_is_a_warning(
    run: Callable[..., Any], checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plainbert.cli.verify.EQUALLED_TRANSFORMERS", "5.0.0")
    result = run("verify", checkpoint, "--attention", "eager")
    assert result.code == 0
    assert result.stderr.startswith("Warning: transformers must be 5.0.0")
    assert f"got {transformers.__version__}" in result.stderr


def test_a_real_model_is_equal(run: Callable[..., Any], minilm_folder: Path) -> None:
    result = run("verify", "minilm")
    assert (result.code, result.stderr) == (0, "")
    assert result.stdout.splitlines()[-1] == "torch.equal(mine, theirs): True"

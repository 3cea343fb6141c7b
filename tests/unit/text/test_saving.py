"""A saved folder: its files, and what is loaded back from them."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from plainbert.errors import CheckpointError, InputError
from plainbert.text.tokenizer import BertTokenizer

TEXT = "A naïve 的人 [MASK] hellos"


def saved(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "tokenizer_config.json").read_text())
    return content


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"do_lower_case": False, "strip_accents": True},
        {"tokenize_chinese_chars": False, "strip_accents": False},
        {"pad_token": None, "padding_side": "left", "truncation_side": "left", "model_max_length": 9},
        {"additional_special_tokens": ["<e1>"], "mask_token": "a", "split_special_tokens": True},
        {"model_input_names": ["input_ids"], "clean_up_tokenization_spaces": True},
    ],
)
def test_what_is_saved_is_loaded_back(settings: dict[str, Any], vocab: dict[str, int], tmp_path: Path) -> None:
    tokenizer = BertTokenizer(vocab, **settings)
    tokenizer.save_pretrained(tmp_path / "new" / "folder")
    again = BertTokenizer.from_pretrained(tmp_path / "new" / "folder")
    assert dict(again([TEXT, TEXT], truncation=True, max_length=7)) == dict(tokenizer([TEXT, TEXT], max_length=7))
    for name in ("special_tokens_map", "all_special_tokens", "model_max_length", "padding_side", "truncation_side"):
        assert getattr(again, name) == getattr(tokenizer, name), name
    again.save_pretrained(tmp_path / "twice")
    for path in (tmp_path / "twice").iterdir():
        assert path.read_bytes() == (tmp_path / "new" / "folder" / path.name).read_bytes(), path.name


def test_a_folder_holds_four_files(tokenizer: BertTokenizer, vocab: dict[str, int], tmp_path: Path) -> None:
    tokenizer.save_pretrained(tmp_path)
    names = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"}
    assert {path.name for path in tmp_path.iterdir()} == names
    assert (tmp_path / "vocab.txt").read_text() == "\n".join(vocab) + "\n"
    assert saved(tmp_path)["tokenizer_class"] == "BertTokenizer"
    assert saved(tmp_path)["do_lower_case"] is True


def test_other_keys_are_kept_and_places_are_not(write_json: Any, load: Any, tmp_path: Path) -> None:
    places = {"name_or_path": "somebody/model", "auto_map": {}, "added_tokens_decoder": {}}
    config = {**places, "comment": "mine", "tokenizer_class": "ElectraTokenizerFast"}
    load(write_json(), config).save_pretrained(tmp_path / "out")
    written = saved(tmp_path / "out")
    assert written["comment"] == "mine"
    assert written["tokenizer_class"] == "ElectraTokenizer"
    assert not written.keys() & places.keys()


@pytest.mark.filterwarnings("ignore:do_lower_case is False")
def test_the_switches_of_a_tokenizer_json_are_written_out_for_transformers(
    write_json: Any, load: Any, tmp_path: Path
) -> None:
    normalizer = {"clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": False}
    load(write_json(normalizer={"type": "BertNormalizer", **normalizer})).save_pretrained(tmp_path / "out")
    written = saved(tmp_path / "out")
    assert (written["do_lower_case"], written["strip_accents"], written["tokenize_chinese_chars"]) == (
        False,
        None,
        True,
    )


@pytest.mark.parametrize(
    "parts",
    [
        {"normalizer": {"type": "Lowercase"}},
        {"normalizer": None},
        {"pre_tokenizer": {"type": "Whitespace"}},
        {"decoder": None},
        {"post_processor": {"type": "BertProcessing", "sep": ["a", 5], "cls": ["[CLS]", 2]}},
    ],
)
def test_a_pipeline_that_is_not_berts_is_saved_to_be_taken_whole(
    parts: Any, write_json: Any, load: Any, tmp_path: Path
) -> None:
    tokenizer = load(write_json(**parts))
    tokenizer.save_pretrained(tmp_path / "out")
    assert saved(tmp_path / "out")["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert dict(BertTokenizer.from_pretrained(tmp_path / "out")(TEXT, TEXT)) == dict(tokenizer(TEXT, TEXT))


def test_a_vocabulary_that_lines_cannot_hold_is_left_to_tokenizer_json(
    vocab: dict[str, int], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tokenizer = BertTokenizer({**vocab, "x\ny": 43})
    tokenizer.save_pretrained(tmp_path)
    assert not (tmp_path / "vocab.txt").exists()
    assert "vocab.txt is not written" in caplog.text
    assert BertTokenizer.from_pretrained(tmp_path).get_vocab() == tokenizer.get_vocab()


def test_a_file_in_place_of_the_folder_is_refused(tokenizer: BertTokenizer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"save_directory must be a folder, got .*file"):
        tokenizer.save_pretrained(tmp_path / "file")


def test_a_folder_in_place_of_a_file_is_refused(tokenizer: BertTokenizer, tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").mkdir()
    with pytest.raises(CheckpointError, match=r"tokenizer_config.json must be writable, got .*directory"):
        tokenizer.save_pretrained(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"])
def test_a_disk_that_is_full_leaves_each_file_as_it_was(
    name: str, tokenizer: BertTokenizer, vocab: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    BertTokenizer({**vocab, "before": 43}, mask_token="a").save_pretrained(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    whole = Path.write_bytes

    def half(path: Path, content: bytes) -> int:
        if f".{name}." not in path.name:
            return whole(path, content)
        whole(path, content[: len(content) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(CheckpointError, match=f"{name} must be writable, got No space left on device"):
        tokenizer.save_pretrained(tmp_path)
    assert (tmp_path / name).read_bytes() == before[name]
    assert {path.name for path in tmp_path.iterdir()} == before.keys()


def test_the_files_are_there_without_a_folder(tokenizer: BertTokenizer, tmp_path: Path) -> None:
    tokenizer.save_pretrained(save_directory=tmp_path)
    assert tokenizer.to_files() == {path.name: path.read_bytes() for path in tmp_path.iterdir()}

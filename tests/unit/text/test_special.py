"""Which tokens are special, out of four files that may disagree."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken

from plainbert.errors import PlainBertWarning, TokenizerError
from plainbert.text.special import MAX_ADDED_TOKENS, added_token
from plainbert.text.tokenizer import BertTokenizer

Load = Callable[..., BertTokenizer]
PLAIN = b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\n"


def test_the_usual_names_are_found_in_a_bare_vocabulary(write_vocab: Any, load: Load) -> None:
    tokenizer = load(write_vocab(PLAIN))
    assert (tokenizer.pad_token_id, tokenizer.unk_token_id, tokenizer.cls_token_id) == (0, 1, 2)
    assert (tokenizer.sep_token_id, tokenizer.mask_token_id, tokenizer.bos_token_id) == (3, 4, None)
    assert tokenizer.all_special_ids == [1, 3, 0, 2, 4]
    with pytest.raises(AttributeError, match="no attribute 'cls_tokens'"):
        _ = tokenizer.cls_tokens


@pytest.mark.parametrize("token", ["[UNK]", "[CLS]", "[SEP]"])
def test_a_vocabulary_without_a_token_that_every_text_needs_is_refused(
    token: str, write_vocab: Any, load: Load
) -> None:
    with pytest.raises(TokenizerError, match=rf"must contain .*_token '\{token[:-1]}\]', got none"):
        load(write_vocab(PLAIN.replace(token.encode(), b"x")))


@pytest.mark.parametrize(("role", "token"), [("mask_token", "[MASK]"), ("pad_token", "[PAD]")])
@pytest.mark.parametrize("declared", [True, False])
def test_a_missing_token_is_none_and_gets_no_id_beyond_the_table(
    role: str, token: str, declared: bool, write_vocab: Any, load: Load
) -> None:
    path = write_vocab(PLAIN.replace(token.encode(), b"x"))
    with pytest.warns(PlainBertWarning, match=rf"does not contain {role} '\{token[:-1]}\]': {role} is None"):
        tokenizer = load(path, {role: token} if declared else {})
    assert getattr(tokenizer, role) is None
    assert len(tokenizer) == 8


def test_names_come_from_the_config_and_over_it_from_the_map(write_vocab: Any, load: Load) -> None:
    path = write_vocab(PLAIN)
    assert load(path, {"mask_token": "a"}).mask_token == "a"
    assert load(path, {"mask_token": {"content": "a", "lstrip": True}}).mask_token == "a"
    assert load(path, {"mask_token": "a"}, special_tokens_map={"mask_token": "b"}).mask_token == "b"
    declared = {"mask_token": "a", "added_tokens_decoder": {}}
    assert load(path, declared, special_tokens_map={"mask_token": "b"}).mask_token == "a"
    tokenizer = load(path, {"mask_token": "a"}, special_tokens_map={"mask_token": "b"}, overrides={"mask_token": "c"})
    assert tokenizer.mask_token == "c"


def test_a_role_that_is_null_stays_empty(write_vocab: Any, load: Load) -> None:
    tokenizer = load(write_vocab(PLAIN), {"pad_token": None})
    assert tokenizer.pad_token is None
    assert tokenizer.pad_token_id is None


def test_the_flags_of_a_token_are_honoured(write_vocab: Any, load: Load) -> None:
    path = write_vocab(PLAIN)
    assert load(path)("a [MASK]").offsets[2] == (2, 8)
    config = {"mask_token": {"content": "[MASK]", "lstrip": True, "__type": "AddedToken"}}
    assert load(path, config)("a [MASK]").offsets[2] == (1, 8)


def test_special_tokens_without_a_role_follow_the_vocabulary(write_vocab: Any, load: Load) -> None:
    tokenizer = load(write_vocab(PLAIN), {"additional_special_tokens": ["<e1>", {"content": "<e2>"}]})
    assert tokenizer.convert_tokens_to_ids(["<e1>", "<e2>"]) == [8, 9]
    assert (tokenizer.vocab_size, len(tokenizer)) == (8, 10)
    assert tokenizer("a<e2>")["input_ids"] == [2, 5, 9, 3]
    assert tokenizer.decode([5, 9], skip_special_tokens=True) == "a"
    newer = load(write_vocab(PLAIN), {}, special_tokens_map={"extra_special_tokens": {"image_token": "<e1>"}})
    assert newer.all_special_tokens[-1] == "<e1>"


def test_an_added_token_is_never_given_the_id_of_another(write_vocab: Any, load: Load) -> None:
    path = write_vocab(PLAIN.replace(b"b\n", b"\n"))
    with pytest.raises(TokenizerError, match="'<e1>' must have an id of its own, got 7, the id of 'c'"):
        load(path, {"additional_special_tokens": ["<e1>"]})


def test_declared_ids_are_kept_or_refused(write_vocab: Any, load: Load) -> None:
    path = write_vocab(PLAIN)
    tokenizer = load(path, {}, added_tokens={"new": 8, "newer": 9})
    assert tokenizer("a newer new")["input_ids"] == [2, 5, 9, 8, 3]
    decoder = {"8": {"content": "New", "normalized": False, "special": False}}
    assert load(path, {"added_tokens_decoder": decoder})("New new")["input_ids"] == [2, 8, 1, 3]
    with pytest.raises(TokenizerError, match=r"'new' must have the id 12 .* got 8"):
        load(path, {}, added_tokens={"new": 12})
    with pytest.raises(TokenizerError, match=r"'a' must have the id 3 .* got 5"):
        load(path, {"added_tokens_decoder": {"3": {"content": "a"}}})


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"cls_token": 3}, "cls_token must be a token .* got 3"),
        ({"cls_token": ""}, "cls_token must be a token of at least one character, got ''"),
        ({"cls_token": {"content": "[CLS]", "lstrip": 1}}, "cls_token: lstrip must be True or False, got 1"),
        ({"cls_token": {"text": "[CLS]"}}, "cls_token must be a token .* got {'text'"),
        ({"additional_special_tokens": "<e>"}, "additional_special_tokens must be a list of tokens, got '<e>'"),
        ({"additional_special_tokens": [None]}, "additional_special_tokens must be a token .* got None"),
        ({"added_tokens_decoder": []}, r"added_tokens_decoder must be an object of id to token, got \[\]"),
        ({"added_tokens_decoder": {"-1": "x"}}, "added_tokens_decoder must give ids as whole numbers from 0, got '-1'"),
        (
            {"added_tokens_decoder": {"8": {"content": ""}}},
            r"added_tokens_decoder\[8\] must be a token of at least one",
        ),
    ],
)
def test_what_is_no_token_is_refused(config: dict[str, Any], message: str, write_vocab: Any, load: Load) -> None:
    with pytest.raises(TokenizerError, match=message):
        load(write_vocab(PLAIN), config)


@pytest.mark.parametrize("number", [-1, True, "x", 1.5, None, 2**31])
def test_what_is_no_id_is_refused(number: object, write_vocab: Any, load: Load) -> None:
    with pytest.raises(
        TokenizerError, match=f"added_tokens.json must give ids as whole numbers from 0, got {number!r}"
    ):
        load(write_vocab(PLAIN), {}, added_tokens={"new": number})


def test_a_million_declared_tokens_are_refused(write_vocab: Any, load: Load) -> None:
    many = {f"t{number}": number + 8 for number in range(MAX_ADDED_TOKENS + 1)}
    with pytest.raises(TokenizerError, match="added tokens must be at most 100000, got 100001"):
        load(write_vocab(PLAIN), {}, added_tokens=many)


def test_a_token_keeps_its_flags_on_the_way_through() -> None:
    token = added_token(AddedToken("x", lstrip=True, special=False), "here")
    assert (token.content, token.lstrip, token.special, token.normalized) == ("x", True, False, True)


def test_a_tokenizer_json_without_berts_tokens_needs_none(write_json: Any, load: Load) -> None:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [{"id": 5, "content": "a", "special": True, **flags}]
    model = {"type": "WordPiece", "unk_token": "b", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    vocab = {"a": 5, "b": 6, "<pad>": 7}
    path = write_json(added_tokens=added, post_processor=None, model={**model, "vocab": vocab})
    tokenizer = load(path)
    assert (tokenizer.cls_token, tokenizer.unk_token, tokenizer.pad_token) == (None, "b", None)
    assert tokenizer("a z")["input_ids"] == [5, 6]


def test_the_files_of_a_folder_are_never_changed_by_loading(write_vocab: Any, load: Load, tmp_path: Path) -> None:
    config: dict[str, Any] = {"mask_token": {"content": "a"}}
    load(write_vocab(PLAIN), config, overrides={"model_max_length": 5})
    assert config == {"mask_token": {"content": "a"}}
    assert (tmp_path / "vocab.txt").read_bytes() == PLAIN

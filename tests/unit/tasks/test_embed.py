"""Texts to vectors: equal to the plain way of computing them, whatever the order, the batch and the length."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch

from plainbert import BertModel, BertTokenizer, Embedder, InputError, MissingFileError, PlainBertWarning
from plainbert.models.pooling import POOLING_MODES, pool
from plainbert.tasks.recipe import Recipe

TEXTS = ["hello there world", "hello", "", "今天 hello", "hello " * 20, "world . there"]
MEAN = {"pooling_mode": "mean"}


@pytest.fixture
def embedder(declare: Callable[..., Path]) -> Embedder:
    return Embedder.from_pretrained(declare(MEAN, ("Transformer", "Pooling", "Normalize")))


def by_hand(folder: Path, texts: list[str], modes: tuple[str, ...]) -> np.ndarray:
    """One text at a time, so that nothing is padded."""
    model, tokenizer = BertModel.from_pretrained(folder), BertTokenizer.from_pretrained(folder)
    rows = []
    for text in texts:
        batch = tokenizer([text], return_tensors="pt")
        with torch.inference_mode():
            rows.append(pool(model(**batch).last_hidden_state, batch["attention_mask"], modes).numpy())
    return np.concatenate(rows)


@pytest.mark.parametrize("modes", [*[(mode,) for mode in POOLING_MODES], ("cls", "mean"), POOLING_MODES])
def test_the_vectors_are_those_of_pooling_each_text_alone(declare: Callable[..., Path], modes: tuple[str, ...]) -> None:
    folder = declare({"pooling_mode": list(modes)})
    vectors = Embedder.from_pretrained(folder).encode(TEXTS)
    assert vectors.shape == (len(TEXTS), 32 * len(modes))
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, by_hand(folder, TEXTS, modes), atol=2e-5)


def test_a_real_model_agrees_with_transformers(minilm_folder: Path) -> None:
    transformers = pytest.importorskip("transformers")
    texts = ["The weather is lovely today.", "It's so sunny outside!", "今天天气真好。", "", "a " * 300]
    model = transformers.AutoModel.from_pretrained(minilm_folder, local_files_only=True).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm_folder, local_files_only=True)
    batch = tokenizer(texts, padding=True, truncation=True, max_length=256, return_tensors="pt")
    with torch.inference_mode():
        hidden = model(**batch).last_hidden_state
    mask = batch["attention_mask"][..., None].float()
    mean = (hidden * mask).sum(1) / mask.sum(1)
    expected = torch.nn.functional.normalize(mean, dim=1).numpy()
    embedder = Embedder.from_pretrained("minilm")
    assert (embedder.dimension, embedder.max_length) == (384, 256)
    with pytest.warns(PlainBertWarning, match=r"1 of 5 texts were cut to 256 tokens \(max_length\); 46 tokens"):
        vectors = embedder.encode(texts)
    assert np.abs(vectors - expected).max() <= 2e-6


def test_nothing_and_one_text_have_two_dimensions(embedder: Embedder) -> None:
    assert embedder.encode([]).shape == (0, 32)
    assert embedder.encode([]).dtype == np.float32
    assert embedder.encode([], truncate_dim=5).shape == (0, 5)
    assert embedder.encode("hello").shape == (1, 32)
    assert np.array_equal(embedder.encode("hello"), embedder.encode(["hello"]))


def test_an_empty_text_has_a_finite_vector(embedder: Embedder) -> None:
    assert np.isfinite(embedder.encode(["", " ", "\x00", "\u200d"])).all()


@pytest.mark.parametrize("max_batch_tokens", [1, 7, 40, 100_000])
def test_the_size_of_a_batch_does_not_matter(embedder: Embedder, max_batch_tokens: int) -> None:
    np.testing.assert_allclose(
        embedder.encode(TEXTS, max_batch_tokens=max_batch_tokens), embedder.encode(TEXTS), atol=1e-6
    )


def test_the_order_of_the_texts_is_kept(embedder: Embedder) -> None:
    order = [3, 0, 5, 1, 4, 2]
    shuffled = embedder.encode([TEXTS[index] for index in order])
    np.testing.assert_allclose(shuffled, embedder.encode(TEXTS)[order], atol=1e-6)


def test_a_batch_stays_within_its_tokens_and_holds_texts_of_like_length(
    embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = []
    forward = BertModel.forward

    def noted(self: BertModel, **inputs: Any) -> Any:
        shapes.append(tuple(inputs["input_ids"].shape))
        return forward(self, **inputs)

    monkeypatch.setattr(BertModel, "forward", noted)
    embedder.encode(["hello " * count for count in (1, 9, 2, 8, 3, 20)], max_batch_tokens=24)
    assert shapes == [(1, 22), (2, 11), (3, 5)]


def test_normalising_is_as_declared_unless_said(embedder: Embedder) -> None:
    assert np.linalg.norm(embedder.encode(TEXTS), axis=1) == pytest.approx(1, abs=1e-6)
    assert np.linalg.norm(embedder.encode("hello", normalize=False)) > 1.5


def test_fewer_dimensions_are_the_first_ones_scaled_again(embedder: Embedder) -> None:
    whole, short = embedder.encode("hello", normalize=False), embedder.encode("hello", truncate_dim=7)
    assert short.shape == (1, 7)
    np.testing.assert_allclose(short, whole[:, :7] / np.linalg.norm(whole[:, :7]), atol=1e-6)


def test_prompts_are_put_before_the_text(declare: Callable[..., Path]) -> None:
    files = {"config_sentence_transformers": {"prompts": {"query": "query: "}}}
    embedder = Embedder.from_pretrained(declare(MEAN, **files))
    plain = embedder.encode("query: hello")
    assert np.array_equal(embedder.encode("hello", prompt="query: "), plain)
    assert np.array_equal(embedder.encode("hello", prompt_name="query"), plain)
    assert not np.allclose(embedder.encode("hello"), plain)
    files["config_sentence_transformers"]["default_prompt_name"] = "query"
    embedder = Embedder.from_pretrained(declare(MEAN, **files))
    assert np.array_equal(embedder.encode("hello"), plain)
    bare = Embedder(embedder.model, embedder.tokenizer)
    assert np.array_equal(embedder.encode("hello", prompt=""), bare.encode("hello"))


def test_a_prompt_left_out_of_the_pooling_takes_cls_with_it(declare: Callable[..., Path]) -> None:
    folder = declare({**MEAN, "include_prompt": False})
    model, tokenizer = BertModel.from_pretrained(folder), BertTokenizer.from_pretrained(folder)
    batch = tokenizer(["query: hello there"], return_tensors="pt")
    with torch.inference_mode():
        hidden = model(**batch).last_hidden_state[0]
    vector = Embedder.from_pretrained(folder).encode("hello there", prompt="query: ")[0]
    np.testing.assert_allclose(vector, hidden[3:].mean(0).numpy(), atol=1e-5)


def test_lower_casing_is_the_folders_choice(declare: Callable[..., Path]) -> None:
    folder = declare(MEAN)
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    cased = Embedder.from_pretrained(folder)
    assert not np.allclose(cased.encode("Hello"), cased.encode("hello"))
    lowered = Embedder.from_pretrained(declare(MEAN, sentence_bert_config={"do_lower_case": True}))
    assert np.array_equal(lowered.encode("Hello"), lowered.encode("hello"))


def test_a_cut_text_is_counted_in_one_warning_and_equals_its_beginning(embedder: Embedder) -> None:
    assert embedder.max_length == 30
    with pytest.warns(
        PlainBertWarning, match=r"^2 of 3 texts .* 30 tokens \(max_length\); 44 tokens were dropped$"
    ) as seen:
        vectors = embedder.encode(["hello " * 50, "hello", "hello " * 50])
    assert len(seen) == 1
    assert Path(seen[0].filename) == Path(__file__)
    np.testing.assert_allclose(vectors[0], embedder.encode("hello " * 28)[0], atol=1e-6)


def test_a_text_that_is_too_long_can_be_an_error(embedder: Embedder) -> None:
    with pytest.raises(InputError, match=r"at most 30 tokens \(max_length\), got 52 at index 1 \(2 in all"):
        embedder.encode(["hello", "hello " * 50, "hello " * 60], truncation="error")


def test_the_longest_text_is_the_folders_the_tokenizers_or_the_models(declare: Callable[..., Path]) -> None:
    assert Embedder.from_pretrained(declare(MEAN)).max_length == 30
    assert Embedder.from_pretrained(declare(MEAN), max_length=40).max_length == 40
    folder = declare(MEAN, sentence_bert_config={"max_seq_length": 12})
    assert Embedder.from_pretrained(folder).max_length == 12
    assert Embedder.from_pretrained(folder, max_length=11).max_length == 11
    (folder / "sentence_bert_config.json").unlink()
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    assert Embedder.from_pretrained(folder).max_length == 40


def test_a_folder_that_declares_more_than_the_model_has_gets_what_it_has(declare: Callable[..., Path]) -> None:
    folder = declare(MEAN, sentence_bert_config={"max_seq_length": 600})
    with pytest.warns(PlainBertWarning, match="at most 40 .* got 600"):
        embedder = Embedder.from_pretrained(folder)
    assert embedder.max_length == 40


@pytest.mark.parametrize("max_length", [0, -1, 41, 1.5, True, "12"])
def test_a_length_the_model_cannot_take_is_refused(declare: Callable[..., Path], max_length: Any) -> None:
    with pytest.raises(InputError, match=rf"from 1 to 40 .*got {max_length!r}"):
        Embedder.from_pretrained(declare(MEAN), max_length=max_length)


@pytest.mark.parametrize(
    ("options", "got"),
    [
        ({"truncation": "window"}, "got 'window'"),
        ({"max_batch_tokens": 0}, "got 0"),
        ({"max_batch_tokens": True}, "got True"),
        ({"truncate_dim": 0}, "from 1 to 32 .*got 0"),
        ({"truncate_dim": 33}, "from 1 to 32 .*got 33"),
        ({"truncate_dim": 1.5}, "got 1.5"),
        ({"prompt": "a", "prompt_name": "b"}, "got 'a' and 'b'"),
        ({"prompt_name": "b"}, "got 'b'"),
    ],
)
def test_options_outside_their_range_are_refused_with_the_value(
    embedder: Embedder, options: dict[str, Any], got: str
) -> None:
    with pytest.raises(InputError, match=got):
        embedder.encode("hello", **options)


@pytest.mark.parametrize("texts", [["hello", None], ["hello", 3], ["hello", b"there"], [["hello"]]])
def test_what_is_not_a_text_is_refused_with_its_place(embedder: Embedder, texts: list[Any]) -> None:
    with pytest.raises(InputError, match=r"got (NoneType|int|bytes|list) at index [01]"):
        embedder.encode(texts)


def test_a_default_prompt_must_be_one_of_the_prompts(embedder: Embedder) -> None:
    with pytest.raises(InputError, match=r"one of the prompts \[\], got 'query'"):
        Embedder(embedder.model, embedder.tokenizer, Recipe(default_prompt_name="query"))


def test_a_model_and_a_tokenizer_are_enough(embedder: Embedder) -> None:
    plain = Embedder(embedder.model, embedder.tokenizer)
    assert np.array_equal(plain.encode(TEXTS), embedder.encode(TEXTS, normalize=False))


def test_encoding_runs_without_dropout_and_leaves_the_mode_as_it_was(embedder: Embedder) -> None:
    expected = embedder.encode(TEXTS)
    embedder.model.train()
    assert np.array_equal(embedder.encode(TEXTS), expected)
    assert embedder.model.training


def test_half_precision_gives_float32_vectors_close_to_the_exact_ones(declare: Callable[..., Path]) -> None:
    folder = declare(MEAN, ("Transformer", "Pooling", "Normalize"))
    vectors = Embedder.from_pretrained(folder, dtype=torch.bfloat16).encode(TEXTS)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, Embedder.from_pretrained(folder).encode(TEXTS), atol=0.1)


def test_no_pooler_is_loaded_and_none_is_missed(declare: Callable[..., Path]) -> None:
    folder = declare(MEAN)
    embedder = Embedder.from_pretrained(folder)
    assert embedder.model.pooler is None
    embedder.model.save_pretrained(folder)
    assert np.array_equal(Embedder.from_pretrained(folder).encode(TEXTS), embedder.encode(TEXTS))


def test_an_encoder_in_a_folder_of_its_own_is_found(declare: Callable[..., Path]) -> None:
    folder = declare(MEAN)
    expected = Embedder.from_pretrained(folder).encode(TEXTS)
    declare(MEAN, paths=("0_BERT", "1_Pooling"))
    (folder / "0_BERT").mkdir()
    for name in ("config.json", "model.safetensors", "vocab.txt", "tokenizer_config.json"):
        shutil.move(folder / name, folder / "0_BERT" / name)
    (folder / "0_BERT" / "sentence_bert_config.json").write_text('{"max_seq_length": 29}')
    embedder = Embedder.from_pretrained(folder)
    assert embedder.max_length == 29
    assert np.array_equal(embedder.encode(TEXTS), expected)
    (folder / "0_BERT" / "config.json").unlink()
    with pytest.raises(MissingFileError, match=r"0_BERT/config\.json"):
        Embedder.from_pretrained(folder)


def test_a_tokenizer_that_fills_up_on_the_left_changes_nothing(declare: Callable[..., Path]) -> None:
    folder = declare(MEAN)
    expected = Embedder.from_pretrained(folder).encode(TEXTS)
    (folder / "tokenizer_config.json").write_text(
        '{"do_lower_case": true, "model_max_length": 30, "padding_side": "left"}'
    )
    assert np.array_equal(Embedder.from_pretrained(folder).encode(TEXTS), expected)


def test_more_texts_than_are_tokenised_at_once_keep_their_order(embedder: Embedder) -> None:
    texts = ["hello", "there", "world"] * 400
    vectors = embedder.encode(texts)
    np.testing.assert_allclose(vectors, np.tile(embedder.encode(texts[:3]), (400, 1)), atol=1e-6)


def test_a_tokenizer_without_segments_gives_segment_zero(declare: Callable[..., Path]) -> None:
    folder = declare(MEAN)
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁hello", -1.0), ("▁", -2.0), ("h", -3.0)]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, unk_id=3))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "vocab.txt").unlink()
    special = {"bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>", "sep_token": "</s>", "pad_token": "<pad>"}
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "XLMRobertaTokenizer", "unk_token": "<unk>", **special})
    )
    embedder = Embedder.from_pretrained(folder)
    ids = torch.tensor([[0, 4, 4, 2]])
    with torch.inference_mode():
        segments, mask = torch.zeros_like(ids), torch.ones_like(ids)
        hidden = embedder.model(ids, attention_mask=mask, token_type_ids=segments).last_hidden_state
    np.testing.assert_allclose(embedder.encode("hello hello"), hidden.mean(1).numpy(), atol=1e-6)


def test_progress_is_drawn_on_stderr_only_when_asked(embedder: Embedder, capsys: pytest.CaptureFixture[str]) -> None:
    embedder.encode(TEXTS)
    assert capsys.readouterr() == ("", "")
    embedder.encode(TEXTS, progress=True)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Texts" in captured.err


def test_chunks_give_what_each_alone_gives_and_one_warning(embedder: Embedder) -> None:
    chunks = [["hello", "hello " * 50], [], ["there " * 60], ["world"]]
    asked: list[int] = []

    def given() -> Any:
        for index, chunk in enumerate(chunks):
            asked.append(index)
            yield chunk

    vectors = embedder.encode_chunks(given(), truncate_dim=5)
    assert asked == []
    first = next(vectors)
    assert asked == [0]
    with pytest.warns(PlainBertWarning, match=r"^2 of 4 texts were cut to 30 tokens .*; 54 tokens were") as said:
        rest = list(vectors)
    assert len(said) == 1
    with pytest.warns(PlainBertWarning):
        alone = [embedder.encode(chunk, truncate_dim=5) for chunk in chunks]
    assert [found.shape for found in alone] == [(2, 5), (0, 5), (1, 5), (1, 5)]
    assert all(np.array_equal(one, other) for one, other in zip(alone, [first, *rest], strict=True))


def test_an_error_in_a_later_chunk_counts_from_the_first_text(embedder: Embedder) -> None:
    with pytest.raises(InputError, match="got 52 at index 3 "):
        list(embedder.encode_chunks([["hello", "there"], ["world", "hello " * 50]], truncation="error"))
    with pytest.raises(InputError, match="got int at index 2;"):
        list(embedder.encode_chunks([["hello", "there"], [7]]))  # type: ignore[list-item]
    with pytest.raises(InputError, match=r"truncate_dim .* got 33"):
        embedder.encode_chunks([], truncate_dim=33)

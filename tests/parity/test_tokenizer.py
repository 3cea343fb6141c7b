"""Ids, types, masks, offsets, words: equal to transformers' tokenizer for any text and any settings."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from plainbert import BertTokenizer
from plainbert.errors import TokenizerError

transformers = pytest.importorskip("transformers", reason="the yardstick; it needs Python 3.11")

CORPUS = [
    "The quick brown fox jumps over the lazy dog, and nobody minds.",
    "Zürich ist größer als Basel; naïve cafés gibt es in beiden.",
    "東京タワーは高い。我爱北京天安门。한국어 문장입니다. हिन्दी में लिखा है।",
    "emoji 👍🏽 and 👨‍👩‍👧 and numbers 3.14 1,000 #hash @name http://a.b/c?d=e",
] * 5
PIECES = [
    "[MASK]",
    "[CLS]",
    "[SEP]",
    " ",
    "  ",
    "\t",
    "\n",
    "\x00",
    "\u200b",
    "\u00ad",
    "\ufffd",
    "\u3000",
    "naïve café",
    "nai\u0308ve",
    "한국어",
    "हिन्दी",
    "👍🏽",
    "👨‍👩‍👧",
    "𝒳",
    "東京タワー",
    "\U00020000",
    "ﾊﾝｶｸ",
    "İstanbul",
    "ΑΣ",
    "mở bài",
    "don't",
    "the",
    "Hello",
    "world",
    "un",
    "believable",
    "x" * 100,
    "x" * 101,
    "<s>",
    "<mask>",
    "##ing",
    "e\u0301\u0302\u0303",
    "שלום",
]
TEXTS = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=12).map("".join),
    st.lists(st.sampled_from(PIECES), max_size=12).map(" ".join),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
)
EXAMPLES = settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
WORDS = st.lists(TEXTS, max_size=8)
OPTIONS = st.fixed_dictionaries(
    {
        "add_special_tokens": st.booleans(),
        "padding": st.sampled_from([False, True, "max_length"]),
        "truncation": st.sampled_from([False, True, "longest_first", "only_first", "only_second"]),
        "max_length": st.sampled_from([None, 0, 1, 2, 3, 4, 5, 6, 8, 11, 16, 24]),
        "stride": st.sampled_from([0, 0, 1, 2, 5]),
        "pad_to_multiple_of": st.sampled_from([None, None, 4]),
        "return_overflowing_tokens": st.booleans(),
        "split_special_tokens": st.booleans(),
    }
)


def train(model: Any, trainer: Any, tokens: tuple[str, str, str]) -> Tokenizer:
    tokenizer = Tokenizer(model)
    if isinstance(model, models.Unigram):
        tokenizer.normalizer = normalizers.NFKC()
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        tokenizer.decoder = decoders.Metaspace()
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(CORPUS, trainer)
    first, last, mask = tokens
    tokenizer.add_special_tokens([AddedToken(mask, lstrip=True)])
    ids = {token: tokenizer.token_to_id(token) for token in tokens}
    if isinstance(model, models.Unigram):
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{first} $A {last}",
            pair=f"{first} $A {last} {last} $B {last}",
            special_tokens=[(first, ids[first]), (last, ids[last])],
        )
    else:
        tokenizer.post_processor = processors.RobertaProcessing((last, ids[last]), (first, ids[first]))
    return tokenizer


NAMES = ["<s>", "<pad>", "</s>", "<unk>"]
ROLES = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "cls_token": "<s>",
    "sep_token": "</s>",
    "pad_token": "<pad>",
    "unk_token": "<unk>",
    "mask_token": "<mask>",
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, minilm_folder: Path) -> dict[str, Path]:
    """Tokenizers of every kind, as folders."""
    made = {"minilm": minilm_folder}

    def folder(name: str, config: dict[str, Any], tokenizer: Tokenizer | None = None) -> None:
        made[name] = tmp_path_factory.mktemp(name)
        (made[name] / "tokenizer_config.json").write_text(json.dumps(config))
        (made[name] / "config.json").write_text(json.dumps({"model_type": "bert"}))
        if tokenizer is None:
            shutil.copy(minilm_folder / "vocab.txt", made[name])
        else:
            tokenizer.save(str(made[name] / "tokenizer.json"))

    known = {"tokenizer_class": "BertTokenizer", "model_max_length": 64}
    folder("cased", {**known, "do_lower_case": False})
    folder("no_cjk", {**known, "do_lower_case": True, "tokenize_chinese_chars": False, "strip_accents": False})
    folder("left", {**known, "do_lower_case": True, "padding_side": "left", "truncation_side": "left"})
    folder("extra", {**known, "do_lower_case": True, "additional_special_tokens": ["<e1>", "un"]})
    disagreeing = Tokenizer.from_file(str(minilm_folder / "tokenizer.json"))
    switches = {"do_lower_case": False, "strip_accents": True, "tokenize_chinese_chars": False}
    folder("disagreeing", {**known, **switches}, disagreeing)
    generic = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 64, **ROLES}
    unigram = trainers.UnigramTrainer(vocab_size=260, special_tokens=NAMES, unk_token="<unk>", show_progress=False)
    folder("unigram", generic, train(models.Unigram(), unigram, ("<s>", "</s>", "<mask>")))
    bpe = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=NAMES,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    folder("bpe", generic, train(models.BPE(unk_token="<unk>"), bpe, ("<s>", "</s>", "<mask>")))
    return made


KINDS = ["minilm", "cased", "no_cjk", "left", "extra", "disagreeing", "unigram", "bpe"]


@pytest.fixture(scope="module")
def pair_of(folders: dict[str, Path]) -> Callable[[str], tuple[BertTokenizer, Any]]:
    """Our tokenizer and transformers' of the same folder."""
    made: dict[str, tuple[BertTokenizer, Any]] = {}

    def load(kind: str) -> tuple[BertTokenizer, Any]:
        if kind not in made:
            theirs = transformers.AutoTokenizer.from_pretrained(folders[kind])
            made[kind] = BertTokenizer.from_pretrained(folders[kind]), theirs
        return made[kind]

    return load


def call_theirs(theirs: Any, *texts: Any, **options: Any) -> Any:
    """Transformers' result, or None where it fails: by an exception, or by a panic of the Rust library."""
    try:
        return theirs(
            *texts,
            return_offsets_mapping=True,
            return_special_tokens_mask=True,
            return_token_type_ids=True,
            verbose=False,
            **options,
        )
    except BaseException as error:
        if type(error).__name__ not in ("PanicException", "Exception", "ValueError"):
            raise
        return None


def assert_equal(ours: BertTokenizer, theirs: Any, texts: list[Any], **options: Any) -> None:
    """Compare one call. Where one side refuses, the other must have refused too, or there is a reason named here."""
    expected = call_theirs(theirs, *texts, **options)
    special = ours.num_special_tokens_to_add(len(texts) > 1) if options["add_special_tokens"] else 0
    limit = options["max_length"] if options["max_length"] is not None else ours.model_max_length
    # transformers returns the whole text where the limit is below the special tokens, and where it equals them a
    # "window" of the whole text.
    longest = 0 if expected is None else max(sum(mask) for mask in expected["attention_mask"])
    too_long = options["truncation"] and longest > limit
    no_room = options["truncation"] and 0 < options["stride"] >= limit - special
    try:
        batch = ours(*texts, **options)
    except TokenizerError:
        assert expected is None or too_long or no_room
        return
    # transformers counts special tokens against the stride even when none are added, and panics over strides that no
    # window uses.
    assert expected is not None or options["stride"] > 0
    if options["truncation"]:
        assert max(map(sum, batch["attention_mask"])) <= limit
    if expected is None or too_long:
        return
    assert batch["input_ids"] == expected["input_ids"]
    assert batch["attention_mask"] == expected["attention_mask"]
    if ours.cls_token == "[CLS]":
        assert batch["token_type_ids"] == expected["token_type_ids"]
        assert batch.offsets == expected["offset_mapping"]
    else:
        # These post-processors say 0 for both texts. In windows the library leaves some of the second text at 1, and
        # takes the blank before the first word of a window for a part of it.
        assert not any(map(any, batch["token_type_ids"]))
        if not options["return_overflowing_tokens"]:
            assert batch.offsets == expected["offset_mapping"]
    assert batch.special_tokens_mask == expected["special_tokens_mask"]
    assert batch.word_ids == [expected.word_ids(row) for row in range(len(batch["input_ids"]))]
    assert batch.sequence_ids == [expected.sequence_ids(row) for row in range(len(batch["input_ids"]))]
    assert batch.tokens == [expected.tokens(row) for row in range(len(batch["input_ids"]))]
    assert batch.get("overflow_to_sample_mapping") == expected.get("overflow_to_sample_mapping")


@pytest.mark.filterwarnings("ignore:.*max_length.*", "ignore:.* no effect in this call")
@pytest.mark.parametrize("kind", KINDS)
def test_any_texts_and_settings_give_what_transformers_gives(kind: str, pair_of: Any) -> None:
    @settings(EXAMPLES)
    @given(st.lists(TEXTS, min_size=1, max_size=4), OPTIONS)
    def check(texts: list[str], options: dict[str, Any]) -> None:
        assert_equal(*pair_of(kind), [texts], **options)

    check()


@pytest.mark.filterwarnings("ignore:.*max_length.*", "ignore:.* no effect in this call")
@pytest.mark.parametrize("kind", KINDS)
def test_any_pairs_and_settings_give_what_transformers_gives(kind: str, pair_of: Any) -> None:
    @settings(EXAMPLES)
    @given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=3), OPTIONS)
    def check(pairs: list[tuple[str, str]], options: dict[str, Any]) -> None:
        first, second = map(list, zip(*pairs, strict=True))
        assert_equal(*pair_of(kind), [first, second], **options)

    check()


@pytest.mark.filterwarnings("ignore:.*max_length.*", "ignore:.* no effect in this call")
@pytest.mark.parametrize("kind", KINDS)
def test_any_words_and_settings_give_what_transformers_gives(kind: str, pair_of: Any) -> None:
    @settings(EXAMPLES)
    @given(st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=3), OPTIONS, st.booleans())
    def check(pairs: list[tuple[list[str], list[str]]], options: dict[str, Any], paired: bool) -> None:
        first, second = map(list, zip(*pairs, strict=True))
        texts = [first, second] if paired else [first]
        assert_equal(*pair_of(kind), texts, is_split_into_words=True, **options)

    check()


SENTENCES = [
    "Hello wörld, the naïve café's un-believable!",
    "한국어 東京タワー हिन्दी",
    "[MASK] <mask> <e1> un 👍🏽",
    "",
    "\x00 \u200b",
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_folder_gives_transformers_and_us_the_same_ids(kind: str, pair_of: Any, tmp_path: Path) -> None:
    ours, theirs = pair_of(kind)
    ours.save_pretrained(tmp_path)
    expected = theirs(SENTENCES, SENTENCES)["input_ids"]
    again = BertTokenizer.from_pretrained(tmp_path)
    assert again(SENTENCES, SENTENCES)["input_ids"] == expected
    assert dict(again(SENTENCES, SENTENCES)) == dict(ours(SENTENCES, SENTENCES))
    assert again.special_tokens_map == ours.special_tokens_map
    assert again.model_max_length == ours.model_max_length
    loaded = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert loaded(SENTENCES, SENTENCES)["input_ids"] == expected
    assert loaded.model_max_length == theirs.model_max_length
    assert loaded.special_tokens_map == theirs.special_tokens_map
    if ours.cls_token == "[CLS]":
        assert (
            transformers.BertTokenizer.from_pretrained(tmp_path)(SENTENCES)["input_ids"]
            == theirs(SENTENCES)["input_ids"]
        )
        padded = loaded(SENTENCES, padding=True, truncation=True, max_length=8)
        assert ours(SENTENCES, padding=True, truncation=True, max_length=8)["input_ids"] == padded["input_ids"]


@pytest.mark.parametrize("kind", ["cased", "no_cjk", "left", "extra"])
def test_the_vocabulary_that_we_save_is_enough_by_itself(kind: str, pair_of: Any, tmp_path: Path) -> None:
    ours, theirs = pair_of(kind)
    ours.save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    assert BertTokenizer.from_pretrained(tmp_path)(SENTENCES)["input_ids"] == theirs(SENTENCES)["input_ids"]
    loaded = transformers.BertTokenizer.from_pretrained(tmp_path)
    assert loaded(SENTENCES)["input_ids"] == theirs(SENTENCES)["input_ids"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_transformers_saves_is_what_we_load(kind: str, pair_of: Any, tmp_path: Path) -> None:
    ours, theirs = pair_of(kind)
    theirs.save_pretrained(tmp_path)
    assert BertTokenizer.from_pretrained(tmp_path)(SENTENCES)["input_ids"] == ours(SENTENCES)["input_ids"]


@pytest.mark.parametrize("kind", KINDS)
def test_ids_become_text_and_tokens_as_in_transformers(kind: str, pair_of: Any) -> None:
    ours, theirs = pair_of(kind)
    ids = theirs(SENTENCES)["input_ids"]
    for skip in (False, True):
        assert ours.decode(ids, skip_special_tokens=skip) == theirs.decode(ids, skip_special_tokens=skip)
        assert ours.batch_decode(ids, skip_special_tokens=skip) == theirs.batch_decode(ids, skip_special_tokens=skip)
        assert ours.convert_ids_to_tokens(ids[0], skip) == theirs.convert_ids_to_tokens(ids[0], skip)
        for clean in (False, True):
            options = {"skip_special_tokens": skip, "clean_up_tokenization_spaces": clean}
            assert ours.decode(ids[0], **options) == theirs.decode(ids[0], **options)
    assert ours.decode(ids[0][1]) == theirs.decode(ids[0][1])
    assert ours.batch_decode([]) == theirs.batch_decode([]) == []
    tokens = [*ours.convert_ids_to_tokens(ids[0]), "no such token"]
    assert ours.convert_tokens_to_ids(tokens) == theirs.convert_tokens_to_ids(tokens)
    assert ours.tokenize(SENTENCES[0]) == theirs.tokenize(SENTENCES[0])
    assert ours.encode(SENTENCES[0], SENTENCES[1]) == theirs.encode(SENTENCES[0], SENTENCES[1])
    assert (ours.vocab_size, len(ours), ours.get_vocab()) == (theirs.vocab_size, len(theirs), theirs.get_vocab())
    assert set(ours.all_special_ids) == set(theirs.all_special_ids)
    for role in ("cls", "sep", "pad", "mask", "unk", "bos", "eos"):
        assert getattr(ours, f"{role}_token") == getattr(theirs, f"{role}_token")
        assert getattr(ours, f"{role}_token_id") == getattr(theirs, f"{role}_token_id")


@pytest.mark.parametrize("kind", ["minilm", "left"])
@pytest.mark.parametrize("options", [{}, {"padding": "max_length", "max_length": 12}, {"pad_to_multiple_of": 8}])
def test_ids_are_padded_as_in_transformers(kind: str, options: dict[str, Any], pair_of: Any) -> None:
    ours, theirs = pair_of(kind)
    rows = [dict(theirs(text)) for text in ("a b c", "a", "a b c d e f")]
    assert dict(ours.pad(rows, **options)) == dict(theirs.pad(rows, **options))
    assert dict(ours.pad(rows[0], **options)) == dict(theirs.pad(dict(rows[0]), **options))
    columns = {"input_ids": [row["input_ids"] for row in rows]}
    got, expected = (
        ours.pad(columns, return_tensors="np", **options),
        theirs.pad(dict(columns), return_tensors="np", **options),
    )
    assert {name: value.tolist() for name, value in got.items()} == {k: v.tolist() for k, v in expected.items()}


def test_one_text_has_the_form_that_transformers_gives_it(pair_of: Any) -> None:
    ours, theirs = pair_of("minilm")
    assert dict(ours("hello world")) == dict(theirs("hello world"))
    assert dict(ours("hello world", "again")) == dict(theirs("hello world", "again"))
    assert dict(ours("a b c d e", max_length=4)) == dict(theirs("a b c d e", max_length=4))
    assert dict(ours(["a", "b"], is_split_into_words=True)) == dict(theirs(["a", "b"], is_split_into_words=True))
    assert dict(ours([("a", "b"), ("c", "")])) == dict(theirs([("a", "b"), ("c", "")]))
    windows = {"truncation": True, "max_length": 4, "return_overflowing_tokens": True}
    assert dict(ours("a b c d e", **windows)) == dict(theirs("a b c d e", **windows))
    for kind in ("pt", "np"):
        got, expected = ours("hello", return_tensors=kind), theirs("hello", return_tensors=kind)
        assert {k: (v.tolist(), v.dtype) for k, v in got.items()} == {
            k: (v.tolist(), v.dtype) for k, v in expected.items()
        }
        assert got.keys() == expected.keys()
        assert got.offsets == [[(0, 0), (0, 5), (0, 0)]]


@pytest.mark.parametrize("vocab", [b"\r\n".join, b"\n".join])
@pytest.mark.parametrize("tail", [b"", b"\n", b"\n\n"])
def test_an_odd_vocab_txt_gives_the_ids_that_transformers_gives(vocab: Any, tail: bytes, tmp_path: Path) -> None:
    lines = [
        b"[PAD]",
        b"[UNK]",
        b"[CLS]",
        b"[SEP]",
        b"[MASK]",
        b"a",
        b"b \t",
        b"\xe2\x80\xa8x",
        b"a",
        b"##b",
        b"\xc2\x85c",
    ]
    (tmp_path / "vocab.txt").write_bytes(vocab(lines) + tail)
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    with pytest.warns(UserWarning, match="'a' in line 6 and again in line 9"):
        ours = BertTokenizer.from_pretrained(tmp_path)
    theirs = transformers.BertTokenizer.from_pretrained(tmp_path)
    assert ours("a b ab c [MASK]")["input_ids"] == theirs("a b ab c [MASK]")["input_ids"]
    assert ours.get_vocab() == {token: number for token, number in theirs.get_vocab().items() if token}

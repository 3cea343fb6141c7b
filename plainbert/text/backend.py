"""Tokenizer files to a ``tokenizers.Tokenizer`` that is complete and never changes afterwards.

Read ``build`` first. What a tokenizer.json says is kept; tokenizer_config.json overrides the three switches of
BERT's normaliser. Padding and truncation stored in tokenizer.json are dropped: they belong to the caller.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from plainbert.errors import TokenizerError, warn
from plainbert.text.special import MAX_ADDED_TOKENS, SpecialTokens, add_declared_tokens, find_special_tokens
from plainbert.text.vocab import looks_cased, read_bounded, read_vocab

# The largest published tokenizer.json of this family is XLM-R's, 17 MB.
MAX_TOKENIZER_BYTES = 64 * 1024 * 1024
# config key -> (attribute of the normaliser, a text that shows whether it is on, what becomes of it then)
_SWITCHES = {
    "do_lower_case": ("lowercase", "A", "a"),
    "strip_accents": ("strip_accents", "é", "e"),
    "tokenize_chinese_chars": ("handle_chinese_chars", "的", " 的 "),
}
# Keys of the old slow tokenizers that would change the result, with the values that mean what is done here.
_ONLY_VALUES: dict[str, tuple[object, ...]] = {
    "do_basic_tokenize": (True, None),
    "never_split": (None, []),
    "wordpieces_prefix": ("##", None),
    "clean_text": (True, None),
}
# Classes whose vocab.txt alone means BERT's WordPiece. Others (BertJapaneseTokenizer ...) split words in a way of
# their own that no vocab.txt tells.
_BERT_CLASSES = frozenset(
    {
        "BertTokenizer",
        "ConvBertTokenizer",
        "DPRContextEncoderTokenizer",
        "DPRQuestionEncoderTokenizer",
        "DPRReaderTokenizer",
        "DistilBertTokenizer",
        "ElectraTokenizer",
        "LayoutLMTokenizer",
        "LxmertTokenizer",
        "MobileBertTokenizer",
        "RetriBertTokenizer",
        "SqueezeBertTokenizer",
    }
)
_NEUTRAL_CLASSES = frozenset({"AutoTokenizer", "PreTrainedTokenizer", "TokenizersBackend"})


@dataclass(frozen=True)
class Backend:
    """A finished ``tokenizers.Tokenizer`` with the names of its special tokens.

    Attributes:
        switches: The switches of BERT's normaliser as they are in force; empty for a tokenizer without one.
    """

    tokenizer: Tokenizer
    special: SpecialTokens
    switches: dict[str, bool | None]


@contextmanager
def library_errors(doing: str) -> Iterator[None]:
    """Turn what the tokenizers library raises into a TokenizerError that says what was being done.

    The library raises bare ``Exception`` and ``ValueError`` for its own errors, and a failed assertion inside it
    arrives as pyo3's ``PanicException``, which is not even an ``Exception``. Everything else (interrupts, our own
    errors) passes.
    """
    try:
        yield
    except BaseException as error:
        if type(error) in (Exception, ValueError) or type(error).__name__ == "PanicException":
            raise TokenizerError(
                f"{doing} must succeed, got from the tokenizers library: {error}; correct the file or the text"
            ) from error
        raise


def build(
    source: bytes | Mapping[str, int],
    config: Mapping[str, Any],
    special_tokens_map: Mapping[str, Any],
    added_tokens: Mapping[str, Any],
) -> Backend:
    """Make the tokenizer from the bytes of a tokenizer.json, or from a vocabulary.

    Args:
        source: The content of tokenizer.json, or token to id.
        config: tokenizer_config.json.
        special_tokens_map: special_tokens_map.json.
        added_tokens: added_tokens.json, token to id.

    Raises:
        TokenizerError: The files are broken, hostile, or contradict each other.
    """
    if isinstance(source, bytes):
        tokenizer = parse_tokenizer(source)
        _override_switches(tokenizer, config)
    else:
        tokenizer = _wordpiece(source, config)
    _warn_of_unused_keys(config)
    with library_errors("adding the special tokens"):
        add_declared_tokens(tokenizer, config, added_tokens)
        special = find_special_tokens(tokenizer, config, special_tokens_map, not isinstance(source, bytes))
    if tokenizer.post_processor is None:
        tokenizer.post_processor = _template(tokenizer, special, isinstance(tokenizer.model, models.WordPiece))
    normalizer = _bert_normalizer(tokenizer)
    switches = {} if normalizer is None else {key: getattr(normalizer, _SWITCHES[key][0]) for key in _SWITCHES}
    return Backend(tokenizer, special, switches)


def read_source(tokenizer_json: Path | None, vocab_txt: Path | None) -> bytes | dict[str, int]:
    """Read what ``build`` starts from: a tokenizer.json if there is one, else a vocab.txt."""
    if tokenizer_json is not None:
        return read_bounded(Path(tokenizer_json), MAX_TOKENIZER_BYTES)
    if vocab_txt is not None:
        return read_vocab(Path(vocab_txt))
    raise TokenizerError("a tokenizer must have tokenizer.json or vocab.txt, got neither; add one")


def parse_tokenizer(raw: bytes) -> Tokenizer:
    """Parse the content of a tokenizer.json; padding and truncation stored in it are dropped.

    A regular expression in it is compiled by Oniguruma, which refuses endless recursion and deep nesting, and which
    gives up a single match after ten million steps.

    Raises:
        TokenizerError: Not a tokenizer, more than ``MAX_ADDED_TOKENS`` added tokens, an added token of no width.
    """
    # Counted before parsing: the library needs seconds and a gigabyte for a million. Only an added token has this key.
    count = raw.count(b'"content"')
    if count > MAX_ADDED_TOKENS:
        raise TokenizerError(
            f"tokenizer.json must have at most {MAX_ADDED_TOKENS} added tokens, got {count}; "
            "put them into the vocabulary"
        )
    with library_errors("reading tokenizer.json"):
        tokenizer = Tokenizer.from_buffer(raw.removeprefix(b"\xef\xbb\xbf"))
    # The library drops such a token without a word. A Replace normaliser may well have an empty content.
    if re.search(rb'"content"\s*:\s*""', raw):
        for token in json.loads(raw.decode("utf-8-sig"))["added_tokens"]:
            if not token["content"]:
                raise TokenizerError(
                    f"tokenizer.json must not have an added token of no width, got '' with id {token['id']}; remove it"
                )
    if isinstance(tokenizer.model, models.WordPiece) and tokenizer.token_to_id(tokenizer.model.unk_token) is None:
        raise TokenizerError(
            f"tokenizer.json must have its unk_token in the vocabulary, got {tokenizer.model.unk_token!r}, which is "
            "not; add it, or name another"
        )
    if tokenizer.get_vocab_size() == 0:
        raise TokenizerError("tokenizer.json must have a vocabulary, got 0 tokens; is the file complete?")
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def class_name(config: Mapping[str, Any]) -> str | None:
    """Return ``tokenizer_class`` of tokenizer_config.json without the old suffix ``Fast``."""
    name = config.get("tokenizer_class")
    return None if name is None else str(name).removesuffix("Fast")


def is_standard(tokenizer: Tokenizer, special: SpecialTokens) -> bool:
    """Whether ``BertTokenizer(vocab, switches)`` of transformers would build this very tokenizer.

    Source: what transformers 5.24 keeps of a tokenizer.json under that class, the vocabulary and nothing else.
    """
    state = json.loads(tokenizer.to_str())
    plain = json.loads(_skeleton(tokenizer, special).to_str())
    normalizer = state["normalizer"] or {}
    model = {key: value for key, value in state["model"].items() if key != "vocab"}
    return (
        model == {key: value for key, value in plain["model"].items() if key != "vocab"}
        and normalizer.get("type") == "BertNormalizer"
        and normalizer["clean_text"] is True
        and all(state[part] == plain[part] for part in ("pre_tokenizer", "decoder", "post_processor"))
    )


def _skeleton(tokenizer: Tokenizer, special: SpecialTokens) -> Tokenizer:
    unknown = special.named["unk_token"] or "[UNK]"
    plain = _bert_pipeline({unknown: 0}, unknown, {})
    plain.post_processor = _template(tokenizer, special, True)
    return plain


def _bert_pipeline(vocab: Mapping[str, int], unknown: str, switches: Mapping[str, bool | None]) -> Tokenizer:
    """BERT's own pipeline: clean, lower-case, split at blanks and punctuation, longest match first.

    Source: google-research/bert tokenization.py, except that a word of more than 100 characters is unknown, as
    everywhere since, and not one of more than 200.
    """
    tokenizer = Tokenizer(models.WordPiece(dict(vocab), unk_token=unknown, max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=switches.get("tokenize_chinese_chars") is not False,
        strip_accents=switches.get("strip_accents"),
        lowercase=switches.get("do_lower_case") is not False,
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    return tokenizer


def _wordpiece(vocab: Mapping[str, int], config: Mapping[str, Any]) -> Tokenizer:
    name = config.get("tokenizer_class")
    if name is not None and class_name(config) not in _BERT_CLASSES | _NEUTRAL_CLASSES:
        raise TokenizerError(
            f"tokenizer_class must be one that a vocab.txt alone describes, got {name!r}; save it as tokenizer.json"
        )
    switches = {key: _switch(config, key) for key in _SWITCHES if key in config}
    cased = looks_cased(vocab)
    if "do_lower_case" not in config and cased is not None:
        warn(
            f"text is lower-cased, as in transformers, because no tokenizer_config.json says otherwise, but the "
            f"vocabulary has tokens with capitals such as {cased!r}; pass do_lower_case=False if the model is cased"
        )
    unknown = config.get("unk_token", "[UNK]")
    if isinstance(unknown, Mapping):
        unknown = unknown.get("content")
    with library_errors("reading the vocabulary"):
        return _bert_pipeline(vocab, unknown if isinstance(unknown, str) else "[UNK]", switches)


def _switch(config: Mapping[str, Any], key: str) -> bool | None:
    value = config[key]
    if value is None and key != "strip_accents":
        return True
    if value is not None and not isinstance(value, bool):
        raise TokenizerError(
            f"{key} must be true, false or null in tokenizer_config.json, got {value!r:.60}; write one of them"
        )
    return value


def _override_switches(tokenizer: Tokenizer, config: Mapping[str, Any]) -> None:
    """Let tokenizer_config.json override the normaliser of tokenizer.json, as transformers does.

    Where the config does not speak, tokenizer.json's own value stays. transformers' BertTokenizer takes its class
    defaults there, and so lower-cases for a tokenizer.json that says not to: warned of, not copied.
    """
    if not isinstance(tokenizer.model, models.WordPiece):
        return
    normalizer = _bert_normalizer(tokenizer)
    for key, (attribute, sample, changed) in _SWITCHES.items():
        if key in config:
            value = _switch(config, key)
            if normalizer is not None:
                setattr(normalizer, attribute, value)
            elif value is not None and value != (_normalized(tokenizer, sample) == changed):
                warn(
                    f"{key}={value} of tokenizer_config.json has no effect: the normaliser in tokenizer.json is "
                    "not BERT's and does otherwise"
                )
        elif normalizer is not None and (class_name(config) or "BertTokenizer") in _BERT_CLASSES:
            value, default = getattr(normalizer, attribute), None if key == "strip_accents" else True
            if value != default:
                warn(
                    f"{key} is {value}, as tokenizer.json says; tokenizer_config.json does not give it, and "
                    f"transformers then takes {default} and may give other ids: write {key} into tokenizer_config.json"
                )


def _normalized(tokenizer: Tokenizer, text: str) -> str:
    if tokenizer.normalizer is None:
        return text
    with library_errors("normalising a text"):
        return str(tokenizer.normalizer.normalize_str(text))


def _bert_normalizer(tokenizer: Tokenizer) -> normalizers.BertNormalizer | None:
    """BERT's normaliser inside ``tokenizer``, alone or in a sequence; setting its attributes acts in place."""
    normalizer = tokenizer.normalizer
    if isinstance(normalizer, normalizers.BertNormalizer):
        return normalizer
    if isinstance(normalizer, normalizers.Sequence):
        for index in range(len(json.loads(normalizer.__getstate__())["normalizers"])):
            if isinstance(normalizer[index], normalizers.BertNormalizer):
                return normalizer[index]
    return None


def _template(tokenizer: Tokenizer, special: SpecialTokens, is_wordpiece: bool) -> processors.TemplateProcessing:
    """What surrounds a text where no tokenizer.json says it: [CLS] and [SEP] for WordPiece, nothing otherwise."""
    first, last = special.named["cls_token"], special.named["sep_token"]
    if not is_wordpiece or first is None or last is None:
        return processors.TemplateProcessing(single="$A:0", pair="$A:0 $B:1", special_tokens=[])
    return processors.TemplateProcessing(
        single=[first, "$A", last],
        pair=[f"{first}:0", "$A:0", f"{last}:0", "$B:1", f"{last}:1"],
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in (first, last)],
    )


def _warn_of_unused_keys(config: Mapping[str, Any]) -> None:
    for key, accepted in _ONLY_VALUES.items():
        if key in config and config[key] not in accepted:
            warn(f"{key}={config[key]!r} of tokenizer_config.json has no effect here nor in transformers 5")

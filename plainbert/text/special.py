"""Which tokens are special, and by what name: ``cls_token``, ``[MASK]``, the added ones.

They are written in up to four files that may disagree. The order is that of transformers: tokenizer_config.json;
over it special_tokens_map.json, unless the config lists ``added_tokens_decoder``; below both the usual names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken, Tokenizer

from plainbert.errors import TokenizerError, warn
from plainbert.text.arguments import flag

ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_BERT_NAMES = {
    "unk_token": "[UNK]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}
# What RoBERTa, XLM-R and CamemBERT call theirs; taken only where the tokenizer declares them as special.
_ROBERTA_NAMES = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "sep_token": "</s>",
    "pad_token": "<pad>",
    "cls_token": "<s>",
    "mask_token": "<mask>",
}
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
# A million added tokens take seconds and a gigabyte to load; no checkpoint of this family has a thousand.
MAX_ADDED_TOKENS = 100_000


@dataclass(frozen=True)
class SpecialTokens:
    """The special tokens of one tokenizer.

    Attributes:
        named: Role (``cls_token`` ...) to token; None where the tokenizer has no such token.
        extra: Special tokens without a role (``additional_special_tokens``).
    """

    named: dict[str, str | None]
    extra: tuple[str, ...]


def added_token(value: object, where: str, special: bool = True) -> AddedToken:
    """Read one token as the files write it: a string, or an object with ``content`` and flags.

    Raises:
        TokenizerError: It is neither, or its content is empty (a token of no width matches everywhere).
    """
    flags: dict[str, Any] = {}
    content = value
    if isinstance(value, AddedToken):
        content, flags = value.content, {name: getattr(value, name) for name in _FLAGS}
    elif isinstance(value, Mapping):
        content = value.get("content")
        for name in _FLAGS:
            if name in value:
                flags[name] = flag(value[name], f"{where}: {name}")
    if not isinstance(content, str):
        raise TokenizerError(
            f"{where} must be a token (text, or an object with 'content'), got {value!r:.60}; write the token"
        )
    if not content:
        raise TokenizerError(f"{where} must be a token of at least one character, got {content!r}; remove it")
    flags.setdefault("special", special)
    flags.setdefault("normalized", not flags["special"])
    return AddedToken(content, **flags)


def add_declared_tokens(backend: Tokenizer, config: Mapping[str, Any], added_tokens: Mapping[str, Any]) -> None:
    """Add the tokens that tokenizer_config.json (``added_tokens_decoder``) or added_tokens.json declare with ids.

    Raises:
        TokenizerError: A token would not get the id that is declared for it; transformers loads such a file, and
            the token then means another row of the embedding.
    """
    declared: dict[int, AddedToken] = {}
    decoder = config.get("added_tokens_decoder")
    if decoder is not None:
        if not isinstance(decoder, Mapping):
            raise TokenizerError(
                f"added_tokens_decoder must be an object of id to token, got {decoder!r:.60}; write one or none"
            )
        for key, value in decoder.items():
            declared[_token_id(key, "added_tokens_decoder")] = added_token(
                value, f"added_tokens_decoder[{key}]", special=False
            )
    else:
        for content, key in added_tokens.items():
            declared[_token_id(key, "added_tokens.json")] = added_token(content, "added_tokens.json", special=False)
    if len(declared) > MAX_ADDED_TOKENS:
        raise TokenizerError(
            f"added tokens must be at most {MAX_ADDED_TOKENS}, got {len(declared)}; put them into the vocabulary"
        )
    known = backend.get_added_tokens_decoder()
    missing = [(number, token) for number, token in sorted(declared.items()) if repr(known.get(number)) != repr(token)]
    backend.add_tokens([token for _, token in missing])
    for number, token in missing:
        got = backend.token_to_id(token.content)
        if got != number:
            raise TokenizerError(
                f"added token {token.content!r} must have the id {number} that tokenizer_config.json or "
                f"added_tokens.json declares, got {got} in this vocabulary; the files do not belong together"
            )


def find_special_tokens(
    backend: Tokenizer, config: Mapping[str, Any], special_tokens_map: Mapping[str, Any], from_vocab: bool
) -> SpecialTokens:
    """Name the special tokens and mark them as such in ``backend``.

    A token with a role that the vocabulary lacks is not added to it (it would get an id beyond the embedding): the
    role is None, with a warning where a file names it. Extra special tokens are added, as in transformers.

    Args:
        from_vocab: Whether ``backend`` was made from a bare vocabulary. It then needs [UNK], [CLS] and [SEP]; a
            tokenizer.json says by itself what a text is surrounded with.

    Raises:
        TokenizerError: A value is not a token; or a token that a bare vocabulary needs is not in it.
    """
    declared = {role: config[role] for role in ROLES if role in config}
    extra = _extra(config)
    if config.get("added_tokens_decoder") is None:
        declared |= {role: special_tokens_map[role] for role in ROLES if role in special_tokens_map}
        extra += [value for value in _extra(special_tokens_map) if value not in extra]
    known = {token.content: token for token in backend.get_added_tokens_decoder().values()}
    usual = _BERT_NAMES if from_vocab else _names_in_use(backend, known)

    named: dict[str, str | None] = dict.fromkeys(ROLES)
    to_mark = [added_token(value, "additional_special_tokens") for value in extra]
    for role in ROLES:
        value = declared.get(role, usual.get(role))
        if value is None:
            continue
        token = added_token(value, role)
        if backend.token_to_id(token.content) is None:
            _report_missing(role, token.content, from_vocab)
            continue
        named[role] = token.content
        stored = known.get(token.content)
        # A bare name says nothing about the flags, so those that the tokenizer has for it stay.
        if not (isinstance(value, str) and stored is not None and stored.special):
            to_mark.append(token)
    _add_and_check_ids(backend, to_mark)
    return SpecialTokens(named, tuple(added_token(value, "additional_special_tokens").content for value in extra))


def _names_in_use(backend: Tokenizer, known: Mapping[str, AddedToken]) -> dict[str, str]:
    """Return the usual names that a tokenizer.json really has: BERT's, else RoBERTa's."""
    names: dict[str, str] = {}
    for role in ROLES:
        bert, roberta = _BERT_NAMES.get(role), _ROBERTA_NAMES[role]
        if bert is not None and backend.token_to_id(bert) is not None:
            names[role] = bert
        elif roberta in known:
            names[role] = roberta
    unknown = getattr(backend.model, "unk_token", None)
    if unknown is not None and backend.token_to_id(unknown) is not None:
        names["unk_token"] = unknown
    return names


def _report_missing(role: str, content: str, from_vocab: bool) -> None:
    if from_vocab and role in ("unk_token", "cls_token", "sep_token"):
        raise TokenizerError(
            f"the vocabulary must contain {role} {content!r}, got none; a BERT text cannot be written without it: "
            f"add the token, or name the right one with {role!r} in tokenizer_config.json"
        )
    warn(
        f"the vocabulary does not contain {role} {content!r}: {role} is None. It is not added to the vocabulary, "
        "because its id would lie beyond the model's embedding"
    )


def _extra(source: Mapping[str, Any]) -> list[Any]:
    """Special tokens without a role, under the name that transformers 4 or 5 gave them."""
    values: list[Any] = []
    for key in ("additional_special_tokens", "extra_special_tokens"):
        given = source.get(key)
        if given is None:
            continue
        if isinstance(given, Mapping):
            given = list(given.values())
        if not isinstance(given, (list, tuple)):
            raise TokenizerError(f"{key} must be a list of tokens, got {given!r:.60}; write a list")
        values += [value for value in given if value not in values]
    return values


def _token_id(value: object, where: str) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31:
        return value
    raise TokenizerError(f"{where} must give ids as whole numbers from 0, got {value!r:.60}; correct it")


def _add_and_check_ids(backend: Tokenizer, tokens: list[AddedToken]) -> None:
    new = [token.content for token in tokens if backend.token_to_id(token.content) is None]
    backend.add_tokens(tokens)
    if not new:
        return
    # The library counts tokens to find the next id, which is taken where the vocabulary has gaps.
    taken = {number: token for token, number in backend.get_vocab(with_added_tokens=False).items()}
    for content in new:
        number = backend.token_to_id(content)
        owner = content if number is None else taken.get(number, content)
        if owner != content:
            raise TokenizerError(
                f"special token {content!r} must have an id of its own, got {number}, the id of {owner!r}; "
                "the vocabulary has gaps (blank or repeated lines): remove them or add the token to the vocabulary"
            )

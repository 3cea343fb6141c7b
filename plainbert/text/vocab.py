"""vocab.txt: one WordPiece token a line, the line number is the id.

The file comes from strangers, so everything about it is bounded and said: its size, its lines, its encoding.
``backend.py`` turns what is read here into a tokenizer.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from plainbert.errors import MissingFileError, TokenizerError, warn

# The largest published BERT vocabulary (LaBSE) has 501,153 lines in 5.2 MB.
MAX_VOCAB_BYTES = 32 * 1024 * 1024
MAX_VOCAB_LINES = 2_000_000
# What the tokenizers library trims from the end of a line (Unicode White_Space); Python's own list is longer.
_LINE_END = " \t\n\x0b\x0c\r\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))


def read_bounded(path: Path, most_bytes: int) -> bytes:
    """Read a tokenizer's file, whose size is looked at first.

    Raises:
        TokenizerError: It has more than ``most_bytes``, or is unreadable.
        MissingFileError: There is no such file.
    """
    try:
        size = path.stat().st_size
        if size > most_bytes:
            raise TokenizerError(
                f"{path.name} must have at most {most_bytes} bytes, got {size} in {path}; is this the right file?"
            )
        return path.read_bytes()
    except FileNotFoundError:
        raise MissingFileError(f"{path.name} must exist, got {path}; check the folder") from None
    except OSError as error:
        raise TokenizerError(f"{path.name} must be a readable file, got {path} ({error.strerror}); check it") from error


def read_vocab(path: Path) -> dict[str, int]:
    """Read a vocab.txt.

    A byte order mark, carriage returns and blanks at the end of a line are no part of a token. A blank line is no
    token, though it counts as a line. A token that occurs again keeps its last id, as in transformers, with one
    warning.

    Returns:
        Token to id; the ids are line numbers from 0, with a gap where a line was blank or repeated.

    Raises:
        TokenizerError: The file is too large, too long, not UTF-8, or holds no token.
        MissingFileError: There is no such file.
    """
    raw = read_bounded(path, MAX_VOCAB_BYTES)
    lines = raw.count(b"\n") + 1
    if lines > MAX_VOCAB_LINES:
        raise TokenizerError(
            f"{path.name} must have at most {MAX_VOCAB_LINES} lines, got {lines} in {path}; this is not a vocabulary"
        )
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise TokenizerError(
            f"{path.name} must be UTF-8, got byte 0x{raw[error.start]:02x} in line {line} of {path}; convert the file"
        ) from None
    vocab = parse_vocab(text, path.name)
    if not vocab:
        raise TokenizerError(
            f"{path.name} must hold one token a line, got {len(raw)} bytes without any in {path}; is the file complete?"
        )
    return vocab


def parse_vocab(text: str, name: str = "vocab.txt") -> dict[str, int]:
    """Number the tokens of ``text`` by line; the rules are those of ``read_vocab``."""
    vocab: dict[str, int] = {}
    repeated: tuple[str, int, int] | None = None
    # Not splitlines(): tokens may be, or hold, characters that Python takes for line ends (U+2028, U+0085).
    for number, line in enumerate(text.split("\n")):
        token = line.rstrip(_LINE_END)
        if not token:
            continue
        if token in vocab and repeated is None:
            repeated = (token, vocab[token], number)
        vocab[token] = number
    if repeated is not None:
        token, first, second = repeated
        warn(
            f"{name} has the token {token!r} in line {first + 1} and again in line {second + 1}; the last line gives "
            f"the id, as in transformers, so nothing has the id {first}"
        )
    return vocab


def given_vocab(vocab: object, vocab_file: object) -> dict[str, int]:
    """Read the vocabulary that a caller gives under one name or the other: a vocab.txt, or token to id."""
    if (vocab is None) == (vocab_file is None):
        raise TokenizerError(
            f"vocab must be given once, got vocab={vocab!r:.60} and vocab_file={vocab_file!r:.60}; pass one"
        )
    given = vocab_file if vocab is None else vocab
    if isinstance(given, Mapping):
        return check_vocab(given)
    if not isinstance(given, (str, os.PathLike)):
        raise TokenizerError(f"vocab must be a path or a mapping of token to id, got {given!r:.60}; pass one of them")
    return read_vocab(Path(given))


def check_vocab(vocab: Mapping[str, int]) -> dict[str, int]:
    """Check a vocabulary given as a dictionary: text to whole numbers from 0, no number twice."""
    if not vocab:
        raise TokenizerError("vocab must hold at least one token, got an empty dictionary; add tokens")
    owner: dict[int, str] = {}
    for token, number in vocab.items():
        if not isinstance(token, str) or not token:
            raise TokenizerError(f"vocab must map text to ids, got the token {token!r:.60}; take it out")
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 2**31:
            raise TokenizerError(f"vocab must map tokens to ids from 0, got {token!r}: {number!r:.60}; correct it")
        if number in owner:
            raise TokenizerError(
                f"vocab must give a token its own id, got {number} for {owner[number]!r} and {token!r}; renumber them"
            )
        owner[number] = token
    return dict(vocab)


def format_vocab(vocab: Mapping[str, int]) -> str | None:
    """Write ``vocab`` as the text of a vocab.txt, or None where that file could not hold it.

    A line can hold neither a line end nor blanks at its end, and a vocabulary of few tokens with huge ids would be
    a file of empty lines.
    """
    last = max(vocab.values(), default=-1)
    if last >= MAX_VOCAB_LINES or any("\n" in token or token.rstrip(_LINE_END) != token for token in vocab):
        return None
    lines = [""] * (last + 1)
    for token, number in vocab.items():
        lines[number] = token
    return "\n".join(lines) + "\n"


def looks_cased(vocab: Mapping[str, int]) -> str | None:
    """Return the first token with a capital letter that is not a bracketed special token such as ``[CLS]``."""
    for token in vocab:
        if token[0] not in "[<" and any(letter.isupper() for letter in token):
            return token
    return None

"""What is checked about a checkpoint's file before its content is believed.

Here: opening (regular files only, never blocking), recognising what is not a weight file, and JSON that cannot
exhaust the reader. `layout` decides which files these are, `tensors` and `pickled` read them.
"""

from __future__ import annotations

import json
import os
import re
import reprlib
import stat
from collections import Counter
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from plainbert.errors import CheckpointError, MissingFileError

MAX_JSON_DEPTH = 64
MAX_JSON_ITEMS = 1_500_000  # brackets and commas; the tokenizer.json of XLM-RoBERTa has a million
MAX_NUMBER_DIGITS = 100

_NEITHER_BRACKET_NOR_QUOTE = bytes(set(range(256)) - set(b'[]{}"'))
_STRING = re.compile(rb'"[^"]*"')
_LONG_NUMBER = re.compile(rb"[0-9]{%d}" % (MAX_NUMBER_DIGITS + 1))

_FIRST_BYTES = (
    (b"version https://git-lfs", "a Git LFS pointer (the text that stands for the file); run `git lfs pull`"),
    (b"<", "an HTML or XML page; the download was answered by a web page, fetch the file itself"),
    (b"{", "JSON text; the download was answered by a message, fetch the file itself"),
    (b"PK\x03\x04", "a zip archive; a checkpoint saved by torch.save is named pytorch_model.bin"),
    (b"\x80\x02", "a Python pickle; a checkpoint saved by torch.save is named pytorch_model.bin"),
)

_SHORT = reprlib.Repr()
_SHORT.maxlevel = 3
_SHORT.maxstring = _SHORT.maxother = 80


class _Refused:
    """Stands in parsed JSON for a number that is not one, until the key it belongs to is known."""

    def __init__(self, literal: str) -> None:
        self.literal = literal


def show(value: object) -> str:
    """Quote an untrusted value for a message: escaped, at most 160 characters.

    Cut while it is built, as a few nested references can stand for gigabytes of text.
    """
    text = _SHORT.repr(value).encode("ascii", "backslashreplace").decode()
    return text if len(text) <= 160 else text[:157] + "..."


def show_some(values: list[str]) -> str:
    """Quote the first five values and count the rest."""
    rest = f" and {len(values) - 5} more" if len(values) > 5 else ""
    return ", ".join(show(value) for value in values[:5]) + rest


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for unbuffered reading, without ever waiting for it.

    A FIFO would block the open and a device never ends, so the kind is checked before opening, and again on what
    was opened, since the name may be given to something else in between.

    Args:
        path: The file.

    Returns:
        The open file, unbuffered: `readinto` goes straight into the caller's memory.

    Raises:
        MissingFileError: Nothing has that name.
        CheckpointError: It is a folder, a FIFO, a device or a socket, or may not be read.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
    try:
        _require_regular(path, os.stat(path).st_mode)
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        raise MissingFileError(
            f"{path} must be a file, got nothing of that name (or a broken link); check the path"
        ) from None
    except OSError as error:
        raise CheckpointError(f"{path} must be readable, got {error.strerror}; check its permissions") from error
    try:
        _require_regular(path, os.fstat(descriptor).st_mode)
    except CheckpointError:
        os.close(descriptor)
        raise
    return open(descriptor, "rb", buffering=0)


def _require_regular(path: Path, mode: int) -> None:
    kinds = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"))
    if not stat.S_ISREG(mode):
        kind = next((name for test, name in kinds if test(mode)), "a device")
        raise CheckpointError(f"{path} must be a regular file, got {kind}; put the weight file itself there")


def read_at_most(file: BinaryIO, count: int) -> bytes:
    """Read `count` bytes from an unbuffered file, or what there is up to its end."""
    parts = []
    while count > 0 and (part := file.read(count)):
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def refuse_known_strangers(path: Path, size: int, head: bytes, wanted: str) -> None:
    """Refuse what is often found under a weight file's name, saying what it is.

    Args:
        path: The file.
        size: Its size in bytes.
        head: Its first bytes, at least 32 where it has them.
        wanted: What it ought to be, for the message.

    Raises:
        CheckpointError: It is empty, a Git LFS pointer, a web page, or a file of another format.
    """
    if size == 0:
        raise CheckpointError(f"{path} must be {wanted}, got an empty file; download it again")
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    for start, kind in _FIRST_BYTES:
        if head.startswith(start) or text.startswith(start):
            raise CheckpointError(f"{path} must be {wanted}, got {kind}")


def parse_object(data: bytes, where: str) -> dict[str, Any]:
    """Parse JSON bytes into a dictionary, refusing what the json module lets pass.

    Args:
        data: UTF-8 text.
        where: What it is, for messages: usually the path.

    Returns:
        The object. Numbers are finite, no key occurs twice, strings can be encoded.

    Raises:
        CheckpointError: Not UTF-8, not JSON, not an object, nested deeper than 64, more than 1.5 million brackets and
            commas, a key given twice, NaN, Infinity, a float beyond the range (1e400), an integer of more than 100
            digits, or half a surrogate pair.
    """

    def refuse(rule_and_value: str) -> NoReturn:
        raise CheckpointError(f"{where} must {rule_and_value}; correct it, or download it again") from None

    # The json module recurses once per level and makes an object per item, so both are bounded on the bytes: without
    # strings, only brackets remain, and every round removes at least the innermost pair of each.
    skeleton = data.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, delete=_NEITHER_BRACKET_NOR_QUOTE)
    brackets = _STRING.sub(b"", skeleton.replace(b'""', b""))
    if data.count(b",") + len(brackets) > MAX_JSON_ITEMS:
        refuse(f"hold at most {MAX_JSON_ITEMS} items, got more")
    for _ in range(MAX_JSON_DEPTH):
        before, brackets = len(brackets), brackets.replace(b"[]", b"").replace(b"{}", b"")
        if len(brackets) == before:
            break
    if len(brackets) > MAX_JSON_DEPTH:
        refuse(f"be JSON nested at most {MAX_JSON_DEPTH} deep, got deeper or broken JSON")

    def pairs_to_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
            refuse(f"give each key once, got {show(twice)} twice")
        for key, value in pairs:
            if isinstance(value, (_Refused, list)) and (refused := _refused_number(value)):
                refuse(f"have a finite number for {show(key)}, got {show(refused.literal)[1:-1]}")
        return found

    try:
        parsed = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=pairs_to_dict,
            parse_constant=_Refused,
            parse_float=lambda text: number if abs(number := float(text)) != float("inf") else _Refused(text),
            # int() of many digits takes quadratic time; a function called for each number takes time too
            parse_int=_short_int if _LONG_NUMBER.search(data) else int,
        )
        if b"\\u" in data:  # only an escape can make half a surrogate pair, and no file or name can hold one
            json.dumps(parsed, ensure_ascii=False, default=str).encode("utf-8")
    except UnicodeDecodeError as error:
        refuse(f"be UTF-8, got byte {error.object[error.start]:#04x}")
    except UnicodeEncodeError:
        refuse("be Unicode text, got a lone surrogate (\\ud800 to \\udfff)")
    except json.JSONDecodeError as error:
        refuse(f"be JSON, got {error.msg} at line {error.lineno}")
    if not isinstance(parsed, dict):
        got = show(parsed.literal) if isinstance(parsed, _Refused) else type(parsed).__name__
        refuse(f"be a JSON object, got {got}")
    return parsed


def _short_int(text: str) -> int | _Refused:
    return int(text) if len(text) <= MAX_NUMBER_DIGITS else _Refused(text)


def _refused_number(value: Any) -> _Refused | None:
    """Find the first refused number in a value or in lists of lists of them; depth is bounded by the caller."""
    if isinstance(value, list):
        return next((found for item in value if (found := _refused_number(item))), None)
    return value if isinstance(value, _Refused) else None

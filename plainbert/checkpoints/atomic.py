"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from plainbert.errors import CheckpointError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give an empty temporary file beside ``path``, which takes its name when the block ends without an error.

    What is written is on the disk before the name changes, so that a crash leaves either file and never half of one.

    Raises:
        CheckpointError: the file cannot be written; the old one is as it was.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        # A writer may make files that only their owner can read; a file made here has the mode of any new file.
        descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        os.close(descriptor)
        try:
            yield temporary
            _flush_to_disk(temporary, os.O_RDWR)  # Windows flushes only what is open for writing
            os.chmod(temporary, mode)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise CheckpointError(f"{path} must be writable, got {error.strerror or error}; nothing was changed") from error
    if os.name == "posix":  # Windows opens no folders
        with suppress(OSError):  # nor does every file system flush them; the file is whole either way
            _flush_to_disk(path.parent, os.O_RDONLY)


def _flush_to_disk(path: Path, flags: int) -> None:
    """Wait until a file, or a folder's list of names, is on the disk."""
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
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
            os.chmod(temporary, mode)
            flush_to_disk(temporary)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        flush_to_disk(path.parent)
    except OSError as error:
        raise CheckpointError(f"{path} must be writable, got {error.strerror or error}; nothing was changed") from error


def flush_to_disk(path: Path) -> None:
    """Wait until a file, or a folder's list of names, is on the disk."""
    if os.name == "nt" and path.is_dir():
        return  # Windows opens no folders
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

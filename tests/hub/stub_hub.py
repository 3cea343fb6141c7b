"""A Hub on this machine that says what the real one says, and misbehaves on request.

Serves plain HTTP on a free port of 127.0.0.1 from a thread. It knows the routes that huggingface_hub uses for models
(``/{repo}/resolve/{revision}/{file}``, HEAD and GET with Range, and ``/api/models/{repo}[/revision/{revision}]``) and
answers 404 to all others, as mirrors do. Asked for through the fixture ``stub_hub`` in ``conftest.py``.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class StubHub:
    """A Hub with one repo, whose ``main`` is a folder.

    Start one with ``with StubHub(folder) as hub``; processes that get ``hub.environment(cache)`` as their environment
    find it in place of the real one, by the repo id ``hub.repo``. HF_ENDPOINT is read when huggingface_hub is imported,
    so downloads from here need a fresh process.

    Attributes:
        repo: The repo id, ``plain/tiny``.
        commits: Commit hash -> {file name: bytes}.
        refs: Branch or tag -> commit hash; ``main`` is the folder.
        requests: Every request so far, as (method, path), in order. See also ``count``.
        answers: File name, or ``*`` for all -> list of (status, X-Error-Code or None), one used up by each request.
        token: When set, requests without this token are answered 401, as for a private repo.
        redirect: Answer with 307 to another path of this server.
        cut: How many bodies still to break off half-way, by closing the connection.
        pause_s: Seconds to wait before each sixteenth of a body.
        mute_s: Seconds to wait before any answer.
        plain: Be a plain file server: no API route, and a 404 without an X-Error-Code.
    """

    repo = "plain/tiny"

    def __init__(self, folder: Path) -> None:
        self.commits: dict[str, dict[str, bytes]] = {}
        self.refs: dict[str, str] = {}
        self.requests: list[tuple[str, str]] = []
        self.answers: dict[str, list[tuple[int, str | None]]] = {}
        self.token: str | None = None
        self.redirect = False
        self.cut = 0
        self.pause_s = 0.0
        self.mute_s = 0.0
        self.plain = False
        self.commit(folder)

    def commit(self, folder: Path, *refs: str) -> str:
        """Make a commit of the folder as it is now, point ``main`` (or other refs) to it, give its hash."""
        files = {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
        digest = hashlib.sha1(str(len(self.commits)).encode())
        for name, body in files.items():
            digest.update(name.encode() + body)
        self.commits[digest.hexdigest()] = files
        self.refs.update(dict.fromkeys(refs or ("main",), digest.hexdigest()))
        return digest.hexdigest()

    def count(self, method: str | None = None, ending: str = "") -> int:
        """Count requests for the repo, by method and by how the path ends."""
        return sum(
            path.endswith(ending) and self.repo in path and method in (None, asked) for asked, path in self.requests
        )

    def environment(self, cache: Path) -> dict[str, str]:
        """The environment of a process that sees this Hub, and keeps its files in ``cache``."""
        return {
            **os.environ,
            "HF_ENDPOINT": self.url,
            "HF_HOME": str(cache.parent / "hf-home"),
            "HF_HUB_CACHE": str(cache),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "NO_PROXY": "127.0.0.1",
        }

    def __enter__(self) -> StubHub:
        hub = self

        class Bound(_Answer):
            pass

        Bound.hub = hub
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Bound)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


class _Answer(BaseHTTPRequestHandler):
    hub: StubHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(body_too=False)

    def do_GET(self) -> None:
        self._answer(body_too=True)

    def _answer(self, body_too: bool) -> None:
        hub, path = self.hub, urllib.parse.unquote(self.path)
        hub.requests.append((self.command, path))
        time.sleep(hub.mute_s)
        try:
            if path.startswith(f"/api/models/{hub.repo}") and not hub.plain:
                self._api(path)
            elif path.startswith((f"/{hub.repo}/resolve/", f"/elsewhere/{hub.repo}/resolve/")):
                self._resolve(path, body_too)
            elif "/resolve/" in path or path.startswith("/api/models/"):
                self._send(404, error="RepoNotFound")
            else:
                self._send(404)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the other side was killed

    def _send(self, status: int, body: bytes = b"", error: str | None = None, **headers: str) -> None:
        self.send_response(status)
        if error and not self.hub.plain:
            self.send_header("X-Error-Code", error)
            self.send_header("X-Error-Message", error)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _refused(self, filename: str) -> bool:
        hub = self.hub
        for key in (filename, "*"):
            if hub.answers.get(key):
                status, error = hub.answers[key].pop(0)
                self._send(status, error=error)
                return True
        if hub.token is not None and self.headers.get("Authorization") != f"Bearer {hub.token}":
            self._send(401, error="RepoNotFound")
            return True
        return False

    def _api(self, path: str) -> None:
        revision = path.partition("/revision/")[2] or "main"
        commit = self.hub.refs.get(revision, revision)
        if self._refused("api"):
            return
        if commit not in self.hub.commits:
            self._send(404, error="RevisionNotFound")
            return
        files = [{"rfilename": name} for name in self.hub.commits[commit]]
        info = {"id": self.hub.repo, "modelId": self.hub.repo, "sha": commit, "siblings": files, "tags": []}
        self._send(200, json.dumps(info).encode(), Content_Type="application/json")

    def _resolve(self, path: str, body_too: bool) -> None:
        hub = self.hub
        rest = path.partition("/resolve/")[2]
        # A branch may hold a slash, as refs/pr/1 does: take the longest one that is known.
        known = [ref for ref in (*hub.refs, *hub.commits) if rest.startswith(f"{ref}/")]
        revision = max(known, key=len, default=rest.partition("/")[0])
        filename = rest[len(revision) + 1 :]
        commit = hub.refs.get(revision, revision)
        if self._refused(filename):
            return
        if commit not in hub.commits:
            self._send(404, error="RevisionNotFound")
            return
        body = hub.commits[commit].get(filename)
        if body is None:
            headers = {} if hub.plain else {"X_Repo_Commit": commit}
            self._send(404, error="EntryNotFound", **headers)
            return
        if hub.redirect and not path.startswith("/elsewhere/"):
            self._send(307, Location=f"/elsewhere{self.path}")
            return
        self._file(commit, body, body_too)

    def _file(self, commit: str, body: bytes, body_too: bool) -> None:
        hub, first = self.hub, 0
        asked = self.headers.get("Range")
        if asked and body_too:
            first = int(asked.removeprefix("bytes=").partition("-")[0])
        self.send_response(206 if first else 200)
        if first:
            self.send_header("Content-Range", f"bytes {first}-{len(body) - 1}/{len(body)}")
        self.send_header("X-Repo-Commit", commit)
        self.send_header("ETag", f'"{hashlib.sha256(body).hexdigest()}"')
        self.send_header("X-Linked-Size", str(len(body)))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(body) - first))
        self.end_headers()
        if not body_too:
            return
        rest = body[first:]
        if hub.cut > 0:
            hub.cut -= 1
            rest, self.close_connection = rest[: len(rest) // 2], True
        step = max(1, -(-len(rest) // 16))
        for start in range(0, len(rest), step):
            time.sleep(hub.pause_s)
            self.wfile.write(rest[start : start + step])
            self.wfile.flush()

"""A Hub on this machine, a tiny checkpoint to put there, and processes that load from it."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import plainbert

CHILD = """
import hashlib, json, sys, warnings
from plainbert.checkpoints.hub import find
from plainbert.errors import PlainBertError

job = json.loads(sys.argv[1])
told = {"files": {}}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    try:
        source = find(job["name"], **job["keywords"])
        for name in job["files"]:
            path = source.path(name)
            told["files"][name] = path and hashlib.sha256(path.read_bytes()).hexdigest()
        for name in job["required"]:
            source.require(name)
        told["commit"] = source.commit
        if job["listing"]:
            told["listing"] = source.filenames()
    except PlainBertError as error:
        told["error"] = [type(error).__name__, str(error)]
told["warnings"] = [str(one.message) for one in caught if one.category.__name__ == "PlainBertWarning"]
print(json.dumps(told))
"""


def _stub_hub_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("plainbert_stub_hub", Path(__file__).with_name("stub_hub.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def stub_hub_class() -> Any:
    return _stub_hub_module().StubHub


@pytest.fixture
def stub_hub(stub_hub_class: Any) -> Iterator[Callable[[Path], Any]]:
    """Start a stub Hub that serves a folder as the repo `plain/tiny`: `hub = stub_hub(folder)`; it stops by itself.

    Run what should see it in a process of its own with the environment that it gives, for example
    `subprocess.run([sys.executable, "-c", code, hub.repo], env=hub.environment(tmp_path / "cache"))`. The attributes of
    `StubHub` (see stub_hub.py) may be changed at any time: `hub.pause_s = 0.1`, `hub.answers["*"] = [(500, None)]`.
    """
    with contextlib.ExitStack() as stack:
        yield lambda folder: stack.enter_context(stub_hub_class(folder))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A folder with the files of a sentence encoder; the weights are 200 kB of noise."""
    folder = tmp_path / "checkpoint"
    (folder / "1_Pooling").mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "bert"}')
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\nhello\n")
    (folder / "1_Pooling" / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(random.Random(0).randbytes(200_000))
    return folder


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a process that finds `hub.repo` on a stub Hub and asks for files; `finish` gives what it told."""
    running: list[subprocess.Popen[str]] = []

    def begin(
        hub: Any,
        *files: str,
        name: str | None = None,
        required: tuple[str, ...] = (),
        listing: bool = False,
        cache: Path | None = None,
        environment: dict[str, str] | None = None,
        **keywords: Any,
    ) -> subprocess.Popen[str]:
        job = {
            "name": name or hub.repo,
            "files": files,
            "required": required,
            "listing": listing,
            "keywords": keywords,
        }
        process = subprocess.Popen(
            [sys.executable, "-c", CHILD, json.dumps(job)],
            env={
                **hub.environment(cache or tmp_path / "cache"),
                "PYTHONPATH": str(Path(plainbert.__file__).parents[1]),
                **(environment or {}),
            },
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        return process

    yield begin
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def finish() -> Callable[[subprocess.Popen[str]], dict[str, Any]]:
    def end(process: subprocess.Popen[str]) -> dict[str, Any]:
        out, err = process.communicate(timeout=50)
        assert process.returncode == 0, err
        told: dict[str, Any] = json.loads(out)
        return told

    return end


@pytest.fixture
def load(start: Callable[..., Any], finish: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    """Run such a process to its end, and give what it told: files (name -> hash or None), commit, error, warnings."""
    return lambda hub, *files, **keywords: finish(start(hub, *files, **keywords))

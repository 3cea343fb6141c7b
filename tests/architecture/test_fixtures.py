"""The guards of tests/conftest.py hold: what every other test leans on."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

Failed = pytest.fail.Exception


def test_a_connection_that_leaves_this_machine_fails_the_test_even_when_errors_are_swallowed() -> None:
    # 192.0.2.0/24 and example.invalid are set aside for documentation: no one is there.
    with pytest.raises(Failed, match=r"192\.0\.2\.1"), contextlib.suppress(Exception), socket.socket() as tried:
        tried.connect(("192.0.2.1", 443))
    with pytest.raises(Failed, match=r"192\.0\.2\.1"), socket.socket() as tried:
        tried.connect_ex(("192.0.2.1", 443))
    with pytest.raises(Failed, match=r"example\.invalid"), contextlib.suppress(Exception):
        socket.create_connection(("example.invalid", 443), timeout=1)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_server_on_this_machine_can_be_reached(host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection((host, server.getsockname()[1]), timeout=5).close()


def test_fresh_memory_moves_the_weights_and_keeps_values_and_ties(fresh_memory: Callable[[Any], Any]) -> None:
    model = nn.ModuleDict({"first": nn.Linear(3, 3), "second": nn.Linear(3, 3), "third": nn.Linear(3, 3)})
    model["second"].weight = model["first"].weight  # one parameter in two places
    model["third"].weight = nn.Parameter(model["first"].weight.data)  # another parameter over the same memory
    before, place = model["first"].weight.detach().clone(), model["first"].weight.data_ptr()
    assert fresh_memory(model) is model
    weights = [model[name].weight for name in ("first", "second", "third")]
    assert all(torch.equal(weight, before) for weight in weights)
    assert len({weight.data_ptr() for weight in weights}) == 1
    assert weights[0].data_ptr() != place
    assert weights[0].data_ptr() % 64 == 0


def test_the_tiny_configuration_takes_overrides(tiny_config: Callable[..., dict[str, Any]]) -> None:
    assert tiny_config()["hidden_size"] == 32
    assert tiny_config(hidden_size=48, hidden_act="relu") == {**tiny_config(), "hidden_size": 48, "hidden_act": "relu"}


def test_the_real_model_is_a_folder_with_weights(minilm_folder: Path) -> None:
    assert (minilm_folder / "model.safetensors").stat().st_size > 80_000_000

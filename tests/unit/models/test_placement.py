"""Dtypes and devices by name: those that can be used, and what is said of the others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from plainbert import InputError
from plainbert.models.placement import resolve_device, resolve_dtype


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let torch report so many GPUs; None: a kind that this build knows and that is not there."""

    def report(count: int | None) -> None:
        module = SimpleNamespace(is_available=lambda: count is not None, device_count=lambda: count or 0)
        monkeypatch.setattr(torch, "get_device_module", lambda _: module)

    return report


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "float64"])
def test_a_dtype_has_three_spellings(name: str) -> None:
    dtype = getattr(torch, name)
    assert resolve_dtype(dtype) is resolve_dtype(name) is resolve_dtype(f"torch.{name}") is dtype


@pytest.mark.parametrize("wrong", ["int3", torch.int64, "", None, "float8_e4m3fn"])
def test_another_dtype_is_refused(wrong: Any) -> None:
    with pytest.raises(InputError, match=rf"dtype must be one of float32, .*, got {wrong!r}; float32 is usual"):
        resolve_dtype(wrong)


@pytest.mark.parametrize("device", ["cpu", "cpu:0", torch.device("cpu")])
def test_the_cpu_is_always_there(device: Any) -> None:
    assert resolve_device(device).type == "cpu"


@pytest.mark.parametrize("wrong", ["toaster", "", "cuda:-1", "cuda:x", None, True, 1.5, -1])
def test_what_is_no_device_is_refused(wrong: Any) -> None:
    with pytest.raises(InputError, match=rf"device must be one such as 'cpu' or 'cuda:0', got {wrong!r}; "):
        resolve_device(wrong)


@pytest.mark.parametrize("device", ["meta", "meta:0", torch.device("meta")])
def test_a_device_without_numbers_is_refused(device: Any) -> None:
    with pytest.raises(InputError, match="device must be one that holds numbers, got 'meta'; "):
        resolve_device(device)


@pytest.mark.parametrize("kind", ["hpu", "xla", "vulkan", "privateuseone"])
def test_a_kind_that_only_a_plug_in_brings_is_refused(kind: str) -> None:
    with pytest.raises(InputError, match=f"this machine has, got '{kind}'; no {kind} can be used here"):
        resolve_device(kind)


@pytest.mark.parametrize("device", ["cuda", "cuda:0", "mps", "xpu"])
def test_a_kind_that_is_not_there_is_refused(gpus: Any, device: str) -> None:
    gpus(None)
    kind = device.partition(":")[0]
    with pytest.raises(InputError, match=f"this machine has, got '{device}'; no {kind} can be used here"):
        resolve_device(device)


def test_an_index_beyond_the_last_is_refused(gpus: Any) -> None:
    gpus(2)
    assert resolve_device("cuda:1") == torch.device("cuda:1")
    assert resolve_device("cuda") == torch.device("cuda")
    for device in ("cuda:2", "cuda:7"):
        with pytest.raises(InputError, match=f"got '{device}'; the last one here is 'cuda:1'"):
            resolve_device(device)


def test_there_is_one_cpu() -> None:
    with pytest.raises(InputError, match="got 'cpu:3'; the last one here is 'cpu:0'"):
        resolve_device("cpu:3")

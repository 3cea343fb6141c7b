"""Many processes and one cache."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def test_eight_processes_share_one_cold_cache(
    stub_hub: Callable[[Path], Any],
    checkpoint: Path,
    start: Callable[..., Any],
    finish: Callable[..., dict[str, Any]],
    tmp_path: Path,
) -> None:
    hub = stub_hub(checkpoint)
    hub.pause_s = 0.05
    files = ("config.json", "model.safetensors", "modules.json")
    told = [finish(process) for process in [start(hub, *files) for _ in range(8)]]
    assert all(one == told[0] for one in told)
    weights = hashlib.sha256((checkpoint / "model.safetensors").read_bytes()).hexdigest()
    assert told[0]["files"]["model.safetensors"] == weights
    assert list((tmp_path / "cache").rglob("*.incomplete")) == []
    assert hub.count("GET", "model.safetensors") == 1


def test_a_load_after_one_that_was_killed_half_way_is_whole_and_leaves_nothing_behind(
    stub_hub: Callable[[Path], Any],
    checkpoint: Path,
    start: Callable[..., Any],
    finish: Callable[..., dict[str, Any]],
    tmp_path: Path,
) -> None:
    hub = stub_hub(checkpoint)
    hub.pause_s = 0.5
    killed = start(hub, "model.safetensors")
    deadline = time.monotonic() + 30
    while not (left := list((tmp_path / "cache").rglob("*.incomplete"))):
        assert time.monotonic() < deadline, "the download did not begin"
        time.sleep(0.02)
    killed.kill()
    killed.wait()
    assert left[0].exists()
    hub.pause_s = 0
    told = finish(start(hub, "model.safetensors"))
    weights = hashlib.sha256((checkpoint / "model.safetensors").read_bytes()).hexdigest()
    assert told == {"files": {"model.safetensors": weights}, "commit": hub.refs["main"], "warnings": []}
    assert list((tmp_path / "cache").rglob("*.incomplete")) == []

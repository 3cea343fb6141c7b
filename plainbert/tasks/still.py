"""A model held in eval mode while threads encode with it, and put back as it was, module by module."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from torch import nn


@dataclass
class _Hold:
    """A model that somebody is encoding with."""

    users: int = 0
    training: list[nn.Module] = field(default_factory=list)
    """Its modules that were in train mode; those that were not, frozen ones among them, are not touched."""


_holds: dict[nn.Module, _Hold] = {}  # by identity, since several embedders may share a model
_lock = threading.Lock()


@contextmanager
def held_still(model: nn.Module) -> Iterator[None]:
    """Keep dropout off while the block runs; the last of several threads puts back the modes that the first found."""
    with _lock:
        hold = _holds.setdefault(model, _Hold())
        hold.users += 1
        for module in model.modules():
            if module.training:
                module.training = False
                hold.training.append(module)
    try:
        yield
    finally:
        with _lock:
            hold.users -= 1
            if not hold.users:
                del _holds[model]
                for module in hold.training:
                    module.training = True

"""Where the numbers of a model live and how many bits they have: dtypes and devices by name."""

from __future__ import annotations

import torch

from plainbert.config import DTYPE_NAMES
from plainbert.errors import InputError


def resolve_dtype(dtype: torch.dtype | str) -> torch.dtype:
    """Return the dtype meant by ``torch.float16``, "float16" or "torch.float16".

    Raises:
        InputError: one that weights are not stored in.
    """
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPE_NAMES:
        raise InputError(f"dtype must be one of {', '.join(DTYPE_NAMES)}, got {dtype!r}")
    resolved: torch.dtype = getattr(torch, name)
    return resolved


def resolve_device(device: torch.device | str | int) -> torch.device:
    """Return the device meant by "cpu", "cuda" or "cuda:1".

    Raises:
        InputError: no name of a device, or a GPU where none can be used.
    """
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError):
        raise InputError(f"device must be one such as 'cpu' or 'cuda:0', got {device!r}") from None
    if found.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"device must be one that this machine has, got {str(found)!r}; no CUDA GPU can be used here")
    return found

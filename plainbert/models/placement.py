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
        raise InputError(f"dtype must be one of {', '.join(DTYPE_NAMES)}, got {dtype!r}; float32 is usual")
    resolved: torch.dtype = getattr(torch, name)
    return resolved


def resolve_device(device: torch.device | str | int) -> torch.device:
    """Return the device meant by "cpu", "cuda" or "cuda:1", if weights can be put there.

    Raises:
        InputError: no name of a device, a kind that this machine or this build of torch lacks, an index beyond the
            last one, or "meta", which holds no numbers.
    """
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError):
        raise InputError(
            f"device must be one such as 'cpu' or 'cuda:0', got {device!r}; 'cpu' is always there"
        ) from None
    if found.type == "meta":
        raise InputError("device must be one that holds numbers, got 'meta'; 'cpu' is always there")
    try:
        module = torch.get_device_module(found)
        count = module.device_count() if module.is_available() else 0
    except RuntimeError:  # a kind that only a plug-in of torch brings
        count = 0
    if not count:
        raise InputError(
            f"device must be one that this machine has, got {str(found)!r}; no {found.type} can be used here, "
            "'cpu' is always there"
        )
    if found.index is not None and found.index >= count:
        raise InputError(
            f"device must be one that this machine has, got {str(found)!r}; the last one here is "
            f"'{found.type}:{count - 1}'"
        )
    return found

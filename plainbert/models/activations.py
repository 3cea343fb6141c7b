"""The activations that released BERT checkpoints name in ``hidden_act``, each with its own arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def _tanh_gelu(x: Tensor) -> Tensor:
    """GELU by the tanh approximation, term by term as in google-research/bert; off from the exact one by up to 5e-4."""
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


# hidden_act -> function. Several names mean one function, and several functions approximate one another without
# being equal to the last bit. ``config.ACTIVATION_NAMES`` lists the same names without torch.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,  # x * P(X <= x) for a standard normal X, by erf
    "gelu_python": lambda x: x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0))),
    "gelu_new": _tanh_gelu,
    "gelu_accurate": _tanh_gelu,
    "gelu_python_tanh": lambda x: x * 0.5 * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x.pow(3.0)))),
    "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_fast": lambda x: 0.5 * x * (1.0 + torch.tanh(x * 0.7978845608 * (1.0 + 0.044715 * x * x))),
    "gelu_10": lambda x: torch.clip(F.gelu(x), -10, 10),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "relu": F.relu,
    "relu2": lambda x: torch.square(F.relu(x)),
    "relu6": F.relu6,
    "leaky_relu": F.leaky_relu,
    "silu": F.silu,
    "swish": F.silu,
    "hardswish": F.hardswish,
    "mish": F.mish,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "linear": lambda x: x,
}


class Activation(nn.Module):
    """The element-wise function that ``hidden_act`` names, as a module, so that hooks and traces can see it.

    It keeps the name and not the function, so that a model can be pickled.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same shape."""
        return ACTIVATIONS[self.name](x)

    def extra_repr(self) -> str:
        """Show the name where the module is printed."""
        return self.name

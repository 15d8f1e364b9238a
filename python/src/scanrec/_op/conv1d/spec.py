# SPDX-License-Identifier: BSD-3-Clause
"""The description of ``causal_conv1d``, and checks of its arguments for all frameworks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ... import _arguments as arguments
from ..spec import Operation

__all__ = ["CAUSAL_CONV1D_DOC", "CONV1D", "LAYOUT", "Conv1dProblem"]
__all__ += ["check_channels", "check_types", "is_silu"]

CONV1D = Operation(
    "causal_conv1d",
    operands=("x", "weight", "bias", "initial_state", "resets"),
    results=("out", "final_state"),
    residuals=(),
    typed=frozenset({"x", "initial_state", "out", "final_state"}),
    on_gpu=False,
)

#: The axes of the arrays in the C interface and in JAX. "past" has the steps of a state. In
#: PyTorch, "time" and "past" come last.
LAYOUT = {
    **dict.fromkeys(("x", "out"), "batch time channel"),
    **dict.fromkeys(("initial_state", "final_state"), "batch past channel"),
    "weight": "channel tap",
    "bias": "channel",
    "resets": "batch time",
}


class Conv1dProblem(NamedTuple):
    """The options of a call."""

    silu: bool


def is_silu(call: str, activation: object) -> bool:
    """Whether the activation is SiLU. Raises ValueError for unknown activations."""
    if activation is not None and activation not in ("silu", "swish"):
        arguments.refuse(call, "activation", "None, 'silu' or 'swish'", repr(activation))
    return activation is not None


def check_types(call: str, name: str, x: str, given: str, computed: str) -> None:
    """Raise TypeError unless an array has the type of ``x`` or the type of the sums."""
    if given not in (x, computed):
        expected = f"{x}, like 'x'" + (f", or {computed}" if computed != x else "")
        arguments.refuse(call, name, expected, given, TypeError)


def check_channels(
    call: str, channels: int, weight: Sequence[int], bias: Sequence[int] | None
) -> None:
    """Raise ValueError unless weight is (channels, W), for W of 1 or more, and bias (channels,)."""
    if len(weight) != 2 or weight[0] != channels or weight[1] < 1:
        expected = f"shape ({channels}, W), W of 1 or more"
        arguments.refuse(call, "weight", expected, tuple(weight))
    if bias is not None:
        arguments.check_shape(call, "bias", bias, (channels,), equal=True)


#: The docstring that the bindings share.
CAUSAL_CONV1D_DOC = """
Compute a causal depthwise convolution along time, as Mamba, gated delta nets and other recurrent
models do before their scans::

    out[t] = f(bias + sum(weight[k] x[t - (W - 1) + k] for k in range(W)))

Every channel has its own W taps. Inputs before the first step are those of the initial state, or 0
without one. Differentiable in all real arguments.

Parameters
----------
weight:
    ``(D, W)``, the tap of the oldest step first.
bias:
    ``(D,)``, 0 if absent.
activation:
    f: None for the identity, or "silu", also called "swish".

Notes
-----
On a CPU, the outputs and their gradients take one pass over memory each. Reverse mode then keeps no
array besides the arguments, and results do not depend on the number of threads. On a GPU, the
results are composed of the framework's operations. Sums are taken in float32 for 16-bit types.
"""

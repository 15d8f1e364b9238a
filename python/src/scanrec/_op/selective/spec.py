# SPDX-License-Identifier: BSD-3-Clause
"""The description of ``selective_scan``."""

from typing import NamedTuple

from ..spec import Operation

__all__ = ["LAYOUT", "SELECTIVE", "SELECTIVE_SCAN_DOC", "SELECTIVE_STATE_UPDATE_DOC"]
__all__ += ["SelectiveProblem"]

SELECTIVE = Operation(
    "selective_scan",
    operands=(
        *("u", "delta", "a", "b", "c", "d", "z", "delta_bias", "intervals"),
        *("initial_state", "resets"),
    ),
    results=("out", "final_state"),
    residuals=("checkpoints",),
    names={"a": "A", "b": "B", "c": "C", "d": "D"},
    typed=frozenset({"u", "delta", "b", "c", "z", "out"}),
)

#: The axes of the arrays in the C interface and in JAX. In PyTorch time comes last. B and C may
#: vary over time or be constant. If they vary, their axis "channel" has one entry per group of
#: channels.
LAYOUT = {
    **dict.fromkeys(("u", "delta", "z", "out", "resets"), "batch time channel"),
    **dict.fromkeys(("initial_state", "final_state"), "batch channel state"),
    **dict.fromkeys(("d", "delta_bias"), "channel"),
    **dict.fromkeys(("b", "c"), "batch time channel state | channel state"),
    "intervals": "batch time",
    "a": "channel state",
    "checkpoints": "batch checkpoint state channel",
}


class SelectiveProblem(NamedTuple):
    """The options of a call."""

    softplus: bool
    reverse: bool


#: The docstring of the scan. SEQUENCE_DOC has the other arguments.
SELECTIVE_SCAN_DOC = """
Compute the recurrence of Mamba::

    step[t] = softplus(delta[t] + delta_bias)             or delta[t] + delta_bias
    x[t] = exp(step[t] A) x[t-1] + step[t] B[t] u[t]      N states per channel
    out[t] = (sum(C[t] x[t]) + D u[t]) silu(z[t])         2 Re(sum) if A is complex

Differentiable in all real and complex arguments.

Parameters
----------
delta, z:
    The shape of ``u``. Without ``z``, outputs are not gated.
A:
    ``(D, N)``, float32, float64, complex64 or complex128. The states have its type.
    The other arguments have the real type of the same precision, unless stated otherwise. If that
    is float32, each of them may also be bfloat16 or float16.
D, delta_bias:
    ``(D,)``, 0 if absent.
delta_softplus:
    Whether the step sizes are ``softplus(delta + delta_bias)``. Above 20, softplus is the identity.
return_final, return_last_state:
    Whether to return a pair, the outputs and the final state. The latter is ``(..., D, N)`` in the
    type of ``A``.
initial_state:
    The state before the first step, 0 if absent. Any shape that broadcasts to ``(..., D, N)``. It
    may be complex if ``A`` is.

Returns
-------
The outputs, in the shape and type of ``u``.

Notes
-----
The forward call takes one pass over memory, and so do all gradients together. The N states of a
channel stay in registers. Reverse mode keeps one state in every 128 steps and recomputes the
others. Forward mode and higher-order derivatives are composed of elementwise operations and scans.
They need arrays of N numbers per element of ``u``. Results do not depend on the number of threads.

Source: Gu and Dao, Mamba: Linear-time sequence modeling with selective state spaces (2023).
"""

#: The docstring of one step.
SELECTIVE_STATE_UPDATE_DOC = """
Compute one step of :func:`selective_scan`, for decoding.

Parameters
----------
state:
    ``(..., D, N)``, the state before the step, such as the final state of a scan. Complex if ``A``
    is. 16-bit states are rounded at every step.
x, dt, z:
    ``(..., D)``. ``z`` may be absent.
A, D, dt_bias, dt_softplus:
    As in :func:`selective_scan`.
B, C:
    ``(..., N)``, or ``(..., G, N)`` for G groups of channels. Complex if ``A`` is.
state_batch_indices:
    int32 or int64, ``(...)``: the rows of ``state`` to update. ``state`` is then ``(S, D, N)`` for
    any S, and its other rows do not change. No row may occur twice. An index that is out of range,
    such as -1, means padding: its output is that of a zero state, and no state is written.
"""

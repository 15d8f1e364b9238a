# SPDX-License-Identifier: BSD-3-Clause
"""The description of ``linear_scan``."""

from ..spec import Operation

__all__ = ["LINEAR", "LINEAR_SCAN_DOC", "LOG_GATE", "LOG_INPUT"]

#: ``enum scanrec_logarithms``: bits for the operands that hold logarithms.
LOG_GATE, LOG_INPUT = 1, 2

LINEAR = Operation(
    "linear_scan",
    operands=("gate", "input", "initial_state", "resets"),
    results=("state", "final_state"),
    residuals=("state",),
    has_jvp=True,
    linear_in=frozenset({"input"}),
)

#: The docstring of the scan. SEQUENCE_DOC has the other arguments.
LINEAR_SCAN_DOC = """
Compute ``state[t] = gate[t] * state[t-1] + input[t]`` along an axis.

With ``reverse``, ``state[t+1]`` takes the place of ``state[t-1]``.

Parameters
----------
gate:
    A number, or any shape that broadcasts to that of ``input``: ``(C,)`` for constant gates,
    ``(B, T, 1)`` for gates that all channels share. Broadcasting expands neither the gate nor its
    gradient in memory.
input:
    An array of shape ``(..., T, C)`` with the default ``axis``. The result has the shape of
    ``input``. Types are float16, bfloat16, float32, float64, complex64 and complex128. The
    framework's rules promote arguments of different types.
axis:
    The time axis of ``input``.
log_gate, log_input:
    Whether ``gate`` or ``input`` holds logarithms. All types must then be real. With both, the scan
    is ``state[t] = exp(gate[t]) * state[t-1] + exp(input[t])``. The logarithm of 0 is -inf.
    Gradients are with respect to the logarithms. The kernels compute the exponentials while they
    read the arrays, and do not store them.

Returns
-------
The states. 16-bit types are computed in float32 and rounded when stored.

Notes
-----
The scan is one pass over memory. ``docs/numerics.md`` gives the error bounds, and the conditions
under which results are equal bit for bit.

Source: Blelloch, Prefix Sums and Their Applications (1990), section 1.4.
"""

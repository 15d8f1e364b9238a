# SPDX-License-Identifier: BSD-3-Clause
"""The description of ``qrnn_pool``, and the linear scan that computes its states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..spec import Operation

__all__ = ["GATED", "GATES", "QRNN_POOL_DOC", "linear_steps"]

#: The pre-activations. f-pooling reads the first two, fo-pooling the first three, ifo-pooling all.
GATES = ("candidate", "forget_gate", "output_gate", "input_gate")

GATED = Operation(
    "gated_scan",
    operands=(*GATES, "initial_state", "resets", "zoneout"),
    results=("output", "final_state"),
    residuals=("state", "checkpoints"),
)


def linear_steps(
    xp: Any, sigmoid: Callable[[Any], Any], parts: Sequence[Any], forget_bias: float, zoneout: Any
) -> tuple[Any, Any, Any]:
    """Return the gate and the input of the linear scan that computes the states, and the output
    gate. The output gate is None in f-pooling.

    Parameters
    ----------
    xp, sigmoid:
        The framework's module of elementwise functions, and its sigmoid.
    parts:
        The pre-activations, in the order of ``GATES``.
    """
    candidate, forget, *others = parts
    forget = forget + forget_bias
    into = others[1] if len(others) > 1 else -forget
    if zoneout is not None:  # a NaN has no effect where the state keeps its value
        candidate, forget, into = (xp.where(zoneout, 0, x) for x in (candidate, forget, into))
    gate = sigmoid(forget)
    input = sigmoid(into) * xp.tanh(candidate)  # 0 where zoneout set the candidate to 0
    if zoneout is not None:
        gate = xp.where(zoneout, 1, gate)
    return gate, input, sigmoid(others[0]) if others else None


#: The docstring of the pooling. SEQUENCE_DOC has the other arguments.
QRNN_POOL_DOC = """
Pool the pre-activations of a quasi-recurrent network along an axis::

    state[t] = f[t] * state[t-1] + (1 - f[t]) * z[t]       "f", "fo"
    state[t] = f[t] * state[t-1] + i[t] * z[t]             "ifo"
    output[t] = state[t]                                   "f"
    output[t] = o[t] * state[t]                            "fo", "ifo"

``z`` is the tanh of the candidate. ``f``, ``o`` and ``i`` are the sigmoids of the pre-activations
of the forget, output and input gate. Differentiable in ``pre`` and ``initial_state``.

Parameters
----------
pre:
    The n = 2 (``"f"``), 3 (``"fo"``) or 4 (``"ifo"``) pre-activations, in the order candidate,
    forget gate, output gate, input gate. Their type is float16, bfloat16, float32 or float64. They
    have one of two forms:

    - packed side by side, ``(..., T, n * C)``. They are read in this layout, and their gradient is
      written in it.
    - a tuple or list of n arrays. The candidate, ``(..., T, C)``, has the shape of the result. The
      gates have any shapes that broadcast to it.
pool:
    The kind of pooling: ``"f"``, ``"fo"`` or ``"ifo"``.
axis:
    The time axis. Packed pre-activations are side by side along the last axis that is not time.
zoneout:
    Booleans that broadcast to the output. Where one is True, the state keeps its value, whatever
    the gates are. Unlike dropout, zoneout does not rescale the other states.
forget_bias:
    A number added to the pre-activation of the forget gate. With 1 or 2, an untrained network keeps
    most of its state from step to step.
memory:
    How the gradient gets the states. ``"store"`` keeps the state of every step, which for ``"f"``
    is the output. ``"recompute"`` keeps the state of every 128th step and recomputes the others. It
    needs 1/128 of the memory, and the gradient takes about a fifth longer.
axis_name:
    As in :func:`linear_scan`. It requires ``memory="store"``.

Returns
-------
The outputs. 16-bit types are computed in float32 and rounded when stored.

Notes
-----
Activations, scan and output are one pass over memory, and so is the gradient. Forward mode and
higher-order derivatives are composed of activations and scans.

Source: Bradbury et al., Quasi-Recurrent Neural Networks (2017), section 2.1. Zoneout: Krueger et
al. (2017).
"""

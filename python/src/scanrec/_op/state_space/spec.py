# SPDX-License-Identifier: BSD-3-Clause
"""The docstrings of ``s5`` and ``lru``."""

__all__ = ["LRU_DOC", "S5_DOC"]

#: The docstring of s5.
S5_DOC = """
Apply a diagonal state space to sequences, as S5 does::

    x[t] = gate * x[t-1] + scale * (B u[t])
    y[t] = Re(C x[t]) + D u[t]                 without conjugate symmetry
    y[t] = 2 Re(C x[t]) + D u[t]               with conjugate symmetry

``gate`` and ``scale`` discretise ``lambda_`` with the step sizes ``exp(log_step)``. Differentiable
in all real and complex arguments.

Parameters
----------
u:
    ``(..., T, H)``, float32 or float64.
lambda_:
    ``(P,)``, complex: the diagonal of the continuous system.
b, c:
    ``(P, H)`` and ``(Q, P)``, complex. If ``c`` is ``(Q, 2 * P)``, the system is bidirectional: P
    more states run backward in time, and the second half of ``c`` belongs to them.
d:
    ``(H,)``, real, 0 if absent. It requires Q = H.
log_step:
    ``(P,)``, real: logarithms of the step sizes. If absent, all step sizes are 1.
initial_state:
    Complex, any shape that broadcasts to ``(..., P)``: the state before the first step, or with
    ``reverse`` after the last. 0 if absent. Bidirectional systems do not support it.
discretisation:
    ``"zero_order_hold"`` or ``"bilinear"``.
conjugate_symmetry:
    Whether the P states represent 2 P states in conjugate pairs.
intervals:
    Factors of the step sizes, for samples at irregular times. Any shape that broadcasts to
    ``(..., T)``. The factor of a sample scales the step that leads to it, in either direction.
reverse:
    Whether to compute ``x[t] = gate * x[t+1] + ...``. The final state is then that of the first
    step. No array is flipped. Bidirectional systems do not support ``reverse``.
resets:
    Booleans, ``(..., T)`` or ``(..., T + 1)``. All axes except time may broadcast. A sequence
    starts at each step that is True, as in :func:`linear_scan`.
return_final:
    Whether to return ``(y, final_state)``. The final state is ``(..., P)``. In a bidirectional
    system it belongs to the states that run forward.
group, ranges, axis_name:
    How time is split over processes or devices, as in :func:`linear_scan`.

Returns
-------
The outputs, ``(..., T, Q)``, real.

Notes
-----
The call consists of the framework's matrix products and a scan between them, or two scans if the
system is bidirectional. Without ``intervals``, the gate has one number per state and is not
expanded over time.

Source: Smith et al., Simplified State Space Layers for Sequence Modeling (2023), sections 2 and 3.
"""

#: The docstring of lru.
LRU_DOC = """
Apply a linear recurrent unit to sequences.

The unit is :func:`s5` without conjugate symmetry. ``nu`` and ``theta`` give its gate and scale::

    gate = exp(-exp(nu) + i exp(theta))        scale = sqrt(1 - |gate|^2)

Parameters
----------
u:
    ``(..., T, H)``, float32 or float64.
nu, theta:
    ``(P,)``, real.
b, c, d, initial_state, reverse, resets, return_final, group, ranges, axis_name:
    As in :func:`s5`.

Returns
-------
The outputs, ``(..., T, Q)``, real.

Notes
-----
Source: Orvieto et al., Resurrecting Recurrent Neural Networks for Long Sequences (2023), section 3.
"""

# SPDX-License-Identifier: BSD-3-Clause
"""``s5.ssm``, in JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from scanrec import _arguments as arguments
from scanrec.jax import linear_scan
from scanrec.jax._state_space import complex_product, real_of_product

from .._jax import array

__all__ = ["apply_ssm"]


def apply_ssm(
    Lambda_bar: Any,
    B_bar: Any,
    C_tilde: Any,
    input_sequence: Any,
    conj_sym: bool,
    bidirectional: bool,
) -> jax.Array:
    """``x[t] = Lambda_bar x[t-1] + B_bar u[t]`` and ``y[t] = Re(C_tilde x[t])``, twice that with
    ``conj_sym``, for ``input_sequence`` ``(L, H)``; returns ``(L, H)``.

    ``Lambda_bar`` is ``(P,)``, ``B_bar`` ``(P, H)``, ``C_tilde`` ``(H, P)``, or ``(H, 2 P)`` where
    as many states run backward. ``Lambda_bar`` is not spread over time; ``input_sequence`` may have
    axes before these two.
    """
    call = "apply_ssm"
    gate = array(call, "Lambda_bar", Lambda_bar, axes="(P,)")
    u = array(call, "input_sequence", input_sequence)
    if u.ndim < 2 or jnp.iscomplexobj(u):
        got = (u.dtype.name, u.shape)
        arguments.refuse(call, "input_sequence", "real numbers of shape (L, H)", got)
    states, both_ways = gate.shape[0], arguments.flag(call, "bidirectional", bidirectional)
    b = array(call, "B_bar", B_bar, shape=(states, u.shape[-1]))
    c = array(call, "C_tilde", C_tilde, axes="(H, P)")
    arguments.check_shape(
        call, "C_tilde", c.shape, (c.shape[0], states * (1 + both_ways)), equal=True
    )
    c = 2 * c if conj_sym else c
    x = complex_product(u, b)
    y = real_of_product(linear_scan(gate, x), c[:, :states])
    if both_ways:
        y = y + real_of_product(linear_scan(gate, x, reverse=True), c[:, states:])
    return y

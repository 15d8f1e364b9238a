# SPDX-License-Identifier: BSD-3-Clause
"""Selective scans in JAX: their primitives, and a composition of JAX operations and a linear scan
for the derivatives that have no kernel (forward mode and higher orders).

Operands have the axes of ``LAYOUT`` in ``spec.py``. B and C either vary over time and have groups
of channels, or are constant over time. Resets have extent 1 wherever they broadcast, and may have
one step more than ``u``. Kernels compute in the type of ``a``. If that type is complex, B and C
that vary over time may be stored in a real type, with real and imaginary parts alternating along
the last axis.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from ..._jax.arrays import of_rank
from ..._jax.fused import Fused
from ..._jax.scans import Problem
from ..linear.jax_rules import LINEAR_SCAN
from .spec import LAYOUT, SELECTIVE, SelectiveProblem

__all__ = ["SELECTIVE_SCAN"]

Arrays: TypeAlias = Mapping[str, jax.Array]


class _SelectiveScan(Fused):
    operation = SELECTIVE
    user_call = "selective_scan"
    layout = LAYOUT
    conjugated = True

    def computed(self, arrays: Arrays) -> Any:
        return arrays["a"].dtype

    def unread(
        self, kind: str, problem: Any, operands: Collection[str], results: Collection[str]
    ) -> Collection[str]:
        return {"d", "z"} if kind == "value" and "out" not in results else ()

    def composed(self, problem: SelectiveProblem, arrays: Arrays) -> dict[str, jax.Array]:
        """Compute the results by JAX operations and a linear scan, with intermediate arrays of
        shape (batch, time, channel, state)."""
        u, a = arrays["u"], arrays["a"]
        dtype, (batch, steps, channels) = np.finfo(a.dtype).dtype, u.shape  # the real type
        x, step = u.astype(dtype), arrays["delta"].astype(dtype)
        if "delta_bias" in arrays:
            step = step + of_rank(arrays["delta_bias"], 3)
        if problem.softplus:
            above = step > 20  # where the softplus of the kernels is the identity
            step = jnp.where(above, step, jnp.logaddexp(jnp.where(above, 0, step), 0))
        if "intervals" in arrays:
            step = step * arrays["intervals"][..., None]
        bc = _of_all_channels(arrays["b"], channels, a)
        given = {
            "input": (step * x)[..., None].astype(a.dtype) * bc,
            "gate": jnp.exp(step[..., None].astype(a.dtype) * of_rank(a, 4)),
        }
        for name, axis in (("initial_state", 1), ("resets", -1)):
            if name in arrays:
                given[name] = jnp.expand_dims(arrays[name], axis)
        scan = Problem((batch, steps, channels, a.shape[1]), 1, problem.reverse)
        scanned = LINEAR_SCAN.value(
            scan, given, {"state": scan.shape, "final_state": scan.boundary}
        )
        y = jnp.sum(scanned["state"] * _of_all_channels(arrays["c"], channels, a), -1)
        if jnp.iscomplexobj(y):
            y = 2 * y.real
        if "d" in arrays:
            y = y + of_rank(arrays["d"], 3) * x
        if "z" in arrays:
            y = y * jax.nn.silu(arrays["z"].astype(dtype))
        final = jax.lax.squeeze(scanned["final_state"], (1,))
        return {"out": y.astype(u.dtype), "final_state": final}


def _of_all_channels(bc: jax.Array, channels: int, a: jax.Array) -> jax.Array:
    """Return B or C in the shape (batch or 1, time or 1, channel or 1, state)."""
    if jnp.iscomplexobj(a) and not jnp.iscomplexobj(bc):  # real and imaginary parts alternate
        pairs = bc.astype(np.finfo(a.dtype).dtype)
        pairs = pairs.reshape(*pairs.shape[:-1], pairs.shape[-1] // 2, 2)
        bc = jax.lax.complex(pairs[..., 0], pairs[..., 1])
    bc = bc.astype(a.dtype)
    if bc.ndim == 2:
        return jnp.expand_dims(bc, (0, 1))
    groups = bc.shape[2]
    return bc if groups == 1 else jnp.repeat(bc, channels // groups, 2)


#: The primitives of selective scans.
SELECTIVE_SCAN = _SelectiveScan()

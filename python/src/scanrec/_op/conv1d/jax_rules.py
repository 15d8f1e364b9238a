# SPDX-License-Identifier: BSD-3-Clause
"""Causal convolutions in JAX: their primitives, and a composition of JAX operations.

On CPUs, the composition gives the derivatives that have no kernel (forward mode and higher orders).
On GPUs, it gives all results and derivatives.

Operands have the axes of ``LAYOUT`` in ``spec.py``. Weight and bias have the type of the kernel's
sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..._jax.fused import Fused
from ..._jax.types import Shape
from ..spec import primal_of
from .spec import CONV1D, LAYOUT, Conv1dProblem

__all__ = ["CAUSAL_CONV1D"]


class _CausalConv1d(Fused):
    operation = CONV1D
    user_call = "causal_conv1d"
    layout = LAYOUT

    def computed(self, arrays: Mapping[str, jax.Array]) -> Any:
        return arrays["weight"].dtype

    def dtype(self, name: str, arrays: Mapping[str, jax.Array]) -> np.dtype[Any]:
        # Final states have the type of x, not the type of the sums.
        return super().dtype("out" if primal_of(name) == "final_state" else name, arrays)

    def shape(self, name: str, problem: Any, arrays: Mapping[str, jax.Array]) -> Shape:
        if name == "final_state":
            batch, _, channels = arrays["x"].shape
            return batch, arrays["weight"].shape[1] - 1, channels
        return super().shape(name, problem, arrays)

    def composed(
        self, problem: Conv1dProblem, arrays: Mapping[str, jax.Array]
    ) -> dict[str, jax.Array]:
        """Compute the results. The outputs are sums of one product per tap."""
        x, weight = arrays["x"], arrays["weight"]
        batch, steps, channels = x.shape
        before = weight.shape[1] - 1
        past = arrays.get("initial_state", jnp.zeros((batch, before, channels), x.dtype))
        every = jnp.concatenate([past, x], 1).astype(weight.dtype)
        resets = arrays.get("resets", jnp.zeros((1, steps), np.bool_))
        # The index of the sequence to which each step belongs. It is 0 for the steps of the initial
        # state and for those before the first reset.
        number = jnp.pad(jnp.cumsum(resets, 1), ((0, 0), (before, 0)))[..., None]
        out = arrays.get("bias", jnp.zeros((), weight.dtype))
        for k in range(before + 1):
            seen = number[:, k : k + steps] == number[:, before:]
            out = out + jnp.where(seen, every[:, k : k + steps] * weight[:, k], 0)
        last = number[:, -1:] if steps else 0
        final = jnp.where(number[:, steps:] == last, every[:, steps:], 0)
        out = jnp.broadcast_to(jax.nn.silu(out) if problem.silu else out, x.shape)
        return {"out": out.astype(x.dtype), "final_state": final.astype(x.dtype)}


#: The primitives of causal convolutions.
CAUSAL_CONV1D = _CausalConv1d()

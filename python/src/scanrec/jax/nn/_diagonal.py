# SPDX-License-Identifier: BSD-3-Clause
"""What layers of diagonal state spaces share: complex weights as pairs of real ones, a direction,
what is fed through."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp

from .._arrays import of_rank
from ._initial import computed, normal
from ._layer import Layer

__all__ = ["DiagonalLayer", "complex_of", "pair_of"]


def complex_of(pairs: jax.Array) -> jax.Array:
    """Of pairs along the last axis."""
    return jax.lax.complex(pairs[..., 0], pairs[..., 1])


def pair_of(x: jax.Array) -> jax.Array:
    return jnp.stack([x.real, x.imag], -1)


class DiagonalLayer(Layer[jax.Array]):
    """A layer whose states are complex, and which has ``d`` and ``bias`` besides its system."""

    _complex_state: ClassVar[bool] = True

    def _system(self, params, u, **given):
        """The call for the system alone: what it returns for ``initial_state``, ``reverse``,
        ``resets`` and ``return_final``."""
        raise NotImplementedError

    def _outer(self, key, inputs, dtype):
        """Weights of what goes around the states."""
        square = inputs == self.hidden_size
        shape = (inputs,) if square else (self.hidden_size, inputs)
        params = {"d": normal(key, shape, dtype, 1 if square else 1 / inputs)}
        if self.bias:
            params["bias"] = jnp.zeros(self.hidden_size, dtype)
        return params

    def _run(self, params, x, first, marks, reverse, key):
        kind = x.dtype
        x = x.astype(computed(kind))
        params = jax.tree.map(lambda p: p.astype(x.dtype), params)
        given = {"initial_state": first.get("hidden"), "reverse": reverse, "resets": marks}
        y, final = self._system(params, x, return_final=True, **given)
        d = params["d"]
        y = y + (x * of_rank(d, x.ndim) if d.ndim == 1 else x @ d.T)
        if self.bias:
            y = y + of_rank(params["bias"], y.ndim)
        return y.astype(kind), {"hidden": final}

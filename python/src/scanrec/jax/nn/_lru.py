# SPDX-License-Identifier: BSD-3-Clause
"""Linear recurrent units: diagonal systems whose gates lie on a ring of the complex plane."""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from .._state_space import lru
from ._diagonal import DiagonalLayer, complex_of
from ._initial import computed, normal
from ._layer import check_between

__all__ = ["LRU"]


@dataclass(frozen=True)
class LRU(DiagonalLayer):
    """Layers of linear recurrent units, P = state_size::

        gate = exp(-exp(nu) + i exp(theta))
        x[t] = gate x[t-1] + sqrt(1 - |gate|^2) b u[t]
        y[t] = Re(c x[t]) + d u[t] + bias

    All of it is linear, and nothing is between layers. Parameters: ``nu``, ``theta``, ``(P,)``;
    ``b``, ``(P, inputs, 2)``, and ``c``, ``(hidden_size, P, 2)``, pairs of real and imaginary
    parts, so that optimisers, to which JAX gives complex gradients without conjugates, see real
    numbers; ``d``, ``(hidden_size,)``, or ``(hidden_size, inputs)`` where these are not of one
    size; ``bias``, ``(hidden_size,)``. The state is ``(num_layers * num_directions, ..., P)``,
    complex.

    Own options
    -----------
    state_size:
        P.
    r_min, r_max, max_phase:
        Gates start uniform on the ring between these radii, of angles up to max_phase.

    Notes
    -----
    Source: Orvieto et al., Resurrecting Recurrent Neural Networks for Long Sequences (2023),
    section 3; the start is that of lemma 3.2. Both parts of ``b`` start normal of variance ``1 / (2
    inputs)``, those of ``c`` of ``1 / P``; ``d`` normal of variance 1, as a matrix of ``1 /
    inputs``; ``bias`` 0.
    """

    state_size: int = 64
    r_min: float = 0.9
    r_max: float = 0.999
    max_phase: float = 2 * math.pi

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep_counts("state_size")
        most, least = self.r_max, self.r_min
        check_between("LRU", "r_max", most, "a number above 0, at most 1", lambda r: 0 < r <= 1)
        below = f"0 or more, and below r_max, {most}"
        check_between("LRU", "r_min", least, below, lambda r: 0 <= r < most)
        turn = "a number above 0, at most 2 pi"
        check_between("LRU", "max_phase", self.max_phase, turn, lambda p: 0 < p <= 2 * math.pi)

    def _fields(self):
        return {"hidden": (self.state_size,)}

    def _init_one(self, key, inputs, dtype):
        keys, shape = jax.random.split(key, 5), (self.state_size,)
        of = computed(dtype)
        square = jax.random.uniform(keys[0], shape, of, self.r_min**2, self.r_max**2)
        # Without 0 and 1, to which numbers are rounded: logarithms of it and of a radius are
        # finite.
        square = jnp.clip(square, jnp.finfo(of).tiny, 1 - jnp.finfo(of).epsneg)
        turn = self.max_phase * (1 - jax.random.uniform(keys[1], shape, of))
        b, c = (self.state_size, inputs, 2), (self.hidden_size, self.state_size, 2)
        return {
            "nu": jnp.log(-0.5 * jnp.log(square)).astype(dtype),
            "theta": jnp.log(turn).astype(dtype),
            "b": normal(keys[2], b, dtype, 1 / (2 * inputs)),
            "c": normal(keys[3], c, dtype, 1 / self.state_size),
            **self._outer(keys[4], inputs, dtype),
        }

    def _system(self, params, u, **given):
        b, c = complex_of(params["b"]), complex_of(params["c"])
        return lru(u, params["nu"], params["theta"], b, c, **given)

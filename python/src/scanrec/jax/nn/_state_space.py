# SPDX-License-Identifier: BSD-3-Clause
"""The layers LRU and S5: linear scans of complex states between two matrix products."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from ..._jax.arrays import boundary_dtype as computed
from ..._jax.arrays import of_rank
from ..._layers import LRUSpec, S5Spec
from ..._op.state_space.jax import lru, s5
from ..._types import Discretisation
from ._layer import Arrays, Key, Layer, Result, Time

__all__ = ["LRU", "S5"]


class StateSpace(Layer[jax.Array]):
    """A layer around ``lru`` or ``s5`` of scanrec.jax."""

    def _system(self, params: Arrays, u: jax.Array, **given: Any) -> Any:
        """Call ``lru`` or ``s5`` without ``d``. Return the outputs and the final state."""
        raise NotImplementedError

    def _run(self, params: Arrays, x: jax.Array, first: Arrays, time: Time, key: Key) -> Result:
        kind = x.dtype
        x = x.astype(computed(kind))
        params = jax.tree.map(lambda p: p.astype(x.dtype), params)
        given = {"initial_state": first.get("hidden"), **time._asdict()}
        y, final = self._system(params, x, return_final=True, **given)
        d = params["d"]
        y = y + (x * of_rank(d, x.ndim) if d.ndim == 1 else x @ d.T)
        if self.bias:
            y = y + of_rank(params["bias"], y.ndim)
        return y.astype(kind), {"hidden": final}


def _complex(pairs: jax.Array) -> jax.Array:
    """Make complex numbers from real and imaginary parts along the last axis."""
    return jax.lax.complex(pairs[..., 0], pairs[..., 1])


@dataclass(frozen=True)
class LRU(LRUSpec, StateSpace):
    """Layers of linear recurrent units."""

    state_size: int = 64
    r_min: float = 0.9
    r_max: float = 0.999
    max_phase: float = 2 * math.pi

    def _system(self, params: Arrays, u: jax.Array, **given: Any) -> Any:
        b, c = _complex(params["b"]), _complex(params["c"])
        return lru(u, params["nu"], params["theta"], b, c, **given)


@dataclass(frozen=True)
class S5(S5Spec, StateSpace):
    """Layers of simplified state spaces."""

    state_size: int = 64
    blocks: int = 1
    discretisation: Discretisation = "zero_order_hold"
    dt_min: float = 1e-3
    dt_max: float = 1e-1

    def _system(self, params: Arrays, u: jax.Array, **given: Any) -> Any:
        lambda_ = jax.lax.complex(-jnp.exp(params["log_decay"]), params["frequency"])
        return s5(
            u,
            lambda_,
            _complex(params["b"]),
            _complex(params["c"]),
            log_step=params["log_step"],
            discretisation=self.discretisation,
            **given,
        )

# SPDX-License-Identifier: BSD-3-Clause
"""The Mamba layer: a convolution and a selective scan between matrix products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp

from ..._jax.arrays import boundary_dtype as computed
from ..._jax.arrays import of_rank
from ..._layers import MambaSpec
from ..._op.selective.jax import selective_scan
from ._layer import Arrays, Key, Layer, Result, Time, saved_by_name

__all__ = ["Mamba", "MambaState"]


@saved_by_name
class MambaState(NamedTuple):
    """State of :class:`Mamba` layers. E, N and K are defined there."""

    #: ``(num_layers * num_directions, ..., E, N)``.
    hidden: jax.Array
    #: ``(num_layers * num_directions, ..., E, K - 1)``: the inputs of the convolution that the
    #: next call also reads, in the order of time.
    conv: jax.Array


@dataclass(frozen=True)
class Mamba(MambaSpec, Layer[MambaState]):
    """Layers of selective state spaces."""

    state_size: int = 16
    conv: int = 4
    expand: int = 2
    dt_rank: int | Literal["auto"] = "auto"

    _state_type: ClassVar[Any] = MambaState

    def _run(self, params: Arrays, x: jax.Array, first: Arrays, time: Time, key: Key) -> Result:
        u, z = jnp.split(x @ params["weight_in"].T, 2, -1)
        past = jnp.swapaxes(first["conv"], -1, -2) if first else None
        seen, past = time.window(u, past, self.conv)
        taps = params["weight_conv"]
        products = [s * of_rank(taps[:, -1 - k], s.ndim) for k, s in enumerate(seen)]
        v = sum(products[1:], products[0])
        v = jax.nn.silu(v + of_rank(params["bias_conv"], v.ndim) if self.bias else v)
        rank, states = self._rank, self.state_size
        low, b, c = jnp.split(v @ params["weight_projection"].T, (rank, rank + states), -1)
        decay = -jnp.exp(params["log_decay"].astype(computed(x.dtype)))
        y, final = selective_scan(
            v,
            low @ params["weight_delta"].T,
            decay,
            b,
            c,
            params["d"],
            z,
            params["bias_delta"],
            delta_softplus=True,
            initial_state=first.get("hidden"),
            return_final=True,
            **time.options,
        )
        past = jnp.swapaxes(past, -1, -2).astype(decay.dtype)
        return y @ params["weight_out"].T, {"hidden": final, "conv": past}

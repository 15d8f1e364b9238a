# SPDX-License-Identifier: BSD-3-Clause
"""S5: diagonal state spaces that start from HiPPO."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from ... import _arguments as arguments
from ..._hippo import legs_normal_part
from ..._types import Discretisation
from .._state_space import s5
from ._diagonal import DiagonalLayer, complex_of, pair_of
from ._initial import computed, log_uniform, normal
from ._layer import check_between

__all__ = ["S5"]


@dataclass(frozen=True)
class S5(DiagonalLayer):
    """Layers of diagonal state spaces in conjugate pairs, P = state_size / 2::

        lambda = -exp(log_decay) + i frequency
        x[t] = gate x[t-1] + scale (b u[t])           lambda discretised by steps exp(log_step)
        y[t] = 2 Re(c x[t]) + d u[t] + bias

    All of it is linear, and nothing is between layers. Parameters: ``log_decay``, ``frequency``,
    ``log_step``, ``(P,)``; ``b``, ``(P, inputs, 2)``, and ``c``, ``(hidden_size, P, 2)``, pairs of
    real and imaginary parts, so that optimisers, to which JAX gives complex gradients without
    conjugates, see real numbers; ``d``, ``(hidden_size,)``, or ``(hidden_size, inputs)`` where
    these are not of one size; ``bias``, ``(hidden_size,)``. The state is ``(num_layers *
    num_directions, ..., P)``, complex.

    Own options
    -----------
    state_size:
        Real dimension of the state space, 2 P.
    blocks:
        Equal blocks of HiPPO-LegS to start from, each of an even number of states.
    discretisation:
        ``"zero_order_hold"``, ``"bilinear"``.
    dt_min, dt_max:
        Steps start log-uniform between these.

    Notes
    -----
    Source: Smith et al., Simplified State Space Layers for Sequence Modeling (2023), sections 3.2,
    4.3 and appendix B.1, also for the start: lambda as of HiPPO-LegS, of which ``b`` and ``c`` are
    normal of variance ``1 / inputs`` and ``1 / state_size``, turned into its basis; ``d`` normal of
    variance 1, as a matrix of ``1 / inputs``; ``bias`` 0. Decays as exponentials: Gu et al., On the
    Parameterization and Initialization of Diagonal State Space Models (2022), section 3.
    """

    state_size: int = 64
    blocks: int = 1
    discretisation: Discretisation = "zero_order_hold"
    dt_min: float = 1e-3
    dt_max: float = 1e-1

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep_counts("state_size", "blocks")
        if self.state_size % (2 * self.blocks):
            expected = f"a multiple of 2 * blocks, {2 * self.blocks}"
            arguments.refuse("S5", "state_size", expected, self.state_size)
        arguments.check_discretisation("S5", self.discretisation)
        check_between("S5", "dt_min", self.dt_min, "a number above 0", lambda s: s > 0)
        above = f"dt_min or more, {self.dt_min}"
        check_between("S5", "dt_max", self.dt_max, above, lambda s: self.dt_min <= s < float("inf"))

    def _fields(self):
        return {"hidden": (self.state_size // 2,)}

    def _init_one(self, key, inputs, dtype):
        n, of = self.state_size // self.blocks, computed(dtype)
        values, vectors = legs_normal_part(n)
        turn = jnp.asarray(vectors, np.result_type(of, np.complex64))
        keys = jax.random.split(key, 4)
        b = normal(keys[0], (self.blocks, n, inputs), of, 1 / inputs)
        c = normal(keys[1], (self.hidden_size, self.blocks, n), of, 1 / self.state_size)
        b, c = b.astype(turn.dtype), c.astype(turn.dtype)
        exact = {"precision": jax.lax.Precision.HIGHEST}
        b = jnp.einsum("np,bni->bpi", turn.conj(), b, **exact).reshape(-1, inputs)
        c = jnp.einsum("hbn,np->hbp", c, turn, **exact).reshape(self.hidden_size, -1)
        pairs = self.state_size // 2
        return {
            "log_decay": jnp.full(pairs, np.log(0.5), dtype),
            "frequency": jnp.tile(jnp.asarray(values, dtype), self.blocks),
            "log_step": log_uniform(keys[2], pairs, dtype, self.dt_min, self.dt_max),
            "b": pair_of(b).astype(dtype),
            "c": pair_of(c).astype(dtype),
            **self._outer(keys[3], inputs, dtype),
        }

    def _system(self, params, u, **given):
        lambda_ = jax.lax.complex(-jnp.exp(params["log_decay"]), params["frequency"])
        return s5(
            u,
            lambda_,
            complex_of(params["b"]),
            complex_of(params["c"]),
            log_step=params["log_step"],
            discretisation=self.discretisation,
            **given,
        )

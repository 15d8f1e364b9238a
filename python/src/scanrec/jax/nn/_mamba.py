# SPDX-License-Identifier: BSD-3-Clause
"""Mamba: a product into channels and their gates, a causal convolution, a selective scan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp

from ... import _arguments as arguments
from .._arrays import of_rank
from .._selective_scan import selective_scan
from ._initial import computed, log_uniform, uniform
from ._layer import Layer
from ._states import saved_by_name
from ._window import window

__all__ = ["Mamba", "MambaState"]


@saved_by_name
class MambaState(NamedTuple):
    """What layers of :class:`Mamba` carry on, E and N as there."""

    #: ``(num_layers * num_directions, ..., E, N)``.
    hidden: jax.Array
    #: ``(num_layers * num_directions, ..., E, conv - 1)``: what the convolution still sees, in the
    #: order of time.
    conv: jax.Array


@dataclass(frozen=True)
class Mamba(Layer[MambaState]):
    """Layers of selective state spaces, without the norms and sums that models put around them::

        u, z = weight_in x
        v = silu(convolution of u by weight_conv + bias_conv)
        low, B, C = weight_mixing v
        y = weight_out selective_scan(v, weight_delta low, -exp(log_decay), B, C, skip, z,
        bias_delta)

    with the softplus of steps. E = expand * hidden_size, N = state_size, R = dt_rank. Parameters:
    ``weight_in``, ``(2 E, inputs)``; ``weight_conv``, ``(E, conv)``, of which the last is the
    present step's, in the other direction too; ``bias_conv``, ``(E,)``; ``weight_mixing``, ``(R + 2
    N, E)``; ``weight_delta``, ``(E, R)``; ``bias_delta``, ``(E,)``, also where ``bias`` is False;
    ``log_decay``, ``(E, N)``; ``skip``, ``(E,)``; ``weight_out``, ``(hidden_size, E)``. The state
    is a :class:`MambaState`.

    Own options
    -----------
    state_size:
        N, states of each channel.
    conv:
        Steps that the convolution sees.
    expand:
        Channels of the scan, by hidden_size.
    dt_rank:
        R; ``"auto"`` is ``hidden_size / 16``, rounded up.

    Notes
    -----
    Source: Gu and Dao, Mamba: Linear-time sequence modeling with selective state spaces (2023),
    sections 3.4 and 3.6, also for the start: ``log_decay`` log 1, ... log N (S4D-real: Gu et al.,
    2022), ``skip`` 1, steps ``softplus(bias_delta)`` log-uniform from 1e-3 to 1e-1,
    ``weight_delta`` uniform in +-1 / sqrt(R); other weights and ``bias_conv`` uniform in +-1 /
    sqrt(inputs of each output), as those of ``torch.nn.Linear`` and ``Conv1d``.
    """

    state_size: int = 16
    conv: int = 4
    expand: int = 2
    dt_rank: int | Literal["auto"] = "auto"

    _state_type: ClassVar[Any] = MambaState

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep_counts("state_size", "conv", "expand")
        if isinstance(self.dt_rank, str) and self.dt_rank != "auto":
            arguments.refuse("Mamba", "dt_rank", "an integer, or 'auto'", repr(self.dt_rank))
        if self.dt_rank != "auto":
            self._keep_counts("dt_rank")

    @property
    def _inner(self):
        return self.expand * self.hidden_size

    @property
    def _rank(self):
        return -(-self.hidden_size // 16) if self.dt_rank == "auto" else self.dt_rank

    def _fields(self):
        return {
            "hidden": (self._inner, self.state_size),
            "conv": (self._inner, self.conv - 1),
        }

    def _init_one(self, key, inputs, dtype):
        inner, rank, states = self._inner, self._rank, self.state_size
        keys = jax.random.split(key, 7)
        step = jnp.exp(log_uniform(keys[5], inner, computed(dtype), 1e-3, 1e-1))
        decay = jnp.log(jnp.arange(1, states + 1, dtype=computed(dtype)))
        params = {
            "weight_in": uniform(keys[0], (2 * inner, inputs), dtype, inputs),
            "weight_conv": uniform(keys[1], (inner, self.conv), dtype, self.conv),
            "weight_mixing": uniform(keys[2], (rank + 2 * states, inner), dtype, inner),
            "weight_delta": uniform(keys[3], (inner, rank), dtype, rank),
            "bias_delta": (step + jnp.log(-jnp.expm1(-step))).astype(dtype),  # softplus: the step
            "log_decay": jnp.tile(decay.astype(dtype), (inner, 1)),
            "skip": jnp.ones(inner, dtype),
            "weight_out": uniform(keys[4], (self.hidden_size, inner), dtype, inner),
        }
        if self.bias:
            params["bias_conv"] = uniform(keys[6], (inner,), dtype, self.conv)
        return params

    def _run(self, params, x, first, marks, reverse, key):
        u, z = jnp.split(x @ params["weight_in"].T, 2, -1)
        past = jnp.swapaxes(first["conv"], -1, -2) if first else None
        seen, past = window(u, past, self.conv, marks, reverse)
        v = sum(s * of_rank(params["weight_conv"][:, -1 - k], s.ndim) for k, s in enumerate(seen))
        v = jax.nn.silu(v + of_rank(params["bias_conv"], v.ndim) if self.bias else v)
        rank, states = self._rank, self.state_size
        low, b, c = jnp.split(v @ params["weight_mixing"].T, (rank, rank + states), -1)
        decay = -jnp.exp(params["log_decay"].astype(computed(x.dtype)))
        y, final = selective_scan(
            v,
            low @ params["weight_delta"].T,
            decay,
            b,
            c,
            params["skip"],
            z,
            params["bias_delta"],
            delta_softplus=True,
            initial_state=first.get("hidden"),
            resets=None if marks is None else marks[..., None],
            reverse=reverse,
            return_final=True,
        )
        past = jnp.swapaxes(past, -1, -2).astype(decay.dtype)
        return y @ params["weight_out"].T, {"hidden": final, "conv": past}

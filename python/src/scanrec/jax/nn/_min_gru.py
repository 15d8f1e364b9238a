# SPDX-License-Identifier: BSD-3-Clause
"""Minimal gated recurrent units: gates and candidates of the inputs alone."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from ... import _arguments as arguments
from ..._types import Candidate
from .._arrays import of_rank
from .._linear_scan import linear_scan
from ._initial import computed, uniform
from ._layer import Layer

__all__ = ["MinGRU"]

_CANDIDATES = ("identity", "positive")


@dataclass(frozen=True)
class MinGRU(Layer[jax.Array]):
    """Layers of minimal gated recurrent units::

        v, update = weight x + bias
        state[t] = (1 - z[t]) state[t-1] + z[t] g(v[t]),        z = sigmoid(update)

    Outputs are the states, of any sign. Gates next to 1 keep the digits of ``log(1 - z)``.
    Parameters: ``weight``, ``(2 * hidden_size, inputs)``, and ``bias``, ``(2 * hidden_size,)``, of
    v and of the update gate. The state is ``(num_layers * num_directions, ..., hidden_size)``.

    Own options
    -----------
    candidate:
        What g is: ``"identity"``, or ``"positive"``, ``v + 1/2`` from 0 on and ``sigmoid(v)``
        below.

    Notes
    -----
    Source: Feng et al., Were RNNs All We Needed? (2024), section 3.1; g: appendix B. Weights and
    biases start uniform in +-1 / sqrt(inputs), as those of ``torch.nn.Linear``.
    """

    candidate: Candidate = "identity"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.candidate not in _CANDIDATES:
            expected = "one of " + ", ".join(map(repr, _CANDIDATES))
            arguments.refuse("MinGRU", "candidate", expected, repr(self.candidate))

    def _init_one(self, key, inputs, dtype):
        keys = jax.random.split(key)
        params = {"weight": uniform(keys[0], (2 * self.hidden_size, inputs), dtype, inputs)}
        if self.bias:
            params["bias"] = uniform(keys[1], (2 * self.hidden_size,), dtype, inputs)
        return params

    def _run(self, params, x, first, marks, reverse, key):
        pre = x @ params["weight"].T
        if self.bias:
            pre = pre + of_rank(params["bias"], pre.ndim)
        # Gates close to 1 are not to be rounded to 16 bits.
        v, update = jnp.split(pre.astype(computed(x.dtype)), 2, -1)
        if self.candidate == "positive":
            v = jnp.where(v >= 0, v + 0.5, jax.nn.sigmoid(v))
        # 1 - z would be rounded where it is next to 1, and 0 long before exp(-softplus) is.
        state, final = linear_scan(
            -jax.nn.softplus(update),
            jax.nn.sigmoid(update) * v,
            first.get("hidden"),
            reverse=reverse,
            resets=None if marks is None else marks[..., None],
            log_gate=True,
            return_final=True,
        )
        return state.astype(x.dtype), {"hidden": final}

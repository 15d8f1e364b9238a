# SPDX-License-Identifier: BSD-3-Clause
"""Real-gated linear recurrent units: a decay per channel, raised to the power of a gate."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from ... import _arguments as arguments
from .._arrays import of_rank
from .._linear_scan import linear_scan
from ._initial import computed, normal
from ._layer import Layer, check_between
from ._window import begins

__all__ = ["RGLRU"]

#: Roots count as this at least where slopes are divided by them, as in RecurrentGemma.
_LEAST = 0.5e-3


@jax.custom_jvp
def _root(x):
    return jnp.sqrt(x)


@_root.defjvp
def _root_jvp(values, tangents):
    root = _root(values[0])
    return root, tangents[0] / (2 * jnp.maximum(root, _LEAST))


@dataclass(frozen=True)
class RGLRU(Layer[jax.Array]):
    """Layers of real-gated linear recurrent units::

        x = u                                   weight_in u + bias_in where these are not
        hidden_size r = sigmoid(weight_recurrence x + bias_recurrence),     i = sigmoid(weight_gate
        x + bias_gate) a = exp(-c softplus(decay) r)
        state[t] = a[t] state[t-1] + sqrt(1 - a[t]^2) i[t] x[t]

    Outputs are the states. The first step of a sequence is not scaled by the root, as in
    RecurrentGemma: a state of zeros is one to go on from, and not the same as None.

    Parameters: ``decay``, ``bias_recurrence`` and ``bias_gate``, ``(hidden_size,)``;
    ``weight_recurrence`` and ``weight_gate``, ``(heads, n, n)`` with ``n = hidden_size / heads``,
    of which ``weight[h, i, j]`` is that of input i and gate j; ``weight_in``, ``(hidden_size,
    inputs)``, and ``bias_in``, where there are not hidden_size inputs. The state is ``(num_layers *
    num_directions, ..., hidden_size)``.

    Own options
    -----------
    heads:
        Blocks on the diagonal of the gates' products, which hidden_size is a multiple of.
    c:
        The power, above 0.

    Notes
    -----
    Source: De et al., Griffin: Mixing gated linear recurrences with local attention for efficient
    language models (2024), section 2.4. ``a`` where r is 1 starts uniform from 0.9 to 0.999 (the
    same), weights normal of variance 1 by the number of their inputs (LeCun et al., Efficient
    BackProp, 1998), biases 0. The slope of the root, which is infinite at a = 1, counts as at most
    1000.
    """

    heads: int = 1
    c: float = 8.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep_counts("heads")
        if self.hidden_size % self.heads:
            expected = f"a divisor of hidden_size, {self.hidden_size}"
            arguments.refuse("RGLRU", "heads", expected, self.heads)
        check_between("RGLRU", "c", self.c, "a number above 0", lambda c: 0 < c < float("inf"))

    def _init_one(self, key, inputs, dtype):
        size, of_head = self.hidden_size, self.hidden_size // self.heads
        keys = jax.random.split(key, 4)
        a = jax.random.uniform(keys[0], (size,), computed(dtype), 0.9, 0.999)
        params = {"decay": jnp.log(jnp.expm1(-jnp.log(a) / self.c)).astype(dtype)}
        for name, draw in (("recurrence", keys[1]), ("gate", keys[2])):
            shape = (self.heads, of_head, of_head)
            params[f"weight_{name}"] = normal(draw, shape, dtype, 1 / of_head)
        if inputs != size:
            params["weight_in"] = normal(keys[3], (size, inputs), dtype, 1 / inputs)
        if self.bias:
            names = ("recurrence", "gate", "in") if inputs != size else ("recurrence", "gate")
            params |= {f"bias_{name}": jnp.zeros(size, dtype) for name in names}
        return params

    def _run(self, params, x, first, marks, reverse, key):
        kind = x.dtype
        bias = lambda name: of_rank(params[f"bias_{name}"], x.ndim) if self.bias else 0
        if "weight_in" in params:
            x = x @ params["weight_in"].T + bias("in")
        by_heads = x.reshape(*x.shape[:-1], self.heads, x.shape[-1] // self.heads)

        def gate(name):
            pre = jnp.einsum("...hi,hij->...hj", by_heads, params[f"weight_{name}"])
            # Gates close to 1 are not to be rounded to 16 bits.
            return jax.nn.sigmoid((pre.reshape(x.shape) + bias(name)).astype(computed(kind)))

        recurs, opens = gate("recurrence"), gate("gate")
        decay = of_rank(params["decay"].astype(recurs.dtype), x.ndim)
        log_a = -self.c * jax.nn.softplus(decay) * recurs
        scale = _root(-jnp.expm1(2 * log_a))  # does not cancel near a = 1
        is_first = begins(x.shape[-2], marks, not first, reverse)
        if is_first is not None:
            scale = jnp.where(of_rank(is_first[..., None], x.ndim), 1, scale)
        state, final = linear_scan(
            jnp.exp(log_a),
            scale * opens * x.astype(scale.dtype),
            first.get("hidden"),
            reverse=reverse,
            resets=None if marks is None else marks[..., None],
            return_final=True,
        )
        return state.astype(kind), {"hidden": final}

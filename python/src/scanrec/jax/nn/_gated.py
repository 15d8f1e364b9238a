# SPDX-License-Identifier: BSD-3-Clause
"""The layers QRNN, MinGRU and RGLRU, whose gates are computed from the inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, overload

import jax
import jax.numpy as jnp

from ..._jax.arrays import boundary_dtype as computed
from ..._jax.arrays import of_rank
from ..._layers import MinGRUSpec, QRNNSpec, RGLRUSpec
from ..._op.gated.jax import qrnn_pool
from ..._op.linear.jax import linear_scan
from ..._types import Candidate, Memory, Pool, State
from ._layer import Arrays, Key, Layer, Result, Time, saved_by_name

__all__ = ["QRNN", "MinGRU", "QRNNState", "RGLRU"]


@saved_by_name
class QRNNState(NamedTuple):
    """State of a :class:`QRNN` with ``kernel_size=2`` and n pre-activations per channel."""

    #: ``(num_layers * num_directions, ..., hidden_size)``.
    hidden: jax.Array
    #: ``(num_layers * num_directions, ..., n * hidden_size)``: the terms that the last step adds to
    #: the pre-activations of the next step.
    before: jax.Array


@dataclass(frozen=True)
class QRNN(QRNNSpec, Layer[State]):
    """Layers of a quasi-recurrent network."""

    kernel_size: Literal[1, 2] = 1
    pool: Pool = "fo"
    zoneout: float = 0.0
    memory: Memory = "store"

    _state_type: ClassVar[Any] = QRNNState

    if TYPE_CHECKING:

        @overload
        def __init__(
            self: QRNN[jax.Array], input_size: int, hidden_size: int, num_layers: int = 1,
            bias: bool = True, dropout: float = 0.0, bidirectional: bool = False,
            kernel_size: Literal[1] = 1, pool: Pool = "fo", zoneout: float = 0.0,
            memory: Memory = "store",
        ) -> None: ...  # fmt: skip
        @overload
        def __init__(
            self: QRNN[QRNNState], input_size: int, hidden_size: int, num_layers: int = 1,
            bias: bool = True, dropout: float = 0.0, bidirectional: bool = False,
            *, kernel_size: Literal[2], pool: Pool = "fo", zoneout: float = 0.0,
            memory: Memory = "store",
        ) -> None: ...  # fmt: skip
        def __init__(self, *sizes: Any, **options: Any) -> None: ...

    def _run(self, params: Arrays, x: jax.Array, first: Arrays, time: Time, key: Key) -> Result:
        left: dict[str, jax.Array] = {}
        pre = x @ params["weight"].T
        if self.kernel_size == 2:
            past = first["before"][..., None, :] if first else None
            (_, before), past = time.window(x @ params["weight_before"].T, past, 2)
            pre = pre + before
            left["before"] = past[..., 0, :].astype(computed(x.dtype))
        if self.bias:
            pre = pre + of_rank(params["bias"], pre.ndim)
        zoneout, shape = None, (*x.shape[:-1], self.hidden_size)
        if self.zoneout and key is not None:
            zoneout = jax.random.bernoulli(key, self.zoneout, shape)
        elif self.zoneout:
            pre = jnp.concatenate(self._expected(jnp, jnp.split(pre, self._parts, -1)), -1)
        given = {"pool": self.pool, "zoneout": zoneout, "memory": self.memory, **time.options}
        output, left["hidden"] = qrnn_pool(pre, first.get("hidden"), return_final=True, **given)
        return output, left


@dataclass(frozen=True)
class MinGRU(MinGRUSpec, Layer[jax.Array]):
    """Layers of minimal gated recurrent units."""

    candidate: Candidate = "identity"

    def _run(self, params: Arrays, x: jax.Array, first: Arrays, time: Time, key: Key) -> Result:
        pre = x @ params["weight"].T
        if self.bias:
            pre = pre + of_rank(params["bias"], pre.ndim)
        # In 16 bits, gates close to 1 would be rounded to 1.
        v, update = jnp.split(pre.astype(computed(x.dtype)), 2, -1)
        if self.candidate == "positive":
            v = jnp.where(v >= 0, v + 0.5, jax.nn.sigmoid(v))
        # The log gate is log(1 - sigmoid(update)) = -softplus(update). The first form would lose
        # the digits of gates close to 1, and be log(0) for a large update.
        state, final = linear_scan(
            -jax.nn.softplus(update),
            jax.nn.sigmoid(update) * v,
            first.get("hidden"),
            log_gate=True,
            return_final=True,
            **time.options,
        )
        return state.astype(x.dtype), {"hidden": final}


#: Lower bound of square roots in denominators of derivatives, as in RecurrentGemma.
_LEAST = 0.5e-3

#: The square root, with a limited derivative.
_root = jax.custom_jvp(jnp.sqrt)
_root.defjvps(lambda tangent, root, x: tangent / (2 * jnp.maximum(root, _LEAST)))


@dataclass(frozen=True)
class RGLRU(RGLRUSpec, Layer[jax.Array]):
    """Layers of real-gated linear recurrent units.

    The derivative of the square root in ``sqrt(1 - a^2)``, infinite at a = 1, is limited to 1000.
    """

    heads: int = 1
    c: float = 8.0

    def _run(self, params: Arrays, x: jax.Array, first: Arrays, time: Time, key: Key) -> Result:
        kind = x.dtype

        def bias(name: str) -> jax.Array | int:
            return of_rank(params[f"bias_{name}"], x.ndim) if self.bias else 0

        if "weight_in" in params:
            x = x @ params["weight_in"].T + bias("in")
        by_heads = x.reshape(*x.shape[:-1], self.heads, x.shape[-1] // self.heads)

        def gate(name: str) -> jax.Array:
            pre = jnp.einsum("...hi,hij->...hj", by_heads, params[f"weight_{name}"])
            # In 16 bits, gates close to 1 would be rounded to 1.
            return jax.nn.sigmoid((pre.reshape(x.shape) + bias(name)).astype(computed(kind)))

        recurs, opens = gate("recurrence"), gate("gate")
        decay = of_rank(params["decay"].astype(recurs.dtype), x.ndim)
        log_a = -self.c * jax.nn.softplus(decay) * recurs
        scale = _root(-jnp.expm1(2 * log_a))  # sqrt(1 - a^2), without cancellation near a = 1
        is_first = time.begins(x.shape[-2], not first)
        if is_first is not None:
            scale = jnp.where(of_rank(is_first[..., None], x.ndim), 1, scale)
        state, final = linear_scan(
            jnp.exp(log_a),
            scale * opens * x.astype(scale.dtype),
            first.get("hidden"),
            return_final=True,
            **time.options,
        )
        return state.astype(kind), {"hidden": final}

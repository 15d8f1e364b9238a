# SPDX-License-Identifier: BSD-3-Clause
"""Quasi-recurrent layers: a product with the last steps, and gated pooling."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, overload

import jax
import jax.numpy as jnp

from ... import _arguments as arguments
from ..._types import Memory, Pool, State
from .._arrays import of_rank
from .._qrnn_pool import qrnn_pool
from ._initial import computed, normal
from ._layer import Layer, check_between
from ._states import saved_by_name
from ._window import window

__all__ = ["QRNN", "QRNNState"]


@saved_by_name
class QRNNState(NamedTuple):
    """What layers with a window of two steps carry on, ``n`` as of :class:`QRNN`."""

    #: ``(num_layers * num_directions, ..., hidden_size)``.
    hidden: jax.Array
    #: ``(num_layers * num_directions, ..., n * hidden_size)``: what the last step adds to the
    #: pre-activations of the next one.
    before: jax.Array


@dataclass(frozen=True)
class QRNN(Layer[State]):
    """Layers of a quasi-recurrent network::

        pre[t] = weight x[t] + weight_before x[t-1] + bias
        output = qrnn_pool(pre, pool=pool)

    Parameters, of ``n`` = 2 (``"f"``), 3 or 4 pre-activations (candidate, forget gate, output gate,
    input gate, one behind the other): ``weight`` and, with a window of two, ``weight_before``, ``(n
    * hidden_size, inputs)``; ``bias``, ``(n * hidden_size,)``.

    The state is ``(num_layers * num_directions, ..., hidden_size)``; with a window of two steps it
    is a :class:`QRNNState`.

    Own options
    -----------
    kernel_size:
        Steps that the product sees, 1 or 2.
    pool:
        ``"f"``, ``"fo"`` or ``"ifo"``, as of :func:`scanrec.jax.qrnn_pool`.
    zoneout:
        The probability with which a number of the state stays as it was, if there is a key to draw
        with. Without, it moves by the expected part.
    memory:
        What a gradient finds of the states, ``"store"`` or ``"recompute"``, as of
        :func:`scanrec.jax.qrnn_pool`: the same bits, from 1/128 of the memory.

    Notes
    -----
    Source: Bradbury et al., Quasi-Recurrent Neural Networks (2017), section 2. Weights start
    normal, of variance ``1 / (kernel_size * inputs)`` (LeCun et al., Efficient BackProp, 1998),
    biases 0, those of forget gates 1 (Gers et al., Learning to Forget, 2000; Jozefowicz et al., An
    empirical exploration of recurrent network architectures, 2015). Zoneout: Krueger et al. (2017).
    """

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

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.kernel_size, bool) or self.kernel_size not in (1, 2):
            arguments.refuse("QRNN", "kernel_size", "1 or 2", repr(self.kernel_size))
        self._keep("kernel_size", int(self.kernel_size))
        arguments.pool_size("QRNN", self.pool)
        arguments.recomputes("QRNN", self.memory)
        expected = "0 or more, and below 1"
        check_between("QRNN", "zoneout", self.zoneout, expected, lambda p: 0 <= p < 1)

    def _fields(self):
        wide = arguments.POOLS[self.pool] * self.hidden_size
        return super()._fields() | ({"before": (wide,)} if self.kernel_size == 2 else {})

    def _init_one(self, key, inputs, dtype):
        count, keys = arguments.POOLS[self.pool], jax.random.split(key)
        shape, variance = (count * self.hidden_size, inputs), 1 / (self.kernel_size * inputs)
        params = {"weight": normal(keys[0], shape, dtype, variance)}
        if self.kernel_size == 2:
            params["weight_before"] = normal(keys[1], shape, dtype, variance)
        if self.bias:
            remember = jnp.zeros((count, self.hidden_size), dtype).at[1].set(1)
            params["bias"] = remember.reshape(-1)
        return params

    def _run(self, params, x, first, marks, reverse, key):
        left, pre = {}, x @ params["weight"].T
        if self.kernel_size == 2:
            past = first["before"][..., None, :] if first else None
            (_, before), past = window(x @ params["weight_before"].T, past, 2, marks, reverse)
            pre = pre + before
            left["before"] = past[..., 0, :].astype(computed(x.dtype))
        if self.bias:
            pre = pre + of_rank(params["bias"], pre.ndim)
        zoneout, shape = None, (*x.shape[:-1], self.hidden_size)
        if self.zoneout and key is not None:
            zoneout = jax.random.bernoulli(key, self.zoneout, shape)
        elif self.zoneout:
            pre = _expected(pre, arguments.POOLS[self.pool], self.zoneout)
        output, left["hidden"] = qrnn_pool(
            pre,
            first.get("hidden"),
            pool=self.pool,
            reverse=reverse,
            resets=None if marks is None else marks[..., None],
            zoneout=zoneout,
            memory=self.memory,
            return_final=True,
        )
        return output, left


def _expected(pre, count, zoneout):
    """Pre-activations of states that move by ``1 - zoneout`` of what they would: ``1 - f``, and the
    input gate if there is one, by this less. As a logit, ``f`` is then ``log((exp(p) + zoneout) /
    (1
    - zoneout))``, and ``i`` what ``1 - f`` is."""
    candidate, forget, *others = jnp.split(pre, count, -1)
    less = lambda p: jnp.logaddexp(p, math.log(zoneout)) - math.log1p(-zoneout)
    if len(others) > 1:
        others[1] = -less(-others[1])
    return jnp.concatenate([candidate, less(forget), *others], -1)

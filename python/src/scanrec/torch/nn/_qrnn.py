# SPDX-License-Identifier: BSD-3-Clause
"""A quasi-recurrent network: products of the last one or two inputs, and pooling."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, overload

import torch
from torch import Tensor
from torch.nn import functional

from ... import _arguments as arguments
from ..._types import Memory, Pool, State
from .._qrnn_pool import qrnn_pool
from . import _checks as checks
from ._recurrent import Recurrent
from ._states import saved_by_name
from ._window import firsts

__all__ = ["QRNN", "QRNNState"]


@saved_by_name
class QRNNState(NamedTuple):
    """What a QRNN whose products are of two steps goes on from."""

    hidden: Tensor  #: ``(num_layers * num_directions, B, hidden_size)``
    before: Tensor  #: what the last step adds to the pre-activations of the next one


class QRNN(Recurrent[State]):
    """A quasi-recurrent network, in the calls of torch.nn.LSTM::

        pre[t] = weight u[t] + weight_before u[t-1] + bias          the second with kernel_size=2
        output = qrnn_pool(pre, pool=pool)

    Value and gradient of the pooling are one pass over memory each.

    Parameters
    ----------
    input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device, dtype:
        As of torch.nn.LSTM: ``dropout`` is on the outputs of all layers but the last.
    kernel_size:
        How many steps the products see, 1 or 2.
    pool:
        ``"f"``, ``"fo"`` or ``"ifo"``, as in :func:`scanrec.torch.qrnn_pool`.
    zoneout:
        The probability, below 1, with which a number of the state stays as it was while training.
        Otherwise it moves by the expected part.
    memory:
        What a gradient finds of the states, ``"store"`` or ``"recompute"``, as in
        :func:`scanrec.torch.qrnn_pool`: the same bits, from 1/128 of the memory.

    Weights of layer k, n = 2, 3, 4 for ``"f"``, ``"fo"``, ``"ifo"``: ``weight_lk`` and
    ``weight_before_lk``, ``(n * hidden_size, input_size)``, rows of the candidate first, then those
    of the forget, the output and the input gate; ``bias_lk``, ``(n * hidden_size,)``. With
    ``_reverse`` behind for the other direction.

    State: ``(num_layers * num_directions, B, hidden_size)``, with ``kernel_size=2`` a
    :class:`QRNNState`, whose second tensor has n * hidden_size numbers.

    Notes
    -----
    Weights start normal, of variance 1 / (kernel_size * input_size) (LeCun et al., Efficient
    BackProp, 1998); biases at 0, those of forget gates at 1 (Gers et al., Learning to Forget, 2000;
    Jozefowicz et al., 2015).

    Source: Bradbury et al., Quasi-Recurrent Neural Networks (2017), section 2; zoneout: Krueger et
    al. (2017).
    """

    kernel_size: Literal[1, 2]
    pool: Pool
    zoneout: float
    memory: Memory

    _own = {"kernel_size": 1, "pool": "fo", "zoneout": 0.0, "memory": "store"}

    @overload
    def __init__(
        self: QRNN[Tensor], input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0,
        bidirectional: bool = False, device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None, *, kernel_size: Literal[1] = 1, pool: Pool = "fo",
        zoneout: float = 0.0, memory: Memory = "store",
    ) -> None: ...  # fmt: skip
    @overload
    def __init__(
        self: QRNN[QRNNState], input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0,
        bidirectional: bool = False, device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None, *, kernel_size: Literal[2], pool: Pool = "fo",
        zoneout: float = 0.0, memory: Memory = "store",
    ) -> None: ...  # fmt: skip
    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        kernel_size: Literal[1, 2] = 1,
        pool: Pool = "fo",
        zoneout: float = 0.0,
        memory: Memory = "store",
    ):
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        )
        self.kernel_size = checks.choice(self._name, "kernel_size", kernel_size, (1, 2))
        self._parts, self.pool = arguments.pool_size(self._name, pool), pool
        self.zoneout = self._number("zoneout", zoneout, 0, 1)
        if self.zoneout == 1:
            arguments.refuse(self._name, "zoneout", "a number below 1", zoneout)
        arguments.recomputes(self._name, memory)
        self.memory = memory
        self._state_type = QRNNState if kernel_size == 2 else None
        self._build(device, dtype)

    def _shapes(self, inputs):
        rows = self._parts * self.hidden_size
        shapes = {"weight": (rows, inputs)}
        if self.kernel_size == 2:
            shapes["weight_before"] = (rows, inputs)
        return {**shapes, "bias": (rows,)} if self.bias else shapes

    def _state_shapes(self):
        if self.kernel_size == 1:
            return super()._state_shapes()
        return {"hidden": (self.hidden_size,), "before": (self._parts * self.hidden_size,)}

    def _reset(self, weights, inputs):
        for name, weight in weights.items():
            if name != "bias":
                weight.normal_(0, (self.kernel_size * inputs) ** -0.5)
        if self.bias:
            weights["bias"].zero_()
            weights["bias"].narrow(0, self.hidden_size, self.hidden_size).fill_(1)

    def _run(self, x, weights, state, axis, reverse, begins, resets):
        after, weight = (), weights["weight"]
        if self.kernel_size == 2:
            steps, last = x.shape[axis], x.select(axis, 0 if reverse else -1)
            after = (functional.linear(last, weights["weight_before"]),)
            first = None if resets is None else firsts(resets, steps, axis, reverse).unsqueeze(-1)
            # Both products at once, of inputs, which are fewer, side by side. One step does without
            # the second, unless its weights are to have a gradient, of 0.
            if torch.is_grad_enabled() or steps > 1:
                before = _before(x, axis, reverse)
                before = before if first is None else before.masked_fill(first, 0)
                x = torch.cat([x, before], -1)
                weight = torch.cat([weight, weights["weight_before"]], 1)
        pre = functional.linear(x, weight, weights.get("bias"))
        if self.kernel_size == 2 and begins != x.shape[1 - axis]:
            pre = _with_edge(pre, state[1].to(pre.dtype), first, axis, reverse)
        stays = None
        if self.zoneout and self.training:
            shape = (*pre.shape[:-1], self.hidden_size)
            stays = torch.rand(shape, device=pre.device) < self.zoneout
        elif self.zoneout:
            pre = _expected(pre.chunk(self._parts, -1), self.zoneout)
        output, final = qrnn_pool(
            *(pre, state[0]), pool=self.pool, axis=axis, reverse=reverse,
            resets=None if resets is None else resets.unsqueeze(-1), zoneout=stays,
            memory=self.memory, return_final=True,
        )  # fmt: skip
        return output, (final, *after)


# Both in steps of which there are as many as in x, or one more: narrowed to one less, programs for
# any length would ask whether one is left.


def _before(x, axis, reverse):
    """What the step before each had, 0 at the first."""
    zeros, steps = torch.zeros_like(x.narrow(axis, 0, 1)), x.shape[axis]
    longer = torch.cat([x, zeros] if reverse else [zeros, x], axis)
    return longer.narrow(axis, 1 if reverse else 0, steps)


def _with_edge(pre, edge, first, axis, reverse):
    """Pre-activations, the first of which the step before the first adds to."""
    at = pre.shape[axis] - 1 if reverse else 0
    edge = edge if first is None else edge.masked_fill(first.select(axis, at), 0)
    return torch.select_scatter(pre, pre.select(axis, at) + edge, axis, at)


def _expected(pre, zoneout):
    """Pre-activations of a state that moves by the part (1 - zoneout) of what it would."""
    candidate, forget, *others = pre

    def less(x):  # 1 - f' = (1 - zoneout) (1 - f), in terms of logits
        least = torch.full_like(x, math.log(zoneout))
        return torch.logaddexp(x, least) - math.log1p(-zoneout)

    if len(others) > 1:
        others[1] = -less(-others[1])
    return [candidate, less(forget), *others]

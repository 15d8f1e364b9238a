# SPDX-License-Identifier: BSD-3-Clause
"""The layers QRNN, MinGRU and RGLRU, whose pre-activations are linear in the inputs."""

from __future__ import annotations

from typing import Literal, NamedTuple, overload

import torch
from torch import Tensor
from torch.nn import functional

from ..._layers import MinGRUSpec, QRNNSpec, RGLRUSpec
from ..._op.gated.torch import qrnn_pool
from ..._op.linear.torch import linear_scan
from ..._torch.modes import is_distributed
from ..._types import Candidate, Memory, Pool, State
from ._recurrent import Leaves, Recurrent, Result, Time, Weights, saved_by_name, wide

__all__ = ["QRNN", "MinGRU", "QRNNState", "RGLRU"]


@saved_by_name
class QRNNState(NamedTuple):
    """State of a :class:`QRNN` with ``kernel_size=2``."""

    hidden: Tensor  #: ``(num_layers * num_directions, B, hidden_size)``
    before: Tensor  #: the terms that the last step adds to the pre-activations of the next step


class QRNN(QRNNSpec, Recurrent[State]):
    """Quasi-recurrent network, with the interface of torch.nn.LSTM."""

    _state_type = QRNNState

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
    ) -> None:
        super().__init__(locals())

    def _run(self, x: Tensor, weights: Weights, state: Leaves, time: Time) -> Result:
        weight, axis, reverse = weights["weight"], time.axis, time.reverse
        after: Leaves = ()
        if self.kernel_size == 2:
            steps, last = x.shape[axis], x.select(axis, 0 if reverse else -1)
            after = (functional.linear(last, weights["weight_before"]),)
            first = time.firsts(steps)
            first = None if first is None else first.unsqueeze(-1)
            # Concatenate inputs, not pre-activations, since inputs are usually smaller. A single
            # step needs the second product only to give its weights a gradient of 0.
            if torch.is_grad_enabled() or steps > 1:
                before = _before(x, axis, reverse)
                before = before if first is None else before.masked_fill(first, 0)
                x = torch.cat([x, before], -1)
                weight = torch.cat([weight, weights["weight_before"]], 1)
        pre = functional.linear(x, weight, weights.get("bias"))
        if self.kernel_size == 2 and time.begins != x.shape[1 - axis]:
            pre = _with_edge(pre, state[1].to(pre.dtype), first, axis, reverse)
        stays: Tensor | None = None
        parts: Tensor | list[Tensor] = pre
        if self.zoneout and self.training:
            shape = (*pre.shape[:-1], self.hidden_size)
            stays = torch.rand(shape, device=pre.device) < self.zoneout
        elif self.zoneout:
            parts = self._expected(torch, pre.chunk(self._parts, -1))
        given = {"pool": self.pool, "zoneout": stays, "memory": self.memory, **time.options}
        output, final = qrnn_pool(parts, state[0], return_final=True, **given)
        return output, (final, *after)


# The next two functions use tensors of T or T + 1 steps. With T - 1 steps, a compiled program for
# any length would need a guard for T > 1.


def _before(x: Tensor, axis: int, reverse: bool) -> Tensor:
    """Shift x by one step of the scan, with 0 at the first step (in reverse: the last)."""
    zeros, steps = torch.zeros_like(x.narrow(axis, 0, 1)), x.shape[axis]
    longer = torch.cat([x, zeros] if reverse else [zeros, x], axis)
    return longer.narrow(axis, 1 if reverse else 0, steps)


def _with_edge(
    pre: Tensor, boundary: Tensor, first: Tensor | None, axis: int, reverse: bool
) -> Tensor:
    """Add ``boundary``, the terms from the step before the scan, to the pre-activations of the
    first step (in reverse: the last)."""
    at = pre.shape[axis] - 1 if reverse else 0
    boundary = boundary if first is None else boundary.masked_fill(first.select(axis, at), 0)
    return torch.select_scatter(pre, pre.select(axis, at) + boundary, axis, at)


class MinGRU(MinGRUSpec, Recurrent[Tensor]):
    """Minimal gated recurrent units, with the interface of torch.nn.LSTM.

    Gates that are DTensors are not scanned as logarithms, so gates close to 1 are rounded.
    """

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
        candidate: Candidate = "identity",
    ) -> None:
        super().__init__(locals())

    def _run(self, x: Tensor, weights: Weights, state: Leaves, time: Time) -> Result:
        pre = functional.linear(x, weights["weight"], weights.get("bias"))
        v, z = wide(pre).chunk(2, -1)
        if self.candidate == "positive":
            v = torch.where(v >= 0, v + 0.5, torch.sigmoid(v))
        log_gate = not is_distributed(z)  # linear_scan does not support logarithms of DTensors
        # Above the threshold, softplus returns z. Above 40 this is exact in float64.
        gate = -functional.softplus(z, threshold=40) if log_gate else torch.sigmoid(-z)
        given = {"log_gate": log_gate, **time.options}
        h, final = linear_scan(gate, torch.sigmoid(z) * v, state[0], return_final=True, **given)
        return h.to(pre.dtype), (final,)


class RGLRU(RGLRUSpec, Recurrent[Tensor]):
    """Real-gated linear recurrent units of Griffin, with the interface of torch.nn.LSTM."""

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
        heads: int = 1,
        c: float = 8.0,
    ) -> None:
        super().__init__(locals())

    def _run(self, x: Tensor, weights: Weights, state: Leaves, time: Time) -> Result:
        if "weight_in" in weights:
            x = functional.linear(x, weights["weight_in"], weights.get("bias_in"))
        r, i = (self._gate(x, weights, name) for name in ("recurrence", "gate"))
        log_a = -self.c * functional.softplus(wide(weights["decay"])) * r
        # expm1 computes 1 - a^2 without cancellation. Where this is 0, the clamp makes the gradient
        # 0. The square root alone would make it infinite.
        scale = torch.sqrt((-torch.expm1(2 * log_a)).clamp_min(torch.finfo(log_a.dtype).tiny))
        steps, goes_on = x.shape[time.axis], x.shape[1 - time.axis] - time.begins
        first_steps = time.firsts(steps)
        if first_steps is not None:
            scale = torch.where(first_steps.unsqueeze(-1), 1.0, scale)
        a, gated, initial = torch.exp(log_a), i * wide(x), state[0]
        if time.begins:
            # The first input of a new sequence must not be scaled. The initial state of such a
            # sequence adds the missing share of the input, 1 - scale, since a (a / (1 + scale)) =
            # 1 - scale. The initial states of sequences that go on do not change.
            at = [t.select(time.axis, steps - 1 if time.reverse else 0) for t in (a, scale, gated)]
            a_first, scale_first, first = (t[goes_on:] for t in at)
            initial = torch.cat([initial[:goes_on], a_first / (1 + scale_first) * first])
        h, final = linear_scan(a, scale * gated, initial, return_final=True, **time.options)
        return h.to(x.dtype), (final,)

    def _gate(self, x: Tensor, weights: Weights, name: str) -> Tensor:
        apart = torch.unflatten(x, -1, (self.heads, -1))
        pre = torch.einsum("...hi,hij->...hj", apart, weights[f"weight_{name}"]).flatten(-2)
        if self.bias:
            pre = pre + weights[f"bias_{name}"]
        return torch.sigmoid(wide(pre))

# SPDX-License-Identifier: BSD-3-Clause
"""The Mamba layer: a convolution and a selective scan between matrix products."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from ..._layers import MambaSpec
from ..._op.selective.torch import selective_scan
from ._recurrent import Leaves, Recurrent, Result, Time, Weights, saved_by_name, wide

__all__ = ["Mamba", "MambaState"]


@saved_by_name
class MambaState(NamedTuple):
    """State of a :class:`Mamba` layer, with E = expand * hidden_size."""

    hidden: Tensor  #: ``(num_layers * num_directions, B, E, state_size)``
    #: ``(num_layers * num_directions, B, E, conv - 1)``: inputs of the convolution that the
    #: next steps of the scan read, in the order of time.
    conv: Tensor


class Mamba(MambaSpec, Recurrent[MambaState]):
    """Blocks of Mamba, with the interface of torch.nn.LSTM."""

    _state_type = MambaState

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
        state_size: int = 16,
        conv: int = 4,
        expand: int = 2,
        dt_rank: int | Literal["auto"] = "auto",
    ) -> None:
        super().__init__(locals())

    def _run(self, x: Tensor, weights: Weights, state: Leaves, time: Time) -> Result:
        axis, reverse, steps, boundary = time.axis, time.reverse, x.shape[time.axis], self.conv - 1
        wide_x = functional.linear(x, weights["weight_in"])
        wide_x = wide_x.permute(1, 2, 0) if axis == 0 else wide_x.mT
        u, z = wide_x.chunk(2, 1)
        past = state[1].to(u.dtype)
        whole = torch.cat([u, past] if reverse else [past, u], 2)
        left = whole.narrow(2, 0 if reverse else steps, boundary)
        time = time.batch_first
        first = time.firsts(steps)
        if first is not None:
            first = first.unsqueeze(1)
            left = _left_of(left, first, reverse) if boundary else left
        taps, bias = weights["weight_conv"], weights.get("bias_conv")
        v = functional.silu(_convolved(whole, taps, bias, first, reverse))
        sizes = [self._rank, self.state_size, self.state_size]
        low, b, c = torch.split(functional.linear(v.mT, weights["weight_projection"]), sizes, 2)
        out, final = selective_scan(
            v,
            functional.linear(low, weights["weight_delta"]).mT,
            -torch.exp(wide(weights["log_decay"])),
            b.mT,
            c.mT,
            wide(weights["d"]),
            z,
            wide(weights["bias_delta"]),
            delta_softplus=True,
            return_last_state=True,
            initial_state=state[0],
            resets=time.resets,
            reverse=reverse,
        )
        y = functional.linear(out.mT, weights["weight_out"])
        y = y.transpose(0, 1) if axis == 0 else y
        return y, (final, left)


def _resets(first: Tensor, count: int, reverse: bool) -> list[Tensor]:
    """Return, for each k below `count`, whether a reset separates a step from the k-th before it.

    "Before" is in the order of the scan.

    `first` and the masks are ``(B, 1, T)``.
    """
    resets, steps = [torch.zeros_like(first)], first.shape[2]
    for k in range(count - 1):
        pad = (0, k) if reverse else (k, 0)
        shifted = functional.pad(first, pad).narrow(2, k if reverse else 0, steps)
        resets.append(resets[-1] | shifted)
    return resets


def _convolved(
    whole: Tensor, taps: Tensor, bias: Tensor | None, first: Tensor | None, reverse: bool
) -> Tensor:
    """The convolution of every channel, ``(B, E, T)``, with 0 for the steps of another sequence.

    `whole` has the steps, and the K - 1 steps before them (in reverse: after them). The last of the
    K `taps` multiplies the present step. `first` is the result of :meth:`Time.firsts` as ``(B, 1,
    T)``, or None without resets.

    The convolution is a sum of shifted products, since torch.compile would recompile PyTorch's
    conv1d for every length. 16-bit types are summed in float32, as in conv1d.
    """
    count, taps = taps.shape[1], wide(taps)
    steps = whole.shape[2] - (count - 1)
    resets = None if first is None else _resets(first, count, reverse)
    v = torch.zeros_like(taps[:, :1]) if bias is None else wide(bias)[:, None]
    for k in range(count):
        seen = whole.narrow(2, k if reverse else count - 1 - k, steps)
        seen = seen if resets is None else seen.masked_fill(resets[k], 0)
        v = v + wide(seen) * taps[:, count - 1 - k, None]
    return v.to(whole.dtype)


def _left_of(past: Tensor, first: Tensor, reverse: bool) -> Tensor:
    """Return `past`, the last K - 1 steps, with 0 for steps before the last reset.

    `past` is ``(B, E, K - 1)``. In reverse it has the first K - 1, with 0 after the first reset.
    """
    resets = _resets(first, past.shape[2], reverse)
    at = 0 if reverse else first.shape[2] - 1
    other = [pieces.narrow(2, at, 1) for pieces in (resets if reverse else reversed(resets))]
    return past.masked_fill(torch.cat(other, 2), 0)

# SPDX-License-Identifier: BSD-3-Clause
"""The block of Mamba: a convolution, and a selective scan whose steps, inputs and outputs are
products of what went through it."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from .._selective_scan import selective_scan
from ._recurrent import Recurrent, wide
from ._states import saved_by_name
from ._window import convolved, firsts, left_of

__all__ = ["Mamba", "MambaState"]


@saved_by_name
class MambaState(NamedTuple):
    """What a Mamba layer goes on from, E = expand * hidden_size."""

    hidden: Tensor  #: ``(num_layers * num_directions, B, E, state_size)``
    conv: Tensor  #: ``(num_layers * num_directions, B, E, conv - 1)``, in the order of time


class Mamba(Recurrent[MambaState]):
    """Blocks of Mamba, in the calls of torch.nn.LSTM, without norms and residuals around them::

        u, z = weight_in x                       v = silu(convolution of u + bias_conv)
        low, B, C = weight_mixing v              delta = weight_delta low
        out = selective_scan(v, delta, -exp(log_decay), B, C, skip, z, bias_delta, softplus)
        y = weight_out out

    on :func:`scanrec.torch.selective_scan`.

    Parameters
    ----------
    input_size, hidden_size, num_layers, batch_first, dropout, bidirectional, device, dtype:
        As of torch.nn.LSTM: ``dropout`` is on the outputs of all layers but the last.
    bias:
        Whether the convolution has one. That of steps, ``bias_delta``, is always there.
    state_size:
        N, states of each of the E = expand * hidden_size channels of the scan.
    conv:
        K, steps that the convolution sees, the present one included.
    expand:
        Channels of the scan by hidden_size.
    dt_rank:
        R, of the product that makes ``delta``; ``"auto"``: hidden_size / 16, rounded up.

    Weights of layer k: ``weight_in_lk``, ``(2 E, input_size)``; ``weight_conv_lk``, ``(E, K)``,
    whose last column is of the present step; ``bias_conv_lk``, ``(E,)``; ``weight_mixing_lk``,
    ``(R + 2 N, E)``; ``weight_delta_lk``, ``(E, R)``; ``bias_delta_lk``, ``(E,)``;
    ``log_decay_lk``, ``(E, N)``; ``skip_lk``, ``(E,)``; ``weight_out_lk``, ``(hidden_size, E)``.
    With ``_reverse`` behind for the other direction, whose convolution is of the steps behind.

    State: a :class:`MambaState`.

    Notes
    -----
    ``log_decay`` starts at log 1, ... log N, ``skip`` at 1; ``softplus(bias_delta)`` log-uniform
    from 1e-3 to 1e-1, ``weight_delta`` uniform in +-1 / sqrt(R) (section 3.6); the others as those
    of torch.nn.Linear and torch.nn.Conv1d.

    Source: Gu and Dao, Mamba: Linear-time sequence modeling with selective state spaces (2023),
    section 3.
    """

    state_size: int
    conv: int
    expand: int
    dt_rank: int | Literal["auto"]

    _own = {"state_size": 16, "conv": 4, "expand": 2, "dt_rank": "auto"}
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
    ):
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        )
        self.state_size = self._count("state_size", state_size)
        self.conv = self._count("conv", conv)
        self.expand = self._count("expand", expand)
        self.dt_rank = dt_rank if dt_rank == "auto" else self._count("dt_rank", dt_rank)
        self._channels = self.expand * self.hidden_size
        self._rank = -(-self.hidden_size // 16) if dt_rank == "auto" else self.dt_rank
        self._build(device, dtype)

    def _shapes(self, inputs):
        channels, states, rank = self._channels, self.state_size, self._rank
        return {
            "weight_in": (2 * channels, inputs),
            "weight_conv": (channels, self.conv),
            **({"bias_conv": (channels,)} if self.bias else {}),
            "weight_mixing": (rank + 2 * states, channels),
            "weight_delta": (channels, rank),
            "bias_delta": (channels,),
            "log_decay": (channels, states),
            "skip": (channels,),
            "weight_out": (self.hidden_size, channels),
        }

    def _state_shapes(self):
        channels = self._channels
        return {"hidden": (channels, self.state_size), "conv": (channels, self.conv - 1)}

    def _reset(self, weights, inputs):
        for name, weight in weights.items():
            if name.startswith("weight"):
                weight.uniform_(-(weight.shape[1] ** -0.5), weight.shape[1] ** -0.5)
        if self.bias:
            weights["bias_conv"].uniform_(-(self.conv**-0.5), self.conv**-0.5)
        bias, rate = weights["bias_delta"], weights["log_decay"]
        steps = torch.empty_like(bias, dtype=torch.float64)
        steps = steps.uniform_(math.log(1e-3), math.log(1e-1)).exp()
        bias.copy_(steps + torch.log(-torch.expm1(-steps)))  # whose softplus they are
        rate.copy_(torch.arange(1, self.state_size + 1, device=rate.device).log())
        weights["skip"].fill_(1)

    def _run(self, x, weights, state, axis, reverse, begins, resets):
        steps, edge = x.shape[axis], self.conv - 1
        wide_x = functional.linear(x, weights["weight_in"])
        wide_x = wide_x.permute(1, 2, 0) if axis == 0 else wide_x.mT
        u, z = wide_x.chunk(2, 1)
        past = state[1].to(u.dtype)
        whole = torch.cat([u, past] if reverse else [past, u], 2)
        left = whole.narrow(2, 0 if reverse else steps, edge)
        first = None
        if resets is not None:
            resets = resets.transpose(0, 1) if axis == 0 else resets
            first = firsts(resets, steps, 1, reverse).unsqueeze(1)
            left = left_of(left, first, reverse) if edge else left
        taps, bias = weights["weight_conv"], weights.get("bias_conv")
        v = functional.silu(convolved(whole, taps, bias, first, reverse))
        low, b, c = functional.linear(v.mT, weights["weight_mixing"]).split(
            [self._rank, self.state_size, self.state_size], 2
        )
        out, final = selective_scan(
            *(v, functional.linear(low, weights["weight_delta"]).mT),
            *(-torch.exp(wide(weights["log_decay"])), b.mT, c.mT),
            *(wide(weights["skip"]), z, wide(weights["bias_delta"]), True, True),
            initial_state=state[0],
            resets=resets,
            reverse=reverse,
        )
        y = functional.linear(out.mT, weights["weight_out"])
        y = y.transpose(0, 1) if axis == 0 else y
        return y, (final, left)

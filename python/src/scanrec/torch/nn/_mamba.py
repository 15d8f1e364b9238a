# SPDX-License-Identifier: BSD-3-Clause
"""The Mamba layer: a convolution and a selective scan between products."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from ..._layers import MambaSpec
from ..._op.selective.torch import selective_scan
from ._recurrent import Recurrent, saved_by_name, wide
from ._window import convolved, firsts, left_of

__all__ = ["Mamba", "MambaState"]


@saved_by_name
class MambaState(NamedTuple):
    """State of a :class:`Mamba` layer, with E = expand * hidden_size."""

    hidden: Tensor  #: ``(num_layers * num_directions, B, E, state_size)``
    conv: Tensor  #: ``(num_layers * num_directions, B, E, conv - 1)``, in the order of time


class Mamba(MambaSpec, Recurrent[MambaState]):
    """Blocks of Mamba, with the interface of torch.nn.LSTM."""

    _state_type = MambaState
    _drawn_first = ("weight_in", "weight_conv", "weight_mixing", "weight_delta", "weight_out")

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
        super().__init__(locals())

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

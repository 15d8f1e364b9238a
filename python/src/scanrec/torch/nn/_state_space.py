# SPDX-License-Identifier: BSD-3-Clause
"""The layers LRU and S5: complex states between two products."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from ..._layers import LRUSpec, S5Spec
from ..._op.state_space.torch import lru, s5
from ..._types import Discretisation
from ._recurrent import Recurrent, Weights, full_precision, wide

__all__ = ["LRU", "S5"]


class StateSpace(Recurrent[Tensor]):
    """A layer around one of the state spaces of scanrec.torch."""

    def _scan(self, u: Tensor, weights: Weights, b: Tensor, c: Tensor, d, **given):
        """Call the state space on ``(B, T, I)``.

        It passes on the options ``initial_state``, ``reverse``, ``resets`` and ``return_final``.
        """
        raise NotImplementedError

    def _run(self, x, weights, state, axis, reverse, begins, resets):
        with full_precision(x):
            u = wide(x).transpose(0, 1) if axis == 0 else wide(x)
            d = wide(weights["d"])
            b, c = (torch.view_as_complex(wide(weights[name])) for name in ("b", "c"))
            if resets is not None and axis == 0:
                resets = resets.transpose(0, 1)
            y, final = self._scan(
                *(u, weights, b, c, d if d.dim() == 1 else None),
                initial_state=state[0],
                reverse=reverse,
                resets=resets,
                return_final=True,
            )
            if d.dim() == 2:
                y = y + functional.linear(u, d)
            if self.bias:
                y = y + wide(weights["bias"])
        y = y.to(x.dtype)
        return y.transpose(0, 1) if axis == 0 else y, (final,)


class LRU(LRUSpec, StateSpace):
    """Linear recurrent units, with the interface of torch.nn.LSTM."""

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
        state_size: int = 64,
        r_min: float = 0.9,
        r_max: float = 0.999,
        max_phase: float = 2 * math.pi,
    ):
        super().__init__(locals())

    def _scan(self, u, weights, b, c, d, **given):
        return lru(u, wide(weights["nu"]), wide(weights["theta"]), b, c, d, **given)


class S5(S5Spec, StateSpace):
    """Simplified state space layers, with the interface of torch.nn.LSTM."""

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
        state_size: int = 64,
        blocks: int = 1,
        discretisation: Discretisation = "zero_order_hold",
        dt_min: float = 1e-3,
        dt_max: float = 1e-1,
    ):
        super().__init__(locals())

    def _scan(self, u, weights, b, c, d, **given):
        decay, frequency = torch.exp(wide(weights["log_decay"])), wide(weights["frequency"])
        lambda_, log_step = torch.complex(-decay, frequency), wide(weights["log_step"])
        return s5(u, lambda_, b, c, d, log_step, discretisation=self.discretisation, **given)

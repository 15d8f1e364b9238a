# SPDX-License-Identifier: BSD-3-Clause
"""The layers LRU and S5: linear scans of complex states between two matrix products."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from ..._layers import LRUSpec, S5Spec
from ..._op.state_space.torch import lru, s5
from ..._types import Discretisation
from ._recurrent import Leaves, Recurrent, Result, Time, Weights, full_precision, wide

__all__ = ["LRU", "S5"]

Arrays: TypeAlias = tuple[Tensor, Tensor, Tensor | None]  # b, c and d


class StateSpace(Recurrent[Tensor]):
    """A layer around one of the state spaces of scanrec.torch."""

    def _scan(self, u: Tensor, weights: Weights, arrays: Arrays, **given: Any) -> Any:
        """Call the state space on ``(B, T, I)``. Return the outputs and the final state."""
        raise NotImplementedError

    def _run(self, x: Tensor, weights: Weights, state: Leaves, time: Time) -> Result:
        with full_precision(x):
            u = wide(x).transpose(0, 1) if time.axis == 0 else wide(x)
            d = wide(weights["d"])
            b, c = (torch.view_as_complex(wide(weights[name])) for name in ("b", "c"))
            y, final = self._scan(
                *(u, weights, (b, c, d if d.dim() == 1 else None)),
                initial_state=state[0],
                reverse=time.reverse,
                resets=time.batch_first.resets,
            )
            if d.dim() == 2:
                y = y + functional.linear(u, d)
            if self.bias:
                y = y + wide(weights["bias"])
        y = y.to(x.dtype)
        return y.transpose(0, 1) if time.axis == 0 else y, (final,)


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
    ) -> None:
        super().__init__(locals())

    def _scan(self, u: Tensor, weights: Weights, arrays: Arrays, **given: Any) -> Any:
        nu, theta = wide(weights["nu"]), wide(weights["theta"])
        return lru(u, nu, theta, *arrays, return_final=True, **given)


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
    ) -> None:
        super().__init__(locals())

    def _scan(self, u: Tensor, weights: Weights, arrays: Arrays, **given: Any) -> Any:
        decay, frequency = torch.exp(wide(weights["log_decay"])), wide(weights["frequency"])
        lambda_, log_step = torch.complex(-decay, frequency), wide(weights["log_step"])
        given["discretisation"] = self.discretisation
        return s5(u, lambda_, *arrays, log_step, return_final=True, **given)

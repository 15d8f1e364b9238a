# SPDX-License-Identifier: BSD-3-Clause
"""A minimal gated recurrent unit: candidate and gate of the present input alone."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from ..._types import Candidate
from .._linear_scan import linear_scan
from .._modes import is_distributed
from . import _checks as checks
from ._recurrent import Recurrent, wide

__all__ = ["MinGRU"]


class MinGRU(Recurrent[Tensor]):
    """A minimal gated recurrent unit, in the calls of torch.nn.LSTM::

        v, z = weight u[t] + bias
        h[t] = (1 - sigmoid(z)) h[t-1] + sigmoid(z) g(v)

    with candidates of any sign, since only gates are scanned as logarithms. Gates next to 1 keep
    the digits of ``log(1 - sigmoid(z))``; gates that are DTensors are rounded.

    Parameters
    ----------
    input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device, dtype:
        As of torch.nn.LSTM: ``dropout`` is on the outputs of all layers but the last.
    candidate:
        g: ``"identity"``, or ``"positive"``, ``x + 1/2`` from 0 on and ``sigmoid(x)`` below, which
        the paper's scan of logarithms needs.

    Weights of layer k: ``weight_lk``, ``(2 * hidden_size, input_size)``, rows of the candidate
    first, then those of the gate; ``bias_lk``, ``(2 * hidden_size,)``. With ``_reverse`` behind for
    the other direction.

    State: ``(num_layers * num_directions, B, hidden_size)``.

    Notes
    -----
    Weights start uniform in +-1 / sqrt(input_size), as those of torch.nn.Linear.

    Source: Feng et al., Were RNNs All We Needed? (2024), section 3.1 and, for g, appendix B.
    """

    candidate: Candidate

    _own = {"candidate": "identity"}

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
    ):
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        )
        self.candidate = checks.choice(self._name, "candidate", candidate, ("identity", "positive"))
        self._build(device, dtype)

    def _shapes(self, inputs):
        shapes = {"weight": (2 * self.hidden_size, inputs)}
        return {**shapes, "bias": (2 * self.hidden_size,)} if self.bias else shapes

    def _reset(self, weights, inputs):
        for weight in weights.values():
            weight.uniform_(-(inputs**-0.5), inputs**-0.5)

    def _run(self, x, weights, state, axis, reverse, begins, resets):
        pre = functional.linear(x, weights["weight"], weights.get("bias"))
        v, z = wide(pre).chunk(2, -1)
        if self.candidate == "positive":
            v = torch.where(v >= 0, v + 0.5, torch.sigmoid(v))
        log_gate = not is_distributed(z)  # linear_scan refuses logarithms of DTensors
        # softplus returns z beyond the threshold: at 40 that is exact in float64.
        gate = -functional.softplus(z, threshold=40) if log_gate else torch.sigmoid(-z)
        h, final = linear_scan(
            *(gate, torch.sigmoid(z) * v, state[0]),
            axis=axis,
            reverse=reverse,
            resets=None if resets is None else resets.unsqueeze(-1),
            log_gate=log_gate,
            return_final=True,
        )
        return h.to(pre.dtype), (final,)

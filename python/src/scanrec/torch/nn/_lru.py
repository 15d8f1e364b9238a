# SPDX-License-Identifier: BSD-3-Clause
"""The linear recurrent unit: a diagonal state space with gates on a ring of the complex plane."""

from __future__ import annotations

import math

import torch

from ... import _arguments as arguments
from .._state_space import lru
from ._recurrent import wide
from ._state_space import StateSpace

__all__ = ["LRU"]


class LRU(StateSpace):
    """A linear recurrent unit, in the calls of torch.nn.LSTM::

        x[t] = exp(-exp(nu) + i exp(theta)) x[t-1] + sqrt(1 - |gate|^2) b u[t]
        y[t] = Re(c x[t]) + d u[t] + bias

    which is :func:`scanrec.torch.lru`. Outputs are linear in the inputs; 16-bit inputs are computed
    with in float32, under autocast too.

    Parameters
    ----------
    input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device, dtype:
        As of torch.nn.LSTM: ``dropout`` is on the outputs of all layers but the last.
    state_size:
        P, complex states.
    r_min, r_max, max_phase:
        The ring that gates start on, ``0 <= r_min < r_max <= 1``, and their largest angle.

    Weights of layer k: ``nu_lk``, ``theta_lk``, ``(P,)``; ``b_lk``, ``(P, input_size, 2)`` and
    ``c_lk``, ``(hidden_size, P, 2)``, pairs of real and imaginary parts; ``d_lk``,
    ``(hidden_size,)``, or ``(hidden_size, input_size)`` where the layer's inputs are not
    hidden_size; ``bias_lk``, ``(hidden_size,)``. With ``_reverse`` behind for the other direction.

    State: ``(num_layers * num_directions, B, P)``, complex.

    Notes
    -----
    Gates start uniform on the ring (lemma 3.2); both parts of b normal of variance
    1 / (2 input_size), both of c 1 / P; d normal, as a matrix of variance 1 / input_size; bias 0.

    Source: Orvieto et al., Resurrecting Recurrent Neural Networks for Long Sequences (2023),
    section 3.
    """

    state_size: int
    r_min: float
    r_max: float
    max_phase: float

    _own = {"state_size": 64, "r_min": 0.9, "r_max": 0.999, "max_phase": 2 * math.pi}

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
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        )
        self._states = self.state_size = self._count("state_size", state_size)
        self.r_max = self._number("r_max", r_max, 0, 1)
        self.r_min = self._number("r_min", r_min, 0, 1)
        if self.r_min >= self.r_max:
            expected = f"a number below r_max, {self.r_max}"
            arguments.refuse(self._name, "r_min", expected, r_min)
        self.max_phase = self._number("max_phase", max_phase, 0, 2 * math.pi)
        if not self.max_phase:
            arguments.refuse(self._name, "max_phase", "an angle above 0", max_phase)
        self._build(device, dtype)

    def _diagonal(self):
        return ("nu", "theta")

    def _reset(self, weights, inputs):
        # Of numbers from 0 to 1 without either, whose logarithms are finite.
        drawn = lambda like: torch.empty_like(like, dtype=torch.float64).uniform_(1e-12, 1 - 1e-12)
        least, most = self.r_min**2, self.r_max**2
        square = least + (most - least) * drawn(weights["nu"])
        weights["nu"].copy_(torch.log(-0.5 * torch.log(square)))
        weights["theta"].copy_(torch.log(self.max_phase * drawn(weights["theta"])))
        weights["b"].normal_(0, (2 * inputs) ** -0.5)
        weights["c"].normal_(0, self._states**-0.5)
        self._reset_feedthrough(weights, inputs)

    def _scan(self, u, weights, b, c, d, **given):
        return lru(u, wide(weights["nu"]), wide(weights["theta"]), b, c, d, **given)

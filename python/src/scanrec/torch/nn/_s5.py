# SPDX-License-Identifier: BSD-3-Clause
"""The simplified state space layer: HiPPO's diagonal, discretised."""

from __future__ import annotations

import math

import numpy as np
import torch

from ... import _arguments as arguments
from ..._hippo import legs_normal_part
from ..._types import Discretisation
from .._state_space import s5
from ._recurrent import wide
from ._state_space import StateSpace

__all__ = ["S5"]


class S5(StateSpace):
    """A simplified state space layer, in the calls of torch.nn.LSTM::

        dx/dt = lambda x + b u,  lambda = -exp(log_decay) + i frequency,  by steps exp(log_step)
        y[t] = 2 Re(c x[t]) + d u[t] + bias

    which is :func:`scanrec.torch.s5`. Outputs are linear in the inputs; 16-bit inputs are computed
    with in float32, under autocast too. No eigenvalue ever grows.

    Parameters
    ----------
    input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device, dtype:
        As of torch.nn.LSTM: ``dropout`` is on the outputs of all layers but the last.
    state_size:
        The real dimension of the state space: P = state_size / 2 complex states stand for
        conjugate pairs.
    blocks:
        Equal blocks of an even number of states that the diagonal starts from.
    discretisation:
        ``"zero_order_hold"``, ``"bilinear"``.
    dt_min, dt_max:
        Steps start log-uniform between.

    Weights of layer k: ``log_decay_lk``, ``frequency_lk``, ``log_step_lk``, ``(P,)``; ``b_lk``,
    ``(P, input_size, 2)`` and ``c_lk``, ``(hidden_size, P, 2)``, pairs of real and imaginary parts;
    ``d_lk``, ``(hidden_size,)``, or ``(hidden_size, input_size)`` where the layer's inputs are not
    hidden_size; ``bias_lk``, ``(hidden_size,)``. With ``_reverse`` behind for the other direction.

    State: ``(num_layers * num_directions, B, P)``, complex.

    Notes
    -----
    The diagonal starts as the eigenvalues, of positive imaginary part, of the normal part of
    HiPPO-LegS; b and c normal, of variance 1 / input_size and 1 / state_size, in its basis; d
    normal, as a matrix of variance 1 / input_size; bias 0.

    Source: Smith et al., Simplified State Space Layers for Sequence Modeling (2023), section 3 and
    appendix B.1.
    """

    state_size: int
    blocks: int
    discretisation: Discretisation
    dt_min: float
    dt_max: float

    _own = {
        "state_size": 64, "blocks": 1, "discretisation": "zero_order_hold", "dt_min": 1e-3,
        "dt_max": 1e-1,
    }  # fmt: skip

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
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        )
        self.blocks = self._count("blocks", blocks)
        self.state_size = self._count("state_size", state_size)
        if self.state_size % (2 * self.blocks):
            expected = f"a multiple of 2 * blocks, {2 * self.blocks}"
            arguments.refuse(self._name, "state_size", expected, state_size)
        self._states = self.state_size // 2
        arguments.check_discretisation(self._name, discretisation)
        self.discretisation = discretisation
        self.dt_min = self._number("dt_min", dt_min, 0, math.inf)
        self.dt_max = self._number("dt_max", dt_max, 0, math.inf)
        if not 0 < self.dt_min <= self.dt_max < math.inf:
            expected = f"a step above 0, up to dt_max, {self.dt_max}"
            arguments.refuse(self._name, "dt_min", expected, dt_min)
        self._build(device, dtype)

    def _diagonal(self):
        return ("log_decay", "frequency", "log_step")

    def _reset(self, weights, inputs):
        frequencies, columns = legs_normal_part(self.state_size // self.blocks)
        vectors = torch.from_numpy(columns)
        weights["log_decay"].fill_(math.log(0.5))
        weights["frequency"].copy_(torch.from_numpy(np.tile(frequencies, self.blocks)))
        weights["log_step"].uniform_(math.log(self.dt_min), math.log(self.dt_max))
        drawn = lambda *shape: torch.randn(shape, dtype=torch.float64, device="cpu").to(vectors)
        blocks, of_block = self.blocks, vectors.shape[0]
        b = vectors.mH @ drawn(blocks, of_block, inputs) * inputs**-0.5
        c = drawn(self.hidden_size, blocks, of_block) @ vectors * self.state_size**-0.5
        weights["b"].copy_(torch.view_as_real(b.flatten(0, 1)))
        weights["c"].copy_(torch.view_as_real(c.flatten(1)))
        self._reset_feedthrough(weights, inputs)

    def _scan(self, u, weights, b, c, d, **given):
        decay, frequency = torch.exp(wide(weights["log_decay"])), wide(weights["frequency"])
        lambda_, log_step = torch.complex(-decay, frequency), wide(weights["log_step"])
        return s5(u, lambda_, b, c, d, log_step, discretisation=self.discretisation, **given)

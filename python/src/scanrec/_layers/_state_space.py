# SPDX-License-Identifier: BSD-3-Clause
"""Descriptions of the layers with diagonal state spaces: LRU and S5."""

from __future__ import annotations

import math

import numpy as np

from .. import _arguments as arguments
from .._hippo import legs_normal_part
from .._types import Discretisation
from ._spec import (
    Constant,
    HippoInput,
    HippoOutput,
    LogUniform,
    Normal,
    Parameter,
    RingAngle,
    RingRadius,
    Spec,
)

__all__ = ["LRUSpec", "S5Spec", "StateSpaceSpec"]


class StateSpaceSpec(Spec):
    """Description of a layer with P complex states between the products ``b`` and ``c``."""

    state_size: int

    _complex_state = True

    @property
    def _states(self) -> int:
        """P, the number of complex states."""
        return self.state_size

    def _feedthrough(self, inputs: int) -> dict[str, Parameter]:
        """Parameters that do not depend on the states."""
        size = self.hidden_size
        d = (size,) if inputs == size else (size, inputs)
        found = {"d": Parameter(d, Normal(1 if inputs == size else inputs))}
        if self.bias:
            found["bias"] = Parameter((size,), Constant(0.0))
        return found

    def _state_shapes(self):
        return {"hidden": (self._states,)}


class LRUSpec(StateSpaceSpec):
    """A step computes, with P = state_size complex states::

        gate = exp(-exp(nu) + i exp(theta))
        x[t] = gate x[t-1] + sqrt(1 - |gate|^2) b u[t]
        y[t] = Re(c x[t]) + d u[t] + bias

    The states are those of ``lru``. The outputs are linear in the inputs, and nothing is between
    the layers of a stack. 16-bit inputs are computed with in float32.

    Other Parameters
    ----------------
    state_size:
        P, the number of complex states.
    r_min, r_max:
        Radii of the ring on which gates start, ``0 <= r_min < r_max <= 1``.
    max_phase:
        Largest angle of the initial gates, above 0 and up to 2 pi.

    Notes
    -----
    The parameters of a layer are real, so that every optimiser can update them:

    - ``nu``, ``theta``, ``(P,)``.
    - ``b``, ``(P, inputs, 2)``, and ``c``, ``(hidden_size, P, 2)``: real and imaginary parts.
    - ``d``, ``(hidden_size,)``, or ``(hidden_size, inputs)`` if the layer does not have hidden_size
      inputs.
    - ``bias``, ``(hidden_size,)``.

    The state is ``(num_layers * num_directions, *batch, P)``, complex.

    Gates start uniform on the ring (lemma 3.2). Both parts of b start normal, of variance ``1 / (2
    inputs)``, both parts of c of ``1 / P``. A vector d starts normal of variance 1, a matrix d of
    ``1 / inputs``. The bias starts at 0.

    Source: Orvieto et al., Resurrecting Recurrent Neural Networks for Long Sequences (2023),
    section 3.
    """

    r_min: float
    r_max: float
    max_phase: float

    _key_order = ("nu", "theta", "b", "c", "d")

    def _check_own(self):
        self._check_counts("state_size")
        self._check_number("r_max", "a number from 0 to 1", lambda r: 0 <= r <= 1)
        below = f"a number below r_max, {self.r_max}, and not negative"
        self._check_number("r_min", below, lambda r: 0 <= r < self.r_max)
        turn = "an angle above 0, up to 2 pi"
        self._check_number("max_phase", turn, lambda p: 0 < p <= 2 * math.pi)

    def _parameter_specs(self, inputs):
        states, size = self.state_size, self.hidden_size
        return {
            "nu": Parameter((states,), RingRadius(self.r_min, self.r_max)),
            "theta": Parameter((states,), RingAngle(self.max_phase)),
            "b": Parameter((states, inputs, 2), Normal(2 * inputs)),
            "c": Parameter((size, states, 2), Normal(states)),
            **self._feedthrough(inputs),
        }


class S5Spec(StateSpaceSpec):
    """A step computes, with P = state_size / 2 complex states for conjugate pairs::

        dx/dt = lambda x + b u,  lambda = -exp(log_decay) + i frequency, in steps of exp(log_step)
        y[t] = 2 Re(c x[t]) + d u[t] + bias

    The states are those of ``s5``. The outputs are linear in the inputs, and nothing is between the
    layers of a stack. 16-bit inputs are computed with in float32. No state can grow without inputs.

    Other Parameters
    ----------------
    state_size:
        Real dimension of the state space, 2 P.
    blocks:
        Number of equal blocks, of an even number of states, in the initial diagonal.
    discretisation:
        ``"zero_order_hold"`` or ``"bilinear"``.
    dt_min, dt_max:
        Bounds of the initial steps.

    Notes
    -----
    The parameters of a layer are real, so that every optimiser can update them:

    - ``log_decay``, ``frequency``, ``log_step``, ``(P,)``.
    - ``b``, ``(P, inputs, 2)``, and ``c``, ``(hidden_size, P, 2)``: real and imaginary parts.
    - ``d``, ``(hidden_size,)``, or ``(hidden_size, inputs)`` if the layer does not have hidden_size
      inputs.
    - ``bias``, ``(hidden_size,)``.

    The state is ``(num_layers * num_directions, *batch, P)``, complex.

    The diagonal starts as the eigenvalues with positive imaginary part of the normal part of
    HiPPO-LegS, in each block. b and c start normal, of variance ``1 / inputs`` and ``1 /
    state_size``, and are then transformed to its basis. Steps start log-uniform. A vector d starts
    normal of variance 1, a matrix d of ``1 / inputs``. The bias starts at 0.

    Source: Smith et al., Simplified State Space Layers for Sequence Modeling (2023), sections 3.2,
    4.3 and appendix B.1. Decays as exponentials: Gu et al., On the Parameterization and
    Initialization of Diagonal State Space Models (2022), section 3.
    """

    blocks: int
    discretisation: Discretisation
    dt_min: float
    dt_max: float

    _key_order = ("b", "c", "log_step", "d")

    @property
    def _states(self):
        return self.state_size // 2

    def _check_own(self):
        self._check_counts("state_size", "blocks")
        if self.state_size % (2 * self.blocks):
            expected = f"a multiple of 2 * blocks, {2 * self.blocks}"
            arguments.refuse(self._name, "state_size", expected, self.state_size)
        arguments.check_discretisation(self._name, self.discretisation)
        finite = "a finite number above 0"
        self._check_number("dt_max", finite, lambda step: 0 < step < float("inf"))
        expected = f"a step above 0, up to dt_max, {self.dt_max}"
        self._check_number("dt_min", expected, lambda step: 0 < step <= self.dt_max)

    def _parameter_specs(self, inputs):
        states, size = self._states, self.hidden_size
        frequencies, basis = legs_normal_part(self.state_size // self.blocks)
        return {
            "log_decay": Parameter((states,), Constant(math.log(0.5))),
            "frequency": Parameter((states,), Constant(np.tile(frequencies, self.blocks))),
            "log_step": Parameter((states,), LogUniform(self.dt_min, self.dt_max)),
            "b": Parameter((states, inputs, 2), HippoInput(basis, self.blocks)),
            "c": Parameter((size, states, 2), HippoOutput(basis, self.blocks)),
            **self._feedthrough(inputs),
        }

# SPDX-License-Identifier: BSD-3-Clause
"""Descriptions of the layers with diagonal state spaces: LRU, S5 and Mamba."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from .. import _arguments as arguments
from .._types import Discretisation
from ._spec import (
    Normal,
    Parameter,
    Parameters,
    Product,
    Shapes,
    Spec,
    Uniform,
    uniform_linear,
)

__all__ = ["LRUSpec", "MambaSpec", "S5Spec", "StateSpaceSpec"]


@lru_cache(maxsize=16)
def legs_normal_part(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues and eigenvectors of the normal part of HiPPO-LegS, for even n::

        A[i][j] = -1/2 on the diagonal, -s / 2 below it, s / 2 above,  s = sqrt((2 i + 1) (2 j + 1))

    All eigenvalues have the real part -1/2, and they come in conjugate pairs. The result has the
    positive imaginary part of each pair, ``(n / 2,)``, and the corresponding eigenvectors as
    columns, ``(n, n / 2)``.
    """
    root = np.sqrt(2.0 * np.arange(n) + 1)
    below = np.tril(np.outer(root, root) / 2, -1)
    # The skew part, multiplied by -i, is Hermitian.
    frequencies, vectors = np.linalg.eigh(1j * (below - below.T))
    return frequencies[n // 2 :], vectors[:, n // 2 :]


def _nu_of(xp: Any, square: Any) -> Any:
    """log(-log(r)) of radii r, given r^2."""
    # A square may be rounded to 0 or 1. The logarithms, -inf and 0, would give infinite results.
    limits = xp.finfo(square.dtype)
    least, most = float(limits.tiny), float(1 - limits.eps)
    return xp.log(-0.5 * xp.log(xp.clip(square, least, most)))


def _inverse_softplus(xp: Any, logarithms: Any) -> Any:
    """The inverse of softplus at ``exp(logarithms)``."""
    x = xp.exp(logarithms)
    return x + xp.log(-xp.expm1(-x))


class StateSpaceSpec(Spec):
    """Base of the descriptions of LRU and S5. The inputs, multiplied by ``b``, enter a scan of P
    complex states. The states, multiplied by ``c``, give the outputs."""

    state_size: int

    _complex_state = True

    @property
    def _states(self) -> int:
        """P, the number of complex states."""
        return self.state_size

    def _feedthrough(self, inputs: int) -> Parameters:
        """Parameters of the terms of the outputs that do not depend on the states."""
        size = self.hidden_size
        d = (size,) if inputs == size else (size, inputs)
        found = {"d": Parameter(d, Normal(1 if inputs == size else 1 / inputs))}
        if self.bias:
            found["bias"] = Parameter((size,), 0.0)
        return found

    def _state_shapes(self) -> Shapes:
        return {"hidden": (self._states,)}


class LRUSpec(StateSpaceSpec):
    """A step computes, from the inputs u, with P = state_size complex states x::

        gate = exp(-exp(nu) + i exp(theta))
        x[t] = gate x[t-1] + sqrt(1 - |gate|^2) b u[t]
        y[t] = Re(c x[t]) + d u[t] + bias

    The states are those of the function ``lru``. The outputs are linear in the inputs, and a stack
    has no nonlinearity between its layers. For 16-bit types, the layer computes in float32.

    Other Parameters
    ----------------
    state_size:
        P, the number of complex states.
    r_min, r_max:
        Inner and outer radius of the ring that contains the initial gates. They satisfy
        ``0 <= r_min < r_max <= 1``.
    max_phase:
        Largest angle of the initial gates, above 0 and up to 2 pi.

    Notes
    -----
    The parameters of a layer are real, so that every optimiser can update them:

    - ``nu`` and ``theta``, ``(P,)``.
    - ``b``, ``(P, inputs, 2)``, and ``c``, ``(hidden_size, P, 2)``: real and imaginary parts.
    - ``d``, ``(hidden_size,)``, or ``(hidden_size, inputs)`` if the layer does not have hidden_size
      inputs.
    - ``bias``, ``(hidden_size,)``.

    The state is ``(num_layers * num_directions, *batch, P)``, complex.

    Gates start uniform on the ring (lemma 3.2). The real and imaginary parts of b and c start
    normal, of variance ``1 / (2 * inputs)`` for b and ``1 / P`` for c. A vector d starts normal of
    variance 1, and a matrix d of variance ``1 / inputs``. The bias starts at 0.

    Source: Orvieto et al., Resurrecting Recurrent Neural Networks for Long Sequences (2023),
    section 3.
    """

    r_min: float
    r_max: float
    max_phase: float

    _draw_order = ("nu", "theta", "b", "c", "d")

    def _check_own(self) -> None:
        self._convert(arguments.count, "state_size")
        self._check_number("r_max", "a number from 0 to 1", lambda r: 0 <= r <= 1)
        below = f"a number below r_max, {self.r_max}, and not negative"
        self._check_number("r_min", below, lambda r: 0 <= r < self.r_max)
        turn = "an angle above 0, up to 2 pi"
        self._check_number("max_phase", turn, lambda p: 0 < p <= 2 * math.pi)

    def _parameter_specs(self, inputs: int) -> Parameters:
        states, size, turn = self.state_size, self.hidden_size, self.max_phase
        return {
            "nu": Parameter((states,), Uniform(self.r_min**2, self.r_max**2, _nu_of)),
            "theta": Parameter((states,), Uniform(0, 1, lambda xp, x: xp.log(turn * (1 - x)))),
            "b": Parameter((states, inputs, 2), Normal(0.5 / inputs)),
            "c": Parameter((size, states, 2), Normal(1 / states)),
            **self._feedthrough(inputs),
        }


class S5Spec(StateSpaceSpec):
    """A step computes ``y[t]``, from the inputs u, by a discretised form of this system. The system
    has P = state_size / 2 complex states x, one of each conjugate pair::

        dx/dt = lambda x + b u,  lambda = -exp(log_decay) + i frequency, step size exp(log_step)
        y[t] = 2 Re(c x[t]) + d u[t] + bias

    The states are those of the function ``s5``. The outputs are linear in the inputs, and a stack
    has no nonlinearity between its layers. For 16-bit types, the layer computes in float32. States
    decay without inputs: the real part of lambda is always negative.

    Other Parameters
    ----------------
    state_size:
        Real dimension of the state space, 2 P.
    blocks:
        Number of blocks into which the initial values of lambda are divided. All blocks have equal
        values. ``state_size`` must be a multiple of ``2 * blocks``, so that each block has whole
        conjugate pairs.
    discretisation:
        ``"zero_order_hold"`` or ``"bilinear"``.
    dt_min, dt_max:
        Bounds of the initial step sizes.

    Notes
    -----
    The parameters of a layer are real, so that every optimiser can update them:

    - ``log_decay``, ``frequency`` and ``log_step``, ``(P,)``.
    - ``b``, ``(P, inputs, 2)``, and ``c``, ``(hidden_size, P, 2)``: real and imaginary parts.
    - ``d``, ``(hidden_size,)``, or ``(hidden_size, inputs)`` if the layer does not have hidden_size
      inputs.
    - ``bias``, ``(hidden_size,)``.

    The state is ``(num_layers * num_directions, *batch, P)``, complex.

    In each block, lambda starts at the eigenvalues of the normal part of HiPPO-LegS whose imaginary
    parts are positive. b and c start normal, of variance ``1 / inputs`` and ``1 / state_size``, and
    are then transformed to the basis of the eigenvectors. Step sizes start log-uniform. A vector d
    starts normal of variance 1, and a matrix d of variance ``1 / inputs``. The bias starts at 0.

    Source: Smith et al., Simplified State Space Layers for Sequence Modeling (2023), sections 3.2,
    4.3 and appendix B.1. Decays as exponentials: Gu et al., On the Parameterization and
    Initialization of Diagonal State Space Models (2022), section 3.
    """

    blocks: int
    discretisation: Discretisation
    dt_min: float
    dt_max: float

    _draw_order = ("b", "c", "log_step", "d")

    @property
    def _states(self) -> int:
        return self.state_size // 2

    def _check_own(self) -> None:
        self._convert(arguments.count, "state_size", "blocks")
        if self.state_size % (2 * self.blocks):
            expected = f"a multiple of 2 * blocks, {2 * self.blocks}"
            arguments.refuse(self._name, "state_size", expected, self.state_size)
        arguments.check_discretisation(self._name, self.discretisation)
        finite = "a finite number above 0"
        self._check_number("dt_max", finite, lambda step: 0 < step < float("inf"))
        expected = f"a step size above 0, up to dt_max, {self.dt_max}"
        self._check_number("dt_min", expected, lambda step: 0 < step <= self.dt_max)

    def _parameter_specs(self, inputs: int) -> Parameters:
        states, size = self._states, self.hidden_size
        blocks, n = self.blocks, self.state_size // self.blocks
        frequencies, basis = legs_normal_part(n)
        parts = np.stack([basis.real, basis.imag], -1)
        b = Product("npk,bni->bpik", parts * [1, -1], (blocks, n, inputs))  # conjugate basis
        c = Product("npk,hbn->hbpk", parts, (size, blocks, n))
        return {
            "log_decay": Parameter((states,), math.log(0.5)),
            "frequency": Parameter((states,), np.tile(frequencies, blocks)),
            "log_step": Parameter((states,), Uniform(math.log(self.dt_min), math.log(self.dt_max))),
            "b": Parameter((states, inputs, 2), Normal(1 / inputs, b)),
            "c": Parameter((size, states, 2), Normal(1 / self.state_size, c)),
            **self._feedthrough(inputs),
        }


class MambaSpec(Spec):
    """A step computes, from the inputs x::

        u, z = weight_in x
        v = silu(convolution of u by weight_conv + bias_conv)
        low, B, C = weight_projection v
        delta = weight_delta low
        out = selective_scan(v, delta, -exp(log_decay), B, C, d, z, bias_delta, softplus)
        y = weight_out out

    The layer has no norm and no residual connection. The scan has E = expand * hidden_size
    channels.

    Other Parameters
    ----------------
    state_size:
        N, the number of states of each channel of the scan.
    conv:
        K, the number of steps that the convolution reads, including the present step.
    expand:
        Channels of the scan, as a multiple of hidden_size.
    dt_rank:
        R, the number of elements of ``low``. ``"auto"`` is hidden_size / 16, rounded up.

    Notes
    -----
    The parameters of a layer are:

    - ``weight_in``, ``(2 E, inputs)``, and ``weight_out``, ``(hidden_size, E)``.
    - ``weight_conv``, ``(E, K)``: the last column multiplies the present step, in both directions.
    - ``weight_projection``, ``(R + 2 N, E)``, and ``weight_delta``, ``(E, R)``.
    - ``log_decay``, ``(E, N)``, and ``d``, ``(E,)``.
    - ``bias_conv``, ``(E,)``, unless ``bias`` is False, and ``bias_delta``, ``(E,)``, always.

    The state is a :class:`MambaState`.

    ``log_decay`` starts at log 1, ... log N (S4D-real: Gu et al., 2022), ``d`` at 1.
    ``softplus(bias_delta)`` starts log-uniform from 1e-3 to 1e-1, and ``weight_delta`` uniform in
    ``+-1 / sqrt(R)``. The others start as in torch.nn.Linear and torch.nn.Conv1d.

    Source: Gu and Dao, Mamba: Linear-Time Sequence Modeling with Selective State Spaces (2023),
    sections 3.4 and 3.6.
    """

    state_size: int
    conv: int
    expand: int
    dt_rank: int | Literal["auto"]

    _draw_order = (
        *("weight_in", "weight_conv", "weight_projection", "weight_delta", "weight_out"),
        *("bias_delta", "bias_conv"),
    )

    @property
    def _channels(self) -> int:
        return self.expand * self.hidden_size

    @property
    def _rank(self) -> int:
        return -(-self.hidden_size // 16) if self.dt_rank == "auto" else self.dt_rank

    def _check_own(self) -> None:
        self._convert(arguments.count, "state_size", "conv", "expand")
        if isinstance(self.dt_rank, str) and self.dt_rank != "auto":
            arguments.refuse(self._name, "dt_rank", "an integer, or 'auto'", repr(self.dt_rank))
        if self.dt_rank != "auto":
            self._convert(arguments.count, "dt_rank")

    def _parameter_specs(self, inputs: int) -> Parameters:
        channels, states, rank, conv = self._channels, self.state_size, self._rank, self.conv
        found = {
            "weight_in": Parameter((2 * channels, inputs), uniform_linear(inputs)),
            "weight_conv": Parameter((channels, conv), uniform_linear(conv)),
            "bias_conv": Parameter((channels,), uniform_linear(conv)),
            "weight_projection": Parameter((rank + 2 * states, channels), uniform_linear(channels)),
            "weight_delta": Parameter((channels, rank), uniform_linear(rank)),
            "bias_delta": Parameter(
                (channels,), Uniform(math.log(1e-3), math.log(1e-1), _inverse_softplus)
            ),
            "log_decay": Parameter((channels, states), np.log(np.arange(1, states + 1))),
            "d": Parameter((channels,), 1.0),
            "weight_out": Parameter((self.hidden_size, channels), uniform_linear(channels)),
        }
        if not self.bias:
            del found["bias_conv"]
        return found

    def _state_shapes(self) -> Shapes:
        channels = self._channels
        return {"hidden": (channels, self.state_size), "conv": (channels, self.conv - 1)}

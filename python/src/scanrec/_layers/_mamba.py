# SPDX-License-Identifier: BSD-3-Clause
"""Description of the Mamba layer."""

from __future__ import annotations

from typing import Literal

from .. import _arguments as arguments
from ._spec import Constant, LogIntegers, Parameter, Spec, StepBias, Uniform

__all__ = ["MambaSpec"]


class MambaSpec(Spec):
    """A step computes::

        u, z = weight_in x
        v = silu(convolution of u by weight_conv + bias_conv)
        low, B, C = weight_mixing v
        delta = weight_delta low
        out = selective_scan(v, delta, -exp(log_decay), B, C, skip, z, bias_delta, softplus)
        y = weight_out out

    There are no norms and no residuals around it. The scan has E = expand * hidden_size channels.

    Other Parameters
    ----------------
    state_size:
        N, the number of states of each channel of the scan.
    conv:
        K, the number of steps that the convolution sees, including the present step.
    expand:
        Channels of the scan, as a multiple of hidden_size.
    dt_rank:
        R, the number of rows of ``low``. ``"auto"`` is hidden_size / 16, rounded up.

    Notes
    -----
    The parameters of a layer are:

    - ``weight_in``, ``(2 E, inputs)``, and ``weight_out``, ``(hidden_size, E)``.
    - ``weight_conv``, ``(E, K)``: the last column multiplies the present step, in both directions.
    - ``weight_mixing``, ``(R + 2 N, E)``, and ``weight_delta``, ``(E, R)``.
    - ``log_decay``, ``(E, N)``, and ``skip``, ``(E,)``.
    - ``bias_conv``, ``(E,)``, unless ``bias`` is False, and ``bias_delta``, ``(E,)``, always.

    The state is a :class:`MambaState`.

    ``log_decay`` starts at log 1, ... log N (S4D-real: Gu et al., 2022), ``skip`` at 1.
    ``softplus(bias_delta)`` starts log-uniform from 1e-3 to 1e-1, ``weight_delta`` uniform in ``+-1
    / sqrt(R)``. The others start as in torch.nn.Linear and torch.nn.Conv1d.

    Source: Gu and Dao, Mamba: Linear-Time Sequence Modeling with Selective State Spaces (2023),
    sections 3.4 and 3.6.
    """

    state_size: int
    conv: int
    expand: int
    dt_rank: int | Literal["auto"]

    _key_order = (
        *("weight_in", "weight_conv", "weight_mixing", "weight_delta", "weight_out"),
        *("bias_delta", "bias_conv"),
    )

    @property
    def _channels(self) -> int:
        return self.expand * self.hidden_size

    @property
    def _rank(self) -> int:
        return -(-self.hidden_size // 16) if self.dt_rank == "auto" else self.dt_rank

    def _check_own(self):
        self._check_counts("state_size", "conv", "expand")
        if isinstance(self.dt_rank, str) and self.dt_rank != "auto":
            arguments.refuse(self._name, "dt_rank", "an integer, or 'auto'", repr(self.dt_rank))
        if self.dt_rank != "auto":
            self._check_counts("dt_rank")

    def _parameter_specs(self, inputs):
        channels, states, rank, conv = self._channels, self.state_size, self._rank, self.conv
        found = {
            "weight_in": Parameter((2 * channels, inputs), Uniform(inputs)),
            "weight_conv": Parameter((channels, conv), Uniform(conv)),
            "bias_conv": Parameter((channels,), Uniform(conv)),
            "weight_mixing": Parameter((rank + 2 * states, channels), Uniform(channels)),
            "weight_delta": Parameter((channels, rank), Uniform(rank)),
            "bias_delta": Parameter((channels,), StepBias(1e-3, 1e-1)),
            "log_decay": Parameter((channels, states), LogIntegers()),
            "skip": Parameter((channels,), Constant(1.0)),
            "weight_out": Parameter((self.hidden_size, channels), Uniform(channels)),
        }
        if not self.bias:
            del found["bias_conv"]
        return found

    def _state_shapes(self):
        channels = self._channels
        return {"hidden": (channels, self.state_size), "conv": (channels, self.conv - 1)}

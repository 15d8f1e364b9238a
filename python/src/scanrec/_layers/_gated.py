# SPDX-License-Identifier: BSD-3-Clause
"""Descriptions of the gated layers: QRNN, MinGRU, RGLRU."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from .. import _arguments as arguments
from .._types import Candidate, Memory, Pool
from ._spec import (
    Normal,
    Parameter,
    Parameters,
    Shapes,
    Spec,
    Uniform,
    uniform_linear,
)

__all__ = ["MinGRUSpec", "QRNNSpec", "RGLRUSpec"]


class QRNNSpec(Spec):
    """A step computes, from the inputs u::

        pre[t] = weight u[t] + weight_before u[t-1] + bias
        output = qrnn_pool(pre, pool=pool)

    The second product exists only with ``kernel_size=2``. The pooling and its gradient are one pass
    over memory each.

    Other Parameters
    ----------------
    kernel_size:
        Number of inputs that a step reads: 1 for ``u[t]``, or 2 for ``u[t]`` and ``u[t-1]``.
    pool:
        ``"f"``, ``"fo"`` or ``"ifo"``, as in ``qrnn_pool``.
    zoneout:
        Probability, below 1, that a channel of the state keeps its value at a step. These channels
        are drawn at random in training mode (PyTorch) or with a key (JAX). Otherwise each update of
        the state is scaled by ``1 - zoneout``, the probability of an update.
    memory:
        ``"store"`` or ``"recompute"``, as in ``qrnn_pool``. ``"recompute"`` recomputes the states
        for the gradient and keeps only every 128th of them.

    Notes
    -----
    A channel has n = 2, 3 or 4 pre-activations for ``"f"``, ``"fo"`` or ``"ifo"``: the first n of
    candidate, forget gate, output gate and input gate. The parameters of a layer are:

    - ``weight`` and ``weight_before``, ``(n * hidden_size, inputs)``: rows of all candidates, then
      of all forget gates, and so on.
    - ``bias``, ``(n * hidden_size,)``.

    The state is ``(num_layers * num_directions, *batch, hidden_size)``. With ``kernel_size=2`` it
    is a :class:`QRNNState`, which contains this array.

    Weights start normal, of variance ``1 / (kernel_size * inputs)`` (LeCun et al., Efficient
    BackProp, 1998). Biases of forget gates start at 1 (Gers et al., Learning to Forget, 2000;
    Jozefowicz et al., An Empirical Exploration of Recurrent Network Architectures, 2015), the
    others at 0.

    Source: Bradbury et al., Quasi-Recurrent Neural Networks (2017), section 2. Zoneout: Krueger et
    al. (2017).
    """

    kernel_size: Literal[1, 2]
    pool: Pool
    zoneout: float
    memory: Memory

    _draw_order = ("weight", "weight_before")

    @property
    def _parts(self) -> int:
        """Number of pre-activations of a channel."""
        return arguments.POOLS[self.pool]

    def _check_own(self) -> None:
        self._check_choice("kernel_size", (1, 2))
        arguments.pool_size(self._name, self.pool)
        arguments.recomputes(self._name, self.memory)
        self._check_number("zoneout", "a number below 1 and not negative", lambda p: 0 <= p < 1)

    def _parameter_specs(self, inputs: int) -> Parameters:
        rows, forgets = self._parts * self.hidden_size, np.eye(self._parts)[1]
        weight = Parameter((rows, inputs), Normal(1 / (self.kernel_size * inputs)))
        found = {"weight": weight}
        if self.kernel_size == 2:
            found["weight_before"] = weight
        if self.bias:
            found["bias"] = Parameter((rows,), np.repeat(forgets, self.hidden_size))
        return found

    def _state_shapes(self) -> Shapes:
        shapes = super()._state_shapes()
        if self.kernel_size == 2:
            shapes["before"] = (self._parts * self.hidden_size,)
        return shapes

    def _expected(self, xp: Any, pre: Sequence[Any]) -> list[Any]:
        """Return pre-activations with which a step gives the expected state under zoneout.

        They scale ``1 - f`` and the input gate by ``1 - zoneout``. For this, the logit p of ``f``
        becomes ``log((exp(p) + zoneout) / (1 - zoneout))``. The input gate is scaled in the same
        way as ``1 - f``, whose logit is -p. `xp` is a module with the functions of NumPy.
        """

        def less(p: Any) -> Any:
            least = xp.full_like(p, math.log(self.zoneout))
            return xp.logaddexp(p, least) - math.log1p(-self.zoneout)

        expected = list(pre)
        expected[1] = less(pre[1])
        if len(pre) > 3:
            expected[3] = -less(-pre[3])
        return expected


class MinGRUSpec(Spec):
    """A step computes, from the inputs u::

        v, z = weight u[t] + bias
        h[t] = (1 - sigmoid(z)) h[t-1] + sigmoid(z) g(v)

    The outputs are the states h. Only the gates, ``1 - sigmoid(z)``, are scanned as logarithms, so
    candidates and states may have any sign. A gate close to 1
    is therefore as accurate as its logarithm.

    Other Parameters
    ----------------
    candidate:
        The function g: ``"identity"``, or ``"positive"``, which is ``v + 1/2`` if v is 0 or more,
        and otherwise ``sigmoid(v)``.

    Notes
    -----
    The parameters of a layer are:

    - ``weight``, ``(2 * hidden_size, inputs)``: rows of the candidate, then of the gate.
    - ``bias``, ``(2 * hidden_size,)``.

    The state is ``(num_layers * num_directions, *batch, hidden_size)``.

    Parameters start uniform in ``+-1 / sqrt(inputs)``, as in torch.nn.Linear.

    Source: Feng et al., Were RNNs All We Needed? (2024), section 3.1, and appendix B for g.
    """

    candidate: Candidate

    _draw_order = ("weight", "bias")

    def _check_own(self) -> None:
        self._check_choice("candidate", ("identity", "positive"))

    def _parameter_specs(self, inputs: int) -> Parameters:
        rows = 2 * self.hidden_size
        found = {"weight": Parameter((rows, inputs), uniform_linear(inputs))}
        if self.bias:
            found["bias"] = Parameter((rows,), uniform_linear(inputs))
        return found


class RGLRUSpec(Spec):
    """A step computes, from the inputs u::

        x = u if there are hidden_size inputs, else weight_in u + bias_in
        r = sigmoid(weight_recurrence x[t] + bias_recurrence)
        i = sigmoid(weight_gate x[t] + bias_gate)
        a = exp(-c softplus(decay) r)
        h[t] = a h[t-1] + sqrt(1 - a^2) i x[t]

    The outputs are the states h. As in RecurrentGemma, the input of the first step of a sequence is
    not scaled by ``sqrt(1 - a^2)``. A state of zeros therefore differs from no state: it continues
    a sequence, whose next input is scaled.

    Other Parameters
    ----------------
    heads:
        Number of diagonal blocks in the weight matrix of each gate. It divides hidden_size.
    c:
        Factor in the exponent, above 0.

    Notes
    -----
    The parameters of a layer are:

    - ``decay``, ``bias_recurrence`` and ``bias_gate``, ``(hidden_size,)``.
    - ``weight_recurrence`` and ``weight_gate``, ``(heads, n, n)`` with n = hidden_size / heads.
      Within block k, ``weight[k, i, j]`` multiplies channel i of x for the gate of channel j.
    - ``weight_in``, ``(hidden_size, inputs)``, and ``bias_in``, ``(hidden_size,)``, if the layer
      does not have hidden_size inputs.

    The state is ``(num_layers * num_directions, *batch, hidden_size)``.

    The gate a at r = 1, which is the paper's a to the power c, starts uniform from 0.9 to 0.999.
    The weights of the gates start normal, of variance ``1 / n``, and ``weight_in`` of variance
    ``1 / inputs`` (LeCun et al., Efficient BackProp, 1998). Biases start at 0.

    Source: De et al., Griffin: Mixing Gated Linear Recurrences with Local Attention for Efficient
    Language Models (2024), section 2.4.
    """

    heads: int
    c: float

    _draw_order = ("decay", "weight_recurrence", "weight_gate", "weight_in")

    def _check_own(self) -> None:
        self._convert(arguments.count, "heads")
        if self.hidden_size % self.heads:
            expected = f"a divisor of hidden_size, {self.hidden_size}"
            arguments.refuse(self._name, "heads", expected, self.heads)
        self._check_number("c", "a finite number above 0", lambda c: 0 < c < float("inf"))

    def _parameter_specs(self, inputs: int) -> Parameters:
        size, n = self.hidden_size, self.hidden_size // self.heads
        block, zero = Parameter((self.heads, n, n), Normal(1 / n)), Parameter((size,), 0.0)
        decay = lambda xp, a: xp.log(xp.expm1(-xp.log(a) / self.c))  # exp(-c softplus(decay)) = a
        found = {
            "decay": Parameter((size,), Uniform(0.9, 0.999, decay)),
            "weight_recurrence": block,
            "weight_gate": block,
        }
        if inputs != size:
            found["weight_in"] = Parameter((size, inputs), Normal(1 / inputs))
        if self.bias:
            found.update(bias_recurrence=zero, bias_gate=zero)
            if inputs != size:
                found["bias_in"] = zero
        return found

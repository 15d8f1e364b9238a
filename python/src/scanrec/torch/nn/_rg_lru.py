# SPDX-License-Identifier: BSD-3-Clause
"""The real-gated linear recurrent unit of Griffin."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from ... import _arguments as arguments
from .._linear_scan import linear_scan
from ._recurrent import Recurrent, wide
from ._window import firsts

__all__ = ["RGLRU"]


class RGLRU(Recurrent[Tensor]):
    """The real-gated linear recurrent unit, in the calls of torch.nn.LSTM::

        x = u, or weight_in u + bias_in where sizes differ
        r = sigmoid(weight_recurrence x[t] + bias_recurrence)
        i = sigmoid(weight_gate x[t] + bias_gate)
        a = exp(-c softplus(decay) r)
        h[t] = a h[t-1] + sqrt(1 - a^2) i x[t]

    The input of a sequence's first step is not scaled by ``sqrt(1 - a^2)``, as in RecurrentGemma: a
    state of zeros is one to go on from, None is the beginning of a sequence.

    Parameters
    ----------
    input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device, dtype:
        As of torch.nn.LSTM: ``dropout`` is on the outputs of all layers but the last.
    heads:
        Blocks of the matrices of gates, which divide hidden_size.
    c:
        The factor in the exponent, above 0.

    Weights of layer k: ``decay_lk``, ``(hidden_size,)``; ``weight_recurrence_lk`` and
    ``weight_gate_lk``, ``(heads, hidden_size / heads, hidden_size / heads)``, from the second axis
    to the third; ``bias_recurrence_lk`` and ``bias_gate_lk``, ``(hidden_size,)``; ``weight_in_lk``,
    ``(hidden_size, input_size)``, and ``bias_in_lk``, ``(hidden_size,)``, where the layer's inputs
    are not hidden_size. With ``_reverse`` behind for the other direction.

    State: ``(num_layers * num_directions, B, hidden_size)``.

    Notes
    -----
    ``a`` at r = 1 starts uniform from 0.9 to 0.999 (what the paper says of its a to the power c);
    matrices normal, of variance 1 / the inputs of each number; biases at 0.

    Source: De et al., Griffin: Mixing Gated Linear Recurrences with Local Attention for Efficient
    Language Models (2024), section 2.4.
    """

    heads: int
    c: float

    _own = {"heads": 1, "c": 8.0}

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
        heads: int = 1,
        c: float = 8.0,
    ):
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        )
        self.heads = self._count("heads", heads)
        if self.hidden_size % self.heads:
            expected = f"a divisor of hidden_size, {self.hidden_size}"
            arguments.refuse(self._name, "heads", expected, heads)
        self.c = self._number("c", c, 0, math.inf)
        if not 0 < self.c < math.inf:
            arguments.refuse(self._name, "c", "a finite number above 0", c)
        self._build(device, dtype)

    def _shapes(self, inputs):
        size = self.hidden_size
        block = (self.heads, size // self.heads, size // self.heads)
        shapes = {"decay": (size,), "weight_recurrence": block, "weight_gate": block}
        if inputs != size:
            shapes["weight_in"] = (size, inputs)
        if self.bias:
            shapes.update(bias_recurrence=(size,), bias_gate=(size,))
            if inputs != size:
                shapes["bias_in"] = (size,)
        return shapes

    def _reset(self, weights, inputs):
        for name, weight in weights.items():
            if name == "decay":
                at_one = torch.empty_like(weight, dtype=torch.float64).uniform_(0.9, 0.999)
                weight.copy_(torch.log(torch.expm1(-torch.log(at_one) / self.c)))
            elif name.startswith("bias"):
                weight.zero_()
            else:
                into = inputs if name == "weight_in" else self.hidden_size // self.heads
                weight.normal_(0, into**-0.5)

    def _run(self, x, weights, state, axis, reverse, begins, resets):
        if "weight_in" in weights:
            x = functional.linear(x, weights["weight_in"], weights.get("bias_in"))
        r, i = (self._gate(x, weights, name) for name in ("recurrence", "gate"))
        log_a = -self.c * functional.softplus(wide(weights["decay"])) * r
        # 1 - a^2 without cancellation. Where it is 0 its root has a gradient of 0, not infinity.
        scale = torch.sqrt((-torch.expm1(2 * log_a)).clamp_min(torch.finfo(log_a.dtype).tiny))
        steps, sequences = x.shape[axis], x.shape[1 - axis]
        if resets is not None:
            scale = torch.where(firsts(resets, steps, axis, reverse).unsqueeze(-1), 1.0, scale)
        a, gated, initial = torch.exp(log_a), i * wide(x), state[0]
        if begins:
            # Unscaled first inputs: a (a / (1 + scale)) is 1 - scale, so no step of the others is
            # touched.
            at = [t.select(axis, steps - 1 if reverse else 0) for t in (a, scale, gated)]
            a_first, scale_first, first = (t[sequences - begins :] for t in at)
            goes_on = initial[: sequences - begins]
            initial = torch.cat([goes_on, a_first / (1 + scale_first) * first])
        h, final = linear_scan(
            *(a, scale * gated, initial),
            axis=axis,
            reverse=reverse,
            resets=None if resets is None else resets.unsqueeze(-1),
            return_final=True,
        )
        return h.to(x.dtype), (final,)

    def _gate(self, x, weights, name):
        apart = x.unflatten(-1, (self.heads, -1))
        pre = torch.einsum("...hi,hij->...hj", apart, weights[f"weight_{name}"]).flatten(-2)
        if self.bias:
            pre = pre + weights[f"bias_{name}"]
        return torch.sigmoid(wide(pre))

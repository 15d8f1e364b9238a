# SPDX-License-Identifier: BSD-3-Clause
"""What S5 and the linear recurrent unit share: complex states between two products."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from ._recurrent import Recurrent, Weights, full_precision, wide

__all__ = ["StateSpace", "complex_of"]


def complex_of(pairs: Tensor) -> Tensor:
    """Complex numbers of the pairs that weights hold."""
    return torch.view_as_complex(wide(pairs))


class StateSpace(Recurrent[Tensor]):
    """A layer around one of the state spaces of scanrec.torch."""

    _complex_state = True
    _states: int  #: complex ones

    def _diagonal(self) -> tuple[str, ...]:
        """Names of the weights of which there is one per state."""
        raise NotImplementedError

    def _scan(self, u: Tensor, weights: Weights, b: Tensor, c: Tensor, d, **given):
        """The call for (B, T, I): what it returns for `initial_state`, `reverse`, `resets` and
        `return_final`."""
        raise NotImplementedError

    def _state_shapes(self):
        return {"state": (self._states,)}

    def _shapes(self, inputs):
        size, states = self.hidden_size, self._states
        return {
            **{name: (states,) for name in self._diagonal()},
            "b": (states, inputs, 2),
            "c": (size, states, 2),
            "d": (size,) if inputs == size else (size, inputs),
            **({"bias": (size,)} if self.bias else {}),
        }

    def _reset_feedthrough(self, weights, inputs):
        d = weights["d"]
        d.normal_(0, 1 if d.dim() == 1 else inputs**-0.5)
        if self.bias:
            weights["bias"].zero_()

    def _run(self, x, weights, state, axis, reverse, begins, resets):
        with full_precision(x):
            u = wide(x).transpose(0, 1) if axis == 0 else wide(x)
            d = wide(weights["d"])
            b, c = complex_of(weights["b"]), complex_of(weights["c"])
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

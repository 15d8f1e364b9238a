# SPDX-License-Identifier: BSD-3-Clause
"""``philtorch.lti``: constant coefficients."""

from __future__ import annotations

import torch

from scanrec import _arguments as arguments
from scanrec.torch import linear_scan

from .._torch import tensor
from ._checks import initial_and_input
from ._filters import comb_filter, lfilter
from ._state_space import diag_state_space, state_space, state_space_recursion

__all__ = [
    "comb_filter",
    "diag_state_space",
    "lfilter",
    "linear_recurrence",
    "state_space",
    "state_space_recursion",
]


def linear_recurrence(
    a: torch.Tensor, init: torch.Tensor, x: torch.Tensor, *, unroll_factor: int = 1
) -> torch.Tensor:
    """``h[t] = a * h[t-1] + x[t]`` along the last axis of ``x``, ``(B, N)``, from ``init``, ``()``,
    ``(1,)`` or ``(B,)``; ``a`` is ``()``, ``(1,)`` or ``(B,)``.

    ``unroll_factor``, by which the original chooses among algorithms of one value, is checked and
    chooses nothing. Floating point and complex types, no integers.
    """
    call = "linear_recurrence"
    init = initial_and_input(call, init, x, unroll_factor)
    arguments.check_shape(call, "a", tensor(call, "a", a, like=x).shape, x.shape[:1])
    return linear_scan(a.unsqueeze(-1), x, init, axis=-1)

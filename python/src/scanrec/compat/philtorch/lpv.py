# SPDX-License-Identifier: BSD-3-Clause
"""``philtorch.lpv``: varying coefficients."""

from __future__ import annotations

import torch

from scanrec import _arguments as arguments
from scanrec.torch import linear_scan

from .._torch import tensor
from ._checks import initial_and_input
from ._state_space import recursion
from ._varying import state_space

__all__ = ["linear_recurrence", "state_space", "state_space_recursion"]


def linear_recurrence(
    a: torch.Tensor, init: torch.Tensor, x: torch.Tensor, *, unroll_factor: int = 1
) -> torch.Tensor:
    """``h[t] = a[t] * h[t-1] + x[t]`` along the last axis of ``x``, ``(B, N)``, from ``init``,
    ``()``, ``(1,)`` or ``(B,)``; ``a`` is ``(N,)`` or ``(B, N)``.

    ``unroll_factor``, by which the original chooses among algorithms of one value, is checked and
    chooses nothing. Floating point and complex types, no integers.
    """
    call = "linear_recurrence"
    init = initial_and_input(call, init, x, unroll_factor)
    arguments.check_shape(call, "a", tensor(call, "a", a, like=x).shape, x.shape)
    return linear_scan(a, x, init, axis=-1)


def state_space_recursion(
    A: torch.Tensor,
    zi: torch.Tensor,
    x: torch.Tensor,
    *,
    unroll_factor: int = 1,
    out_idx: int | None = None,
) -> torch.Tensor:
    """``h[n+1] = A[n] h[n] + x[n]`` from ``h[0]``, which is ``zi``, ``(B, 1)``; returns
    ``h[1], ..., h[N]``, ``(B, N, 1)``, or ``(B, N)`` with an ``out_idx`` of 0.

    Of one state: ``A`` is ``(N, 1, 1)`` or ``(B, N, 1, 1)``, ``x`` is ``(B, N, 1)`` or ``(B, N)``;
    other matrices raise ``ValueError``. States that do not mix are rows of
    :func:`linear_recurrence`. ``unroll_factor`` is checked and chooses nothing.
    """
    return recursion(A, zi, x, unroll_factor, out_idx, varying=True)

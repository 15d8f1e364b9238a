# SPDX-License-Identifier: BSD-3-Clause
"""Stands in for torchlpc, of order 1."""

from __future__ import annotations

import torch

from scanrec import _arguments as arguments
from scanrec.torch import linear_scan

from .._torch import tensor
from .recurrence import Recurrence, linear_recurrence

__all__ = ["Recurrence", "linear_recurrence", "sample_wise_lpc"]


def sample_wise_lpc(
    x: torch.Tensor,
    a: torch.Tensor,
    zi: torch.Tensor | None = None,
    return_zf: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """``y[t] = x[t] - a[t, 0] * y[t-1]`` of ``x`` ``(B, T)``, ``a`` ``(B, T, 1)``, ``zi``
    ``(B, 1)``; with ``return_zf`` ``(y, y[:, -1:])``, without steps ``(y, zi)``.

    Of order 1: higher ones, which the original takes, raise ``ValueError``.
    """
    call = "sample_wise_lpc"
    batch, steps = tensor(call, "x", x, axes="(B, T)").shape
    tensor(call, "a", a, axes="(B, T, 1)", like=x)
    arguments.check_shape(call, "a", a.shape, (batch, steps, 1), equal=True)
    if zi is not None:
        zi = tensor(call, "zi", zi, shape=(batch, 1), like=x).squeeze(1)
    return_zf = arguments.flag(call, "return_zf", return_zf)
    y = linear_scan(-a.squeeze(2), x, zi, axis=-1)
    if not return_zf:
        return y
    if y.shape[1]:
        return y, y[:, -1:]
    return y, y.new_zeros(batch, 1) if zi is None else zi.to(y.dtype).unsqueeze(1)

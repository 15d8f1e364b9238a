# SPDX-License-Identifier: BSD-3-Clause
"""``philtorch._recur``."""

from __future__ import annotations

import torch

from scanrec import _arguments as arguments
from scanrec.torch import linear_scan

from .._torch import tensor

__all__ = ["recurrence"]


def recurrence(A: torch.Tensor, zi: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """``h[t] = A[t] h[t-1] + x[t]`` along the second axis of ``x``, ``(B, T, 1)``, from ``zi``,
    ``(B, 1)``; ``A`` is ``(B, T, 1, 1)``, or has 1 for either of the first two, and is then not
    spread over them.

    Of scalars: matrices, which the original takes, raise ``ValueError``. States that do not mix are
    rows of ``lti.linear_recurrence`` and ``lpv.linear_recurrence``.
    """
    call = "recurrence"
    batch, steps, order = tensor(call, "x", x, axes="(B, T, 1)").shape
    if order != 1:
        arguments.refuse(call, "x", "states of one number, (B, T, 1)", tuple(x.shape))
    tensor(call, "A", A, axes="(B, T, 1, 1)", like=x)
    arguments.check_shape(call, "A", A.shape, (batch, steps, 1, 1))
    arguments.check_shape(call, "A", A.shape[2:], (1, 1), equal=True)
    tensor(call, "zi", zi, shape=(batch, 1), like=x)
    return linear_scan(A.squeeze(-1), x, zi, axis=1)

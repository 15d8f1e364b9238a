# SPDX-License-Identifier: BSD-3-Clause
"""``mambapy.pscan``."""

from __future__ import annotations

import torch

from scanrec import _arguments as arguments
from scanrec.torch import linear_scan

from .._torch import tensor

__all__ = ["pscan"]


def pscan(A: torch.Tensor, X: torch.Tensor) -> torch.Tensor:
    """``H[t] = A[t] * H[t-1] + X[t]`` along the second axis of ``(B, L, D, N)``.

    ``A`` may be of any shape that broadcasts to that of ``X``. Nothing is cloned or padded to a
    power of two; 16-bit types are computed in float32; second derivatives are right.
    """
    tensor("pscan", "X", X, axes="(B, L, D, N)")
    tensor("pscan", "A", A, like=X)
    arguments.check_shape("pscan", "A", A.shape, X.shape)
    return linear_scan(A, X, axis=1)

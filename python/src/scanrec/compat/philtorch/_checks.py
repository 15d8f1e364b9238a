# SPDX-License-Identifier: BSD-3-Clause
"""What several calls check."""

from __future__ import annotations

import operator
from typing import Any

import torch

from scanrec import _arguments as arguments

from .._torch import tensor

__all__ = ["check_unroll_factor", "initial_and_input", "scalar_matrices"]


def check_unroll_factor(call: str, unroll_factor: Any) -> None:
    """Refuses what is no number of steps."""
    try:
        blocks = operator.index(unroll_factor)
    except TypeError:
        arguments.refuse(call, "unroll_factor", "an integer", repr(unroll_factor), TypeError)
    if blocks < 1:
        arguments.refuse(call, "unroll_factor", "at least 1", blocks)


def initial_and_input(call: str, init: Any, x: Any, unroll_factor: Any) -> torch.Tensor:
    """The initial value as ``(B,)`` or ``()``, where all arguments but the coefficients are
    right."""
    batch, _ = tensor(call, "x", x, axes="(B, N)").shape
    arguments.check_shape(call, "init", tensor(call, "init", init, like=x).shape, (batch,))
    check_unroll_factor(call, unroll_factor)
    return init


def scalar_matrices(call: str, A: Any, x: torch.Tensor, axes: tuple[int, ...]) -> torch.Tensor:
    """``A`` as ``(axes[1:], 1)`` or ``(*axes, 1)``, where it is a matrix of one number for each,
    with or without the first of the axes."""
    tensor(call, "A", A, like=x)
    if A.dim() < 2 or A.shape[-2:] != (1, 1):
        steps = ", lpv.linear_recurrence of rows that vary" if len(axes) > 1 else ""
        expected = (
            "matrices of one number, (..., 1, 1): diag_state_space takes a diagonal as L, lti."
            f"linear_recurrence one as rows of a batch{steps}"
        )
        arguments.refuse(call, "A", expected, f"shape {tuple(A.shape)}")
    wanted = (*axes[A.dim() - 2 < len(axes) :], 1, 1)
    arguments.check_shape(call, "A", A.shape, wanted, equal=True)
    return A.squeeze(-1)

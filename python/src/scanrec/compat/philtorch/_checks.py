# SPDX-License-Identifier: BSD-3-Clause
"""What both calls check."""

from __future__ import annotations

import operator
from typing import Any

import torch

from scanrec import _arguments as arguments

from .._torch import tensor

__all__ = ["initial_and_input"]


def initial_and_input(call: str, init: Any, x: Any, unroll_factor: Any) -> torch.Tensor:
    """The initial value as ``(B,)`` or ``()``, where all arguments but the coefficients are
    right."""
    batch, _ = tensor(call, "x", x, axes="(B, N)").shape
    arguments.check_shape(call, "init", tensor(call, "init", init, like=x).shape, (batch,))
    try:
        blocks = operator.index(unroll_factor)
    except TypeError:
        arguments.refuse(call, "unroll_factor", "an integer", repr(unroll_factor), TypeError)
    if blocks < 1:
        arguments.refuse(call, "unroll_factor", "at least 1", blocks)
    return init

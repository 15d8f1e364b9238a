# SPDX-License-Identifier: BSD-3-Clause
"""``accelerated_scan.complex``."""

from __future__ import annotations

import torch

from scanrec import _arguments as arguments

from .._torch import last_axis_scan

__all__ = ["scan"]


def scan(forget: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
    """``x[t] = forget[t] * x[t-1] + inputs[t]`` along the last axis of ``(B, C, T)``: ``forget`` is
    complex, ``inputs`` complex or real, and the states are complex.

    On CPUs, too, and of any strides; second derivatives are right.
    """
    if isinstance(forget, torch.Tensor) and not forget.is_complex():
        arguments.refuse("scan", "forget", "a complex type", forget.dtype, TypeError)
    return last_axis_scan("scan", ("forget", forget), ("inputs", inputs), "(B, C, T)")

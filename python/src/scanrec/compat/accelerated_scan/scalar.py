# SPDX-License-Identifier: BSD-3-Clause
"""``accelerated_scan.scalar``."""

from __future__ import annotations

import torch

from .._torch import last_axis_scan

__all__ = ["scan"]


def scan(forget: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
    """``x[t] = forget[t] * x[t-1] + inputs[t]`` along the last axis of ``(B, C, T)``.

    Any strides, where the original takes contiguous tensors of GPUs; 16-bit types are computed in
    float32, where it combines steps within a block in theirs; second derivatives are right.
    """
    return last_axis_scan("scan", ("forget", forget), ("inputs", inputs), "(B, C, T)")

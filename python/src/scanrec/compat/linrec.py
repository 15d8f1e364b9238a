# SPDX-License-Identifier: BSD-3-Clause
"""Stands in for linrec, of which ``linrec`` is the operation."""

from __future__ import annotations

import torch

from ._torch import last_axis_scan

__all__ = ["linrec"]


def linrec(inputs: torch.Tensor, coeffs: torch.Tensor, reverse: bool = False) -> torch.Tensor:
    """``outputs[t] = coeffs[t] * outputs[t-1] + inputs[t]`` along the last axis of two tensors of
    one shape, or with ``outputs[t+1]``.

    Any length and any strides, on CPUs, too; second derivatives are right.
    """
    return last_axis_scan("linrec", ("coeffs", coeffs), ("inputs", inputs), None, reverse)

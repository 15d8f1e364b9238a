# SPDX-License-Identifier: BSD-3-Clause
"""Stands in for linrec, on CPUs and GPUs."""

from __future__ import annotations

from torch import Tensor

from ._torch import last_axis_scan

__all__ = ["linrec"]


def linrec(inputs: Tensor, coeffs: Tensor, reverse: bool = False) -> Tensor:
    """Compute ``outputs[t] = coeffs[t] * outputs[t-1] + inputs[t]`` along the last axis.

    Both tensors have the same shape. With ``reverse``, ``outputs[t+1]`` takes the place of
    ``outputs[t-1]``. Second derivatives are correct.
    """
    return last_axis_scan("linrec", ("coeffs", coeffs), ("inputs", inputs), reverse=reverse)

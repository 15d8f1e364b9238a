# SPDX-License-Identifier: BSD-3-Clause
"""Stands in for linrec, on CPUs and GPUs."""

from __future__ import annotations

import torch

from ._torch import last_axis_scan

__all__ = ["linrec"]


def linrec(inputs: torch.Tensor, coeffs: torch.Tensor, reverse: bool = False) -> torch.Tensor:
    """Compute ``outputs[t] = coeffs[t] * outputs[t-1] + inputs[t]`` along the last axis.

    Both tensors have one shape. With ``reverse``, ``outputs[t+1]`` takes the place of
    ``outputs[t-1]``. Second derivatives are right.
    """
    given = ("coeffs", coeffs), ("inputs", inputs)
    return last_axis_scan("linrec", *given, None, reverse=reverse)

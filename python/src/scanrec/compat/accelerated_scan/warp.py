# SPDX-License-Identifier: BSD-3-Clause
"""``accelerated_scan.warp``."""

from __future__ import annotations

import torch

from .._torch import last_axis_scan

__all__ = ["scan"]


def scan(gates: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """``x[t] = gates[t] * x[t-1] + tokens[t]`` along the last axis of ``(B, C, T)``.

    Any T, where the original takes powers of two up to 65536, and any strides; 16-bit types are
    computed in float32, where it keeps states in theirs; second derivatives are right.
    """
    return last_axis_scan("scan", ("gates", gates), ("tokens", tokens), "(B, C, T)")

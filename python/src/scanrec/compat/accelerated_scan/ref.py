# SPDX-License-Identifier: BSD-3-Clause
"""``accelerated_scan.ref``."""

from __future__ import annotations

from collections.abc import Callable

import torch

from scanrec import _arguments as arguments

from .._torch import last_axis_scan

__all__ = ["scan"]


def scan(
    gates: torch.Tensor,
    tokens: torch.Tensor,
    mul: Callable = torch.mul,
    add: Callable = torch.add,
    zeros_like: Callable = torch.zeros_like,
    ones_like: Callable = torch.ones_like,
    reverse: bool = False,
) -> torch.Tensor:
    """``x[t] = gates[t] * x[t-1] + tokens[t]`` along the last axis of ``(B, C, T)``, or with
    ``x[t+1]``.

    For numbers: other operations than torch's own are refused. Any strides, and T of 1, which the
    original does not take; 16-bit types are computed in float32.
    """
    own = {
        "mul": (mul, torch.mul),
        "add": (add, torch.add),
        "zeros_like": (zeros_like, torch.zeros_like),
        "ones_like": (ones_like, torch.ones_like),
    }
    for name, (given, wanted) in own.items():
        if given is not wanted:
            arguments.refuse("scan", name, f"torch.{name}", repr(given))
    return last_axis_scan("scan", ("gates", gates), ("tokens", tokens), "(B, C, T)", reverse)

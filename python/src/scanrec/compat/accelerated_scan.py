# SPDX-License-Identifier: BSD-3-Clause
"""Stands in for accelerated-scan: ``scan`` of ``warp``, ``scalar``, ``complex`` and ``ref``.

Each computes ``x[t] = gate[t] * x[t-1] + input[t]`` along the last axis of ``(B, C, T)``. Tensors
may have any strides, on CPUs and GPUs. 16-bit types are computed in float32. Second derivatives
are correct.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from scanrec import _arguments as arguments

from ._torch import last_axis_scan

__all__ = ["complex", "ref", "scalar", "scan", "warp"]

_AXES = "(B, C, T)"


class warp:
    """``accelerated_scan.warp``."""

    @staticmethod
    def scan(gates: Tensor, tokens: Tensor) -> Tensor:
        """Compute the scan at any length; the original takes powers of two up to 65536."""
        return last_axis_scan("scan", ("gates", gates), ("tokens", tokens), _AXES)


class scalar:
    """``accelerated_scan.scalar``."""

    @staticmethod
    def scan(forget: Tensor, inputs: Tensor) -> Tensor:
        """Compute the scan with the gate ``forget``."""
        return last_axis_scan("scan", ("forget", forget), ("inputs", inputs), _AXES)


class complex:
    """``accelerated_scan.complex``."""

    @staticmethod
    def scan(forget: Tensor, inputs: Tensor) -> Tensor:
        """Compute the scan with a complex gate ``forget``. ``inputs`` may be real."""
        if isinstance(forget, Tensor) and not forget.is_complex():
            arguments.refuse("scan", "forget", "a complex type", forget.dtype, TypeError)
        return scalar.scan(forget, inputs)


class ref:
    """``accelerated_scan.ref``."""

    @staticmethod
    def scan(
        gates: Tensor,
        tokens: Tensor,
        mul: Callable[..., Any] = torch.mul,
        add: Callable[..., Any] = torch.add,
        zeros_like: Callable[..., Any] = torch.zeros_like,
        ones_like: Callable[..., Any] = torch.ones_like,
        reverse: bool = False,
    ) -> Tensor:
        """Compute the scan, with ``x[t+1]`` in place of ``x[t-1]`` if ``reverse``.

        ``mul``, ``add``, ``zeros_like`` and ``ones_like`` other than torch's raise ``ValueError``.
        The original does not support T = 1.
        """
        given = {"mul": mul, "add": add, "zeros_like": zeros_like, "ones_like": ones_like}
        for name, operation in given.items():
            if operation is not getattr(torch, name):
                arguments.refuse("scan", name, f"torch.{name}", repr(operation))
        return last_axis_scan("scan", ("gates", gates), ("tokens", tokens), _AXES, reverse=reverse)


scan: Callable[[Tensor, Tensor], Tensor] = warp.scan

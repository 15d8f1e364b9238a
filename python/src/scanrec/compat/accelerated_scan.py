# SPDX-License-Identifier: BSD-3-Clause
"""Stands in for accelerated-scan: ``scan`` of ``warp``, ``scalar``, ``complex`` and ``ref``.

Tensors are ``(B, C, T)`` with any strides, on CPUs and GPUs. 16-bit types are computed in float32.
Second derivatives are right.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from scanrec import _arguments as arguments

from ._torch import last_axis_scan

__all__ = ["complex", "ref", "scalar", "scan", "warp"]

_AXES = "(B, C, T)"


class warp:
    """``accelerated_scan.warp``."""

    @staticmethod
    def scan(gates: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """Compute ``x[t] = gates[t] * x[t-1] + tokens[t]`` along the last axis.

        T may be any length; the original takes powers of two up to 65536.
        """
        return last_axis_scan("scan", ("gates", gates), ("tokens", tokens), _AXES)


class scalar:
    """``accelerated_scan.scalar``."""

    @staticmethod
    def scan(forget: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        """Compute ``x[t] = forget[t] * x[t-1] + inputs[t]`` along the last axis."""
        return last_axis_scan("scan", ("forget", forget), ("inputs", inputs), _AXES)


class complex:
    """``accelerated_scan.complex``."""

    @staticmethod
    def scan(forget: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        """Compute ``x[t] = forget[t] * x[t-1] + inputs[t]`` along the last axis.

        ``forget`` and the states are complex; ``inputs`` may be real.
        """
        if isinstance(forget, torch.Tensor) and not forget.is_complex():
            arguments.refuse("scan", "forget", "a complex type", forget.dtype, TypeError)
        return scalar.scan(forget, inputs)


class ref:
    """``accelerated_scan.ref``."""

    @staticmethod
    def scan(
        gates: torch.Tensor,
        tokens: torch.Tensor,
        mul: Callable = torch.mul,
        add: Callable = torch.add,
        zeros_like: Callable = torch.zeros_like,
        ones_like: Callable = torch.ones_like,
        reverse: bool = False,
    ) -> torch.Tensor:
        """Compute ``x[t] = gates[t] * x[t-1] + tokens[t]`` along the last axis.

        With ``reverse``, ``x[t+1]`` takes the place of ``x[t-1]``. Operations other than torch's
        own raise ``ValueError``. The original does not take a T of 1.
        """
        for operation, wanted in (
            (mul, torch.mul),
            (add, torch.add),
            (zeros_like, torch.zeros_like),
            (ones_like, torch.ones_like),
        ):
            if operation is not wanted:
                name = wanted.__name__
                arguments.refuse("scan", name, f"torch.{name}", repr(operation))
        return last_axis_scan("scan", ("gates", gates), ("tokens", tokens), _AXES, reverse=reverse)


scan: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = warp.scan

# SPDX-License-Identifier: BSD-3-Clause
"""Checks of tensors under the names that other packages have for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from scanrec import _arguments as arguments
from scanrec.torch import linear_scan
from scanrec.torch._tensors import check_dense

__all__ = ["last_axis_scan", "tensor"]


def tensor(
    call: str,
    name: str,
    value: Any,
    *,
    axes: str | None = None,
    shape: Sequence[int] | None = None,
    like: torch.Tensor | None = None,
    real: bool = False,
) -> torch.Tensor:
    """The value, if it is a tensor of an element type that kernels know, has these axes, "(B, T)"
    say, and this shape, is on the device of another, and is real."""
    check_dense(call, name, value)
    arguments.check_dtype(call, name, str(value.dtype).removeprefix("torch."))
    if real and value.is_complex():
        arguments.refuse(call, name, "a real type", value.dtype, TypeError)
    if axes is not None and value.dim() != axes.count(",") + 1 - axes.endswith(",)"):
        arguments.refuse(call, name, f"shape {axes}", tuple(value.shape))
    if shape is not None:
        arguments.check_shape(call, name, value.shape, shape, equal=True)
    if like is not None and value.device != like.device:
        arguments.refuse(call, name, f"a tensor on {like.device}", value.device)
    return value


def last_axis_scan(
    call: str,
    gate: tuple[str, Any],
    input: tuple[str, Any],
    axes: str | None,
    reverse: bool = False,
) -> torch.Tensor:
    """The scan of two tensors of one shape, given with their names, along their last axis."""
    x = tensor(call, *input, axes=axes)
    a = tensor(call, *gate, shape=x.shape, like=x)
    reverse = arguments.flag(call, "reverse", reverse)
    return linear_scan(a, x, axis=-1, reverse=reverse)

# SPDX-License-Identifier: BSD-3-Clause
"""Checks of tensors, under the argument names of other packages."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch

from scanrec import _arguments as arguments
from scanrec._torch.tensors import check_dense
from scanrec.torch import linear_scan

__all__ = ["check_tensors", "common_dtype", "last_axis_scan", "tensor"]


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
    """Return the value if it is a tensor of an element type that the kernels support.

    ``axes``, such as ``"(B, T)"``, gives the number of axes, ``shape`` the exact shape, and
    ``like`` a tensor on the same device. ``real`` excludes complex types.
    """
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


def check_tensors(
    call: str, like: torch.Tensor, real: bool = False, **given: tuple[Any, Sequence[int]]
) -> None:
    """Check tensors, each given by name with its shape."""
    for name, (value, shape) in given.items():
        tensor(call, name, value, shape=shape, like=like, real=real)


def common_dtype(*tensors: torch.Tensor) -> torch.dtype:
    """Return the type that the types of all tensors promote to."""
    return reduce(torch.promote_types, (t.dtype for t in tensors))


def last_axis_scan(
    call: str,
    gate: tuple[str, Any],
    input: tuple[str, Any],
    axes: str | None,
    *,
    initial: tuple[str, Any] | None = None,
    reverse: bool = False,
) -> torch.Tensor:
    """Scan two tensors of one shape along their last axis; arguments are (name, value)."""
    x = tensor(call, *input, axes=axes)
    a = tensor(call, *gate, shape=x.shape, like=x)
    first = None if initial is None else tensor(call, *initial, shape=x.shape[:-1], like=x)
    reverse = arguments.flag(call, "reverse", reverse)
    return linear_scan(a, x, first, axis=-1, reverse=reverse)

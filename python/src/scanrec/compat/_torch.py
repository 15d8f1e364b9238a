# SPDX-License-Identifier: BSD-3-Clause
"""Checks of tensors, under the argument names of other packages."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from scanrec import _arguments as arguments
from scanrec._torch.tensors import check_dense
from scanrec.torch import linear_scan

__all__ = ["common_dtype", "last_axis_scan", "shared_or_each", "tensor"]


def tensor(
    call: str,
    name: str,
    value: Any,
    *,
    axes: str | None = None,
    shape: Sequence[int] | None = None,
    broadcast: Sequence[int] | None = None,
    like: Tensor | None = None,
    real: bool = False,
    boolean: bool = False,
) -> Tensor:
    """Return the value, a tensor. Kernels must support its element type, unless ``boolean``.

    ``axes``, such as ``"(B, T)"``, gives the number of axes, ``shape`` the exact shape,
    ``broadcast`` a shape that it broadcasts to, and ``like`` a tensor on the same device. ``real``
    excludes complex types. ``boolean`` accepts only booleans.
    """
    check_dense(call, name, value, "a tensor of booleans" if boolean else "a tensor")
    x: Tensor = value
    if not boolean:
        arguments.check_dtype(call, name, str(x.dtype).removeprefix("torch."))
    elif x.dtype != torch.bool:
        arguments.refuse(call, name, "a tensor of booleans", x.dtype, TypeError)
    if real and x.is_complex():
        arguments.refuse(call, name, "a real type", x.dtype, TypeError)
    if axes is not None and x.dim() != axes.count(",") + 1 - axes.endswith(",)"):
        arguments.refuse(call, name, f"shape {axes}", tuple(x.shape))
    if shape is not None:
        arguments.check_shape(call, name, x.shape, shape, equal=True)
    if broadcast is not None:
        arguments.check_shape(call, name, x.shape, broadcast)
    if like is not None and x.device != like.device:
        arguments.refuse(call, name, f"a tensor on {like.device}", x.device)
    return x


def shared_or_each(call: str, name: str, value: Any, like: Tensor, shape: Sequence[int]) -> Tensor:
    """Return the tensor if it has this shape, or this shape with the first axis of ``like`` in
    front."""
    x = tensor(call, name, value, like=like)
    wanted = shape if x.dim() == len(shape) else (like.shape[0], *shape)
    return tensor(call, name, x, shape=wanted)


def common_dtype(*tensors: Tensor | None) -> torch.dtype:
    """Return the type that the types of all present tensors promote to."""
    return reduce(torch.promote_types, (t.dtype for t in tensors if t is not None))


def last_axis_scan(
    call: str,
    gate: tuple[str, Any],
    input: tuple[str, Any],
    axes: str | None = None,
    *,
    initial: tuple[str, Any] | None = None,
    reverse: bool = False,
) -> Tensor:
    """Scan two tensors of one shape along their last axis. Each array is a pair (name, value)."""
    x = tensor(call, *input, axes=axes)
    a = tensor(call, *gate, shape=x.shape, like=x)
    first = None if initial is None else tensor(call, *initial, shape=x.shape[:-1], like=x)
    reverse = arguments.flag(call, "reverse", reverse)
    return linear_scan(a, x, first, axis=-1, reverse=reverse)

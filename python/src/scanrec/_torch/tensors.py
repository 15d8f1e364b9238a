# SPDX-License-Identifier: BSD-3-Clause
"""Conversion of arguments to tensors that operators take: checked, of one type and one rank."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .. import _arguments as arguments
from .operators import boundary_dtype
from .types import Maybe

__all__ = [
    *("aligned", "check_dense", "check_tensor", "common_dtype", "boundary_tensor", "reset_mask_of"),
    "number_tensor",
]

Shape = Sequence[int]


def check_dense(call: str, name: str, value: Any, expected: str = "a tensor") -> Tensor:
    """Return a tensor. Raises TypeError for other values, and for tensors without strides."""
    if not isinstance(value, Tensor):
        arguments.refuse(call, name, expected, type(value).__name__, TypeError)
    if value.is_nested:
        instead = "concatenate sequences of several lengths, and separate them by 'resets'"
        arguments.refuse(call, name, f"a dense tensor ({instead})", "a nested tensor", TypeError)
    if value.layout is not torch.strided:
        arguments.refuse(call, name, "a dense tensor", f"layout {value.layout}", TypeError)
    return value


def check_tensor(call: str, name: str, value: Any) -> Tensor:
    """Return the value. Raises an error unless it is a tensor with a time axis."""
    tensor = check_dense(call, name, value)
    if not tensor.dim():
        arguments.refuse(call, name, "a tensor with a time axis", "a number")
    return tensor


def common_dtype(call: str, first: Tensor, values: Mapping[str, Any]) -> torch.dtype:
    """Return the element type of a call with these values, which include `first`.

    It follows PyTorch's promotion, with one exception: boundary (initial and final) states may have
    the type in which kernels compute for the other values. Values on several devices raise
    ValueError.
    """
    dtype = first.dtype
    for name, value in values.items():
        if value is None and name == "initial_state":
            continue
        if not isinstance(value, (bool, int, float, complex)):
            check_dense(call, name, value, "a tensor or a number")
            arguments.check_dtype(call, name, str(value.dtype).removeprefix("torch."))
            if value.device != first.device:
                expected = f"a tensor on {first.device}, like '{next(iter(values))}'"
                arguments.refuse(call, name, expected, value.device)
            if name != "initial_state" or value.dtype != boundary_dtype(dtype):
                dtype = _promoted(dtype, value)
        elif isinstance(value, complex):
            dtype = torch.promote_types(dtype, torch.complex64)
    return dtype


def _promoted(dtype: torch.dtype, value: Tensor) -> torch.dtype:
    """Return PyTorch's promotion, which treats a tensor without axes like a number."""
    if value.dim() > 0:
        return torch.promote_types(dtype, value.dtype)
    return torch.promote_types(dtype, torch.complex64) if value.is_complex() else dtype


def number_tensor(
    call: str, name: str, value: complex, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Return a number as a tensor without axes. It is not copied from the host, since a GPU would
    wait for the copy."""
    arguments.check_number(call, name, value)
    most = torch.finfo(dtype).max
    for part in (value.real, value.imag) if isinstance(value, complex) else (value,):
        if most < abs(part) < math.inf:
            kind = str(dtype).removeprefix("torch.")
            arguments.refuse(call, name, f"a number of {kind}, at most {most:.3g}", value)
    return torch.full((), value, dtype=dtype, device=device)


def aligned(
    call: str, name: str, value: Any, shape: Shape, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Return the value as a tensor of this type, with axes of extent 1 in front up to the rank of
    ``shape``. Raises ValueError unless it broadcasts to ``shape``."""
    if isinstance(value, Tensor):
        x = value.to(dtype)
    else:
        x = number_tensor(call, name, value, dtype, device)
    arguments.check_shape(call, name, x.shape, shape)
    if x.dim() == len(shape):  # no view: it would add a node to the autograd graph
        return x
    return x.reshape((1,) * (len(shape) - x.dim()) + tuple(x.shape))


def boundary_tensor(
    call: str, value: Any, shape: Shape, axis: int, dtype: torch.dtype, device: torch.device
) -> Maybe:
    """Return an initial state with a time axis of extent 1, or None if it is absent."""
    if value is None:
        return None
    boundaries = arguments.boundary_shape(shape, axis)
    return aligned(
        call, "initial_state", value, boundaries, boundary_dtype(dtype), device
    ).unsqueeze(axis)


def reset_mask_of(
    call: str, values: Any, shape: Shape, axis: int, device: torch.device, name: str = "resets"
) -> Maybe:
    """Return a mask of the steps of a call with the rank of ``shape``, or None if it is absent."""
    if values is None:
        return None
    x = check_dense(call, name, values, "a tensor of booleans")
    if x.dtype != torch.bool:
        arguments.refuse(call, name, "a tensor of booleans", x.dtype, TypeError)
    if x.device != device:
        arguments.refuse(call, name, f"a tensor on {device}, like the other arguments", x.device)
    if name == "resets":
        shape = arguments.check_resets(call, tuple(x.shape), shape, axis)
    return aligned(call, name, x, shape, torch.bool, device)

# SPDX-License-Identifier: BSD-3-Clause
"""Arguments of the calls as tensors that operators take: checked, of one type, of one rank."""

from __future__ import annotations

import math
from typing import Any

import torch

from .. import _arguments as arguments
from .operators import edge_dtype

__all__ = [
    *("aligned", "check_dense", "check_tensor", "common_dtype", "edge_tensor", "marks"),
    *("number_tensor", "zoneout_marks"),
]


def check_dense(call: str, name: str, value: Any, expected: str = "a tensor") -> None:
    """Refuses values that are no tensors, and tensors without strides."""
    if not isinstance(value, torch.Tensor):
        arguments.refuse(call, name, expected, type(value).__name__, TypeError)
    if value.is_nested:
        instead = "sequences of several lengths lie one behind the other, with 'resets' between"
        arguments.refuse(call, name, f"a dense tensor ({instead})", "a nested one", TypeError)
    if value.layout is not torch.strided:
        arguments.refuse(call, name, "a dense tensor", f"one of {value.layout}", TypeError)


def check_tensor(call: str, name: str, value: Any) -> torch.Tensor:
    """The value, if it is a tensor with an axis of time."""
    check_dense(call, name, value)
    if not value.dim():
        arguments.refuse(call, name, "a tensor with an axis of time", "a number")
    return value


def common_dtype(call: str, first: torch.Tensor, values: dict[str, Any]) -> torch.dtype:
    """Returns the element type of a call, `first` being among its values. It is PyTorch's
    promotion, except that states at the edge may have the type that the others are computed in.
    Refuses values on several devices."""
    dtype = first.dtype
    for name, value in values.items():
        if value is None and name == "initial_state":
            continue
        if not isinstance(value, (bool, int, float, complex)):
            check_dense(call, name, value, "a tensor or a number")
            arguments.check_dtype(call, name, str(value.dtype).removeprefix("torch."))
            if value.device != first.device:
                arguments.refuse(
                    call,
                    name,
                    f"a tensor on {first.device} as '{next(iter(values))}' is",
                    value.device,
                )
            if name != "initial_state" or value.dtype != edge_dtype(dtype):
                dtype = _promoted(dtype, value)
        elif isinstance(value, complex):
            dtype = torch.promote_types(dtype, torch.complex64)
    return dtype


def _promoted(dtype, value):
    """Returns PyTorch's promotion, in which a tensor without axes counts as a number does."""
    if value.dim() > 0:
        return torch.promote_types(dtype, value.dtype)
    return torch.promote_types(dtype, torch.complex64) if value.is_complex() else dtype


def number_tensor(call: str, name: str, value: complex, dtype, device) -> torch.Tensor:
    """Returns a number as a tensor without axes, without a copy from the host, which a GPU would
    wait for."""
    arguments.check_number(call, name, value)
    most = torch.finfo(dtype).max
    for part in (value.real, value.imag) if isinstance(value, complex) else (value,):
        if most < abs(part) < math.inf:
            kind = str(dtype).removeprefix("torch.")
            arguments.refuse(call, name, f"a number of {kind}, at most {most:.3g}", value)
    return torch.full((), value, dtype=dtype, device=device)


def aligned(call: str, name: str, value: Any, shape, dtype, device) -> torch.Tensor:
    """The value with as many axes as the shape that it broadcasts to."""
    if not isinstance(value, torch.Tensor):
        value = number_tensor(call, name, value, dtype, device)
    elif value.dtype != dtype:
        value = value.to(dtype)
    arguments.check_shape(call, name, value.shape, shape)
    if value.dim() == len(shape):  # without a view that autograd would record
        return value
    return value.reshape((1,) * (len(shape) - value.dim()) + tuple(value.shape))


def edge_tensor(call: str, value: Any, shape, axis: int, dtype, device) -> torch.Tensor | None:
    """A state before the first step, with an axis of time of extent 1."""
    if value is None:
        return None
    edges = arguments.edge_shape(shape, axis)
    value = aligned(call, "initial_state", value, edges, edge_dtype(dtype), device)
    return value.unsqueeze(axis)


def _booleans(call, name, value, device):
    check_dense(call, name, value, "a tensor of booleans")
    if value.dtype != torch.bool:
        arguments.refuse(call, name, "a tensor of booleans", value.dtype, TypeError)
    if value.device != device:
        arguments.refuse(call, name, f"a tensor on {device} as the others are", value.device)
    return value


def marks(call: str, resets: Any, shape, axis: int, device) -> torch.Tensor | None:
    """Where sequences start."""
    if resets is None:
        return None
    shape = arguments.check_resets(
        call, tuple(_booleans(call, "resets", resets, device).shape), shape, axis
    )
    return aligned(call, "resets", resets, shape, torch.bool, device)


def zoneout_marks(call: str, zoneout: Any, shape, device) -> torch.Tensor | None:
    """Where states stay as they were."""
    if zoneout is None:
        return None
    return aligned(
        call, "zoneout", _booleans(call, "zoneout", zoneout, device), shape, torch.bool, device
    )

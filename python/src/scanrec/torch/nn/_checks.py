# SPDX-License-Identifier: BSD-3-Clause
"""Checks of the inputs and states of layers."""

from __future__ import annotations

import torch
from torch import Tensor

from ... import _arguments as arguments
from ..._torch.tensors import check_dense

__all__ = ["batch_sizes", "check_dtype", "check_input", "is_autocast", "state_leaves"]

_NARROW = (torch.float32, torch.float16, torch.bfloat16)
_WEIGHTS = (torch.float64, *_NARROW)


def is_autocast(device: torch.device) -> bool:
    """Whether autocast is enabled on a device, so that products are in 16 bits."""
    return device.type != "meta" and torch.is_autocast_enabled(device.type)


def check_dtype(call: str, dtype: object) -> None:
    """Raise TypeError for an element type that parameters cannot have."""
    if dtype is not None and dtype not in _WEIGHTS:
        arguments.refuse(call, "dtype", f"one of {_said(_WEIGHTS)}", dtype, TypeError)


def _said(dtypes):
    return ", ".join(str(x).removeprefix("torch.") for x in dtypes)


def check_input(
    call: str, x: object, axes: str, ranks: tuple[int, ...], size: int, weight: Tensor
) -> None:
    """Check the axes of an input, the size of the last one, and the device and type."""
    name = "input"
    check_dense(call, name, x)
    if x.dim() not in ranks or x.shape[-1] != size:
        arguments.refuse(call, name, f"{axes} of I = {size}", f"shape {tuple(x.shape)}")
    if x.device != weight.device:
        expected = f"a tensor on {weight.device} as the weights are"
        arguments.refuse(call, name, expected, x.device)
    if weight.dtype not in _WEIGHTS:
        arguments.refuse(
            call, name, f"weights of one of {_said(_WEIGHTS)}", weight.dtype, TypeError
        )
    if is_autocast(x.device) and x.dtype in _NARROW and weight.dtype in _NARROW:
        return
    if x.dtype != weight.dtype:
        arguments.refuse(call, name, f"{weight.dtype}, as the weights are", x.dtype, TypeError)


def batch_sizes(call: str, sizes: Tensor, rows: int) -> list[int]:
    """The number of sequences at each step of a PackedSequence with this number of rows."""
    found = sizes.tolist() if sizes.dim() == 1 and sizes.dtype == torch.int64 else []
    falls = bool(found) and found[-1] > 0 and found == sorted(found, reverse=True)
    if not falls or sum(found) != rows:
        expected = "a PackedSequence whose batch_sizes, of int64, never rise, are 1 or more, and "
        expected += f"add up to its {rows} rows"
        got = f"{found}" if 0 < len(found) < 10 else f"shape {tuple(sizes.shape)}, {sizes.dtype}"
        arguments.refuse(call, "input", expected, got)
    return found


def state_leaves(
    call: str,
    state: object,
    shapes: dict[str, tuple[int, ...]],
    dtype: torch.dtype,
    device: torch.device,
) -> list[Tensor]:
    """The tensors of a state, converted to a type, if they have these shapes."""
    several = len(shapes) > 1
    given = state if several else (state,)
    if not isinstance(given, tuple) or len(given) != len(shapes):
        expected = f"a tuple of {', '.join(shapes)}"
        got = f"{len(given)} of them" if isinstance(given, tuple) else type(given).__name__
        arguments.refuse(call, "state", expected, got, TypeError)
    for (name, shape), x in zip(shapes.items(), given):
        name = f"state.{name}" if several else "state"
        check_dense(call, name, x)
        arguments.check_shape(call, name, x.shape, shape, equal=True)
        if x.is_complex() != dtype.is_complex or not (x.is_complex() or x.is_floating_point()):
            kind = "a complex type" if dtype.is_complex else "a real floating type"
            arguments.refuse(call, name, kind, x.dtype, TypeError)
        if x.device != device:
            expected = f"a tensor on {device} as 'input' is"
            arguments.refuse(call, name, expected, x.device)
    return [x.to(dtype) for x in given]

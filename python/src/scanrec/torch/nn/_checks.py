# SPDX-License-Identifier: BSD-3-Clause
"""Checks of options, inputs and states of layers, by name."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ... import _arguments as arguments
from .._tensors import check_dense

__all__ = [
    *("batch_sizes", "check_dtype", "check_input", "choice", "is_autocast", "number"),
    "state_leaves",
]

_NARROW = (torch.float32, torch.float16, torch.bfloat16)
_WEIGHTS = (torch.float64, *_NARROW)


def is_autocast(device: torch.device) -> bool:
    """Whether products on a device are in 16 bits."""
    return device.type != "meta" and torch.is_autocast_enabled(device.type)


def number(call: str, name: str, value: object, least: float, most: float) -> float:
    """A number within bounds."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        arguments.refuse(call, name, "a number", repr(value), TypeError)
    if not least <= value <= most:
        arguments.refuse(call, name, f"a number from {least} to {most}", value)
    return float(value)


def choice(call: str, name: str, value: Any, known: tuple) -> Any:
    """One of a few."""
    if isinstance(value, bool) or value not in known:
        arguments.refuse(call, name, "one of " + ", ".join(map(repr, known)), repr(value))
    return value


def check_dtype(call: str, dtype: object) -> None:
    """Refuses types that weights are not of."""
    if dtype is not None and dtype not in _WEIGHTS:
        arguments.refuse(call, "dtype", f"one of {_said(_WEIGHTS)}", dtype, TypeError)


def _said(dtypes):
    return ", ".join(str(x).removeprefix("torch.") for x in dtypes)


def check_input(
    call: str, x: object, axes: str, ranks: tuple[int, ...], size: int, weight: Tensor
) -> None:
    """Refuses an input of other axes than these, the last of this size, and one that is not of the
    weight's kind."""
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
    """How many sequences have each step, of a PackedSequence with so many rows."""
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
    several: bool,
    shapes: dict[str, tuple[int, ...]],
    dtype: torch.dtype,
    device: torch.device,
) -> list[Tensor]:
    """The tensors of a state, of these shapes by their names, in this type."""
    given = state if several else (state,)
    if not isinstance(given, tuple) or len(given) != len(shapes):
        expected = f"a tuple of {', '.join(shapes)}"
        got = f"{len(given)} of them" if isinstance(given, tuple) else type(given).__name__
        arguments.refuse(call, "state", expected, got, TypeError)
    for (name, shape), x in zip(shapes.items(), given):
        name = f"state.{name}" if several else name
        check_dense(call, name, x)
        arguments.check_shape(call, name, x.shape, shape, equal=True)
        if x.is_complex() != dtype.is_complex or not (x.is_complex() or x.is_floating_point()):
            kind = "a complex type" if dtype.is_complex else "a real floating type"
            arguments.refuse(call, name, kind, x.dtype, TypeError)
        if x.device != device:
            expected = f"a tensor on {device} as 'input' is"
            arguments.refuse(call, name, expected, x.device)
    return [x.to(dtype) for x in given]

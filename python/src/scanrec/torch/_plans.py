# SPDX-License-Identifier: BSD-3-Clause
"""Small eager scans, again and again: past the checks, and past PyTorch's dispatcher.

Of a small scan most of the time would go into finding out what tensors are, and into the way
through the dispatcher to a kernel in Python. All checks are of types, shapes, strides and options,
so what they come to is kept under these, as for NumPy: a plan, which is never changed, and holds no
tensors. Plans are for calls that the dispatcher would add nothing to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from .. import _native
from .._arguments import contiguous, edge_shape
from .._native import OPERANDS
from ._modes import is_plain
from ._ops import array_of, edge_dtype, edge_of, problem_of

__all__ = ["find", "key_of", "make"]


class _Plan(NamedTuple):
    """What is left of a call that has been checked."""

    prepared: _native.Prepared
    final: tuple[tuple[int, ...], torch.dtype] | None  #: of the final state, if it is returned

    def run(self, values: Sequence[torch.Tensor | None]) -> Any:
        """The results of the call on these values, or these aligned, laid out as the plan says."""
        input = values[1]
        state = torch.empty_like(input, memory_format=torch.contiguous_format)
        addresses = [x.data_ptr() for x in values if x is not None]
        addresses.append(state.data_ptr())
        if self.final is None:
            self.prepared.run(addresses)
            return state
        shape, dtype = self.final
        final = input.new_empty(shape, dtype=dtype)
        addresses.append(final.data_ptr())
        self.prepared.run(addresses)
        return state, final


_plans: dict[tuple, _Plan] = {}
_MOST_PLANS = 256


def key_of(values: Sequence[Any], axis: Any, reverse: bool, return_final: bool) -> tuple | None:
    """What the plan of a call on these operands is kept under; None for calls that have none: those
    with numbers, and those that are compiled, differentiated, batched, traced or watched."""
    if torch.compiler.is_compiling() or type(axis) is not int:
        return None
    for x in values:
        if x is not None and not isinstance(x, torch.Tensor):
            return None
    if not is_plain(*values):
        return None
    layouts = [None if x is None else (x.dtype, x.shape, x.stride()) for x in values]
    return axis, reverse, return_final, torch.get_num_threads(), *layouts


def find(key: tuple) -> _Plan | None:
    """The plan of a call that was checked before."""
    return _plans.get(key)


def make(
    key: tuple,
    values: Sequence[torch.Tensor | None],
    aligned: Sequence[torch.Tensor | None],
    axis: int,
    reverse: bool,
    return_final: bool,
) -> _Plan:
    """The plan of a call on operands that were checked, and aligned to the rank of the input. It is
    kept if these are read where they are."""
    input, resets = aligned[1], aligned[3]
    shape, edge = input.shape, edge_of(input.shape, axis)
    strides = {
        name: array_of(x).strides
        for name, x in zip(OPERANDS["linear_scan"], aligned)
        if x is not None
    }
    strides["state"] = contiguous(shape)
    if return_final:
        strides["final_state"] = contiguous(edge)
    prepared = _native.Prepared(
        "linear_scan",
        strides,
        threads=torch.get_num_threads(),
        **problem_of(input, resets, shape, axis, reverse),
    )
    final = (edge_shape(shape, axis), edge_dtype(input.dtype)) if return_final else None
    plan = _Plan(prepared, final)
    if all(x is None or x.dtype == y.dtype for x, y in zip(values, aligned)):
        if len(_plans) >= _MOST_PLANS:
            _plans.clear()
        _plans[key] = plan
    return plan

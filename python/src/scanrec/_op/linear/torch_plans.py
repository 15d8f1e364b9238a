# SPDX-License-Identifier: BSD-3-Clause
"""Plans of small eager scans, which run without checks and without PyTorch's dispatcher.

Checks, and the way through the dispatcher to a kernel in Python, would take most of the time of a
small scan. Checks depend on types, shapes, strides and options alone, so a plan is kept under
these, as for NumPy. A plan never changes and holds no tensors. Only calls to which the dispatcher
would add nothing have plans.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ... import _native
from ..._arguments import contiguous, edge_shape
from ..._torch.modes import is_plain
from ..._torch.operators import edge_dtype, edge_of, scan_problem, strides_of
from ..._torch.types import Maybe
from .spec import LINEAR

__all__ = ["find", "key_of", "make"]

Key = tuple[Any, ...]


class _Plan(NamedTuple):
    """A checked call without its tensors."""

    prepared: _native.Prepared
    final: tuple[tuple[int, ...], torch.dtype] | None  #: of the final state, if it is returned

    def run(self, values: Sequence[Any]) -> Tensor | tuple[Tensor, Tensor]:
        """Returns the results of the call on values of the plan's layout, aligned or not."""
        input: Tensor = values[1]
        state = torch.empty_like(input, memory_format=torch.contiguous_format)
        addresses = [x.data_ptr() for x in values if x is not None]
        addresses.append(state.data_ptr())
        final = None
        if self.final is not None:
            shape, dtype = self.final
            final = input.new_empty(shape, dtype=dtype)
            addresses.append(final.data_ptr())
        self.prepared.run(addresses)
        return state if final is None else (state, final)


_plans: dict[Key, _Plan] = {}
_MOST_PLANS = 256

find = _plans.get  #: Returns the plan of a call that was checked before, if there is one.


def key_of(values: Sequence[Any], axis: Any, reverse: bool, return_final: bool) -> Key | None:
    """Returns the key of the plan of a call on these operands. None if it has no plan: with numbers
    among them, and where the call is compiled, differentiated, batched, traced or watched."""
    if torch.compiler.is_compiling() or type(axis) is not int:
        return None
    for x in values:
        if x is not None and not isinstance(x, torch.Tensor):
            return None
    if not is_plain(*values):
        return None
    layouts = [None if x is None else (x.dtype, x.shape, x.stride()) for x in values]
    return axis, reverse, return_final, torch.get_num_threads(), *layouts


def make(
    key: Key,
    values: Sequence[Any],
    aligned: tuple[Tensor, Tensor, Maybe, Maybe],
    axis: int,
    reverse: bool,
    return_final: bool,
) -> _Plan:
    """Makes the plan of a call, given its operands and the same checked and aligned to the rank of
    the input. The plan is kept if the operands are read in place."""
    _, input, _, resets = aligned
    shape, edge = input.shape, edge_of(input.shape, axis)
    strides = {name: strides_of(x) for name, x in zip(LINEAR.operands, aligned) if x is not None}
    strides["state"] = contiguous(shape)
    if return_final:
        strides["final_state"] = contiguous(edge)
    prepared = _native.Prepared(
        "linear_scan",
        strides,
        threads=torch.get_num_threads(),
        **scan_problem(input, resets, shape, axis, reverse),
    )
    final = (edge_shape(shape, axis), edge_dtype(input.dtype)) if return_final else None
    plan = _Plan(prepared, final)
    if all(x is None or y is None or x.dtype == y.dtype for x, y in zip(values, aligned)):
        if len(_plans) >= _MOST_PLANS:
            _plans.clear()
        _plans[key] = plan
    return plan

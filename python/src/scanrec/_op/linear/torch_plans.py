# SPDX-License-Identifier: BSD-3-Clause
"""Plans of eager scans. A call with a plan runs without checks and without PyTorch's dispatcher.

Dispatch to a kernel in Python would take most of the time of a small scan. A call has a plan only
if the dispatcher would do nothing but run the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ... import _native
from ..._arguments import boundary_shape
from ..._torch.operators import Arrays, boundary_dtype, plain_layouts, planned
from ..._torch.types import Maybe
from ..plans import Plans
from .spec import LINEAR
from .torch_rules import Problem, describe

__all__ = ["find", "key_of", "make"]

Key = tuple[Any, ...]


class _Plan(NamedTuple):
    """A checked call without its tensors."""

    prepared: _native.Prepared
    final: tuple[tuple[int, ...], torch.dtype] | None  #: shape and type of the final state

    def run(self, values: Sequence[Any]) -> Tensor | tuple[Tensor, Tensor]:
        """Run the call on values with the layouts of the plan, and return the results. Values other
        than the input may lack axes of extent 1 that the call adds: only their addresses matter."""
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


_plans: Plans[_Plan] = Plans()

find = _plans.get  #: Returns the plan of a call that was checked before, or None.


def key_of(values: Sequence[Any], axis: Any, reverse: bool, return_final: bool) -> Key | None:
    """Return the key of the plan of a call on these operands, or None if the call cannot have a
    plan. It cannot if an operand is neither a dense tensor on a CPU nor absent, or if the call is
    compiled, differentiated, batched, traced or profiled."""
    layouts = plain_layouts(values) if type(axis) is int else None
    return layouts and (axis, reverse, return_final, *layouts)


def make(
    key: Key,
    values: Sequence[Any],
    aligned: tuple[Tensor, Tensor, Maybe, Maybe],
    axis: int,
    reverse: bool,
    return_final: bool,
) -> _Plan:
    """Make the plan of a call. ``values`` are its operands, and ``aligned`` are these operands in
    the rank and types of the call. The plan is kept if no type was converted."""
    input = aligned[1]
    problem = Problem(tuple(input.shape), axis, reverse)
    arrays: Arrays = dict(zip(LINEAR.operands, aligned))
    arrays["state"], final = input.new_empty(problem.shape), None
    if return_final:
        final = boundary_shape(problem.shape, axis), boundary_dtype(input.dtype)
        arrays["final_state"] = input.new_empty(problem.boundary)
    described = describe(arrays, problem)
    plan = _Plan(planned(LINEAR.value, torch.get_num_threads(), described).prepared, final)
    if all(x is None or y is None or x.dtype == y.dtype for x, y in zip(values, aligned)):
        _plans.keep(key, plan)
    return plan

# SPDX-License-Identifier: BSD-3-Clause
"""The scan of aligned tensors, in the way that the transformation at hand gets right."""

from __future__ import annotations

import torch
from torch.autograd import forward_ad

from ._functions import Problem, Scan, tangent_of
from ._modes import is_recorded, levels
from ._ops import differentiate, run_below, scan_op

__all__ = ["scan"]


@torch.compiler.allow_in_graph
def scan(gate, input, initial_state, resets, axis, reverse):
    """The scan under any transformation. PyTorch's own rule for functions in forward mode gives
    zeros when compiled, and wrong values when nested (pytorch#192985, #197867): the innermost level
    of forward mode is taken apart here."""
    problem = Problem(tuple(input.shape), axis, reverse)
    if torch.jit.is_tracing():  # which records operators alone, with shapes that are fixed
        shape = tuple(map(int, input.shape))
        return scan_op(gate, input, initial_state, resets, shape, axis, reverse)
    if not is_recorded(gate, input, initial_state):
        return run_below(scan_op, gate, input, initial_state, resets, *problem)
    return _recorded(gate, input, initial_state, resets, problem)


def _recorded(gate, input, initial_state, resets, problem):
    if not _forward_mode_innermost():
        return Scan.apply(gate, input, initial_state, resets, problem)
    split = [
        (None, None) if x is None else forward_ad.unpack_dual(x)
        for x in (gate, input, initial_state)
    ]
    (gate, input, initial_state), moved = zip(*split)
    values = Scan.apply(gate, input, initial_state, resets, problem)
    if all(tangent is None for tangent in moved):
        return values
    tangents = tangent_of(gate, values[0], initial_state, resets, *moved, problem)
    return tuple(forward_ad.make_dual(v, t) for v, t in zip(values, tangents))


def _scan_kernel(gate, input, initial_state, resets, shape, axis, reverse):
    return _recorded(gate, input, initial_state, resets, Problem(tuple(shape), axis, reverse))


differentiate(scan_op, _scan_kernel)


def _forward_mode_innermost() -> bool:
    """Whether the innermost level of torch.func is one of forward mode. Raises where PyTorch's rule
    would meet two such levels at once, whose values are wrong."""
    kinds = levels()  # the innermost last
    forward, reverse = "Jvp", "Grad"
    at = [i for i, kind in enumerate(kinds) if kind == forward]
    if len(at) > 2 or (len(at) == 2 and reverse in kinds[at[1] :]):
        raise NotImplementedError(
            "linear_scan: PyTorch gets three levels of forward mode wrong, and two over reverse "
            "mode; use reverse mode for one of them"
        )
    return bool(kinds) and kinds[-1] == forward

# SPDX-License-Identifier: BSD-3-Clause
"""The call: arguments checked and aligned, then the function, in the way that the transformation at
hand gets right."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch.autograd import forward_ad

from .. import _arguments as arguments
from . import _plans as plans
from ._functions import Problem, Scan, tangent_of
from ._modes import is_distributed, is_recorded, levels
from ._ops import scan_op
from ._tensors import aligned, check_tensor, common_dtype, edge_tensor, marks

__all__ = ["linear_scan", "scan"]


def linear_scan(
    gate: Any,
    input: torch.Tensor,
    initial_state: Any = None,
    *,
    axis: int = -2,
    reverse: bool = False,
    resets: torch.Tensor | None = None,
    return_final: bool = False,
    group: Any = None,
    ranges: Any = None,
) -> Any:
    """``state[t] = gate[t] * state[t-1] + input[t]`` along an axis, differentiable in ``gate``,
    ``input`` and ``initial_state``.

    Parameters
    ----------
    gate:
        A number, or a tensor of any shape that broadcasts to that of ``input``: ``(C,)`` for a
        constant, ``(B, T, 1)`` for one that channels share. Neither it nor its gradient is
        materialised.
    input:
        ``(..., T, C)`` by default, with any strides. Its shape is the result's. float16, bfloat16,
        float32, float64, complex64, complex128; tensors of several types are promoted as PyTorch
        does.
    initial_state:
        The state before the first step: any shape that broadcasts to that of ``input`` without
        the axis of time. None is 0.
    axis:
        The axis of time in ``input``.
    reverse:
        ``state[t] = gate[t] * state[t+1] + input[t]``; ``initial_state`` is then the one after the
        last step. Nothing is flipped.
    resets:
        Booleans that broadcast to ``input``, though not along time. Where one is set a sequence
        starts: the link between steps t-1 and t is cut, in either direction. There may be one step
        more of them, whose mark is behind the last step: it cuts a reverse scan from
        ``initial_state``. A chunk of a stream takes the marks of its steps and the next one.
    return_final:
        Returns ``(state, final_state)``. The final state has the shape of ``input`` without the
        axis of time, and is float32 for 16-bit types.
    group:
        The processes that time is split over, a ``ProcessGroup`` or a mesh of one dimension of
        ``torch.distributed``: each calls with its part, of any length, in the order of ranks.
        ``initial_state`` is that of the whole sequence, and counts where that begins; one that
        requires a gradient is given everywhere. The final state is that of the whole sequence,
        everywhere. ``resets`` are those of the part; a reverse scan finds the mark behind it on the
        next rank. A map of two float64 or complex128 numbers per sequence and process travels, and
        half of that for a gradient, in which, as in the call, all processes take part. A gradient
        that is a sum over time is the sum over the part. Under ``torch.compile`` a graph break.
        Of DTensors the placements say how time is split: see below.
    ranges:
        The steps that every process of ``group`` has, where these are not one part each in the
        order of ranks: for every rank the ranges (begin, end) of the whole sequence that lie side
        by side in its tensors. Chunks of n steps in the zig-zag order of ring attention are
        ``[[(r * n, (r + 1) * n), ((2 * P - 1 - r) * n, (2 * P - r) * n)] for r in range(P)]``. Every
        range has a map of its own, and ``resets`` have the steps of ``input``.

    Returns
    -------
    The states, contiguous. 16-bit types are computed in float32 and rounded when stored.

    Raises
    ------
    ValueError, TypeError:
        Names the argument, what was expected and what came.
    NotImplementedError:
        For what PyTorch would get silently wrong: three levels of forward mode, or two over reverse
        mode; over a group for ``torch.func`` and forward mode.
    RuntimeError:
        Another process of the group cannot take part in the call, or calls with other shapes, types
        or options; it says which.

    Notes
    -----
    Eager, backward, double backward, forward mode, ``torch.func``, ``torch.compile``, ``export``.
    Gradients of complex tensors are PyTorch's, conjugated. Threads are ``torch.get_num_threads()``.

    Of DTensors the input's placements are the result's, and those of the others follow from them:
    any axis may be split, that of time over one dimension of the mesh, without a ``group``. A
    number may be among them, no other tensor. Gradients are DTensors, too.
    """
    reverse = arguments.flag("linear_scan", "reverse", reverse)
    return_final = arguments.flag("linear_scan", "return_final", return_final)
    if group is not None:
        from ._split_time import scan_parts

        checked = partial(_aligned, gate, input, initial_state, axis, resets)
        return scan_parts(checked, group, ranges, return_final, reverse)
    if ranges is not None:
        arguments.refuse("linear_scan", "ranges", "None without a 'group'", type(ranges).__name__)
    values = (gate, input, initial_state, resets)
    key = plans.key_of(values, axis, reverse, return_final)
    if key is not None and (plan := plans.find(key)) is not None:
        return plan.run(values)
    if key is None and any(is_distributed(x) for x in values):
        from ._dtensors import scan_dtensors

        return scan_dtensors(linear_scan, values, axis, reverse, return_final)
    tensors, axis = _aligned(gate, input, initial_state, axis, resets)
    if key is not None:
        return plans.make(key, values, tensors, axis, reverse, return_final).run(tensors)
    state, final = scan(*tensors, axis, reverse)
    return (state, final.squeeze(axis)) if return_final else state


def _aligned(gate, input, initial_state, axis, resets):
    """Tensors of one type, with the rank of the input, and the axis counted from the front."""
    call = "linear_scan"
    shape, device = tuple(check_tensor(call, "input", input).shape), input.device
    values = {"input": input, "gate": gate, "initial_state": initial_state}
    dtype = common_dtype(call, input, values)
    axis = arguments.time_axis(call, axis, shape)
    tensors = (
        aligned(call, "gate", gate, shape, dtype, device),
        input.to(dtype),
        edge_tensor(call, initial_state, shape, axis, dtype, device),
        marks(call, resets, shape, axis, device),
    )
    return tensors, axis


@torch.compiler.allow_in_graph
def scan(gate, input, initial_state, resets, axis, reverse):
    """The scan under any transformation. PyTorch's own rule for functions in forward mode gives
    zeros when compiled, and wrong values when nested (pytorch#192985, #197867): the innermost level
    of forward mode is taken apart here."""
    problem = Problem(tuple(input.shape), axis, reverse)
    if not is_recorded(gate, input, initial_state):
        return scan_op(gate, input, initial_state, resets, *problem)
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

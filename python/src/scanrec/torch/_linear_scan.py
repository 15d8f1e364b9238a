# SPDX-License-Identifier: BSD-3-Clause
"""The call: arguments checked and aligned, then the function."""

from __future__ import annotations

from functools import partial
from typing import Literal, SupportsIndex, overload

from torch import Tensor

from .. import _arguments as arguments
from .. import _native as native
from . import _plans as plans
from ._gated_functions import GatedProblem, gated_scan
from ._modes import is_distributed
from ._scan import scan
from ._tensors import aligned, check_tensor, common_dtype, edge_tensor, marks
from ._types import Group, Ranges

__all__ = ["linear_scan"]


@overload
def linear_scan(
    gate: Tensor | complex, input: Tensor, initial_state: Tensor | complex | None = None, *,
    axis: SupportsIndex = -2, reverse: bool = False, resets: Tensor | None = None,
    log_gate: bool = False, log_input: bool = False, return_final: Literal[False] = False,
    group: Group | None = None, ranges: Ranges | None = None,
) -> Tensor: ...  # fmt: skip
@overload
def linear_scan(
    gate: Tensor | complex, input: Tensor, initial_state: Tensor | complex | None = None, *,
    axis: SupportsIndex = -2, reverse: bool = False, resets: Tensor | None = None,
    log_gate: bool = False, log_input: bool = False, return_final: Literal[True],
    group: Group | None = None, ranges: Ranges | None = None,
) -> tuple[Tensor, Tensor]: ...  # fmt: skip
@overload
def linear_scan(
    gate: Tensor | complex, input: Tensor, initial_state: Tensor | complex | None = None, *,
    axis: SupportsIndex = -2, reverse: bool = False, resets: Tensor | None = None,
    log_gate: bool = False, log_input: bool = False, return_final: bool = False,
    group: Group | None = None, ranges: Ranges | None = None,
) -> Tensor | tuple[Tensor, Tensor]: ...  # fmt: skip
def linear_scan(
    gate: Tensor | complex,
    input: Tensor,
    initial_state: Tensor | complex | None = None,
    *,
    axis: SupportsIndex = -2,
    reverse: bool = False,
    resets: Tensor | None = None,
    log_gate: bool = False,
    log_input: bool = False,
    return_final: bool = False,
    group: Group | None = None,
    ranges: Ranges | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
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
    log_gate, log_input:
        ``gate``, or ``input``, holds logarithms: ``exp(gate[t]) * state[t-1] + exp(input[t])``.
        They are exponentiated while they are read, and gradients are those of the logarithms: what
        else would be two more arrays written, kept and read. -inf is 0. Real types.
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
        ``[[(r * n, (r + 1) * n), ((2 * P - 1 - r) * n, (2 * P - r) * n)] for r in range(P)]``.
        Every range has a map of its own, and ``resets`` have the steps of ``input``.

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
    call = "linear_scan"
    reverse = arguments.flag(call, "reverse", reverse)
    return_final = arguments.flag(call, "return_final", return_final)
    log_gate = arguments.flag(call, "log_gate", log_gate)
    log_input = arguments.flag(call, "log_input", log_input)
    if log_gate or log_input:
        if group is not None or any(
            is_distributed(x) for x in (gate, input, initial_state, resets)
        ):
            arguments.refuse(
                call, "log_gate" if log_gate else "log_input",
                "False where time or tensors are split over processes: exp() of the tensor instead",
                True,
            )  # fmt: skip
        return _scan_logarithms(
            gate, input, initial_state, axis, reverse, resets, log_gate, log_input, return_final
        )
    if group is not None:
        from ._split_time import scan_parts

        checked = partial(_aligned, gate, input, initial_state, axis, resets)
        return scan_parts(checked, group, ranges, return_final, reverse)
    if ranges is not None:
        arguments.refuse(call, "ranges", "None without a 'group'", type(ranges).__name__)
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


def _scan_logarithms(
    gate, input, initial_state, axis, reverse, resets, log_gate, log_input, return_final
):
    tensors, axis = _aligned(gate, input, initial_state, axis, resets)
    gate, input, initial, resets = tensors
    dtype = str(input.dtype).removeprefix("torch.")
    arguments.check_real("linear_scan", "gate" if log_gate else "input", dtype)
    cell = native.LOG_GATE * log_gate + native.LOG_INPUT * log_input
    problem = GatedProblem(tuple(input.shape), axis, reverse, cell=cell)
    state, final = gated_scan(problem, initial, resets, None, input, gate)
    return (state, final.squeeze(axis)) if return_final else state

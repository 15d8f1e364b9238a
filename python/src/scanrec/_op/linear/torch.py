# SPDX-License-Identifier: BSD-3-Clause
"""``linear_scan`` in PyTorch."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, SupportsIndex, overload

from torch import Tensor

from ... import _arguments as arguments
from ..._torch.modes import is_distributed
from ..._torch.tensors import aligned, boundary_tensor, check_tensor, common_dtype, reset_mask_of
from ..._torch.types import Group, Maybe, Ranges
from ..doc import documented
from ..spec import SEQUENCE_DOC
from . import torch_plans as plans
from .spec import LINEAR_SCAN_DOC, LOG_GATE, LOG_INPUT
from .torch_logarithms import scan_logarithms
from .torch_rules import Problem, scan

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
@documented(SEQUENCE_DOC, LINEAR_SCAN_DOC)
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
    """Differentiable in ``gate``, ``input`` and ``initial_state``.

    Parameters
    ----------
    group:
        The processes that time is split over: a ``ProcessGroup`` or a ``DeviceMesh`` of one
        dimension. Each process passes its part of the sequence. Parts may have any length and
        follow the order of ranks, unless ``ranges`` says otherwise.

        - ``initial_state`` belongs to the whole sequence. The process where the scan starts uses
          it. If it requires a gradient, all processes must pass a tensor that does.
        - The final state belongs to the whole sequence, and all processes get it.
        - ``resets`` belong to the part. A reverse scan also needs the reset of the first step after
          the part. It comes from the next rank, unless ``resets`` has that further step.
        - A gradient that is a sum over time covers only the steps of the part.
        - All processes take part in the call and in its gradient. They exchange two float64 or
          complex128 numbers per sequence and process for the call, or three with ``resets``, and
          one for the gradient.
        - ``torch.compile`` breaks the graph at the call.
        - ``log_gate`` and ``log_input`` are not supported.
    ranges:
        The steps of each process. By default each has one part, in the order of ranks.
        ``ranges[r]`` lists the ranges (begin, end) of the whole sequence that are side by side in
        the tensors of rank r. The zig-zag order of ring attention, for P processes and chunks of n
        steps, is
        ``[[(r * n, (r + 1) * n), ((2 * P - 1 - r) * n, (2 * P - r) * n)] for r in range(P)]``. With
        ``ranges``, the processes exchange the numbers above for each range. ``resets`` then has
        exactly the steps of this process, without the further step that is allowed otherwise.

    Raises
    ------
    NotImplementedError:
        The call is under three nested levels of forward mode, or under two levels of forward mode
        over reverse mode. PyTorch would silently compute wrong values for these. With ``group``,
        forward mode and ``torch.func`` are not supported.
    RuntimeError:
        Another process of ``group`` raised an error instead of taking part in the call; the message
        gives its rank. Or shapes, types, options or ``requires_grad`` differ between the processes.

    Notes
    -----
    Supported: eager mode, backward, double backward, forward mode, ``torch.func``,
    ``torch.compile`` and ``torch.export``. Tensors of any strides are read in place, and results
    are contiguous. Gradients of complex tensors are conjugated, as PyTorch defines them.
    On CPUs, ``torch.get_num_threads()`` threads run the scan.

    DTensors: the result has the placements of ``input``, with Replicate in place of Partial. The
    placements of the other arguments follow from them. Any axis may be split, but time over one
    dimension of the mesh at most. ``group`` is not needed for this. The other arguments are
    DTensors or numbers, not other tensors. Gradients are DTensors. ``log_gate`` and ``log_input``
    are not supported.
    """
    call = "linear_scan"
    reverse = arguments.flag(call, "reverse", reverse)
    return_final = arguments.flag(call, "return_final", return_final)
    log_gate = arguments.flag(call, "log_gate", log_gate)
    log_input = arguments.flag(call, "log_input", log_input)
    values = (gate, input, initial_state, resets)
    logarithms = LOG_GATE * log_gate + LOG_INPUT * log_input
    if logarithms and (group is not None or any(map(is_distributed, values))):
        name = "log_gate" if log_gate else "log_input"
        expected = "False with 'group' or DTensors (pass exp() of the tensor)"
        arguments.refuse(call, name, expected, True)
    if group is not None:
        from .torch_split_time import scan_parts

        checked = partial(_aligned, *values, axis)
        return scan_parts(checked, group, ranges, return_final, reverse)
    if ranges is not None:
        arguments.refuse(call, "ranges", "None without 'group'", type(ranges).__name__)
    key = None if logarithms else plans.key_of(values, axis, reverse, return_final)
    if key is not None and (plan := plans.find(key)) is not None:
        return plan.run(values)
    if key is None and any(map(is_distributed, values)):
        from .torch_dtensors import scan_dtensors

        return scan_dtensors(linear_scan, values, axis, reverse, return_final)
    tensors, at = _aligned(*values, axis)
    if key is not None:
        return plans.make(key, values, tensors, at, reverse, return_final).run(tensors)
    if logarithms:
        dtype = str(tensors[1].dtype).removeprefix("torch.")
        arguments.check_real(call, "gate" if log_gate else "input", dtype)
        problem = Problem(tuple(tensors[1].shape), at, reverse, logarithms)
        state, final = scan_logarithms(problem, *tensors)
    else:
        state, final = scan(*tensors, at, reverse)
    return (state, final.squeeze(at)) if return_final else state


def _aligned(
    gate: Any, input: Any, initial_state: Any, resets: Any, axis: SupportsIndex
) -> tuple[tuple[Tensor, Tensor, Maybe, Maybe], int]:
    """Return the tensors in the rank of the input and the types of the call, and the time axis
    counted from the front."""
    call = "linear_scan"
    shape, device = tuple(check_tensor(call, "input", input).shape), input.device
    values = {"input": input, "gate": gate, "initial_state": initial_state}
    dtype = common_dtype(call, input, values)
    at = arguments.time_axis(call, axis, shape)
    tensors = (
        aligned(call, "gate", gate, shape, dtype, device),
        input.to(dtype),
        boundary_tensor(call, initial_state, shape, at, dtype, device),
        reset_mask_of(call, resets, shape, at, device),
    )
    return tensors, at

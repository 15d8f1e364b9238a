# SPDX-License-Identifier: BSD-3-Clause
"""QRNN pooling in PyTorch: its two operators, and what their derivatives are composed of.

Pre-activations are tensors of the rank of the shape of the call, or one tensor that stacks them
along an axis of its own. It then takes the place of the candidate, and the gates are absent.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from ... import _native
from ..._arguments import check_shape, contiguous
from ..._torch.fused import Fused
from ..._torch.operators import (
    View,
    blank,
    check_shapes,
    checkpoint_memory,
    checkpoints_in,
    define,
    edge_dtype,
    edge_of,
    empty,
    run_native,
    scan_problem,
    strides_of,
    views_of,
)
from ..linear.torch_rules import scan
from ..spec import gradient_of
from .spec import GATED, GATES

__all__ = ["GatedProblem", "gated_scan"]

_CALL = "qrnn_pool"


class GatedProblem(NamedTuple):
    """The shape and the options of a call."""

    shape: tuple[int, ...]
    axis: int
    reverse: bool
    stack: int = -1  #: the axis along which one tensor stacks the pre-activations, or -1
    forget_bias: float = 0.0
    recompute: bool = False  #: keeps checkpoints for the adjoint instead of states


# ---- operators -----------------------------------------------------------------------------------


def _gates(names, tensors, stack, number=0):
    """Returns the views of pre-activations, or of their gradients: of a stack, its slices.
    ``number`` is that of the first tensor."""
    first = tensors[0]
    if stack < 0 or first is None:
        return views_of(names, tensors, number)
    strides, step = strides_of(first.select(stack, 0)), first.stride(stack) * first.element_size()
    slices = zip(range(first.shape[stack]), names)
    return {name: View(number, strides, i * step) for i, name in slices}


def _checkpoints(number, memory, problem):
    """Returns the view of checkpoints, if there are any."""
    shape = _native.checkpoint_shape(problem.shape, problem.axis)
    if memory is None or 0 in shape:
        return {}
    strides = contiguous(shape) if memory.dim() == 1 else strides_of(memory)
    return {"checkpoints": View(number, strides)}


def _views(call, tensors, problem):
    """Checks the tensors that a call reads and returns the views of those that are present."""
    gates, stack, named = len(GATES), problem.stack, dict(zip(call.reads, tensors))
    checked = {name: x for name, x in named.items() if name != "checkpoints"}
    if stack >= 0:
        pre = checked.pop("candidate")
        apart = pre.shape[:stack] + pre.shape[stack + 1 :]
        check_shape(_CALL, "pre", apart, problem.shape)
    check_shapes(_CALL, checked, problem.shape, problem.axis)
    views = _gates(GATES, tensors[:gates], stack) | views_of(
        call.reads[gates:], tensors[gates:], gates
    )
    if "checkpoints" in views:
        number = views.pop("checkpoints").tensor
        views |= _checkpoints(number, tensors[number], problem)
    return views


def _run(call, tensors, written, problem, views_written):
    """Runs a call. ``views_written`` returns the views of the tensors that it writes, given the
    number of the first."""

    def describe():
        views = _views(call, tensors, problem) | views_written(len(tensors))
        resets = tensors[GATED.operands.index("resets")]
        shared = scan_problem(tensors[0], resets, problem.shape, problem.axis, problem.reverse)
        return views, None, shared | {"forget_bias": problem.forget_bias}

    user = _CALL, dict.fromkeys(GATES, "pre") if problem.stack >= 0 else {}
    run_native(call.name, (*tensors, *written), problem, describe, user)


def _results(*arguments):
    """Returns uninitialised outputs, final state, states and checkpoints; the last two without
    elements unless they are kept."""
    problem, pre, keep = GatedProblem(*arguments[7:-1]), arguments[0], arguments[-1]
    shape, axis = problem.shape, problem.axis
    keeps_states, keeps_checkpoints = _FUSED.kept(problem, keep)
    memory = None
    if keeps_checkpoints:
        memory = checkpoint_memory(_native.checkpoint_shape(shape, axis))
    return (
        empty(pre, shape),
        empty(pre, edge_of(shape, axis), edge=True),
        empty(pre, shape if keeps_states else None),
        empty(pre, memory, edge=True),
    )


def _value(*arguments):
    problem, tensors, keep = _problem(arguments[7:-1]), arguments[:7], arguments[-1]
    output, final, state, checkpoints = results = _results(*arguments)
    keeps_states, keeps_checkpoints = _FUSED.kept(problem, keep)
    if keeps_checkpoints:
        blank(checkpoints, _native.checkpoint_shape(problem.shape, problem.axis))

    def written(first):
        kept = state if keeps_states else None
        views = views_of(GATED.value.writes, (output, final, kept), first)
        more = _checkpoints(first + 3, checkpoints, problem) if keeps_checkpoints else {}
        return views | more

    _run(GATED.value, tensors, results, problem, written)
    return results


def _gradients(*arguments):
    """Returns uninitialised gradients; those that are not wanted are without elements."""
    of, wanted = (*arguments[:4], arguments[4]), arguments[-1]
    return tuple(
        torch.empty_like(x, memory_format=torch.contiguous_format)
        if w
        else of[0].new_empty((0,), dtype=None if x is None else x.dtype)
        for x, w in zip(of, wanted)
    )


def _adjoint(*arguments):
    count = len(GATED.vjp.reads)
    tensors, problem = arguments[:count], _problem(arguments[count:-1])
    results = _gradients(*arguments)
    wanted = [g if w else None for g, w in zip(results, arguments[-1])]

    def written(first):
        *of_gates, of_initial = wanted
        names = [gradient_of(name) for name in GATES]
        views = _gates(names, of_gates, problem.stack, first)
        return views | views_of(["initial_grad"], [of_initial], first + len(GATES))

    _run(GATED.vjp, tensors, wanted, problem, written)
    return results


def _problem(options):
    shape, *others = options
    return GatedProblem(tuple(shape), *others)


_OPTIONS = "SymInt[] shape, int axis, bool reverse, int stack, float forget_bias, bool recompute, "
# A list of tensors would keep PyTorch from batching the operators: a stack takes the first place.
_op = define(GATED.value, ["candidate"], f"{_OPTIONS}bool keep", 4, _value, _results)
_vjp_op = define(GATED.vjp, ["candidate"], f"{_OPTIONS}bool[] wanted", 5, _adjoint, _gradients)

# ---- derivatives ---------------------------------------------------------------------------------


class _Gated(Fused):
    operation = GATED
    value, adjoint = _op, _vjp_op

    @staticmethod
    def problem(*options):
        return _problem(options)

    def composed(self, problem, *tensors):
        """Activations and a scan."""
        *pre, initial, resets, zoneout = tensors
        dtype = pre[0].dtype
        of = edge_dtype(dtype)
        parts = pre[0].unbind(problem.stack) if problem.stack >= 0 else pre
        candidate, forget, *others = (x.to(of) for x in parts if x is not None)
        forget = forget + problem.forget_bias
        into = others[1] if len(others) > 1 else -forget
        if zoneout is not None:  # whatever these are, NaN too
            candidate, forget, into = (
                torch.where(zoneout, x.new_zeros(()), x) for x in (candidate, forget, into)
            )
        gate, through = torch.sigmoid(forget), torch.sigmoid(into)
        input = through * torch.tanh(candidate)  # which is 0 for a candidate of 0
        if zoneout is not None:
            gate = torch.where(zoneout, gate.new_ones(()), gate)
        input = input.expand(problem.shape)
        state, final = scan(gate, input, initial, resets, problem.axis, problem.reverse)
        output = torch.sigmoid(others[0]) * state if others else state
        return output.to(dtype), final

    def _reads_states(self, problem, needs):
        """Returns whether gradients read states: those of forget and output gate do."""
        return needs[0] if problem.stack >= 0 else any(needs[1:3])

    def keeps(self, problem, tensors, needs):
        gates = tensors[0].shape[problem.stack] if problem.stack >= 0 else 2
        has_output_gate = gates > 2 or tensors[2] is not None
        # Without an output gate the outputs are the states.
        return (problem.recompute or has_output_gate) and self._reads_states(problem, needs)

    def kept(self, problem, keep):
        return keep and not problem.recompute, keep and problem.recompute

    def residuals(self, problem, out, keep, needs):
        output, _, state, checkpoints = out
        if not self._reads_states(problem, needs):
            return None, None
        if problem.recompute:
            return None, checkpoints
        return state if keep else output, None

    def batched(self, problem, size):
        stack = problem.stack + 1 if problem.stack >= 0 else -1
        return problem._replace(shape=(size, *problem.shape), axis=problem.axis + 1, stack=stack)

    def apart(self, problem, index, residual):
        if residual is None or index == 0:
            return residual
        return checkpoints_in(residual, _native.checkpoint_shape(problem.shape, problem.axis))


_FUSED = _Gated()
_FUSED.register(_results)


@torch.compiler.allow_in_graph
def gated_scan(problem, *tensors):
    """Returns output and final state under any transformation."""
    return _FUSED.run(problem, *tensors)

# SPDX-License-Identifier: BSD-3-Clause
"""QRNN pooling in PyTorch: its two operators, and what their derivatives are composed of.

Pre-activations are tensors of the rank of the shape of the call, or one tensor that stacks them
along an axis of its own. It then takes the place of the candidate, and the gates are absent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..._arguments import check_shape, contiguous
from ..._native import checkpoint_shape
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
)
from ..linear.torch_rules import scan
from ..spec import Call, gradient_of, primal_of
from .spec import GATED, GATES, linear_steps

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


def _run(call: Call, arrays: Mapping[str, Tensor | None], problem: GatedProblem) -> None:
    """Runs a native call on those of its arrays that are not None, in the order of the call."""
    shape, axis, stack = problem.shape, problem.axis, problem.stack

    def describe() -> tuple[dict[str, View], None, dict[str, Any]]:
        read = {name: arrays[name] for name in call.reads if name != "checkpoints"}
        pre: Any = arrays["candidate"]
        if stack >= 0:
            del read["candidate"]
            check_shape(_CALL, "pre", pre.shape[:stack] + pre.shape[stack + 1 :], shape)
        check_shapes(_CALL, read, shape, axis)
        views = {}
        for i, (name, x) in enumerate(arrays.items()):
            if x is None:
                continue
            if name == "checkpoints":
                kept = checkpoint_shape(shape, axis)
                if 0 not in kept:
                    views[name] = View(i, contiguous(kept) if x.dim() == 1 else strides_of(x))
            elif stack >= 0 and primal_of(name) == "candidate":
                step = x.stride(stack) * x.element_size()
                for number, gate in enumerate(GATES[: x.shape[stack]]):
                    of = gate if name == "candidate" else gradient_of(gate)
                    views[of] = View(i, strides_of(x.select(stack, 0)), number * step)
            else:
                views[name] = View(i, strides_of(x))
        fields = scan_problem(pre, arrays["resets"], shape, axis, problem.reverse)
        return views, None, fields | {"forget_bias": problem.forget_bias}

    user = _CALL, dict.fromkeys(GATES, "pre") if stack >= 0 else {}
    run_native(call.name, (*arrays.values(),), problem, describe, user)


def _problem(shape: Sequence[int], *options: Any) -> GatedProblem:
    return GatedProblem(tuple(shape), *options)


def _results(*arguments: Any) -> tuple[Tensor, ...]:
    """Returns uninitialised outputs, final state, states and checkpoints; the last two without
    elements unless they are kept."""
    problem, pre, keep = GatedProblem(*arguments[7:-1]), arguments[0], arguments[-1]
    shape, axis = problem.shape, problem.axis
    keeps_states, keeps_checkpoints = _FUSED.kept(problem, keep)
    memory = checkpoint_memory(checkpoint_shape(shape, axis)) if keeps_checkpoints else None
    return (
        empty(pre, shape),
        empty(pre, edge_of(shape, axis), edge=True),
        empty(pre, shape if keeps_states else None),
        empty(pre, memory, edge=True),
    )


def _value(*arguments: Any) -> tuple[Tensor, ...]:
    problem, keep = _problem(*arguments[7:-1]), arguments[-1]
    output, final, state, checkpoints = results = _results(*arguments)
    keeps_states, keeps_checkpoints = _FUSED.kept(problem, keep)
    if keeps_checkpoints:
        blank(checkpoints, checkpoint_shape(problem.shape, problem.axis))
    kept = state if keeps_states else None, checkpoints if keeps_checkpoints else None
    _run(
        GATED.value, dict(zip(GATED.value.arrays, (*arguments[:7], output, final, *kept))), problem
    )
    return results


def _gradients(*arguments: Any) -> tuple[Tensor, ...]:
    """Returns uninitialised gradients; those that are not wanted are without elements."""
    return tuple(
        torch.empty_like(x, memory_format=torch.contiguous_format)
        if w
        else arguments[0].new_empty((0,), dtype=None if x is None else x.dtype)
        for x, w in zip(arguments[:5], arguments[-1])
    )


def _adjoint(*arguments: Any) -> tuple[Tensor, ...]:
    count = len(GATED.vjp.reads)
    results = _gradients(*arguments)
    wanted = (g if w else None for g, w in zip(results, arguments[-1]))
    arrays = dict(zip(GATED.vjp.arrays, (*arguments[:count], *wanted)))
    _run(GATED.vjp, arrays, _problem(*arguments[count:-1]))
    return results


_OPTIONS = "SymInt[] shape, int axis, bool reverse, int stack, float forget_bias, bool recompute, "
# A list of tensors would keep PyTorch from batching the operators: a stack takes the first place.
_op = define(GATED.value, ["candidate"], f"{_OPTIONS}bool keep", 4, _value, _results)
_vjp_op = define(GATED.vjp, ["candidate"], f"{_OPTIONS}bool[] wanted", 5, _adjoint, _gradients)

# ---- derivatives ---------------------------------------------------------------------------------


class _Gated(Fused):
    operation = GATED
    value, adjoint = _op, _vjp_op

    problem = staticmethod(_problem)

    def composed(self, problem: GatedProblem, *tensors: Any) -> tuple[Tensor, ...]:
        """Activations and a scan."""
        *pre, initial, resets, zoneout = tensors
        dtype = pre[0].dtype
        stack = pre[0].unbind(problem.stack) if problem.stack >= 0 else pre
        parts = [x.to(edge_dtype(dtype)) for x in stack if x is not None]
        gate, input, out = linear_steps(torch, torch.sigmoid, parts, problem.forget_bias, zoneout)
        input = input.expand(problem.shape)
        state, final = scan(gate, input, initial, resets, problem.axis, problem.reverse)
        output = state if out is None else out * state
        return output.to(dtype), final

    def _reads_states(self, problem: GatedProblem, needs: Sequence[bool]) -> bool:
        """Returns whether gradients read states: those of forget and output gate do."""
        return needs[0] if problem.stack >= 0 else any(needs[1:3])

    def keeps(self, problem: GatedProblem, tensors: Any, needs: Sequence[bool]) -> bool:
        gates = tensors[0].shape[problem.stack] if problem.stack >= 0 else 2
        has_output_gate = gates > 2 or tensors[2] is not None
        # Without an output gate the outputs are the states.
        return (problem.recompute or has_output_gate) and self._reads_states(problem, needs)

    def kept(self, problem: GatedProblem, keep: bool) -> tuple[bool, bool]:
        return keep and not problem.recompute, keep and problem.recompute

    def residuals(
        self, problem: GatedProblem, out: Any, keep: bool, needs: Sequence[bool]
    ) -> tuple[Tensor | None, Tensor | None]:
        output, _, state, checkpoints = out
        if not self._reads_states(problem, needs):
            return None, None
        if problem.recompute:
            return None, checkpoints
        return state if keep else output, None

    def batched(self, problem: GatedProblem, size: int) -> GatedProblem:
        stack = problem.stack + 1 if problem.stack >= 0 else -1
        return problem._replace(shape=(size, *problem.shape), axis=problem.axis + 1, stack=stack)

    def apart(self, problem: GatedProblem, index: int, residual: Tensor | None) -> Tensor | None:
        if residual is None or index == 0:
            return residual
        return checkpoints_in(residual, checkpoint_shape(problem.shape, problem.axis))


_FUSED = _Gated()
_FUSED.register(_results)


@torch.compiler.allow_in_graph  # type: ignore[untyped-decorator]
def gated_scan(problem: GatedProblem, *tensors: Tensor | None) -> Any:
    """Returns output and final state under any transformation."""
    return _FUSED.run(problem, *tensors)

# SPDX-License-Identifier: BSD-3-Clause
"""QRNN pooling in PyTorch: the operators of the forward call and of its adjoint, and a composition
of PyTorch operations for the derivatives that have no operator (forward mode and higher orders).

Pre-activations are separate tensors of the rank of ``GatedProblem.shape``, or one tensor that
stacks them along a further axis. Such a stack is passed as the candidate, and the gates are absent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..._arguments import check_shape
from ..._native import checkpoint_shape
from ..._torch.fused import Fused
from ..._torch.operators import (
    Arrays,
    Described,
    View,
    boundary_dtype,
    boundary_of,
    checkpoints_in,
    describe_scan,
    empty,
    new_checkpoints,
    run_native,
    strides_of,
)
from ..linear.torch_rules import scan
from ..spec import Call, gradient_of, is_boundary, primal_of
from .spec import GATED, GATES, linear_steps

__all__ = ["GatedProblem", "gated_scan"]

_CALL = "qrnn_pool"


class GatedProblem(NamedTuple):
    """The shape of the output, and the options of a call."""

    shape: tuple[int, ...]
    axis: int
    reverse: bool
    stack: int = -1  #: the axis along which one tensor stacks the pre-activations, or -1
    forget_bias: float = 0.0
    recompute: bool = False  #: whether the adjoint gets checkpoints instead of states


def _describe(arrays: Arrays, problem: GatedProblem) -> Described:
    """Describe a native call on these arrays. The parts of a stack are views of one tensor."""
    pre: Any = arrays["candidate"]
    shape, axis, stack = problem.shape, problem.axis, problem.stack
    others = dict(arrays)
    memory = others.pop("checkpoints", None)
    stacks: dict[str, Any] = {}
    if stack >= 0:
        stacks = {name: others.pop(name, None) for name in ("candidate", "candidate_grad")}
        check_shape(_CALL, "pre", pre.shape[:stack] + pre.shape[stack + 1 :], shape)
    views, dtypes, fields = describe_scan(_CALL, others, problem, pre.dtype)
    for name, x in stacks.items():
        parts = () if x is None else x.unbind(stack)
        for number, (gate, part) in enumerate(zip(GATES, parts)):
            of = gate if name == "candidate" else gradient_of(gate)
            offset = number * x.stride(stack) * x.element_size()
            views[of] = View(name, strides_of(part), offset)
    kept = checkpoint_shape(shape, axis)
    if memory is not None and 0 not in kept:
        views["checkpoints"] = View("checkpoints", strides_of(checkpoints_in(memory, kept)))
    return views, dtypes, fields | {"forget_bias": problem.forget_bias}


class _Gated(Fused):
    operation, problem = GATED, GatedProblem
    # A stack of pre-activations is one tensor, passed as the candidate, so the gates may be absent.
    # PyTorch could not batch an operator with a list of tensors.
    required = ("candidate",)

    def new(self, problem: GatedProblem, tensors: Arrays, name: str) -> Tensor:
        pre: Any = tensors["candidate"]
        if name.endswith("_grad"):
            like: Any = tensors[primal_of(name)]
            return torch.empty_like(like, memory_format=torch.contiguous_format)
        if name == "checkpoints":
            return new_checkpoints(pre, checkpoint_shape(problem.shape, problem.axis))
        if is_boundary(name):
            return empty(pre, boundary_of(problem.shape, problem.axis), boundary=True)
        return empty(pre, problem.shape)

    def kernel(self, call: Call, problem: GatedProblem, arrays: Arrays) -> None:
        user = _CALL, dict.fromkeys(GATES, "pre") if problem.stack >= 0 else {}
        run_native(call, arrays, problem, _describe, user)

    def composed(self, problem: GatedProblem, *tensors: Any) -> tuple[Tensor, ...]:
        """Compute activations and a scan."""
        *pre, initial, resets, zoneout = tensors
        dtype = pre[0].dtype
        stack = pre[0].unbind(problem.stack) if problem.stack >= 0 else pre
        parts = [x.to(boundary_dtype(dtype)) for x in stack if x is not None]
        gate, input, out = linear_steps(torch, torch.sigmoid, parts, problem.forget_bias, zoneout)
        input = input.expand(problem.shape)
        state, final = scan(gate, input, initial, resets, problem.axis, problem.reverse)
        output = state if out is None else out * state
        return output.to(dtype), final

    def _reads_states(self, problem: GatedProblem, needs: Sequence[bool]) -> bool:
        """Whether a needed gradient reads states: that of the forget gate or of the output gate."""
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


@torch.compiler.allow_in_graph  # type: ignore[untyped-decorator]
def gated_scan(problem: GatedProblem, *tensors: Tensor | None) -> Any:
    """Return output and final state, under any transformation of PyTorch."""
    return _FUSED.run(problem, *tensors)

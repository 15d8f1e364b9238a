# SPDX-License-Identifier: BSD-3-Clause
"""``linear_scan`` of logarithms in PyTorch, and the derivatives of the operators of linear scans,
with and without logarithms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..._torch.fused import Fused
from ..._torch.modes import in_graph, is_pushed, levels
from ..._torch.operators import boundary_dtype, differentiate, none_as_empty
from ..._torch.types import Maybe, Tensors
from .spec import LINEAR, LOG_GATE, LOG_INPUT
from .torch_rules import (
    Problem,
    Scanned,
    adjoint,
    composed_tangent,
    jvp_op,
    scan,
    scan_kernel,
    scan_op,
    tangent_of,
    vjp_op,
)

__all__ = ["scan_logarithms"]


class _Logarithms(Fused):
    operation, problem = LINEAR, Problem

    def operators(self) -> tuple[Any, Any]:
        return self._value_op, self._adjoint_op

    @staticmethod
    def _value_op(*arguments: Any) -> Any:
        return scan_op(*arguments[:-1])  # without the flag `keep`: all residuals are results

    @staticmethod
    def _adjoint_op(gate: Tensor, input: Tensor, initial: Maybe, resets: Maybe, *rest: Any) -> Any:
        *others, logarithms, wanted = rest
        shapes = (
            tuple(x.shape) if x is not None and is_wanted else None
            for x, is_wanted in zip((gate, input, initial), wanted)
        )
        read = input if logarithms & LOG_INPUT else None
        return vjp_op(gate, read, initial, resets, *others, logarithms, *shapes)

    def composed(self, problem: Problem, *tensors: Any) -> tuple[Tensor, ...]:
        gate, input, initial, resets = tensors
        dtype = input.dtype
        of = boundary_dtype(dtype)
        if problem.logarithms & LOG_GATE:
            # Rounding gates close to 1 would lose digits of their logarithms. The kernels keep
            # these digits.
            of = torch.float64
            initial = None if initial is None else initial.to(of)
        gate, input = gate.to(of), input.to(of)
        gate = torch.exp(gate) if problem.logarithms & LOG_GATE else gate
        input = torch.exp(input) if problem.logarithms & LOG_INPUT else input
        input = input.expand(problem.shape)
        state, final = scan(gate, input, initial, resets, problem.axis, problem.reverse)
        return state.to(dtype), final.to(boundary_dtype(dtype))

    def residuals(
        self, problem: Problem, out: Tensors, keep: bool, needs: Sequence[bool]
    ) -> Tensors:
        return [out[0] if needs[0] else None]  # only the gradient of the gate reads states

    def saved(self, problem: Problem, tensors: Tensors, needs: Sequence[bool]) -> Tensors:
        gate, input, *others = tensors
        return gate, input if needs[0] or problem.logarithms & LOG_INPUT else None, *others

    def restored(self, problem: Any, tensors: Sequence[Any]) -> Tensors:
        gate, input, *others = tensors
        return gate, gate.new_zeros(()).expand(problem.shape) if input is None else input, *others

    def batched(self, problem: Problem, size: int) -> Problem:
        return problem.batched(size)


_LOGARITHMS = _Logarithms()


@in_graph
def scan_logarithms(problem: Problem, *tensors: Maybe) -> tuple[Tensor, ...]:
    """Return states and final state, under any transformation of PyTorch."""
    return _LOGARITHMS.run(problem, *tensors)


# ---- derivatives of the operators ----------------------------------------------------------------


def _check_forward_mode() -> None:
    """Raise NotImplementedError for nested levels of forward mode.

    PyTorch's rule for autograd functions gives wrong values for these. ``torch_rules.scan`` has a
    workaround for scans. The tangent and the adjoint of a scan in a traced program have none.
    """
    if levels().count("Jvp") > 1:
        raise NotImplementedError(
            "linear_scan: PyTorch gives wrong values for two levels of forward mode over a "
            "recorded derivative; use reverse mode for one of them"
        )


def _value(*arguments: Any) -> Sequence[Tensor]:
    tensors, problem = arguments[:4], _LOGARITHMS.problem_of(arguments[4:])
    if problem.logarithms:
        return _LOGARITHMS.recorded(problem, False, tensors)
    gate, input, initial, resets = tensors
    return scan_kernel(gate, input, initial, resets, problem)


def _tangent(*arguments: Any) -> Any:
    _check_forward_mode()
    of, tangents = Scanned(*arguments[:4]), arguments[4:7]
    compute = composed_tangent if is_pushed(*of, *tangents) else tangent_of
    return compute(of, tangents, _LOGARITHMS.problem_of(arguments[7:]))


def _adjoint(*arguments: Any) -> tuple[Tensor, ...]:
    """Return the gradients. Gradients that are not wanted are empty tensors."""
    tensors, options, shapes = arguments[:7], arguments[7:11], arguments[11:]
    problem = _LOGARITHMS.problem_of(options)
    if problem.logarithms:
        wanted = [s is not None for s in shapes]
        operands = _LOGARITHMS.restored(problem, tensors[:4])
        gradients = _LOGARITHMS.gradients(problem, wanted, operands, tensors[4:5], tensors[5:])
    else:
        gate, _, *others = tensors
        _check_forward_mode()
        gradients = adjoint(Scanned(gate, *others[:3]), others[3:], problem, shapes)
    return none_as_empty(tensors[0], gradients)


differentiate(scan_op, _value)
differentiate(jvp_op, _tangent)
differentiate(vjp_op, _adjoint)

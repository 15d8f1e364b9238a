# SPDX-License-Identifier: BSD-3-Clause
"""``linear_scan`` of logarithms in PyTorch, and the derivatives of the operators for both kinds of
operands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..._torch.fused import Fused
from ..._torch.operators import differentiate, edge_dtype
from ..._torch.types import Maybe, Tensors
from .spec import LINEAR, LOG_GATE, LOG_INPUT
from .torch_rules import (
    Problem,
    Scanned,
    adjoint_kernel,
    jvp_op,
    scan,
    scan_kernel,
    scan_op,
    tangent_kernel,
    vjp_op,
)

__all__ = ["LogProblem", "scan_logarithms"]


class LogProblem(NamedTuple):
    """The shape and the options of a call."""

    shape: tuple[int, ...]
    axis: int
    reverse: bool
    logarithms: int


class _Logarithms(Fused):
    operation = LINEAR

    @staticmethod
    def problem(shape: Sequence[int], *options: Any) -> LogProblem:
        return LogProblem(tuple(shape), *options)

    @staticmethod
    def value(*arguments: Any) -> Any:
        return scan_op(*arguments[:-1])  # all residuals are results

    @staticmethod
    def adjoint(gate: Tensor, input: Tensor, initial: Maybe, resets: Maybe, *rest: Any) -> Any:
        *others, logarithms, wanted = rest
        shapes = (
            tuple(x.shape) if x is not None and is_wanted else None
            for x, is_wanted in zip((gate, input, initial), wanted)
        )
        read = input if logarithms & LOG_INPUT else None
        return vjp_op(gate, read, initial, resets, *others, *shapes, logarithms)

    def composed(self, problem: LogProblem, *tensors: Any) -> tuple[Tensor, ...]:
        gate, input, initial, resets = tensors
        dtype = input.dtype
        of = edge_dtype(dtype)
        if problem.logarithms & LOG_GATE:
            # Gates that are rounded next to 1 would lose digits of their logarithms, which the
            # kernels keep.
            of = torch.float64
            initial = None if initial is None else initial.to(of)
        gate, input = gate.to(of), input.to(of)
        gate = torch.exp(gate) if problem.logarithms & LOG_GATE else gate
        input = torch.exp(input) if problem.logarithms & LOG_INPUT else input
        input = input.expand(problem.shape)
        state, final = scan(gate, input, initial, resets, problem.axis, problem.reverse)
        return state.to(dtype), final.to(edge_dtype(dtype))

    def keeps(self, problem: LogProblem, tensors: Tensors, needs: Sequence[bool]) -> bool:
        return False

    def residuals(
        self, problem: LogProblem, out: Tensors, keep: bool, needs: Sequence[bool]
    ) -> Tensors:
        return [out[0] if needs[0] else None]  # of the gate alone

    def saved(self, problem: LogProblem, tensors: Tensors, needs: Sequence[bool]) -> Tensors:
        gate, input, *others = tensors
        return gate, input if needs[0] or problem.logarithms & LOG_INPUT else None, *others

    def restored(self, problem: Any, tensors: Sequence[Any]) -> Tensors:
        gate, input, *others = tensors
        return gate, gate.new_zeros(()).expand(problem.shape) if input is None else input, *others

    def batched(self, problem: LogProblem, size: int) -> LogProblem:
        return problem._replace(shape=(size, *problem.shape), axis=problem.axis + 1)


_LOGARITHMS = _Logarithms()


@torch.compiler.allow_in_graph  # type: ignore[untyped-decorator]
def scan_logarithms(problem: LogProblem, *tensors: Maybe) -> tuple[Tensor, ...]:
    """Returns states and final state under any transformation."""
    return _LOGARITHMS.run(problem, *tensors)


# ---- derivatives of the operators ----------------------------------------------------------------


def _value(*arguments: Any) -> Sequence[Tensor]:
    tensors, (*problem, logarithms) = arguments[:4], arguments[4:]
    if logarithms:
        return _LOGARITHMS.recorded(_Logarithms.problem(*problem, logarithms), False, tensors)
    gate, input, initial, resets = tensors
    return scan_kernel(gate, input, initial, resets, _problem(*problem))


def _tangent(gate: Tensor, initial: Maybe, resets: Maybe, state: Maybe, *rest: Any) -> Any:
    of = Scanned(gate, state, initial, resets)
    return tangent_kernel(of, rest[:3], _problem(*rest[3:]))


def _adjoint(*arguments: Any) -> tuple[Tensor, ...]:
    """Gradients that are not wanted are empty."""
    tensors, (*problem, gate, input, initial, logarithms) = arguments[:7], arguments[7:]
    shapes = [None if s is None else tuple(s) for s in (gate, input, initial)]
    wanted = [s is not None for s in shapes]
    found: Iterable[Maybe]
    if logarithms:
        operands = _LOGARITHMS.restored(_problem(*problem), tensors[:4])
        of_logarithms = _Logarithms.problem(*problem, logarithms)
        rest = iter(
            _LOGARITHMS.gradients(of_logarithms, wanted, operands, tensors[4:5], tensors[5:])
        )
        found = [next(rest) if w else None for w in wanted]
    else:
        gate, _, initial, resets, state, *cotangents = tensors
        of = Scanned(gate, state, initial, resets)
        found = adjoint_kernel(of, cotangents, _problem(*problem), shapes)
    return tuple(tensors[0].new_empty((0,)) if g is None else g for g in found)


def _problem(shape: Sequence[int], axis: int, reverse: bool) -> Problem:
    return Problem(tuple(shape), axis, reverse)


differentiate(scan_op, _value)
differentiate(jvp_op, _tangent)
differentiate(vjp_op, _adjoint)

# SPDX-License-Identifier: BSD-3-Clause
"""``linear_scan`` of logarithms in PyTorch, and the derivatives of the operators for both kinds of
operands."""

from __future__ import annotations

from typing import NamedTuple

import torch

from ..._torch.fused import Fused
from ..._torch.operators import differentiate, edge_dtype
from .spec import LINEAR, LOG_GATE, LOG_INPUT
from .torch_rules import (
    Problem,
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
    def problem(shape, *options):
        return LogProblem(tuple(shape), *options)

    @staticmethod
    def value(*arguments):
        return scan_op(*arguments[:-1])  # all residuals are results

    @staticmethod
    def adjoint(gate, input, initial, resets, *rest):
        *rest, logarithms, wanted = rest
        shapes = (
            tuple(x.shape) if is_wanted else None
            for x, is_wanted in zip((gate, input, initial), wanted)
        )
        input = input if logarithms & LOG_INPUT else None
        return vjp_op(gate, input, initial, resets, *rest, *shapes, logarithms)

    def composed(self, problem, gate, input, initial, resets):
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

    def keeps(self, problem, tensors, needs):
        return False

    def residuals(self, problem, out, keep, needs):
        return [out[0] if needs[0] else None]  # of the gate alone

    def saved(self, problem, tensors, needs):
        gate, input, *others = tensors
        return gate, input if needs[0] or problem.logarithms & LOG_INPUT else None, *others

    def restored(self, problem, tensors):
        gate, input, *others = tensors
        return gate, gate.new_zeros(()).expand(problem.shape) if input is None else input, *others

    def batched(self, problem, size):
        return problem._replace(shape=(size, *problem.shape), axis=problem.axis + 1)


_LOGARITHMS = _Logarithms()


@torch.compiler.allow_in_graph
def scan_logarithms(problem, gate, input, initial, resets):
    """Returns states and final state under any transformation."""
    return _LOGARITHMS.run(problem, gate, input, initial, resets)


# ---- derivatives of the operators ----------------------------------------------------------------


def _value(*arguments):
    tensors, (*problem, logarithms) = arguments[:4], arguments[4:]
    if logarithms:
        problem = _Logarithms.problem(*problem, logarithms)
        return _LOGARITHMS.recorded(problem, False, tensors)
    return scan_kernel(*tensors, _problem(*problem))


def _tangent(*arguments):
    return tangent_kernel(*arguments[:7], _problem(*arguments[7:]))


def _adjoint(*arguments):
    """Gradients that are not wanted are empty."""
    tensors, (*problem, gate, input, initial, logarithms) = arguments[:7], arguments[7:]
    shapes = tuple(None if s is None else tuple(s) for s in (gate, input, initial))
    wanted = tuple(s is not None for s in shapes)
    if logarithms:
        operands = _LOGARITHMS.restored(_problem(*problem), tensors[:4])
        problem = _Logarithms.problem(*problem, logarithms)
        found = _LOGARITHMS.gradients(problem, wanted, operands, tensors[4:5], tensors[5:])
    else:
        gate, _, *others = tensors
        found = adjoint_kernel(gate, *others, _problem(*problem), shapes)
    found = iter(found)
    return tuple(next(found) if w else tensors[0].new_empty((0,)) for w in wanted)


def _problem(shape, axis, reverse):
    return Problem(tuple(shape), axis, reverse)


differentiate(scan_op, _value)
differentiate(jvp_op, _tangent)
differentiate(vjp_op, _adjoint)

# SPDX-License-Identifier: BSD-3-Clause
"""Gated scans, QRNN pooling and linear scans of logarithms, and their adjoint as functions with
fused kernels; what differentiates them further is composed of activations and scans.

The states that the value keeps follow from the pre-activations, which is where composed functions
take them from: they have no gradients of their own.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.autograd import Function

from .._native import LOG_GATE, LOG_INPUT, checkpoint_shape
from ._modes import is_dual, is_recorded, levels
from ._ops import (
    checkpoint_memory,
    checkpoints_in,
    differentiate,
    edge_dtype,
    gated_op,
    gated_vjp_op,
    run_below,
)
from ._scan import scan

__all__ = ["GatedProblem", "gated_scan"]


class GatedProblem(NamedTuple):
    """What all tensors of a call have in common."""

    shape: tuple[int, ...]
    axis: int
    reverse: bool
    #: The axis along which one tensor of pre-activations is stacked, or -1.
    stack: int = -1
    cell: int = 0  #: QRNN pooling, or what is given by logarithms
    forget_bias: float = 0.0
    recompute: bool = False  #: keeps checkpoints for the adjoint

    def batched(self, size):
        stack = self.stack + 1 if self.stack >= 0 else -1
        return self._replace(shape=(size, *self.shape), axis=self.axis + 1, stack=stack)

    def reads_states(self, moved):
        """Whether gradients of these read states: those of forget and output gate do."""
        if self.stack >= 0:
            return moved[0]
        return any(moved[1:2] if self.cell else moved[1:3])

    def apart(self, kept):
        """What is kept of a call, with the axes of its shape."""
        if kept is None or not self.recompute:
            return kept
        return checkpoints_in(kept, checkpoint_shape(self.shape, self.axis))


def composed(pre, initial, resets, zoneout, problem):
    """(output, final state) by activations and a scan."""
    dtype = pre[0].dtype
    of = edge_dtype(dtype)
    if problem.cell & LOG_GATE:
        # Gates that are rounded next to 1 would lose what their logarithms hold; kernels do not.
        of = torch.float64
        initial = None if initial is None else initial.to(of)
    parts = pre[0].unbind(problem.stack) if problem.stack >= 0 else pre
    candidate, forget, *others = (x.to(of) for x in parts)
    if problem.cell:
        gate = torch.exp(forget) if problem.cell & LOG_GATE else forget
        input = torch.exp(candidate) if problem.cell & LOG_INPUT else candidate
        input = input.expand(problem.shape)
        state, final = scan(gate, input, initial, resets, problem.axis, problem.reverse)
        return state.to(dtype), final.to(edge_dtype(dtype))
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
    return (torch.sigmoid(others[0]) * state if others else state).to(dtype), final


def _four(pre):
    """The places that operators have for pre-activations."""
    return (*pre, *(None,) * (4 - len(pre)))


def _taken_apart(tensors, dims, size):
    return [
        None if x is None else x.unsqueeze(0) if d is None else x.movedim(d, 0)
        for x, d in zip(tensors, dims)
    ]


class Gated(Function):
    """(initial_state, resets, zoneout, problem, keep, *pre) -> (output, final_state, states or
    checkpoints), the last for the adjoint: empty unless kept, as where they are the outputs."""

    @staticmethod
    def forward(initial, resets, zoneout, problem, keep, *pre):
        return run_below(gated_op, *_four(pre), initial, resets, zoneout, *problem, keep)

    @staticmethod
    def setup_context(ctx, inputs, output):
        initial, resets, zoneout, ctx.problem, keep, *pre = inputs
        ctx.mark_non_differentiable(output[2])
        kept = output[2 if keep else 0]
        if not ctx.problem.reads_states(ctx.needs_input_grad[5:]):
            kept = None
            if ctx.problem.cell and not ctx.problem.cell & LOG_INPUT:  # linear in the input
                pre[0] = None
        ctx.save_for_backward(kept, initial, resets, zoneout, *pre)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, output_grad, final_grad, _):
        kept, initial, resets, zoneout, *pre = ctx.saved_tensors
        if pre[0] is None:  # no gradient depends on it
            pre[0] = pre[1].new_zeros(()).expand(ctx.problem.shape)
        needs = (*ctx.needs_input_grad[5:], ctx.needs_input_grad[0])
        if output_grad is None and final_grad is None or not any(needs):
            return (None,) * len(ctx.needs_input_grad)
        gradients = _adjoint(
            kept, initial, resets, zoneout, output_grad, final_grad, ctx.problem, needs, *pre
        )
        rest = iter(gradients)
        *of_pre, of_initial = (next(rest) if need else None for need in needs)
        return of_initial, None, None, None, None, *of_pre

    @staticmethod
    def vmap(info, dims, initial, resets, zoneout, problem, keep, *pre):
        tensors = _taken_apart((initial, resets, zoneout), dims[:3], info.batch_size)
        pre = _taken_apart(pre, dims[5:], info.batch_size)
        problem = problem.batched(info.batch_size)
        output, final, kept = Gated.apply(*tensors, problem, keep, *pre)
        kept = problem.apart(kept) if keep else kept
        return (output, final, kept), (0, 0, 0 if keep else None)


class GatedAdjoint(Function):
    """(states or checkpoints, initial_state, resets, zoneout, output_grad, final_grad, problem,
    needs, *pre) -> the gradients that are needed of (*pre, initial_state). States are None where
    these read none."""

    @staticmethod
    def forward(kept, initial, resets, zoneout, output_grad, final_grad, problem, needs, *pre):
        *of_pre, of_initial = needs
        wanted = [*of_pre, *(False,) * (4 - len(pre)), of_initial]
        if kept is None:  # the kernel takes any states where no gradient reads them
            kept = pre[0].new_zeros(()).expand(problem.shape)
            problem = problem._replace(recompute=False)
        tensors = *_four(pre), kept, initial, resets, zoneout, output_grad, final_grad
        gradients = run_below(gated_vjp_op, *tensors, *problem, wanted)
        return tuple(g for g, is_wanted in zip(gradients, wanted) if is_wanted)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, initial, resets, zoneout, output_grad, final_grad, ctx.problem, ctx.needs, *pre = inputs
        ctx.save_for_backward(initial, resets, zoneout, output_grad, final_grad, *pre)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, *grads):
        initial, resets, zoneout, output_grad, final_grad, *pre = ctx.saved_tensors
        problem, needs = ctx.problem, ctx.needs
        asked = ctx.needs_input_grad
        given = [*pre, initial, output_grad, final_grad]
        moves = [*asked[8:], asked[1], asked[4], asked[5]]
        at = [x for x, m in zip(given, moves) if m]
        nothing = (None,) * len(asked)
        if not at or all(g is None for g in grads):
            return nothing

        def adjoint(*moved):
            rest = iter(moved)
            *pre_now, initial_now, output_g, final_g = (
                next(rest) if m else x for x, m in zip(given, moves)
            )
            return _composed_adjoint(
                pre_now, initial_now, resets, zoneout, output_g, final_g, problem, needs
            )

        out, pull = torch.func.vjp(adjoint, *at)
        rest = iter(
            pull(tuple(torch.zeros_like(x) if g is None else g for x, g in zip(out, grads)))
        )
        *of_pre, of_initial, of_output, of_final = (next(rest) if m else None for m in moves)
        return None, of_initial, None, None, of_output, of_final, None, None, *of_pre

    @staticmethod
    def vmap(info, dims, *args):
        size, problem, needs = info.batch_size, args[6], args[7]
        kept = problem.apart(args[0]) if dims[0] is None else args[0]
        tensors = _taken_apart((kept, *args[1:6]), dims[:6], size)
        pre = _taken_apart(args[8:], dims[8:], size)
        # A gradient has a place for every element of the batch, whether it was shared or not.
        pre = [x.expand(size, *x.shape[1:]) if n else x for x, n in zip(pre, needs)]
        if needs[-1]:
            tensors[1] = tensors[1].expand(size, *tensors[1].shape[1:])
        out = GatedAdjoint.apply(*tensors, problem.batched(size), needs, *pre)
        return out, (0,) * len(out)


def _composed_adjoint(pre, initial, resets, zoneout, output_grad, final_grad, problem, needs):
    given = [*pre, initial]

    def value(*moved):
        rest = iter(moved)
        *now, first = (next(rest) if need else x for x, need in zip(given, needs))
        return composed(now, first, resets, zoneout, problem)

    out, pull = torch.func.vjp(value, *(x for x, need in zip(given, needs) if need))
    cotangents = tuple(
        torch.zeros_like(x) if g is None else g.expand(x.shape)
        for x, g in zip(out, (output_grad, final_grad))
    )
    return pull(cotangents)


def _adjoint(kept, initial, resets, zoneout, output_grad, final_grad, problem, needs, *pre):
    """The gradients that are needed of (*pre, initial_state). In forward mode, which may have begun
    after the call, they are composed."""
    if _is_composed(output_grad, final_grad, initial, *pre):
        return _composed_adjoint(
            pre, initial, resets, zoneout, output_grad, final_grad, problem, needs
        )
    return GatedAdjoint.apply(
        kept, initial, resets, zoneout, output_grad, final_grad, problem, needs, *pre
    )


def _is_composed(*tensors):
    """Whether forward mode is at work."""
    return "Jvp" in levels() or any(is_dual(x) for x in tensors if x is not None)


@torch.compiler.allow_in_graph
def gated_scan(problem, initial, resets, zoneout, *pre):
    """(output, final state) under any transformation. Wherever forward mode is at work it is
    composed: the scan knows what PyTorch gets right."""
    arguments = *_four(pre), initial, resets, zoneout
    if torch.jit.is_tracing():  # which records operators alone, with shapes that are fixed
        fixed = problem._replace(shape=tuple(map(int, problem.shape)))
        return gated_op(*arguments, *fixed, False)[:2]
    if not is_recorded(initial, *pre):
        return run_below(gated_op, *arguments, *problem, False)[:2]
    return _recorded(problem, initial, resets, zoneout, False, *pre)[:2]


def _recorded(problem, initial, resets, zoneout, keep, *pre):
    """Output, final state, and states or checkpoints where the adjoint needs them, or None."""
    if _is_composed(initial, *pre):
        return *composed(pre, initial, resets, zoneout, problem), None
    # The adjoint has states that are the output. An outer level of torch.func may need others.
    gates = pre[0].shape[problem.stack] if problem.stack >= 0 else len(pre)
    if problem.recompute or gates > 2:
        keep = keep or bool(levels()) or problem.reads_states([x.requires_grad for x in pre])
    output, final, kept = Gated.apply(initial, resets, zoneout, problem, keep, *pre)
    return output, final, kept if keep else None


def _kernel(*arguments):
    """The results of the operator, whose third is empty unless `keep` is set."""
    pre, edges, (shape, *options) = arguments[:4], arguments[4:7], arguments[7:-1]
    problem, keep = GatedProblem(tuple(shape), *options), arguments[-1]
    output, final, kept = _recorded(problem, *edges, keep, *(x for x in pre if x is not None))
    if kept is None or not keep:
        shape = (0,)
        if keep:  # composed, as the adjoint will be
            shape = checkpoint_shape(problem.shape, problem.axis)
            shape = checkpoint_memory(shape) if problem.recompute else problem.shape
        kept = output.new_full(shape, torch.nan, dtype=final.dtype if problem.recompute else None)
    return output, final, kept


def _adjoint_kernel(*arguments):
    """The results of the operator: gradients that are not wanted are empty."""
    pre, tensors, (shape, *options) = arguments[:4], arguments[4:10], arguments[10:-1]
    problem, wanted = GatedProblem(tuple(shape), *options), arguments[-1]
    there = [x for x in pre if x is not None]
    needs = (*wanted[: len(there)], wanted[4])
    out = iter(_adjoint(*tensors, problem, needs, *there))
    return tuple(
        next(out) if is_wanted else pre[0].new_empty((0,), dtype=None if x is None else x.dtype)
        for x, is_wanted in zip((*pre, tensors[1]), wanted)
    )


differentiate(gated_op, _kernel)
differentiate(gated_vjp_op, _adjoint_kernel)

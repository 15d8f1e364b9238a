# SPDX-License-Identifier: BSD-3-Clause
"""The selective scan and its adjoint as functions with fused kernels; what differentiates them
further, or batches them, is composed of elementwise operations and scans.

Tensors are those of ``_selective_ops.py``. The states before every 128 steps are kept for the
adjoint; composed functions have no use for them.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.autograd import Function
from torch.nn.functional import silu, softplus

from ._modes import is_dual, is_recorded, levels
from ._ops import differentiate, run_below
from ._scan import scan
from ._selective_ops import checkpoints_like, selective_op, selective_vjp_op

__all__ = ["SelectiveProblem", "real_type", "selective"]


_REAL = {torch.complex64: torch.float32, torch.complex128: torch.float64}


def real_type(dtype):
    """That of the parts of complex numbers; others are their own."""
    return _REAL.get(dtype, dtype)


class SelectiveProblem(NamedTuple):
    """Options of a call."""

    softplus: bool
    reverse: bool


def _is_composed(*tensors) -> bool:
    """Whether forward mode or batching is at work."""
    if not {"Jvp", "Vmap"}.isdisjoint(levels()):
        return True
    return any(is_dual(x) for x in tensors if x is not None)


def _of_all_channels(mixing, channels, dtype):
    """B or C as (B or 1, D or 1, N, L or 1)."""
    if mixing.dim() == 2:
        return mixing.to(dtype).unsqueeze(-1)
    if dtype.is_complex:
        mixing = mixing.to(real_type(dtype)).unflatten(-1, (-1, 2))
        mixing = torch.complex(mixing[..., 0], mixing[..., 1])
    mixing, groups = mixing.to(dtype), mixing.shape[1]
    return mixing if groups == 1 else mixing.repeat_interleave(channels // groups, 1)


def composed(u, delta, a, b, c, skip, z, bias, intervals, initial, resets, problem):
    """(out, final state), with an array of the states of all steps."""
    dtype, (batch, channels, steps) = real_type(a.dtype), u.shape
    x, step = u.to(dtype), delta.to(dtype)
    if bias is not None:
        step = step + bias.unsqueeze(-1)
    if problem.softplus:
        step = softplus(step)  # itself above 20, as that of the kernels
    if intervals is not None:
        step = step * intervals.unsqueeze(1)
    gate = torch.exp(step.unsqueeze(2) * a.unsqueeze(-1))
    input = (step * x).unsqueeze(2) * _of_all_channels(b, channels, a.dtype)
    state, final = scan(
        gate,
        input.expand(batch, channels, a.shape[1], steps),
        None if initial is None else initial.unsqueeze(-1),
        None if resets is None else resets.unsqueeze(2),
        3,
        problem.reverse,
    )
    out = (state * _of_all_channels(c, channels, a.dtype)).sum(2)
    if a.is_complex():
        out = 2 * out.real
    if skip is not None:
        out = out + skip.unsqueeze(-1) * x
    if z is not None:
        out = out * silu(z.to(dtype))
    return out.to(u.dtype), final.squeeze(-1)


class Selective(Function):
    """(u, delta, a, b, c, skip, z, delta_bias, intervals, initial_state, resets, problem) ->
    (out, final_state, checkpoints), the last for the adjoint."""

    @staticmethod
    def forward(*args):
        *tensors, problem = args
        return run_below(selective_op, *tensors, *problem, True)

    @staticmethod
    def setup_context(ctx, inputs, output):
        *tensors, ctx.problem = inputs
        ctx.mark_non_differentiable(output[2])
        ctx.save_for_backward(output[2], *tensors)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, out_grad, final_grad, _):
        checkpoints, *tensors = ctx.saved_tensors
        needs = ctx.needs_input_grad[:10]
        if (out_grad is None and final_grad is None) or not any(needs):
            return (None,) * 12
        gradients = _adjoint(checkpoints, out_grad, final_grad, ctx.problem, needs, *tensors)
        rest = iter(gradients)
        return *(next(rest) if need else None for need in needs), None, None


class SelectiveAdjoint(Function):
    """(checkpoints, out_grad, final_grad, problem, needs, *tensors) -> the gradients that are
    needed"""

    @staticmethod
    def forward(checkpoints, out_grad, final_grad, problem, needs, *tensors):
        arrays = *tensors, checkpoints, out_grad, final_grad
        gradients = run_below(selective_vjp_op, *arrays, *problem, list(needs))
        return tuple(g for g, need in zip(gradients, needs) if need)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, out_grad, final_grad, ctx.problem, ctx.needs, *tensors = inputs
        ctx.save_for_backward(out_grad, final_grad, *tensors)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, *grads):
        out_grad, final_grad, *tensors = ctx.saved_tensors
        problem, needs = ctx.problem, ctx.needs
        asked = ctx.needs_input_grad
        given = [*tensors[:10], out_grad, final_grad]
        moves = [*asked[5:15], asked[1], asked[2]]
        at = [x for x, m in zip(given, moves) if m]
        if not at or all(g is None for g in grads):
            return (None,) * len(asked)

        def adjoint(*moved):
            rest = iter(moved)
            *now, out_g, final_g = (next(rest) if m else x for x, m in zip(given, moves))
            return _composed_adjoint((*now, tensors[10]), out_g, final_g, problem, needs)

        out, pull = torch.func.vjp(adjoint, *at)
        rest = iter(
            pull(tuple(torch.zeros_like(x) if g is None else g for x, g in zip(out, grads)))
        )
        *of_tensors, of_out, of_final = (next(rest) if m else None for m in moves)
        return None, of_out, of_final, None, None, *of_tensors, None


def _composed_adjoint(tensors, out_grad, final_grad, problem, needs):
    *given, resets = tensors

    def value(*moved):
        rest = iter(moved)
        now = (next(rest) if need else x for x, need in zip(given, needs))
        return composed(*now, resets, problem)

    out, pull = torch.func.vjp(value, *(x for x, need in zip(given, needs) if need))
    cotangents = tuple(
        torch.zeros_like(x) if g is None else g.expand(x.shape)
        for x, g in zip(out, (out_grad, final_grad))
    )
    return pull(cotangents)


def _adjoint(checkpoints, out_grad, final_grad, problem, needs, *tensors):
    """The gradients that are needed. They are composed in forward mode and batches, which may have
    begun after the call."""
    if _is_composed(out_grad, final_grad, *tensors):
        return _composed_adjoint(tensors, out_grad, final_grad, problem, needs)
    return SelectiveAdjoint.apply(checkpoints, out_grad, final_grad, problem, needs, *tensors)


@torch.compiler.allow_in_graph
def selective(*arguments):
    """(out, final state) of tensors and options under any transformation. Wherever forward mode or
    batching is at work they are composed: the linear scan knows what PyTorch gets right."""
    tensors = arguments[:10]
    if torch.jit.is_tracing():  # which records operators alone
        return selective_op(*arguments, False)[:2]
    if not is_recorded(*tensors):
        return run_below(selective_op, *arguments, False)[:2]
    return _recorded(*arguments)[:2]


def _recorded(*arguments):
    """(out, final state, checkpoints or None)"""
    *tensors, resets, softplus, reverse = arguments
    problem = SelectiveProblem(softplus, reverse)
    if _is_composed(*tensors):
        return *composed(*tensors, resets, problem), None
    return Selective.apply(*tensors, resets, problem)


def _kernel(*arguments):
    """The results of the operator: checkpoints that are not to be kept are empty."""
    *arguments, keep = arguments
    out, final, checkpoints = _recorded(*arguments)
    if checkpoints is None or not keep:
        # Composed, as the adjoint will be, which has no use for them.
        checkpoints = checkpoints_like(arguments[0], arguments[2], keep).fill_(torch.nan)
    return out, final, checkpoints


def _adjoint_kernel(*arguments):
    """The results of the operator: gradients that are not wanted are empty."""
    tensors, (checkpoints, out_grad, final_grad, *options, wanted) = arguments[:11], arguments[11:]
    problem = SelectiveProblem(*options)
    out = iter(_adjoint(checkpoints, out_grad, final_grad, problem, tuple(wanted), *tensors))
    empty = tensors[0].new_empty((0,))
    return tuple(next(out) if is_wanted else empty for is_wanted in wanted)


differentiate(selective_op, _kernel)
differentiate(selective_vjp_op, _adjoint_kernel)

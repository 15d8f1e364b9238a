# SPDX-License-Identifier: BSD-3-Clause
"""``linear_scan`` in PyTorch: its three operators, and functions that differentiate into one
another.

======= ========================================== ===========================
         in forward mode                            in reverse mode
======= ========================================== ===========================
Scan    Tangent                                    Adjoint
Tangent Tangent, of what its operands contribute   Adjoint
Adjoint Adjoint, of what its operands contribute   Tangent
======= ========================================== ===========================

All tensors have the rank of the shape of the call, with extent 1 wherever they broadcast; states at
the edges have extent 1 in time, and resets may have one step more. The adjoint takes the shapes of
the gradients; one of shape None is not computed. Gradients are PyTorch's: conjugates of the
derivative.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch
from torch.autograd import Function, forward_ad

from ..._torch.modes import is_eager, is_recorded, levels
from ..._torch.operators import (
    check_shapes,
    define,
    edge_dtype,
    edge_of,
    empty,
    run_below,
    run_native,
    scan_problem,
    views_of,
)
from ..spec import is_edge
from .spec import LINEAR

__all__ = ["Problem", "Scan", "adjoint", "adjoint_kernel", "jvp_op", "scan", "scan_kernel"]
__all__ += ["scan_op", "tangent_kernel", "tangent_of", "vjp_op"]


class Problem(NamedTuple):
    """The shape and the options of a call."""

    shape: tuple[int, ...]
    axis: int
    reverse: bool

    @property
    def edge(self):
        return edge_of(self.shape, self.axis)

    @property
    def steps(self):
        return self.shape[self.axis]


# ---- operators -----------------------------------------------------------------------------------


def _split(call, arguments):
    """Returns tensors by name, (shape, axis, reverse), and the further options."""
    count = len(call.reads)
    tensors, problem = arguments[:count], arguments[count : count + 3]
    return dict(zip(call.reads, tensors)), problem, arguments[count + 3 :]


def _results(call, gate, shape, axis, shapes):
    """Returns uninitialised results; `shapes` are those of an adjoint."""
    if call is LINEAR.vjp:
        return tuple(empty(gate, of, edge=is_edge(n)) for n, of in zip(call.writes, shapes))
    return empty(gate, shape), empty(gate, edge_of(shape, axis), edge=True)


def _fake(call, *arguments):
    tensors, (shape, axis, _), options = _split(call, arguments)
    return _results(call, tensors["gate"], shape, axis, options[:3])


def _run(call, *arguments):
    tensors, (shape, axis, reverse), options = _split(call, arguments)
    gate = tensors["gate"]
    results = written = _results(call, gate, shape, axis, options[:3])
    if call is LINEAR.vjp:
        written = [x if of is not None else None for x, of in zip(results, options)]
    logarithms = 0 if call is LINEAR.jvp else options[-1]

    def describe():
        check_shapes(LINEAR.name, tensors, shape, axis)
        views = views_of(call.arrays, (*tensors.values(), *written))
        problem = scan_problem(gate, tensors["resets"], shape, axis, reverse)
        return views, None, problem | {"logarithms": logarithms}

    options = (tuple(shape), axis, reverse, logarithms)
    run_native(call.name, (*tensors.values(), *written), options, describe, (call.name, {}))
    return results


def _define(call, required, options=""):
    problem = "SymInt[] shape, int axis, bool reverse"
    kernels = partial(_run, call), partial(_fake, call)
    return define(call, required, problem + options, len(call.writes), *kernels)


scan_op = _define(LINEAR.value, ("gate", "input"), ", int logarithms")
jvp_op = _define(LINEAR.jvp, ("gate",))
vjp_op = _define(
    LINEAR.vjp,
    ("gate",),
    ", SymInt[]? gate_shape, SymInt[]? input_shape, SymInt[]? initial_shape, int logarithms",
)

# ---- functions -----------------------------------------------------------------------------------


def _batched(function, info, dims, args):
    """The vmap rule of all three: one more axis in front."""
    *tensors, problem = args
    wide = Problem((info.batch_size, *problem.shape), problem.axis + 1, problem.reverse)
    moved = [
        None if x is None else x.unsqueeze(0) if d is None else x.movedim(d, 0)
        for x, d in zip(tensors, dims)
    ]
    out = function.apply(*moved, wide)
    return out, tuple(0 for _ in out)


class Scan(Function):
    """(gate, input, initial_state, resets, problem) -> (state, final_state)"""

    @staticmethod
    def forward(gate, input, initial, resets, problem):
        return run_below(scan_op, gate, input, initial, resets, *problem, 0)

    @staticmethod
    def setup_context(ctx, inputs, output):
        gate, input, initial, resets, ctx.problem = inputs
        of_gate = (output[0], initial) if ctx.needs_input_grad[0] else (None, None)
        ctx.save_for_backward(gate, *of_gate, resets)
        if not is_eager():
            ctx.save_for_forward(gate, output[0], initial, resets)
        ctx.shapes = (gate.shape, input.shape, None if initial is None else initial.shape)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, state_grad, final_grad):
        gate, state, initial, resets = ctx.saved_tensors
        wanted = _shapes(ctx.needs_input_grad[:3], ctx.shapes)
        return (
            *adjoint(gate, state, initial, resets, state_grad, final_grad, ctx.problem, wanted),
            *(None, None),
        )

    @staticmethod
    def jvp(ctx, gate_tangent, input_tangent, initial_tangent, *_):
        gate, state, initial, resets = ctx.saved_tensors
        tangents = (gate_tangent, input_tangent, initial_tangent)
        return tangent_of(gate, state, initial, resets, *tangents, ctx.problem)

    @staticmethod
    def vmap(info, dims, *args):
        return _batched(Scan, info, dims, args)


class EagerScan(Function):
    """The same without transformations of torch.func, whose functions take 35 us longer."""

    @staticmethod
    def forward(ctx, *arguments):
        output = Scan.forward(*arguments)
        Scan.setup_context(ctx, arguments, output)
        return output

    backward = Scan.backward


class Tangent(Function):
    """(gate, state, initial_state, resets, gate_tangent, input_tangent, initial_tangent, problem)
    -> (state_tangent, final_tangent)"""

    @staticmethod
    def forward(gate, state, initial, resets, gate_t, input_t, initial_t, problem):
        tangents = gate_t, input_t, initial_t
        return run_below(jvp_op, gate, initial, resets, state, *tangents, *problem)

    @staticmethod
    def setup_context(ctx, inputs, output):
        *tensors, ctx.problem = inputs
        gate, state, initial, resets, gate_t, input_t, initial_t = tensors
        needs = ctx.needs_input_grad
        of_gate = (output[0], initial_t) if needs[0] else (None, None)
        of_gate_tangent = (state, initial) if needs[4] else (None, None)
        of_states = gate_t if needs[1] or needs[2] else None
        ctx.save_for_backward(gate, resets, *of_gate, *of_gate_tangent, of_states)
        ctx.save_for_forward(*tensors, output[0])
        ctx.shapes = tuple(None if x is None else x.shape for x in tensors)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, tangent_grad, final_grad):
        if tangent_grad is None and final_grad is None:
            return (None,) * 8
        gate, resets, tangent, initial_t, state, initial, gate_t = ctx.saved_tensors
        needs = ctx.needs_input_grad
        wanted = _shapes(needs[4:7], ctx.shapes[4:])
        if any(needs[:3]):  # these read the gradient of the input, of every step
            wanted = (wanted[0], ctx.problem.shape, wanted[2])
        gate_g, pulled, initial_g = adjoint(
            gate, state, initial, resets, tangent_grad, final_grad, ctx.problem, wanted
        )
        others = (None, None, None)
        if any(needs[:3]):
            others = _met(
                needs[:3], pulled, ctx.shapes[:3], gate.dtype, resets, tangent, gate_t, initial_t,
                ctx.problem,
            )  # fmt: skip
        input_g = _summed(pulled, ctx.shapes[5]) if needs[5] else None
        return *others, None, gate_g, input_g, initial_g, None

    @staticmethod
    def jvp(ctx, gate_d, state_d, initial_d, _, gate_td, input_td, initial_td, __):
        gate, state, initial, resets, gate_t, _, initial_t, tangent = ctx.saved_tensors
        problem, dtype = ctx.problem, edge_dtype(gate.dtype)
        come = None if input_td is None else input_td.to(dtype)
        if gate_td is not None:
            come = _plus(
                come, gate_td.to(dtype) * _before(state, initial, problem, dtype), resets, problem
            )
        if gate_t is not None and (state_d is not None or initial_d is not None):
            before = _before(state_d, initial_d, problem, dtype)
            come = _plus(come, gate_t.to(dtype) * before, resets, problem)
        come = None if come is None else come.to(gate.dtype)
        return tangent_of(gate, tangent, initial_t, resets, gate_d, come, initial_td, problem)

    @staticmethod
    def vmap(info, dims, *args):
        return _batched(Tangent, info, dims, args)


class Adjoint(Function):
    """(gate, state, initial_state, resets, state_grad, final_grad, problem and shapes) -> the
    gradients whose shapes are given, of gate, input, initial state."""

    @staticmethod
    def forward(gate, state, initial, resets, state_grad, final_grad, call):
        problem, shapes = call
        tensors = gate, None, initial, resets, state, state_grad, final_grad
        out = run_below(vjp_op, *tensors, *problem, *shapes, 0)
        return tuple(x for x, shape in zip(out, shapes) if shape is not None)

    @staticmethod
    def setup_context(ctx, inputs, output):
        *tensors, (ctx.problem, ctx.shapes) = inputs
        gate, state, initial, resets, state_grad, final_grad = tensors
        # A cotangent of the gate's gradient reads states; gradients of what those meet read the
        # cotangents.
        of_gate = (state, initial) if ctx.shapes[0] is not None else (None, None)
        met = (state_grad, final_grad) if any(ctx.needs_input_grad[:3]) else (None, None)
        ctx.save_for_backward(gate, *of_gate, resets, *met)
        ctx.save_for_forward(*tensors)
        ctx.operands = tuple(None if x is None else x.shape for x in tensors)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, *grads):
        gate, state, initial, resets, state_grad, final_grad = ctx.saved_tensors
        problem, needs = ctx.problem, ctx.needs_input_grad
        of_gate, of_input, of_initial = _by_place(grads, ctx.shapes)
        if of_gate is None and of_input is None and of_initial is None:
            return (None,) * 7
        tangent, final = tangent_of(
            gate, state, initial, resets, of_gate, of_input, of_initial, problem
        )
        others = (None, None, None)
        if any(needs[:3]):
            _, pulled, _ = adjoint(
                gate,
                None,
                None,
                resets,
                state_grad,
                final_grad,
                problem,
                (None, problem.shape, None),
            )
            others = _met(
                needs[:3], pulled, ctx.operands[:3], gate.dtype, resets, tangent, of_gate,
                of_initial, problem,
            )  # fmt: skip
        of_states = _summed(tangent, ctx.operands[4]) if needs[4] else None
        return (
            *others,
            None,
            of_states,
            _summed(final, ctx.operands[5]) if needs[5] else None,
            None,
        )

    @staticmethod
    def jvp(ctx, gate_d, state_d, initial_d, _, state_gd, final_gd, __):
        gate, state, initial, resets, state_grad, final_grad = ctx.saved_tensors
        problem, shapes, dtype = ctx.problem, ctx.shapes, edge_dtype(gate.dtype)
        full = problem.shape

        def pull(state_g, final_g):
            wanted = (None, full, problem.edge)
            return adjoint(gate, None, None, resets, state_g, final_g, problem, wanted)[1:]

        pulled = pull(state_grad, final_grad)[0].to(dtype)
        come, first = None if state_gd is None else state_gd.to(dtype), None
        if gate_d is not None:
            met = _linked(gate_d.to(dtype).conj() * pulled, resets, problem)
            shifted = _shifted(met, met.new_zeros(problem.edge), problem, back=not problem.reverse)
            come = shifted if come is None else come + shifted
            first = _first(met, problem)
        if come is None and final_gd is None:  # states alone move, which the scan does not see
            moved, at_edge = torch.zeros_like(pulled), pulled.new_zeros(problem.edge)
        else:
            moved, at_edge = pull(None if come is None else come.to(gate.dtype), final_gd)
            moved = moved.to(dtype)
        of_gate = None
        if shapes[0] is not None:
            of_gate = moved * _before(state, initial, problem, dtype).conj()
            if state_d is not None or initial_d is not None:
                of_gate = of_gate + pulled * _before(state_d, initial_d, problem, dtype).conj()
            of_gate = _linked(of_gate, resets, problem).to(gate.dtype)
        if first is not None:
            at_edge = at_edge + first
        out = (of_gate, moved.to(gate.dtype), at_edge)
        return tuple(_summed(x, shape) for x, shape in zip(out, shapes) if shape is not None)

    @staticmethod
    def vmap(info, dims, *args):
        *tensors, (problem, shapes) = args
        wide = tuple(None if s is None else (info.batch_size, *s) for s in shapes)
        return _batched(_WithShapes(wide), info, dims, (*tensors, problem))


class _WithShapes:
    """The adjoint for results of these shapes."""

    def __init__(self, shapes):
        self.shapes = shapes

    def apply(self, *args):
        *tensors, problem = args
        return Adjoint.apply(*tensors, (problem, self.shapes))


def _check_forward_mode():
    """Refuses nested levels of forward mode, of which PyTorch's rule for functions gets values
    wrong. A scan is taken apart for these; a recorded derivative of one is not."""
    if levels().count("Jvp") > 1:
        raise NotImplementedError(
            "linear_scan: PyTorch gets two levels of forward mode of a recorded derivative wrong; "
            "use reverse mode for one of them"
        )


def tangent_kernel(gate, initial, resets, state, gate_t, input_t, initial_t, problem):
    """The tangent of a recorded program."""
    _check_forward_mode()
    return Tangent.apply(gate, state, initial, resets, gate_t, input_t, initial_t, problem)


def adjoint_kernel(gate, initial, resets, state, state_grad, final_grad, problem, shapes):
    """The gradients of a recorded program whose shapes are given."""
    _check_forward_mode()
    return Adjoint.apply(gate, state, initial, resets, state_grad, final_grad, (problem, shapes))


def adjoint(gate, state, initial, resets, state_grad, final_grad, problem, shapes):
    """The gradients of gate, input and initial state; None where the shape is None."""
    if all(s is None for s in shapes):
        return None, None, None
    if shapes[0] is None:
        state = initial = None
    if state_grad is None and final_grad is None:
        return (None, None, None)
    tensors = gate, state, initial, resets, state_grad, final_grad
    if is_recorded(*tensors):
        shapes = tuple(None if s is None else tuple(s) for s in shapes)
        out = Adjoint.apply(*tensors, (problem, shapes))
    else:
        out = Adjoint.forward(*tensors, (problem, shapes))
    return _by_place(out, shapes)


def tangent_of(gate, state, initial, resets, gate_t, input_t, initial_t, problem):
    """The tangent, which reads states if the gate moves."""
    if gate_t is None:
        state = initial = None
    return Tangent.apply(gate, state, initial, resets, gate_t, input_t, initial_t, problem)


def _shapes(needs, shapes):
    return tuple(shape if need else None for need, shape in zip(needs, shapes))


def _by_place(values, shapes):
    """Values of those that have a shape, with None for the others."""
    rest = iter(values)
    return tuple(None if shape is None else next(rest) for shape in shapes)


def _met(needs, pulled, shapes, stored, resets, tangent, gate_t, initial_t, problem):
    """Second derivatives: the gradients of a tangent in gate, state and initial state, which have
    these shapes. Those of an adjoint have the cotangents of its results in place of tangents. The
    gate is stored in this type."""
    dtype = edge_dtype(stored)
    pulled = pulled.to(dtype)
    of_gate = of_state = of_initial = None
    if needs[0]:
        before = _before(tangent, initial_t, problem, dtype)
        of_gate = _linked(pulled * before.conj(), resets, problem)
        of_gate = _summed(of_gate, shapes[0]).to(stored)
    if gate_t is not None and any(needs[1:]):
        met = _linked(pulled * gate_t.to(dtype).conj(), resets, problem)
        if needs[1]:
            of_state = _shifted(met, met.new_zeros(problem.edge), problem, back=not problem.reverse)
            of_state = _summed(of_state.to(stored), shapes[1])
        if needs[2]:
            of_initial = _summed(_first(met, problem), shapes[2])
    return of_gate, of_state, of_initial


def _before(state, initial, problem, dtype):
    """Returns the state before every step; None is 0."""
    if state is None:
        state = torch.zeros((), dtype=dtype, device=initial.device)
    first = state.new_zeros((), dtype=dtype) if initial is None else initial
    return _shifted(
        state.to(dtype).expand(problem.shape),
        first.expand(problem.edge),
        problem,
        back=problem.reverse,
    )


def _shifted(x, first, problem, *, back):
    """x one step later in time, or earlier, with `first` where nothing comes in."""
    if problem.steps == 0:
        return x
    if back:
        return torch.cat([x.narrow(problem.axis, 1, problem.steps - 1), first], problem.axis)
    return torch.cat([first, x.narrow(problem.axis, 0, problem.steps - 1)], problem.axis)


def _first(x, problem):
    """Returns the first step of the scan."""
    if problem.steps == 0:
        return x.new_zeros(problem.edge)
    return x.narrow(problem.axis, problem.steps - 1 if problem.reverse else 0, 1)


def _linked(x, resets, problem):
    """Returns x, with 0 at steps that a reset separates from the one before them in the scan."""
    x = x.expand(problem.shape)
    if resets is None or problem.steps == 0:
        return x
    cut = resets
    # In a reverse scan the reset of the step after counts, or the one after the last step.
    if cut.shape[problem.axis] > problem.steps:
        cut = cut.narrow(problem.axis, 1 if problem.reverse else 0, problem.steps)
    elif problem.reverse:
        last = torch.zeros_like(cut.narrow(problem.axis, 0, 1))
        cut = _shifted(cut, last, problem, back=True)
    return torch.where(cut, torch.zeros_like(x), x)


def _plus(x, y, resets, problem):
    y = _linked(y, resets, problem)
    return y if x is None else x + y


def _summed(x, shape):
    """x summed over the axes along which something of this shape broadcasts."""
    axes = [i for i, (n, m) in enumerate(zip(x.shape, shape)) if n != m]
    return x.sum(axes, keepdim=True) if axes else x


# ---- the scan ------------------------------------------------------------------------------------


@torch.compiler.allow_in_graph
def scan(gate, input, initial_state, resets, axis, reverse):
    """The scan under any transformation. PyTorch's own rule for functions in forward mode gives
    zeros when compiled, and wrong values when nested (pytorch#192985, #197867): the innermost level
    of forward mode is taken apart here."""
    problem = Problem(tuple(input.shape), axis, reverse)
    if torch.jit.is_tracing():  # which records operators alone, with shapes that are fixed
        shape = tuple(map(int, input.shape))
        return scan_op(gate, input, initial_state, resets, shape, axis, reverse, 0)
    if not is_recorded(gate, input, initial_state):
        return run_below(scan_op, gate, input, initial_state, resets, *problem, 0)
    return scan_kernel(gate, input, initial_state, resets, problem)


def scan_kernel(gate, input, initial_state, resets, problem):
    """The scan where a derivative or a batch is recorded."""
    if is_eager():
        return EagerScan.apply(gate, input, initial_state, resets, problem)
    if not _forward_mode_innermost():
        return Scan.apply(gate, input, initial_state, resets, problem)
    split = [
        (None, None) if x is None else forward_ad.unpack_dual(x)
        for x in (gate, input, initial_state)
    ]
    (gate, input, initial_state), moved = zip(*split)
    values = Scan.apply(gate, input, initial_state, resets, problem)
    if all(tangent is None for tangent in moved):
        return values
    tangents = tangent_of(gate, values[0], initial_state, resets, *moved, problem)
    return tuple(forward_ad.make_dual(v, t) for v, t in zip(values, tangents))


def _forward_mode_innermost() -> bool:
    """Whether the innermost level of torch.func is one of forward mode. Raises where PyTorch's rule
    would meet two such levels at once, whose values are wrong."""
    kinds = levels()  # the innermost last
    forward, reverse = "Jvp", "Grad"
    at = [i for i, kind in enumerate(kinds) if kind == forward]
    if len(at) > 2 or (len(at) == 2 and reverse in kinds[at[1] :]):
        raise NotImplementedError(
            "linear_scan: PyTorch gets three levels of forward mode wrong, and two over reverse "
            "mode; use reverse mode for one of them"
        )
    return bool(kinds) and kinds[-1] == forward

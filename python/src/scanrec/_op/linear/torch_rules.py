# SPDX-License-Identifier: BSD-3-Clause
"""``linear_scan`` in PyTorch: its three operators, and autograd functions that compute the
derivatives of one another.

The value (the forward computation), the tangent and the adjoint of a scan are operators. The
tangent and the adjoint also have compositions: elementwise operations and a scan that compute the
same results. Their derivatives are the derivatives of these compositions. If forward mode
differentiates a tangent or an adjoint, the composition runs instead of the operator.

All tensors have the rank of the problem, with extent 1 wherever they broadcast. Boundary states
(initial and final states) have extent 1 in time. Resets may have one step more than the input. The
adjoint takes the shapes of the gradients. It does not compute a gradient whose shape is None.
Gradients follow PyTorch: they are conjugates of the derivative.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function

from ..._torch.fused import eager, in_front, spread, vjp_of
from ..._torch.modes import (
    forward_ad,
    in_graph,
    is_eager,
    is_pushed,
    is_recorded,
    is_tracing,
    levels,
)
from ..._torch.operators import (
    Arrays,
    Described,
    boundary_dtype,
    boundary_of,
    define,
    describe_scan,
    empty,
    run_below,
    run_native,
)
from ..._torch.types import Maybe, Tensors
from ..spec import Call, is_boundary
from .spec import LINEAR

__all__ = [
    *("Problem", "Scan", "Scanned", "adjoint", "composed_tangent", "describe", "jvp_op", "scan"),
    *("scan_kernel", "scan_op", "summed", "tangent_of", "vjp_op"),
]

Shape = Sequence[int]
Shapes = Sequence[Shape | None]
#: The states and the final state of a scan, or the tangents of both.
Pair = tuple[Tensor, Tensor]


class Scanned(NamedTuple):
    """The arrays of a scan that its derivatives read, in the order of the native calls."""

    gate: Tensor
    initial: Maybe
    resets: Maybe
    state: Maybe

    def without_states(self) -> Scanned:
        """The arrays without states, for derivatives that are not with respect to the gate."""
        return self._replace(state=None, initial=None)


class Problem(NamedTuple):
    """The shape and the options of a call."""

    shape: tuple[int, ...]
    axis: int
    reverse: bool
    logarithms: int = 0  #: a bit for each operand that holds logarithms

    @property
    def boundary(self) -> tuple[int, ...]:
        return boundary_of(self.shape, self.axis)

    @property
    def steps(self) -> int:
        return self.shape[self.axis]

    def batched(self, size: int) -> Problem:
        """The problem of tensors with a batch axis in front."""
        return self._replace(shape=(size, *self.shape), axis=self.axis + 1)


# ---- operators -----------------------------------------------------------------------------------


def describe(arrays: Arrays, problem: Problem) -> Described:
    """Describe a native call on these arrays. The gate is present."""
    gate: Any = arrays["gate"]
    views, dtypes, fields = describe_scan(LINEAR.name, arrays, problem, gate.dtype)
    return views, dtypes, fields | {"logarithms": problem.logarithms}


def _results(
    call: Call, arrays: Arrays, is_fake: bool, shape: Shape, axis: int, *options: Any
) -> Tensors:
    """Return the results of a native call. The options of an adjoint end with the shapes of its
    results."""
    shapes = options[2:] if call is LINEAR.vjp else (shape, boundary_of(shape, axis))
    gate: Any = arrays["gate"]
    results = [
        None if of is None else empty(gate, of, boundary=is_boundary(name))
        for name, of in zip(call.writes, shapes)
    ]
    if not is_fake:
        arrays.update(zip(call.writes, results))
        problem = Problem(tuple(shape), axis, *options[:2])
        run_native(call, arrays, problem, describe, (call.name, {}))
    return results


def _define(call: Call, required: Sequence[str], options: str = "") -> Any:
    problem = "SymInt[] shape, int axis, bool reverse"
    return define(call, required, problem + options, _results)


scan_op = _define(LINEAR.value, ("gate", "input"), ", int logarithms")
jvp_op = _define(LINEAR.jvp, ("gate",))
vjp_op = _define(
    LINEAR.vjp,
    ("gate",),
    ", int logarithms, SymInt[]? gate_shape, SymInt[]? input_shape, SymInt[]? initial_shape",
)

# ---- functions -----------------------------------------------------------------------------------


class Scan(Function):
    """(gate, input, initial_state, resets, problem) -> (state, final_state)"""

    @staticmethod
    def forward(
        gate: Tensor, input: Tensor, initial: Maybe, resets: Maybe, problem: Problem
    ) -> Any:
        return run_below(scan_op, gate, input, initial, resets, *problem)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        gate, input, initial, resets, ctx.problem = inputs
        of = Scanned(gate, initial, resets, output[0])
        ctx.save_for_backward(*(of if ctx.needs_input_grad[0] else of.without_states()))
        if not is_eager():
            ctx.save_for_forward(*of)
        ctx.shapes = (gate.shape, input.shape, None if initial is None else initial.shape)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *cotangents: Maybe) -> tuple[Maybe, ...]:
        wanted = [shape if need else None for shape, need in zip(ctx.shapes, ctx.needs_input_grad)]
        found = adjoint(Scanned(*ctx.saved_tensors), cotangents, ctx.problem, wanted)
        return *found, None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        return tangent_of(Scanned(*ctx.saved_tensors), tangents[:3], ctx.problem)

    @staticmethod
    def vmap(info: Any, dims: Any, *args: Any) -> Any:
        *tensors, problem = args
        return Scan.apply(*in_front(tensors, dims), problem.batched(info.batch_size)), (0, 0)


_EagerScan = eager(Scan)


class Tangent(Function):
    """(gate, initial_state, resets, state, gate_tangent, input_tangent, initial_tangent, problem)
    -> (state_tangent, final_tangent)"""

    @staticmethod
    def forward(*arguments: Any) -> Any:
        *tensors, problem = arguments
        return run_below(jvp_op, *tensors, *problem[:3])

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        *tensors, ctx.problem = inputs
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Maybe) -> tuple[Maybe, ...]:
        of = lambda *x: composed_tangent(Scanned(*x[:4]), x[4:], ctx.problem)
        return *vjp_of(of, ctx.saved_tensors, ctx.needs_input_grad, grads), None

    @staticmethod
    def vmap(info: Any, dims: Any, *args: Any) -> Any:
        x, problem = in_front(args[:-1], dims), args[-1].batched(info.batch_size)
        return tangent_of(Scanned(*x[:4]), x[4:], problem), (0, 0)


class Adjoint(Function):
    """(gate, initial_state, resets, state, state_grad, final_grad, problem, shapes) -> the
    gradients of gate, input and initial state whose shapes are not None"""

    @staticmethod
    def forward(*arguments: Any) -> tuple[Tensor, ...]:
        gate, *others, problem, shapes = arguments
        out = run_below(vjp_op, gate, None, *others, *problem, *shapes)
        return tuple(x for x, shape in zip(out, shapes) if shape is not None)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        *tensors, state_grad, final_grad, ctx.problem, ctx.shapes = inputs
        cotangents = state_grad, final_grad
        # The adjoint is linear in the cotangents: gradients with respect to them do not read them.
        read = cotangents if any(ctx.needs_input_grad[:4]) else (None, None)
        ctx.save_for_backward(*tensors, *read)
        ctx.cotangents = [None if x is None else (x.shape, x.dtype) for x in cotangents]
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Maybe) -> tuple[Maybe, ...]:
        tensors = list(ctx.saved_tensors)
        for i, like in enumerate(ctx.cotangents, 4):
            if tensors[i] is None and like is not None:
                shape, dtype = like
                tensors[i] = tensors[0].new_zeros((), dtype=dtype).expand(shape)
        of = lambda *x: _composed_adjoint(Scanned(*x[:4]), x[4:], ctx.problem, ctx.shapes)
        return *vjp_of(of, tensors, ctx.needs_input_grad, grads), None, None

    @staticmethod
    def vmap(info: Any, dims: Any, *args: Any) -> Any:
        *tensors, problem, shapes = args
        x, problem = in_front(tensors, dims), problem.batched(info.batch_size)
        wide = [None if s is None else (info.batch_size, *s) for s in shapes]
        found = adjoint(Scanned(*x[:4]), x[4:], problem, wide)
        out = tuple(g for g in found if g is not None)
        return out, (0,) * len(out)


def adjoint(of: Scanned, cotangents: Tensors, problem: Problem, shapes: Shapes) -> list[Maybe]:
    """The gradients of gate, input and initial state. A gradient is None if its shape is None. All
    are None if both cotangents are absent."""
    if all(s is None for s in shapes) or all(g is None for g in cotangents):
        return [None] * 3
    if shapes[0] is None:
        of = of.without_states()
    tensors = *of, *cotangents
    if not is_recorded(*tensors):
        found = Adjoint.forward(*tensors, problem, shapes)
    elif is_pushed(*tensors):
        found = _composed_adjoint(of, cotangents, problem, shapes)
    else:
        shapes = tuple(None if s is None else tuple(s) for s in shapes)
        found = Adjoint.apply(*tensors, problem, shapes)
    return spread(found, [shape is not None for shape in shapes])


def tangent_of(of: Scanned, tangents: Tensors, problem: Problem) -> Pair:
    """The tangent, which reads states if the gate has a tangent."""
    if tangents[0] is None:
        of = of.without_states()
    # An outer level of forward mode differentiates the tangent, but Tangent has no jvp.
    if levels().count("Jvp") > 1:
        return composed_tangent(of, tangents, problem)
    tangent, final = Tangent.apply(*of, *tangents, problem)
    return tangent, final


# ---- compositions --------------------------------------------------------------------------------


def composed_tangent(of: Scanned, tangents: Tensors, problem: Problem) -> Pair:
    """The tangent as a scan. Its input is gate_t * previous state + input_t."""
    gate, dtype = of.gate, boundary_dtype(of.gate.dtype)
    gate_t, input_t, initial_t = tangents
    input = gate.new_zeros((), dtype=dtype) if input_t is None else input_t.to(dtype)
    if gate_t is not None:
        before = _before(of.state, of.initial, problem, gate)
        input = input + _masked_by_resets(gate_t.to(dtype) * before, of.resets, problem)
    input = input.expand(problem.shape)
    gate = gate.to(dtype)
    tangent, final = scan(gate, input, initial_t, of.resets, problem.axis, problem.reverse)
    return tangent.to(of.gate.dtype), final


def _composed_adjoint(
    of: Scanned, cotangents: Tensors, problem: Problem, shapes: Shapes
) -> tuple[Tensor, ...]:
    """The adjoint as a scan in the opposite direction, with the gates shifted by one step."""
    (shape, axis, reverse, _), (state_grad, final_grad) = problem, cotangents
    stored, dtype = of.gate.dtype, boundary_dtype(of.gate.dtype)
    zero = of.gate.new_zeros((), dtype=dtype)
    steps = [problem.steps if i == axis else -1 for i in range(len(shape))]
    gate = of.gate.to(dtype).conj().expand(steps)
    input = (zero if state_grad is None else state_grad.to(dtype)).expand(shape)
    first = (
        zero.expand(problem.boundary) if final_grad is None else final_grad.expand(problem.boundary)
    )
    if final_grad is not None:
        input = input + _shifted(zero.expand(shape), first, problem, back=not reverse)
    against = _shifted(gate, zero.expand(boundary_of(gate.shape, axis)), problem, back=not reverse)
    grad, _ = scan(against, input, None, of.resets, axis, not reverse)
    found = []
    if shapes[0] is not None:
        before = _before(of.state, of.initial, problem, of.gate)
        of_gate = _masked_by_resets(grad * before.conj(), of.resets, problem)
        found.append(summed(of_gate, shapes[0]).to(stored))
    if shapes[1] is not None:
        found.append(summed(grad, shapes[1]).to(stored))
    if shapes[2] is not None:
        if problem.steps > 0:
            of_states = _masked_by_resets(gate * grad, of.resets, problem)
            # A view would keep the memory of all steps alive.
            first = of_states.narrow(axis, problem.steps - 1 if reverse else 0, 1).clone()
        found.append(summed(first, shapes[2]))
    return tuple(found)


def _before(state: Maybe, initial: Maybe, problem: Problem, like: Tensor) -> Tensor:
    """Return the state before every step of the scan, in the type of boundary states. Absent states
    are 0."""
    dtype = boundary_dtype(like.dtype)
    zero = like.new_zeros((), dtype=dtype)
    states = (zero if state is None else state.to(dtype)).expand(problem.shape)
    first = (zero if initial is None else initial).expand(problem.boundary)
    return _shifted(states, first, problem, back=problem.reverse)


def _shifted(x: Tensor, first: Tensor, problem: Problem, *, back: bool) -> Tensor:
    """Move x one step later in time, or earlier with `back`. The free step gets `first`."""
    if problem.steps == 0:
        return x
    if back:
        return torch.cat([x.narrow(problem.axis, 1, problem.steps - 1), first], problem.axis)
    return torch.cat([first, x.narrow(problem.axis, 0, problem.steps - 1)], problem.axis)


def _masked_by_resets(x: Tensor, resets: Maybe, problem: Problem) -> Tensor:
    """Return x, with 0 at steps that a reset separates from the previous step of the scan."""
    x = x.expand(problem.shape)
    if resets is None or problem.steps == 0:
        return x
    reset = resets
    # In a reverse scan, the reset of step t + 1 separates step t from step t + 1.
    if reset.shape[problem.axis] > problem.steps:
        reset = reset.narrow(problem.axis, 1 if problem.reverse else 0, problem.steps)
    elif problem.reverse:
        last = torch.zeros_like(reset.narrow(problem.axis, 0, 1))
        reset = _shifted(reset, last, problem, back=True)
    return torch.where(reset, torch.zeros_like(x), x)


def summed(x: Tensor, shape: Shape) -> Tensor:
    """x summed over the axes along which an array of this shape broadcasts."""
    axes = [i for i, (n, m) in enumerate(zip(x.shape, shape)) if n != m]
    return x.sum(axes, keepdim=True) if axes else x


# ---- the scan ------------------------------------------------------------------------------------


@in_graph
def scan(
    gate: Tensor, input: Tensor, initial: Maybe, resets: Maybe, axis: int, reverse: bool
) -> Pair:
    """The scan under any transformation.

    In forward mode, PyTorch's own rule for autograd functions gives zeros when compiled, and wrong
    values when nested (pytorch#192985, #197867). If forward mode is the innermost transformation,
    ``scan_kernel`` therefore computes the tangents of this level itself.
    """
    problem, tensors = Problem(tuple(input.shape), axis, reverse), (gate, input, initial, resets)
    if is_tracing():  # torch.jit.trace records only operators, with fixed shapes
        state, final = scan_op(*tensors, tuple(map(int, input.shape)), axis, reverse, 0)
    elif not is_recorded(gate, input, initial):
        state, final = run_below(scan_op, *tensors, *problem)
    else:
        state, final = scan_kernel(*tensors, problem)
    return state, final


def scan_kernel(
    gate: Tensor, input: Tensor, initial: Maybe, resets: Maybe, problem: Problem
) -> Pair:
    """The scan under differentiation or vmap, by autograd functions."""
    if is_eager():
        state, final = _EagerScan.apply(gate, input, initial, resets, problem)
        return state, final
    primal_tangents: Any = ()
    if _forward_mode_innermost():
        duals = [
            (None, None) if x is None else forward_ad.unpack_dual(x) for x in (gate, input, initial)
        ]
        (gate, input, initial), primal_tangents = zip(*duals)
    state, final = Scan.apply(gate, input, initial, resets, problem)
    if all(tangent is None for tangent in primal_tangents):
        return state, final
    tangents = tangent_of(Scanned(gate, initial, resets, state), primal_tangents, problem)
    state, final = (forward_ad.make_dual(x, t) for x, t in zip((state, final), tangents))
    return state, final


def _forward_mode_innermost() -> bool:
    """Whether the innermost transformation of torch.func is forward mode. Raises
    NotImplementedError if PyTorch's rule would handle two nested levels of forward mode: it gives
    wrong values for them."""
    kinds = levels()  # the innermost last
    forward, reverse = "Jvp", "Grad"
    at = [i for i, kind in enumerate(kinds) if kind == forward]
    if len(at) > 2 or (len(at) == 2 and reverse in kinds[at[1] :]):
        raise NotImplementedError(
            "linear_scan: PyTorch gives wrong values for three levels of forward mode, and for two "
            "over reverse mode; use reverse mode for one of them"
        )
    return bool(kinds) and kinds[-1] == forward

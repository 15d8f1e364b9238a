# SPDX-License-Identifier: BSD-3-Clause
"""Derivatives of operations whose value (the forward computation) and adjoint are operators.

A :class:`Fused` operation runs these two operators. All other derivatives, and batches for which
the operators have no axis, use the composed value: a function that computes the results by other
PyTorch operations. The value keeps residuals for the adjoint. They are functions of the operands,
so the composed value ignores them, and they have no gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, get_type_hints

import torch
from torch import Tensor
from torch.autograd import Function

from .._op.spec import Call, Operation
from .modes import alive, is_eager, is_pushed, is_recorded, is_tracing, levels
from .operators import Arrays, define, differentiate, none_as_empty, run_below
from .types import Maybe, Tensors

__all__ = ["Fused"]

Needs = Sequence[bool]

#: The types of the fields of problems in operator schemas.
_SCHEMAS = {tuple[int, ...]: "SymInt[]", int: "int", bool: "bool", float: "float"}


class Fused:
    """Base class of the derivatives of an operation.

    In all methods, ``problem`` is a named tuple of options. ``tensors`` are the operands in order,
    None for absent ones; only :meth:`new` has them by name.
    """

    operation: Operation
    #: The class of problems.
    problem: Any
    #: The operands that are never absent. The first operand is one of them.
    required: Collection[str]

    def __init__(self) -> None:
        self.operands = len(self.operation.operands)
        self.results = len(self.operation.results)
        operands = self.operation.operands
        self.primals = [operands.index(name) for name in self.operation.differentiable]
        self.value, self.adjoint = self.operators()
        self._value, self._eager, self._adjoint = _functions(self)

    # ---- defined by each operation ---------------------------------------------------------------

    def new(self, problem: Any, tensors: Arrays, name: str) -> Tensor:
        """Return an uninitialised result, residual or gradient of this name."""
        raise NotImplementedError

    def kernel(self, call: Call, problem: Any, arrays: Arrays) -> None:
        """Run the value or the adjoint on named arrays, which include those that it writes. Results
        that are not wanted are None."""
        raise NotImplementedError

    def composed(self, problem: Any, *tensors: Any) -> tuple[Tensor, ...]:
        """Compute the results by other operations."""
        raise NotImplementedError

    def keeps(self, problem: Any, tensors: Tensors, needs: Needs) -> bool:
        """Whether the value must write residuals besides the results, given which differentiable
        operands need gradients."""
        return len(self.operation.value.writes) > self.results

    def residuals(self, problem: Any, out: Tensors, keep: bool, needs: Needs) -> Tensors:
        """Return the residuals that the adjoint reads for these gradients."""
        written = self.operation.value.writes
        return [out[written.index(name)] for name in self.operation.residuals]

    def saved(self, problem: Any, tensors: Tensors, needs: Needs) -> Tensors:
        """Return the operands to save, with None for operands that no derivative reads."""
        return tensors

    def restored(self, problem: Any, tensors: Tensors) -> Tensors:
        """Return the operands, given those that were saved. The others may have any values."""
        return tensors

    def batched(self, problem: Any, size: int) -> Any:
        """Return the problem of tensors with a batch axis in front, or None if batches run
        ``composed``."""
        return None

    def kept(self, problem: Any, keep: bool) -> Sequence[bool]:
        """Return which of the residuals, the last results of the operator, are written."""
        return [keep] * (len(self.operation.value.writes) - self.results)

    def apart(self, problem: Any, index: int, residual: Maybe) -> Maybe:
        """Return a flat residual in its full shape, so that a batch axis can be put in front."""
        return residual

    # ---- the call --------------------------------------------------------------------------------

    def run(self, problem: Any, *tensors: Maybe) -> tuple[Tensor, ...]:
        """Return the results under any transformation. Operations call this method in a function
        that ``torch.compile`` does not trace into."""
        if is_tracing():  # torch.jit.trace records only operators
            if hasattr(problem, "shape"):  # make its extents integers
                problem = problem._replace(shape=tuple(map(int, problem.shape)))
            out = self.value(*tensors, *problem, False)
        elif not is_recorded(*tensors):
            out = run_below(self.value, *tensors, *problem, False)
        else:
            out = self.recorded(problem, False, tensors)
        return tuple(out[: self.results])

    def recorded(self, problem: Any, keep: bool, tensors: Tensors) -> tuple[Tensor, ...]:
        """Return the results under differentiation or vmap. The residuals follow them, unless the
        composed value computes the results."""
        if self.is_composed(*tensors):
            return self.composed(problem, *tensors)
        # Under torch.func, an operand may need a gradient in any of the nested transformations.
        transformed = bool(levels())
        primals = [tensors[i] for i in self.primals]
        needs = [transformed or (x is not None and x.requires_grad) for x in primals]
        keep = keep or self.keeps(problem, tensors, needs)
        function = self._eager if is_eager() else self._value
        return tuple(function.apply(problem, keep, *tensors))

    def gradients(
        self, problem: Any, needs: Needs, tensors: Tensors, residuals: Tensors, cotangents: Tensors
    ) -> list[Maybe]:
        """Return the gradients of the differentiable operands, None where they are not needed. The
        composed value computes them if a transformation that is active now needs it."""
        arguments = problem, needs, *tensors, *residuals, *cotangents
        if self.is_composed(*tensors, *cotangents):
            found = self.composed_gradients(problem, needs, tensors, cotangents)
        elif is_recorded(*tensors, *cotangents):
            found = self._adjoint.apply(*arguments)
        else:
            found = self._adjoint.forward(*arguments)
        return spread(found, needs)

    def is_composed(self, *tensors: Maybe) -> bool:
        """Whether a call needs the composed value: in forward mode, and under vmap if the operators
        have no batch axis."""
        if is_eager():
            return False
        has_no_batches = type(self).batched is Fused.batched
        return is_pushed(*tensors) or (has_no_batches and "Vmap" in levels())

    def composed_gradients(
        self, problem: Any, needs: Needs, tensors: Tensors, cotangents: Tensors
    ) -> Sequence[Tensor]:
        """Return the gradients that are needed, computed from the composed value."""
        at = {i for i, need in zip(self.primals, needs) if need}
        asked = [i in at for i in range(self.operands)]
        found = vjp_of(partial(self.composed, problem), tensors, asked, cotangents)
        return tuple(g for g in found if g is not None)

    # ---- the operators ---------------------------------------------------------------------------

    def operators(self) -> tuple[Any, Any]:
        """Define the operators of value and adjoint. Their arguments are the tensors that the call
        reads, the problem, and a last argument: for the value whether to keep residuals, for the
        adjoint which gradients are wanted."""
        fields = get_type_hints(self.problem)
        options = "".join(f"{_SCHEMAS[of]} {name}, " for name, of in fields.items())
        call, vjp, required = self.operation.value, self.operation.vjp, self.required
        value = define(call, required, f"{options}bool keep", self._results)
        adjoint = define(vjp, required, f"{options}bool[] wanted", self._results)
        differentiate(value, self._derived_value)
        differentiate(adjoint, self._derived_adjoint)
        return value, adjoint

    def problem_of(self, options: Sequence[Any]) -> Any:
        """Return the problem that an operator's options describe."""
        return self.problem(*[tuple(x) if isinstance(x, (list, tuple)) else x for x in options])

    def _results(self, call: Call, arrays: Arrays, is_fake: bool, *options: Any) -> Tensors:
        problem, wanted = self.problem_of(options[:-1]), options[-1]
        if call is self.operation.value:
            wanted = *[True] * self.results, *self.kept(problem, wanted)
        results = [
            self.new(problem, arrays, name) if is_wanted else None
            for name, is_wanted in zip(call.writes, wanted)
        ]
        if not is_fake:
            arrays.update(zip(call.writes, results))
            self.kernel(call, problem, arrays)
        return results

    def _derived_value(self, *arguments: Any) -> tuple[Tensor, ...]:
        tensors, options = arguments[: self.operands], arguments[self.operands :]
        keep = options[-1]
        out = self.recorded(self.problem_of(options[:-1]), keep, tensors)
        if keep and len(out) > self.results:
            return out
        # The composed value has no residuals, and its derivatives read none: return NaNs for them.
        call = self.operation.value
        new = self._results(call, dict(zip(call.reads, tensors)), True, *options)
        empty = none_as_empty(tensors[0], new[self.results :])
        return *out[: self.results], *(x.fill_(torch.nan) for x in empty)

    def _derived_adjoint(self, *arguments: Any) -> tuple[Tensor, ...]:
        count = len(self.operation.vjp.reads)
        tensors, (*options, wanted) = arguments[: self.operands], arguments[count:]
        residuals = arguments[self.operands : count - self.results]
        cotangents = arguments[count - self.results : count]
        needs = tuple(w and tensors[i] is not None for w, i in zip(wanted, self.primals))
        problem = self.problem_of(options)
        found = self.gradients(problem, needs, tensors, residuals, cotangents)
        return none_as_empty(tensors[0], found)


def _functions(fused: Fused) -> tuple[type[Function], type[Function], type[Function]]:
    """Make the autograd functions of an operation: the value, the value for calls outside of
    torch.func, and the adjoint."""
    operands, results = fused.operands, fused.results

    class Value(Function):
        """(problem, keep, *operands) -> (*results, *further residuals)"""

        @staticmethod
        def forward(problem: Any, keep: bool, *tensors: Maybe) -> Any:
            return run_below(fused.value, *tensors, *problem, keep)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.problem, keep, *tensors = inputs
            ctx.mark_non_differentiable(*output[results:])
            ctx.needs = tuple(ctx.needs_input_grad[2 + i] for i in fused.primals)
            residuals = fused.residuals(ctx.problem, output, keep, ctx.needs)
            saved = fused.saved(ctx.problem, tensors, ctx.needs)
            ctx.save_for_backward(*saved, *residuals)
            ctx.set_materialize_grads(False)

        @staticmethod
        def backward(ctx: Any, *grads: Maybe) -> tuple[Maybe, ...]:
            out: list[Maybe] = [None] * len(ctx.needs_input_grad)
            cotangents = grads[:results]
            if any(ctx.needs) and any(g is not None for g in cotangents):
                saved, problem = ctx.saved_tensors, ctx.problem
                tensors = fused.restored(problem, saved[:operands])
                found = fused.gradients(problem, ctx.needs, tensors, saved[operands:], cotangents)
                for i, gradient in zip(fused.primals, found):
                    out[2 + i] = gradient
            return tuple(out)

        @staticmethod
        def vmap(info: Any, dims: Any, problem: Any, keep: bool, *tensors: Maybe) -> Any:
            wide = fused.batched(problem, info.batch_size)
            out = Value.apply(wide, keep, *in_front(tensors, dims[2:]))
            written = fused.kept(problem, keep)
            kept = [
                fused.apart(wide, i, x) if is_written else x
                for i, (x, is_written) in enumerate(zip(out[results:], written))
            ]
            dims = (*[0] * results, *(0 if is_written else None for is_written in written))
            return (*out[:results], *kept), dims

    class Adjoint(Function):
        """(problem, needs, *operands, *residuals, *cotangents) -> the gradients that are needed"""

        @staticmethod
        def forward(problem: Any, needs: Needs, *tensors: Maybe) -> tuple[Tensor, ...]:
            found = run_below(fused.adjoint, *tensors, *problem, list(needs))
            return tuple(g for g, need in zip(found, needs) if need)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.problem, ctx.needs, *tensors = inputs
            ctx.save_for_backward(*tensors[:operands], *tensors[-results:])
            ctx.set_materialize_grads(False)

        @staticmethod
        def backward(ctx: Any, *grads: Maybe) -> tuple[Maybe, ...]:
            def gradients(*now: Maybe) -> Sequence[Tensor]:
                return fused.composed_gradients(
                    ctx.problem, ctx.needs, now[:operands], now[operands:]
                )

            asked = ctx.needs_input_grad[2:]
            last = len(asked) - results
            read = (*asked[:operands], *asked[last:])
            found = vjp_of(gradients, ctx.saved_tensors, read, grads)
            of_residuals = [None] * (last - operands)
            return None, None, *found[:operands], *of_residuals, *found[operands:]

        @staticmethod
        def vmap(info: Any, dims: Any, problem: Any, needs: Needs, *tensors: Maybe) -> Any:
            size, dims = info.batch_size, dims[2:]
            last = len(tensors) - results
            apart = list(tensors)
            for i in range(operands, last):
                if dims[i] is None:
                    apart[i] = fused.apart(problem, i - operands, apart[i])
            every = in_front(apart, dims)
            # vmap expects a gradient per element of the batch, for shared operands too.
            for i, need in zip(fused.primals, needs):
                if need:
                    every[i] = every[i].expand(size, *every[i].shape[1:])
            out = Adjoint.apply(fused.batched(problem, size), needs, *every)
            return out, (0,) * len(out)

    return Value, eager(Value), Adjoint


def eager(function: Any) -> type[Function]:
    """Return the function without support for torch.func, which would take 35 us per call."""

    class Eager(Function):
        @staticmethod
        def forward(ctx: Any, *arguments: Any) -> Any:
            output = function.forward(*arguments)
            function.setup_context(ctx, arguments, output)
            return output

        backward = function.backward

    return Eager


def spread(found: Sequence[Tensor], needs: Needs) -> list[Maybe]:
    """Return one entry per element of ``needs``: a gradient, or None if it is not needed."""
    rest = iter(found)
    return [next(rest) if need else None for need in needs]


def in_front(tensors: Tensors, dims: Sequence[int | None]) -> list[Any]:
    """Return tensors with the batch axis in front, of extent 1 if the batch shares a tensor."""
    return [
        None if x is None else x.unsqueeze(0) if d is None else x.movedim(d, 0)
        for x, d in zip(tensors, dims)
    ]


def vjp_of(
    function: Callable[..., Tensors], tensors: Tensors, needs: Needs, cotangents: Tensors
) -> list[Maybe]:
    """Return the gradients of a function with respect to the tensors that need them, None for the
    others. Absent cotangents are 0."""
    every: list[Any] = [alive(x) for x in tensors]
    at = [i for i in range(len(every)) if needs[i]]

    def of(*primals: Tensor) -> tuple[Maybe, ...]:
        now = list(every)
        for i, x in zip(at, primals):
            now[i] = x
        return tuple(function(*now))

    found = _vjp_of(of, [every[i] for i in at], cotangents) if at else ()
    return spread(found, needs[: len(every)])


def _vjp_of(of: Callable[..., Any], primals: list[Any], cotangents: Tensors) -> Sequence[Tensor]:
    """Return the gradients of a function with respect to all of its arguments."""
    if not is_eager():
        out, vjp = torch.func.vjp(of, *primals)  # type: ignore[misc]
        filled = (
            torch.zeros_like(x) if g is None else g.expand(x.shape) for x, g in zip(out, cotangents)
        )
        return tuple(vjp(tuple(filled)))
    with torch.enable_grad():
        # Use views: one tensor may depend on another, but their views do not depend on one another.
        primals = [
            x.view_as(x) if x.requires_grad else x.detach().requires_grad_() for x in primals
        ]
        out = of(*primals)
    given = [(x, g) for x, g in zip(out, cotangents) if g is not None and x.requires_grad]
    if not given:
        return [torch.zeros_like(x) for x in primals]
    return torch.autograd.grad(
        [x for x, _ in given],
        primals,
        [g.expand(x.shape) for x, g in given],
        create_graph=torch.is_grad_enabled(),
        materialize_grads=True,
    )

# SPDX-License-Identifier: BSD-3-Clause
"""Derivatives of operations whose value and adjoint are operators.

A :class:`Fused` operation runs those two. All other derivatives, and batches that the operators
have no axis for, are composed: of a function that computes the value by other operations.
The value keeps residuals for the adjoint. They follow from the operands, so composed functions
ignore them, and they have no gradients of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from .._op.spec import Operation
from .modes import is_dual, is_eager, is_recorded, levels
from .operators import differentiate, run_below

__all__ = ["Fused"]

Tensors = Sequence[Tensor | None]


class Fused:
    """The base of the derivatives of an operation. ``tensors`` are always its operands, in their
    order, None for absent ones; ``problem`` is a named tuple of its options."""

    operation: Operation
    #: The operators. Their further arguments are the problem, and whether residuals are kept, or
    #: which gradients are wanted.
    value: Any
    adjoint: Any
    #: Makes the problem of an operator's options.
    problem: Callable[..., Any]

    def __init__(self) -> None:
        self.operands = len(self.operation.operands)
        self.results = len(self.operation.results)
        operands = self.operation.operands
        self.moved = [operands.index(name) for name in self.operation.differentiable]
        self._value, self._eager, self._adjoint = _functions(self)

    # ---- of each operation -----------------------------------------------------------------------

    def composed(self, problem, *tensors) -> tuple[Tensor, ...]:
        """Computes the results by other operations."""
        raise NotImplementedError

    def keeps(self, problem, tensors: Tensors, needs: Sequence[bool]) -> bool:
        """Returns whether the value is to write residuals that are no results, if these
        differentiable operands need gradients."""
        raise NotImplementedError

    def residuals(self, problem, out: Tensors, keep: bool, needs: Sequence[bool]) -> Tensors:
        """Returns the residuals that the adjoint reads for these gradients."""
        raise NotImplementedError

    def saved(self, problem, tensors: Tensors, needs: Sequence[bool]) -> Tensors:
        """Returns the operands, with None in place of those that no derivative reads."""
        return tensors

    def restored(self, problem, tensors: Tensors) -> Tensors:
        """Returns the operands again, with any numbers in place of those that were not saved."""
        return tensors

    def batched(self, problem, size: int):
        """Returns the problem of tensors with a batch axis in front, or None if batches run
        ``composed``."""
        return None

    def kept(self, problem, keep: bool) -> Sequence[bool]:
        """Returns which of the value's last results, the residuals, are written."""
        return [keep] * (len(self.operation.value.writes) - self.results)

    def apart(self, problem, index: int, residual: Tensor | None) -> Tensor | None:
        """Returns a flat residual in its own shape, so that a batch axis can be put in front."""
        return residual

    # ---- the call --------------------------------------------------------------------------------

    def run(self, problem, *tensors) -> Tensors:
        """Returns the results under any transformation. Operations call it in a function that
        ``torch.compile`` does not look into."""
        if torch.jit.is_tracing():  # which records operators alone
            return self.value(*tensors, *_fixed(problem), False)[: self.results]
        if not is_recorded(*tensors):
            return run_below(self.value, *tensors, *problem, False)[: self.results]
        return self.recorded(problem, False, tensors)[: self.results]

    def recorded(self, problem, keep: bool, tensors: Tensors) -> Tensors:
        """Returns the results, then residuals, which are None if the value is composed."""
        if self.is_composed(*tensors):
            return self.composed(problem, *tensors)
        # The gradients that are asked for are those of all levels of torch.func.
        transformed = bool(levels())
        needs = [transformed or _requires_grad(tensors[i]) for i in self.moved]
        keep = keep or self.keeps(problem, tensors, needs)
        return (self._eager if is_eager() else self._value).apply(problem, keep, *tensors)

    def gradients(self, problem, needs, tensors, residuals, cotangents) -> tuple[Tensor, ...]:
        """Returns the gradients that are needed of the differentiable operands. In forward mode,
        which may have begun after the call, they are composed."""
        if self.is_composed(*tensors, *cotangents):
            return self.composed_gradients(problem, needs, tensors, cotangents)
        arguments = problem, needs, *tensors, *residuals, *cotangents
        if is_recorded(*tensors, *cotangents):
            return self._adjoint.apply(*arguments)
        return self._adjoint.forward(*arguments)

    def is_composed(self, *tensors) -> bool:
        """Returns whether the levels at work need the composed function: forward mode does."""
        if is_eager():
            return False
        names = {"Jvp"} if type(self).batched is not Fused.batched else {"Jvp", "Vmap"}
        return not names.isdisjoint(levels()) or any(is_dual(x) for x in tensors if x is not None)

    def composed_gradients(self, problem, needs, tensors, cotangents) -> tuple[Tensor, ...]:
        """The same by the composed function."""
        at = [i for i, need in zip(self.moved, needs) if need]

        def value(*moved):
            return self.composed(problem, *_replaced(tensors, at, moved))

        out, pull = torch.func.vjp(value, *(tensors[i] for i in at))
        return pull(
            tuple(
                torch.zeros_like(x) if g is None else g.expand(x.shape)
                for x, g in zip(out, cotangents)
            )
        )

    # ---- the operators ---------------------------------------------------------------------------

    def register(self, fake: Callable[..., Tensors]) -> None:
        """Registers the derivatives of the operators. ``fake`` makes the results of the value."""
        operands, residuals = self.operands, len(self.operation.residuals)

        def value(*arguments):
            tensors, (*options, keep) = arguments[:operands], arguments[operands:]
            out = self.recorded(self.problem(*options), keep, tensors)
            if keep and len(out) > self.results:
                return out
            # Composed functions have no use for residuals, nor has the adjoint then.
            empty = fake(*arguments)[self.results :]
            return *out[: self.results], *(x.fill_(torch.nan) for x in empty)

        def adjoint(*arguments):
            tensors, rest = arguments[:operands], arguments[operands:]
            cotangents = rest[residuals : residuals + self.results]
            *options, wanted = rest[residuals + self.results :]
            of = [tensors[i] for i in self.moved]
            needs = tuple(w and x is not None for w, x in zip(wanted, of))
            found = iter(
                self.gradients(self.problem(*options), needs, tensors, rest[:residuals], cotangents)
            )
            return tuple(
                next(found) if n else tensors[0].new_empty((0,), dtype=_dtype(x))
                for n, x in zip(needs, of)
            )

        differentiate(self.value, value)
        differentiate(self.adjoint, adjoint)


def _functions(fused: Fused) -> tuple[type[Function], type[Function], type[Function]]:
    """The value, the same without transformations of torch.func, and the adjoint of an operation as
    functions of autograd."""
    operands, results = fused.operands, fused.results

    class Value(Function):
        """(problem, keep, *operands) -> (*results, *residuals that are no results)"""

        @staticmethod
        def forward(problem, keep, *tensors):
            return run_below(fused.value, *tensors, *problem, keep)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.problem, keep, *tensors = inputs
            ctx.mark_non_differentiable(*output[results:])
            ctx.needs = tuple(ctx.needs_input_grad[2 + i] for i in fused.moved)
            residuals = fused.residuals(ctx.problem, output, keep, ctx.needs)
            saved = fused.saved(ctx.problem, tensors, ctx.needs)
            ctx.save_for_backward(*saved, *residuals)
            ctx.set_materialize_grads(False)

        @staticmethod
        def backward(ctx, *grads):
            out = [None] * len(ctx.needs_input_grad)
            cotangents = grads[:results]
            if any(ctx.needs) and any(g is not None for g in cotangents):
                saved, problem = ctx.saved_tensors, ctx.problem
                tensors = fused.restored(problem, saved[:operands])
                at = [i for i, need in zip(fused.moved, ctx.needs) if need]
                found = fused.gradients(problem, ctx.needs, tensors, saved[operands:], cotangents)
                for i, gradient in zip(at, found):
                    out[2 + i] = gradient
            return tuple(out)

        @staticmethod
        def vmap(info, dims, problem, keep, *tensors):
            wide = fused.batched(problem, info.batch_size)
            out = Value.apply(wide, keep, *_in_front(tensors, dims[2:]))
            written = fused.kept(problem, keep)
            kept = [
                fused.apart(wide, i, x) if is_written else x
                for i, (x, is_written) in enumerate(zip(out[results:], written))
            ]
            dims = (*[0] * results, *(0 if is_written else None for is_written in written))
            return (*out[:results], *kept), dims

    class Eager(Function):
        """The same without transformations of torch.func, whose functions take 35 us longer."""

        @staticmethod
        def forward(ctx, *arguments):
            output = Value.forward(*arguments)
            Value.setup_context(ctx, arguments, output)
            return output

        backward = Value.backward

    class Adjoint(Function):
        """(problem, needs, *operands, *residuals, *cotangents) -> the gradients that are needed"""

        @staticmethod
        def forward(problem, needs, *tensors):
            found = run_below(fused.adjoint, *tensors, *problem, list(needs))
            return tuple(g for g, need in zip(found, needs) if need)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.problem, ctx.needs, *tensors = inputs
            ctx.save_for_backward(*tensors[:operands], *tensors[-results:])
            ctx.set_materialize_grads(False)

        @staticmethod
        def backward(ctx, *grads):
            given, asked = list(ctx.saved_tensors), ctx.needs_input_grad[2:]
            out = [None] * len(ctx.needs_input_grad)
            # Positions among operands and cotangents, and among all arguments.
            cotangents = range(operands, operands + results)
            last = len(asked) - results
            places = {**{i: i for i in fused.moved}, **{i: i - operands + last for i in cotangents}}
            at = [i for i, place in places.items() if asked[place]]
            if not at or all(g is None for g in grads):
                return tuple(out)

            def gradients(*moved):
                now = _replaced(given, at, moved)
                return fused.composed_gradients(
                    ctx.problem, ctx.needs, now[:operands], now[operands:]
                )

            found, pull = torch.func.vjp(gradients, *(given[i] for i in at))
            pulled = pull(
                tuple(torch.zeros_like(x) if g is None else g for x, g in zip(found, grads))
            )
            for i, gradient in zip(at, pulled):
                out[2 + places[i]] = gradient
            return tuple(out)

        @staticmethod
        def vmap(info, dims, problem, needs, *tensors):
            size, dims = info.batch_size, dims[2:]
            last = len(tensors) - results
            tensors = [
                fused.apart(problem, i - operands, x)
                if operands <= i < last and dims[i] is None
                else x
                for i, x in enumerate(tensors)
            ]
            tensors = _in_front(tensors, dims)
            # vmap expects a gradient per element of the batch, of shared operands, too.
            for i, need in zip(fused.moved, needs):
                if need:
                    tensors[i] = tensors[i].expand(size, *tensors[i].shape[1:])
            out = Adjoint.apply(fused.batched(problem, size), needs, *tensors)
            return out, (0,) * len(out)

    return Value, Eager, Adjoint


def _in_front(tensors, dims):
    """Tensors with the axis of a batch in front, of extent 1 where they are shared."""
    return [
        None if x is None else x.unsqueeze(0) if d is None else x.movedim(d, 0)
        for x, d in zip(tensors, dims)
    ]


def _replaced(tensors, at, moved):
    now = list(tensors)
    for i, x in zip(at, moved):
        now[i] = x
    return now


def _fixed(problem):
    """A problem whose shape, if it has one, is of integers."""
    if hasattr(problem, "shape"):
        return problem._replace(shape=tuple(map(int, problem.shape)))
    return problem


def _requires_grad(x):
    return x is not None and x.requires_grad


def _dtype(x):
    return None if x is None else x.dtype

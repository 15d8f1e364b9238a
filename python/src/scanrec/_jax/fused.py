# SPDX-License-Identifier: BSD-3-Clause
"""Derivatives of operations whose value and adjoint are fused kernels.

The primitives are the value (the forward computation), the tangent and the adjoint. Their
derivatives use only these primitives and the composed value, a function that computes the results
by other JAX operations. The composed tangent and the composed adjoint are the derivatives of this
function, so operations are differentiable any number of times:

========= =============================== ===============
primitive its tangent                     its transpose
========= =============================== ===============
value     tangent
tangent   tangent of the composed tangent adjoint
adjoint   tangent of the composed adjoint tangent
========= =============================== ===============

The primitive "tangent" is linear in its tangents, and "adjoint" in its cotangents. If only these
operands vary, the tangent of the primitive is the primitive itself, applied to their tangents. The
primitive "tangent" has a kernel only if the operation declares one. Otherwise it is composed of
other JAX operations, but is still a primitive, so that its transpose is the fused adjoint.

The value keeps residuals for tangent and adjoint. They are functions of the operands, so the
composed value does not read them, and their tangents are dropped. Gradients follow JAX: they are
transposes, without conjugates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jax.interpreters import ad

from .._op.spec import gradient_of, primal_of, tangent_of
from .primitives import Primitives
from .sharding import placed_as
from .types import Args, Arrays, Params, Shape, Tangents

__all__ = ["Fused", "jvp_of", "nonzero", "summed"]

Out = TypeVar("Out")


class Fused(Primitives):
    """The derivatives of an operation. A subclass defines the composed value, and describes the
    operation as for :class:`Primitives`."""

    def __init__(self) -> None:
        super().__init__()
        for kind, primitive in self.primitives.items():
            ad.primitive_jvps[primitive] = self._value_jvp if kind == "value" else self.derived_jvp
            if kind != "value":
                ad.primitive_transposes[primitive] = self.transpose

    # ---- what depends on the operation -----------------------------------------------------------

    def composed(self, problem: Any, arrays: Arrays) -> Arrays:
        """Compute the results by other operations, given operands."""
        raise NotImplementedError

    def tangent(self, params: Params, arrays: Arrays) -> Sequence[jax.Array]:
        """Compute the tangents of results by other operations, given operands, residuals and
        tangents."""
        return self._composed_tangent(params, arrays)

    def residuals(self, problem: Any, arrays: Arrays, nonzero_tangents: Arrays) -> dict[str, str]:
        """Return the residuals that tangent and adjoint read if these operands have tangents.

        The returned mapping has, for each residual, the result of the primitive "value" that
        holds it.
        """
        kept = self.operation.residuals
        return {name: name for name in kept if 0 not in self.shape(name, problem, arrays)}

    def linearised(self, problem: Any, arrays: Arrays, nonzero_tangents: Arrays) -> Arrays:
        """Return the primal operands of the tangent primitive, given the nonzero tangents."""
        return arrays

    def completed(self, problem: Any, arrays: Arrays) -> Arrays:
        """Return the operands of the composed value, with zeros for absent operands that have
        derivatives."""
        return arrays

    def run(self, params: Params, *args: jax.Array) -> Sequence[jax.Array]:
        if self.has_kernel(params.kind):
            return super().run(params, *args)
        return self.tangent(params, params.named(args))

    def run_composed(self, params: Params, *args: jax.Array) -> Sequence[jax.Array]:
        arrays = params.named(args)
        if params.kind == "vjp":
            return self._composed_adjoint(params, arrays)
        if params.kind == "jvp":
            return self.tangent(params, arrays)
        out = self.composed(params.problem, arrays)
        return [out[name] for name in params.shapes]

    # ---- tangents --------------------------------------------------------------------------------

    def _value_jvp(self, primals: Args, tangents: Args, *, params: Params, **_: Any) -> Tangents:
        problem, arrays, results = params.problem, params.named(primals), params.shapes
        nonzero_tangents = nonzero(params.operands, tangents)
        kept = self.residuals(problem, arrays, nonzero_tangents)
        wanted = {name: self.shape(name, problem, arrays) for name in kept.values()}
        values = self.value(problem, arrays, {**wanted, **results})
        given = {
            **self.linearised(problem, arrays, nonzero_tangents),
            **{name: values[of] for name, of in kept.items()},
            **{tangent_of(name): t for name, t in nonzero_tangents.items()},
        }
        has_tangent = self.operation.results
        wanted = {tangent_of(name): results[name] for name in results if name in has_tangent}
        out = self.jvp(problem, given, wanted)
        return [values[name] for name in results], [
            out[tangent_of(name)]
            if name in has_tangent
            else ad.Zero(values[name].aval.to_tangent_aval())
            for name in results
        ]

    def derived_jvp(self, primals: Args, tangents: Args, *, params: Params, **_: Any) -> Tangents:
        """The tangent of the primitives "vjp" and "jvp"."""
        arrays, nonzero_tangents = params.named(primals), nonzero(params.operands, tangents)
        nonzero_tangents = {
            name: t for name, t in nonzero_tangents.items() if name not in self.operation.residuals
        }
        # The primitive is linear in tangents or cotangents. If nothing else varies, it is its own
        # tangent.
        if all(name != primal_of(name) for name in nonzero_tangents):
            known = {name: x for name, x in arrays.items() if name == primal_of(name)}
            value, tangent = (
                self.bind(params.kind, params.problem, {**known, **x}, params.shapes)
                for x in (arrays, nonzero_tangents)
            )
            return list(value.values()), list(tangent.values())
        composed = self._composed_adjoint if params.kind == "vjp" else self._composed_tangent
        return jvp_of(partial(composed, params), arrays, nonzero_tangents)

    def _composed_tangent(self, params: Params, arrays: Arrays) -> list[jax.Array]:
        """The tangent of the composed value, which does not read residuals."""
        names = self.operation.differentiable
        nonzero_tangents = {name: arrays[t] for name in names if (t := tangent_of(name)) in arrays}

        def value(arrays: Arrays) -> list[jax.Array]:
            out = self.composed(params.problem, arrays)
            return [out[primal_of(t)] for t in params.shapes]

        return jvp_of(value, self.completed(params.problem, arrays), nonzero_tangents)[1]

    def _composed_adjoint(self, params: Params, arrays: Arrays) -> list[jax.Array]:
        """The adjoint of the composed value."""
        given = [name for name in self.operation.results if gradient_of(name) in arrays]
        arrays = self.completed(params.problem, arrays)
        at = {primal_of(g): jnp.broadcast_to(arrays[primal_of(g)], x) for g, x in params.results}

        def value(at: Arrays) -> list[jax.Array]:
            out = self.composed(params.problem, {**arrays, **at})
            return [out[name] for name in given]

        out, vjp = jax.vjp(value, at)
        cotangents = [jnp.broadcast_to(arrays[gradient_of(n)], x.shape) for n, x in zip(given, out)]
        (gradients,) = vjp(cotangents)
        return [gradients[name] for name in at]

    # ---- transposes ------------------------------------------------------------------------------

    def transpose(self, cts: Args, *args: Any, params: Params, **_: Any) -> list[Any]:
        """The transpose of a primitive that is linear in some operands.

        The transpose of a tangent, or of a linear value, is the adjoint, whose gradients have the
        shapes of the operands. The transpose of an adjoint is the tangent, in the shapes of the
        results. It is summed over the axes along which the cotangents of the adjoint broadcast.
        """
        into, named = ("jvp", tangent_of) if params.kind == "vjp" else ("vjp", gradient_of)
        arrays = params.named(args)
        unknowns = {n: x.aval for n, x in arrays.items() if isinstance(x, ad.UndefinedPrimal)}
        known = {n: x for n, x in arrays.items() if n == primal_of(n) and n not in unknowns}
        unknown = {primal_of(name): aval for name, aval in unknowns.items()}
        given = {
            named(primal_of(name)): ct
            for name, ct in zip(params.shapes, cts)
            if not isinstance(ct, ad.Zero)
        }
        found: dict[str, Any] = {name: ad.Zero(aval) for name, aval in unknown.items()}
        if given:
            wanted = {
                named(n): aval.shape if into == "vjp" else self.shape(n, params.problem, known)
                for n, aval in unknown.items()
            }
            out = self.bind(into, params.problem, {**known, **given}, wanted)
            for name, aval in unknown.items():
                found[name] = placed_as(summed(out[named(name)], aval.shape), aval)
        return [found[primal_of(name)] if name in unknowns else None for name in arrays]


def nonzero(names: Sequence[str], tangents: Args) -> dict[str, jax.Array]:
    """The tangents by name, without symbolic zeros and the tangents of booleans (float0)."""
    return {
        name: t
        for name, t in zip(names, tangents)
        if not isinstance(t, (ad.Zero, SymbolicZero)) and t.dtype != jax.dtypes.float0
    }


def jvp_of(
    function: Callable[[Arrays], Out], arrays: Arrays, nonzero_tangents: Arrays
) -> tuple[Out, Out]:
    """Apply jax.jvp to a function of named arrays. Only arrays with nonzero tangents vary.

    An array and its tangent are broadcast to one shape.
    """
    both = {name: jnp.broadcast_arrays(arrays[name], t) for name, t in nonzero_tangents.items()}
    at, along = ({name: pair[i] for name, pair in both.items()} for i in (0, 1))
    value, tangent = jax.jvp(lambda at: function({**arrays, **at}), (at,), (along,))
    return value, tangent


def summed(x: jax.Array, shape: Shape) -> jax.Array:
    """x summed over the axes along which an array of this shape broadcasts."""
    axes = tuple(i for i, (n, m) in enumerate(zip(x.shape, shape)) if n != m)
    return jnp.sum(x, axes, keepdims=True) if axes else x

# SPDX-License-Identifier: BSD-3-Clause
"""Derivatives of operations whose value and adjoint are fused kernels.

The rules use only the three primitives and the composed value, a function that computes the results
by other operations. An operation that is differentiable once is therefore differentiable any number
of times:

========= ============================= ===============
primitive its tangent                   its transpose
========= ============================= ===============
value     tangent
tangent   that of the composed value's  adjoint
adjoint   that of the composed value's  tangent
========= ============================= ===============

Tangent and adjoint are linear in tangents and cotangents. If only these have tangents, each is its
own tangent. The tangent has a kernel only if the operation says so. Otherwise it is composed, and
is a primitive so that its transpose is the fused adjoint.

The value keeps residuals for tangent and adjoint. They follow from the operands, so the composed
value does not read them, and their tangents are dropped. Gradients are those of JAX: transposes,
without conjugates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.interpreters import ad

from .._op.spec import gradient_of, primal_of, tangent_of
from .primitives import Primitives
from .sharding import placed_as

__all__ = ["Fused", "jvp_of", "nonzero", "summed"]

Arrays = Mapping[str, Any]


class Fused(Primitives):
    """The derivatives of an operation. A subclass has the composed value, and describes the
    operation as for :class:`Primitives`."""

    def __init__(self) -> None:
        super().__init__()
        for kind, primitive in self.primitives.items():
            rule = self._value_jvp if kind == "value" else partial(self.derived_jvp, kind)
            ad.primitive_jvps[primitive] = rule
            if kind != "value":
                ad.primitive_transposes[primitive] = partial(self.transpose, kind)

    # ---- what depends on the operation -----------------------------------------------------------

    def composed(self, problem, arrays: Arrays) -> dict[str, Any]:
        """Computes the results by other operations, given operands."""
        raise NotImplementedError

    def tangent(self, problem, arrays: Arrays, results) -> Sequence[Any]:
        """Computes the tangents of results by other operations, given operands, residuals and
        tangents."""
        return self._composed_tangent(problem, results, arrays)

    def residuals(self, problem, arrays: Arrays, moved: Arrays) -> dict[str, str]:
        """Returns the residuals that tangent and adjoint read if these operands have tangents, and
        for each the result of the value that it is."""
        kept = self.operation.residuals
        return {name: name for name in kept if 0 not in self.shape(name, problem, arrays)}

    def linearised(self, problem, arrays: Arrays, moved: Arrays) -> Arrays:
        """Returns the operands of the tangent if these have tangents."""
        return arrays

    def completed(self, problem, arrays: Arrays) -> Arrays:
        """Returns the operands of the composed value, with zeros for absent ones that have
        derivatives."""
        return arrays

    def run(self, kind: str, *args, problem, operands, results):
        if kind == "jvp" and self.composes_tangent:
            return self.tangent(problem, dict(zip(operands, args)), results)
        return super().run(kind, *args, problem=problem, operands=operands, results=results)

    # ---- tangents --------------------------------------------------------------------------------

    def _value_jvp(self, primals, tangents, *, problem, operands, results, **_):
        op, arrays = self.operation, dict(zip(operands, primals))
        moved = nonzero(operands, tangents)
        kept = self.residuals(problem, arrays, moved)
        wanted = {name: self.shape(name, problem, arrays) for name in kept.values()}
        values = self.value(problem, arrays, {**wanted, **dict(results)})
        given = {
            **self.linearised(problem, arrays, moved),
            **{name: values[of] for name, of in kept.items()},
            **{tangent_of(name): t for name, t in moved.items()},
        }
        wanted = {tangent_of(name): shape for name, shape in results if name in op.results}
        out = self.jvp(problem, given, wanted)
        return [values[name] for name, _ in results], [
            out[tangent_of(name)]
            if name in op.results
            else ad.Zero(values[name].aval.to_tangent_aval())
            for name, _ in results
        ]

    def derived_jvp(self, kind: str, primals, tangents, *, problem, operands, results, **_):
        """The tangent of the primitives "vjp" and "jvp"."""
        arrays, moved = dict(zip(operands, primals)), nonzero(operands, tangents)
        moved = {name: t for name, t in moved.items() if name not in self.operation.residuals}
        if all(name != primal_of(name) for name in moved):  # the primitive is linear in these
            known = {name: x for name, x in arrays.items() if name == primal_of(name)}
            both = [
                self.bind(kind, problem, {**known, **x}, dict(results)) for x in (arrays, moved)
            ]
            return tuple([out[name] for name, _ in results] for out in both)
        composed = self._composed_adjoint if kind == "vjp" else self._composed_tangent
        return jvp_of(partial(composed, problem, results), arrays, moved)

    def _composed_tangent(self, problem, results, arrays):
        """The tangent of the composed value, which does not read residuals."""
        tangents = {name: tangent_of(name) for name in self.operation.differentiable}
        moved = {name: arrays[t] for name, t in tangents.items() if t in arrays}
        arrays = self.completed(problem, arrays)
        at = {name: _alike(arrays[name], t) for name, t in moved.items()}

        def value(*differentiated):
            out = self.composed(problem, {**arrays, **dict(zip(moved, differentiated))})
            return [out[primal_of(t)] for t, _ in results]

        along = tuple(_alike(t, at[name]) for name, t in moved.items())
        return jax.jvp(value, tuple(at.values()), along)[1]

    def _composed_adjoint(self, problem, results, arrays):
        """The adjoint of the composed value."""
        given = [name for name in self.operation.results if gradient_of(name) in arrays]
        arrays = self.completed(problem, arrays)
        at = {primal_of(g): jnp.broadcast_to(arrays[primal_of(g)], shape) for g, shape in results}

        def value(*differentiated):
            out = self.composed(problem, {**arrays, **dict(zip(at, differentiated))})
            return [out[name] for name in given]

        out, pull = jax.vjp(value, *at.values())
        return list(
            pull([jnp.broadcast_to(arrays[gradient_of(n)], x.shape) for n, x in zip(given, out)])
        )

    # ---- transposes ------------------------------------------------------------------------------

    def transpose(self, kind: str, cts, *args, problem, operands, results, **_):
        """The transpose of a primitive that is linear in some operands. Tangents are transposed to
        the adjoint, and adjoints to the tangent. A gradient has the shape of its operand. A tangent
        has the shape of the result, and is summed if the cotangent broadcast."""
        into, named = ("jvp", tangent_of) if kind == "vjp" else ("vjp", gradient_of)
        arrays = dict(zip(operands, args))
        unknown = {name: x.aval for name, x in arrays.items() if ad.is_undefined_primal(x)}
        known = {
            name: x for name, x in arrays.items() if name not in unknown and name == primal_of(name)
        }
        given = {
            named(primal_of(name)): ct
            for (name, _), ct in zip(results, cts)
            if not isinstance(ct, ad.Zero)
        }
        if not given:
            return [ad.Zero(unknown[name]) if name in unknown else None for name in operands]
        wanted = {}
        for name, aval in unknown.items():
            of = primal_of(name)
            wanted[named(of)] = aval.shape if into == "vjp" else self.shape(of, problem, known)
        out = self.bind(into, problem, {**known, **given}, wanted)
        return [
            placed_as(summed(out[named(primal_of(name))], unknown[name].shape), unknown[name])
            if name in unknown
            else None
            for name in operands
        ]


def nonzero(names: Sequence[str], tangents: Sequence[Any]) -> dict[str, Any]:
    """The tangents that are not symbolic zeros, by name."""
    return {
        name: t
        for name, t in zip(names, tangents)
        if not isinstance(t, ad.Zero) and t.dtype != jax.dtypes.float0
    }


def jvp_of(function: Callable[[Arrays], Any], arrays: Arrays, moved: Arrays):
    """jax.jvp of a function of arrays by name, in those that have tangents in ``moved``."""
    return jax.jvp(
        lambda *values: function({**arrays, **dict(zip(moved, values))}),
        tuple(arrays[name] for name in moved),
        tuple(moved.values()),
    )


def summed(x: jax.Array, shape: Sequence[int]) -> jax.Array:
    """x summed over the axes along which an array of this shape broadcasts."""
    axes = tuple(i for i, (n, m) in enumerate(zip(x.shape, shape)) if n != m)
    return jnp.sum(x, axes, keepdims=True) if axes else x


def _alike(x, other):
    return jnp.broadcast_to(x, jnp.broadcast_shapes(x.shape, other.shape))

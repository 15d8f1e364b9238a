# SPDX-License-Identifier: BSD-3-Clause
"""Stands in for ``semigroup_scan`` of memax, which its Equinox and Flax modules share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax.extend.core import Var

from scanrec import _arguments as arguments
from scanrec._jax.arrays import array_of
from scanrec.jax import linear_scan

__all__ = ["semigroup_scan"]

#: A name, or a sum or product of nodes as a tuple that starts with "add" or "mul".
_Node: TypeAlias = tuple[Any, ...]


def semigroup_scan(
    semigroup_op: Callable[[Any, Any], Any], state: Any, input: Any, axis: int = 0
) -> Any:
    """Compute the states ``semigroup_op(...semigroup_op(state, input[0])..., input[t])``.

    The result has the structure of ``input``. ``state`` has it too, without the axis of time.

    An operator that traces to ``(A_j * A_i, A_j * b_i + b_j)``, such as the package's LRU and S6,
    or to ``b_i + b_j``, is computed by a linear scan, also within the package's ``Resettable``
    if ``axis`` is 0. Resets then start sequences exactly, while the original multiplies states
    by 0. Other operators are passed to ``jax.lax.associative_scan``, as in the original.
    """
    call = "semigroup_scan"
    wanted: Any = jax.tree.structure(input)
    if wanted != (got := jax.tree.structure(state)):
        arguments.refuse(call, "state", f"the structure of 'input', {wanted}", got)
    if not jax.tree.leaves(input):
        arguments.refuse(call, "input", "at least one array", "none")
    input = jax.tree.map(partial(array_of, call, "input"), input)
    state = jax.tree.map(partial(array_of, call, "state"), state)
    for first, x in zip(jax.tree.leaves(state), jax.tree.leaves(input)):
        if not x.ndim:
            arguments.refuse(call, "input", "arrays with a time axis", "a number")
        boundary = arguments.boundary_shape(x.shape, arguments.time_axis(call, axis, x.shape))
        arguments.check_shape(call, "state", first.shape, boundary, equal=True)
    algebra: Any = getattr(semigroup_op, "algebra", None)
    if type(semigroup_op).__name__ == "Resettable" and axis == 0:
        (inner_state, flag), (inner_input, starts) = state, input
        if _is_affine(algebra, inner_state):
            starts = starts.astype(bool)
            states = _affine(inner_state, inner_input, axis, starts, algebra.initialize_carry(None))
            return states, jax.lax.associative_scan(jnp.logical_or, starts) | flag
    elif _is_affine(semigroup_op, state):
        return _affine(state, input, axis)
    return _associative(semigroup_op, state, input, axis)


def _affine(
    state: Any, input: Any, axis: int, starts: jax.Array | None = None, identity: Any = None
) -> Any:
    """Return the states, with the products of the gates if the operator has gates.

    ``jit`` drops the products if the caller does not use them.
    """
    leaves, tree = jax.tree.flatten(input)
    *gates, x = leaves
    gate = gates[0] if gates else jnp.ones((), x.dtype)
    inputs, resets = [*map(jnp.zeros_like, gates), x], None
    if starts is not None:  # A sequence starts with one step from the identity.
        resets = starts.reshape(starts.shape + (1,) * (x.ndim - starts.ndim))
        initial = jax.tree.leaves(identity)
        inputs = [jnp.where(resets, u + gate * x0, u) for u, x0 in zip(inputs, initial)]
    first = jax.tree.leaves(state)
    scan = partial(linear_scan, axis=axis, resets=resets)
    return jax.tree.unflatten(tree, [scan(gate, u, x0) for u, x0 in zip(inputs, first)])


def _is_affine(op: Callable[..., Any], state: Any) -> bool:
    """Tell whether one traced step of an operator is a step of a linear recurrence."""
    leaves = jax.tree.leaves(state)
    if len(leaves) not in (1, 2) or len({(x.shape, x.dtype) for x in leaves}) != 1:
        return False
    if not jnp.issubdtype(leaves[0].dtype, jnp.inexact):
        return False
    i, j = ([(side, k) for k in range(len(leaves))] for side in "ij")
    wanted = [_node("add", i[0], j[0])]
    if len(leaves) == 2:
        wanted = [_node("mul", i[0], j[0]), _node("add", j[1], _node("mul", i[1], j[0]))]
    traced = jax.make_jaxpr(op)(state, state).jaxpr
    return not traced.effects and _terms(traced, i + j) == wanted


def _node(name: str, *operands: _Node | None) -> _Node:
    """Return a sum or a product as a tuple that does not depend on the order of operands."""
    return (name, *sorted(operands, key=repr))


def _terms(jaxpr: Any, names: Sequence[_Node | None]) -> list[_Node | None]:
    """Return each result of a program as a node, or None if it is not made of sums and products of
    names."""
    known = dict(zip(jaxpr.invars, names))

    def nodes(variables: Any) -> list[_Node | None]:  # literals cannot be hashed
        return [known.get(v) if isinstance(v, Var) else None for v in variables]

    for equation in jaxpr.eqns:
        name, operands = equation.primitive.name, nodes(equation.invars)
        made: list[_Node | None] = []
        if name in ("pjit", "jit"):
            made = _terms(equation.params["jaxpr"].jaxpr, operands)
        elif name in ("add", "mul") and None not in operands:
            made = [_node(name, *operands)]
        known.update(zip(equation.outvars, made))
    return nodes(jaxpr.outvars)


def _associative(op: Callable[..., Any], state: Any, input: Any, axis: int) -> Any:
    if not jax.tree.leaves(input)[0].shape[axis]:
        return input  # if T is 0, XLA aborts in the gradient of the code below
    first = jax.tree.map(lambda x: jnp.expand_dims(x, axis), state)
    joined = jax.tree.map(lambda s, x: jnp.concatenate((s, x), axis), first, input)
    states = jax.lax.associative_scan(jax.vmap(op), joined, axis=axis)
    return jax.tree.map(lambda x: jax.lax.slice_in_dim(x, 1, None, axis=axis), states)

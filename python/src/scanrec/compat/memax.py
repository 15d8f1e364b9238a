# SPDX-License-Identifier: BSD-3-Clause
"""Stands in for ``semigroup_scan`` of memax, which its Equinox and Flax modules share."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Var

from scanrec import _arguments as arguments
from scanrec._jax.arrays import array_of
from scanrec.jax import linear_scan

__all__ = ["semigroup_scan"]


def semigroup_scan(semigroup_op: Callable, state: Any, input: Any, axis: int = 0) -> Any:
    """Compute the states ``semigroup_op(...semigroup_op(state, input[0])..., input[t])``.

    The result has the structure of ``input``. ``state`` has it too, without the axis of time.

    An operator that traces to ``(A_j * A_i, A_j * b_i + b_j)``, such as the package's LRU and S6,
    or to ``b_i + b_j``, is a linear scan, alone or in the package's ``Resettable``. Resets then cut
    sequences exactly, where the original multiplies by 0. Other operators are passed to
    ``jax.lax.associative_scan``, as in the original.
    """
    call = "semigroup_scan"
    trees = jax.tree.structure(state), jax.tree.structure(input)
    if trees[0] != trees[1]:
        arguments.refuse(call, "state", f"the structure of 'input', {trees[1]}", trees[0])
    if not jax.tree.leaves(input):
        arguments.refuse(call, "input", "at least one array", "none")
    input = jax.tree.map(partial(array_of, call, "input"), input)
    state = jax.tree.map(partial(array_of, call, "state"), state)
    for first, x in zip(jax.tree.leaves(state), jax.tree.leaves(input)):
        if not x.ndim:
            arguments.refuse(call, "input", "arrays with an axis of time", "a number")
        wanted = arguments.edge_shape(x.shape, arguments.time_axis(call, axis, x.shape))
        arguments.check_shape(call, "state", first.shape, wanted, equal=True)
    if type(semigroup_op).__name__ == "Resettable" and axis == 0:
        (inner_state, flag), (inner_input, starts) = state, input
        if _is_affine(semigroup_op.algebra, inner_state):
            starts = starts.astype(bool)
            identity = semigroup_op.algebra.initialize_carry(None)
            states = _affine(inner_state, inner_input, axis, starts, identity)
            return states, jax.lax.associative_scan(jnp.logical_or, starts) | flag
    elif _is_affine(semigroup_op, state):
        return _affine(state, input, axis)
    return _associative(semigroup_op, state, input, axis)


def _affine(state, input, axis, starts=None, identity=None):
    """Return the states, with the products of the gates if the operator has gates.

    ``jit`` drops the products if the caller does not use them.
    """
    leaves, tree = jax.tree.flatten(input)
    resets, begin = None, lambda gate, initial, x: x
    if starts is not None:
        resets = starts.reshape(starts.shape + (1,) * (leaves[-1].ndim - starts.ndim))
        # A sequence starts with one step from the identity.
        begin = lambda gate, initial, x: jnp.where(resets, x + gate * initial, x)
    scan = lambda gate, x, x0: linear_scan(gate, x, x0, axis=axis, resets=resets)
    first = jax.tree.leaves(state)
    initial = first if identity is None else jax.tree.leaves(identity)
    if len(leaves) == 1:
        (x,) = leaves
        return jax.tree.unflatten(
            tree, [scan(jnp.ones((), x.dtype), begin(1, initial[0], x), first[0])]
        )
    gate, x = leaves
    products = scan(gate, begin(gate, initial[0], jnp.zeros_like(gate)), first[0])
    states = scan(gate, begin(gate, initial[1], x), first[1])
    return jax.tree.unflatten(tree, [products, states])


def _is_affine(op, state):
    """Tell whether one traced step of an operator is a step of a linear recurrence."""
    leaves = jax.tree.leaves(state)
    if len(leaves) not in (1, 2) or len({x.shape for x in leaves}) != 1:
        return False
    if len({x.dtype for x in leaves}) != 1 or not jnp.issubdtype(leaves[0].dtype, jnp.inexact):
        return False
    i, j = ([(side, k) for k in range(len(leaves))] for side in "ij")
    wanted = [_node("add", i[0], j[0])]
    if len(leaves) == 2:
        wanted = [_node("mul", i[0], j[0]), _node("add", j[1], _node("mul", i[1], j[0]))]
    return _terms(jax.make_jaxpr(op)(state, state).jaxpr, i + j) == wanted


def _node(name, *operands):
    """Return a sum or a product as a tuple that does not depend on the order of operands."""
    return (name, *sorted(operands, key=repr))


def _terms(jaxpr, names):
    """Return the results of a program of sums and products as nodes, or None if it has others."""
    known = dict(zip(jaxpr.invars, names))
    for equation in jaxpr.eqns:
        # Literals and constants are not known, and cannot be hashed.
        operands = [known.get(v) if isinstance(v, Var) else None for v in equation.invars]
        if None in operands:
            return None
        name = equation.primitive.name
        if name in ("add", "mul"):
            known[equation.outvars[0]] = _node(name, *operands)
        elif name in ("pjit", "jit"):
            inner = _terms(equation.params["jaxpr"].jaxpr, operands)
            if inner is None:
                return None
            known.update(zip(equation.outvars, inner))
        else:
            return None
    return [known.get(v) if isinstance(v, Var) else None for v in jaxpr.outvars]


def _associative(op, state, input, axis):
    if not jax.tree.leaves(input)[0].shape[axis]:
        return input  # XLA aborts in the gradient of the code below if T is 0.
    first = jax.tree.map(lambda x: jnp.expand_dims(x, axis), state)
    joined = jax.tree.map(lambda s, x: jnp.concatenate((s, x), axis), first, input)
    states = jax.lax.associative_scan(jax.vmap(op), joined, axis=axis)
    return jax.tree.map(lambda x: jax.lax.slice_in_dim(x, 1, None, axis=axis), states)

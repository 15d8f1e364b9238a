# SPDX-License-Identifier: BSD-3-Clause
"""``memax.equinox.scans``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Var

from scanrec import _arguments as arguments
from scanrec.jax import linear_scan
from scanrec.jax._arrays import array_of

__all__ = ["semigroup_scan"]


def semigroup_scan(semigroup_op: Callable, state: Any, input: Any, axis: int = 0) -> Any:
    """The states ``semigroup_op(...semigroup_op(state, input[0])..., input[t])``, of the structure
    of ``input``; ``state`` lacks the axis of time.

    An operator that is traced to ``(A_j * A_i, A_j * b_i + b_j)``, as of the package's LRU and S6,
    or to ``b_i + b_j``, bare or in its ``Resettable``, is a linear scan; resets cut exactly, where
    the original multiplies by 0. Others are given to ``jax.lax.associative_scan``, as there.
    """
    call = "semigroup_scan"
    trees = jax.tree.structure(state), jax.tree.structure(input)
    if trees[0] != trees[1]:
        arguments.refuse(call, "state", f"the structure of 'input', {trees[1]}", trees[0])
    if not jax.tree.leaves(input):
        arguments.refuse(call, "input", "at least one array", "none")
    input = jax.tree.map(partial(array_of, call, "input"), input)
    state = jax.tree.map(partial(array_of, call, "state"), state)
    for given, x in zip(jax.tree.leaves(state), jax.tree.leaves(input)):
        if not x.ndim:
            arguments.refuse(call, "input", "arrays with an axis of time", "a number")
        at = arguments.time_axis(call, axis, x.shape)
        wanted = arguments.edge_shape(x.shape, at)
        arguments.check_shape(call, "state", given.shape, wanted, equal=True)
    algebra = semigroup_op
    starts = None
    if type(semigroup_op).__name__ == "Resettable" and axis == 0:
        algebra = semigroup_op.algebra
        (state, flagged), (input, starts) = state, input
    if not _is_affine(algebra, state, axis):
        whole = (state, input) if starts is None else ((state, flagged), (input, starts))
        return _associative(semigroup_op, *whole, axis)
    if starts is None:
        return _affine(state, input, axis)
    starts = starts.astype(bool)
    states = _affine(state, input, axis, starts, algebra.initialize_carry(None))
    return states, jax.lax.associative_scan(jnp.logical_or, starts) | flagged


def _affine(state, input, axis, starts=None, initial=None):
    """States, and products of gates, if there are any, which ``jit`` drops where nobody uses
    them."""
    leaves, tree = jax.tree.flatten(input)
    first = jax.tree.leaves(state)
    if starts is None:
        resets, begun = None, [None] * len(leaves)
    else:
        b = leaves[-1]
        resets = starts.reshape(starts.shape + (1,) * (b.ndim - starts.ndim))
        begun = jax.tree.leaves(initial)
    scan = lambda gate, x, x0: linear_scan(gate, x, x0, axis=axis, resets=resets)
    if len(leaves) == 1:
        (x,), (b0,) = leaves, begun
        return jax.tree.unflatten(
            tree, [scan(jnp.ones((), x.dtype), _from(resets, 1, b0, x), *first)]
        )
    (gate, x), (a0, b0) = leaves, begun
    products = scan(gate, _from(resets, gate, a0, jnp.zeros_like(gate)), first[0])
    return jax.tree.unflatten(tree, [products, scan(gate, _from(resets, gate, b0, x), first[1])])


def _from(resets, gate, initial, x):
    """The input with what a step makes of the initial state, where it starts a sequence."""
    return x if resets is None else jnp.where(resets, x + gate * initial, x)


def _is_affine(op, state, axis):
    """Whether one step of an operator, traced, is that of a linear recurrence."""
    leaves = jax.tree.leaves(state)
    if len(leaves) not in (1, 2) or len({x.shape for x in leaves}) != 1:
        return False
    if len({x.dtype for x in leaves}) != 1 or not jnp.issubdtype(leaves[0].dtype, jnp.inexact):
        return False
    traced = jax.make_jaxpr(op)(state, state)
    n = len(leaves)
    i, j = ([(side, k) for k in range(n)] for side in "ij")
    wanted = [_node("add", i[0], j[0])]
    if n == 2:
        wanted = [_node("mul", i[0], j[0]), _node("add", j[1], _node("mul", i[1], j[0]))]
    return _terms(traced.jaxpr, i + j) == wanted


def _node(name, *operands):
    """A sum or a product, whatever the order of its operands."""
    return (name, *sorted(operands, key=repr))


def _terms(jaxpr, names):
    """What a program of sums and products computes, or None."""
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
        return input  # The gradient of the code below makes XLA abort when there is no step.
    first = jax.tree.map(lambda x: jnp.expand_dims(x, axis), state)
    joined = jax.tree.map(lambda s, x: jnp.concatenate((s, x), axis), first, input)
    states = jax.lax.associative_scan(jax.vmap(op), joined, axis=axis)
    return jax.tree.map(lambda x: jax.lax.slice_in_dim(x, 1, None, axis=axis), states)

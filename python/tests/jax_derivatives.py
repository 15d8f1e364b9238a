# SPDX-License-Identifier: BSD-3-Clause
"""Checks of JAX derivatives against finite differences."""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from conftest import derivative


def check_derivatives(f, at, random, order=2, tolerance=1e-8):
    """Compare derivatives up to an order with finite differences, in all nestings of both modes.

    The function is made scalar: its outputs are multiplied by random weights and summed. Forward
    mode takes the tangent along one random direction of all arguments. Reverse mode takes the
    gradient of a scalar. If the derivative inside it is a gradient, that gradient's inner product
    with the direction is the scalar. A nesting therefore gives a scalar or a gradient. The
    reference at order k is a finite difference, along the direction, of the (k - 1)-fold gradient.
    For k = 1 this is the function. Its gradient is checked with one argument displaced at a time.
    """
    drawn = lambda x: random(*x.shape, dtype=jnp.result_type(x))
    weights = jax.tree.map(drawn, jax.eval_shape(f, *at))
    moves = tuple(map(drawn, at))
    every = tuple(range(len(at)))
    dot = lambda x, y: sum(jnp.sum(a * b).real for a, b in zip(*map(jax.tree.leaves, (x, y))))
    number = lambda x: dot(x, moves) if isinstance(x, tuple) else x
    tangent = lambda g: lambda *at: jax.jvp(g, at, moves)[1]
    gradient = lambda g: jax.grad(lambda *at: number(g(*at)), every)

    orders = [{"": lambda *at: dot(f(*at), weights)}]
    for _ in range(order):
        last = [*orders[-1].items()]
        orders.append(
            {f"{mode} {of}": take(g) for of, g in last
             for mode, take in (("tangent", tangent), ("gradient", gradient))}
        )  # fmt: skip
    run = jax.jit(lambda *at: [{name: g(*at) for name, g in of.items()} for of in orders])

    @cache
    def near(step, moved=every):
        """Return all derivatives, with the arguments `moved` displaced along the direction."""
        given = (x + step * m * (i in moved) for i, (x, m) in enumerate(zip(at, moves)))
        return jax.tree.map(np.asarray, run(*given))

    def slope(of, *moved):
        return derivative(lambda step: np.asarray(of(near(step, *moved))), 1e-3)

    found = near(0.0)
    for i, part in enumerate(found[1]["gradient "]):
        got, want = dot(part, moves[i]), slope(lambda x: x[0][""], (i,))
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
    for k in range(1, order + 1):
        below = "gradient " * (k - 1)
        for name, got in found[k].items():
            if not isinstance(got, tuple):
                want = slope(lambda x, k=k, below=below: number(x[k - 1][below]))
                np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance, err_msg=name)
                continue
            for i, part in enumerate(got if k > 1 else ()):
                want = slope(lambda x, k=k, below=below, i=i: x[k - 1][below][i])
                assert part.dtype == jnp.result_type(at[i])
                np.testing.assert_allclose(part, want, rtol=tolerance, atol=tolerance, err_msg=name)


def jacobian(f, arrays):
    """Compute the Jacobian by differences in each element, with the structure of jax.jacfwd.

    Complex functions must be holomorphic.
    """
    columns = []
    for i, x in enumerate(map(np.asarray, arrays)):
        columns.append([])
        for k in range(x.size):

            def moved(step, i=i, x=x, k=k):
                y = x.copy()
                y.flat[k] += step
                found = jax.tree.leaves(f(*arrays[:i], y, *arrays[i + 1 :]))
                return np.concatenate([np.ravel(z) for z in found])

            columns[i].append(derivative(moved, 3e-4))
    found, rows = f(*arrays), []
    several = isinstance(found, tuple)
    ends = np.cumsum([np.size(y) for y in (found if several else (found,))])[:-1]
    for j, y in enumerate(found if several else (found,)):
        part = lambda column, j=j: np.split(column, ends)[j]
        rows.append(tuple(
            np.stack(list(map(part, of)), -1).reshape(np.shape(y) + np.shape(x)).astype(x.dtype)
            for of, x in zip(columns, arrays)
        ))  # fmt: skip
    return tuple(rows) if several else rows[0]

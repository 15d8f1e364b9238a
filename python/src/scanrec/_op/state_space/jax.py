# SPDX-License-Identifier: BSD-3-Clause
"""``s5`` and ``lru`` in JAX: matrix products around a linear scan."""

from __future__ import annotations

from collections.abc import Hashable
from math import factorial
from typing import Literal, overload

import jax
import jax.numpy as jnp
import numpy as np

from ... import _arguments as arguments
from ..._jax.arrays import array_of, marks_of, of_rank
from ..._jax.types import ArrayLike
from ..._types import Discretisation
from ..doc import documented
from ..linear.jax import linear_scan
from .spec import LRU_DOC, S5_DOC

__all__ = ["complex_product", "lru", "real_of_product", "s5"]


@overload
def s5(
    u: ArrayLike, lambda_: ArrayLike, b: ArrayLike, c: ArrayLike, d: ArrayLike | None = None,
    log_step: ArrayLike | None = None, initial_state: ArrayLike | None = None, *,
    discretisation: Discretisation = "zero_order_hold", conjugate_symmetry: bool = True,
    intervals: ArrayLike | None = None, reverse: bool = False, resets: ArrayLike | None = None,
    return_final: Literal[False] = False, axis_name: Hashable | None = None,
) -> jax.Array: ...  # fmt: skip
@overload
def s5(
    u: ArrayLike, lambda_: ArrayLike, b: ArrayLike, c: ArrayLike, d: ArrayLike | None = None,
    log_step: ArrayLike | None = None, initial_state: ArrayLike | None = None, *,
    discretisation: Discretisation = "zero_order_hold", conjugate_symmetry: bool = True,
    intervals: ArrayLike | None = None, reverse: bool = False, resets: ArrayLike | None = None,
    return_final: Literal[True], axis_name: Hashable | None = None,
) -> tuple[jax.Array, jax.Array]: ...  # fmt: skip
@overload
def s5(
    u: ArrayLike, lambda_: ArrayLike, b: ArrayLike, c: ArrayLike, d: ArrayLike | None = None,
    log_step: ArrayLike | None = None, initial_state: ArrayLike | None = None, *,
    discretisation: Discretisation = "zero_order_hold", conjugate_symmetry: bool = True,
    intervals: ArrayLike | None = None, reverse: bool = False, resets: ArrayLike | None = None,
    return_final: bool = False, axis_name: Hashable | None = None,
) -> jax.Array | tuple[jax.Array, jax.Array]: ...  # fmt: skip
@documented(S5_DOC)
def s5(
    u: ArrayLike,
    lambda_: ArrayLike,
    b: ArrayLike,
    c: ArrayLike,
    d: ArrayLike | None = None,
    log_step: ArrayLike | None = None,
    initial_state: ArrayLike | None = None,
    *,
    discretisation: Discretisation = "zero_order_hold",
    conjugate_symmetry: bool = True,
    intervals: ArrayLike | None = None,
    reverse: bool = False,
    resets: ArrayLike | None = None,
    return_final: bool = False,
    axis_name: Hashable | None = None,
) -> jax.Array | tuple[jax.Array, jax.Array]:
    arguments.check_discretisation("s5", discretisation)
    conjugate_symmetry = arguments.flag("s5", "conjugate_symmetry", conjugate_symmetry)
    reverse = arguments.flag("s5", "reverse", reverse)
    return_final = arguments.flag("s5", "return_final", return_final)
    given = {
        "u": u, "lambda_": lambda_, "b": b, "c": c, "d": d, "log_step": log_step,
        "initial_state": initial_state, "intervals": intervals,
    }  # fmt: skip
    arrays, both_ways = _checked("s5", given, reverse)
    u, lambda_, b, c = (arrays[name] for name in ("u", "lambda_", "b", "c"))
    step = jnp.exp(arrays["log_step"]) if log_step is not None else jnp.ones((), u.dtype)
    if intervals is None:
        gate, scale = _discretised(discretisation, lambda_, step)
        x = complex_product(u, scale[:, None] * b)
    else:
        times = of_rank(arrays["intervals"][..., None], u.ndim)
        step = of_rank(step, u.ndim) * times
        gate, scale = _discretised(discretisation, of_rank(lambda_, u.ndim), step)
        x = scale * complex_product(u, b)
    edges = {"initial_state": arrays.get("initial_state"), "resets": _over_states("s5", resets, u)}
    twice = 2 if conjugate_symmetry else 1
    along = {"reverse": reverse, "axis_name": axis_name}
    return _outputs(gate, x, u, twice * c, arrays.get("d"), edges, both_ways, return_final, along)


@overload
def lru(
    u: ArrayLike, nu: ArrayLike, theta: ArrayLike, b: ArrayLike, c: ArrayLike,
    d: ArrayLike | None = None, initial_state: ArrayLike | None = None, *, reverse: bool = False,
    resets: ArrayLike | None = None, return_final: Literal[False] = False,
    axis_name: Hashable | None = None,
) -> jax.Array: ...  # fmt: skip
@overload
def lru(
    u: ArrayLike, nu: ArrayLike, theta: ArrayLike, b: ArrayLike, c: ArrayLike,
    d: ArrayLike | None = None, initial_state: ArrayLike | None = None, *, reverse: bool = False,
    resets: ArrayLike | None = None, return_final: Literal[True], axis_name: Hashable | None = None,
) -> tuple[jax.Array, jax.Array]: ...  # fmt: skip
@overload
def lru(
    u: ArrayLike, nu: ArrayLike, theta: ArrayLike, b: ArrayLike, c: ArrayLike,
    d: ArrayLike | None = None, initial_state: ArrayLike | None = None, *, reverse: bool = False,
    resets: ArrayLike | None = None, return_final: bool = False, axis_name: Hashable | None = None,
) -> jax.Array | tuple[jax.Array, jax.Array]: ...  # fmt: skip
@documented(LRU_DOC)
def lru(
    u: ArrayLike,
    nu: ArrayLike,
    theta: ArrayLike,
    b: ArrayLike,
    c: ArrayLike,
    d: ArrayLike | None = None,
    initial_state: ArrayLike | None = None,
    *,
    reverse: bool = False,
    resets: ArrayLike | None = None,
    return_final: bool = False,
    axis_name: Hashable | None = None,
) -> jax.Array | tuple[jax.Array, jax.Array]:
    reverse = arguments.flag("lru", "reverse", reverse)
    return_final = arguments.flag("lru", "return_final", return_final)
    given = {
        "u": u, "nu": nu, "theta": theta, "b": b, "c": c, "d": d, "initial_state": initial_state,
    }  # fmt: skip
    arrays, both_ways = _checked("lru", given, reverse)
    decay = jnp.exp(jnp.minimum(arrays["nu"], _LAST_NU))
    gate = jnp.exp(jax.lax.complex(-decay, jnp.exp(arrays["theta"])))
    scale = _root(-jnp.expm1(-2 * decay)).astype(gate.dtype)
    x = complex_product(arrays["u"], scale[:, None] * arrays["b"])
    edges = {
        "initial_state": arrays.get("initial_state"),
        "resets": _over_states("lru", resets, arrays["u"]),
    }
    u, c, d = arrays["u"], arrays["c"], arrays.get("d")
    along = {"reverse": reverse, "axis_name": axis_name}
    return _outputs(gate, x, u, c, d, edges, both_ways, return_final, along)


_COMPLEX = ("lambda_", "b", "c", "initial_state")

#: From here on gates are 0 and scales 1 in every type: exp(-exp(7)) underflows.
_LAST_NU = 7.0


def _checked(call, given, reverse):
    """Returns the arrays that are not None in one precision, and whether the system runs both
    ways."""
    arguments.check_given(call, given)
    arrays = {name: array_of(call, name, x) for name, x in given.items() if x is not None}
    both_ways = arguments.check_state_space(
        call,
        {name: x.shape for name, x in arrays.items()},
        {name: x.dtype.name for name, x in arrays.items()},
        reverse,
    )
    of = jnp.result_type(*(x.real.dtype for n, x in arrays.items() if n != "initial_state"))
    return {
        name: x.astype(np.result_type(of, np.complex64) if name in _COMPLEX else of)
        for name, x in arrays.items()
    }, both_ways


def complex_product(u, matrix):
    """The product of u (..., H) and a complex matrix (P, H), by products of real matrices."""
    return jax.lax.complex(u @ matrix.real.T, u @ matrix.imag.T)


def _outputs(gate, x, u, c, d, edges, both_ways, return_final, along):
    given = {"resets": edges["resets"], **along}
    state = linear_scan(gate, x, edges["initial_state"], return_final=return_final, **given)
    state, final = state if return_final else (state, None)
    states = c.shape[1] // 2 if both_ways else c.shape[1]
    y = real_of_product(state, c[:, :states])
    if both_ways:
        state = linear_scan(gate, x, **{**given, "reverse": True})
        y = y + real_of_product(state, c[:, states:])
    if d is not None:
        y = y + of_rank(d, u.ndim) * u
    return (y, final) if return_final else y


def _over_states(call, resets, u):
    return None if resets is None else marks_of(call, resets, u.shape[:-1], u.ndim - 2)[..., None]


def real_of_product(x, c):
    return x.real @ c.real.T - x.imag @ c.imag.T


def _discretised(method, lambda_, step):
    """Returns the gate and the scale of the input of a discretised system."""
    step = step.astype(lambda_.dtype)
    z = lambda_ * step
    if method == "bilinear":
        factor = 1 / (1 - z / 2)
        return (1 + z / 2) * factor, step * factor
    return jnp.exp(z), step * _phi(z)


def _root(x):
    """The square root with slope 0 at 0. A scale that underflows to 0 stays 0."""
    is_zero = x == 0
    return jnp.where(is_zero, 0, jnp.sqrt(jnp.where(is_zero, 1, x)))


def _phi(z):
    """(exp(z) - 1) / z, near 0 by its series. It and its derivatives have errors of a few
    roundings."""
    near = z.real**2 + z.imag**2 < 0.25
    small = jnp.where(near, z, 0)
    series = jnp.zeros_like(z)
    for k in reversed(range(15)):
        series = series * small + 1 / factorial(k + 1)
    large = jnp.where(near, 1, z)
    half = jnp.sin(large.imag / 2)
    grows = jnp.expm1(large.real)
    minus_one = jax.lax.complex(
        grows * jnp.cos(large.imag) - 2 * half**2, (grows + 1) * jnp.sin(large.imag)
    )
    return jnp.where(near, series, minus_one / large)

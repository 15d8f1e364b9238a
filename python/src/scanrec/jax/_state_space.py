# SPDX-License-Identifier: BSD-3-Clause
"""Diagonal state spaces: matrix products, which XLA has, around a scan."""

from __future__ import annotations

from collections.abc import Hashable
from math import factorial
from typing import Literal, overload

import jax
import jax.numpy as jnp
import numpy as np

from .. import _arguments as arguments
from .._types import Discretisation
from ._arrays import array_of, marks_of, of_rank
from ._linear_scan import linear_scan
from ._types import ArrayLike

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
    """A diagonal state space over sequences, as S5 has it::

        x[t] = gate * x[t-1] + scale * (B u[t])
        y[t] = Re(C x[t]) + D u[t]                 2 Re(C x[t]) with conjugate symmetry

    where ``gate`` and ``scale`` are ``lambda_`` discretised with the steps ``exp(log_step)``.
    Matrix products around one scan whose gate, without ``intervals``, is never spread over time.
    Differentiable in all arrays.

    Parameters
    ----------
    u:
        ``(..., T, H)``, float32 or float64.
    lambda_:
        ``(P,)``, complex: the diagonal of the continuous system.
    b, c:
        ``(P, H)`` and ``(Q, P)``, complex. With ``(Q, 2 * P)`` as many states again run from the
        end of time, and the second half of ``c`` is theirs.
    d:
        ``(H,)``, real, where Q is H. None is 0.
    log_step:
        ``(P,)``, real: logarithms of the steps. None is 0, a step of 1.
    initial_state:
        Complex, any shape that broadcasts to ``(..., P)``: the state before the first step, in
        reverse behind the last. None is 0. Systems that run both ways have none.
    discretisation:
        ``"zero_order_hold"``, ``"bilinear"``.
    conjugate_symmetry:
        Whether the P states stand for 2 P in conjugate pairs.
    intervals:
        For samples at irregular times, ``(..., T)``: the factor of the step by which states come to
        each, in either direction.
    reverse:
        ``x[t] = gate * x[t+1] + ...``; the final state is then that of the first step. Nothing is
        flipped. Not of systems that run both ways.
    resets:
        Booleans that broadcast to ``(..., T)``, with all of its steps: a sequence starts here, as
        of
        :func:`linear_scan`. There may be one step more of them, whose mark cuts a reverse scan from
        ``initial_state``.
    return_final:
        Returns ``(y, final_state)``, the latter ``(..., P)``: of systems that run both ways that of
        the states that run forward.
    axis_name:
        Where time is split over devices: as of :func:`linear_scan`.

    Returns
    -------
    ``(..., T, Q)``, real.

    Raises
    ------
    ValueError, TypeError:
        Names the argument, what was expected and what came.

    Notes
    -----
    Source: Smith et al., Simplified State Space Layers for Sequence Modeling (2023), sections 2-3.
    """
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
    """A linear recurrent unit over sequences: :func:`s5` without conjugate symmetry, with gates on
    a ring of the complex plane::

        gate = exp(-exp(nu) + i exp(theta))        scale = sqrt(1 - |gate|^2)

    Parameters
    ----------
    u:
        ``(..., T, H)``, float32 or float64.
    nu, theta:
        ``(P,)``, real.
    b, c, d, initial_state, reverse, resets, return_final, axis_name:
        As of :func:`s5`.

    Returns
    -------
    ``(..., T, Q)``, real.

    Raises
    ------
    ValueError, TypeError:
        Names the argument, what was expected and what came.

    Notes
    -----
    Source: Orvieto et al., Resurrecting Recurrent Neural Networks for Long Sequences (2023),
    section 3.
    """
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

#: From here on gates are 0 and scales 1, in every type: exp(-exp(7)) is.
_LAST_NU = 7.0


def _checked(call, given, reverse):
    """Those arrays that there are, of one precision, and whether the system runs both ways."""
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
    """u (..., H) times a complex matrix (P, H), as products of real ones."""
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
    """What a system is multiplied by per step: (gate, scale)."""
    step = step.astype(lambda_.dtype)
    z = lambda_ * step
    if method == "bilinear":
        factor = 1 / (1 - z / 2)
        return (1 + z / 2) * factor, step * factor
    return jnp.exp(z), step * _phi(z)


def _root(x):
    """The square root, of slope 0 at 0: below the least number a scale is 0, and stays it."""
    is_zero = x == 0
    return jnp.where(is_zero, 0, jnp.sqrt(jnp.where(is_zero, 1, x)))


def _phi(z):
    """(exp(z) - 1) / z, to a few roundings, and so its derivatives: near 0 by its series."""
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

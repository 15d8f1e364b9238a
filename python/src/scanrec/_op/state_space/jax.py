# SPDX-License-Identifier: BSD-3-Clause
"""``s5`` and ``lru`` in JAX: matrix products around a linear scan."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Literal, overload

import jax
import jax.numpy as jnp

from ..._jax.arrays import array_of, reset_mask_of
from ..._jax.types import ArrayLike
from ..._types import Discretisation
from ..doc import documented
from ..linear.jax import linear_scan
from .spec import LRU_DOC, S5_DOC
from .system import System

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
    given = {
        "u": u, "lambda_": lambda_, "b": b, "c": c, "d": d, "log_step": log_step,
        "initial_state": initial_state, "intervals": intervals,
    }  # fmt: skip
    system = _System("s5", given, resets, return_final, reverse, axis_name=axis_name)
    return system.s5(discretisation, conjugate_symmetry)


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
    given = {
        "u": u, "nu": nu, "theta": theta, "b": b, "c": c, "d": d, "initial_state": initial_state,
    }  # fmt: skip
    return _System("lru", given, resets, return_final, reverse, axis_name=axis_name).lru()


def complex_product(u: jax.Array, matrix: jax.Array) -> jax.Array:
    """u m^T for real u (..., H) and a complex matrix m (P, H), by products of real matrices."""
    return jax.lax.complex(u @ matrix.real.T, u @ matrix.imag.T)


def real_of_product(x: jax.Array, c: jax.Array) -> jax.Array:
    """The real part of x c^T."""
    product: jax.Array = x.real @ c.real.T - x.imag @ c.imag.T
    return product


class _System(System[jax.Array]):
    xp = jnp
    complex = staticmethod(jax.lax.complex)
    complex_product = staticmethod(complex_product)
    real_of_product = staticmethod(real_of_product)
    scan = staticmethod(linear_scan)

    def array(self, name: str, x: ArrayLike, u: ArrayLike) -> jax.Array:
        return array_of(self.call, name, x)

    def converted(self, x: jax.Array, dtype: str) -> jax.Array:
        return x.astype(dtype)

    def reset_mask(self, resets: ArrayLike, u: jax.Array) -> jax.Array:
        return reset_mask_of(self.call, resets, u.shape[:-1], u.ndim - 2)

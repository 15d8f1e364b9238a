# SPDX-License-Identifier: BSD-3-Clause
"""``qrnn_pool`` in JAX: checks and aligns the arguments, then binds the primitive."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Literal, SupportsIndex, overload

import jax
import jax.numpy as jnp

from ... import _arguments as arguments
from ..._jax.arrays import aligned, boundary_of, checked, promoted, reset_mask_of, zoneout_of
from ..._jax.scans import Problem
from ..._jax.types import ArrayLike
from ..._types import Memory, Pool
from ..doc import documented
from ..linear.jax_split_time import scan_parts
from ..spec import SEQUENCE_DOC
from .jax_rules import GATED_SCAN
from .spec import GATES, QRNN_POOL_DOC

__all__ = ["qrnn_pool"]


@overload
def qrnn_pool(
    pre: ArrayLike | Sequence[ArrayLike], initial_state: ArrayLike | None = None, *,
    pool: Pool = "fo", axis: SupportsIndex = -2, reverse: bool = False,
    resets: ArrayLike | None = None, zoneout: ArrayLike | None = None, forget_bias: float = 0.0,
    memory: Memory = "store", return_final: Literal[False] = False,
    axis_name: Hashable | None = None,
) -> jax.Array: ...  # fmt: skip
@overload
def qrnn_pool(
    pre: ArrayLike | Sequence[ArrayLike], initial_state: ArrayLike | None = None, *,
    pool: Pool = "fo", axis: SupportsIndex = -2, reverse: bool = False,
    resets: ArrayLike | None = None, zoneout: ArrayLike | None = None, forget_bias: float = 0.0,
    memory: Memory = "store", return_final: Literal[True], axis_name: Hashable | None = None,
) -> tuple[jax.Array, jax.Array]: ...  # fmt: skip
@overload
def qrnn_pool(
    pre: ArrayLike | Sequence[ArrayLike], initial_state: ArrayLike | None = None, *,
    pool: Pool = "fo", axis: SupportsIndex = -2, reverse: bool = False,
    resets: ArrayLike | None = None, zoneout: ArrayLike | None = None, forget_bias: float = 0.0,
    memory: Memory = "store", return_final: bool = False, axis_name: Hashable | None = None,
) -> jax.Array | tuple[jax.Array, jax.Array]: ...  # fmt: skip
@documented(SEQUENCE_DOC, QRNN_POOL_DOC)
def qrnn_pool(
    pre: ArrayLike | Sequence[ArrayLike],
    initial_state: ArrayLike | None = None,
    *,
    pool: Pool = "fo",
    axis: SupportsIndex = -2,
    reverse: bool = False,
    resets: ArrayLike | None = None,
    zoneout: ArrayLike | None = None,
    forget_bias: float = 0.0,
    memory: Memory = "store",
    return_final: bool = False,
    axis_name: Hashable | None = None,
) -> jax.Array | tuple[jax.Array, jax.Array]:
    call = "qrnn_pool"
    reverse = arguments.flag(call, "reverse", reverse)
    return_final = arguments.flag(call, "return_final", return_final)
    count = arguments.pool_size(call, pool)
    given: Sequence[Any] = pre if isinstance(pre, (tuple, list)) else (pre,)
    packed = given is not pre
    names = ("pre",) if packed else GATES[:count]
    if len(given) != len(names):
        arguments.refuse(call, "pre", f"{count} arrays for pool '{pool}'", len(given))
    given = [checked(call, name, value) for name, value in zip(names, given)]
    for name, value in (*zip(names, given), ("initial_state", initial_state)):
        if value is not None and jnp.iscomplexobj(value):
            arguments.refuse(call, name, "a real type", jnp.result_type(value), TypeError)
    dtype = jnp.result_type(*given)
    if initial_state is not None:
        dtype = promoted(call, "initial_state", dtype, *given, initial_state)
    arguments.check_real(call, names[0], dtype.name)

    first = jnp.asarray(given[0], dtype)
    if not first.ndim:
        arguments.refuse(call, names[0], "an array with a time axis", "a number")
    axis = arguments.time_axis(call, axis, first.shape)
    shape, stack = first.shape, -1
    if packed:
        stack = arguments.stack_axis(call, first.shape, axis, count)
        apart, shape = arguments.unstacked(first.shape, stack, count)
        arrays = {"candidate": first.reshape(apart)}
    else:
        arrays = {n: aligned(call, n, x, shape, dtype) for n, x in zip(names, given)}
    if initial_state is not None:
        arrays["initial_state"] = boundary_of(call, initial_state, shape, axis, dtype)
    if resets is not None:
        arrays["resets"] = reset_mask_of(call, resets, shape, axis)
    if zoneout is not None:
        arrays["zoneout"] = zoneout_of(call, zoneout, shape)

    problem = Problem(
        shape,
        axis,
        reverse,
        stack,
        forget_bias=arguments.number(call, "forget_bias", forget_bias),
        recompute=arguments.recomputes(call, memory),
    )
    return scan_parts(GATED_SCAN, problem, arrays, return_final, axis_name)

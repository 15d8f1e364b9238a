# SPDX-License-Identifier: BSD-3-Clause
"""Conversion of arguments to arrays that primitives take: checked, of one type and one rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from .. import _arguments as arguments

__all__ = [
    *("aligned", "array_of", "checked", "boundary_dtype", "boundary_of", "given", "is_known"),
    *("reset_mask_of", "of_rank", "promoted", "zoneout_of"),
]

#: Adds axes of extent 1 in front of an array, up to a rank.
of_rank = jax.lax.broadcast_to_rank


def boundary_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    """The type in which kernels compute if elements have this type. It is also the type of boundary
    (initial and final) states."""
    return np.dtype(arguments.BOUNDARY_DTYPES[np.dtype(dtype).name])


def given(call: str, name: str, value: Any) -> Any:
    """Return the value as a Python number, or as an array of JAX or NumPy. Variables of Flax are
    converted by their own method."""
    if arguments.is_number(value) or isinstance(value, jax.Array):
        return value
    if hasattr(value, "__jax_array__"):
        return jnp.asarray(value)
    return arguments.array_of(call, name, value)


def array_of(call: str, name: str, value: Any) -> jax.Array:
    """Return the value as an array of JAX, of any type. Errors name the argument."""
    value = given(call, name, value)
    try:
        return jnp.asarray(value)
    except TypeError as error:  # JAX has no arrays of text, dates and some other types
        text = f"{call}: argument '{name}': expected an array of numbers, got {value.dtype}"
        raise TypeError(text) from error


def is_known(x: Any) -> bool:
    """Whether the values of an array can be read at once. Traced arrays, arrays on a GPU and arrays
    with parts in other processes cannot be read at once."""
    if not isinstance(x, jax.Array):
        return True
    if isinstance(x, jax.core.Tracer) or not x.is_fully_addressable:
        return False
    return all(device.platform == "cpu" for device in x.devices())


def checked(call: str, name: str, value: Any) -> Any:
    """Return a number or an array. Raises TypeError if no kernel has its element type."""
    value = given(call, name, value)
    if not arguments.is_number(value):
        arguments.check_dtype(call, name, value.dtype.name)
    return value


def aligned(call: str, name: str, value: Any, shape: Sequence[int], dtype: DTypeLike) -> jax.Array:
    """Return the value as an array of this type, with axes of extent 1 in front up to the rank of
    ``shape``. Raises ValueError unless it broadcasts to ``shape``."""
    array = jnp.asarray(value, dtype)
    arguments.check_shape(call, name, array.shape, shape)
    return of_rank(array, len(shape))


def promoted(call: str, name: str, dtype: Any, *values: Any) -> Any:
    """Return the element type of a call. The last of ``values`` is the initial state, and ``dtype``
    is the common type of the others. The result is ``dtype`` if the initial state is weakly typed
    or has the type in which kernels compute."""
    *others, first = values
    first = checked(call, name, first)
    # Python numbers, and arrays made from them, are weakly typed: other types override their type.
    with jax.numpy_dtype_promotion("standard"):
        weak = jnp.result_type(first, jnp.bfloat16) == jnp.bfloat16
    if weak or jnp.result_type(first) == boundary_dtype(dtype):
        return dtype
    return jnp.result_type(*others, first)


def boundary_of(
    call: str, value: Any, shape: Sequence[int], axis: int, dtype: DTypeLike
) -> jax.Array:
    """Return an initial state with a time axis of extent 1."""
    boundaries = arguments.boundary_shape(shape, axis)
    return jnp.expand_dims(
        aligned(call, "initial_state", value, boundaries, boundary_dtype(dtype)), axis
    )


def _booleans(call: str, name: str, value: Any) -> jax.Array:
    array = array_of(call, name, value)
    if array.dtype != np.bool_:
        arguments.refuse(call, name, "booleans", array.dtype, TypeError)
    return array


def reset_mask_of(call: str, resets: Any, shape: Sequence[int], axis: int) -> jax.Array:
    """Return the reset mask with the rank of the input."""
    reset_mask = _booleans(call, "resets", resets)
    shape = arguments.check_resets(call, reset_mask.shape, shape, axis)
    return aligned(call, "resets", reset_mask, shape, np.bool_)


def zoneout_of(call: str, zoneout: Any, shape: Sequence[int]) -> jax.Array:
    """Return the mask of steps that keep the state, with the rank of the input."""
    return aligned(call, "zoneout", _booleans(call, "zoneout", zoneout), shape, np.bool_)

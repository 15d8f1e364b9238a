# SPDX-License-Identifier: BSD-3-Clause
"""Arguments of the calls as arrays that primitives take: checked, of one type, of one rank."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import _arguments as arguments
from ._primitives import edge_dtype

__all__ = [
    *("aligned", "array_of", "checked", "edge_of", "given", "is_known", "marks_of"),
    *("of_rank", "promoted", "zoneout_of"),
]

#: x with axes of extent 1 in front, so many in all: nothing here broadcasts to more axes unasked.
of_rank = jax.lax.broadcast_to_rank


def given(call: str, name: str, value: Any) -> Any:
    """The value as a number of Python or an array, of JAX or of NumPy. Variables of Flax, and their
    like, say by themselves which array of JAX they are."""
    if arguments.is_number(value) or isinstance(value, jax.Array):
        return value
    if hasattr(value, "__jax_array__"):
        return jnp.asarray(value)
    return arguments.array_of(call, name, value)


def array_of(call: str, name: str, value: Any) -> jax.Array:
    """The value as an array of any type, or an error that names it."""
    value = given(call, name, value)
    try:
        return jnp.asarray(value)
    except TypeError as error:  # of text, dates, and other types that JAX has not
        text = f"{call}: argument '{name}': expected an array of numbers, got {value.dtype}"
        raise TypeError(text) from error


def is_known(x: Any) -> bool:
    """Whether values can be looked at: not when a call is traced, nor without waiting for a GPU."""
    if not isinstance(x, jax.Array):
        return True
    if isinstance(x, jax.core.Tracer) or not x.is_fully_addressable:
        return False
    return all(device.platform == "cpu" for device in x.devices())


def checked(call: str, name: str, value: Any) -> Any:
    """The value, if it is a number or an array of an element type that kernels know."""
    value = given(call, name, value)
    if not arguments.is_number(value):
        arguments.check_dtype(call, name, value.dtype.name)
    return value


def aligned(call: str, name: str, value: Any, shape, dtype: Any) -> jax.Array:
    """The value with as many axes as the shape that it broadcasts to."""
    value = jnp.asarray(value, dtype)
    arguments.check_shape(call, name, value.shape, shape)
    return value.reshape((1,) * (len(shape) - value.ndim) + value.shape)


def promoted(call: str, name: str, dtype: Any, *values: Any) -> Any:
    """The type of a call, with a state at an edge among its values."""
    *others, first = values
    first = checked(call, name, first)
    with jax.numpy_dtype_promotion("standard"):  # with a type that nobody gave
        weak = jnp.result_type(first, jnp.bfloat16) == jnp.bfloat16  # a number, or made of numbers
    if weak or jnp.result_type(first) == edge_dtype(dtype):
        return dtype
    return jnp.result_type(*others, first)


def edge_of(call: str, value: Any, shape, axis: int, dtype: Any) -> jax.Array:
    """A state before the first step, with an axis of time of extent 1."""
    edges = arguments.edge_shape(shape, axis)
    value = aligned(call, "initial_state", value, edges, edge_dtype(dtype))
    return jnp.expand_dims(value, axis)


def _booleans(call, name, value):
    value = array_of(call, name, value)
    if value.dtype != np.bool_:
        arguments.refuse(call, name, "booleans", value.dtype, TypeError)
    return value


def marks_of(call: str, resets: Any, shape, axis: int) -> jax.Array:
    """Where sequences start."""
    marks = _booleans(call, "resets", resets)
    shape = arguments.check_resets(call, marks.shape, shape, axis)
    return aligned(call, "resets", marks, shape, np.bool_)


def zoneout_of(call: str, zoneout: Any, shape) -> jax.Array:
    """Where states stay as they were."""
    return aligned(call, "zoneout", _booleans(call, "zoneout", zoneout), shape, np.bool_)

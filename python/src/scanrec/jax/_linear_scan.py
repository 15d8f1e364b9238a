# SPDX-License-Identifier: BSD-3-Clause
"""The call: arguments checked and aligned, then the primitive."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import _arguments as arguments
from . import _rules  # noqa: F401 (registers how the primitives differentiate)
from ._primitives import Problem, bind, edge_dtype
from ._sharding import varying_alike

__all__ = ["linear_scan"]


def linear_scan(
    gate: Any,
    input: Any,
    initial_state: Any = None,
    *,
    axis: int = -2,
    reverse: bool = False,
    resets: Any = None,
    return_final: bool = False,
) -> Any:
    """``state[t] = gate[t] * state[t-1] + input[t]`` along an axis, differentiable in ``gate``,
    ``input`` and ``initial_state``.

    Parameters
    ----------
    gate:
        Any shape that broadcasts to that of ``input``: ``(C,)`` for a constant, ``(B, T, 1)`` for
        one that channels share. Neither it nor its gradient is materialised.
    input:
        ``(..., T, C)`` by default. Its shape is the result's. float16, bfloat16, float32, float64,
        complex64, complex128; arrays of several types are promoted as JAX does.
    initial_state:
        The state before the first step: any shape that broadcasts to that of ``input`` without
        the axis of time. None is 0.
    axis:
        The axis of time in ``input``.
    reverse:
        ``state[t] = gate[t] * state[t+1] + input[t]``; ``initial_state`` is then the one after the
        last step. Nothing is flipped.
    resets:
        Booleans that broadcast to ``input``, though not along time. Where one is set a sequence
        starts: the link between steps t-1 and t is cut, in either direction.
    return_final:
        Returns ``(state, final_state)``. The final state has the shape of ``input`` without the
        axis of time, and is float32 for 16-bit types. The gradient of a loss that uses one of the
        two never reads or writes a gradient of the other.

    Returns
    -------
    The states. 16-bit types are computed in float32 and rounded when stored.

    Raises
    ------
    ValueError, TypeError:
        When called or traced; names the argument, what was expected and what came.

    Notes
    -----
    Forward mode, reverse mode, any order, ``vmap``, ``jit``, ``checkpoint``. Gradients of complex
    arrays are JAX's, without conjugates. ``docs/python.md`` has the table of what works.
    """
    call = "linear_scan"
    names = {"gate": gate, "input": input}
    dtype = jnp.result_type(*(_checked(call, n, v) for n, v in names.items()))
    if initial_state is not None:
        first = _checked(call, "initial_state", initial_state)
        weak = jnp.result_type(first, jnp.bfloat16) == jnp.bfloat16  # a number, or made of numbers
        if not weak and jnp.result_type(first) != edge_dtype(dtype):
            dtype = jnp.result_type(*names.values(), first)
    arguments.check_dtype(call, "input", dtype.name)
    input = jnp.asarray(input, dtype)
    shape = input.shape
    if not shape:
        arguments.refuse(call, "input", "an array with an axis of time", "a number")
    axis = arguments.time_axis(call, axis, shape)
    edges = arguments.edge_shape(shape, axis)

    def aligned(name, value, wanted, of):
        value = jnp.asarray(value, of)
        arguments.check_shape(call, name, value.shape, wanted)
        return value.reshape((1,) * (len(wanted) - value.ndim) + value.shape)

    arrays = {"gate": aligned("gate", gate, shape, dtype), "input": input}
    if initial_state is not None:
        edge = np.dtype(arguments.EDGE_DTYPES[dtype.name])
        value = aligned("initial_state", initial_state, edges, edge)
        arrays["initial_state"] = jnp.expand_dims(value, axis)
    if resets is not None:
        marks = jnp.asarray(resets)
        if marks.dtype != np.bool_:
            arguments.refuse(call, "resets", "booleans", marks.dtype, TypeError)
        arguments.check_resets(call, marks.shape, shape, axis)
        arrays["resets"] = aligned("resets", marks, shape, np.bool_)

    problem = Problem(shape, axis, bool(reverse))
    wanted = {"state": shape}
    if return_final:
        wanted["final_state"] = problem.edge
    out = bind(call, problem, varying_alike(arrays), wanted)
    if return_final:
        return out["state"], jax.lax.squeeze(out["final_state"], (axis,))
    return out["state"]


def _checked(call, name, value):
    """The value, if it is a number or an array of an element type that kernels know."""
    if isinstance(value, (bool, int, float, complex)) and not isinstance(value, np.generic):
        return value
    value = value if isinstance(value, jax.Array) else np.asarray(value)
    arguments.check_dtype(call, name, value.dtype.name)
    return value

# SPDX-License-Identifier: BSD-3-Clause
"""The call: arguments checked and aligned, then the primitive."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Literal, SupportsIndex, overload

import jax
import jax.numpy as jnp

from .. import _arguments as arguments
from .._native import LOG_GATE, LOG_INPUT
from . import _gated_rules, _rules  # noqa: F401 (register how the primitives differentiate)
from ._arrays import aligned, checked, edge_of, marks_of, promoted
from ._primitives import Problem
from ._split_time import bind_parts
from ._types import ArrayLike

__all__ = ["linear_scan"]


@overload
def linear_scan(
    gate: ArrayLike, input: ArrayLike, initial_state: ArrayLike | None = None, *,
    axis: SupportsIndex = -2, reverse: bool = False, resets: ArrayLike | None = None,
    log_gate: bool = False, log_input: bool = False, return_final: Literal[False] = False,
    axis_name: Hashable | None = None,
) -> jax.Array: ...  # fmt: skip
@overload
def linear_scan(
    gate: ArrayLike, input: ArrayLike, initial_state: ArrayLike | None = None, *,
    axis: SupportsIndex = -2, reverse: bool = False, resets: ArrayLike | None = None,
    log_gate: bool = False, log_input: bool = False, return_final: Literal[True],
    axis_name: Hashable | None = None,
) -> tuple[jax.Array, jax.Array]: ...  # fmt: skip
@overload
def linear_scan(
    gate: ArrayLike, input: ArrayLike, initial_state: ArrayLike | None = None, *,
    axis: SupportsIndex = -2, reverse: bool = False, resets: ArrayLike | None = None,
    log_gate: bool = False, log_input: bool = False, return_final: bool = False,
    axis_name: Hashable | None = None,
) -> jax.Array | tuple[jax.Array, jax.Array]: ...  # fmt: skip
def linear_scan(
    gate: ArrayLike,
    input: ArrayLike,
    initial_state: ArrayLike | None = None,
    *,
    axis: SupportsIndex = -2,
    reverse: bool = False,
    resets: ArrayLike | None = None,
    log_gate: bool = False,
    log_input: bool = False,
    return_final: bool = False,
    axis_name: Hashable | None = None,
) -> jax.Array | tuple[jax.Array, jax.Array]:
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
        starts: the link between steps t-1 and t is cut, in either direction. There may be one step
        more of them, whose mark is behind the last step: it cuts a reverse scan from
        ``initial_state``. A chunk of a stream takes the marks of its steps and the next one.
    log_gate, log_input:
        ``gate``, or ``input``, holds logarithms: ``exp(gate[t]) * state[t-1] + exp(input[t])``.
        They are exponentiated while they are read, and gradients are those of the logarithms: what
        else would be two more arrays written, kept and read. -inf is 0. Real types.
    return_final:
        Returns ``(state, final_state)``. The final state has the shape of ``input`` without the
        axis of time, and is float32 for 16-bit types. The gradient of a loss that uses one of the
        two never reads or writes a gradient of the other.
    axis_name:
        Within ``shard_map`` over a mesh whose devices have one part of time each: the axis, or
        axes, of the mesh, as collectives of ``jax.lax`` take them. Arrays are the parts of this
        device, and follow each other as devices do; ``initial_state`` is that of the whole
        sequence, read on the device that has its first step; the final state is that of the whole
        sequence, on all. A reverse scan finds marks behind a part on the next device. Two numbers
        per sequence and device travel, in either direction. Arrays that are split along time by
        explicit sharding need no name.

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
    reverse = arguments.flag(call, "reverse", reverse)
    return_final = arguments.flag(call, "return_final", return_final)
    log_gate = arguments.flag(call, "log_gate", log_gate)
    log_input = arguments.flag(call, "log_input", log_input)
    values = [checked(call, name, x) for name, x in (("gate", gate), ("input", input))]
    dtype = jnp.result_type(*values)
    if initial_state is not None:
        dtype = promoted(call, "initial_state", dtype, *values, initial_state)
    arguments.check_dtype(call, "input", dtype.name)
    input = jnp.asarray(input, dtype)
    shape = input.shape
    if not shape:
        arguments.refuse(call, "input", "an array with an axis of time", "a number")
    axis = arguments.time_axis(call, axis, shape)

    arrays = {"gate": aligned(call, "gate", gate, shape, dtype), "input": input}
    if initial_state is not None:
        arrays["initial_state"] = edge_of(call, initial_state, shape, axis, dtype)
    if resets is not None:
        arrays["resets"] = marks_of(call, resets, shape, axis)

    output = "state"
    problem = Problem(shape, axis, reverse)
    if log_gate or log_input:  # a gated scan, whose outputs are the states
        arguments.check_real(call, "gate" if log_gate else "input", dtype.name)
        call, output = "gated_scan", "output"
        problem = problem._replace(cell=LOG_GATE * log_gate + LOG_INPUT * log_input)
        arrays["candidate"], arrays["forget_gate"] = arrays.pop("input"), arrays.pop("gate")
    wanted = {output: shape}
    if return_final:
        wanted["final_state"] = problem.edge
    out = bind_parts(call, problem, arrays, wanted, axis_name)
    if return_final:
        return out[output], jax.lax.squeeze(out["final_state"], (axis,))
    return out[output]

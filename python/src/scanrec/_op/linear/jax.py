# SPDX-License-Identifier: BSD-3-Clause
"""``linear_scan`` in JAX. It checks and converts its arguments, then binds a primitive."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Literal, SupportsIndex, overload

import jax
import jax.numpy as jnp

from ... import _arguments as arguments
from ..._jax.arrays import aligned, boundary_of, checked, promoted, reset_mask_of
from ..._jax.scans import Problem
from ..._jax.types import ArrayLike
from ..doc import documented
from ..spec import SEQUENCE_DOC
from .jax_computed import LOG_SCAN
from .jax_rules import LINEAR_SCAN
from .jax_split_time import scan_parts
from .spec import LINEAR_SCAN_DOC, LOG_GATE, LOG_INPUT

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
@documented(SEQUENCE_DOC, LINEAR_SCAN_DOC)
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
    """Differentiable in ``gate``, ``input`` and ``initial_state``.

    Parameters
    ----------
    axis_name:
        Within ``shard_map``, the axis or axes of the mesh that time is split over, in the form that
        the collectives of ``jax.lax`` take. Each device has one part of the sequence. The parts
        follow the order of devices. Arrays that explicit sharding splits along time do not need
        this argument.

        - ``initial_state`` belongs to the whole sequence. The device where the scan starts reads
          it.
        - The final state belongs to the whole sequence, and all devices get it.
        - ``resets`` belong to the part. A reverse scan also needs the reset of the first step after
          the part. It comes from the next device, unless ``resets`` has that further step.
        - The devices exchange about two numbers per sequence and device for the call, or three with
          ``resets``, and one for the gradient.

    Notes
    -----
    Supported: forward and reverse mode of any order, ``vmap``, ``jit`` and ``checkpoint``.
    A table in ``docs/python_derivatives.md`` has the details. Gradients of complex arrays are not
    conjugated, as JAX defines them. If a loss uses only the states or only the final state, the
    cotangent of the unused result is neither read nor written.
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
        arguments.refuse(call, "input", "an array with a time axis", "a number")
    axis = arguments.time_axis(call, axis, shape)

    arrays = {"gate": aligned(call, "gate", gate, shape, dtype), "input": input}
    if initial_state is not None:
        arrays["initial_state"] = boundary_of(call, initial_state, shape, axis, dtype)
    if resets is not None:
        arrays["resets"] = reset_mask_of(call, resets, shape, axis)

    logarithms = LOG_GATE * log_gate + LOG_INPUT * log_input
    if logarithms:
        arguments.check_real(call, "gate" if log_gate else "input", dtype.name)
    problem = Problem(shape, axis, reverse, logarithms=logarithms)
    scan = LOG_SCAN if logarithms else LINEAR_SCAN
    return scan_parts(scan, problem, arrays, return_final, axis_name)

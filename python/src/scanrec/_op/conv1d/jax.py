# SPDX-License-Identifier: BSD-3-Clause
"""``causal_conv1d`` and ``causal_conv1d_update`` in JAX."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Literal, overload

import jax
import jax.numpy as jnp
import numpy as np

from ... import _arguments as arguments
from ..._jax.arrays import array_of, boundary_dtype, is_known
from ..._jax.sharding import varying_alike
from ..._jax.types import ArrayLike
from ..doc import documented
from .jax_rules import CAUSAL_CONV1D
from .spec import CAUSAL_CONV1D_DOC, Conv1dProblem, check_channels, check_types, is_silu

__all__ = ["causal_conv1d", "causal_conv1d_update"]

_TYPES = ("float32", "bfloat16", "float16", "float64")


@overload
def causal_conv1d(
    x: ArrayLike, weight: ArrayLike, bias: ArrayLike | None = None, *,
    activation: str | None = None, initial_state: ArrayLike | None = None,
    resets: ArrayLike | None = None, return_final: Literal[False] = False,
) -> jax.Array: ...  # fmt: skip
@overload
def causal_conv1d(
    x: ArrayLike, weight: ArrayLike, bias: ArrayLike | None = None, *,
    activation: str | None = None, initial_state: ArrayLike | None = None,
    resets: ArrayLike | None = None, return_final: Literal[True],
) -> tuple[jax.Array, jax.Array]: ...  # fmt: skip
@overload
def causal_conv1d(
    x: ArrayLike, weight: ArrayLike, bias: ArrayLike | None = None, *,
    activation: str | None = None, initial_state: ArrayLike | None = None,
    resets: ArrayLike | None = None, return_final: bool = False,
) -> jax.Array | tuple[jax.Array, jax.Array]: ...  # fmt: skip
@documented(CAUSAL_CONV1D_DOC)
def causal_conv1d(
    x: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    *,
    activation: str | None = None,
    initial_state: ArrayLike | None = None,
    resets: ArrayLike | None = None,
    return_final: bool = False,
) -> jax.Array | tuple[jax.Array, jax.Array]:
    """
    Parameters
    ----------
    x:
        ``(..., T, D)``, float32, float64, bfloat16 or float16. ``weight`` and ``bias`` have its
        type. If that is a 16-bit type, they may also be float32.
    initial_state:
        ``(..., W - 1, D)``, the inputs before the first step, 0 if absent.
    resets:
        Booleans that broadcast to ``(..., T)``. A sequence starts at each step that is True, and
        does not depend on earlier steps.
    return_final:
        Whether to return a pair, the outputs and the final state. The final state has the last
        W - 1 inputs, ``(..., W - 1, D)``, with 0 for inputs before the last reset. It is the
        ``initial_state`` for the next steps.

    Returns
    -------
    The outputs, in the shape and type of ``x``.
    """
    call = "causal_conv1d"
    silu = is_silu(call, activation)
    return_final = arguments.flag(call, "return_final", return_final)
    arrays = _checked(call, x, weight, bias, 2, "an array (..., T, D)")
    first, before = arrays["x"], arrays["weight"].shape[1] - 1
    *lead, steps, channels = first.shape
    if initial_state is not None:
        state = _alike(call, "initial_state", initial_state, first, (*lead, before, channels))
        arrays["initial_state"] = state
    if resets is not None:
        reset_mask = array_of(call, "resets", resets)
        if reset_mask.dtype != np.bool_:
            arguments.refuse(call, "resets", "booleans", reset_mask.dtype, TypeError)
        arguments.check_shape(call, "resets", reset_mask.shape, (*lead, steps))
        arrays["resets"] = jnp.broadcast_to(reset_mask, (*lead, steps))
    out, final = _convolve(arrays, lead, silu, return_final)
    return (out, final) if return_final else out


@documented()
def causal_conv1d_update(
    x: ArrayLike,
    conv_state: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    *,
    activation: str | None = None,
    cache_seqlens: ArrayLike | None = None,
    conv_state_indices: ArrayLike | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Compute the next steps of a stream of :func:`causal_conv1d`, for decoding.

    Differentiable in all real arguments.

    Parameters
    ----------
    x:
        ``(B, D)`` for one step, or ``(B, T, D)``, in the types of :func:`causal_conv1d`.
    conv_state:
        ``(B, S, D)`` with S of ``W - 1`` or more, in the type of ``x``: the last S inputs.
    weight, bias, activation:
        As in :func:`causal_conv1d`.
    cache_seqlens:
        int32 or int64, ``(B,)``: the number of inputs so far. ``conv_state`` is then a circular
        buffer, in which input n has the position ``n % S``.
    conv_state_indices:
        int32 or int64, ``(B,)``: the rows of ``conv_state`` to update. ``conv_state`` then has any
        number of rows, and the others do not change. No row may occur twice, which is not checked
        if the indices are traced or on a GPU. An index that is out of range, such as -1, means
        padding: the output is that of a zero state, and no state is written.

    Returns
    -------
    ``(out, conv_state)``, in the shapes and types of ``x`` and ``conv_state``.
    """
    call = "causal_conv1d_update"
    silu = is_silu(call, activation)
    given = array_of(call, "x", x)
    is_step = given.ndim == 2
    if is_step:
        given = given[:, None]
    arrays = _checked(call, given, weight, bias, 3, "an array (B, D) or (B, T, D)")
    first, before = arrays["x"], arrays["weight"].shape[1] - 1
    batch, steps, channels = first.shape
    state = array_of(call, "conv_state", conv_state)
    fits = state.ndim == 3 and state.shape[1] >= before
    if not fits:
        expected = f"shape (B, S, {channels}), S of {before} or more"
        arguments.refuse(call, "conv_state", expected, state.shape)
    rows = batch if conv_state_indices is None else state.shape[0]
    held = state.shape[1]
    state = _alike(call, "conv_state", state, first, (rows, held, channels))
    now, at = state, None
    if conv_state_indices is not None:
        at = _integers(call, "conv_state_indices", conv_state_indices, batch)
        if is_known(at):
            within = [row for row in at.tolist() if 0 <= row < rows]
            arguments.check_distinct(call, "conv_state_indices", within, "conv_state")
        # Replace padding by an index after the last row: JAX counts negative indices from the end.
        at = jnp.where((at < 0) | (at > rows), rows, at)
        now = state.at[at].get(mode="fill", fill_value=0)
    kept = max(steps - held, 0)
    if cache_seqlens is None:
        past, after = now[:, held - before :], jnp.concatenate([now, first], 1)[:, steps:]
    else:
        length = _integers(call, "cache_seqlens", cache_seqlens, batch)[:, None]
        each = jnp.arange(batch)[:, None]
        past = now[each, (length + jnp.arange(-before, 0)) % max(held, 1)]
        position = (length + jnp.arange(kept, steps)) % max(held, 1)
        after = now.at[each, position].set(first[:, kept:])
    arrays["initial_state"] = past
    out, _ = _convolve(arrays, (batch,), silu, False)
    if at is not None:
        after = state.at[at].set(after, mode="drop")
    return out[:, 0] if is_step else out, after


def _checked(
    call: str, x: Any, weight: Any, bias: Any, rank: int, axes: str
) -> dict[str, jax.Array]:
    """Return the arguments by name, with weight and bias in the type of the kernel's sums."""
    first = array_of(call, "x", x)
    if first.dtype.name not in _TYPES:
        expected = "an array of float32, float64, bfloat16 or float16"
        arguments.refuse(call, "x", expected, first.dtype, TypeError)
    if first.ndim < rank or (rank == 3 and first.ndim != 3):
        arguments.refuse(call, "x", axes, f"shape {first.shape}")
    computed = boundary_dtype(first.dtype)
    arrays = {"x": first}
    for name, value in (("weight", weight), ("bias", bias)):
        if value is None and name == "bias":
            continue
        array = array_of(call, name, value)
        check_types(call, name, first.dtype.name, array.dtype.name, computed.name)
        arrays[name] = array.astype(computed)
    bias_shape = arrays["bias"].shape if "bias" in arrays else None
    check_channels(call, first.shape[-1], arrays["weight"].shape, bias_shape)
    return arrays


def _alike(call: str, name: str, value: Any, x: jax.Array, shape: Sequence[int]) -> jax.Array:
    """Return the value as an array. Raises an error unless it has this shape and the type of x."""
    array = array_of(call, name, value)
    if array.dtype != x.dtype:
        arguments.refuse(call, name, f"{x.dtype}, like 'x'", array.dtype, TypeError)
    arguments.check_shape(call, name, array.shape, shape, equal=True)
    return array


def _integers(call: str, name: str, value: Any, batch: int) -> jax.Array:
    array = array_of(call, name, value)
    if array.dtype.name not in ("int32", "int64"):
        arguments.refuse(call, name, "int32 or int64", array.dtype, TypeError)
    arguments.check_shape(call, name, array.shape, (batch,), equal=True)
    return array


def _convolve(
    arrays: dict[str, jax.Array], lead: Sequence[int], silu: bool, with_final: bool
) -> tuple[jax.Array, Any]:
    """Return outputs, and final state or None, with these leading axes."""
    if len(lead) != 1:
        for name, x in arrays.items():
            if name not in ("weight", "bias"):
                arrays[name] = x.reshape(prod(lead), *x.shape[len(lead) :])
    problem = Conv1dProblem(silu)
    results = ("out", "final_state") if with_final else ("out",)
    wanted = {name: CAUSAL_CONV1D.shape(name, problem, arrays) for name in results}
    out = CAUSAL_CONV1D.value(problem, varying_alike(arrays), wanted)
    if len(lead) != 1:
        out = {name: x.reshape(*lead, *x.shape[1:]) for name, x in out.items()}
    return out["out"], out.get("final_state")

# SPDX-License-Identifier: BSD-3-Clause
"""QRNN pooling: arguments checked and aligned, then the primitive."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Literal, SupportsIndex, overload

import jax
import jax.numpy as jnp

from .. import _arguments as arguments
from .._native import GATES
from .._types import Memory, Pool
from . import _gated_rules  # noqa: F401 (registers how the primitives differentiate)
from ._arrays import aligned, checked, edge_of, marks_of, promoted, zoneout_of
from ._primitives import Problem
from ._split_time import bind_parts
from ._types import ArrayLike

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
    """Pooling of a quasi-recurrent network along an axis, from pre-activations::

        state[t] = f[t] * state[t-1] + (1 - f[t]) * z[t]       "f", "fo"
        state[t] = f[t] * state[t-1] + i[t] * z[t]             "ifo"
        output[t] = state[t]                                   "f"
        output[t] = o[t] * state[t]                            "fo", "ifo"

    with ``z = tanh(candidate)`` and ``f``, ``o``, ``i`` the sigmoids of the pre-activations of
    forget, output and input gate. Activations, scan and output are one pass over memory, and so is
    the gradient. Differentiable in ``pre`` and ``initial_state``.

    Parameters
    ----------
    pre:
        One array ``(..., T, n * C)`` of the n = 2 (``"f"``), 3 or 4 pre-activations side by side,
        in the order candidate, forget gate, output gate, input gate; read in place, and so is its
        gradient written. Or a sequence of n arrays: the candidate, whose shape ``(..., T, C)`` is
        the result's, and gates of any shapes that broadcast to it. float16, bfloat16, float32,
        float64.
    initial_state:
        The state before the first step: any shape that broadcasts to that of the output without
        the axis of time. None is 0.
    pool:
        ``"f"``, ``"fo"`` or ``"ifo"``.
    axis:
        The axis of time. Packed pre-activations lie along the last other axis.
    reverse:
        Time runs from the end; ``initial_state`` is then the one after the last step.
    resets:
        Booleans that broadcast to the output, though not along time. Where one is set a sequence
        starts: the link between steps t-1 and t is cut, in either direction. There may be one step
        more of them, as in :func:`linear_scan`.
    zoneout:
        Booleans that broadcast to the output. Where one is set the state stays as it was, whatever
        the gates say. Nothing is rescaled.
    forget_bias:
        A number added to the pre-activation of the forget gate: 1 or 2 for networks that are to
        remember from the first step of training.
    memory:
        What a gradient will need besides ``pre``: ``"store"`` keeps the state of every step (with
        ``"f"`` the output is that), ``"recompute"`` that of every 128th, and computes those between
        anew: 1/128 of the memory, for about a fifth more time backward.
    return_final:
        Returns ``(output, final_state)``. The final state has the shape of the output without the
        axis of time, and is float32 for 16-bit types.
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
    The outputs. 16-bit types are computed in float32 and rounded when stored.

    Raises
    ------
    ValueError, TypeError:
        When called or traced; names the argument, what was expected and what came.

    Notes
    -----
    Source: Bradbury et al., Quasi-Recurrent Neural Networks (2017), section 2.1; zoneout: Krueger
    et al. (2017). Forward mode and higher orders are composed of activations and scans.
    """
    call = "qrnn_pool"
    reverse = arguments.flag(call, "reverse", reverse)
    return_final = arguments.flag(call, "return_final", return_final)
    count = arguments.pool_size(call, pool)
    packed = not isinstance(pre, (tuple, list))
    names = ("pre",) if packed else GATES[:count]
    given: Sequence[Any] = (pre,) if packed else tuple(pre)
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
        arguments.refuse(call, names[0], "an array with an axis of time", "a number")
    axis = arguments.time_axis(call, axis, first.shape)
    shape, stack = first.shape, -1
    if packed:
        stack = arguments.stack_axis(call, first.shape, axis, count)
        apart, shape = arguments.unstacked(first.shape, stack, count)
        arrays = {"pre": first.reshape(apart)}
    else:
        arrays = {n: aligned(call, n, x, shape, dtype) for n, x in zip(names, given)}
    if initial_state is not None:
        arrays["initial_state"] = edge_of(call, initial_state, shape, axis, dtype)
    if resets is not None:
        arrays["resets"] = marks_of(call, resets, shape, axis)
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
    wanted = {"output": shape}
    if return_final:
        wanted["final_state"] = problem.edge
    out = bind_parts("gated_scan", problem, arrays, wanted, axis_name)
    if return_final:
        return out["output"], jax.lax.squeeze(out["final_state"], (axis,))
    return out["output"]

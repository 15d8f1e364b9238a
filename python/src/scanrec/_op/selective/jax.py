# SPDX-License-Identifier: BSD-3-Clause
"""``selective_scan`` and ``selective_state_update`` in JAX: check the arguments and bring them to
the axes of the primitive."""

from __future__ import annotations

from math import prod
from typing import Literal, overload

import jax
import jax.numpy as jnp
import numpy as np

from ... import _arguments as arguments
from ..._jax.arrays import aligned, is_known, marks_of
from ..._jax.sharding import varying_alike
from ..._jax.types import ArrayLike
from ..doc import documented
from ..spec import SEQUENCE_DOC
from .jax_arguments import Given
from .jax_rules import SELECTIVE_SCAN, SelectiveProblem
from .spec import SELECTIVE_SCAN_DOC, SELECTIVE_STATE_UPDATE_DOC

__all__ = ["selective_scan", "selective_state_update"]


@overload
def selective_scan(
    u: ArrayLike, delta: ArrayLike, A: ArrayLike, B: ArrayLike, C: ArrayLike,
    D: ArrayLike | None = None, z: ArrayLike | None = None, delta_bias: ArrayLike | None = None, *,
    delta_softplus: bool = False, initial_state: ArrayLike | None = None,
    resets: ArrayLike | None = None, intervals: ArrayLike | None = None, reverse: bool = False,
    return_final: Literal[False] = False,
) -> jax.Array: ...  # fmt: skip
@overload
def selective_scan(
    u: ArrayLike, delta: ArrayLike, A: ArrayLike, B: ArrayLike, C: ArrayLike,
    D: ArrayLike | None = None, z: ArrayLike | None = None, delta_bias: ArrayLike | None = None, *,
    delta_softplus: bool = False, initial_state: ArrayLike | None = None,
    resets: ArrayLike | None = None, intervals: ArrayLike | None = None, reverse: bool = False,
    return_final: Literal[True],
) -> tuple[jax.Array, jax.Array]: ...  # fmt: skip
@overload
def selective_scan(
    u: ArrayLike, delta: ArrayLike, A: ArrayLike, B: ArrayLike, C: ArrayLike,
    D: ArrayLike | None = None, z: ArrayLike | None = None, delta_bias: ArrayLike | None = None, *,
    delta_softplus: bool = False, initial_state: ArrayLike | None = None,
    resets: ArrayLike | None = None, intervals: ArrayLike | None = None, reverse: bool = False,
    return_final: bool = False,
) -> jax.Array | tuple[jax.Array, jax.Array]: ...  # fmt: skip
@documented(SEQUENCE_DOC, SELECTIVE_SCAN_DOC)
def selective_scan(
    u: ArrayLike,
    delta: ArrayLike,
    A: ArrayLike,
    B: ArrayLike,
    C: ArrayLike,
    D: ArrayLike | None = None,
    z: ArrayLike | None = None,
    delta_bias: ArrayLike | None = None,
    *,
    delta_softplus: bool = False,
    initial_state: ArrayLike | None = None,
    resets: ArrayLike | None = None,
    intervals: ArrayLike | None = None,
    reverse: bool = False,
    return_final: bool = False,
) -> jax.Array | tuple[jax.Array, jax.Array]:
    """
    Parameters
    ----------
    u:
        ``(..., T, D)``.
    B, C:
        ``(..., T, N)``, or ``(..., T, G, N)`` for G groups of channels, with the leading axes of
        ``u``. If ``u`` has more than two axes, also ``(D, N)``, constant over time. Complex if
        ``A`` is. ``B`` and ``C`` of every step may then also be real with ``2 * N`` numbers, in
        which real and imaginary parts alternate.
    intervals:
        Any shape that broadcasts to ``(..., T)``, for samples at irregular times: a factor of all
        steps at each time.

    Raises
    ------
    RuntimeError:
        A program is compiled for a GPU, and the package was built without kernels for GPUs.

    Notes
    -----
    ``vmap`` turns a batch of calls into more sequences. It makes more channels where weights, or
    gradients of weights, differ within the batch. Gradients of complex arrays are not conjugated,
    as JAX defines them.
    """
    call = "selective_scan"
    softplus = arguments.flag(call, "delta_softplus", delta_softplus)
    reverse = arguments.flag(call, "reverse", reverse)
    return_final = arguments.flag(call, "return_final", return_final)
    given = Given(call, "u", ("T", "D"), u, A)
    shape, lead = given.shape, given.shape[:-2]
    steps, channels = shape[-2:]
    arrays = {
        "u": given.first,
        "delta": given.same("delta", delta),
        "a": given.a,
        "b": given.mixing("B", B, (*lead, steps)),
        "c": given.mixing("C", C, (*lead, steps)),
        **given.others(D, z, "delta_bias", delta_bias),
    }
    edge = (*lead, channels, given.states)
    if initial_state is not None:
        first = given.typed("initial_state", initial_state, may_be_complex=True)
        first = aligned(call, "initial_state", first, edge, given.a.dtype)
        arrays["initial_state"] = jnp.broadcast_to(first, edge)
    if resets is not None:
        marks = marks_of(call, resets, shape, len(shape) - 2)
        if any(n != 1 for n in marks.shape[:-2]):
            marks = jnp.broadcast_to(marks, (*lead, *marks.shape[-2:]))
        arrays["resets"] = marks
    if intervals is not None:
        times = given.typed("intervals", intervals)
        times = aligned(call, "intervals", times, shape[:-1], given.real)
        arrays["intervals"] = jnp.broadcast_to(times, shape[:-1])
    out, final = _scan(arrays, lead, softplus, reverse, return_final)
    return (out, final) if return_final else out


@documented(SELECTIVE_STATE_UPDATE_DOC)
def selective_state_update(
    state: ArrayLike,
    x: ArrayLike,
    dt: ArrayLike,
    A: ArrayLike,
    B: ArrayLike,
    C: ArrayLike,
    D: ArrayLike | None = None,
    z: ArrayLike | None = None,
    dt_bias: ArrayLike | None = None,
    *,
    dt_softplus: bool = False,
    state_batch_indices: ArrayLike | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Differentiable in all real and complex arguments.

    Parameters
    ----------
    B, C:
        ``(..., N)``, or ``(..., G, N)`` for G groups of channels. Complex if ``A`` is, or real with
        ``2 * N`` numbers, in which real and imaginary parts alternate.

    Returns
    -------
    ``(out, state)``, in the types of ``x`` and ``state``. The returned state has the shape of
    ``state``.
    """
    call = "selective_state_update"
    softplus = arguments.flag(call, "dt_softplus", dt_softplus)
    given = Given(call, "x", ("D",), x, A)
    lead, channels = given.shape[:-1], given.shape[-1]
    state = given.typed("state", state, may_be_complex=True)
    if jnp.iscomplexobj(state) != jnp.iscomplexobj(given.a):
        expected = f"{given.a.dtype}, as 'A' is"
        arguments.refuse(call, "state", expected, state.dtype, TypeError)
    rows = state_batch_indices
    # With indices, the state may have any number of rows.
    held = lead if rows is None else state.shape[:1]
    arguments.check_shape(call, "state", state.shape, (*held, channels, given.states), equal=True)
    if rows is not None:
        rows = _rows_of(call, rows, lead, state.shape[0])
    now = state if rows is None else state.at[rows].get(mode="fill", fill_value=0)
    arrays = {
        "u": given.first,
        "delta": given.same("dt", dt),
        "b": given.mixing("B", B, lead, of_channels=False),
        "c": given.mixing("C", C, lead, of_channels=False),
        **given.others(D, z, "dt_bias", dt_bias),
    }
    for name, axis in (("u", -2), ("delta", -2), ("z", -2), ("b", -3), ("c", -3)):
        if name in arrays:
            arrays[name] = jnp.expand_dims(arrays[name], axis)
    arrays |= {"a": given.a, "initial_state": now.astype(given.a.dtype)}
    out, final = _scan(arrays, lead, softplus, False, True)
    out, final = jax.lax.squeeze(out, (out.ndim - 2,)), final.astype(state.dtype)
    return out, final if rows is None else state.at[rows].set(final, mode="drop")


def _rows_of(call, rows, lead, held):
    """Returns the rows of a state that is held for more sequences than these. Padding becomes the
    row after the last."""
    name = "state_batch_indices"
    if not isinstance(rows, jax.Array):
        rows = np.asarray(rows)
    if rows.dtype.name not in ("int32", "int64"):
        arguments.refuse(call, name, "int32 or int64", rows.dtype, TypeError)
    arguments.check_shape(call, name, rows.shape, lead, equal=True)
    if held < 1:
        arguments.refuse(call, "state", "1 row or more", held)
    if is_known(rows):
        found = [row for row in np.ravel(rows).tolist() if 0 <= row < held]
        if len(set(found)) < len(found):
            arguments.refuse(call, name, "every row of 'state' once at most", np.asarray(rows))
    # Below 0 JAX would count from the end, and it may narrow 64 bits to 32.
    where = jnp.where if isinstance(rows, jax.Array) else np.where
    return jnp.asarray(where((rows < 0) | (rows > held), held, rows))


def _scan(arrays, lead, softplus, reverse, with_final):
    """Returns outputs, and final state or None, of arrays with these axes in front."""
    batch = prod(lead)
    if len(lead) != 1:
        for name, x in arrays.items():
            rest = x.ndim - len(lead)
            if name in ("a", "skip", "delta_bias") or (name in ("b", "c") and x.ndim == 2):
                continue
            whole = all(n == 1 for n in x.shape[: len(lead)])
            arrays[name] = x.reshape(1 if whole else batch, *x.shape[x.ndim - rest :])
    problem = SelectiveProblem(softplus, reverse)
    results = ("out", "final_state") if with_final else ("out",)
    wanted = {name: SELECTIVE_SCAN.shape(name, problem, arrays) for name in results}
    out = SELECTIVE_SCAN.value(problem, varying_alike(arrays), wanted)
    if len(lead) != 1:
        out = {name: x.reshape(*lead, *x.shape[1:]) for name, x in out.items()}
    return out["out"], out.get("final_state")

# SPDX-License-Identifier: BSD-3-Clause
"""``selective_scan`` and ``selective_state_update`` in JAX: checks of the arguments, and conversion
to the axes of the primitive."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Literal, overload

import jax
import jax.numpy as jnp
import numpy as np

from ... import _arguments as arguments
from ..._jax.arrays import aligned, array_of, is_known, reset_mask_of
from ..._jax.sharding import varying_alike
from ..._jax.types import ArrayLike
from ..doc import documented
from ..spec import SEQUENCE_DOC
from .arguments import Checks, has_padding, types_of
from .jax_rules import SELECTIVE_SCAN
from .spec import SELECTIVE_SCAN_DOC, SELECTIVE_STATE_UPDATE_DOC, SelectiveProblem

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
        ``u``. If ``u`` has more than two axes, also ``(D, N)``, constant over time. If ``A`` is
        complex, they may be complex too. A real array that varies over time then has ``2 * N``
        numbers, in which real and imaginary parts alternate.
    intervals:
        Any shape that broadcasts to ``(..., T)``: factors of the step sizes of all channels, for
        samples at irregular times.

    Raises
    ------
    RuntimeError:
        A program is compiled for a GPU, but the package was built without kernels for GPUs.

    Notes
    -----
    ``vmap`` turns a batch of calls into more sequences. If weights or their gradients differ within
    the batch, it turns the batch into more channels. Gradients of complex arrays are not
    conjugated, as JAX defines them.
    """
    call = "selective_scan"
    softplus = arguments.flag(call, "delta_softplus", delta_softplus)
    reverse = arguments.flag(call, "reverse", reverse)
    return_final = arguments.flag(call, "return_final", return_final)
    given = _Checked(call, "u", u, A, -1, "an array (..., T, D)")
    shape, states = given.first.shape, given.states
    *lead, steps, channels = shape
    arrays = given.operands(
        (*lead, steps, states), (*lead, steps, 2 * states), constant=bool(lead),
        delta=delta, B=B, C=C, D=D, z=z, delta_bias=delta_bias,
    )  # fmt: skip
    boundary = (*lead, channels, states)
    if initial_state is not None:
        first = given.typed("initial_state", initial_state, may_be_complex=True)
        first = aligned(call, "initial_state", first, boundary, given.a.dtype)
        arrays["initial_state"] = jnp.broadcast_to(first, boundary)
    if resets is not None:
        reset_mask = reset_mask_of(call, resets, shape, len(shape) - 2)
        if any(n != 1 for n in reset_mask.shape[:-2]):
            reset_mask = jnp.broadcast_to(reset_mask, (*lead, *reset_mask.shape[-2:]))
        arrays["resets"] = reset_mask
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
        ``(..., N)``, or ``(..., G, N)`` for G groups of channels. If ``A`` is complex, they are
        complex too, or real with ``2 * N`` numbers, in which real and imaginary parts alternate.

    Returns
    -------
    ``(out, state)``, in the types of ``x`` and ``state``. The returned state has the shape of
    ``state``.
    """
    call = "selective_state_update"
    softplus = arguments.flag(call, "dt_softplus", dt_softplus)
    given = _Checked(call, "x", x, A, -1, "an array (..., D)")
    lead, states = given.first.shape[:-1], given.states
    rows: Any = state_batch_indices
    if rows is not None and not isinstance(rows, jax.Array):
        rows = np.asarray(rows)
    before: jax.Array = given.state(state, lead, rows)
    now = before
    if rows is not None:
        held = before.shape[0]
        if is_known(rows):
            has_padding(rows, held)
        # Replace padding by an index after the last row: JAX counts negative indices from the end.
        # Do so before the conversion to a JAX array, which may narrow 64 bits to 32.
        where: Any = jnp.where if isinstance(rows, jax.Array) else np.where
        rows = jnp.asarray(where((rows < 0) | (rows > held), held, rows))
        now = before.at[rows].get(mode="fill", fill_value=0)
    arrays = given.operands(
        (*lead, states), (*lead, 2 * states), constant=False,
        dt=dt, B=B, C=C, D=D, z=z, dt_bias=dt_bias,
    )  # fmt: skip
    for name, axis in (("u", -2), ("delta", -2), ("z", -2), ("b", -3), ("c", -3)):
        if arrays[name] is not None:
            arrays[name] = jnp.expand_dims(arrays[name], axis)
    arrays["initial_state"] = now.astype(given.a.dtype)
    out, final = _scan(arrays, lead, softplus, False, True)
    out, final = jax.lax.squeeze(out, (out.ndim - 2,)), final.astype(before.dtype)
    return out, final if rows is None else before.at[rows].set(final, mode="drop")


class _Checked(Checks):
    types = types_of(lambda name: jnp.dtype(getattr(jnp, name)))
    converted = staticmethod(jax.lax.convert_element_type)
    expanded = staticmethod(jnp.expand_dims)

    def array(self, name: str, x: Any) -> jax.Array:
        return array_of(self.call, name, x)


def _scan(
    arrays: dict[str, Any], lead: Sequence[int], softplus: bool, reverse: bool, with_final: bool
) -> tuple[jax.Array, Any]:
    """Return outputs, and final state or None, with these leading axes."""
    arrays = {name: x for name, x in arrays.items() if x is not None}
    if len(lead) != 1:
        for name, x in arrays.items():
            if name not in ("a", "d", "delta_bias") and (name not in ("b", "c") or x.ndim > 2):
                before, after = x.shape[: len(lead)], x.shape[len(lead) :]
                batch = 1 if all(n == 1 for n in before) else prod(lead)
                arrays[name] = x.reshape(batch, *after)
    problem = SelectiveProblem(softplus, reverse)
    results = ("out", "final_state") if with_final else ("out",)
    wanted = {name: SELECTIVE_SCAN.shape(name, problem, arrays) for name in results}
    out = SELECTIVE_SCAN.value(problem, varying_alike(arrays), wanted)
    if len(lead) != 1:
        out = {name: x.reshape(*lead, *x.shape[1:]) for name, x in out.items()}
    return out["out"], out.get("final_state")

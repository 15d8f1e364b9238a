# SPDX-License-Identifier: BSD-3-Clause
"""Steps and what comes before them in their sequences, in either direction of time."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from .._arrays import of_rank
from .._sharding import placed_as

__all__ = ["begins", "window"]


def window(
    x: jax.Array, past: jax.Array | None, count: int, marks: jax.Array | None, reverse: bool
) -> tuple[list[jax.Array], jax.Array]:
    """The steps that a window of ``count`` steps has: the present one, that before it, and so on.

    Parameters
    ----------
    x:
        ``(..., T, C)``.
    past:
        ``(..., count - 1, C)``: the steps before the first, or in reverse behind the last, in the
        order of time. None is 0.
    marks:
        Booleans that broadcast to ``(..., T)``, or with one step more: where a sequence starts.
        Steps of other sequences are 0.
    reverse:
        Whether what comes before a step is behind it in time.

    Returns
    -------
    ``count`` arrays of the shape of ``x``, and the past of what follows.
    """
    steps, more = x.shape[-2], count - 1
    if past is None:  # padding leaves arrays split over devices as they are
        widths = [(0, 0)] * x.ndim
        widths[-2] = (0, more) if reverse else (more, 0)
        whole = jnp.pad(x, widths)
    else:
        past = placed_as(past.astype(x.dtype), x)
        whole = jnp.concatenate([x, past] if reverse else [past, x], -2)
    begins = [k if reverse else more - k for k in range(count)]
    seen = [whole[..., k : k + steps, :] for k in begins]
    left = whole[..., :more, :] if reverse else whole[..., steps:, :]
    if marks is None:
        return seen, left
    if reverse:
        widths = (0, steps + more - marks.shape[-1]) if marks.shape[-1] < steps + more else (0, 0)
    else:
        marks, widths = marks[..., :steps], (more, 0)
    marks = jnp.pad(marks, [(0, 0)] * (marks.ndim - 1) + [widths])[..., : steps + more]
    sequence = jnp.cumsum(marks, -1, dtype=jnp.int32)[..., None]  # the number of each step's
    now = sequence[..., begins[0] : begins[0] + steps, :]
    for i, k in enumerate(begins[1:], 1):
        seen[i] = jnp.where(sequence[..., k : k + steps, :] == now, seen[i], 0)
    if reverse:
        left = jnp.where(sequence[..., :more, :] == sequence[..., :1, :], left, 0)
    else:
        left = jnp.where(sequence[..., steps:, :] == sequence[..., -1:, :], left, 0)
    return seen, left


def begins(steps: int, marks: jax.Array | None, fresh: bool, reverse: bool) -> jax.Array | None:
    """Booleans that broadcast to ``(..., T)``: the steps before which there is no state, of arrays
    as of :func:`window`; ``fresh``: there is none before the first, or in reverse the last. None
    where there are no such steps."""
    found = None
    if marks is not None and not reverse:
        found = marks[..., :steps]
    elif marks is not None:
        behind = steps + 1 - marks.shape[-1]
        found = jnp.pad(marks[..., 1:], [(0, 0)] * (marks.ndim - 1) + [(0, behind)])
    if fresh:
        edge = jnp.arange(steps) == (steps - 1 if reverse else 0)
        found = edge if found is None else found | of_rank(edge, found.ndim)
    return found

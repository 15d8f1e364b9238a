# SPDX-License-Identifier: BSD-3-Clause
"""Windows over past steps, and the first steps of sequences, in both directions of time."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ..._jax.arrays import of_rank
from ..._jax.sharding import placed_as

__all__ = ["begins", "window"]


def window(
    x: jax.Array, past: jax.Array | None, count: int, marks: jax.Array | None, reverse: bool
) -> tuple[list[jax.Array], jax.Array]:
    """The steps in a window of ``count`` steps: the present step, the step before it, and so on.

    Parameters
    ----------
    x:
        ``(..., T, C)``.
    past:
        ``(..., count - 1, C)``: the steps before the first step, in the order of time. In reverse
        they are after the last step. None is 0.
    marks:
        Booleans that broadcast to ``(..., T)``, or to one step more: True starts a sequence. Steps
        of other sequences are 0.
    reverse:
        Whether the window extends to later steps instead of earlier ones.

    Returns
    -------
    ``count`` arrays of the shape of ``x``, and the ``past`` of the next call.
    """
    steps, more = x.shape[-2], count - 1
    if past is None:  # padding keeps the sharding of an array
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
    sequence = jnp.cumsum(marks, -1, dtype=jnp.int32)[..., None]  # number of each step's sequence
    now = sequence[..., begins[0] : begins[0] + steps, :]
    for i, k in enumerate(begins[1:], 1):
        seen[i] = jnp.where(sequence[..., k : k + steps, :] == now, seen[i], 0)
    if reverse:
        left = jnp.where(sequence[..., :more, :] == sequence[..., :1, :], left, 0)
    else:
        left = jnp.where(sequence[..., steps:, :] == sequence[..., -1:, :], left, 0)
    return seen, left


def begins(steps: int, marks: jax.Array | None, fresh: bool, reverse: bool) -> jax.Array | None:
    """Mask of the steps that have no state before them, which broadcasts to ``(..., T)``.

    ``marks`` and ``reverse`` are as in :func:`window`. ``fresh`` says that the first step (in
    reverse: the last) has no state before it. The result is None if there are no such steps.
    """
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

# SPDX-License-Identifier: BSD-3-Clause
"""Marks of sequences that start within time, and what a convolution sees of its sequence alone."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from ._recurrent import wide

__all__ = ["convolved", "firsts", "left_of"]


def firsts(marks: Tensor, steps: int, axis: int, reverse: bool) -> Tensor:
    """The steps that a state does not reach, by the marks of as many steps or of one more: in
    reverse the mark behind a step cuts it off."""
    if not reverse:
        return marks.narrow(axis, 0, steps)
    if marks.shape[axis] == steps:
        marks = torch.cat([marks, torch.zeros_like(marks.narrow(axis, 0, 1))], axis)
    return marks.narrow(axis, 1, steps)


def _cuts(first, count, reverse):
    """Of (B, 1, T), by how many steps away: where a sequence starts in between."""
    cuts, steps = [torch.zeros_like(first)], first.shape[2]
    for k in range(count - 1):
        pad = (0, k) if reverse else (k, 0)
        shifted = functional.pad(first, pad).narrow(2, k if reverse else 0, steps)
        cuts.append(cuts[-1] | shifted)
    return cuts


def convolved(
    whole: Tensor, taps: Tensor, bias: Tensor | None, first: Tensor | None, reverse: bool
) -> Tensor:
    """The convolution of every channel, ``(B, E, T)``, with 0 for the steps of another sequence.

    `whole` has the steps and, on the side that they come from, the K - 1 before them; the last of
    the K `taps` is of the present step; `first`, ``(B, 1, T)``, are :func:`firsts`, None without
    resets.

    A sum of shifted products, since conv1d is compiled for one length only. 16-bit types are summed
    in float32, as conv1d does.
    """
    count, taps = taps.shape[1], wide(taps)
    steps = whole.shape[2] - (count - 1)
    cuts = [None] * count if first is None else _cuts(first, count, reverse)
    v = 0 if bias is None else wide(bias)[:, None]
    for k, cut in enumerate(cuts):
        seen = whole.narrow(2, k if reverse else count - 1 - k, steps)
        seen = seen if cut is None else seen.masked_fill(cut, 0)
        v = v + wide(seen) * taps[:, count - 1 - k, None]
    return v.to(whole.dtype)


def left_of(past: Tensor, first: Tensor, reverse: bool) -> Tensor:
    """The K - 1 steps at the edge, ``(B, E, K - 1)``, without those of another sequence than the
    last (in reverse the first) step."""
    cuts = _cuts(first, past.shape[2], reverse)
    at = 0 if reverse else first.shape[2] - 1
    other = [cut.narrow(2, at, 1) for cut in (cuts if reverse else reversed(cuts))]
    return past.masked_fill(torch.cat(other, 2), 0)

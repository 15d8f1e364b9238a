# SPDX-License-Identifier: BSD-3-Clause
"""Resets within time, and convolutions that do not cross them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from ._recurrent import wide

__all__ = ["convolved", "firsts", "left_of"]


def firsts(marks: Tensor, steps: int, axis: int, reverse: bool) -> Tensor:
    """Mask of the steps that start a sequence, from resets with `steps` steps or one more.

    In reverse, a step starts a sequence if the reset after it is True.
    """
    if not reverse:
        return marks.narrow(axis, 0, steps)
    if marks.shape[axis] == steps:
        marks = torch.cat([marks, torch.zeros_like(marks.narrow(axis, 0, 1))], axis)
    return marks.narrow(axis, 1, steps)


def _cuts(first, count, reverse):
    """For each distance below `count`: whether a sequence starts between a step and that step.

    `first` and the masks are ``(B, 1, T)``.
    """
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

    `whole` has the steps, and the K - 1 steps before them (in reverse: after them). The last of the
    K `taps` multiplies the present step. `first`, ``(B, 1, T)``, is the result of :func:`firsts`,
    or None without resets.

    The convolution is a sum of shifted products, since conv1d is compiled for one length only.
    16-bit types are summed in float32, as in conv1d.
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
    """The last K - 1 steps, ``(B, E, K - 1)``, with 0 for those of another sequence.

    In reverse these are the first K - 1 steps.
    """
    cuts = _cuts(first, past.shape[2], reverse)
    at = 0 if reverse else first.shape[2] - 1
    other = [cut.narrow(2, at, 1) for cut in (cuts if reverse else reversed(cuts))]
    return past.masked_fill(torch.cat(other, 2), 0)

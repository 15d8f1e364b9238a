# SPDX-License-Identifier: BSD-3-Clause
"""Stands in for torchlpc, for filters of order 1."""

from __future__ import annotations

from torch import Tensor

from scanrec import _arguments as arguments
from scanrec.torch import linear_scan

from ._torch import last_axis_scan, tensor

__all__ = ["Recurrence", "linear_recurrence", "sample_wise_lpc"]


class Recurrence:
    """The recurrence of order 1 of torchlpc up to 0.7.2, but not a ``torch.autograd.Function``."""

    @staticmethod
    def apply(decay: Tensor, impulse: Tensor, initial_state: Tensor) -> Tensor:
        """Compute ``y[t] = decay[t] * y[t-1] + impulse[t]`` along the last axis of ``(B, T)``.

        ``initial_state`` is ``(B,)``.
        """
        given = ("decay", decay), ("impulse", impulse)
        initial = ("initial_state", initial_state)
        return last_axis_scan("Recurrence.apply", *given, "(B, T)", initial=initial)


def linear_recurrence(a: Tensor, x: Tensor, zi: Tensor | None = None) -> Tensor:
    """Compute ``y[t] = a[t] * y[t-1] + x[t]`` along the last axis of ``(B, T)``.

    The initial state ``zi`` is ``(B,)``, and 0 if absent. torchlpc has this function after 0.7.2.
    """
    initial = None if zi is None else ("zi", zi)
    return last_axis_scan("linear_recurrence", ("a", a), ("x", x), "(B, T)", initial=initial)


def sample_wise_lpc(
    x: Tensor, a: Tensor, zi: Tensor | None = None, return_zf: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """Compute ``y[t] = x[t] - a[t, 0] * y[t-1]``.

    Shapes are ``(B, T)`` for ``x``, ``(B, T, 1)`` for ``a`` and ``(B, 1)`` for ``zi``, which is 0
    if absent. With ``return_zf`` the result is ``(y, y[:, -1:])``, or ``(y, zi)`` if T is 0. Orders
    above 1, which the original supports, raise ``ValueError``.
    """
    call = "sample_wise_lpc"
    batch, steps = tensor(call, "x", x, axes="(B, T)").shape
    tensor(call, "a", a, axes="(B, T, 1)", shape=(batch, steps, 1), like=x)
    first = None if zi is None else tensor(call, "zi", zi, shape=(batch, 1), like=x).squeeze(1)
    return_zf = arguments.flag(call, "return_zf", return_zf)
    y = linear_scan(-a.squeeze(2), x, first, axis=-1)
    if not return_zf:
        return y
    if steps:
        return y, y[:, -1:]
    return y, y.new_zeros(batch, 1) if zi is None else zi.to(y.dtype)

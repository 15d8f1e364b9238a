# SPDX-License-Identifier: BSD-3-Clause
"""``torchlpc.recurrence``."""

from __future__ import annotations

import torch

from scanrec.torch import linear_scan

from .._torch import tensor

__all__ = ["Recurrence", "linear_recurrence"]


class Recurrence:
    """``Recurrence.apply``, by which torchlpc 0.7 has its recurrence of order 1; not itself a
    ``torch.autograd.Function`` here."""

    @staticmethod
    def apply(
        decay: torch.Tensor, impulse: torch.Tensor, initial_state: torch.Tensor
    ) -> torch.Tensor:
        """``y[t] = decay[t] * y[t-1] + impulse[t]`` along the last axis of ``(B, T)``, from
        ``initial_state``, ``(B,)``."""
        call = "Recurrence.apply"
        shape = tensor(call, "impulse", impulse, axes="(B, T)").shape
        tensor(call, "initial_state", initial_state, shape=shape[:1], like=impulse)
        tensor(call, "decay", decay, shape=shape, like=impulse)
        return linear_scan(decay, impulse, initial_state, axis=-1)


def linear_recurrence(
    a: torch.Tensor, x: torch.Tensor, zi: torch.Tensor | None = None
) -> torch.Tensor:
    """``y[t] = a[t] * y[t-1] + x[t]`` along the last axis of ``(B, T)``, from
    ``zi``, ``(B,)``, or 0.

    Of ``torchlpc`` itself after 0.7.2; until then it is :meth:`Recurrence.apply`.
    """
    call = "linear_recurrence"
    batch, _ = tensor(call, "x", x, axes="(B, T)").shape
    tensor(call, "a", a, shape=x.shape, like=x)
    if zi is not None:
        tensor(call, "zi", zi, shape=(batch,), like=x)
    return linear_scan(a, x, zi, axis=-1)

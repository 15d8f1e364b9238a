# SPDX-License-Identifier: BSD-3-Clause
"""``s5.s5_model``, in PyTorch."""

from __future__ import annotations

from typing import Any

import torch

from scanrec import _arguments as arguments
from scanrec.torch import linear_scan
from scanrec.torch._state_space import complex_product, real_of_product

from .._torch import tensor

__all__ = ["apply_ssm", "apply_ssm_liquid"]


def apply_ssm(
    Lambda_bars: torch.Tensor,
    B_bars: torch.Tensor,
    C_tilde: torch.Tensor,
    D: torch.Tensor,
    input_sequence: torch.Tensor,
    state: torch.Tensor | None = None,
    bidir: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """``x[t] = Lambda_bars x[t-1] + B_bars u[t]`` and ``y[t] = Re(C_tilde x[t]) + D u[t]`` for
    ``input_sequence`` ``(L, H)``; returns ``(y, x[L-1])``.

    ``Lambda_bars`` is ``(P,)`` or ``(L, P)``, ``B_bars`` ``(P, H)`` or ``(L, P, H)``, ``C_tilde``
    ``(H, P)``, ``D`` ``(H,)``. With ``bidir`` as many states run backward, ``C_tilde`` is
    ``(H, 2 P)``, and so is the last state, of both; with a ``state``, too, it is refused: the
    original's own layer does, its function puts the state into the backward states' first step.
    """
    call = "apply_ssm"
    gate, driven = _elements(call, Lambda_bars, B_bars, C_tilde, D, input_sequence, state, bidir)
    return _outputs(gate, gate, driven, C_tilde, D, input_sequence, state, bidir)


def apply_ssm_liquid(
    Lambda_bars: torch.Tensor,
    B_bars: torch.Tensor,
    C_tilde: torch.Tensor,
    D: torch.Tensor,
    input_sequence: torch.Tensor,
    state: torch.Tensor | None = None,
    bidir: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """:func:`apply_ssm` with ``Lambda_bars + B_bars u[t]`` as the gate at each step; of states that
    run backward it is ``Lambda_bars``, as in the original.

    A ``state`` meets this gate at the first step as at every other, as in the paper (equation 8)
    and in the original's step by step form; its scan multiplies the state by ``Lambda_bars`` alone
    there.
    """
    call = "apply_ssm_liquid"
    gate, driven = _elements(call, Lambda_bars, B_bars, C_tilde, D, input_sequence, state, bidir)
    return _outputs(gate + driven, gate, driven, C_tilde, D, input_sequence, state, bidir)


def _elements(call, Lambda_bars, B_bars, C_tilde, D, u, state, bidir) -> Any:
    """Gates, and what drives the states, after checks."""
    steps, inputs = tensor(call, "input_sequence", u, axes="(L, H)", real=True).shape
    tensor(call, "Lambda_bars", Lambda_bars, like=u)
    if not Lambda_bars.is_complex():
        arguments.refuse(call, "Lambda_bars", "a complex type", Lambda_bars.dtype, TypeError)
    states = Lambda_bars.shape[-1] if Lambda_bars.dim() else 0
    if Lambda_bars.dim() != 1:
        tensor(call, "Lambda_bars", Lambda_bars, shape=(steps, states))
    tensor(call, "B_bars", B_bars, like=u)
    whole = (states, inputs) if B_bars.dim() != 3 else (steps, states, inputs)
    tensor(call, "B_bars", B_bars, shape=whole)
    both_ways = arguments.flag(call, "bidir", bidir)
    tensor(call, "C_tilde", C_tilde, shape=(inputs, states * (1 + both_ways)), like=u)
    arguments.check_shape(call, "D", tensor(call, "D", D, like=u).shape, (inputs,))
    if state is not None:
        if bidir:
            arguments.refuse(call, "state", "None with 'bidir'", "a tensor")
        tensor(call, "state", state, shape=(states,), like=u)
    B_bars = B_bars.to(Lambda_bars.dtype)
    if B_bars.dim() == 3:
        driven = (B_bars @ u.to(Lambda_bars.dtype).unsqueeze(-1)).squeeze(-1)
    else:
        driven = complex_product(u.to(Lambda_bars.real.dtype), B_bars)
    return Lambda_bars, driven


def _outputs(gate, backward_gate, driven, C_tilde, D, u, state, bidir):
    if state is not None:
        state = state.to(driven.dtype)
    states, last = linear_scan(gate, driven, state, return_final=True)
    if bidir:
        back = linear_scan(backward_gate, driven, reverse=True)
        back_last = back[-1] if back.shape[0] else torch.zeros_like(last)
        states, last = torch.cat((states, back), -1), torch.cat((last, back_last), -1)
    return real_of_product(states, C_tilde.to(driven.dtype)) + D * u, last

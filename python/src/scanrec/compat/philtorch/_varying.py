# SPDX-License-Identifier: BSD-3-Clause
"""State spaces of one state whose coefficients vary."""

from __future__ import annotations

import torch

from scanrec import _arguments as arguments
from scanrec.torch import linear_scan

from .._torch import tensor
from ._checks import check_unroll_factor, scalar_matrices
from ._matrices import common_dtype, with_fed_through
from ._state_space import checked_index, checked_signal, one_output

__all__ = ["state_space"]

# Axes that B, C and D may have, of sequences, steps, states, inputs and outputs, for signals
# without and with an axis of inputs; of two that fit the first is meant.
_DRIVEN = ("m", "nm", "bm", "bnm"), ("mf", "nmf", "bmf", "bnmf")
_OUTPUTS = "m", "nm", "bm", "pm", "npm", "bnm", "bpm", "bnpm"
_THROUGH = (
    ("n", "b", "", "1", "p", "np", "bn", "bp", "bnp"),
    ("f", "", "1", "nf", "bf", "pf", "bnf", "npf", "bpf", "bnpf"),
)


def state_space(
    A: torch.Tensor,
    x: torch.Tensor,
    B: torch.Tensor | None = None,
    C: torch.Tensor | None = None,
    D: torch.Tensor | None = None,
    zi: torch.Tensor | None = None,
    unroll_factor: int = 1,
    out_idx: int | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """``h[n+1] = A[n] h[n] + B[n] x[n]`` and ``y[n] = C[n] h[n] + D[n] x[n]`` from ``zi``, ``(1,)``
    or ``(B, 1)``, or 0: ``y``, and with a ``zi`` ``(y, h[N])``.

    Of one state: ``A`` is ``(N, 1, 1)`` or ``(B, N, 1, 1)``, and other matrices raise
    ``ValueError``. ``x``, ``B``, ``C`` and ``D`` are those of :func:`.lti.state_space`; the latter
    may have ``(N, ...)``, ``(B, ...)`` or ``(B, N, ...)`` before them, and steps are meant where
    both fit. A ``D`` that is a number for all inputs, ``()`` or ``(1,)``, is constant.
    """
    call = "state_space"
    batch, steps = checked_signal(call, x)
    check_unroll_factor(call, unroll_factor)
    one_output(call, C, out_idx)
    index = checked_index(call, out_idx, 1)
    gate = scalar_matrices(call, A, x, (batch, steps))
    wide = x.dim() == 3
    sizes = {"b": batch, "n": steps, "m": 1, "f": x.shape[2] if wide else None, "1": 1}
    signal = "bnf" if wide else "bn"
    if B is not None:
        input = _product(call, "B", signal, x, B, _DRIVEN[wide], "bnm", sizes)
    elif wide:
        arguments.check_shape(call, "x", x.shape[2:], (1,), equal=True)
        input = x
    else:
        input = x.unsqueeze(-1)
    first = None
    if zi is not None:
        shape = (batch, 1)[isinstance(zi, torch.Tensor) and zi.dim() == 1 :]
        first = tensor(call, "zi", zi, shape=shape, like=x).expand(batch, 1)
    dtype = common_dtype(gate, input, *(() if first is None else (first,)))
    first = input.new_zeros(batch, 1) if first is None else first
    h = linear_scan(gate.to(dtype), input.to(dtype), first.to(dtype), axis=1)
    last = h[:, -1] if steps else first.to(dtype)
    y = h = torch.cat((first.to(dtype).unsqueeze(1), h[:, :-1]), 1)[:, :steps]
    if index is not None:
        y = h.squeeze(-1)
    elif C is not None:
        y = _product(call, "C", "bnm", h, C, _OUTPUTS, "bn", sizes)
    if D is not None:
        fed = _product(call, "D", signal, x, D, _THROUGH[wide], "bn", sizes)
        y = with_fed_through(call, y, fed)
    return y if zi is None else (y, last)


def _product(call, name, signal, x, matrix, shapes, made, sizes):
    """Of a signal and what it is multiplied by at each step, summed over what both have that is not
    in the result."""
    tensor(call, name, matrix, like=x)
    for axes in shapes:
        if len(axes) == matrix.dim() and all(
            axis == "p" or sizes[axis] == n for axis, n in zip(axes, matrix.shape)
        ):
            break
    else:
        shown = ", ".join(f"({', '.join(axes.upper())})" for axes in shapes)
        arguments.refuse(call, name, f"one of the shapes {shown}", tuple(matrix.shape))
    if axes in ("", "1"):
        return matrix * x
    dtype = common_dtype(x, matrix)
    made = made + "p" * ("p" in axes)
    return torch.einsum(f"{signal},{axes}->{made}", x.to(dtype), matrix.to(dtype))

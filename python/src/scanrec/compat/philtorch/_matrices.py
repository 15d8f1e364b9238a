# SPDX-License-Identifier: BSD-3-Clause
"""What goes into states and comes out of them, of constant coefficients: ``B x``, ``C h``, ``D
x``."""

from __future__ import annotations

from functools import reduce
from typing import Any

import torch

from scanrec import _arguments as arguments

from .._torch import tensor

__all__ = ["common_dtype", "driven", "outputs", "product", "with_fed_through"]


def common_dtype(*tensors: torch.Tensor) -> torch.dtype:
    """The type of all of them together."""
    return reduce(torch.promote_types, (t.dtype for t in tensors))


def product(x: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """``x`` ``(B, N, I)`` times a vector ``(I,)``, a matrix ``(O, I)`` or one of each sequence,
    ``(B, O, I)``; in the type of both together."""
    dtype = torch.promote_types(x.dtype, matrix.dtype)
    return x.to(dtype) @ (matrix if matrix.dim() == 1 else matrix.mT).to(dtype)


def driven(
    call: str, x: torch.Tensor, B: torch.Tensor | None, states: int, Vinv: torch.Tensor | None
) -> torch.Tensor:
    """``Vinv B x``, ``(B, N, M)``, where None is the identity, which brings numbers ``(B, N)`` into
    the first state."""
    batch = x.shape[0]
    if B is None:
        if x.dim() == 2 and Vinv is None:
            return torch.nn.functional.pad(x.unsqueeze(-1), (0, states - 1))
        if x.dim() == 2:
            first = Vinv[..., 0]
            return x.unsqueeze(-1) * (first if first.dim() == 1 else first.unsqueeze(1))
        arguments.check_shape(call, "x", x.shape[2:], (states,), equal=True)
        return x if Vinv is None else product(x, Vinv)
    wanted = (states, *x.shape[2:])
    tensor(call, "B", B, like=x)
    if B.shape not in (wanted, (batch, *wanted)):
        arguments.refuse(call, "B", f"shape {wanted} or {(batch, *wanted)}", tuple(B.shape))
    if Vinv is not None:
        dtype = torch.promote_types(B.dtype, Vinv.dtype)
        B, Vinv = B.to(dtype), Vinv.to(dtype)
        B = Vinv @ B if x.dim() == 3 else (Vinv @ B.unsqueeze(-1)).squeeze(-1)
    if x.dim() == 3:
        return product(x, B)
    return x.unsqueeze(-1) * (B if B.dim() == 1 else B.unsqueeze(1))


def outputs(call: str, h: torch.Tensor, x: torch.Tensor, C: Any, D: Any) -> torch.Tensor:
    """``C h + D x``, of states ``(B, N, M)``, or of one of them, ``(B, N)``, which is the
    output."""
    batch = x.shape[0]
    y = h
    if C is not None:
        states = h.shape[2]
        C = tensor(call, "C", C, like=x)
        shapes = [(states,), (batch, states), (None, states), (batch, None, states)]
        kind = _first_that_fits(call, "C", C, shapes)
        if kind == 1:
            y = product(h, C.unsqueeze(1)).squeeze(-1)
        else:
            y = product(h, C)
    if D is None:
        return y
    return with_fed_through(call, y, _fed_through(call, tensor(call, "D", D, like=x), x))


def with_fed_through(call: str, y: torch.Tensor, fed: torch.Tensor) -> torch.Tensor:
    """``C h`` and ``D x``, where these are as many outputs."""
    if fed.shape[2:] != y.shape[2:]:
        expected = f"one for outputs of shape {tuple(y.shape)}"
        arguments.refuse(call, "D", expected, f"one that makes {tuple(fed.shape)}")
    return y + fed


def _fed_through(call, D, x):
    batch = x.shape[0]
    if x.dim() == 2:
        shapes = [(batch,), (), (1,), (None,), (batch, None)]
        kind = _first_that_fits(call, "D", D, shapes)
        if kind == 0:
            return D.unsqueeze(1) * x
        if kind in (1, 2):
            return D * x
        return x.unsqueeze(-1) * (D if kind == 3 else D.unsqueeze(1))
    inputs = x.shape[2]
    shapes = [(inputs,), (), (1,), (batch, inputs), (None, inputs), (batch, None, inputs)]
    kind = _first_that_fits(call, "D", D, shapes)
    if kind in (1, 2):
        return D * x
    if kind == 3:
        return product(x, D.unsqueeze(1)).squeeze(-1)
    return product(x, D)


def _first_that_fits(call, name, value, shapes):
    """Which of these shapes it has: of two that are the same the first. None is any number."""
    for at, shape in enumerate(shapes):
        if len(shape) == value.dim() and all(
            n is None or n == m for n, m in zip(shape, value.shape)
        ):
            return at
    shown = ", ".join(str(s).replace("None", "P") for s in shapes)
    return arguments.refuse(call, name, f"one of the shapes {shown}", tuple(value.shape))

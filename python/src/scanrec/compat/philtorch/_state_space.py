# SPDX-License-Identifier: BSD-3-Clause
"""State spaces of constant coefficients whose states do not mix."""

from __future__ import annotations

import operator
from typing import Any

import torch

from scanrec import _arguments as arguments
from scanrec.torch import linear_scan

from .._torch import tensor
from ._checks import check_unroll_factor, scalar_matrices
from ._matrices import common_dtype, driven, outputs, product

__all__ = [
    "checked_index",
    "checked_signal",
    "diag_state_space",
    "one_output",
    "recursion",
    "state_space",
    "state_space_recursion",
]


def state_space_recursion(
    A: torch.Tensor,
    zi: torch.Tensor,
    x: torch.Tensor,
    *,
    unroll_factor: int = 1,
    out_idx: int | None = None,
) -> torch.Tensor:
    """``h[n+1] = A h[n] + x[n]`` from ``h[0]``, which is ``zi``, ``(B, 1)``; returns
    ``h[1], ..., h[N]``, ``(B, N, 1)``, or ``(B, N)`` with an ``out_idx`` of 0.

    Of one state: ``A`` is ``(1, 1)`` or ``(B, 1, 1)``, ``x`` is ``(B, N, 1)`` or ``(B, N)``. Other
    matrices raise ``ValueError``, diagonal ones, too, which only a look at their numbers would
    tell from others: :func:`diag_state_space` takes a diagonal as ``L``. ``unroll_factor`` is
    checked and chooses nothing.
    """
    return recursion(A, zi, x, unroll_factor, out_idx, varying=False)


def recursion(
    A: Any, zi: Any, x: Any, unroll_factor: Any, out_idx: Any, varying: bool
) -> torch.Tensor:
    """``state_space_recursion`` of ``lti``, or of ``lpv``, where ``A`` has steps."""
    call = "state_space_recursion"
    batch, steps = checked_signal(call, x)
    check_unroll_factor(call, unroll_factor)
    gate = scalar_matrices(call, A, x, (batch, steps) if varying else (batch,))
    if x.dim() == 3:
        arguments.check_shape(call, "x", x.shape, (batch, steps, 1), equal=True)
    tensor(call, "zi", zi, shape=(batch, 1), like=x)
    index = checked_index(call, out_idx, 1)
    gate = gate if varying else gate.reshape(-1, 1, 1)
    h = linear_scan(gate, x.reshape(batch, steps, 1), zi, axis=1)
    return h if index is None else h.squeeze(-1)


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
    """``h[n+1] = A h[n] + B x[n]`` and ``y[n] = C h[n] + D x[n]`` from ``zi``, or 0: ``y``, and
    with a ``zi`` ``(y, h[N])``.

    Of one state, as :func:`state_space_recursion`; other arguments as of
    :func:`diag_state_space`. What is complex stays so, whatever ``C`` is.
    """
    call = "state_space"
    batch, _ = checked_signal(call, x)
    check_unroll_factor(call, unroll_factor)
    one_output(call, C, out_idx)
    gate = scalar_matrices(call, A, x, (batch,))
    return _run(call, gate.reshape(-1, 1, 1), x, B, C, D, zi, out_idx)


def diag_state_space(
    x: torch.Tensor,
    L: torch.Tensor | None = None,
    V: torch.Tensor | None = None,
    Vinv: torch.Tensor | None = None,
    A: torch.Tensor | None = None,
    B: torch.Tensor | None = None,
    C: torch.Tensor | None = None,
    D: torch.Tensor | None = None,
    zi: torch.Tensor | None = None,
    out_idx: int | None = None,
    unroll_factor: int = 1,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """``h[n+1] = A h[n] + B x[n]`` and ``y[n] = C h[n] + D x[n]`` with ``A = V diag(L) Vinv``, from
    ``zi``, ``(M,)`` or ``(B, M)``, or 0: a scan of ``Vinv h``, whose states do not mix. Returns
    ``y``, and with a ``zi`` ``(y, h[N])``.

    ``x`` is ``(B, N)`` or ``(B, N, F)``. ``L`` is ``(M,)`` or ``(B, M)``, ``V``, ``Vinv`` and ``A``
    are ``(M, M)``, and ``(B, M, M)`` with an ``L`` of each sequence. Given are ``L`` alone, of a
    diagonal ``A``; ``L`` with ``V``, ``Vinv``, or both, as they are; ``L`` with ``A``; or ``A``
    alone, whose eigenvalues are computed.

    ``B`` is ``(M, F)``, or ``(M,)`` where ``x`` has no ``F``; the identity without it, which brings
    an ``x`` without ``F`` into the first state. ``C`` is ``(M,)`` or ``(P, M)``; without it states
    are the output, or one of them, ``out_idx``. ``D`` is a number, ``()`` or ``(1,)``, or ``(F,)``
    or ``(P, F)``; where ``x`` has no ``F``, ``(P,)``. All may have ``(B, ...)`` before them, which
    is what a shape with two meanings is read as.

    With a real ``C`` outputs are the real parts, otherwise what numbers come to; eigenvalues of
    ``A`` are complex. ``unroll_factor`` is checked and chooses nothing.

    The original raises for an ``L`` of ``(B, M)`` alone, for a complex ``L`` alone with a real
    ``x``, and for an ``A`` with an eigenvector that begins with 0, as that of a diagonal matrix
    does. Eigenvalues that repeat have ``torch.linalg.LinAlgError`` raised where eigenvectors are
    computed, as there.
    """
    call = "diag_state_space"
    checked_signal(call, x)
    check_unroll_factor(call, unroll_factor)
    one_output(call, C, out_idx)
    L, V, Vinv = _decomposed(call, x, L, V, Vinv, A)
    real = isinstance(C, torch.Tensor) and not C.is_complex()
    gate = L if L.dim() == 1 else L.unsqueeze(1)
    return _run(call, gate, x, B, C, D, zi, out_idx, V, Vinv, real)


def _run(call, gate, x, B, C, D, zi, out_idx, V=None, Vinv=None, real=False):
    """The outputs, and the last state if there is a first, of gates ``(..., 1, M)``."""
    batch, states = x.shape[0], gate.shape[-1]
    index = checked_index(call, out_idx, states)
    if zi is None:
        first = start = None
    else:
        whole = isinstance(zi, torch.Tensor) and zi.dim() == 1
        shape = (states,) if whole else (batch, states)
        first = tensor(call, "zi", zi, shape=shape, like=x).expand(batch, states)
        start = first if Vinv is None else product(first.unsqueeze(1), Vinv).squeeze(1)
    input = driven(call, x, B, states, Vinv)
    dtype = common_dtype(gate, input, *(() if start is None else (start,)))
    start = None if start is None else start.to(dtype)
    h = linear_scan(gate.to(dtype), input.to(dtype), start, axis=1)
    last = None
    if first is None and index is not None:
        h = h[..., index] if V is None else product(h, V[..., index, :].unsqueeze(-2))[..., 0]
        before = torch.zeros_like(h[:, :1]) if h.shape[1] else h
    else:
        h = h if V is None else product(h, V)
        if first is None:
            first = torch.zeros((batch, states), dtype=h.dtype, device=h.device)
        else:
            first = first.to(torch.promote_types(first.dtype, h.dtype))
            last = h[:, -1] if h.shape[1] else first
        before = first.unsqueeze(1)
        if index is not None:
            h, before = h[..., index], before[..., index]
    h = torch.cat((before, h[:, :-1]), 1)[:, : x.shape[1]]
    if real and h.is_complex():
        h, last = h.real, None if last is None else last.real
    y = outputs(call, h, x, C, D)
    return y if last is None else (y, last)


def checked_signal(call: str, x: Any) -> tuple[int, int]:
    """How many sequences and steps an ``x`` of two or three axes has."""
    if tensor(call, "x", x).dim() not in (2, 3):
        arguments.refuse(call, "x", "shape (B, N) or (B, N, F)", tuple(x.shape))
    return x.shape[0], x.shape[1]


def checked_index(call: str, out_idx: Any, states: int) -> int | None:
    """Which state is the output, if one is."""
    if out_idx is None:
        return None
    try:
        index = operator.index(out_idx)
    except TypeError:
        arguments.refuse(call, "out_idx", "an integer or None", repr(out_idx), TypeError)
    if not -states <= index < states:
        arguments.refuse(call, "out_idx", f"one of {states} states", index)
    return index


def one_output(call: str, C: Any, out_idx: Any) -> None:
    """Refuses outputs that are said in two ways."""
    if C is not None and out_idx is not None:
        arguments.refuse(call, "out_idx", "None with 'C'", out_idx)


def _decomposed(call, x, L, V, Vinv, A):
    """Eigenvalues, eigenvectors as columns and their inverse, None for the identity."""
    batch = x.shape[0]
    if L is None:
        if A is None:
            arguments.refuse(call, "L", "eigenvalues, or a matrix as 'A'", "neither")
        A = tensor(call, "A", A, like=x)
        states = A.shape[-1] if A.dim() else 0
        wanted = (batch, states, states)[A.dim() == 2 :]
        arguments.check_shape(call, "A", A.shape, wanted, equal=True)
        L, near = torch.linalg.eig(A)
        V = _eigenvectors(A, L, near.detach())
        return L, V, torch.linalg.inv(V)
    L = tensor(call, "L", L, like=x)
    states = L.shape[-1] if L.dim() else 0
    lead = (batch,)[L.dim() == 1 :]
    arguments.check_shape(call, "L", L.shape, (*lead, states), equal=True)
    for name, matrix in (("V", V), ("Vinv", Vinv), ("A", A)):
        if matrix is not None:
            tensor(call, name, matrix, shape=(*lead, states, states), like=x)
    if V is None and Vinv is None:
        if A is None:
            return L, None, None
        V = _eigenvectors(A, L, _near(A.detach(), L.detach()))
    if V is None:
        V = torch.linalg.inv(Vinv)
    elif Vinv is None:
        Vinv = torch.linalg.inv(V)
    return L, V, Vinv


def _near(A, L):
    """Eigenvectors that LAPACK finds, in the order of these eigenvalues."""
    found, vectors = torch.linalg.eig(A)
    order = (L.unsqueeze(-1) - found.unsqueeze(-2)).abs().argmin(-1)
    return vectors.gather(-1, order.unsqueeze(-2).expand(vectors.shape))


def _eigenvectors(A, L, near):
    """Columns ``v`` with ``A v = l v``, as functions of ``A`` and ``L`` that have derivatives of
    any order.

    ``v`` makes the norm of ``r = -(A - l) v`` least, and is 1 where the vector ``near`` it is
    largest: of this minimum the system that is solved is the condition.
    """
    states = A.shape[-1]
    eye = torch.eye(states, dtype=L.dtype, device=A.device)
    shifted = A.unsqueeze(-3) - L[..., None, None] * eye
    places = torch.arange(states, device=A.device)
    largest = near.abs().argmax(-2).unsqueeze(-1) == places
    largest = largest.unsqueeze(-1).to(shifted.dtype)
    nothing, zeros = torch.zeros_like(largest), torch.zeros_like(shifted)
    first = torch.cat((eye.to(shifted.dtype).expand_as(shifted), shifted, nothing), -1)
    second = torch.cat((shifted.mH, zeros, largest), -1)
    last = torch.cat((nothing, largest, nothing[..., :1, :]), -2).mT
    wanted = torch.nn.functional.pad(torch.cat((zeros[..., 0],) * 2, -1), (0, 1), value=1.0)
    solved = torch.linalg.solve(torch.cat((first, second, last), -2), wanted)
    return solved[..., states : 2 * states].mT

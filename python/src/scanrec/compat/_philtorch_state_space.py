# SPDX-License-Identifier: BSD-3-Clause
"""State spaces of philtorch whose states do not mix."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.nn.functional import pad

from scanrec import _arguments as arguments
from scanrec.torch import linear_scan

from ._torch import common_dtype, tensor

__all__ = [
    "check_signal",
    "check_unroll_factor",
    "checked_index",
    "decomposed",
    "scalar_gates",
    "shared_or_batched",
    "system",
]

# Shapes of B, C and D by the names of their axes: sequences b, steps n, states m, inputs f and
# outputs p. D has "1" for one number. The pairs are for signals without and with an axis of inputs.
# A tensor that fits several shapes has the first. Shapes with n are those of lpv alone.
_DRIVEN = ("m", "nm", "bm", "bnm"), ("mf", "nmf", "bmf", "bnmf")
_OUTPUTS = "m", "nm", "bm", "pm", "npm", "bnm", "bpm", "bnpm"
_THROUGH = (
    ("n", "b", "", "1", "p", "np", "bn", "bp", "bnp"),
    ("f", "", "1", "nf", "bf", "pf", "bnf", "npf", "bpf", "bnpf"),
)


def check_unroll_factor(call: str, unroll_factor: Any) -> None:
    """Refuse an ``unroll_factor`` that is not an integer of 1 or more."""
    try:
        blocks = operator.index(unroll_factor)
    except TypeError:
        arguments.refuse(call, "unroll_factor", "an integer", repr(unroll_factor), TypeError)
    if blocks < 1:
        arguments.refuse(call, "unroll_factor", "at least 1", blocks)


def shared_or_batched(
    call: str, name: str, value: Any, x: torch.Tensor, shape: tuple[int, ...]
) -> torch.Tensor:
    """Return the tensor if it has this shape, or this shape for each sequence of ``x``."""
    tensor(call, name, value, like=x)
    wanted = shape if value.dim() == len(shape) else (x.shape[0], *shape)
    return tensor(call, name, value, shape=wanted)


def check_signal(call, x, unroll_factor):
    """Return the numbers of sequences and of steps."""
    if tensor(call, "x", x).dim() not in (2, 3):
        arguments.refuse(call, "x", "shape (B, N) or (B, N, F)", tuple(x.shape))
    check_unroll_factor(call, unroll_factor)
    return x.shape[0], x.shape[1]


def checked_index(call, out_idx, states):
    if out_idx is None:
        return None
    try:
        index = operator.index(out_idx)
    except TypeError:
        arguments.refuse(call, "out_idx", "an integer or None", repr(out_idx), TypeError)
    if not -states <= index < states:
        arguments.refuse(call, "out_idx", f"one of {states} states", index)
    return index


def scalar_gates(call, A, x, varying):
    """Return matrices of one number each as gates of a scan of ``(B, N, 1)``."""
    tensor(call, "A", A, like=x)
    if A.dim() < 2 or A.shape[-2:] != (1, 1):
        steps = ", lpv.linear_recurrence of rows that vary" if varying else ""
        expected = (
            "matrices of one number, (..., 1, 1): diag_state_space takes a diagonal as L, lti."
            f"linear_recurrence one as rows of a batch{steps}"
        )
        arguments.refuse(call, "A", expected, f"shape {tuple(A.shape)}")
    axes = x.shape[:2] if varying else x.shape[:1]
    wanted = (*axes[A.dim() - 2 < len(axes) :], 1, 1)
    arguments.check_shape(call, "A", A.shape, wanted, equal=True)
    return A.squeeze(-1) if varying else A.reshape(-1, 1, 1)


def system(call, gate, x, B, C, D, zi, out_idx, V=None, Vinv=None, real=False, varying=False):
    """Return the outputs, and the last state if there is an initial one; gates are (..., M)."""
    (batch, steps), states, wide = x.shape[:2], gate.shape[-1], x.dim() == 3
    sizes = {"b": batch, "m": states, "f": x.shape[2] if wide else None, "1": 1}
    if varying:
        sizes["n"] = steps
    if C is not None and out_idx is not None:
        arguments.refuse(call, "out_idx", "None with 'C'", out_idx)
    index = checked_index(call, out_idx, states)
    first = start = None
    if zi is not None:
        first = start = shared_or_batched(call, "zi", zi, x, (states,)).expand(batch, states)
        if Vinv is not None:
            start = _times(first.unsqueeze(1), Vinv).squeeze(1)
    input = _driven(call, x, B, Vinv, sizes)
    dtype = common_dtype(gate, input, *(() if start is None else (start,)))
    start = None if start is None else start.to(dtype)
    h = linear_scan(gate.to(dtype), input.to(dtype), start, axis=1)
    last = None
    if first is None and index is not None:
        h = h[..., index] if V is None else _times(h, V[..., index, :].unsqueeze(-2))[..., 0]
        before = torch.zeros_like(h[:, :1]) if steps else h
    else:
        h = h if V is None else _times(h, V)
        if first is None:
            first = torch.zeros((batch, states), dtype=h.dtype, device=h.device)
        else:
            first = first.to(torch.promote_types(first.dtype, h.dtype))
            last = h[:, -1] if steps else first
        before = first.unsqueeze(1)
        if index is not None:
            h, before = h[..., index], before[..., index]
    y = torch.cat((before, h[:, :-1]), 1)[:, :steps]
    if real and y.is_complex():
        y, last = y.real, None if last is None else last.real
    if C is not None:
        y = _product(call, "C", "bnm", y, C, _OUTPUTS, "bn", sizes)
    if D is not None:
        through = _product(call, "D", "bnf" if wide else "bn", x, D, _THROUGH[wide], "bn", sizes)
        if through.shape[2:] != y.shape[2:]:
            expected = f"one for outputs of shape {tuple(y.shape)}"
            arguments.refuse(call, "D", expected, f"one that makes {tuple(through.shape)}")
        y = y + through
    return y if last is None else (y, last)


def _driven(call, x, B, Vinv, sizes):
    """Return ``Vinv B x``, ``(B, N, M)``; an absent B is the identity, or its first column."""
    wide = x.dim() == 3
    if B is None:
        if wide:
            arguments.check_shape(call, "x", x.shape[2:], (sizes["m"],), equal=True)
        if Vinv is None:
            return x if wide else pad(x.unsqueeze(-1), (0, sizes["m"] - 1))
        B = Vinv if wide else Vinv[..., 0]
    else:
        _axes_of(call, "B", tensor(call, "B", B, like=x), _DRIVEN[wide], sizes)
        if Vinv is not None:
            B = _times(B.mT if wide else B.unsqueeze(-2), Vinv)
            B = B.mT if wide else B.squeeze(-2)
    return _product(call, "B", "bnf" if wide else "bn", x, B, _DRIVEN[wide], "bnm", sizes)


def _times(x, matrix):
    """Multiply the rows of ``x`` by a matrix, in the type that both promote to."""
    dtype = torch.promote_types(x.dtype, matrix.dtype)
    return x.to(dtype) @ matrix.mT.to(dtype)


def _product(call, name, signal, x, matrix, shapes, made, sizes):
    """Multiply a signal by a coefficient at each step, and sum over axes not in the result."""
    axes = _axes_of(call, name, tensor(call, name, matrix, like=x), shapes, sizes)
    if axes in ("", "1"):
        return matrix * x
    dtype = common_dtype(x, matrix)
    made = made + "p" * ("p" in axes)
    return torch.einsum(f"{signal},{axes}->{made}", x.to(dtype), matrix.to(dtype))


def _axes_of(call, name, value, shapes, sizes):
    """Return the first of these shapes that the tensor has; "p" is any number."""
    shapes = [axes for axes in shapes if "n" in sizes or "n" not in axes]
    for axes in shapes:
        if len(axes) == value.dim() and all(
            axis == "p" or sizes[axis] == n for axis, n in zip(axes, value.shape)
        ):
            return axes
    if "n" in sizes:
        shown = [f"({', '.join(axes.upper())})" for axes in shapes]
    else:
        shown = [str(tuple(sizes.get(axis, "P") for axis in axes)) for axes in shapes]
    expected = f"one of the shapes {', '.join(shown)}".replace("'P'", "P")
    if len(shown) == 2:
        expected = "shape " + " or ".join(shown)
    return arguments.refuse(call, name, expected, tuple(value.shape))


def decomposed(call, x, L, V, Vinv, A):
    """Return eigenvalues, eigenvectors as columns, and their inverse; the identity is None."""
    given = L is not None
    if not given and A is None:
        arguments.refuse(call, "L", "eigenvalues, or a matrix as 'A'", "neither")
    name, value = ("L", L) if given else ("A", A)
    states = value.shape[-1] if tensor(call, name, value, like=x).dim() else 0
    if not given:
        shared_or_batched(call, "A", A, x, (states, states))
        L, near = torch.linalg.eig(A)
        V = _eigenvectors(A, L, near.detach())
        return L, V, torch.linalg.inv(V)
    shared_or_batched(call, "L", L, x, (states,))
    for name, matrix in (("V", V), ("Vinv", Vinv), ("A", A)):
        if matrix is not None:
            tensor(call, name, matrix, shape=(*L.shape[:-1], states, states), like=x)
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
    """Return the eigenvectors that LAPACK finds, in the order of the eigenvalues ``L``."""
    found, vectors = torch.linalg.eig(A)
    order = (L.unsqueeze(-1) - found.unsqueeze(-2)).abs().argmin(-1)
    return vectors.gather(-1, order.unsqueeze(-2).expand(vectors.shape))


def _eigenvectors(A, L, near):
    """Return columns ``v`` with ``A v = l v``, which have derivatives of any order in A and L.

    ``v`` minimises the norm of ``r = -(A - l) v`` under the condition that ``v`` is 1 at the
    largest element of ``near``. The linear system states the conditions of this minimum.
    """
    states = A.shape[-1]
    eye = torch.eye(states, dtype=L.dtype, device=A.device)
    shifted = A.unsqueeze(-3) - L[..., None, None] * eye
    largest = near.abs().argmax(-2).unsqueeze(-1) == torch.arange(states, device=A.device)
    largest = largest.unsqueeze(-1).to(shifted.dtype)
    nothing, zeros = torch.zeros_like(largest), torch.zeros_like(shifted)
    first = torch.cat((eye.to(shifted.dtype).expand_as(shifted), shifted, nothing), -1)
    second = torch.cat((shifted.mH, zeros, largest), -1)
    last = torch.cat((nothing, largest, nothing[..., :1, :]), -2).mT
    wanted = pad(torch.cat((zeros[..., 0],) * 2, -1), (0, 1), value=1.0)
    solved = torch.linalg.solve(torch.cat((first, second, last), -2), wanted)
    return solved[..., states : 2 * states].mT

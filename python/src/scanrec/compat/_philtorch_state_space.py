# SPDX-License-Identifier: BSD-3-Clause
"""State spaces of philtorch: diagonal ones, and those that eigenvectors make diagonal."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import pad

from scanrec import _arguments as arguments
from scanrec.torch import linear_scan

from ._torch import common_dtype, shared_or_each, tensor

__all__ = ["check_signal", "checked_index", "decomposed", "scalar_gates", "system"]

#: The extent of each axis, by its letter; None for an axis of inputs that the signal lacks.
_Sizes: TypeAlias = Mapping[str, "int | None"]

# Shapes of B, C and D by the names of their axes: sequences b, steps n, states m, inputs f and
# outputs p. "1" is an axis of extent 1. The pairs are for signals without and with an axis of
# inputs. If a tensor fits several shapes, the first one applies. Only calls of lpv, whose
# coefficients vary over time, accept shapes with n.
_OUTPUTS = "m", "nm", "bm", "pm", "npm", "bnm", "bpm", "bnpm"
_THROUGH = "n", "b", "", "1", "p", "np", "bn", "bp", "bnp"
_SHAPES = {
    "B": (("m", "nm", "bm", "bnm"), ("mf", "nmf", "bmf", "bnmf")),
    "C": (_OUTPUTS, _OUTPUTS),
    "D": (_THROUGH, ("f", "", "1", "nf", "bf", "pf", "bnf", "npf", "bpf", "bnpf")),
}


def check_signal(call: str, x: Tensor, unroll_factor: int) -> None:
    """Check the signal, ``(B, N)`` or ``(B, N, F)``, and the factor."""
    if tensor(call, "x", x).dim() not in (2, 3):
        arguments.refuse(call, "x", "shape (B, N) or (B, N, F)", tuple(x.shape))
    arguments.count(call, "unroll_factor", unroll_factor)


def checked_index(call: str, out_idx: int | None, states: int) -> int | None:
    """Return the index of a state, counted from the front."""
    if out_idx is None:
        return None
    try:
        index = operator.index(out_idx)
    except TypeError:
        arguments.refuse(call, "out_idx", "an integer or None", repr(out_idx), TypeError)
    if not -states <= index < states:
        arguments.refuse(call, "out_idx", f"the index of one of {states} states", index)
    return index % states


def scalar_gates(call: str, A: Tensor, x: Tensor, varying: bool) -> Tensor:
    """Return matrices of one number each as gates of a scan of ``(B, N, 1)``."""
    tensor(call, "A", A, like=x)
    if A.dim() < 2 or A.shape[-2:] != (1, 1):
        kinds = "lti and lpv" if varying else "lti"
        expected = (
            "matrices (..., 1, 1) (for diagonal matrices call lti.diag_state_space with L, or "
            f"linear_recurrence of {kinds} with a batch)"
        )
        arguments.refuse(call, "A", expected, f"shape {tuple(A.shape)}")
    axes = x.shape[:2] if varying else x.shape[:1]
    wanted = (*axes[A.dim() - 2 < len(axes) :], 1, 1)
    arguments.check_shape(call, "A", A.shape, wanted, equal=True)
    return A.squeeze(-1) if varying else A.reshape(-1, 1, 1)


def system(
    call: str,
    gate: Tensor,
    x: Tensor,
    B: Tensor | None,
    C: Tensor | None,
    D: Tensor | None,
    zi: Tensor | None,
    out_idx: int | None,
    V: Tensor | None = None,
    Vinv: Tensor | None = None,
    real: bool = False,
    varying: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Return the outputs, and the last state if ``zi`` is given. Gates are (..., M)."""
    (batch, steps), states, wide = x.shape[:2], gate.shape[-1], x.dim() == 3
    sizes = {"b": batch, "m": states, "f": x.shape[2] if wide else None, "1": 1}
    sizes |= {"n": steps} if varying else {}
    if C is not None and out_idx is not None:
        arguments.refuse(call, "out_idx", "None with 'C'", out_idx)
    index = checked_index(call, out_idx, states)
    first = start = last = None
    if zi is not None:
        first = start = shared_or_each(call, "zi", zi, x, (states,)).expand(batch, states)
        if Vinv is not None:
            start = _times(first.unsqueeze(1), Vinv).squeeze(1)
    input = _driven(call, x, B, Vinv, sizes)
    dtype = common_dtype(gate, input, start)
    start = None if start is None else start.to(dtype)
    h = linear_scan(gate.to(dtype), input.to(dtype), start, axis=1)
    chosen = slice(None) if index is None else slice(index, index + 1)
    if first is None:
        h = h[..., chosen] if V is None else _times(h, V[..., chosen, :])
        before = torch.zeros_like(h[:, :1])
    else:
        h = h if V is None else _times(h, V)
        first = first.to(common_dtype(first, h))
        last = h[:, -1] if steps else first
        h, before = h[..., chosen], first[:, None, chosen]
    y = torch.cat((before, h[:, :-1]), 1)[:, :steps]
    if index is not None:
        y = y.squeeze(-1)
    if real and y.is_complex():
        y, last = y.real, None if last is None else last.real
    if C is not None:
        y = _product(call, "C", y, C, sizes)
    if D is not None:
        through = _product(call, "D", x, D, sizes)
        if through.shape[2:] != y.shape[2:]:
            expected = f"a matrix for outputs of shape {tuple(y.shape)}"
            got = f"a matrix for outputs of shape {tuple(through.shape)}"
            arguments.refuse(call, "D", expected, got)
        y = y + through
    return y if last is None else (y, last)


def _driven(call: str, x: Tensor, B: Tensor | None, Vinv: Tensor | None, sizes: _Sizes) -> Tensor:
    """Return ``Vinv B x``, ``(B, N, M)``. An absent B is the identity, or its first column if the
    signal has no axis of inputs."""
    wide, states = x.dim() == 3, sizes["m"] or 0
    if B is None:
        if wide:
            arguments.check_shape(call, "x", x.shape[2:], (states,), equal=True)
        if Vinv is None:
            return x if wide else pad(x.unsqueeze(-1), (0, states - 1))
        B = Vinv if wide else Vinv[..., 0]
    else:
        _axes_of(call, "B", B, x, sizes)
        if Vinv is not None:
            B = _times(B.mT if wide else B.unsqueeze(-2), Vinv)
            B = B.mT if wide else B.squeeze(-2)
    return _product(call, "B", x, B, sizes)


def _times(x: Tensor, matrix: Tensor) -> Tensor:
    """Multiply the rows of ``x`` by a matrix, in the type that both promote to."""
    dtype = common_dtype(x, matrix)
    return x.to(dtype) @ matrix.mT.to(dtype)


def _product(call: str, name: str, x: Tensor, matrix: Tensor, sizes: _Sizes) -> Tensor:
    """Multiply a signal by a coefficient at each step, and sum over axes not in the result."""
    axes = _axes_of(call, name, matrix, x, sizes)
    if axes in ("", "1"):
        return matrix * x
    dtype = common_dtype(x, matrix)
    signal = "bnm" if name == "C" else "bnf"[: x.dim()]
    made = "bnm" if name == "B" else "bn" + "p" * ("p" in axes)
    return torch.einsum(f"{signal},{axes}->{made}", x.to(dtype), matrix.to(dtype))


def _axes_of(call: str, name: str, value: Tensor, x: Tensor, sizes: _Sizes) -> str:
    """Return the first known shape of this coefficient that the tensor has. "p" has any extent."""
    tensor(call, name, value, like=x)
    without, along = _SHAPES[name]
    known = without if sizes["f"] is None else along
    shapes = [axes for axes in known if "n" in sizes or "n" not in axes]
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


def decomposed(
    call: str, x: Tensor, L: Tensor | None, V: Tensor | None, Vinv: Tensor | None, A: Tensor | None
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return eigenvalues, eigenvectors as columns, and their inverse. None stands for an identity
    matrix."""
    if L is None:
        if A is None:
            arguments.refuse(call, "L", "eigenvalues, or a matrix as 'A'", "neither")
        states = A.shape[-1] if tensor(call, "A", A).dim() else 0
        shared_or_each(call, "A", A, x, (states, states))
        L, near = torch.linalg.eig(A)
        V = _eigenvectors(A, L, near.detach())
        return L, V, torch.linalg.inv(V)
    states = L.shape[-1] if tensor(call, "L", L).dim() else 0
    shared_or_each(call, "L", L, x, (states,))
    for name, matrix in (("V", V), ("Vinv", Vinv), ("A", A)):
        if matrix is not None:
            tensor(call, name, matrix, shape=(*L.shape[:-1], states, states), like=x)
    if V is None and Vinv is None and A is not None:
        # Sort the eigenvectors that torch.linalg.eig finds into the order of L.
        found, vectors = torch.linalg.eig(A.detach())
        order = (L.detach().unsqueeze(-1) - found.unsqueeze(-2)).abs().argmin(-1)
        near = vectors.gather(-1, order.unsqueeze(-2).expand(vectors.shape))
        V = _eigenvectors(A, L, near)
    if V is None and Vinv is not None:
        V = torch.linalg.inv(Vinv)
    elif V is not None and Vinv is None:
        Vinv = torch.linalg.inv(V)
    return L, V, Vinv


def _eigenvectors(A: Tensor, L: Tensor, near: Tensor) -> Tensor:
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
    solved: Tensor = torch.linalg.solve(torch.cat((first, second, last), -2), wanted)
    return solved[..., states : 2 * states].mT

# SPDX-License-Identifier: BSD-3-Clause
"""Filters of one pole, and combs."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import pad

from scanrec import _arguments as arguments
from scanrec.torch import linear_scan

from .._torch import tensor
from ._checks import check_unroll_factor
from ._matrices import common_dtype

__all__ = ["comb_filter", "lfilter"]

_FORMS = ("df2", "tdf2", "df1", "tdf1")
_BACKENDS = ("ssm", "diag_ssm")

#: Up to so many coefficients sums of products take less time than products of matrices of so many
#: steps, forward and backward, on one thread of a CPU.
_FEW, _BLOCK = 4, 32


def comb_filter(
    a: torch.Tensor, delay: int, x: torch.Tensor, zi: torch.Tensor | None = None, **kwargs: Any
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """``y[n] = x[n] - a * y[n - delay]`` along the last axis of ``x``, ``(B, N)``; ``a`` is ``()``
    or ``(B,)``.

    ``zi``, ``(delay,)`` or ``(B, delay)``, is the outputs before, the newest first; with it the
    result is ``(y, zf)``, ``zf`` the last outputs likewise, ``(B, delay)``. ``unroll_factor``, the
    only other argument, is checked and chooses nothing. One scan of ``delay`` channels.
    """
    call = "comb_filter"
    batch, steps = tensor(call, "x", x, axes="(B, N)").shape
    delay = arguments.count(call, "delay", delay)
    check_unroll_factor(call, _taken(call, kwargs, unroll_factor=1)["unroll_factor"])
    shape = (batch,)[tensor(call, "a", a, like=x).dim() == 0 :]
    arguments.check_shape(call, "a", a.shape, shape, equal=True)
    before = None
    if zi is not None:
        shape = (batch, delay)[isinstance(zi, torch.Tensor) and zi.dim() == 1 :]
        before = tensor(call, "zi", zi, shape=shape, like=x).flip(-1).expand(batch, delay)
    # Steps that are `delay` apart are those of a channel. At least one step is added at every
    # length: torch.compile makes another program of a call that adds none.
    rows = steps // delay + 1
    folded = pad(x, (0, rows * delay - steps)).unflatten(1, (rows, delay))
    y = linear_scan(-a.reshape(-1, 1, 1), folded, before, axis=1).flatten(1)[:, :steps]
    if before is None:
        return y
    return y, torch.cat((before, y[:, max(0, steps - delay) :]), 1)[:, -delay:].flip(1)


def lfilter(
    b: torch.Tensor,
    a: torch.Tensor,
    x: torch.Tensor,
    zi: torch.Tensor | None = None,
    form: str = "tdf2",
    backend: str = "ssm",
    **kwargs: Any,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """``y[n] = b[0] x[n] + ... + b[K-1] x[n-K+1] - a[0] y[n-1]`` along the last axis of ``x``,
    ``(B, N)`` or ``(N,)``; ``b`` is ``(B, K)`` or ``(K,)``, ``a`` is ``(B, 1)`` or ``(1,)``,
    without the leading 1.

    ``zi``, ``(B, M)`` or ``(M,)`` with ``M = max(1, K - 1)``, is the state of a ``form`` of
    ``"tdf2"`` or ``"df2"``; with it the result is ``(y, zf)``. The others are the same filters, and
    take no state. Where nothing has a ``B`` the results have none.

    Of one pole: with more than one coefficient in ``a``, which the original takes, ``ValueError``
    is raised. ``backend`` and its options ``unroll_factor`` and ``delayed_form`` choose among
    algorithms of one value; they are checked and choose nothing. ``"diag_ssm"`` takes a ``zi`` with
    any number of coefficients. Eigenvalues and -vectors, ``L``, ``V`` and ``Vinv``, are refused:
    ``a`` has them.
    """
    call = "lfilter"
    given = {"b": b, "a": a, "x": x} if zi is None else {"b": b, "a": a, "x": x, "zi": zi}
    for name, value in given.items():
        tensor(call, name, value, like=x if isinstance(x, torch.Tensor) else None)
        if value.dim() not in (1, 2):
            arguments.refuse(call, name, "one axis or two", f"shape {tuple(value.shape)}")
    forms = _FORMS[:2] if backend == "diag_ssm" else _FORMS
    for name, value, known in (("form", form, forms), ("backend", backend, _BACKENDS)):
        if value not in known:
            arguments.refuse(call, name, "one of " + ", ".join(map(repr, known)), repr(value))
    if a.shape[-1] != 1:
        arguments.refuse(call, "a", "one coefficient, (1,) or (B, 1)", f"shape {tuple(a.shape)}")
    known = {"unroll_factor": 1}
    if backend == "diag_ssm":
        known |= {"L": None, "V": None, "Vinv": None, "delayed_form": False}
    options = _taken(call, kwargs, **known)
    check_unroll_factor(call, options["unroll_factor"])
    arguments.flag(call, "delayed_form", options.get("delayed_form", False))
    for name in ("L", "V", "Vinv"):
        if options.get(name) is not None:
            arguments.refuse(call, name, "None: 'a' has it", type(options[name]).__name__)
    bare = all(value.dim() == 1 for value in given.values())
    dtype = common_dtype(*given.values())
    b, a, x = (value.to(dtype) for value in (b, a, x))
    x = x if x.dim() == 2 else x.unsqueeze(0)
    batch, _ = x.shape
    arguments.check_shape(call, "a", a.shape, (batch, 1)[a.dim() == 1 :], equal=True)
    taps = b.shape[-1]
    if taps == 0:
        arguments.refuse(call, "b", "one coefficient or more", "none")
    arguments.check_shape(call, "b", b.shape, (batch, taps)[b.dim() == 1 :], equal=True)
    order = max(1, taps - 1)
    b = pad(b.expand(batch, taps), (0, order + 1 - taps))
    gate = -a.expand(batch, 1)
    state = None
    if zi is not None:
        if "1" in form:
            arguments.refuse(call, "zi", "None with a form other than 'df2' and 'tdf2'", "a tensor")
        arguments.check_shape(call, "zi", zi.shape, (batch, order)[zi.dim() == 1 :], equal=True)
        state = zi.to(dtype).expand(batch, order)
    y, last = (_direct if form == "df2" else _transposed)(b, gate, x, state)
    if bare:
        y, last = y.squeeze(0), last.squeeze(0)
    return y if zi is None else (y, last)


def _taken(call, given, **known):
    """Options by name, as given or as they are otherwise."""
    for name in given:
        if name not in known:
            arguments.refuse(call, name, "no such argument: only " + ", ".join(known), given[name])
    return {**known, **given}


def _direct(b, gate, x, state):
    """``w`` is ``x`` behind the pole, and its last values are the state, the newest first."""
    order = b.shape[1] - 1
    before = x.new_zeros(x.shape[0], order) if state is None else state.flip(1)
    w = torch.cat((before, linear_scan(gate, x, before[:, -1], axis=-1)), 1)
    return _convolved(b, w), w[:, w.shape[1] - order :].flip(1)


def _transposed(b, gate, x, state):
    """The state is added to the first values behind the zeros, and what zeros and pole have for the
    time after the last step is the next state."""
    order, steps = b.shape[1] - 1, x.shape[1]
    whole = _convolved(b, pad(x, (order, order)))
    if state is not None:
        whole = whole + pad(state, (0, steps))
    first, ahead = whole[:, :steps], whole[:, steps:]
    y = linear_scan(gate, first, axis=-1)
    if steps:
        ahead = ahead + pad(gate * y[:, -1:], (0, order - 1))
    return y, ahead


def _convolved(b, x):
    """Convolve every row with its coefficients, at the steps that have all of them on the left.

    ``torch.compile`` makes a program of ``conv1d`` for each length. Here products of a few
    coefficients are summed; for more of them each block of steps is a product of matrices.
    """
    taps, steps = b.shape[1], x.shape[1] - b.shape[1] + 1
    if taps <= _FEW:
        wide = torch.promote_types(x.dtype, torch.float32)  # 16-bit sums are rounded once
        b, whole = b.to(wide), x.to(wide)
        y = b[:, :1] * whole.narrow(1, taps - 1, steps)
        for k in range(1, taps):
            y = torch.addcmul(y, b[:, k : k + 1], whole.narrow(1, taps - 1 - k, steps))
        return y.to(x.dtype)
    size = max(_BLOCK, taps)
    blocks = steps // size + 1  # at least one step more than there are, as in comb_filter
    # Row i of a matrix has the coefficients, the last one first, from column i on.
    width = size + taps - 1
    matrices = pad(b.flip(1), (0, size)).repeat(1, size)[:, : size * width]
    matrices = matrices.unflatten(1, (size, width))
    x = pad(x, (0, (blocks + 1) * size - x.shape[1])).unflatten(1, (blocks + 1, size))
    windows = torch.cat((x[:, :-1], x[:, 1:, : taps - 1]), 2)
    return (windows @ matrices.mT).flatten(1)[:, :steps]

# SPDX-License-Identifier: BSD-3-Clause
"""Stands in for philtorch, for recurrences of order 1.

``lti`` has constant coefficients, ``lpv`` has coefficients that vary over time. ``unroll_factor``,
by which the original selects an algorithm, is checked and otherwise ignored. Element types are
floating point and complex types, not integers. The original also supports more than one pole in
``lfilter``, and matrices larger than ``(1, 1)``. Here these raise ``ValueError``, except for the
matrices of ``lti.diag_state_space``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import pad

from scanrec import _arguments as arguments
from scanrec.torch import linear_scan

from . import _philtorch_state_space as spaces
from ._torch import common_dtype, shared_or_each, tensor

__all__ = ["lpv", "lti", "recurrence"]

#: A check for each option, by its name. A check takes the call, the name and the value.
_Options: TypeAlias = Mapping[str, Callable[[str, str, Any], object]]


def recurrence(A: Tensor, zi: Tensor, x: Tensor) -> Tensor:
    """Compute ``h[t] = A[t] h[t-1] + x[t]`` along the second axis of ``x``, ``(B, T, 1)``.

    ``A`` is ``(B, T, 1, 1)`` and broadcasts along B and T. The initial state ``zi`` is ``(B, 1)``.
    For diagonal matrices, call ``lti.linear_recurrence`` or ``lpv.linear_recurrence`` with one row
    per state.
    """
    call = "recurrence"
    batch, steps, order = tensor(call, "x", x, axes="(B, T, 1)").shape
    if order != 1:
        arguments.refuse(call, "x", "shape (B, T, 1)", tuple(x.shape))
    tensor(call, "A", A, axes="(B, T, 1, 1)", broadcast=(batch, steps, 1, 1), like=x)
    tensor(call, "zi", zi, shape=(batch, 1), like=x)
    return linear_scan(A.squeeze(-1), x, zi, axis=1)


class _Shared:
    """The functions of both ``lti`` and ``lpv``."""

    _varying = False

    @classmethod
    def linear_recurrence(
        cls, a: Tensor, init: Tensor, x: Tensor, *, unroll_factor: int = 1
    ) -> Tensor:
        """Compute ``h[t] = a * h[t-1] + x[t]`` along the last axis of ``x``, ``(B, N)``.

        ``init`` is ``()``, ``(1,)`` or ``(B,)``, and so is the ``a`` of ``lti``. The ``a`` of
        ``lpv`` is ``(N,)`` or ``(B, N)``.
        """
        call = "linear_recurrence"
        tensor(call, "x", x, axes="(B, N)")
        tensor(call, "init", init, broadcast=x.shape[:1], like=x)
        arguments.count(call, "unroll_factor", unroll_factor)
        tensor(call, "a", a, broadcast=x.shape[: 1 + cls._varying], like=x)
        return linear_scan(a if cls._varying else a.unsqueeze(-1), x, init, axis=-1)

    @classmethod
    def state_space_recursion(
        cls, A: Tensor, zi: Tensor, x: Tensor, *, unroll_factor: int = 1, out_idx: int | None = None
    ) -> Tensor:
        """Compute ``h[n+1] = A h[n] + x[n]`` from ``h[0] = zi``.

        Returns ``h[1], ..., h[N]`` as ``(B, N, 1)``, or as ``(B, N)`` if ``out_idx`` is 0 or -1.
        The ``A`` of ``lti`` is ``(1, 1)`` or ``(B, 1, 1)``, that of ``lpv`` ``(N, 1, 1)`` or
        ``(B, N, 1, 1)``. Larger matrices raise ``ValueError`` even if they are diagonal, since
        their values are not read.
        ``lti.diag_state_space`` takes a diagonal as ``L``.
        """
        call = "state_space_recursion"
        spaces.check_signal(call, x, unroll_factor)
        batch, steps = x.shape[:2]
        gate = spaces.scalar_gates(call, A, x, cls._varying)
        if x.dim() == 3:
            arguments.check_shape(call, "x", x.shape, (batch, steps, 1), equal=True)
        tensor(call, "zi", zi, shape=(batch, 1), like=x)
        index = spaces.checked_index(call, out_idx, 1)
        h = linear_scan(gate, x.reshape(batch, steps, 1), zi, axis=1)
        return h if index is None else h.squeeze(-1)

    @classmethod
    def state_space(
        cls,
        A: Tensor,
        x: Tensor,
        B: Tensor | None = None,
        C: Tensor | None = None,
        D: Tensor | None = None,
        zi: Tensor | None = None,
        unroll_factor: int = 1,
        out_idx: int | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Compute ``h[n+1] = A h[n] + B x[n]`` and ``y[n] = C h[n] + D x[n]``.

        Returns ``y``, or ``(y, h[N])`` with a ``zi``. ``A`` is that of
        :func:`state_space_recursion`, and the other arguments are those of
        ``lti.diag_state_space``. Complex results stay complex, even with a real ``C``.

        In ``lpv``, ``B``, ``C`` and ``D`` may have shapes ``(N, ...)`` or ``(B, N, ...)``. If
        there are as many sequences as steps, a leading axis of this extent means the steps. A ``D``
        of shape ``()`` or ``(1,)`` is constant.
        """
        call = "state_space"
        spaces.check_signal(call, x, unroll_factor)
        gate = spaces.scalar_gates(call, A, x, cls._varying)
        return spaces.system(call, gate, x, B, C, D, zi, out_idx, varying=cls._varying)


class lti(_Shared):
    """``philtorch.lti``: constant coefficients."""

    @staticmethod
    def diag_state_space(
        x: Tensor,
        L: Tensor | None = None,
        V: Tensor | None = None,
        Vinv: Tensor | None = None,
        A: Tensor | None = None,
        B: Tensor | None = None,
        C: Tensor | None = None,
        D: Tensor | None = None,
        zi: Tensor | None = None,
        out_idx: int | None = None,
        unroll_factor: int = 1,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Compute ``h[n+1] = A h[n] + B x[n]`` and ``y[n] = C h[n] + D x[n]``.

        ``A`` is ``V diag(L) Vinv``. The scan computes ``Vinv h``, whose elements are independent.
        Returns ``y``, or ``(y, h[N])`` with a ``zi``. With a real ``C``, only the real part of
        ``h`` is used and returned. Otherwise ``h`` is complex if ``L`` is, and an ``L`` that is
        computed from ``A`` is complex.

        Each coefficient may have a leading axis of sequences. If a shape can be read with and
        without this axis, it is read with it. ``L`` is the diagonal of ``A`` if ``V``, ``Vinv`` and
        ``A`` are absent.

        If the call computes eigenvectors, repeated eigenvalues raise
        ``torch.linalg.LinAlgError``, as in the original. The original also raises in three cases
        that work here. Two occur if ``V``, ``Vinv`` and ``A`` are all absent: an ``L`` of shape
        ``(B, M)``, and a complex ``L`` with a real ``x``. The third is an ``A`` with an eigenvector
        that begins with 0, such as a diagonal matrix.
        """
        call = "diag_state_space"
        spaces.check_signal(call, x, unroll_factor)
        L, V, Vinv = spaces.decomposed(call, x, L, V, Vinv, A)
        real = isinstance(C, Tensor) and not C.is_complex()
        gate = L if L.dim() == 1 else L.unsqueeze(1)
        return spaces.system(call, gate, x, B, C, D, zi, out_idx, V, Vinv, real)

    @staticmethod
    def comb_filter(
        a: Tensor, delay: int, x: Tensor, zi: Tensor | None = None, **kwargs: Any
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Compute ``y[n] = x[n] - a * y[n - delay]`` along the last axis of ``x``, ``(B, N)``.

        ``zi`` has the outputs before the first step, the newest first. With ``zi`` the result is
        ``(y, zf)``, where ``zf``, ``(B, delay)``, has the last outputs in the same order.
        ``kwargs`` may contain only ``unroll_factor``.
        """
        call = "comb_filter"
        batch, steps = tensor(call, "x", x, axes="(B, N)").shape
        delay = arguments.count(call, "delay", delay)
        _check_options(call, kwargs, _COMB)
        shared_or_each(call, "a", a, x, ())
        before = None
        if zi is not None:
            before = shared_or_each(call, "zi", zi, x, (delay,)).flip(-1).expand(batch, delay)
        # Steps at a distance of `delay` form one channel of the scan. Padding adds at least one
        # step: torch.compile would make another program for a length without padding.
        rows = steps // delay + 1
        folded = pad(x, (0, rows * delay - steps)).reshape(batch, rows, delay)
        y = linear_scan(-a.reshape(-1, 1, 1), folded, before, axis=1).flatten(1)[:, :steps]
        if before is None:
            return y
        return y, torch.cat((before, y[:, max(0, steps - delay) :]), 1)[:, -delay:].flip(1)

    @staticmethod
    def lfilter(
        b: Tensor,
        a: Tensor,
        x: Tensor,
        zi: Tensor | None = None,
        form: str = "tdf2",
        backend: str = "ssm",
        **kwargs: Any,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Compute ``y[n] = b[0] x[n] + ... + b[K-1] x[n-K+1] - a[0] y[n-1]``.

        Returns ``y``, or ``(y, zf)`` with a ``zi``. The results have no axis of sequences if no
        argument has one. All forms compute the same filter. ``zi`` is the state of ``"tdf2"`` or
        ``"df2"``; ``"df1"`` and ``"tdf1"`` take none. ``backend`` and ``unroll_factor`` are checked
        and otherwise ignored.

        The backend ``"diag_ssm"`` accepts only ``"tdf2"`` and ``"df2"``. It also accepts
        ``delayed_form``, which is ignored, and ``L``, ``V`` and ``Vinv``, which must be None: they
        follow from ``a``.
        """
        call = "lfilter"
        if tensor(call, "x", x).dim() not in (1, 2):
            arguments.refuse(call, "x", "a tensor of 1 or 2 axes", f"shape {tuple(x.shape)}")
        forms = ("df2", "tdf2") if backend == "diag_ssm" else ("df2", "tdf2", "df1", "tdf1")
        backends = tuple(_BACKENDS)
        for name, choice, known in (("form", form, forms), ("backend", backend, backends)):
            if choice not in known:
                expected = "one of " + ", ".join(map(repr, known))
                arguments.refuse(call, name, expected, repr(choice))
        _check_options(call, kwargs, _BACKENDS[backend])
        if tensor(call, "a", a).shape[-1:] != (1,):
            got = f"shape {tuple(a.shape)}"
            arguments.refuse(call, "a", "one coefficient, (1,) or (B, 1)", got)
        if tensor(call, "b", b).dim() == 0 or b.shape[-1] == 0:
            arguments.refuse(call, "b", "at least one coefficient", f"shape {tuple(b.shape)}")
        rows = x if x.dim() == 2 else x.unsqueeze(0)
        batch, taps = rows.shape[0], b.shape[-1]
        order = max(1, taps - 1)
        shared_or_each(call, "a", a, rows, (1,))
        shared_or_each(call, "b", b, rows, (taps,))
        if zi is not None:
            if "1" in form:
                expected = "None with a form other than 'df2' and 'tdf2'"
                arguments.refuse(call, "zi", expected, "a tensor")
            shared_or_each(call, "zi", zi, rows, (order,))
        bare = all(value is None or value.dim() == 1 for value in (b, a, x, zi))
        dtype = common_dtype(b, a, x, zi)
        b = pad(b.to(dtype).expand(batch, taps), (0, order + 1 - taps))
        gate, rows = -a.to(dtype).expand(batch, 1), rows.to(dtype)
        state = None if zi is None else zi.to(dtype).expand(batch, order)
        y, last = (_direct if form == "df2" else _transposed)(b, gate, rows, state)
        if bare:
            y, last = y.squeeze(0), last.squeeze(0)
        return y if zi is None else (y, last)


class lpv(_Shared):
    """``philtorch.lpv``: coefficients that vary over time."""

    _varying = True


def _refuse_given(call: str, name: str, value: Any) -> None:
    if value is not None:
        arguments.refuse(call, name, "None, since 'a' determines it", type(value).__name__)


_COMB: _Options = {"unroll_factor": arguments.count}
_BACKENDS: dict[str, _Options] = {
    "ssm": _COMB,
    "diag_ssm": {
        "delayed_form": arguments.flag,
        **dict.fromkeys(("L", "V", "Vinv"), _refuse_given),
        **_COMB,
    },
}


def _check_options(call: str, given: dict[str, Any], known: _Options) -> None:
    for name, value in given.items():
        if name not in known:
            arguments.refuse(call, name, "no argument besides " + ", ".join(known), value)
        known[name](call, name, value)


def _direct(b: Tensor, gate: Tensor, x: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
    """Run the pole first. The state has the last outputs of the pole, the newest first."""
    order = b.shape[1] - 1
    before = x.new_zeros(x.shape[0], order) if state is None else state.flip(1)
    w = torch.cat((before, linear_scan(gate, x, before[:, -1], axis=-1)), 1)
    return _convolved(b, w), w[:, w.shape[1] - order :].flip(1)


def _transposed(b: Tensor, gate: Tensor, x: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
    """Run the zeros first.

    In the formula of ``y[k]``, some terms contain inputs and outputs before the first step. Element
    k of the state is their sum.
    """
    order, steps = b.shape[1] - 1, x.shape[1]
    whole = _convolved(b, pad(x, (order, order)))
    if state is not None:
        whole = whole + pad(state, (0, steps))
    first, ahead = whole[:, :steps], whole[:, steps:]
    y = linear_scan(gate, first, axis=-1)
    if steps:
        ahead = ahead + pad(gate * y[:, -1:], (0, order - 1))
    return y, ahead


#: With up to _FEW coefficients, a convolution is a sum of one product per coefficient. With more,
#: matrix products over blocks of at least _BLOCK steps are faster (forward and backward on one
#: thread of a CPU).
_FEW, _BLOCK = 4, 32


def _convolved(b: Tensor, x: Tensor) -> Tensor:
    """Convolve each row with its coefficients.

    The first result belongs to the first step that has ``taps - 1`` steps before it. The function
    does not call ``conv1d``, for which ``torch.compile`` would make a program for each length.
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
    blocks = steps // size + 1  # padding adds at least one step, as in comb_filter
    # Row i of a matrix has the coefficients, the last one first, from column i on.
    width = size + taps - 1
    matrices = pad(b.flip(1), (0, size)).repeat(1, size)[:, : size * width]
    matrices = matrices.reshape(-1, size, width)
    x = pad(x, (0, (blocks + 1) * size - x.shape[1])).reshape(-1, blocks + 1, size)
    windows = torch.cat((x[:, :-1], x[:, 1:, : taps - 1]), 2)
    return (windows @ matrices.mT).flatten(1)[:, :steps]

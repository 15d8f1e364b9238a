# SPDX-License-Identifier: BSD-3-Clause
"""Stands in for philtorch, for recurrences of order 1.

``lti`` has constant coefficients, ``lpv`` coefficients of each step. ``unroll_factor``, by which
the original chooses among algorithms with the same result, is checked and otherwise ignored.
Element types are floating point and complex types, without integers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import pad

from scanrec import _arguments as arguments
from scanrec.torch import linear_scan

from . import _philtorch_state_space as spaces
from ._torch import common_dtype, tensor

__all__ = ["lpv", "lti", "recurrence"]


def recurrence(A: torch.Tensor, zi: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Compute ``h[t] = A[t] h[t-1] + x[t]`` along the second axis of ``x``, ``(B, T, 1)``.

    ``A`` is ``(B, T, 1, 1)``, where 1 may take the place of B or T, and the initial state ``zi`` is
    ``(B, 1)``. Larger matrices, which the original takes, raise ``ValueError``. Diagonal ones are
    rows of ``lti.linear_recurrence`` and ``lpv.linear_recurrence``.
    """
    call = "recurrence"
    batch, steps, order = tensor(call, "x", x, axes="(B, T, 1)").shape
    if order != 1:
        arguments.refuse(call, "x", "states of one number, (B, T, 1)", tuple(x.shape))
    tensor(call, "A", A, axes="(B, T, 1, 1)", like=x)
    arguments.check_shape(call, "A", A.shape, (batch, steps, 1, 1))
    arguments.check_shape(call, "A", A.shape[2:], (1, 1), equal=True)
    tensor(call, "zi", zi, shape=(batch, 1), like=x)
    return linear_scan(A.squeeze(-1), x, zi, axis=1)


class _Shared:
    """The functions of both ``lti`` and ``lpv``."""

    _varying = False

    @classmethod
    def linear_recurrence(
        cls, a: torch.Tensor, init: torch.Tensor, x: torch.Tensor, *, unroll_factor: int = 1
    ) -> torch.Tensor:
        """Compute ``h[t] = a * h[t-1] + x[t]`` along the last axis of ``x``, ``(B, N)``.

        ``a`` and ``init`` are ``()``, ``(1,)`` or ``(B,)``. The ``a`` of ``lpv`` is ``(N,)`` or
        ``(B, N)``.
        """
        call = "linear_recurrence"
        tensor(call, "x", x, axes="(B, N)")
        arguments.check_shape(call, "init", tensor(call, "init", init, like=x).shape, x.shape[:1])
        spaces.check_unroll_factor(call, unroll_factor)
        axes = x.shape[: 1 + cls._varying]
        arguments.check_shape(call, "a", tensor(call, "a", a, like=x).shape, axes)
        return linear_scan(a if cls._varying else a.unsqueeze(-1), x, init, axis=-1)

    @classmethod
    def state_space_recursion(
        cls,
        A: torch.Tensor,
        zi: torch.Tensor,
        x: torch.Tensor,
        *,
        unroll_factor: int = 1,
        out_idx: int | None = None,
    ) -> torch.Tensor:
        """Compute ``h[n+1] = A h[n] + x[n]`` from ``h[0] = zi``.

        Returns ``h[1], ..., h[N]`` as ``(B, N, 1)``, or as ``(B, N)`` with an ``out_idx`` of 0.

        Parameters
        ----------
        A : (1, 1) or (B, 1, 1); for ``lpv`` (N, 1, 1) or (B, N, 1, 1)
            Larger matrices, which the original takes, raise ``ValueError``, even diagonal ones:
            only their values would tell. ``lti.diag_state_space`` takes a diagonal as ``L``.
        zi : (B, 1)
        x : (B, N) or (B, N, 1)
        """
        call = "state_space_recursion"
        batch, steps = spaces.check_signal(call, x, unroll_factor)
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
        A: torch.Tensor,
        x: torch.Tensor,
        B: torch.Tensor | None = None,
        C: torch.Tensor | None = None,
        D: torch.Tensor | None = None,
        zi: torch.Tensor | None = None,
        unroll_factor: int = 1,
        out_idx: int | None = None,
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Compute ``h[n+1] = A h[n] + B x[n]`` and ``y[n] = C h[n] + D x[n]``.

        Returns ``y``, or ``(y, h[N])`` with a ``zi``. ``A`` is that of
        :func:`state_space_recursion`, and the other arguments are those of
        ``lti.diag_state_space``. Complex results stay complex, even with a real ``C``.

        ``B``, ``C`` and ``D`` of ``lpv`` may have ``(N, ...)`` or ``(B, N, ...)`` in front; a shape
        that fits N and B means N. A ``D`` of shape ``()`` or ``(1,)`` is constant.
        """
        call = "state_space"
        spaces.check_signal(call, x, unroll_factor)
        gate = spaces.scalar_gates(call, A, x, cls._varying)
        return spaces.system(call, gate, x, B, C, D, zi, out_idx, varying=cls._varying)


class lti(_Shared):
    """``philtorch.lti``: constant coefficients."""

    @staticmethod
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
        """Compute ``h[n+1] = A h[n] + B x[n]`` and ``y[n] = C h[n] + D x[n]``.

        ``A`` is ``V diag(L) Vinv``, and the scan that of ``Vinv h``, whose states do not mix.
        Returns ``y``, or ``(y, h[N])`` with a ``zi``. Outputs are real with a real ``C``, and
        otherwise complex if ``L`` is computed from ``A``.

        Every coefficient may have an axis ``B`` in front. A shape with two meanings has that axis.

        Parameters
        ----------
        x : (B, N) or (B, N, F)
        L : (M,), the eigenvalues, or the diagonal of ``A`` if ``V``, ``Vinv`` and ``A`` are absent
        V, Vinv : (M, M), the eigenvectors and their inverse; one of them is enough
        A : (M, M), decomposed if ``V`` and ``Vinv`` are absent
        B : (M, F), or (M,) for an ``x`` without F
            If absent, an ``x`` without F enters the first state, and otherwise F is M.
        C : (M,) or (P, M)
            If absent, the outputs are the states, or the state ``out_idx``.
        D : () or (1,), (F,) or (P, F), or (P,) for an ``x`` without F
        zi : (M,) or (B, M), the state ``h[0]``, 0 if absent

        Raises
        ------
        torch.linalg.LinAlgError
            If eigenvectors are computed and eigenvalues repeat, as in the original.

        Notes
        -----
        The original raises for an ``L`` of ``(B, M)`` alone, for a complex ``L`` alone with a
        real ``x``, and for an ``A`` with an eigenvector that begins with 0, such as a diagonal
        matrix.
        """
        call = "diag_state_space"
        spaces.check_signal(call, x, unroll_factor)
        L, V, Vinv = spaces.decomposed(call, x, L, V, Vinv, A)
        real = isinstance(C, torch.Tensor) and not C.is_complex()
        gate = L if L.dim() == 1 else L.unsqueeze(1)
        return spaces.system(call, gate, x, B, C, D, zi, out_idx, V, Vinv, real)

    @staticmethod
    def comb_filter(
        a: torch.Tensor, delay: int, x: torch.Tensor, zi: torch.Tensor | None = None, **kwargs: Any
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Compute ``y[n] = x[n] - a * y[n - delay]`` along the last axis of ``x``, ``(B, N)``.

        ``a`` is ``()`` or ``(B,)``. ``zi``, ``(delay,)`` or ``(B, delay)``, has the outputs before
        the first step, the newest first. With ``zi`` the result is ``(y, zf)``, where ``zf``,
        ``(B, delay)``, has the last outputs in the same order. ``unroll_factor`` is the only other
        argument.
        """
        call = "comb_filter"
        batch, steps = tensor(call, "x", x, axes="(B, N)").shape
        delay = arguments.count(call, "delay", delay)
        spaces.check_unroll_factor(call, _options(call, kwargs, unroll_factor=1)["unroll_factor"])
        spaces.shared_or_batched(call, "a", a, x, ())
        before = None
        if zi is not None:
            spaces.shared_or_batched(call, "zi", zi, x, (delay,))
            before = zi.flip(-1).expand(batch, delay)
        # Steps at a distance of `delay` are one channel of the scan. At least one step is added at
        # every length: torch.compile makes another program for a call that adds none.
        rows = steps // delay + 1
        folded = pad(x, (0, rows * delay - steps)).unflatten(1, (rows, delay))
        y = linear_scan(-a.reshape(-1, 1, 1), folded, before, axis=1).flatten(1)[:, :steps]
        if before is None:
            return y
        return y, torch.cat((before, y[:, max(0, steps - delay) :]), 1)[:, -delay:].flip(1)

    @staticmethod
    def lfilter(
        b: torch.Tensor,
        a: torch.Tensor,
        x: torch.Tensor,
        zi: torch.Tensor | None = None,
        form: str = "tdf2",
        backend: str = "ssm",
        **kwargs: Any,
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Compute ``y[n] = b[0] x[n] + ... + b[K-1] x[n-K+1] - a[0] y[n-1]``.

        Returns ``y``, or ``(y, zf)`` with a ``zi``. The results have no axis ``B`` if no argument
        has one.

        Parameters
        ----------
        b : (K,) or (B, K)
        a : (1,) or (B, 1), without the leading 1
            More coefficients, which the original takes, raise ``ValueError``.
        x : (N,) or (B, N)
        zi : (M,) or (B, M) with ``M = max(1, K - 1)``, the state of the ``form``
        form : ``"tdf2"`` and ``"df2"``, or ``"df1"`` and ``"tdf1"``, which take no ``zi``
            All forms compute the same filter; ``"diag_ssm"`` has the first two.
        backend : ``"ssm"`` or ``"diag_ssm"``
            Checked and otherwise ignored, with its options ``unroll_factor`` and ``delayed_form``.
            ``L``, ``V`` and ``Vinv`` must be None: they follow from ``a``.
        """
        call = "lfilter"
        given = {"b": b, "a": a, "x": x} | ({} if zi is None else {"zi": zi})
        for name, value in given.items():
            tensor(call, name, value, like=x if isinstance(x, torch.Tensor) else None)
            if value.dim() not in (1, 2):
                arguments.refuse(call, name, "one axis or two", f"shape {tuple(value.shape)}")
        _check_choices(call, form, backend, kwargs)
        if a.shape[-1] != 1:
            got = f"shape {tuple(a.shape)}"
            arguments.refuse(call, "a", "one coefficient, (1,) or (B, 1)", got)
        bare = all(value.dim() == 1 for value in given.values())
        dtype = common_dtype(*given.values())
        x = x.to(dtype) if x.dim() == 2 else x.to(dtype).unsqueeze(0)
        batch, taps = x.shape[0], b.shape[-1]
        spaces.shared_or_batched(call, "a", a, x, (1,))
        if taps == 0:
            arguments.refuse(call, "b", "one coefficient or more", "none")
        spaces.shared_or_batched(call, "b", b, x, (taps,))
        order = max(1, taps - 1)
        b = pad(b.to(dtype).expand(batch, taps), (0, order + 1 - taps))
        gate = -a.to(dtype).expand(batch, 1)
        state = None
        if zi is not None:
            if "1" in form:
                expected = "None with a form other than 'df2' and 'tdf2'"
                arguments.refuse(call, "zi", expected, "a tensor")
            spaces.shared_or_batched(call, "zi", zi, x, (order,))
            state = zi.to(dtype).expand(batch, order)
        y, last = (_direct if form == "df2" else _transposed)(b, gate, x, state)
        if bare:
            y, last = y.squeeze(0), last.squeeze(0)
        return y if zi is None else (y, last)


class lpv(_Shared):
    """``philtorch.lpv``: coefficients of each step."""

    _varying = True


def _options(call, given, **known):
    """Return the options with their defaults, and refuse unknown ones."""
    for name in given:
        if name not in known:
            arguments.refuse(call, name, "no such argument: only " + ", ".join(known), given[name])
    return {**known, **given}


def _check_choices(call, form, backend, given):
    """Check the choices of lfilter among algorithms."""
    diagonal = backend == "diag_ssm"
    forms = ("df2", "tdf2") if diagonal else ("df2", "tdf2", "df1", "tdf1")
    for name, value, known in (("form", form, forms), ("backend", backend, ("ssm", "diag_ssm"))):
        if value not in known:
            arguments.refuse(call, name, "one of " + ", ".join(map(repr, known)), repr(value))
    vectors = {"L": None, "V": None, "Vinv": None} if diagonal else {}
    flags = {"delayed_form": False} if diagonal else {}
    options = _options(call, given, unroll_factor=1, **vectors, **flags)
    spaces.check_unroll_factor(call, options["unroll_factor"])
    for name in flags:
        arguments.flag(call, name, options[name])
    for name in vectors:
        if options[name] is not None:
            arguments.refuse(call, name, "None: 'a' has it", type(options[name]).__name__)


def _direct(b, gate, x, state):
    """Run the pole first: the state is its last outputs, the newest first."""
    order = b.shape[1] - 1
    before = x.new_zeros(x.shape[0], order) if state is None else state.flip(1)
    w = torch.cat((before, linear_scan(gate, x, before[:, -1], axis=-1)), 1)
    return _convolved(b, w), w[:, w.shape[1] - order :].flip(1)


def _transposed(b, gate, x, state):
    """Run the zeros first: the state is what past inputs and outputs add to the next outputs."""
    order, steps = b.shape[1] - 1, x.shape[1]
    whole = _convolved(b, pad(x, (order, order)))
    if state is not None:
        whole = whole + pad(state, (0, steps))
    first, ahead = whole[:, :steps], whole[:, steps:]
    y = linear_scan(gate, first, axis=-1)
    if steps:
        ahead = ahead + pad(gate * y[:, -1:], (0, order - 1))
    return y, ahead


#: On one thread of a CPU, forward and backward, sums of products are faster up to this many
#: coefficients. Above that, products of matrices of at least this many steps are.
_FEW, _BLOCK = 4, 32


def _convolved(b, x):
    """Convolve each row with its coefficients, at the steps that have all coefficients to the left.

    ``torch.compile`` would make a program of ``conv1d`` for each length.
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
    blocks = steps // size + 1  # adds at least one step, as comb_filter does
    # Row i of a matrix has the coefficients, the last one first, from column i on.
    width = size + taps - 1
    matrices = pad(b.flip(1), (0, size)).repeat(1, size)[:, : size * width]
    matrices = matrices.unflatten(1, (size, width))
    x = pad(x, (0, (blocks + 1) * size - x.shape[1])).unflatten(1, (blocks + 1, size))
    windows = torch.cat((x[:, :-1], x[:, 1:, : taps - 1]), 2)
    return (windows @ matrices.mT).flatten(1)[:, :steps]

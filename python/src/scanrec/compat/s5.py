# SPDX-License-Identifier: BSD-3-Clause
"""Stands in for two packages that are imported as ``s5``: s5-pytorch, and S5 for JAX.

``s5_model`` has the functions of s5-pytorch, ``ssm`` those of S5. Each class imports its framework
when one of its functions is called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from scanrec import _arguments as arguments

from ._calls import named

if TYPE_CHECKING:
    from jax import Array
    from torch import Tensor

    from scanrec._jax.types import ArrayLike

__all__ = ["s5_model", "ssm"]


def _apply_ssm(
    call: str,
    Lambda_bars: Tensor,
    B_bars: Tensor,
    C_tilde: Tensor,
    D: Tensor,
    input_sequence: Tensor,
    state: Tensor | None = None,
    bidir: bool = False,
    liquid: bool = False,
) -> tuple[Tensor, Tensor]:
    """Compute ``y[t] = Re(C_tilde x[t]) + D u[t]`` with ``x[t] = gate x[t-1] + B_bars u[t]``.

    The gate of ``apply_ssm`` is ``Lambda_bars``. The gate of ``apply_ssm_liquid`` is ``Lambda_bars
    + B_bars u[t]``, also at the first step, as in the Liquid-S4 paper (equation 8) and in the
    original's code for single steps. The original's scan multiplies an initial state by
    ``Lambda_bars`` instead.

    Returns ``(y, x[L-1])``. ``u`` is the ``input_sequence``, ``(L, H)``. ``Lambda_bars`` is
    ``(P,)`` or ``(L, P)``, and ``B_bars`` ``(P, H)`` or ``(L, P, H)``. With ``bidir``, a second set
    of P states runs backward with the gate ``Lambda_bars``. ``C_tilde`` is then ``(H, 2 P)``, and
    the returned state, ``(2 P,)``, has both sets at step L-1. ``bidir`` with a ``state`` raises
    ``ValueError``, as does the original's layer. The original's function instead adds the state to
    the backward set.
    """
    import torch

    from scanrec._op.state_space.torch import complex_product, real_of_product
    from scanrec.torch import linear_scan

    from ._torch import shared_or_each, tensor

    u = input_sequence
    steps, inputs = tensor(call, "input_sequence", u, axes="(L, H)", real=True).shape
    if not tensor(call, "Lambda_bars", Lambda_bars).is_complex():
        arguments.refuse(call, "Lambda_bars", "a complex type", Lambda_bars.dtype, TypeError)
    states = Lambda_bars.shape[-1] if Lambda_bars.dim() else 0
    shared_or_each(call, "Lambda_bars", Lambda_bars, u, (states,))
    shared_or_each(call, "B_bars", B_bars, u, (states, inputs))
    bidir = arguments.flag(call, "bidir", bidir)
    tensor(call, "C_tilde", C_tilde, shape=(inputs, states * (1 + bidir)), like=u)
    tensor(call, "D", D, broadcast=(inputs,), like=u)
    if state is not None:
        if bidir:
            arguments.refuse(call, "state", "None with 'bidir'", "a tensor")
        state = tensor(call, "state", state, shape=(states,), like=u)
    B_bars = B_bars.to(Lambda_bars.dtype)
    driven: Tensor
    if B_bars.dim() == 3:
        driven = (B_bars @ u.to(B_bars.dtype).unsqueeze(-1)).squeeze(-1)
    else:
        driven = complex_product(u.to(B_bars.real.dtype), B_bars)
    state = None if state is None else state.to(driven.dtype)
    gate = Lambda_bars + driven if liquid else Lambda_bars
    h, last = linear_scan(gate, driven, state, return_final=True)
    if bidir:
        back = linear_scan(Lambda_bars, driven, reverse=True)
        back_last = back[-1] if steps else torch.zeros_like(last)
        h, last = torch.cat((h, back), -1), torch.cat((last, back_last), -1)
    return real_of_product(h, C_tilde.to(driven.dtype)) + D * u, last


_Scan: TypeAlias = "Callable[..., tuple[Tensor, Tensor]]"


class s5_model:
    """``s5.s5_model`` of s5-pytorch."""

    apply_ssm: _Scan = staticmethod(named("apply_ssm", _apply_ssm, within="s5_model", liquid=False))
    apply_ssm_liquid: _Scan = staticmethod(
        named("apply_ssm_liquid", _apply_ssm, within="s5_model", liquid=True)
    )


class ssm:
    """``s5.ssm`` of S5."""

    @staticmethod
    def apply_ssm(
        Lambda_bar: ArrayLike,
        B_bar: ArrayLike,
        C_tilde: ArrayLike,
        input_sequence: ArrayLike,
        conj_sym: bool,
        bidirectional: bool,
    ) -> Array:
        """Compute ``x[t] = Lambda_bar x[t-1] + B_bar u[t]`` and ``y[t] = Re(C_tilde x[t])``.

        Returns ``y``, or ``2 y`` with ``conj_sym``. ``Lambda_bar`` is ``(P,)``, without an axis of
        time. ``u``, the ``input_sequence``, may have axes in front of ``(L, H)``. With
        ``bidirectional``, ``C_tilde`` has 2 P columns. The second P belong to states that run
        backward, whose outputs are added to ``y``.
        """
        import jax.numpy as jnp

        from scanrec._op.state_space.jax import complex_product, real_of_product
        from scanrec.jax import linear_scan

        from ._jax import array

        call = "apply_ssm"
        gate = array(call, "Lambda_bar", Lambda_bar, axes="(P,)")
        u = array(call, "input_sequence", input_sequence)
        if u.ndim < 2 or jnp.iscomplexobj(u):
            got = (u.dtype.name, u.shape)
            arguments.refuse(call, "input_sequence", "real numbers of shape (L, H)", got)
        states, both_ways = gate.shape[0], arguments.flag(call, "bidirectional", bidirectional)
        b = array(call, "B_bar", B_bar, shape=(states, u.shape[-1]))
        c = array(call, "C_tilde", C_tilde, axes="(H, P)")
        wanted = (c.shape[0], states * (1 + both_ways))
        arguments.check_shape(call, "C_tilde", c.shape, wanted, equal=True)
        c = 2 * c if conj_sym else c
        x: Array = complex_product(u, b)
        y: Array = real_of_product(linear_scan(gate, x), c[:, :states])
        if both_ways:
            y = y + real_of_product(linear_scan(gate, x, reverse=True), c[:, states:])
        return y

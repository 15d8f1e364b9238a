# SPDX-License-Identifier: BSD-3-Clause
"""Diagonal state spaces: matrix products, which PyTorch has, around a scan, on complex numbers seen
as pairs."""

from __future__ import annotations

from contextlib import nullcontext
from math import factorial
from typing import Literal, overload

import torch
from torch import Tensor

from ... import _arguments as arguments
from ..._torch.tensors import check_dense, marks, number_tensor
from ..._torch.types import Group, Ranges
from ..._types import Discretisation
from ..doc import documented
from ..linear.torch import linear_scan
from .spec import LRU_DOC, S5_DOC

__all__ = ["complex_product", "lru", "real_of_product", "s5"]


@overload
def s5(
    u: Tensor, lambda_: Tensor, b: Tensor, c: Tensor, d: Tensor | None = None,
    log_step: Tensor | None = None, initial_state: Tensor | complex | None = None, *,
    discretisation: Discretisation = "zero_order_hold", conjugate_symmetry: bool = True,
    intervals: Tensor | None = None, reverse: bool = False, resets: Tensor | None = None,
    return_final: Literal[False] = False, group: Group | None = None, ranges: Ranges | None = None,
) -> Tensor: ...  # fmt: skip
@overload
def s5(
    u: Tensor, lambda_: Tensor, b: Tensor, c: Tensor, d: Tensor | None = None,
    log_step: Tensor | None = None, initial_state: Tensor | complex | None = None, *,
    discretisation: Discretisation = "zero_order_hold", conjugate_symmetry: bool = True,
    intervals: Tensor | None = None, reverse: bool = False, resets: Tensor | None = None,
    return_final: Literal[True], group: Group | None = None, ranges: Ranges | None = None,
) -> tuple[Tensor, Tensor]: ...  # fmt: skip
@overload
def s5(
    u: Tensor, lambda_: Tensor, b: Tensor, c: Tensor, d: Tensor | None = None,
    log_step: Tensor | None = None, initial_state: Tensor | complex | None = None, *,
    discretisation: Discretisation = "zero_order_hold", conjugate_symmetry: bool = True,
    intervals: Tensor | None = None, reverse: bool = False, resets: Tensor | None = None,
    return_final: bool = False, group: Group | None = None, ranges: Ranges | None = None,
) -> Tensor | tuple[Tensor, Tensor]: ...  # fmt: skip
@documented(S5_DOC)
def s5(
    u: Tensor,
    lambda_: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor | None = None,
    log_step: Tensor | None = None,
    initial_state: Tensor | complex | None = None,
    *,
    discretisation: Discretisation = "zero_order_hold",
    conjugate_symmetry: bool = True,
    intervals: Tensor | None = None,
    reverse: bool = False,
    resets: Tensor | None = None,
    return_final: bool = False,
    group: Group | None = None,
    ranges: Ranges | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    arguments.check_discretisation("s5", discretisation)
    conjugate_symmetry = arguments.flag("s5", "conjugate_symmetry", conjugate_symmetry)
    reverse = arguments.flag("s5", "reverse", reverse)
    return_final = arguments.flag("s5", "return_final", return_final)
    given = {
        "u": u, "lambda_": lambda_, "b": b, "c": c, "d": d, "log_step": log_step,
        "initial_state": initial_state, "intervals": intervals,
    }  # fmt: skip
    along = {"reverse": reverse, "group": group, "ranges": ranges}
    with _telling(group):
        tensors, both_ways = _checked("s5", given, reverse)
        cuts = _over_states("s5", resets, tensors["u"])
    u, lambda_, b, c = (tensors[name] for name in ("u", "lambda_", "b", "c"))
    step = torch.exp(tensors["log_step"]) if log_step is not None else u.new_ones(())
    if intervals is None:
        gate, scale = _discretised(discretisation, lambda_, step)
        x = complex_product(u, scale[:, None] * b)
    else:
        times = tensors["intervals"].unsqueeze(-1)
        gate, scale = _discretised(discretisation, lambda_, step * times)
        x = scale * complex_product(u, b)
    edges = {"initial_state": tensors.get("initial_state"), "resets": cuts}
    twice = 2 if conjugate_symmetry else 1
    return _outputs(gate, x, u, twice * c, tensors.get("d"), edges, both_ways, return_final, along)


@overload
def lru(
    u: Tensor, nu: Tensor, theta: Tensor, b: Tensor, c: Tensor, d: Tensor | None = None,
    initial_state: Tensor | complex | None = None, *, reverse: bool = False,
    resets: Tensor | None = None, return_final: Literal[False] = False,
    group: Group | None = None, ranges: Ranges | None = None,
) -> Tensor: ...  # fmt: skip
@overload
def lru(
    u: Tensor, nu: Tensor, theta: Tensor, b: Tensor, c: Tensor, d: Tensor | None = None,
    initial_state: Tensor | complex | None = None, *, reverse: bool = False,
    resets: Tensor | None = None, return_final: Literal[True],
    group: Group | None = None, ranges: Ranges | None = None,
) -> tuple[Tensor, Tensor]: ...  # fmt: skip
@overload
def lru(
    u: Tensor, nu: Tensor, theta: Tensor, b: Tensor, c: Tensor, d: Tensor | None = None,
    initial_state: Tensor | complex | None = None, *, reverse: bool = False,
    resets: Tensor | None = None, return_final: bool = False,
    group: Group | None = None, ranges: Ranges | None = None,
) -> Tensor | tuple[Tensor, Tensor]: ...  # fmt: skip
@documented(LRU_DOC)
def lru(
    u: Tensor,
    nu: Tensor,
    theta: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor | None = None,
    initial_state: Tensor | complex | None = None,
    *,
    reverse: bool = False,
    resets: Tensor | None = None,
    return_final: bool = False,
    group: Group | None = None,
    ranges: Ranges | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    reverse = arguments.flag("lru", "reverse", reverse)
    return_final = arguments.flag("lru", "return_final", return_final)
    given = {
        "u": u, "nu": nu, "theta": theta, "b": b, "c": c, "d": d, "initial_state": initial_state,
    }  # fmt: skip
    along = {"reverse": reverse, "group": group, "ranges": ranges}
    with _telling(group):
        tensors, both_ways = _checked("lru", given, reverse)
        cuts = _over_states("lru", resets, tensors["u"])
    decay = torch.exp(tensors["nu"].clamp_max(_LAST_NU))
    gate = torch.exp(torch.complex(-decay, torch.exp(tensors["theta"])))
    scale = _root(-torch.expm1(-2 * decay))
    x = complex_product(tensors["u"], scale[:, None] * tensors["b"])
    edges = {"initial_state": tensors.get("initial_state"), "resets": cuts}
    u, c, d = tensors["u"], tensors["c"], tensors.get("d")
    return _outputs(gate, x, u, c, d, edges, both_ways, return_final, along)


_COMPLEX = ("lambda_", "b", "c", "initial_state")

#: From here on gates are 0 and scales 1, in every type: exp(-exp(7)) is.
_LAST_NU = 7.0


def _checked(call, given, reverse):
    """Those tensors that there are, of one precision, and whether the system runs both ways."""
    arguments.check_given(call, given)
    tensors = {name: x for name, x in given.items() if x is not None}
    number = tensors.get("initial_state")
    if isinstance(number, (int, float, complex)):
        tensors["initial_state"] = tensors["u"].new_empty(())  # until its type is known
    else:
        number = None
    for name, x in tensors.items():
        check_dense(call, name, x)
        if x.device != tensors["u"].device:
            arguments.refuse(call, name, f"a tensor on {tensors['u'].device}", x.device)
    both_ways = arguments.check_state_space(
        call,
        {name: tuple(x.shape) for name, x in tensors.items()},
        {name: str(x.dtype).removeprefix("torch.") for name, x in tensors.items()},
        reverse,
    )
    wide = (torch.float64, torch.complex128)
    double = any(x.dtype in wide for n, x in tensors.items() if n != "initial_state")
    real, pair = wide if double else (torch.float32, torch.complex64)
    if number is not None:
        tensors["initial_state"] = number_tensor(
            call, "initial_state", number, pair, tensors["u"].device
        )
    return {n: x.to(pair if n in _COMPLEX else real) for n, x in tensors.items()}, both_ways


def _telling(group):
    """Where time is split, the other processes learn of wrong arguments."""
    if group is None:
        return nullcontext()
    from ..linear.torch_split_time import telling

    return telling(group)


def _pairs(x):
    """(..., n) complex as (..., 2 n) real."""
    return torch.view_as_real(x.resolve_conj()).flatten(-2)


def complex_product(u, matrix):
    """u (..., H) times a complex matrix (P, H)."""
    return torch.view_as_complex((u @ _pairs(matrix.T)).unflatten(-1, (-1, 2)))


def _outputs(gate, x, u, c, d, edges, both_ways, return_final, along):
    given = {"resets": edges["resets"], **along}
    state = linear_scan(gate, x, edges["initial_state"], return_final=return_final, **given)
    state, final = state if return_final else (state, None)
    states = c.shape[1] // 2 if both_ways else c.shape[1]
    y = real_of_product(state, c[:, :states])
    if both_ways:
        state = linear_scan(gate, x, **{**given, "reverse": True})
        y = y + real_of_product(state, c[:, states:])
    if d is not None:
        y = y + d * u
    return (y, final) if return_final else y


def _over_states(call, resets, u):
    resets = marks(call, resets, tuple(u.shape[:-1]), u.dim() - 2, u.device)
    return None if resets is None else resets.unsqueeze(-1)


def real_of_product(x, c):
    """Re(x c^T). Not by c.conj(), whose gradient is a lazily conjugated one: Adam takes none."""
    c = c.resolve_conj()
    return _pairs(x) @ torch.stack([c.real, -c.imag], -1).flatten(-2).T


def _discretised(method, lambda_, step):
    """Returns the gate and the scale of the input of a discretised system."""
    z = lambda_ * step
    if method == "bilinear":
        factor = 1 / (1 - z / 2)
        return (1 + z / 2) * factor, step * factor
    return torch.exp(z), step * _phi(z)


def _root(x):
    """The square root with slope 0 at 0. A scale that underflows to 0 stays 0."""
    is_zero = x == 0
    return torch.where(is_zero, 0, torch.sqrt(torch.where(is_zero, 1, x)))


def _phi(z):
    """(exp(z) - 1) / z, to a few roundings, and so its derivatives: near 0 by its series."""
    near = z.real**2 + z.imag**2 < 0.25
    small = torch.where(near, z, torch.zeros_like(z))
    series = torch.zeros_like(z)
    for k in reversed(range(15)):
        series = series * small + 1 / factorial(k + 1)
    large = torch.where(near, torch.ones_like(z), z)
    half = torch.sin(large.imag / 2)
    grows = torch.expm1(large.real)
    minus_one = torch.complex(
        grows * torch.cos(large.imag) - 2 * half**2, (grows + 1) * torch.sin(large.imag)
    )
    return torch.where(near, series, minus_one / large)

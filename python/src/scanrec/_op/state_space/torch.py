# SPDX-License-Identifier: BSD-3-Clause
"""``s5`` and ``lru`` in PyTorch: matrix products around a linear scan. Products use pairs of real
numbers instead of complex numbers."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, overload

import torch
from torch import Tensor

from ... import _arguments as arguments
from ..._torch.tensors import check_dense, number_tensor, reset_mask_of
from ..._torch.types import Group, Ranges
from ..._types import Discretisation
from ..doc import documented
from ..linear.torch import linear_scan
from .spec import LRU_DOC, S5_DOC
from .system import System

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
    given = {
        "u": u, "lambda_": lambda_, "b": b, "c": c, "d": d, "log_step": log_step,
        "initial_state": initial_state, "intervals": intervals,
    }  # fmt: skip
    system = _System("s5", given, resets, return_final, reverse, group=group, ranges=ranges)
    return system.s5(discretisation, conjugate_symmetry)


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
    given = {
        "u": u, "nu": nu, "theta": theta, "b": b, "c": c, "d": d, "initial_state": initial_state,
    }  # fmt: skip
    system = _System("lru", given, resets, return_final, reverse, group=group, ranges=ranges)
    return system.lru()


def _pairs(x: Tensor) -> Tensor:
    """View (..., n) complex numbers as (..., 2 n) real numbers."""
    return torch.view_as_real(x.resolve_conj()).flatten(-2)


def complex_product(u: Tensor, matrix: Tensor) -> Tensor:
    """u m^T for u (..., H) and a complex matrix m (P, H), by a product of real matrices."""
    return torch.view_as_complex(torch.unflatten(u @ _pairs(matrix.T), -1, (-1, 2)))


def real_of_product(x: Tensor, c: Tensor) -> Tensor:
    """The real part of x c^T. The code avoids ``c.conj()``, which would make the gradient of ``c``
    a lazily conjugated view. Adam does not accept such a view."""
    c = c.resolve_conj()
    return _pairs(x) @ torch.stack([c.real, -c.imag], -1).flatten(-2).T


class _System(System[Tensor]):
    xp = torch
    complex = staticmethod(torch.complex)
    complex_product = staticmethod(complex_product)
    real_of_product = staticmethod(real_of_product)
    scan = staticmethod(linear_scan)

    def array(self, name: str, x: Any, u: Any) -> Any:
        if name == "initial_state" and isinstance(x, (int, float, complex)):
            return x
        check_dense(self.call, name, x)
        if x.device != u.device:
            arguments.refuse(self.call, name, f"a tensor on {u.device}", x.device)
        self.device = x.device
        return x

    def converted(self, x: Any, dtype: str) -> Tensor:
        of = getattr(torch, dtype)
        if isinstance(x, Tensor):
            return x.to(of)
        return number_tensor(self.call, "initial_state", x, of, self.device)

    def reset_mask(self, resets: Any, u: Tensor) -> Any:
        return reset_mask_of(self.call, resets, tuple(u.shape[:-1]), u.dim() - 2, u.device)

    def telling(self, group: Group | None = None, **_: Any) -> AbstractContextManager[Any]:
        if group is None:
            return nullcontext()
        from ..linear.torch_split_time import telling

        return telling(group)

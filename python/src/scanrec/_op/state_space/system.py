# SPDX-License-Identifier: BSD-3-Clause
"""The computation of ``s5`` and ``lru``, shared by all frameworks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from math import factorial
from typing import Any, Generic, TypeVar

from ... import _arguments as arguments

__all__ = ["System"]

Array = TypeVar("Array")

_COMPLEX = ("lambda_", "b", "c", "initial_state")

#: Upper limit of nu. Above it gates are 0 and scales 1 in every type: exp(-exp(7)) underflows.
_LAST_NU = 7.0


class System(ABC, Generic[Array]):
    """One call of ``s5`` or ``lru``. ``given`` has its arrays by name, None for absent ones.
    ``split`` has the arguments of the scan that describe how time is split."""

    xp: Any  #: the module of elementwise functions
    complex: Callable[[Any, Any], Any]  #: makes complex numbers from real and imaginary parts
    complex_product: Callable[[Any, Any], Any]
    real_of_product: Callable[[Any, Any], Any]
    scan: Callable[..., Any]  #: the linear scan

    @abstractmethod
    def array(self, name: str, x: Any, u: Any) -> Any:
        """Return the value as an array, or as a number that ``converted`` turns into an array."""

    @abstractmethod
    def converted(self, x: Any, dtype: str) -> Any: ...

    @abstractmethod
    def reset_mask(self, resets: Any, u: Any) -> Any:
        """The reset mask with the axes of u except the last."""

    def telling(self, **split: Any) -> AbstractContextManager[Any]:
        """A context that reports errors in the arguments to other processes, if time is split."""
        return nullcontext()

    def __init__(
        self, call: str, given: Mapping[str, Any], resets: Any, return_final: bool, reverse: bool,
        **split: Any,
    ) -> None:  # fmt: skip
        self.call = call
        reverse = arguments.flag(call, "reverse", reverse)
        self.return_final = arguments.flag(call, "return_final", return_final)
        with self.telling(**split):
            arguments.check_given(call, given)
            arrays = {n: self.array(n, x, given["u"]) for n, x in given.items() if x is not None}
            shapes = {name: tuple(getattr(x, "shape", ())) for name, x in arrays.items()}
            dtypes = {
                name: str(x.dtype).removeprefix("torch.")
                for name, x in arrays.items()
                if name != "initial_state"
            }
            self.both_ways = arguments.check_state_space(call, shapes, dtypes, reverse)
            is_double = not {"float64", "complex128"}.isdisjoint(dtypes.values())
            real, self.pair = ("float64", "complex128") if is_double else ("float32", "complex64")
            self.arrays: dict[str, Any] = {
                name: self.converted(x, self.pair if name in _COMPLEX else real)
                for name, x in arrays.items()
            }
            reset_mask = (
                None if resets is None else self.reset_mask(resets, self.arrays["u"])[..., None]
            )
        self.along = {"reverse": reverse, "resets": reset_mask, **split}

    def s5(self, discretisation: str, conjugate_symmetry: bool) -> Array | tuple[Array, Array]:
        arguments.check_discretisation("s5", discretisation)
        in_pairs = arguments.flag("s5", "conjugate_symmetry", conjugate_symmetry)
        u, lambda_, b, c = (self.arrays[name] for name in ("u", "lambda_", "b", "c"))
        step = self.xp.exp(self.arrays.get("log_step", self.xp.zeros_like(lambda_.real)))
        if "intervals" in self.arrays:
            step = _of_rank(step, u.ndim) * _of_rank(self.arrays["intervals"][..., None], u.ndim)
            gate, scale = self._discretised(discretisation, _of_rank(lambda_, u.ndim), step)
            x = scale * self.complex_product(u, b)
        else:
            gate, scale = self._discretised(discretisation, lambda_, step)
            x = self.complex_product(u, scale[:, None] * b)
        return self._outputs(gate, x, 2 * c if in_pairs else c)

    def lru(self) -> Array | tuple[Array, Array]:
        u, nu, theta, b, c = (self.arrays[name] for name in ("u", "nu", "theta", "b", "c"))
        decay = self.xp.exp(self.xp.clip(nu, max=_LAST_NU))
        gate = self.xp.exp(self.complex(-decay, self.xp.exp(theta)))
        square = -self.xp.expm1(-2 * decay)
        # Define the slope of the square root as 0 at 0, so that its gradient is not NaN.
        is_zero = square == 0
        root = self.xp.sqrt(self.xp.where(is_zero, 1, square))
        scale = self.converted(self.xp.where(is_zero, 0, root), self.pair)
        return self._outputs(gate, self.complex_product(u, scale[:, None] * b), c)

    def _outputs(self, gate: Any, x: Any, c: Any) -> Array | tuple[Array, Array]:
        """The results of the call, given the gate and the input of the scan, and the matrix C."""
        initial_state = self.arrays.get("initial_state")
        scanned = self.scan(gate, x, initial_state, return_final=self.return_final, **self.along)
        state = scanned[0] if self.return_final else scanned
        states = c.shape[1] // 2 if self.both_ways else c.shape[1]
        y = self.real_of_product(state, c[:, :states])
        if self.both_ways:
            state = self.scan(gate, x, **{**self.along, "reverse": True})
            y = y + self.real_of_product(state, c[:, states:])
        if "d" in self.arrays:
            y = y + _of_rank(self.arrays["d"], y.ndim) * self.arrays["u"]
        return (y, scanned[1]) if self.return_final else y

    def _discretised(self, method: str, lambda_: Any, step: Any) -> tuple[Any, Any]:
        """Return the gate and the scale of the input of a discretised system."""
        step = self.converted(step, self.pair)
        z = lambda_ * step
        if method == "bilinear":
            factor = 1 / (1 - z / 2)
            return (1 + z / 2) * factor, step * factor
        return self.xp.exp(z), step * self.phi(z)

    @classmethod
    def phi(cls, z: Any) -> Any:
        """(exp(z) - 1) / z, computed by its series near 0. The errors of the value and of its
        derivatives are a few roundings."""
        xp = cls.xp
        near = z.real**2 + z.imag**2 < 0.25
        small = xp.where(near, z, 0)
        series = xp.zeros_like(z)
        for k in reversed(range(15)):
            series = series * small + 1 / factorial(k + 1)
        large = xp.where(near, 1, z)
        half = xp.sin(large.imag / 2)
        grows = xp.expm1(large.real)
        real, imag = grows * xp.cos(large.imag) - 2 * half**2, (grows + 1) * xp.sin(large.imag)
        return xp.where(near, series, cls.complex(real, imag) / large)


def _of_rank(x: Any, rank: int) -> Any:
    """Return the array with enough leading axes of extent 1 to have at least this rank."""
    return x[(None,) * (rank - x.ndim)] if x.ndim < rank else x

# SPDX-License-Identifier: BSD-3-Clause
"""Checks of calls on NumPy arrays, and plans that later calls with the same layouts reuse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from ... import _arguments as arguments
from ... import _native as native
from ..plans import Plans
from ..spec import is_boundary
from .spec import LOG_GATE

__all__ = ["Checked", "layout", "run_again"]

Array = NDArray[Any]
DType = np.dtype[Any]
Key = tuple[Any, ...]

# ---- plans ---------------------------------------------------------------------------------------


class _Plan(NamedTuple):
    """A checked call without its arrays."""

    prepared: native.Prepared
    #: (index of a value, type to convert it to or None to read it in place)
    operands: Sequence[tuple[int, DType | None]]
    results: list[tuple[tuple[int, ...], DType]]

    def run(self, values: Sequence[Any]) -> list[Array]:
        """Run the call on values with the layouts of the plan, and return the results."""
        arrays = [
            values[index] if dtype is None else _ready(values[index], dtype)
            for index, dtype in self.operands
        ]
        results = [np.empty(shape, dtype) for shape, dtype in self.results]
        self.prepared.run(_addresses([*arrays, *results]))
        return results


_plans: Plans[_Plan] = Plans()


def layout(value: Any) -> Any:
    """Return the part of a plan's key for an argument. A value whose type is not in ``_KINDS`` gets
    a key that equals no other key."""
    if value is None:
        return None
    kind = type(value)
    if kind is np.ndarray:
        return value.dtype, value.shape, value.strides, value.flags.aligned
    return kind if kind in _KINDS else object()


_KINDS = frozenset((
    *(type(None), bool, int, float, complex, np.ndarray),
    *(np.float16, np.float32, np.float64, np.complex64, np.complex128),
))  # fmt: skip


def run_again(key: Key, values: Sequence[Any]) -> list[Array] | None:
    """Run a call if there is a plan for it, and return its results. Otherwise return None."""
    try:
        plan = _plans.get(key)
    except TypeError:  # an axis or a name that cannot be hashed
        return None
    try:
        return plan.run(values) if plan is not None else None
    except OverflowError:  # a number beyond the range of all types: the checks raise an error
        return None


def _addresses_by_interface(arrays: list[Array]) -> list[int]:
    """The addresses of the first elements of arrays."""
    return [x.__array_interface__["data"][0] for x in arrays]


try:  # the same function in C, if the package was built with the headers of Python
    from ..._arrays import addresses as _addresses
except ImportError:
    _addresses = _addresses_by_interface


# ---- checks --------------------------------------------------------------------------------------


class Checked:
    """The arrays of one call, checked one by one.

    Parameters
    ----------
    call:
        The native call.
    full:
        The name of the operand that has the shape of the sequences.
    values:
        The values of the arrays that the call reads, by name. Those of absent arrays are None.
    axis, reverse, logarithms:
        The options of the call.
    """

    def __init__(
        self,
        call: str,
        full: str,
        values: Mapping[str, Any],
        axis: SupportsIndex,
        reverse: bool,
        logarithms: int = 0,
    ):
        self.call, self.full, self.values = call, full, values
        self.reverse, self.no_conjugate, self.more_resets = reverse, False, False
        self.logarithms = logarithms
        first, resets = _asarray(call, full, values[full]), values["resets"]
        self.shape = first.shape
        if first.ndim == 0:
            arguments.refuse(call, full, "an array with a time axis", "a number")
        self.axis = arguments.time_axis(call, axis, first.shape)
        self.boundaries = arguments.boundary_shape(self.shape, self.axis)
        self.dtype = _promoted(call, full, first, values)
        if logarithms:
            argument = "gate" if logarithms & LOG_GATE else "input"
            arguments.check_real(call, argument, _name(self.dtype))
        self.boundary_dtype = np.dtype(arguments.BOUNDARY_DTYPES[_name(self.dtype)])
        self.strides: dict[str, Sequence[int]] = {}  # of every array, in elements
        self.given: dict[str, Array] = {}  # the arrays that are read
        self.results: list[tuple[tuple[int, ...], DType]] = []
        if resets is not None:
            mask = arguments.array_of(call, "resets", resets)
            if mask.dtype != np.bool_:
                arguments.refuse(call, "resets", "booleans", mask.dtype, TypeError)
            shape = arguments.check_resets(call, mask.shape, self.shape, self.axis)
            self.more_resets = shape != self.shape
            self._put("resets", mask)

    def read(self, *names: str, used: bool = True) -> None:
        """Check the operands that are present. If ``used``, also pass them to the call."""
        for name in names:
            if self.values[name] is None:
                continue
            shape, dtype = self._kind(name)
            array = _asarray(self.call, name, self.values[name])
            arguments.check_shape(self.call, name, array.shape, shape, equal=name == self.full)
            if used:
                self._put(name, _ready(array, dtype))

    def new(self, *names: str) -> None:
        """Add results. The gradient of the gate has the shape of the gate."""
        for name in names:
            shape, dtype = self._kind(name)
            if name == "gate_grad":
                shape = self.given["gate"].shape
            self._spread(name, arguments.contiguous(shape))
            self.results.append((shape, dtype))

    def _kind(self, name: str) -> tuple[tuple[int, ...], DType]:
        """Return the shape and type of a sequence, or of a boundary (initial or final) state."""
        return (
            (self.boundaries, self.boundary_dtype)
            if is_boundary(name)
            else (self.shape, self.dtype)
        )

    def _put(self, name: str, array: Array) -> None:
        # NumPy's strides along axes of extent 1 are arbitrary, so replace them by 0.
        size = array.itemsize
        strides = [s // size if n != 1 else 0 for s, n in zip(array.strides, array.shape)]
        self._spread(name, strides)
        self.given[name] = array

    def _spread(self, name: str, strides: list[int]) -> None:
        """Extend strides to all axes: 0 along new leading axes and, for boundary states, along
        time."""
        boundary = is_boundary(name)
        strides = [0] * (len(self.shape) - boundary - len(strides)) + strides
        if boundary:
            strides.insert(self.axis, 0)
        self.strides[name] = strides

    def run(self, key: Key, values: Sequence[Any]) -> list[Array]:
        """Run the call and return its results. Keep the plan if the type of each value is in
        ``_KINDS``."""
        prepared = native.Prepared(
            self.call,
            self.strides,
            dtype=_name(self.dtype),
            shape=self.shape,
            axis=self.axis,
            reverse=self.reverse,
            no_conjugate=self.no_conjugate,
            more_resets=self.more_resets,
            logarithms=self.logarithms,
        )
        if all(type(x) in _KINDS for x in values):
            operands, names = [], list(self.values)
            for name, array in self.given.items():
                index = names.index(name)
                operands.append((index, None if values[index] is array else array.dtype))
            with suppress(TypeError):  # an axis that cannot be hashed
                _plans.keep(key, _Plan(prepared, operands, self.results))
        as_they_are = [(i, None) for i in range(len(self.given))]
        return _Plan(prepared, as_they_are, self.results).run(list(self.given.values()))


@lru_cache(maxsize=64)
def _name(dtype: DType) -> str:
    """Return the name of a type. It is cached, since NumPy composes it at every access."""
    return str(dtype.name)


def _asarray(call: str, name: str, value: Any) -> Array:
    if arguments.is_number(value):
        arguments.check_number(call, name, value)
        return np.asarray(value)
    array = arguments.array_of(call, name, value)
    arguments.check_dtype(call, name, _name(array.dtype))
    return array


def _promoted(call: str, name: str, full: Array, values: Mapping[str, Any]) -> DType:
    """Return the element type of a call. Python's real numbers do not affect it. Nor do float32
    boundary states if all other arrays have 16 bits."""
    arguments.check_dtype(call, name, _name(full.dtype))
    dtype: DType = full.dtype.newbyteorder("=")
    # Boundary states come last, when it is known whether all other arrays have 16 bits.
    for of, value in sorted(values.items(), key=lambda item: is_boundary(item[0])):
        if of in (name, "resets"):
            continue
        if value is None or arguments.is_number(value):
            if isinstance(value, complex):
                dtype = np.promote_types(dtype, np.complex64)
            continue
        found = arguments.array_of(call, of, value).dtype.newbyteorder("=")
        if _name(found) not in arguments.BOUNDARY_DTYPES:
            continue  # a later check raises an error that names the array
        if is_boundary(of) and found == arguments.BOUNDARY_DTYPES[_name(dtype)]:
            continue
        try:
            dtype = np.promote_types(dtype, found)
        except TypeError:  # bfloat16 and float16 promote to float32, as in JAX and PyTorch
            dtype = np.dtype(np.float32)
    return dtype


def _ready(value: Any, dtype: DType) -> Array:
    """Return an array that the library can read. An array is copied only if it has another type or
    byte order, is not aligned, or has strides that are not whole elements. Plans rely on this:
    whether an array is copied, and the strides of the copy, depend only on its layout."""
    array = np.asarray(value, dtype)
    whole = all(s % array.itemsize == 0 for s, n in zip(array.strides, array.shape) if n > 1)
    return array if array.flags.aligned and whole else array.copy()

# SPDX-License-Identifier: BSD-3-Clause
"""Calls on arrays of NumPy: what they have in common is checked, and kept for calls on others that
are laid out alike."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from . import _arguments as arguments
from . import _native as native

__all__ = ["Problem", "layout", "run_again"]

# ---- calls on arrays of one kind, again and again ------------------------------------------------

# Of a small scan most of the time would go into checks, and most of that into finding out what
# arrays are. All checks are of types, shapes, strides and options, so what they come to is kept
# under these: a plan, which is never changed.
_plans: dict[tuple, _Plan] = {}
_MOST_PLANS = 256


class _Plan(NamedTuple):
    """What is left of a call that has been checked."""

    prepared: native.Prepared
    operands: list[tuple[int, np.dtype | None]]  #: places among the values; types of copies
    results: list[tuple[tuple[int, ...], np.dtype]]

    def run(self, values: Sequence[Any]) -> list[np.ndarray]:
        """The results of the call on these values, which are laid out as the plan says."""
        arrays = [
            values[place] if dtype is None else _ready(values[place], dtype)
            for place, dtype in self.operands
        ]
        results = [np.empty(shape, dtype) for shape, dtype in self.results]
        self.prepared.run([*map(_address, arrays), *map(_address, results)])
        return results


def layout(value: Any) -> Any:
    """What checks see of an argument, for a key; of what is neither an array nor a number something
    that no key has."""
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


def run_again(key: tuple, values: Sequence[Any]) -> list[np.ndarray] | None:
    """The results of a call that was checked before, else None."""
    try:
        plan = _plans.get(key)
    except TypeError:  # something in it that is no axis, or no name
        return None
    try:
        return plan.run(values) if plan is not None else None
    except OverflowError:  # a number that no type holds: the checks name it
        return None


def _keep(key: tuple, plan: _Plan) -> None:
    if len(_plans) >= _MOST_PLANS:
        _plans.clear()
    try:
        _plans[key] = plan
    except TypeError:  # an axis without a hash
        pass


def _address_by_interface(x: np.ndarray) -> int:
    return x.__array_interface__["data"][0]


def _address_by_struct(x: np.ndarray) -> int:
    """By what NumPy's C interface, PyArray_DATA, reads: the word behind what all objects begin
    with. All of ``__array_interface__`` takes longer to make than a small scan takes."""
    return _word_at(id(x) + _HEADER).value or 0


_word_at, _HEADER = ctypes.c_void_p.from_address, object.__basicsize__


def _choose_address():
    """How to find where an array begins."""
    if sys.implementation.name != "cpython":
        return _address_by_interface
    whole = np.arange(12.0).reshape(3, 4)
    for x in (whole, whole[::-1, 1:], whole[1], np.array(2.0), np.zeros(3, bool)):
        if _address_by_struct(x) != _address_by_interface(x):
            return _address_by_interface
    return _address_by_struct


_address = _choose_address()


# ---- calls on arrays not seen before -------------------------------------------------------------


#: What a gated scan calls the arrays of a linear scan.
_GATED = {
    **{"gate": "forget_gate", "input": "candidate", "state": "output", "state_grad": "output_grad"},
    **{"gate_grad": "forget_gate_grad", "input_grad": "candidate_grad"},
}


class Problem:
    """The arrays of one call, checked one by one, and what they have in common. Values are those
    that a call may read, in the order of its struct; `name` is the one that has the full shape, and
    `cell` says what is given by logarithms."""

    def __init__(self, call, name, values, axis, reverse, cell=0):
        self.call, self.reverse, self.plain, self.more_resets = call, reverse, False, False
        self.cell, self.names = cell, native.OPERANDS[call]
        if len(values) > len(self.names):
            self.names = (*self.names, "input")
        self.values = dict(zip(self.names, values))
        full, resets = _asarray(call, name, self.values[name]), self.values["resets"]
        self.shape = full.shape
        if full.ndim == 0:
            arguments.refuse(call, name, "an array with an axis of time", "a number")
        self.axis = arguments.time_axis(call, axis, full.shape)
        self.edges = arguments.edge_shape(self.shape, self.axis)
        self.dtype = _promoted(call, name, full, self.values)
        if cell:
            arguments.check_real(
                call, "gate" if cell & native.LOG_GATE else "input", _name(self.dtype)
            )
        self.edge_dtype = np.dtype(arguments.EDGE_DTYPES[_name(self.dtype)])
        self.strides: dict[str, Sequence[int]] = {}  # of every array, in elements
        self.given: dict[str, np.ndarray] = {}  # those that are read
        self.results: list[tuple[tuple[int, ...], np.dtype]] = []
        if resets is not None:
            marks = arguments.array_of(call, "resets", resets)
            if marks.dtype != np.bool_:
                arguments.refuse(call, "resets", "booleans", marks.dtype, TypeError)
            shape = arguments.check_resets(call, marks.shape, self.shape, self.axis)
            self.more_resets = shape != self.shape
            self._put("resets", marks)

    def read(self, name, *, equal=False, used=True):
        """An array that is read, if there is one and it is used."""
        if self.values[name] is None:
            return
        shape, dtype = self._kind(name)
        array = _asarray(self.call, name, self.values[name])
        arguments.check_shape(self.call, name, array.shape, shape, equal=equal)
        if used:
            self._put(name, _ready(array, dtype))

    def new(self, name, *, like=None):
        """An array to write, in the shape of all of its kind, or of another array."""
        shape, dtype = self._kind(name)
        if like is not None:
            shape = self.given[like].shape
        self._spread(name, arguments.contiguous(shape))
        self.results.append((shape, dtype))

    def _kind(self, name):
        """The shape and the type of sequences, or of states at the edges."""
        edge = name in native.EDGES
        return (self.edges, self.edge_dtype) if edge else (self.shape, self.dtype)

    def _put(self, name, array):
        # The length of a stride along an axis of one element says nothing.
        size = array.itemsize
        strides = [s // size if n != 1 else 0 for s, n in zip(array.strides, array.shape)]
        self._spread(name, strides)
        self.given[name] = array

    def _spread(self, name, strides):
        """Strides over all axes: 0 along those that are added in front, and time at an edge."""
        edge = name in native.EDGES
        strides = [0] * (len(self.shape) - edge - len(strides)) + strides
        if edge:
            strides.insert(self.axis, 0)
        self.strides[name] = strides

    def run(self, key: tuple, values: Sequence[Any]) -> list[np.ndarray]:
        """The results. Of calls on arrays and numbers the plan is kept."""
        call, strides = self.call, self.strides
        if self.cell:
            adjoint = call == "linear_scan_vjp"  # which reads the states
            call = "gated_scan_vjp" if adjoint else "gated_scan"
            strides = {
                of if adjoint and of == "state" else _GATED.get(of, of): x
                for of, x in strides.items()
            }
        prepared = native.Prepared(
            call,
            strides,
            dtype=_name(self.dtype),
            shape=self.shape,
            axis=self.axis,
            reverse=self.reverse,
            plain=self.plain,
            more_resets=self.more_resets,
            cell=self.cell,
        )
        if all(type(x) in _KINDS for x in values):
            operands = []
            for name, array in self.given.items():
                place = self.names.index(name)
                operands.append((place, None if values[place] is array else array.dtype))
            _keep(key, _Plan(prepared, operands, self.results))
        as_they_are = [(i, None) for i in range(len(self.given))]
        return _Plan(prepared, as_they_are, self.results).run(list(self.given.values()))


@lru_cache(maxsize=64)
def _name(dtype: np.dtype) -> str:
    """Its name, which NumPy puts together anew whenever it is asked."""
    return dtype.name


def _asarray(call: str, name: str, value: Any) -> np.ndarray:
    if arguments.is_number(value):
        arguments.check_number(call, name, value)
        return np.asarray(value)
    array = arguments.array_of(call, name, value)
    arguments.check_dtype(call, name, _name(array.dtype))
    return array


def _promoted(call: str, name: str, full: np.ndarray, values: Mapping[str, Any]) -> np.dtype:
    """The element type of a call, of all arrays. Python's real numbers do not count, nor do edges
    that are float32 because the rest is of 16 bits."""
    arguments.check_dtype(call, name, _name(full.dtype))
    dtype = full.dtype.newbyteorder("=")
    # States at the edges last: by then it is known whether the rest is of 16 bits.
    for of, value in sorted(values.items(), key=lambda item: item[0] in native.EDGES):
        if of in (name, "resets"):
            continue
        if value is None or arguments.is_number(value):
            if isinstance(value, complex):
                dtype = np.promote_types(dtype, np.complex64)
            continue
        found = arguments.array_of(call, of, value).dtype.newbyteorder("=")
        if _name(found) not in arguments.EDGE_DTYPES:
            continue  # refused later, by its name
        if of in native.EDGES and found == arguments.EDGE_DTYPES[_name(dtype)]:
            continue
        try:
            dtype = np.promote_types(dtype, found)
        except TypeError:  # bfloat16 beside float16, which are float32 in JAX and PyTorch
            dtype = np.dtype(np.float32)
    return dtype


def _ready(value: Any, dtype: np.dtype) -> np.ndarray:
    """An array or a number as the library can read it: copied only for its type, byte order, or
    places between elements. Strides of a copy follow from those of the array: plans rely on it."""
    array = np.asarray(value, dtype)
    whole = all(s % array.itemsize == 0 for s, n in zip(array.strides, array.shape) if n > 1)
    return array if array.flags.aligned and whole else array.copy()

# SPDX-License-Identifier: BSD-3-Clause
"""linear_scan and its derivatives on NumPy arrays of any strides, in place."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from . import _arguments as arguments
from . import _native as native

__all__ = ["Gradients", "linear_scan", "linear_scan_jvp", "linear_scan_vjp"]


class Gradients(NamedTuple):
    """Gradients of :func:`linear_scan_vjp`; None where not asked for."""

    gate: np.ndarray | None
    input: np.ndarray | None
    initial_state: np.ndarray | None


def linear_scan(
    gate: Any,
    input: Any,
    initial_state: Any = None,
    *,
    axis: int = -2,
    reverse: bool = False,
    resets: Any = None,
    log_gate: bool = False,
    log_input: bool = False,
    return_final: bool = False,
) -> Any:
    """``state[t] = gate[t] * state[t-1] + input[t]`` along an axis.

    Parameters
    ----------
    gate:
        Any shape that broadcasts to that of ``input``: ``(C,)`` for a constant, ``(B, T, 1)`` for
        one that channels share. It is not materialised.
    input:
        ``(..., T, C)`` by default. Its shape is the result's. float16, float32, float64, complex64,
        complex128, or bfloat16 of ml_dtypes; arrays of several types are promoted as NumPy does.
    initial_state:
        The state before the first step: any shape that broadcasts to that of ``input`` without
        the axis of time. None is 0.
    axis:
        The axis of time in ``input``.
    reverse:
        ``state[t] = gate[t] * state[t+1] + input[t]``; ``initial_state`` is then the one after the
        last step. Nothing is flipped.
    resets:
        Booleans that broadcast to ``input``, though not along time. Where one is set a sequence
        starts: the link between steps t-1 and t is cut, in either direction. There may be one step
        more of them, whose mark is behind the last step: it cuts a reverse scan from
        ``initial_state``. A chunk of a stream takes the marks of its steps and the next one.
    log_gate, log_input:
        ``gate``, or ``input``, holds logarithms: ``exp(gate[t]) * state[t-1] + exp(input[t])``. They
        are exponentiated while they are read. -inf is 0. Real types.
    return_final:
        Returns ``(state, final_state)``. The final state has the shape of ``input`` without the
        axis of time, and is float32 for 16-bit types.

    Returns
    -------
    The states, in C order. 16-bit types are computed in float32 and rounded when stored.

    Raises
    ------
    ValueError, TypeError:
        Names the argument, what was expected and what came.

    Notes
    -----
    One pass over memory; error bounds and determinism as ``docs/numerics.md`` says. The GIL is
    released while it runs. Source: Blelloch, Prefix Sums and Their Applications (1990), 1.4.
    """
    call, values = "linear_scan", (gate, input, initial_state, resets)
    reverse = arguments.flag(call, "reverse", reverse)
    return_final = arguments.flag(call, "return_final", return_final)
    cell = _logarithms(call, log_gate, log_input)
    key = (call, type(axis), axis, reverse, return_final, cell, *map(_layout, values))
    results = _run_again(key, values)
    if results is None:
        p = _Problem(call, "input", values, axis, reverse, cell)
        p.read("gate")
        p.read("input")
        p.read("initial_state")
        p.new("state")
        if return_final:
            p.new("final_state")
        results = p.run(key, values)
    return tuple(results) if return_final else results[0]


def linear_scan_vjp(
    gate: Any,
    state: Any,
    state_grad: Any = None,
    final_grad: Any = None,
    *,
    initial_state: Any = None,
    axis: int = -2,
    reverse: bool = False,
    resets: Any = None,
    log_gate: bool = False,
    log_input: bool = False,
    input: Any = None,
    conjugate: bool = True,
    wrt: Sequence[str] = ("gate", "input", "initial_state"),
) -> Gradients:
    """The adjoint of :func:`linear_scan`: gradients from those of its results.

    Parameters
    ----------
    gate, initial_state, axis, reverse, resets, log_gate, log_input:
        Those of the forward call. Gradients are of the logarithms, where those were given.
    input:
        That of the forward call, which is read where it holds logarithms.
    state:
        What it returned.
    state_grad:
        Gradient of the states: a shape that broadcasts to theirs. None is 0, and is not read.
    final_grad:
        Gradient of the final state. None is 0.
    conjugate:
        Complex gradients as PyTorch has them, ``conj(gate)``; False: JAX's, without.
    wrt:
        Which gradients are wanted; others are not computed.

    Returns
    -------
    :class:`Gradients`. That of the gate has the gate's shape (a broadcast gate gets the sum, added
    up in a fixed order in a wider type), that of the initial state the shape of the final state.
    """
    call, wrt = "linear_scan_vjp", tuple(wrt)
    values = (gate, state, initial_state, resets, state_grad, final_grad)
    reverse = arguments.flag(call, "reverse", reverse)
    conjugate = arguments.flag(call, "conjugate", conjugate)
    cell = _logarithms(call, log_gate, log_input)
    if cell:  # whose kernel reads an input always
        values = (*values, input if cell & native.LOG_INPUT else 0.0)
    key = (call, type(axis), axis, reverse, not conjugate, cell, wrt, *map(_layout, values))
    results = _run_again(key, values)
    if results is None:
        for name in wrt:
            if name not in Gradients._fields:
                names = "names among " + ", ".join(Gradients._fields)
                arguments.refuse(call, "wrt", names, repr(name))
        if cell & native.LOG_INPUT and input is None:
            arguments.refuse(call, "input", "that of the forward call, with 'log_input'", "None")
        p = _Problem(call, "state", values, axis, reverse, cell)
        p.plain = not conjugate
        p.read("gate")
        p.read("state", equal=True, used=cell or "gate" in wrt)
        p.read("initial_state", used="gate" in wrt)
        if cell:
            p.read("input")
        p.read("state_grad")
        p.read("final_grad")
        if "gate" in wrt:
            p.new("gate_grad", like="gate")
        if "input" in wrt:
            p.new("input_grad")
        if "initial_state" in wrt:
            p.new("initial_grad")
        results = p.run(key, values) if wrt else []
    rest = iter(results)
    return Gradients(*(next(rest) if name in wrt else None for name in Gradients._fields))


def linear_scan_jvp(
    gate: Any,
    state: Any,
    gate_tangent: Any = None,
    input_tangent: Any = None,
    initial_tangent: Any = None,
    *,
    initial_state: Any = None,
    axis: int = -2,
    reverse: bool = False,
    resets: Any = None,
    return_final: bool = False,
) -> Any:
    """The tangent of :func:`linear_scan`; a tangent that is None is 0.

    Parameters
    ----------
    gate, initial_state, axis, reverse, resets:
        Those of the forward call; ``state`` is what it returned.
    gate_tangent, input_tangent:
        Shapes that broadcast to that of ``state``.
    initial_tangent:
        A shape that broadcasts to that of a final state.

    Returns
    -------
    The tangent of the states, or with ``return_final`` those of the states and of the final state.
    """
    call = "linear_scan_jvp"
    values = (gate, state, initial_state, resets, gate_tangent, input_tangent, initial_tangent)
    reverse = arguments.flag(call, "reverse", reverse)
    return_final = arguments.flag(call, "return_final", return_final)
    key = (call, type(axis), axis, reverse, return_final, *map(_layout, values))
    results = _run_again(key, values)
    if results is None:
        p = _Problem(call, "state", values, axis, reverse)
        p.read("gate")
        p.read("state", equal=True, used=gate_tangent is not None)
        p.read("initial_state", used=gate_tangent is not None)
        p.read("gate_tangent")
        p.read("input_tangent")
        p.read("initial_tangent")
        p.new("state_tangent")
        if return_final:
            p.new("final_tangent")
        results = p.run(key, values)
    return tuple(results) if return_final else results[0]


# ---- calls on arrays of one kind, again and again --------------------------------------------------

# Of a small scan most of the time would go into checks, and most of that into finding out what
# arrays are. All checks are of types, shapes, strides and options, so what they come to is kept under
# these: a plan, which is never changed.
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


def _layout(value: Any) -> Any:
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


def _run_again(key: tuple, values: Sequence[Any]) -> list[np.ndarray] | None:
    """The results of a call that was checked before, else None."""
    try:
        plan = _plans.get(key)
    except TypeError:  # something in it that is no axis, or no name
        return None
    return plan.run(values) if plan is not None else None


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
    """By what NumPy's C interface, PyArray_DATA, reads: the word behind what all objects begin with.
    All of ``__array_interface__`` takes longer to make than a small scan takes."""
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


# ---- calls on arrays not seen before ---------------------------------------------------------------


def _logarithms(call, log_gate, log_input):
    """What is given by logarithms, as the kernels are told."""
    log_gate = arguments.flag(call, "log_gate", log_gate)
    log_input = arguments.flag(call, "log_input", log_input)
    return native.LOG_GATE * log_gate + native.LOG_INPUT * log_input


#: What a gated scan calls the arrays of a linear scan.
_GATED = {
    **{"gate": "forget_gate", "input": "candidate", "state": "output", "state_grad": "output_grad"},
    **{"gate_grad": "forget_gate_grad", "input_grad": "candidate_grad"},
}


class _Problem:
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
                of if adjoint and of == "state" else _GATED.get(of, of): x for of, x in strides.items()
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
        dtype = np.promote_types(dtype, found)
    return dtype


def _ready(value: Any, dtype: np.dtype) -> np.ndarray:
    """An array or a number as the library can read it: copied only for its type, byte order, or
    places between elements. Strides of a copy follow from those of the array: plans rely on it."""
    array = np.asarray(value, dtype)
    whole = all(s % array.itemsize == 0 for s, n in zip(array.strides, array.shape) if n > 1)
    return array if array.flags.aligned and whole else array.copy()

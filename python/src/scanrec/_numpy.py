# SPDX-License-Identifier: BSD-3-Clause
"""linear_scan and its derivatives on NumPy arrays of any strides, in place."""

from __future__ import annotations

from collections.abc import Sequence
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
        starts: the link between steps t-1 and t is cut, in either direction.
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
    p = _Problem("linear_scan", input, "input", axis, reverse, resets, (gate,), (initial_state,))
    p.sequence("gate", gate)
    p.sequence("input", input)
    p.edge("initial_state", initial_state)
    state = p.new("state")
    final = p.new("final_state", edge=True) if return_final else None
    p.run()
    return (state, final) if return_final else state


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
    conjugate: bool = True,
    wrt: Sequence[str] = ("gate", "input", "initial_state"),
) -> Gradients:
    """The adjoint of :func:`linear_scan`: gradients from those of its results.

    Parameters
    ----------
    gate, initial_state, axis, reverse, resets:
        Those of the forward call.
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
    for name in wrt:
        if name not in Gradients._fields:
            arguments.refuse(call, "wrt", "names among " + ", ".join(Gradients._fields), repr(name))
    p = _Problem(
        call, state, "state", axis, reverse, resets, (gate, state_grad), (initial_state, final_grad)
    )
    p.plain = not conjugate
    p.sequence("gate", gate)
    p.sequence("state", state, equal=True, used="gate" in wrt)
    p.edge("initial_state", initial_state, used="gate" in wrt)
    p.sequence("state_grad", state_grad)
    p.edge("final_grad", final_grad)
    got = Gradients(
        p.new("gate_grad", like="gate") if "gate" in wrt else None,
        p.new("input_grad") if "input" in wrt else None,
        p.new("initial_grad", edge=True) if "initial_state" in wrt else None,
    )
    if wrt:
        p.run()
    return got


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
    p = _Problem(
        "linear_scan_jvp",
        state,
        "state",
        axis,
        reverse,
        resets,
        (gate, gate_tangent, input_tangent),
        (initial_state, initial_tangent),
    )
    p.sequence("gate", gate)
    p.sequence("state", state, equal=True, used=gate_tangent is not None)
    p.edge("initial_state", initial_state, used=gate_tangent is not None)
    p.sequence("gate_tangent", gate_tangent)
    p.sequence("input_tangent", input_tangent)
    p.edge("initial_tangent", initial_tangent)
    tangent = p.new("state_tangent")
    final = p.new("final_tangent", edge=True) if return_final else None
    p.run()
    return (tangent, final) if return_final else tangent


class _Problem:
    """The arrays of one call, checked one by one, and what they have in common."""

    def __init__(self, call, full, name, axis, reverse, resets, sequences, edges):
        self.call, self.reverse, self.plain = call, bool(reverse), False
        full = _asarray(call, name, full)
        self.shape = full.shape
        if full.ndim == 0:
            arguments.refuse(call, name, "an array with an axis of time", "a number")
        self.axis = arguments.time_axis(call, axis, full.shape)
        self.edges = arguments.edge_shape(self.shape, self.axis)
        self.dtype = _promoted(call, name, full, sequences, edges)
        self.edge_dtype = np.dtype(arguments.EDGE_DTYPES[self.dtype.name])
        self.arrays: dict[str, native.Array] = {}
        self.kept: dict[str, np.ndarray] = {}
        if resets is not None:
            marks = np.asarray(resets)
            if marks.dtype != np.bool_:
                arguments.refuse(call, "resets", "booleans", marks.dtype, TypeError)
            arguments.check_resets(call, marks.shape, self.shape, self.axis)
            self._put("resets", np.broadcast_to(marks, self.shape))

    def sequence(self, name, value, *, equal=False, used=True):
        if value is None:
            return
        array = _asarray(self.call, name, value)
        arguments.check_shape(self.call, name, array.shape, self.shape, equal=equal)
        if used:
            self.kept[name] = array = _ready(array, self.dtype)
            self._put(name, np.broadcast_to(array, self.shape))

    def edge(self, name, value, *, used=True):
        if value is None:
            return
        array = _asarray(self.call, name, value)
        arguments.check_shape(self.call, name, array.shape, self.edges)
        if used:
            array = _ready(array, self.edge_dtype)
            self._put(name, np.expand_dims(np.broadcast_to(array, self.edges), self.axis))

    def new(self, name, *, edge=False, like=None):
        """An array to write, in the shape of the states, of edges, or of another array."""
        shape = self.kept[like].shape if like is not None else self.edges if edge else self.shape
        result = np.empty(shape, self.edge_dtype if edge else self.dtype)
        placed = [1] * (len(self.shape) - len(shape)) + list(shape)
        if edge:
            placed = [*shape[: self.axis], 1, *shape[self.axis :]]
        strides, step = [], 1  # as NumPy's, but of empty arrays, too
        for n in reversed(placed):
            strides.insert(0, 0 if n == 1 else step)
            step *= max(n, 1)
        self.kept["new " + name] = result
        self.arrays[name] = native.Array(result.ctypes.data, strides)
        return result

    def _put(self, name, view):
        self.kept["view of " + name] = view
        # The length of a stride along an axis of one element says nothing.
        strides = [s // view.itemsize if n != 1 else 0 for s, n in zip(view.strides, view.shape)]
        self.arrays[name] = native.Array(view.ctypes.data, strides)

    def run(self):
        native.call(
            self.call,
            self.arrays,
            dtype=self.dtype.name,
            shape=self.shape,
            axis=self.axis,
            reverse=self.reverse,
            plain=self.plain,
        )


def _is_number(value: Any) -> bool:
    """Whether it is a number of Python, which has no element type; NumPy's have."""
    return isinstance(value, (bool, int, float, complex)) and not isinstance(value, np.generic)


def _asarray(call: str, name: str, value: Any) -> np.ndarray:
    if _is_number(value):
        return np.asarray(value)
    array = np.asarray(value)
    arguments.check_dtype(call, name, array.dtype.name)
    return array


def _promoted(
    call: str, name: str, full: np.ndarray, sequences: Sequence[Any], edges: Sequence[Any]
) -> np.dtype:
    """The element type of a call, of all arrays. Python's real numbers do not count, nor do edges
    that are float32 because the rest is of 16 bits."""
    arguments.check_dtype(call, name, full.dtype.name)
    dtype = full.dtype.newbyteorder("=")
    for value, edge in [(s, False) for s in sequences] + [(e, True) for e in edges]:
        if value is None or _is_number(value):
            if isinstance(value, complex):
                dtype = np.promote_types(dtype, np.complex64)
            continue
        found = np.asarray(value).dtype.newbyteorder("=")
        if found.name not in arguments.EDGE_DTYPES:
            continue  # refused later, by its name
        if edge and found == arguments.EDGE_DTYPES[dtype.name]:
            continue
        dtype = np.promote_types(dtype, found)
    return dtype


def _ready(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The array as the library can read it: copied only for its type, byte order, or places between
    elements."""
    array = array.astype(dtype, copy=False)
    whole = all(s % array.itemsize == 0 for s, n in zip(array.strides, array.shape) if n > 1)
    return array if array.flags.aligned and whole else array.copy()

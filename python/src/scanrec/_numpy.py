# SPDX-License-Identifier: BSD-3-Clause
"""linear_scan and its derivatives on NumPy arrays of any strides, in place."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, SupportsIndex, overload

from numpy.typing import ArrayLike, NDArray

from . import _arguments as arguments
from . import _native as native
from ._plans import Problem, layout, run_again

__all__ = ["Gradients", "linear_scan", "linear_scan_jvp", "linear_scan_vjp"]


class Gradients(NamedTuple):
    """Gradients of :func:`linear_scan_vjp`; None where not asked for."""

    # Any: nobody who has asked for a gradient need tell a type checker that it is there.
    gate: NDArray[Any] | Any
    input: NDArray[Any] | Any
    initial_state: NDArray[Any] | Any


@overload
def linear_scan(
    gate: ArrayLike, input: ArrayLike, initial_state: ArrayLike | None = None, *,
    axis: SupportsIndex = -2, reverse: bool = False, resets: ArrayLike | None = None,
    log_gate: bool = False, log_input: bool = False, return_final: Literal[False] = False,
) -> NDArray[Any]: ...  # fmt: skip
@overload
def linear_scan(
    gate: ArrayLike, input: ArrayLike, initial_state: ArrayLike | None = None, *,
    axis: SupportsIndex = -2, reverse: bool = False, resets: ArrayLike | None = None,
    log_gate: bool = False, log_input: bool = False, return_final: Literal[True],
) -> tuple[NDArray[Any], NDArray[Any]]: ...  # fmt: skip
@overload
def linear_scan(
    gate: ArrayLike, input: ArrayLike, initial_state: ArrayLike | None = None, *,
    axis: SupportsIndex = -2, reverse: bool = False, resets: ArrayLike | None = None,
    log_gate: bool = False, log_input: bool = False, return_final: bool = False,
) -> NDArray[Any] | tuple[NDArray[Any], NDArray[Any]]: ...  # fmt: skip
def linear_scan(
    gate: ArrayLike,
    input: ArrayLike,
    initial_state: ArrayLike | None = None,
    *,
    axis: SupportsIndex = -2,
    reverse: bool = False,
    resets: ArrayLike | None = None,
    log_gate: bool = False,
    log_input: bool = False,
    return_final: bool = False,
) -> NDArray[Any] | tuple[NDArray[Any], NDArray[Any]]:
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
        ``gate``, or ``input``, holds logarithms: ``exp(gate[t]) * state[t-1] + exp(input[t])``.
        They are exponentiated while they are read. -inf is 0. Real types.
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
    key = (call, type(axis), axis, reverse, return_final, cell, *map(layout, values))
    results = run_again(key, values)
    if results is None:
        p = Problem(call, "input", values, axis, reverse, cell)
        p.read("gate")
        p.read("input")
        p.read("initial_state")
        p.new("state")
        if return_final:
            p.new("final_state")
        results = p.run(key, values)
    return tuple(results) if return_final else results[0]


def linear_scan_vjp(
    gate: ArrayLike,
    state: ArrayLike,
    state_grad: ArrayLike | None = None,
    final_grad: ArrayLike | None = None,
    *,
    initial_state: ArrayLike | None = None,
    axis: SupportsIndex = -2,
    reverse: bool = False,
    resets: ArrayLike | None = None,
    log_gate: bool = False,
    log_input: bool = False,
    input: ArrayLike | None = None,
    conjugate: bool = True,
    wrt: Iterable[Literal["gate", "input", "initial_state"]] = ("gate", "input", "initial_state"),
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
    call = "linear_scan_vjp"
    if type(wrt) is not tuple:
        wrt = _names(call, wrt)
    values = (gate, state, initial_state, resets, state_grad, final_grad)
    reverse = arguments.flag(call, "reverse", reverse)
    conjugate = arguments.flag(call, "conjugate", conjugate)
    cell = _logarithms(call, log_gate, log_input)
    if cell:  # whose kernel reads an input always
        values = (*values, input if cell & native.LOG_INPUT else 0.0)
    key = (call, type(axis), axis, reverse, not conjugate, cell, wrt, *map(layout, values))
    results = run_again(key, values)
    if results is None:
        for name in wrt:
            if name not in Gradients._fields:
                names = "names among " + ", ".join(Gradients._fields)
                arguments.refuse(call, "wrt", names, repr(name))
        if cell & native.LOG_INPUT and input is None:
            arguments.refuse(call, "input", "that of the forward call, with 'log_input'", "None")
        p = Problem(call, "state", values, axis, reverse, cell)
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


@overload
def linear_scan_jvp(
    gate: ArrayLike, state: ArrayLike, gate_tangent: ArrayLike | None = None,
    input_tangent: ArrayLike | None = None, initial_tangent: ArrayLike | None = None, *,
    initial_state: ArrayLike | None = None, axis: SupportsIndex = -2, reverse: bool = False,
    resets: ArrayLike | None = None, return_final: Literal[False] = False,
) -> NDArray[Any]: ...  # fmt: skip
@overload
def linear_scan_jvp(
    gate: ArrayLike, state: ArrayLike, gate_tangent: ArrayLike | None = None,
    input_tangent: ArrayLike | None = None, initial_tangent: ArrayLike | None = None, *,
    initial_state: ArrayLike | None = None, axis: SupportsIndex = -2, reverse: bool = False,
    resets: ArrayLike | None = None, return_final: Literal[True],
) -> tuple[NDArray[Any], NDArray[Any]]: ...  # fmt: skip
@overload
def linear_scan_jvp(
    gate: ArrayLike, state: ArrayLike, gate_tangent: ArrayLike | None = None,
    input_tangent: ArrayLike | None = None, initial_tangent: ArrayLike | None = None, *,
    initial_state: ArrayLike | None = None, axis: SupportsIndex = -2, reverse: bool = False,
    resets: ArrayLike | None = None, return_final: bool = False,
) -> NDArray[Any] | tuple[NDArray[Any], NDArray[Any]]: ...  # fmt: skip
def linear_scan_jvp(
    gate: ArrayLike,
    state: ArrayLike,
    gate_tangent: ArrayLike | None = None,
    input_tangent: ArrayLike | None = None,
    initial_tangent: ArrayLike | None = None,
    *,
    initial_state: ArrayLike | None = None,
    axis: SupportsIndex = -2,
    reverse: bool = False,
    resets: ArrayLike | None = None,
    return_final: bool = False,
) -> NDArray[Any] | tuple[NDArray[Any], NDArray[Any]]:
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
    key = (call, type(axis), axis, reverse, return_final, *map(layout, values))
    results = run_again(key, values)
    if results is None:
        p = Problem(call, "state", values, axis, reverse)
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


def _names(call, wrt):
    """Which gradients are wanted, of whatever holds their names."""
    if isinstance(wrt, str) or not isinstance(wrt, Iterable):
        arguments.refuse(call, "wrt", "a tuple of names", repr(wrt), TypeError)
    return tuple(wrt)


def _logarithms(call, log_gate, log_input):
    """What is given by logarithms, as the kernels are told."""
    log_gate = arguments.flag(call, "log_gate", log_gate)
    log_input = arguments.flag(call, "log_input", log_input)
    return native.LOG_GATE * log_gate + native.LOG_INPUT * log_input

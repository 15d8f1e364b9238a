# SPDX-License-Identifier: BSD-3-Clause
"""``linear_scan`` and its derivatives on NumPy arrays."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, SupportsIndex, overload

from numpy.typing import ArrayLike, NDArray

from ... import _arguments as arguments
from ..doc import documented
from ..spec import SEQUENCE_DOC, gradient_of
from .numpy_plans import Checked, layout, run_again
from .spec import LINEAR, LINEAR_SCAN_DOC, LOG_GATE, LOG_INPUT

__all__ = ["Gradients", "linear_scan", "linear_scan_jvp", "linear_scan_vjp"]


class Gradients(NamedTuple):
    """The gradients that :func:`linear_scan_vjp` returns, None for operands not in ``wrt``."""

    # "| Any" lets type checkers accept a requested gradient without a test for None.
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
@documented(SEQUENCE_DOC, LINEAR_SCAN_DOC)
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
    """Aligned arrays in the type of the call are read in place, with any strides of whole elements.
    Results are in C order. bfloat16 arrays are those of ``ml_dtypes``. The GIL is released during
    the scan. Derivatives: :func:`linear_scan_vjp`, :func:`linear_scan_jvp`.
    """
    call, values = "linear_scan", (gate, input, initial_state, resets)
    reverse = arguments.flag(call, "reverse", reverse)
    return_final = arguments.flag(call, "return_final", return_final)
    logarithms = _logarithms(call, log_gate, log_input)
    key = (call, type(axis), axis, reverse, return_final, logarithms, *map(layout, values))
    results = run_again(key, values)
    if results is None:
        p = Checked(call, "input", dict(zip(LINEAR.value.reads, values)), axis, reverse, logarithms)
        p.read("gate", "input", "initial_state")
        p.new(*LINEAR.value.writes[: 1 + return_final])
        results = p.run(key, values)
    return (results[0], results[1]) if return_final else results[0]


@documented()
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
    """Compute the adjoint of :func:`linear_scan`: the gradients of its operands.

    Parameters
    ----------
    gate, state, initial_state, axis, reverse, resets, log_gate, log_input:
        The arguments of the forward call, and the states that it returned. With ``log_gate`` or
        ``log_input``, gradients are with respect to the logarithms.
    state_grad:
        The gradient of the states, in any shape that broadcasts to theirs. If absent, it is 0 and
        no array is read for it.
    final_grad:
        The gradient of the final state, 0 if absent.
    input:
        As in the forward call. It is required with ``log_input`` and otherwise not read.
    conjugate:
        Whether complex gradients are conjugated, as in PyTorch. JAX does not conjugate them.
    wrt:
        The operands whose gradients are computed. The others are skipped.

    Returns
    -------
    :class:`Gradients`. The gradient of the gate has the shape of the gate. If the gate broadcasts,
    its gradient is a sum in a fixed order. Long sums are accumulated in float64 or complex128. The
    gradient of the initial state has the shape of the final state.
    """
    call = "linear_scan_vjp"
    if type(wrt) is not tuple:
        if isinstance(wrt, str) or not isinstance(wrt, Iterable):
            arguments.refuse(call, "wrt", "a tuple of names", repr(wrt), TypeError)
        wrt = tuple(wrt)
    reverse = arguments.flag(call, "reverse", reverse)
    conjugate = arguments.flag(call, "conjugate", conjugate)
    logarithms = _logarithms(call, log_gate, log_input)
    input = input if logarithms & LOG_INPUT else None
    values = (gate, input, initial_state, resets, state, state_grad, final_grad)
    key = (call, type(axis), axis, reverse, not conjugate, logarithms, wrt, *map(layout, values))
    results = run_again(key, values)
    if results is None:
        for name in wrt:
            if name not in Gradients._fields:
                names = "names among " + ", ".join(Gradients._fields)
                arguments.refuse(call, "wrt", names, repr(name))
        if logarithms & LOG_INPUT and input is None:
            arguments.refuse(call, "input", "an array, since 'log_input' is True", "None")
        p = Checked(call, "state", dict(zip(LINEAR.vjp.reads, values)), axis, reverse, logarithms)
        p.no_conjugate = not conjugate
        p.read("gate")
        p.read("state", "initial_state", used="gate" in wrt)
        p.read("input", used="input" in wrt)
        p.read("state_grad", "final_grad")
        p.new(*(gradient_of(name) for name in LINEAR.differentiable if name in wrt))
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
@documented()
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
    """Compute the tangent of :func:`linear_scan`. Absent tangents are 0.

    Parameters
    ----------
    gate, state, initial_state, axis, reverse, resets:
        The arguments of the forward call, and the states that it returned.
    gate_tangent, input_tangent:
        Any shapes that broadcast to that of ``state``.
    initial_tangent:
        Any shape that broadcasts to that of the final state.
    return_final:
        Whether to return a pair: the tangents of the states and of the final state.

    Returns
    -------
    The tangent of the states, or the pair.
    """
    call = "linear_scan_jvp"
    values = (gate, initial_state, resets, state, gate_tangent, input_tangent, initial_tangent)
    reverse = arguments.flag(call, "reverse", reverse)
    return_final = arguments.flag(call, "return_final", return_final)
    key = (call, type(axis), axis, reverse, return_final, *map(layout, values))
    results = run_again(key, values)
    if results is None:
        p = Checked(call, "state", dict(zip(LINEAR.jvp.reads, values)), axis, reverse)
        p.read("gate", "gate_tangent", "input_tangent", "initial_tangent")
        p.read("state", "initial_state", used=gate_tangent is not None)
        p.new(*LINEAR.jvp.writes[: 1 + return_final])
        results = p.run(key, values)
    return (results[0], results[1]) if return_final else results[0]


def _logarithms(call: str, log_gate: bool, log_input: bool) -> int:
    """Return the bits of scanrec_logarithms."""
    log_gate = arguments.flag(call, "log_gate", log_gate)
    log_input = arguments.flag(call, "log_input", log_input)
    return LOG_GATE * log_gate + LOG_INPUT * log_input

# SPDX-License-Identifier: BSD-3-Clause
"""Checks that all frameworks share: shapes and element types, by name, before anything runs."""

from __future__ import annotations

import operator
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

import numpy as np

__all__ = [
    "EDGE_DTYPES",
    "array_of",
    "check_discretisation",
    "check_dtype",
    "check_given",
    "check_number",
    "check_real",
    "check_resets",
    "check_shape",
    "check_state_space",
    "contiguous",
    "count",
    "edge_shape",
    "flag",
    "is_number",
    "number",
    "pool_size",
    "recomputes",
    "refuse",
    "stack_axis",
    "time_axis",
    "unstacked",
]

#: Element types, and what states at the edges (initial, final) of each are.
EDGE_DTYPES = {
    "float32": "float32",
    "float64": "float64",
    "complex64": "complex64",
    "complex128": "complex128",
    "bfloat16": "float32",
    "float16": "float32",
}


def refuse(
    call: str, argument: str, expected: str, got: object, error: type[Exception] = ValueError
) -> NoReturn:
    """Raises, in the words of all of the library's errors."""
    raise error(f"{call}: argument '{argument}': expected {expected}, got {got}")


def is_number(value: object) -> bool:
    """Whether it is a number of Python, which has no element type; NumPy's have."""
    return isinstance(value, (bool, int, float, complex)) and not isinstance(value, np.generic)


def check_number(call: str, argument: str, value: complex) -> None:
    """Refuses an integer of Python that no element type comes near to."""
    if isinstance(value, int):
        try:
            float(value)
        except OverflowError:
            refuse(call, argument, "a number below 1.8e308", f"one of {value.bit_length()} bits")


def array_of(call: str, argument: str, value: object) -> np.ndarray:
    """A value as an array of NumPy. Tensors that record gradients, and arrays of a traced program,
    are none: their frameworks say so, but not of which argument."""
    kind = type(value)
    if kind is np.ndarray:
        return value
    expected = "an array of numbers"
    try:
        array = np.asarray(value)
    except Exception as error:
        framework = kind.__module__.partition(".")[0].removesuffix("lib")
        if framework in ("jax", "torch"):
            expected += f" (scanrec.{framework} has this call for what is traced or differentiated)"
        text = f"{call}: argument '{argument}': expected {expected}, got {kind.__name__}: {error}"
        raise TypeError(text) from error
    if array.dtype.kind == "O" and not hasattr(value, "dtype"):
        refuse(call, argument, expected, kind.__name__, TypeError)
    if np.ma.is_masked(value):
        got = f"{np.ma.count_masked(value)} of {value.size} masked"
        refuse(call, argument, "an array without masked elements (filled() makes one)", got)
    return array


#: Behind what has to be known by then, in the words of errors.
_WHEN_TRACED = " when the call is traced (static_argnames of jax.jit)"


def _is_traced(value: object) -> bool:
    return "Tracer" in type(value).__name__


def flag(call: str, argument: str, value: object) -> bool:
    """A switch. What a traced program knows only when it runs is none; nor is a tensor, which a
    program that is compiled would have to wait for."""
    if value is True or value is False:
        return value
    if isinstance(value, int) and value in (0, 1):
        return bool(value)
    if type(value).__module__.startswith("torch"):  # whose numbers are not to be asked for
        refuse(call, argument, "True or False", type(value).__name__, TypeError)
    if "bool" not in str(getattr(value, "dtype", "")):
        refuse(call, argument, "True or False", repr(value), TypeError)
    try:
        return bool(value)
    except Exception as error:
        expected = f"True or False{_WHEN_TRACED if _is_traced(value) else ''}"
        got = f"a {type(value).__name__} of shape {tuple(getattr(value, 'shape', ()))}"
        raise TypeError(f"{call}: argument '{argument}': expected {expected}, got {got}") from error


def count(call: str, argument: str, value: object) -> int:
    """A whole number, 1 or more."""
    expected = "an integer of 1 or more"
    try:
        found = operator.index(value)
    except TypeError:
        found = None
    if found is None or isinstance(value, bool):
        refuse(call, argument, expected, repr(value), TypeError)
    if found < 1:
        refuse(call, argument, expected, found)
    return found


def time_axis(call: str, axis: object, shape: Sequence[int], name: str = "axis") -> int:
    """The axis of time, counted from the front; `name` is that of the argument."""
    try:
        index = operator.index(axis)
    except TypeError:
        traced = _WHEN_TRACED if _is_traced(axis) else ""
        refuse(call, name, f"an integer{traced}", repr(axis), TypeError)
    if not -len(shape) <= index < len(shape):
        one = ": 0 for one sequence" if len(shape) == 1 else ""
        refuse(call, name, f"an axis of an input of shape {tuple(shape)}{one}", index)
    return index % len(shape)


def edge_shape(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    """The shape of a state: one element per sequence."""
    return tuple(shape[:axis]) + tuple(shape[axis + 1 :])


def contiguous(shape: Sequence[int]) -> list[int]:
    """Strides in C order, in elements, 0 along axes of one element; of empty arrays, too."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(0 if n == 1 else step)
        step *= max(n, 1)
    return strides[::-1]


def check_shape(
    call: str, argument: str, got: Sequence[int], wanted: Sequence[int], *, equal: bool = False
) -> None:
    """Refuses a shape that is not `wanted`, or does not broadcast to it."""
    got, wanted = tuple(got), tuple(wanted)
    if equal:
        if got != wanted:
            refuse(call, argument, f"shape {wanted}", got)
        return
    fits = len(got) <= len(wanted) and all(
        n in (1, m) for n, m in zip(reversed(got), reversed(wanted))
    )
    if not fits:
        refuse(call, argument, f"a shape that broadcasts to {wanted}", got)


def check_resets(call: str, got: Sequence[int], shape: Sequence[int], axis: int) -> tuple[int, ...]:
    """The shape that marks broadcast to: that of the input, or one of one step more."""
    steps = shape[axis]
    place = len(got) - (len(shape) - axis)
    whole = place >= 0 and got[place] in (steps, steps + 1)
    wanted = (*shape[:axis], got[place] if whole else steps, *shape[axis + 1 :])
    fits = len(got) <= len(wanted) and all(
        n in (1, m) for n, m in zip(reversed(got), reversed(wanted))
    )
    if not (whole and fits):
        expected = f"a shape that broadcasts to {tuple(shape)}, "
        expected += f"with all of its {steps} steps on axis {axis}"
        for_all = (*got, 1)
        if len(for_all) == len(shape) and for_all[axis] in (steps, steps + 1):
            expected += f", as {for_all} does"
        refuse(call, "resets", f"{expected}, or one more", tuple(got))
    return wanted


#: How a continuous system becomes a recurrence.
DISCRETISATIONS = ("zero_order_hold", "bilinear")


def check_discretisation(call: str, value: object) -> None:
    """Refuses a discretisation that there is not."""
    if value not in DISCRETISATIONS:
        refuse(
            call, "discretisation", "one of " + ", ".join(map(repr, DISCRETISATIONS)), repr(value)
        )


#: How many pre-activations each kind of QRNN pooling has.
POOLS = {"f": 2, "fo": 3, "ifo": 4}


def pool_size(call: str, pool: object) -> int:
    """How many pre-activations the pooling of this name has."""
    if not isinstance(pool, str) or pool not in POOLS:
        refuse(call, "pool", "one of " + ", ".join(map(repr, POOLS)), repr(pool))
    return POOLS[pool]


#: Whether states are kept for the gradient, or recomputed.
_MEMORIES = ("store", "recompute")


def recomputes(call: str, memory: object) -> bool:
    """Whether states are computed again for the gradient."""
    if not isinstance(memory, str) or memory not in _MEMORIES:
        refuse(call, "memory", "one of " + ", ".join(map(repr, _MEMORIES)), repr(memory))
    return memory == "recompute"


def number(call: str, argument: str, value: object) -> float:
    """A finite number of Python, not a traced one."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        refuse(call, argument, "a number of Python's", type(value).__name__, TypeError)
    check_number(call, argument, value)
    # In comparisons that programs of PyTorch can make of numbers that they do not know yet.
    if not -sys.float_info.max <= value <= sys.float_info.max:
        refuse(call, argument, "a finite number", value)
    return float(value)


def stack_axis(call: str, shape: Sequence[int], axis: int, count: int) -> int:
    """The axis along which pre-activations lie side by side: the last one that is not time."""
    if len(shape) < 2:
        refuse(call, "pre", "axes of time and of channels", f"shape {tuple(shape)}")
    at = len(shape) - (2 if axis == len(shape) - 1 else 1)
    if shape[at] % count != 0:
        refuse(call, "pre", f"a multiple of {count} channels on axis {at}", f"shape {tuple(shape)}")
    return at


def unstacked(shape: Sequence[int], at: int, count: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(shape with the stack as an axis of its own, shape of one of its parts)."""
    channels = shape[at] // count
    before, after = tuple(shape[:at]), tuple(shape[at + 1 :])
    return (*before, count, channels, *after), (*before, channels, *after)


def check_real(call: str, argument: str, dtype: str) -> None:
    """Refuses an element type that gates are not computed in."""
    check_dtype(call, argument, dtype)
    if dtype.startswith("complex"):
        refuse(call, argument, "a real type", dtype, TypeError)


def check_dtype(call: str, argument: str, dtype: str) -> None:
    """Refuses an element type that no kernel knows."""
    if dtype not in EDGE_DTYPES:
        refuse(call, argument, "one of " + ", ".join(EDGE_DTYPES), dtype, TypeError)


def check_given(call: str, given: Mapping[str, object]) -> None:
    """Refuses a state space that lacks what every one has."""
    for name in ("u", *(("nu", "theta") if call == "lru" else ("lambda_",)), "b", "c"):
        if given[name] is None:
            refuse(call, name, "an array", "None", TypeError)


def check_state_space(call: str, shapes: dict, dtypes: dict, reverse: bool) -> bool:
    """Refuses arrays of a state space that do not belong together: shapes and names of types by
    name, None for absent ones. Returns whether it runs both ways, instead of in reverse."""
    u = shapes["u"]
    if len(u) < 2:
        refuse(call, "u", "axes of time and of inputs", f"shape {tuple(u)}")
    for name, dtype in dtypes.items():
        if name == "initial_state":  # any number
            continue
        real = name in ("u", "d", "log_step", "intervals", "nu", "theta")
        if real != (not dtype.startswith("complex")) or dtype not in EDGE_DTYPES:
            kind = "float32 or float64" if real else "complex64 or complex128"
            refuse(call, name, kind, dtype, TypeError)
        if dtype.endswith("16"):
            refuse(call, name, "float32 or float64", dtype, TypeError)
    diagonal = "lambda_" if "lambda_" in shapes else "nu"
    if len(shapes[diagonal]) != 1:
        refuse(call, diagonal, "one number per state, (P,)", f"shape {tuple(shapes[diagonal])}")
    states, inputs = shapes[diagonal][0], u[-1]
    for name, wanted in (("theta", (states,)), ("log_step", (states,)), ("b", (states, inputs))):
        if shapes.get(name) is not None:
            check_shape(call, name, shapes[name], wanted, equal=True)
    c = tuple(shapes["c"])
    if len(c) != 2 or c[1] not in (states, 2 * states):
        refuse(call, "c", f"shape (Q, {states}), or (Q, {2 * states}) to run both ways", c)
    if shapes.get("d") is not None:
        check_shape(call, "d", shapes["d"], (inputs,), equal=True)
        if c[0] != inputs:
            refuse(call, "d", f"none where {inputs} inputs make {c[0]} outputs", shapes["d"])
    both_ways = c[1] == 2 * states and states > 0
    if both_ways and reverse:
        refuse(call, "reverse", "False of a system that runs both ways", True)
    if shapes.get("initial_state") is not None:
        if both_ways:
            refuse(call, "initial_state", "none of a system that runs both ways", "an array")
        check_shape(call, "initial_state", shapes["initial_state"], (*u[:-2], states))
    if shapes.get("intervals") is not None:
        check_shape(call, "intervals", shapes["intervals"], u[:-1])
    return both_ways

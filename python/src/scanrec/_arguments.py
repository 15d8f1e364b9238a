# SPDX-License-Identifier: BSD-3-Clause
"""Checks that all frameworks share: shapes and element types, by name, before anything runs."""

from __future__ import annotations

import operator
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

__all__ = [
    *("BOUNDARY_DTYPES", "POOLS", "array_of", "check_discretisation", "check_dtype", "check_given"),
    *("check_number", "check_real", "check_resets", "check_shape", "check_state_space"),
    *("contiguous", "count", "boundary_shape", "flag", "is_number", "number", "pool_size"),
    *("recomputes", "refuse", "stack_axis", "time_axis", "unstacked"),
]

#: Element types, and what states at the edges (initial, final) of each are.
BOUNDARY_DTYPES = {
    "float32": "float32",
    "float64": "float64",
    "complex64": "complex64",
    "complex128": "complex128",
    "bfloat16": "float32",
    "float16": "float32",
}


def refuse(
    call: str,
    argument: str,
    expected: str,
    got: object,
    error: type[Exception] = ValueError,
    cause: BaseException | None = None,
) -> NoReturn:
    """Raises, in the words of all of the library's errors."""
    raise error(f"{call}: argument '{argument}': expected {expected}, got {got}") from cause


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


def array_of(call: str, argument: str, value: Any) -> NDArray[Any]:
    """Returns a value as an array of NumPy. Frameworks refuse to convert tensors that record
    gradients, and arrays of a traced program; their errors do not name the argument."""
    kind = type(value)
    if kind is np.ndarray:
        return value  # type: ignore[no-any-return]
    expected = "an array of numbers"
    try:
        array = np.asarray(value)
    except Exception as error:
        framework = kind.__module__.partition(".")[0].removesuffix("lib")
        if framework in ("jax", "torch"):
            expected += f" (scanrec.{framework} has this call for what is traced or differentiated)"
        refuse(call, argument, expected, f"{kind.__name__}: {error}", TypeError, error)
    if array.dtype.kind == "O" and not hasattr(value, "dtype"):
        refuse(call, argument, expected, kind.__name__, TypeError)
    if np.ma.is_masked(value):
        got = f"{np.count_nonzero(value.mask)} of {value.size} masked"
        refuse(call, argument, "an array without masked elements (filled() makes one)", got)
    return array


#: Behind what has to be known by then, in the words of errors.
_WHEN_TRACED = " when the call is traced (static_argnames of jax.jit)"


def _is_traced(value: object) -> bool:
    return "Tracer" in type(value).__name__


def flag(call: str, argument: str, value: object) -> bool:
    """Returns a switch. Values that a traced program knows only when it runs are refused. So are
    tensors, whose values a compiled program would have to wait for."""
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
        refuse(call, argument, expected, got, TypeError, error)


def count(call: str, argument: str, value: Any) -> int:
    """Returns a whole number, 1 or more."""
    expected = "an integer of 1 or more"
    try:
        found = operator.index(value) if not isinstance(value, bool) else None
    except TypeError:
        found = None
    if found is None:
        refuse(call, argument, expected, repr(value), TypeError)
    if found < 1:
        refuse(call, argument, expected, found)
    return found


def time_axis(call: str, axis: Any, shape: Sequence[int], name: str = "axis") -> int:
    """Returns the axis of time, counted from the front. ``name`` is that of the argument."""
    try:
        index = operator.index(axis)
    except TypeError:
        traced = _WHEN_TRACED if _is_traced(axis) else ""
        refuse(call, name, f"an integer{traced}", repr(axis), TypeError)
    if not -len(shape) <= index < len(shape):
        one = ": 0 for one sequence" if len(shape) == 1 else ""
        refuse(call, name, f"an axis of an input of shape {tuple(shape)}{one}", index)
    return index % len(shape)


def boundary_shape(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    """The shape of a state: one element per sequence."""
    return (*shape[:axis], *shape[axis + 1 :])


def contiguous(shape: Sequence[int]) -> list[int]:
    """Strides in C order, in elements, 0 along axes of one element; of empty arrays, too."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(0 if n == 1 else step)
        step *= max(n, 1)
    return strides[::-1]


def _broadcasts(got: Sequence[int], wanted: Sequence[int]) -> bool:
    return len(got) <= len(wanted) and all(
        n in (1, m) for n, m in zip(reversed(got), reversed(wanted))
    )


def check_shape(
    call: str, argument: str, got: Sequence[int], wanted: Sequence[int], *, equal: bool = False
) -> None:
    """Refuses a shape that is not ``wanted``, or does not broadcast to it."""
    got, wanted = tuple(got), tuple(wanted)
    if not (got == wanted if equal else _broadcasts(got, wanted)):
        expected = "shape" if equal else "a shape that broadcasts to"
        refuse(call, argument, f"{expected} {wanted}", got)


def check_resets(call: str, got: Sequence[int], shape: Sequence[int], axis: int) -> tuple[int, ...]:
    """Returns the shape that resets broadcast to: that of the input, or one with a further step."""
    steps = shape[axis]
    from_end = len(got) - (len(shape) - axis)
    whole = from_end >= 0 and got[from_end] in (steps, steps + 1)
    wanted = (*shape[:axis], got[from_end] if whole else steps, *shape[axis + 1 :])
    if not (whole and _broadcasts(got, wanted)):
        expected = f"a shape that broadcasts to {tuple(shape)}, "
        expected += f"with all of its {steps} steps on axis {axis}"
        for_all = (*got, 1)
        if len(for_all) == len(shape) and for_all[axis] in (steps, steps + 1):
            expected += f", as {for_all} does"
        refuse(call, "resets", f"{expected}, or one more", tuple(got))
    return wanted


#: The number of pre-activations of each kind of QRNN pooling.
POOLS = {"f": 2, "fo": 3, "ifo": 4}


def _check_name(call: str, argument: str, value: object, names: Collection[str]) -> None:
    if not isinstance(value, str) or value not in names:
        refuse(call, argument, "one of " + ", ".join(map(repr, names)), repr(value))


def check_discretisation(call: str, value: object) -> None:
    """Refuses values that name no way to make a recurrence of a continuous system."""
    _check_name(call, "discretisation", value, ("zero_order_hold", "bilinear"))


def pool_size(call: str, pool: Any) -> int:
    """Returns the number of pre-activations of a kind of pooling."""
    _check_name(call, "pool", pool, POOLS)
    return POOLS[pool]


def recomputes(call: str, memory: object) -> bool:
    """Whether states are recomputed for the gradient."""
    _check_name(call, "memory", memory, ("store", "recompute"))
    return memory == "recompute"


def number(call: str, argument: str, value: object) -> float:
    """Returns a finite number of Python, not a traced one."""
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
    if dtype not in BOUNDARY_DTYPES:
        refuse(call, argument, "one of " + ", ".join(BOUNDARY_DTYPES), dtype, TypeError)


def check_given(call: str, given: Mapping[str, object]) -> None:
    """Refuses a state space that lacks what every one has."""
    for name in ("u", *(("nu", "theta") if call == "lru" else ("lambda_",)), "b", "c"):
        if given[name] is None:
            refuse(call, name, "an array", "None", TypeError)


def check_state_space(
    call: str,
    given: Mapping[str, Sequence[int] | None],
    dtypes: Mapping[str, str],
    reverse: bool,
) -> bool:
    """Refuses arrays of a state space whose shapes or types do not fit together. Absent arrays have
    the shape None. Returns whether the system runs both ways, instead of in reverse."""
    shapes = {name: tuple(shape) for name, shape in given.items() if shape is not None}
    u, c = shapes["u"], shapes["c"]
    if len(u) < 2:
        refuse(call, "u", "axes of time and of inputs", f"shape {u}")
    for name, dtype in dtypes.items():
        if name == "initial_state":  # any number
            continue
        real = name in ("u", "d", "log_step", "intervals", "nu", "theta")
        kinds = ("float32", "float64") if real else ("complex64", "complex128")
        if dtype not in kinds:
            refuse(call, name, " or ".join(kinds), dtype, TypeError)
    diagonal = "lambda_" if "lambda_" in shapes else "nu"
    if len(shapes[diagonal]) != 1:
        refuse(call, diagonal, "one number per state, (P,)", f"shape {shapes[diagonal]}")
    (states,), inputs = shapes[diagonal], u[-1]
    exact = {"theta": (states,), "log_step": (states,), "b": (states, inputs), "d": (inputs,)}
    for name, wanted in exact.items():
        if name in shapes:
            check_shape(call, name, shapes[name], wanted, equal=True)
    if len(c) != 2 or c[1] not in (states, 2 * states):
        refuse(call, "c", f"shape (Q, {states}), or (Q, {2 * states}) to run both ways", c)
    if "d" in shapes and c[0] != inputs:
        refuse(call, "d", f"none where {inputs} inputs make {c[0]} outputs", shapes["d"])
    both_ways = c[1] == 2 * states and states > 0
    if both_ways and reverse:
        refuse(call, "reverse", "False of a system that runs both ways", True)
    if both_ways and "initial_state" in shapes:
        refuse(call, "initial_state", "none of a system that runs both ways", "an array")
    for name, wanted in {"initial_state": (*u[:-2], states), "intervals": u[:-1]}.items():
        if name in shapes:
            check_shape(call, name, shapes[name], wanted)
    return both_ways

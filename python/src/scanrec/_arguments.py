# SPDX-License-Identifier: BSD-3-Clause
"""Checks of shapes, element types and options of calls, shared by all frameworks."""

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

#: The type of the boundary (initial and final) states, by the element type of the call.
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
    """Raise an error about an argument, in the form of all errors of the library."""
    raise error(f"{call}: argument '{argument}': expected {expected}, got {got}") from cause


def check_distinct(call: str, argument: str, rows: Sequence[int], of: str) -> None:
    """Check that no row of the state ``of`` occurs twice."""
    if len(set(rows)) < len(rows):
        refuse(call, argument, f"distinct rows of '{of}'", list(rows))


def is_number(value: object) -> bool:
    """Whether a value is a Python number. NumPy scalars are not: they have an element type."""
    return isinstance(value, (bool, int, float, complex)) and not isinstance(value, np.generic)


def check_number(call: str, argument: str, value: complex) -> None:
    """Raise an error for a Python integer that is beyond the range of all element types."""
    if isinstance(value, int):
        try:
            float(value)
        except OverflowError:
            got = f"an integer of {value.bit_length()} bits"
            refuse(call, argument, "a number of magnitude below 1.8e308", got)


def array_of(call: str, argument: str, value: Any) -> NDArray[Any]:
    """Return a value as a NumPy array.

    Frameworks refuse to convert tensors that require gradients, and arrays of a traced program.
    Their errors do not name the argument, so this function raises its own.
    """
    kind = type(value)
    if kind is np.ndarray:
        return value  # type: ignore[no-any-return]
    expected = "an array of numbers"
    try:
        array = np.asarray(value)
    except Exception as error:
        framework = kind.__module__.partition(".")[0].removesuffix("lib")
        if framework in ("jax", "torch"):
            expected += f" (for traced or differentiated arrays call scanrec.{framework})"
        refuse(call, argument, expected, f"{kind.__name__}: {error}", TypeError, error)
    if array.dtype.kind == "O" and not hasattr(value, "dtype"):
        refuse(call, argument, expected, kind.__name__, TypeError)
    if np.ma.is_masked(value):
        got = f"{np.count_nonzero(value.mask)} of {value.size} masked"
        refuse(call, argument, "an array without masked elements (filled() makes one)", got)
    return array


#: Appended to the expected value in errors about values that must be known during tracing.
_WHEN_TRACED = ", known when the call is traced (static_argnames of jax.jit)"


def _is_traced(value: object) -> bool:
    return "Tracer" in type(value).__name__


def flag(call: str, argument: str, value: object) -> bool:
    """Return a Boolean option.

    Values that a traced program knows only when it runs raise TypeError. So do tensors: a compiled
    program would have to wait for their values.
    """
    if value is True or value is False:
        return value
    if isinstance(value, int) and value in (0, 1):
        return bool(value)
    if type(value).__module__.startswith("torch"):  # reading it may wait for a GPU
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
    """Return an integer of 1 or more."""
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
    """Return the time axis, counted from the front. ``name`` is the name of the argument."""
    try:
        index = operator.index(axis)
    except TypeError:
        traced = _WHEN_TRACED if _is_traced(axis) else ""
        refuse(call, name, f"an integer{traced}", repr(axis), TypeError)
    if not -len(shape) <= index < len(shape):
        one = " (0 for a single sequence)" if len(shape) == 1 else ""
        refuse(call, name, f"an axis of an input of shape {tuple(shape)}{one}", index)
    return index % len(shape)


def boundary_shape(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    """The shape of an initial or final state: that of the input without the time axis."""
    return (*shape[:axis], *shape[axis + 1 :])


def contiguous(shape: Sequence[int]) -> list[int]:
    """Strides of a contiguous array in elements, 0 along axes of extent 1. Extents may be 0."""
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
    """Raise an error unless a shape broadcasts to ``wanted`` or, with ``equal``, is ``wanted``."""
    got, wanted = tuple(got), tuple(wanted)
    if not (got == wanted if equal else _broadcasts(got, wanted)):
        expected = "shape" if equal else "a shape that broadcasts to"
        refuse(call, argument, f"{expected} {wanted}", got)


def check_resets(call: str, got: Sequence[int], shape: Sequence[int], axis: int) -> tuple[int, ...]:
    """Return the shape that resets broadcast to: that of the input, with or without a further step
    along time."""
    steps = shape[axis]
    from_end = len(got) - (len(shape) - axis)
    whole = from_end >= 0 and got[from_end] in (steps, steps + 1)
    wanted = (*shape[:axis], got[from_end] if whole else steps, *shape[axis + 1 :])
    if not (whole and _broadcasts(got, wanted)):
        expected = f"a shape that broadcasts to {tuple(shape)}, "
        expected += f"with all {steps} steps on axis {axis}"
        for_all = (*got, 1)
        if len(for_all) == len(shape) and for_all[axis] in (steps, steps + 1):
            expected += f" (such as {for_all})"
        refuse(call, "resets", f"{expected}, or one more", tuple(got))
    return wanted


#: The number of pre-activations of each kind of QRNN pooling.
POOLS = {"f": 2, "fo": 3, "ifo": 4}


def _check_name(call: str, argument: str, value: object, names: Collection[str]) -> None:
    if not isinstance(value, str) or value not in names:
        refuse(call, argument, "one of " + ", ".join(map(repr, names)), repr(value))


def check_discretisation(call: str, value: object) -> None:
    """Raise an error for an unknown discretisation method."""
    _check_name(call, "discretisation", value, ("zero_order_hold", "bilinear"))


def pool_size(call: str, pool: Any) -> int:
    """Return the number of pre-activations of a kind of pooling."""
    _check_name(call, "pool", pool, POOLS)
    return POOLS[pool]


def recomputes(call: str, memory: object) -> bool:
    """Whether the option ``memory`` asks to recompute states for the gradient."""
    _check_name(call, "memory", memory, ("store", "recompute"))
    return memory == "recompute"


def number(call: str, argument: str, value: object) -> float:
    """Return a finite Python number as a float. Arrays and traced values raise TypeError."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        refuse(call, argument, "a Python number", type(value).__name__, TypeError)
    check_number(call, argument, value)
    # torch.compile supports comparisons, but not isfinite, of numbers that it does not know.
    if not -sys.float_info.max <= value <= sys.float_info.max:
        refuse(call, argument, "a finite number", value)
    return float(value)


def stack_axis(call: str, shape: Sequence[int], axis: int, count: int) -> int:
    """The axis along which pre-activations are side by side: the last one that is not time."""
    if len(shape) < 2:
        refuse(call, "pre", "a time axis and a channel axis", f"shape {tuple(shape)}")
    at = len(shape) - (2 if axis == len(shape) - 1 else 1)
    if shape[at] % count != 0:
        refuse(call, "pre", f"a multiple of {count} channels on axis {at}", f"shape {tuple(shape)}")
    return at


def unstacked(shape: Sequence[int], at: int, count: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Split axis ``at`` of stacked pre-activations into an axis of ``count`` and one of channels.

    Returns the shape with both axes, and the shape of one pre-activation.
    """
    channels = shape[at] // count
    before, after = tuple(shape[:at]), tuple(shape[at + 1 :])
    return (*before, count, channels, *after), (*before, channels, *after)


def check_real(call: str, argument: str, dtype: str) -> None:
    """Raise an error unless kernels support a type and it is real, as activations require."""
    check_dtype(call, argument, dtype)
    if dtype.startswith("complex"):
        refuse(call, argument, "a real type", dtype, TypeError)


def check_dtype(call: str, argument: str, dtype: str) -> None:
    """Raise an error for an element type that no kernel supports."""
    if dtype not in BOUNDARY_DTYPES:
        refuse(call, argument, "one of " + ", ".join(BOUNDARY_DTYPES), dtype, TypeError)


def check_given(call: str, given: Mapping[str, object]) -> None:
    """Raise an error if an array that ``s5`` or ``lru`` requires is absent."""
    for name in ("u", *(("nu", "theta") if call == "lru" else ("lambda_",)), "b", "c"):
        if given[name] is None:
            refuse(call, name, "an array", "None", TypeError)


def check_state_space(
    call: str,
    given: Mapping[str, Sequence[int] | None],
    dtypes: Mapping[str, str],
    reverse: bool,
) -> bool:
    """Raise an error if the shapes or types of the arrays of a state space do not fit together.

    ``given`` has the shapes, None for absent arrays. Returns whether the system is bidirectional.
    """
    shapes = {name: tuple(shape) for name, shape in given.items() if shape is not None}
    u, c = shapes["u"], shapes["c"]
    if len(u) < 2:
        refuse(call, "u", "a time axis and an input axis", f"shape {u}")
    for name, dtype in dtypes.items():
        if name == "initial_state":  # may have any type
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
        refuse(call, "c", f"shape (Q, {states}), or (Q, {2 * states}) if bidirectional", c)
    if "d" in shapes and c[0] != inputs:
        refuse(call, "d", f"None for {inputs} inputs and {c[0]} outputs", shapes["d"])
    both_ways = c[1] == 2 * states and states > 0
    if both_ways and reverse:
        refuse(call, "reverse", "False for a bidirectional system", True)
    if both_ways and "initial_state" in shapes:
        refuse(call, "initial_state", "None for a bidirectional system", "an array")
    for name, wanted in {"initial_state": (*u[:-2], states), "intervals": u[:-1]}.items():
        if name in shapes:
            check_shape(call, name, shapes[name], wanted)
    return both_ways

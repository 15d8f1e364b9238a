# SPDX-License-Identifier: BSD-3-Clause
"""Checks that all frameworks share: shapes and element types, by name, before anything runs."""

from __future__ import annotations

import operator
from collections.abc import Sequence

__all__ = [
    "EDGE_DTYPES",
    "check_dtype",
    "check_resets",
    "check_shape",
    "edge_shape",
    "refuse",
    "time_axis",
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


def refuse(call: str, argument: str, expected: str, got: object, error: type = ValueError):
    """Raises, in the words of all of the library's errors."""
    raise error(f"{call}: argument '{argument}': expected {expected}, got {got}")


def time_axis(call: str, axis: object, shape: Sequence[int]) -> int:
    """The axis of time, counted from the front."""
    try:
        index = operator.index(axis)
    except TypeError:
        refuse(call, "axis", "an integer", repr(axis), TypeError)
    if not -len(shape) <= index < len(shape):
        refuse(call, "axis", f"an axis of an input of shape {tuple(shape)}", index)
    return index % len(shape)


def edge_shape(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    """The shape of a state: one element per sequence."""
    return tuple(shape[:axis]) + tuple(shape[axis + 1 :])


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


def check_resets(call: str, got: Sequence[int], shape: Sequence[int], axis: int) -> None:
    """Marks broadcast to the input, but not along time."""
    check_shape(call, "resets", got, shape)
    place = len(got) - (len(shape) - axis)
    if place < 0 or got[place] != shape[axis]:
        refuse(
            call,
            "resets",
            f"a shape that broadcasts to {tuple(shape)}, with all of "
            f"its {shape[axis]} steps on axis {axis}",
            tuple(got),
        )


def check_dtype(call: str, argument: str, dtype: str) -> None:
    """Refuses an element type that no kernel knows."""
    if dtype not in EDGE_DTYPES:
        refuse(call, argument, "one of " + ", ".join(EDGE_DTYPES), dtype, TypeError)

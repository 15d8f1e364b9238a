# SPDX-License-Identifier: BSD-3-Clause
"""Checks of the arguments of selective scans, shared by all frameworks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, TypeAlias

from ... import _arguments as arguments

__all__ = ["Array", "Checks", "Shape", "has_padding", "types_of"]

Array: TypeAlias = Any  #: An array of a framework.
Shape: TypeAlias = tuple[int, ...]

_STORED = (("float32", "bfloat16", "float16"), "complex64"), (("float64",), "complex128")


class _Types(NamedTuple):
    real: Any  #: the real type in which kernels compute
    stored: tuple[Any, ...]  #: the allowed types of real arrays
    mixed: tuple[Any, ...]  #: the allowed types of arrays that may be complex if A is


def types_of(dtype: Callable[[str], Any]) -> dict[Any, _Types]:
    """The types of arguments by the type of A. ``dtype`` converts a name to a framework's type."""
    types = {}
    for names, name in _STORED:
        stored, pair = tuple(map(dtype, names)), dtype(name)
        types[stored[0]] = _Types(stored[0], stored, stored)
        types[pair] = _Types(stored[0], stored, (*stored, pair))
    return types


def _name(dtype: Any) -> str:
    return str(getattr(dtype, "name", dtype)).removeprefix("torch.")


class Checks(ABC):
    """Checks of the arguments of a call against A and the first argument.

    The first argument, such as ``u``, has channels along ``axis``. If B and C have groups, these
    are along the same axis, counted from the front. In errors, ``axes`` describes the shape of the
    first argument.
    """

    types: ClassVar[dict[Any, _Types]]  #: the types of arguments by the type of A
    converted: Callable[[Array, Any], Array]  #: converts an array to a type
    expanded: Callable[[Array, int], Array]  #: inserts an axis of extent 1

    def __init__(self, call: str, name: str, first: Any, a: Any, axis: int, axes: str) -> None:
        self.call, self.axis = call, axis
        self.groups: int | None = None  # the number of groups of B, if it varies over time
        self.a = self.array("A", a)
        if self.a.dtype not in self.types:
            expected = "float32, float64, complex64 or complex128"
            arguments.refuse(call, "A", expected, self.a.dtype, TypeError)
        self.real, self.stored, self.mixed = self.types[self.a.dtype]
        self.first = self.typed(name, first)
        shape, rank = tuple(self.first.shape), axes.count(",") + 1
        if len(shape) < rank - 1 if "..." in axes else len(shape) != rank:
            arguments.refuse(call, name, axes, f"shape {shape}")
        self.channels, shape = shape[axis], tuple(self.a.shape)
        if len(shape) != 2 or shape[0] != self.channels or shape[1] < 1:
            arguments.refuse(call, "A", f"shape ({self.channels}, N), N of 1 or more", shape)
        self.states = shape[1]

    @abstractmethod
    def array(self, name: str, x: Any) -> Array:
        """Return the value as an array of the framework, or raise an error."""

    def typed(self, name: str, x: Any, *, may_be_complex: bool = False) -> Array:
        """Return the value as an array. Raises TypeError if its type does not fit that of A."""
        x, stored = self.array(name, x), self.mixed if may_be_complex else self.stored
        if x.dtype not in stored:
            expected = f"{' or '.join(map(_name, stored))} with 'A' in {_name(self.a.dtype)}"
            arguments.refuse(self.call, name, expected, x.dtype, TypeError)
        return x

    def equal(self, name: str, x: Any, shape: Shape) -> Array:
        """Return a real array. Raises ValueError if it does not have this shape."""
        x = self.typed(name, x)
        arguments.check_shape(self.call, name, x.shape, shape, equal=True)
        return x

    def _weight(self, name: str, x: Any) -> Array | None:
        """One number per channel in the real type of A, or None."""
        if x is None:
            return None
        return self.converted(self.equal(name, x, (self.channels,)), self.real)

    def _bc(self, name: str, x: Any, shape: Shape, parts: Shape, constant: bool) -> Array:
        """Return B or C with an axis of groups, or in the shape of A if constant over time."""
        x = self.typed(name, x, may_be_complex=True)
        got, of_a = tuple(x.shape), tuple(self.a.shape)
        # Compare ranks first: tuples compare elements, so torch.export would fix the batch size.
        if constant and len(got) == len(of_a) and got == of_a:
            return self.converted(x, self.a.dtype)
        if self.a.dtype not in (self.real, x.dtype):
            shape = parts
        axis = self.axis % len(shape)
        if got == shape:
            x, got = self.expanded(x, axis), (*shape[:axis], 1, *shape[axis:])
        groups = got[axis] if len(got) > len(shape) else 0
        fits = groups >= 1 and self.channels % groups == 0
        if not fits or got != (*shape[:axis], groups, *shape[axis:]):
            known = ", ".join(map(str, [of_a, shape] if constant else [shape]))
            grouped = ", ".join(map(str, (*shape[:axis], "G", *shape[axis:])))
            expected = f"shape {known} or ({grouped}), where G divides {self.channels} channels"
            arguments.refuse(self.call, name, expected, got)
        if name == "B":
            self.groups = groups
        elif self.groups not in (None, groups):
            expected = f"{self.groups} groups, like 'B'"
            arguments.refuse(self.call, name, expected, groups)
        return x

    def operands(
        self, shape: Shape, parts: Shape, *, constant: bool, **values: object
    ) -> dict[str, Any]:
        """Return the operands that a scan and a step share, None for absent ones.

        Parameters
        ----------
        shape, parts:
            The shapes of B and C without groups: ``parts`` if real and imaginary parts alternate,
            ``shape`` otherwise.
        constant:
            Whether B and C may be constant over time.
        values:
            The step sizes, B, C, D, z and the bias of the step sizes, in this order and by their
            names in the call.
        """
        delta, b, c, d, (_, z), bias = values.items()
        return {
            "u": self.first,
            "delta": self.equal(*delta, self.first.shape),
            "a": self.a,
            "b": self._bc(*b, shape, parts, constant),
            "c": self._bc(*c, shape, parts, constant),
            "d": self._weight(*d),
            "z": None if z is None else self.equal("z", z, self.first.shape),
            "delta_bias": self._weight(*bias),
        }

    def state(self, x: Any, lead: Shape, rows: Array | None) -> Array:
        """Return the state of a step, with leading axes ``lead``. If ``rows`` has the indices of
        the states to update, the state has one leading axis of any extent instead."""
        state = self.typed("state", x, may_be_complex=True)
        if self.a.dtype not in (self.real, state.dtype):
            expected = f"{_name(self.a.dtype)}, like 'A'"
            arguments.refuse(self.call, "state", expected, state.dtype, TypeError)
        held = lead if rows is None or len(state.shape) != 3 else state.shape[:1]
        shape = (*held, self.channels, self.states)
        arguments.check_shape(self.call, "state", state.shape, shape, equal=True)
        if rows is not None:
            name = "state_batch_indices"
            if _name(rows.dtype) not in ("int32", "int64"):
                arguments.refuse(self.call, name, "int32 or int64", rows.dtype, TypeError)
            arguments.check_shape(self.call, name, rows.shape, lead, equal=True)
            if state.shape[0] < 1:
                arguments.refuse(self.call, "state", "at least 1 row", 0)
        return state


def has_padding(rows: Array, held: int) -> bool:
    """Whether any index is out of range for a state with ``held`` rows. Raises ValueError if a row
    occurs twice."""
    given = rows.flatten().tolist()
    inside = [row for row in given if 0 <= row < held]
    arguments.check_distinct("selective_state_update", "state_batch_indices", inside, "state")
    return len(inside) < len(given)

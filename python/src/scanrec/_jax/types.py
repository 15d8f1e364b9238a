# SPDX-License-Identifier: BSD-3-Clause
"""Types of arguments, and of the parameters of primitives."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import jax
import jax.typing
import numpy.typing

__all__ = [
    *("ArrayLike", "Args", "Arrays", "Avals", "Axis", "Batched", "Dims", "Names", "Params", "Run"),
    *("Shape", "Shapes", "Tangents"),
]


class SupportsJaxArray(Protocol):
    """An object that converts itself to an array, such as a variable of Flax."""

    def __jax_array__(self) -> jax.Array: ...


#: Arrays of JAX and NumPy, numbers, lists of these, and objects that convert themselves.
ArrayLike: TypeAlias = jax.typing.ArrayLike | numpy.typing.ArrayLike | SupportsJaxArray

Shape: TypeAlias = tuple[int, ...]

#: Arrays, their types and their shapes by name, and collections of names. The specification of the
#: operation defines the names.
Arrays: TypeAlias = Mapping[str, jax.Array]
Avals: TypeAlias = Mapping[str, Any]
Shapes: TypeAlias = Mapping[str, Shape]
Names: TypeAlias = Collection[str]

#: The name of an axis of arrays.
Axis: TypeAlias = str | int

#: A primitive as a function of its operands.
Run: TypeAlias = Callable[..., Any]

#: Arguments and results of the rules of primitives. Args: arrays, tangents or types. Dims: the
#: batch axis of each array, or None. Batched: (results, their batch axes). Tangents: (results,
#: tangents).
Args: TypeAlias = Sequence[Any]
Dims: TypeAlias = Sequence[int | None]
Batched: TypeAlias = tuple[list[jax.Array], list[int | None]]
Tangents: TypeAlias = tuple[Sequence[jax.Array], Sequence[Any]]


class Params(NamedTuple):
    """The parameters of a primitive. It reads only the operands that are listed, and computes only
    the results that are listed."""

    kind: str  #: "value", "vjp" or "jvp"
    problem: Any  #: a named tuple of options
    operands: tuple[str, ...]  #: the names of the arrays that are present
    results: tuple[tuple[str, Shape], ...]  #: the names and shapes of the arrays that are wanted

    def named(self, args: Args) -> dict[str, Any]:
        """The operands by name."""
        return dict(zip(self.operands, args))

    @property
    def shapes(self) -> dict[str, Shape]:
        """The shapes of the results by name."""
        return dict(self.results)

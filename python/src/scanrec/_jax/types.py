# SPDX-License-Identifier: BSD-3-Clause
"""Types of arguments."""

from __future__ import annotations

from typing import Protocol, TypeAlias

import jax
import jax.typing
import numpy.typing

__all__ = ["ArrayLike"]


class SupportsJaxArray(Protocol):
    """An object that converts itself to an array, such as a variable of Flax."""

    def __jax_array__(self) -> jax.Array: ...


#: Arrays of JAX and of NumPy, numbers, and lists of them.
ArrayLike: TypeAlias = jax.typing.ArrayLike | numpy.typing.ArrayLike | SupportsJaxArray

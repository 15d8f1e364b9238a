# SPDX-License-Identifier: BSD-3-Clause
"""Checks of arrays, under the argument names of other packages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from scanrec import _arguments as arguments
from scanrec._jax.arrays import array_of

__all__ = ["array"]


def array(
    call: str,
    name: str,
    value: Any,
    *,
    axes: str | None = None,
    shape: Sequence[int] | None = None,
) -> jax.Array:
    """Return the value as an array if its element type is one that the kernels support.

    ``axes``, such as ``"(B, T)"``, gives the number of axes, and ``shape`` the exact shape.
    """
    value = array_of(call, name, value)
    arguments.check_dtype(call, name, value.dtype.name)
    if axes is not None and value.ndim != axes.count(",") + 1 - axes.endswith(",)"):
        arguments.refuse(call, name, f"shape {axes}", value.shape)
    if shape is not None:
        arguments.check_shape(call, name, value.shape, shape, equal=True)
    return value

# SPDX-License-Identifier: BSD-3-Clause
"""Checks of arrays under the names that other packages have for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from scanrec import _arguments as arguments
from scanrec.jax._arrays import array_of

__all__ = ["array"]


def array(
    call: str,
    name: str,
    value: Any,
    *,
    axes: str | None = None,
    shape: Sequence[int] | None = None,
) -> jax.Array:
    """The value as an array, if it is of an element type that kernels know, and has these axes,
    "(B, T)" say, and this shape."""
    value = array_of(call, name, value)
    arguments.check_dtype(call, name, value.dtype.name)
    if axes is not None and value.ndim != axes.count(",") + 1 - axes.endswith(",)"):
        arguments.refuse(call, name, f"shape {axes}", value.shape)
    if shape is not None:
        arguments.check_shape(call, name, value.shape, shape, equal=True)
    return value

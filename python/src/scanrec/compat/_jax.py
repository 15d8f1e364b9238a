# SPDX-License-Identifier: BSD-3-Clause
"""Checks of arrays, under the argument names of other packages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

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
    real: bool = False,
    boolean: bool = False,
) -> jax.Array:
    """Return the value as an array. Kernels must support its element type, unless ``boolean``.

    ``axes``, such as ``"(B, T)"``, gives the number of axes, and ``shape`` the exact shape.
    ``real`` excludes complex types, and ``boolean`` accepts only booleans.
    """
    x = array_of(call, name, value)
    if not boolean:
        arguments.check_dtype(call, name, x.dtype.name)
    elif x.dtype != jnp.bool_:
        arguments.refuse(call, name, "booleans", x.dtype, TypeError)
    if real and jnp.iscomplexobj(x):
        arguments.refuse(call, name, "a real type", x.dtype.name, TypeError)
    if axes is not None and x.ndim != axes.count(",") + 1 - axes.endswith(",)"):
        arguments.refuse(call, name, f"shape {axes}", x.shape)
    if shape is not None:
        arguments.check_shape(call, name, x.shape, shape, equal=True)
    return x

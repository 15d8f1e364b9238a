# SPDX-License-Identifier: BSD-3-Clause
"""Stands in for the scan of recurrentgemma, in JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scanrec import _arguments as arguments
from scanrec import jax as ops

from ._jax import array

__all__ = ["linear_scan"]

_SCAN_TYPES = ("AUTO", "LINEAR_NATIVE", "ASSOCIATIVE_NATIVE", "LINEAR_PALLAS")


def linear_scan(
    x: Any,
    a: Any,
    h0: Any = None,
    reverse: bool = False,
    scan_type: Any = None,
    acc_float_dtype: Any = jnp.float32,
    sharding_spec: Any = None,
    unroll: int = 1,
    pallas_max_seq_block_size: int = 256,
    pallas_min_seq_block_size: int = 16,
    pallas_pad_seq_to_min_block_size: bool = True,
    pallas_pad_last_dim_to_128: bool = False,
) -> tuple[Any, Any]:
    """Compute ``y[t] = a[t] * y[t-1] + x[t]`` along the second axis of ``(B, T, D)``.

    Returns ``(y, h_last)``: ``y`` has the type of ``x``, and ``h_last`` that of
    ``acc_float_dtype``. The scan is computed in float32, or in float64 if ``acc_float_dtype`` or an
    array that is not a pair has that precision. Forward-mode differentiation works.

    ``x``, ``a`` and ``h0`` are arrays, or the package's ``Complex`` pairs. ``a`` may have only
    the last axes of ``(B, T, D)``. ``scan_type``, ``unroll`` and the ``pallas_`` options, which
    select kernels of the original, are checked and ignored. A ``scan_type`` of None is
    ``ScanType.AUTO``.
    ``sharding_spec`` must be None. If time is split over devices, call
    ``scanrec.jax.linear_scan`` with ``axis_name``.
    """
    call = "linear_scan"
    if sharding_spec is not None:
        expected = "None (if time is split, call scanrec.jax.linear_scan with 'axis_name')"
        arguments.refuse(call, "sharding_spec", expected, type(sharding_spec).__name__)
    if scan_type is not None and getattr(scan_type, "name", None) not in _SCAN_TYPES:
        expected = "None or a ScanType of recurrentgemma.common: " + ", ".join(_SCAN_TYPES)
        arguments.refuse(call, "scan_type", expected, repr(scan_type))
    arguments.count(call, "unroll", unroll)
    arguments.count(call, "pallas_max_seq_block_size", pallas_max_seq_block_size)
    arguments.count(call, "pallas_min_seq_block_size", pallas_min_seq_block_size)
    arguments.flag(call, "pallas_pad_seq_to_min_block_size", pallas_pad_seq_to_min_block_size)
    arguments.flag(call, "pallas_pad_last_dim_to_128", pallas_pad_last_dim_to_128)
    accumulated = jnp.dtype(acc_float_dtype)
    if not jnp.issubdtype(accumulated, jnp.floating):
        arguments.refuse(call, "acc_float_dtype", "a real type", accumulated, TypeError)
    wide = jnp.promote_types(accumulated, jnp.float32)
    input, dtype = _numbers(call, "x", x, wide)
    gate, _ = _numbers(call, "a", a, wide)
    if input.ndim != 3:
        arguments.refuse(call, "x", "shape (B, T, D)", input.shape)
    wanted = input.shape[max(0, 3 - gate.ndim) :]
    arguments.check_shape(call, "a", gate.shape, wanted, equal=True)
    if h0 is not None:
        h0, _ = _numbers(call, "h0", h0, wide)
        arguments.check_shape(call, "h0", h0.shape, (input.shape[0], input.shape[2]), equal=True)
    states, final = ops.linear_scan(gate, input, h0, axis=1, reverse=reverse, return_final=True)
    return _of_kind(x, states, dtype), _of_kind(x, final, accumulated)


def _is_pair(x: Any) -> bool:
    return type(x).__name__ == "Complex" and hasattr(x, "imag") and not isinstance(x, jax.Array)


def _numbers(call: str, name: str, x: Any, wide: np.dtype[Any]) -> tuple[jax.Array, Any]:
    """Return the array to compute with, and the type of ``x`` or of the parts of a pair."""
    if _is_pair(x):
        parts = (array(call, name, p).astype(wide) for p in (x.real, x.imag))
        return jax.lax.complex(*parts), x.dtype
    given = array(call, name, x)
    dtype = jnp.promote_types(given.dtype, wide) if wide == jnp.float64 else given.dtype
    return given.astype(dtype), given.dtype


def _of_kind(x: Any, y: jax.Array, dtype: Any) -> Any:
    """Convert ``y`` to this type, or to a complex type if ``y`` is complex.

    The result is a pair, with parts of this type, if ``x`` is a pair.
    """
    if _is_pair(x):
        return type(x)(real=y.real.astype(dtype), imag=y.imag.astype(dtype))
    return y.astype(jnp.promote_types(dtype, jnp.complex64) if jnp.iscomplexobj(y) else dtype)

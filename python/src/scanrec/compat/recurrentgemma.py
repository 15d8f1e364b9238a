# SPDX-License-Identifier: BSD-3-Clause
"""Stands in for the scan of recurrentgemma, in JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

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
    ``acc_float_dtype``. The scan is computed in float32, or in float64 if the arrays or
    ``acc_float_dtype`` have that type. Forward mode works.

    Parameters
    ----------
    x, a, h0 : arrays, or the package's ``Complex`` pairs of a real and an imaginary part
        Shapes are ``(B, T, D)``, the same or its last axes, and ``(B, D)``. An absent ``h0`` is 0.
    scan_type, unroll, pallas_* :
        Checked and ignored: they choose among kernels of the original. None is its
        ``ScanType.AUTO``.
    sharding_spec :
        Must be None. ``scanrec.jax.linear_scan`` has ``axis_name`` for use in ``shard_map``.
    """
    call = "linear_scan"
    if sharding_spec is not None:
        expected = "None: scanrec.jax.linear_scan has 'axis_name' for time that is split"
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
    input, restored, dtype = _numbers(call, "x", x, wide)
    gate, _, _ = _numbers(call, "a", a, wide)
    if input.ndim != 3:
        arguments.refuse(call, "x", "shape (B, T, D)", input.shape)
    wanted = input.shape[max(0, 3 - gate.ndim) :]
    arguments.check_shape(call, "a", gate.shape, wanted, equal=True)
    if h0 is not None:
        h0, _, _ = _numbers(call, "h0", h0, wide)
        arguments.check_shape(call, "h0", h0.shape, (input.shape[0], input.shape[2]), equal=True)
    states, final = ops.linear_scan(gate, input, h0, axis=1, reverse=reverse, return_final=True)
    return restored(states, dtype), restored(final, accumulated)


def _numbers(call, name, x, wide):
    """Return the array to compute with, a function from results to the kind of x, and x's type."""
    if not isinstance(x, jax.Array) and hasattr(x, "imag") and type(x).__name__ == "Complex":
        parts = [array(call, name, p).astype(wide) for p in (x.real, x.imag)]
        kind = type(x)

        def to_pair(y, dtype):
            return kind(real=y.real.astype(dtype), imag=y.imag.astype(dtype))

        return jax.lax.complex(*parts), to_pair, x.dtype
    x = array(call, name, x)
    dtype = jnp.promote_types(x.dtype, wide) if wide == jnp.float64 else x.dtype

    def to_array(y, dtype):
        complex_dtype = jnp.promote_types(dtype, jnp.complex64)
        return y.astype(complex_dtype if jnp.iscomplexobj(y) else dtype)

    return x.astype(dtype), to_array, x.dtype

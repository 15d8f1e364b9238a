# SPDX-License-Identifier: BSD-3-Clause
"""``recurrentgemma.jax.scan``."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from scanrec import _arguments as arguments
from scanrec import jax as ops
from scanrec.compat._jax import array

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
    """``y[t] = a[t] * y[t-1] + x[t]`` along the second axis of ``(B, T, D)``, from ``h0``,
    ``(B, D)``, or 0; returns ``(y, h_last)``, the first of the type of ``x``, the second of
    ``acc_float_dtype``.

    ``x``, ``a`` and ``h0`` may be the package's pairs of a real and an imaginary part. ``a`` may
    lack axes that are the same for all. Computed in float32, or in float64 if arrays or
    ``acc_float_dtype`` are; forward mode works, too. ``scan_type``, ``unroll`` and
    the ``pallas_`` options choose among kernels of the original; here they are checked, and nothing
    depends on them. None is the package's ``ScanType.AUTO``. A
    ``sharding_spec`` is refused: ``scanrec.jax.linear_scan`` has ``axis_name``, within
    ``shard_map``.
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
    input, remade, dtype = _numbers(call, "x", x, wide)
    gate, _, _ = _numbers(call, "a", a, wide)
    if input.ndim != 3:
        arguments.refuse(call, "x", "shape (B, T, D)", input.shape)
    wanted = input.shape[max(0, 3 - gate.ndim) :]
    arguments.check_shape(call, "a", gate.shape, wanted, equal=True)
    if h0 is not None:
        h0, _, _ = _numbers(call, "h0", h0, wide)
        arguments.check_shape(call, "h0", h0.shape, (input.shape[0], input.shape[2]), equal=True)
    states, final = ops.linear_scan(gate, input, h0, axis=1, reverse=reverse, return_final=True)
    return remade(states, dtype), remade(final, accumulated)


def _is_pair(x):
    """Whether it is one of recurrentgemma's complex numbers of two arrays."""
    return not isinstance(x, jax.Array) and hasattr(x, "imag") and type(x).__name__ == "Complex"


def _numbers(call, name, x, wide):
    """The array to compute with, how a result becomes what came, of another type, and the type that
    came."""
    if _is_pair(x):
        parts = [array(call, name, p).astype(wide) for p in (x.real, x.imag)]
        kind = type(x)

        def paired(y, dtype):
            return kind(real=y.real.astype(dtype), imag=y.imag.astype(dtype))

        return jax.lax.complex(*parts), paired, x.dtype
    x = array(call, name, x)
    dtype = jnp.promote_types(x.dtype, wide) if wide == jnp.float64 else x.dtype

    def remade(y, dtype):
        complex_to = jnp.promote_types(dtype, jnp.complex64)
        return y.astype(complex_to if jnp.iscomplexobj(y) else dtype)

    return x.astype(dtype), remade, x.dtype

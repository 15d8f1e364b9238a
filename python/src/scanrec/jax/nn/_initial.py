# SPDX-License-Identifier: BSD-3-Clause
"""Distributions that weights start from. Products are as torch.nn.Linear has them, ``(outputs,
inputs)``."""

from __future__ import annotations

import math
from typing import Any

import jax

from .._primitives import edge_dtype

__all__ = ["computed", "log_uniform", "normal", "uniform"]


def computed(dtype: Any) -> Any:
    """The type to compute in: float32 instead of 16 bits."""
    return edge_dtype(dtype)


def normal(key: jax.Array, shape: tuple[int, ...], dtype: Any, variance: float = 1.0) -> jax.Array:
    """Of mean 0."""
    return (math.sqrt(variance) * jax.random.normal(key, shape, computed(dtype))).astype(dtype)


def uniform(key: jax.Array, shape: tuple[int, ...], dtype: Any, inputs: int) -> jax.Array:
    """Between +-1 / sqrt(inputs), as ``torch.nn.Linear`` and ``Conv1d`` have weights and biases."""
    most = 1 / math.sqrt(inputs)
    return jax.random.uniform(key, shape, computed(dtype), -most, most).astype(dtype)


def log_uniform(key: jax.Array, count: int, dtype: Any, least: float, most: float) -> jax.Array:
    """Logarithms, uniform, of numbers between these."""
    bounds = math.log(least), math.log(most)
    return jax.random.uniform(key, (count,), computed(dtype), *bounds).astype(dtype)

# SPDX-License-Identifier: BSD-3-Clause
"""Initial values of parameters, drawn from the distributions of the descriptions."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..._jax.arrays import edge_dtype as computed
from ..._layers import _spec as spec

__all__ = ["draw"]


def draw(key: jax.Array | None, parameter: spec.Parameter, dtype: Any) -> jax.Array:
    """Draw a parameter, in float32 for 16-bit types. A constant parameter needs no key."""
    of, shape = computed(dtype), parameter.shape
    match parameter.initial:
        case spec.Constant(np.ndarray() as values):
            return jnp.asarray(values, dtype)
        case spec.Constant(value):
            return jnp.full(shape, value, dtype)
        case spec.LogIntegers():
            x = jnp.log(jnp.arange(1, shape[-1] + 1, dtype=of))
            return jnp.broadcast_to(x.astype(dtype), shape)
        case spec.Normal(inputs):
            x = _normal(key, shape, of, 1 / inputs)
        case spec.Uniform(inputs):
            most = 1 / math.sqrt(inputs)
            x = jax.random.uniform(key, shape, of, -most, most)
        case spec.LogUniform(least, most):
            x = jax.random.uniform(key, shape, of, math.log(least), math.log(most))
        case spec.RingRadius(least, most):
            square = jax.random.uniform(key, shape, of, least**2, most**2)
            # Rounding may give 0 or 1, whose logarithms are infinite or 0.
            square = jnp.clip(square, jnp.finfo(of).tiny, 1 - jnp.finfo(of).epsneg)
            x = jnp.log(-0.5 * jnp.log(square))
        case spec.RingAngle(most):
            x = jnp.log(most * (1 - jax.random.uniform(key, shape, of)))
        case spec.GateDecay(least, most, c):
            gate = jax.random.uniform(key, shape, of, least, most)
            x = jnp.log(jnp.expm1(-jnp.log(gate) / c))
        case spec.StepBias(least, most):
            logs = jax.random.uniform(key, shape, of, math.log(least), math.log(most))
            steps = jnp.exp(logs)
            x = steps + jnp.log(-jnp.expm1(-steps))
        case spec.HippoInput(basis, blocks):
            (n, _), (_, inputs, _) = basis.shape, shape
            x = _normal(key, (blocks, n, inputs), of, 1 / inputs)
            x = _pairs("np,bni->bpi", of, basis.conj(), x).reshape(shape)
        case spec.HippoOutput(basis, blocks):
            n, outputs = basis.shape[0], shape[0]
            x = _normal(key, (outputs, blocks, n), of, 1 / (blocks * n))
            x = _pairs("hbn,np->hbp", of, x, basis).reshape(shape)
    return x.astype(dtype)


def _normal(key, shape, dtype, variance):
    return math.sqrt(variance) * jax.random.normal(key, shape, dtype)


def _pairs(equation, dtype, *factors):
    """Real and imaginary parts of a complex product."""
    kind, exact = np.result_type(dtype, np.complex64), jax.lax.Precision.HIGHEST
    x = jnp.einsum(equation, *(jnp.asarray(f, kind) for f in factors), precision=exact)
    return jnp.stack([x.real, x.imag], -1)

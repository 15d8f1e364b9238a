# SPDX-License-Identifier: BSD-3-Clause
"""Arguments of selective scans in JAX: checks their types and shapes against those of the first
argument and of A."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from ... import _arguments as arguments
from ..._jax.arrays import array_of

__all__ = ["Given"]

#: The types of arrays, by the real type that is computed in.
_STORED = {"float32": ("float32", "bfloat16", "float16"), "float64": ("float64",)}
#: The real type for every type of A.
_REAL = {"complex64": "float32", "complex128": "float64", **{name: name for name in _STORED}}


class Given:
    """The first arguments of a call, and checks of the others against them."""

    def __init__(self, call, name, axes, first, a):
        self.call = call
        self.groups = None  # of B, if it is of every step
        self.a = self._array("A", a)
        if self.a.dtype.name not in _REAL:
            expected = "float32 or float64, or complex of them"
            arguments.refuse(call, "A", expected, self.a.dtype, TypeError)
        self.real = np.dtype(_REAL[self.a.dtype.name])
        self.first = self.typed(name, first)
        self.shape = self.first.shape
        if len(self.shape) < len(axes):
            expected = f"an array (..., {', '.join(axes)})"
            arguments.refuse(call, name, expected, f"shape {self.shape}")
        channels = self.shape[-1]
        if self.a.ndim != 2 or self.a.shape[0] != channels or self.a.shape[1] < 1:
            arguments.refuse(call, "A", f"shape ({channels}, N), N of 1 or more", self.a.shape)
        self.states = self.a.shape[1]

    def _array(self, name, x):
        """An array, of any type."""
        return array_of(self.call, name, x)

    def typed(self, name, x, may_be_complex=False):
        """An array of a type that computes in the real one of A, or in that of A."""
        x = self._array(name, x)
        stored = _STORED[self.real.name]
        if may_be_complex and self.a.dtype != self.real:
            stored = (*stored, self.a.dtype.name)
        if x.dtype.name not in stored:
            expected = f"{' or '.join(stored)}, as 'A' is {self.a.dtype}"
            arguments.refuse(self.call, name, expected, x.dtype, TypeError)
        return x

    def same(self, name, x):
        """An array of the shape of the first."""
        x = self.typed(name, x)
        arguments.check_shape(self.call, name, x.shape, self.shape, equal=True)
        return x

    def others(self, skip, z, name, bias):
        """The optional arrays: weights in the real type of A, and gates."""
        arrays = {}
        for of, argument, x in (("skip", "D", skip), ("delta_bias", name, bias)):
            if x is not None:
                x = self.typed(argument, x)
                arguments.check_shape(self.call, argument, x.shape, self.shape[-1:], equal=True)
                arrays[of] = x.astype(self.real)
        if z is not None:
            arrays["z"] = self.same("z", z)
        return arrays

    def mixing(self, name, x, before, *, of_channels=True):
        """Returns B or C with an axis of groups after the axes ``before``, or the same at all steps
        (D, N). If A is complex, an array of every step may hold 2 N parts of complex numbers."""
        x = self.typed(name, x, may_be_complex=True)
        channels, own = self.shape[-1], self.a.shape
        of_channels = of_channels and len(self.shape) > 2
        if of_channels and x.shape == own:
            return x.astype(self.a.dtype)
        are_parts = jnp.iscomplexobj(self.a) and not jnp.iscomplexobj(x)
        step = (*before, self.states * (2 if are_parts else 1))
        if x.shape == step:
            return self._of_groups(name, jnp.expand_dims(x, -2))
        if x.ndim == len(step) + 1 and (*x.shape[:-2], x.shape[-1]) == step:
            if x.shape[-2] >= 1 and channels % x.shape[-2] == 0:
                return self._of_groups(name, x)
        known = [str(own)] if of_channels else []
        grouped = f"({', '.join(map(str, (*before, 'G', step[-1])))})"
        expected = f"shape {', '.join([*known, str(step)])} or {grouped} of G "
        expected += f"groups of which {channels} channels are a multiple"
        arguments.refuse(self.call, name, expected, x.shape)

    def _of_groups(self, name, x):
        """Checks that B and C agree on groups."""
        groups = x.shape[-2]
        if name == "B":
            self.groups = groups
        elif self.groups not in (None, groups):
            expected = f"as many groups as 'B' has, {self.groups}"
            arguments.refuse(self.call, name, expected, groups)
        return x

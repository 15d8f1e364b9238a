# SPDX-License-Identifier: BSD-3-Clause
"""Scans of arrays of any rank, with broadcasting: linear scans and QRNN pooling.

Operands have the rank of the problem, with extent 1 wherever they broadcast. An array that stacks
pre-activations has one more axis. Boundary states (initial and final states) have extent 1 in time.
Resets may have one step more than the input. ``vmap`` adds an axis in front.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from .._native import checkpoint_shape
from .._op.spec import is_boundary
from .fused import Fused
from .sharding import varying_alike
from .types import Args, Arrays, Axis, Batched, Dims, Params, Shape

__all__ = ["Problem", "Scans", "boundaries_of", "zero_of"]


class Problem(NamedTuple):
    """The shape and the options of a call."""

    shape: Shape
    axis: int  #: the time axis
    reverse: bool
    stack: int = -1  #: the axis along which one array stacks the pre-activations, or -1
    logarithms: int = 0  #: a bit for each operand of a linear scan that holds logarithms
    forget_bias: float = 0.0
    recompute: bool = False  #: whether checkpoints are kept for derivatives, instead of states

    def batched(self, size: int) -> Problem:
        """The problem with one more axis in front."""
        stack = self.stack + 1 if self.stack >= 0 else -1
        return self._replace(shape=(size, *self.shape), axis=self.axis + 1, stack=stack)

    @property
    def linear(self) -> Problem:
        """The problem of a linear scan of the same sequences."""
        return Problem(self.shape, self.axis, self.reverse)

    @property
    def boundary(self) -> Shape:
        """The shape of a boundary state."""
        return tuple(1 if i == self.axis else n for i, n in enumerate(self.shape))

    @property
    def steps(self) -> int:
        """The number of steps."""
        return self.shape[self.axis]


class Scans(Fused):
    """Base of the primitives of linear scans and QRNN pooling."""

    def axes(self, name: str, rank: int, problem: Problem) -> tuple[Axis, ...]:
        names: list[Axis] = list(range(len(problem.shape)))
        names[problem.axis] = "time"
        if rank > len(names):
            names.insert(problem.stack, "stack")
        return tuple(names)

    def shape(self, name: str, problem: Problem, arrays: Arrays) -> Shape:
        if name == "checkpoints":
            return checkpoint_shape(problem.shape, problem.axis)
        return problem.boundary if is_boundary(name) else problem.shape

    def attributes(self, problem: Problem) -> dict[str, Any]:
        options = problem._asdict()
        del options["recompute"]
        return options

    def local(self, problem: Problem, parts: Mapping[Axis, int]) -> Problem:
        axes = self.axes("", len(problem.shape), problem)
        shape = tuple(n // parts.get(axis, 1) for axis, n in zip(axes, problem.shape))
        return problem._replace(shape=shape)

    def residuals(
        self, problem: Problem, arrays: Arrays, nonzero_tangents: Arrays
    ) -> dict[str, str]:
        return {"state": "state"} if "gate" in nonzero_tangents else {}

    def completed(self, problem: Problem, arrays: Arrays) -> Arrays:
        # If time is split over devices, a part may have an initial tangent but no initial state.
        dtype = self.computed(arrays)
        return varying_alike({"initial_state": jnp.zeros(problem.boundary, dtype), **arrays})

    def batch(self, args: Args, dims: Dims, *, params: Params, **_: Any) -> Batched:
        size = next(a.shape[d] for a, d in zip(args, dims) if d is not None)
        arrays = {
            name: jnp.expand_dims(a, 0) if d is None else jnp.moveaxis(a, d, 0)
            for name, a, d in zip(params.operands, args, dims)
        }
        wanted = {name: (size, *shape) for name, shape in params.results}
        out = self.bind(params.kind, params.problem.batched(size), arrays, wanted)
        return list(out.values()), [0] * len(wanted)

    # ---- used when time is split -----------------------------------------------------------------

    def gate(self, problem: Problem, arrays: Arrays) -> jax.Array:
        """The gate of the linear scan, with extent 1 in time if it is the same at all steps."""
        return arrays["gate"]


def boundaries_of(arrays: Arrays) -> dict[str, jax.Array]:
    """The operands that a composed scan passes on unchanged: initial state and resets."""
    return {name: arrays[name] for name in ("initial_state", "resets") if name in arrays}


def zero_of(problem: Problem, dtype: DTypeLike) -> jax.Array:
    """A zero that broadcasts to the shape of the problem."""
    return jnp.zeros((1,) * len(problem.shape), dtype)

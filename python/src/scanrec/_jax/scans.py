# SPDX-License-Identifier: BSD-3-Clause
"""Scans of arrays of any rank that broadcast: linear scans and QRNN pooling.

All operands have the rank of the problem, with extent 1 wherever they broadcast. States at the
edges have extent 1 in time, and resets may have one step more than the input. A batch is one more
axis in front.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp

from .._native import checkpoint_shape
from .._op.spec import is_edge
from .fused import Fused
from .sharding import varying_alike

__all__ = ["Problem", "Scans", "edges_of", "zero_of"]


class Problem(NamedTuple):
    """The shape and the options of a call."""

    shape: tuple[int, ...]
    axis: int  #: of time
    reverse: bool
    stack: int = -1  #: the axis along which one array stacks the pre-activations, or -1
    logarithms: int = 0  #: bits for the operands of a linear scan that hold logarithms
    forget_bias: float = 0.0
    recompute: bool = False  #: keeps checkpoints for derivatives instead of states

    def batched(self, size: int) -> Problem:
        """The problem with one more axis in front."""
        stack = self.stack + 1 if self.stack >= 0 else -1
        return self._replace(shape=(size, *self.shape), axis=self.axis + 1, stack=stack)

    @property
    def linear(self) -> Problem:
        """The problem of a linear scan of the same sequences."""
        return Problem(self.shape, self.axis, self.reverse)

    @property
    def edge(self) -> tuple[int, ...]:
        """The shape of a state at an edge."""
        return tuple(1 if i == self.axis else n for i, n in enumerate(self.shape))

    @property
    def steps(self) -> int:
        """The number of steps."""
        return self.shape[self.axis]


class Scans(Fused):
    """The primitives of such scans."""

    def axes(self, name, rank, problem):
        names: list[Any] = list(range(len(problem.shape)))
        names[problem.axis] = "time"
        if rank > len(names):
            names.insert(problem.stack, "stack")
        return tuple(names)

    def shape(self, name, problem, arrays):
        if name == "checkpoints":
            return checkpoint_shape(problem.shape, problem.axis)
        return problem.edge if is_edge(name) else problem.shape

    def attributes(self, problem):
        options = problem._asdict()
        del options["recompute"]
        return options

    def local(self, problem, parts):
        axes = self.axes("", len(problem.shape), problem)
        shape = tuple(n // parts.get(axis, 1) for axis, n in zip(axes, problem.shape))
        return problem._replace(shape=shape)

    def completed(self, problem, arrays):
        # Where time is split over devices, a part may have a tangent of its initial state alone.
        dtype = self.computed(arrays)
        return varying_alike({"initial_state": jnp.zeros(problem.edge, dtype), **arrays})

    def batch(self, kind, args, dims, *, problem, operands, results, **_):
        size = next(a.shape[d] for a, d in zip(args, dims) if d is not None)
        out = self.bind(
            kind,
            problem.batched(size),
            {
                name: jnp.expand_dims(a, 0) if d is None else jnp.moveaxis(a, d, 0)
                for name, a, d in zip(operands, args, dims)
            },
            {name: (size, *shape) for name, shape in results},
        )
        return list(out.values()), [0] * len(results)

    # ---- what split time asks for ----------------------------------------------------------------

    def gate(self, problem: Problem, arrays: Mapping[str, Any]) -> Any:
        """The gate of the linear scan, with extent 1 in time if it is the same at all steps."""
        raise NotImplementedError


def edges_of(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The operands that a composed scan takes over unchanged."""
    return {name: arrays[name] for name in ("initial_state", "resets") if name in arrays}


def zero_of(problem: Problem, dtype: Any) -> Any:
    """A zero that broadcasts to the shape of the problem."""
    return jnp.zeros((1,) * len(problem.shape), dtype)

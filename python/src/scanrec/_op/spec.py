# SPDX-License-Identifier: BSD-3-Clause
"""The description of an operation, from which its bindings are derived.

An operation computes results from operands. Throughout the package, "the value" of an operation is
this forward computation, as opposed to its tangent (jvp) and its adjoint (vjp). The value may keep
arrays for the derivatives, the residuals.

The names of operands and results determine the names of gradients and tangents. All of these
determine the arrays of each native call, in the order of its struct in
``include/scanrec/c/scanrec.h``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache, cached_property

__all__ = [
    *("SEQUENCE_DOC", "Call", "Operation", "gradient_of", "is_boundary", "primal_of", "tangent_of"),
]

#: The docstring of the arguments that all operations on sequences share.
SEQUENCE_DOC = """
Parameters
----------
initial_state:
    The state before the first step, 0 if absent. Any shape that broadcasts to that of the result
    without the time axis.
reverse:
    Whether the scan runs from the last step to the first. No array is flipped. ``initial_state`` is
    then the state after the last step, and the final state that of the first step.
resets:
    Booleans that broadcast to the result, such as ``(B, T, 1)``, with T or T + 1 steps along time.
    A sequence starts at each step t that is True: no state passes between steps t-1 and t, in
    either direction. If the further step T is True, a sequence starts after the last step, and a
    reverse scan ignores ``initial_state``. The chunk ``[a:b]`` of a stream takes ``resets[a:b+1]``.
return_final:
    Whether to return a pair, the result and the final state. The latter has the shape of the result
    without the time axis. For 16-bit types it is float32.
"""

_BOUNDARIES = ("initial", "final")


def _stem(name: str) -> str:
    return name.removesuffix("_state") if name.startswith(_BOUNDARIES) else name


@cache
def gradient_of(name: str) -> str:
    """The name of the gradient of an operand, or of the cotangent of a result."""
    return f"{_stem(name)}_grad"


@cache
def tangent_of(name: str) -> str:
    """The name of the tangent of an operand or a result."""
    return f"{_stem(name)}_tangent"


@cache
def primal_of(name: str) -> str:
    """The operand or result that a gradient or tangent belongs to. Other names are unchanged."""
    stem = name.removesuffix("_grad").removesuffix("_tangent")
    return f"{stem}_state" if stem in _BOUNDARIES else stem


@cache
def is_boundary(name: str) -> bool:
    """Whether an array is a boundary state (an initial or final state), or its gradient or tangent.
    Except in convolutions, such an array has the type in which kernels compute, and no time axis or
    one of extent 1."""
    return name.startswith(_BOUNDARIES)


@dataclass(frozen=True)
class Call:
    """A native call: the names of the arrays that it reads and writes, in the order of its
    struct."""

    name: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]

    @cached_property
    def arrays(self) -> tuple[str, ...]:
        """All arrays, in the order of the struct."""
        return self.reads + self.writes


@dataclass(frozen=True)
class Operation:
    """An operation and its native calls.

    Parameters
    ----------
    name:
        The name of the native call that computes the value.
    operands, results:
        The names of the arrays that the value reads and returns.
    residuals:
        The arrays that the value keeps for its derivatives. They may be results.
    fixed:
        The operands without derivatives.
    has_jvp:
        Whether the tangent has a native call. This call does not read the operands in
        ``linear_in``, only their tangents.
    linear_in:
        The operands in which the value is linear. The initial state is never one of them, since
        the tangent of the gate multiplies it.
    names:
        The public names of arrays, by native name, where these differ.
    typed:
        The arrays whose element type may differ from that of the call.
    on_gpu:
        Whether there are kernels for GPUs. Otherwise other operations compute the results on GPUs.
    """

    name: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    residuals: tuple[str, ...]
    fixed: frozenset[str] = frozenset({"resets", "zoneout"})
    has_jvp: bool = False
    linear_in: frozenset[str] = frozenset()
    names: dict[str, str] = field(default_factory=dict, hash=False)
    typed: frozenset[str] = frozenset()
    on_gpu: bool = True

    @cached_property
    def differentiable(self) -> tuple[str, ...]:
        """The operands that have derivatives."""
        return tuple(name for name in self.operands if name not in self.fixed)

    @cached_property
    def value(self) -> Call:
        """The call that computes the results."""
        kept = (name for name in self.residuals if name not in self.results)
        return Call(self.name, self.operands, (*self.results, *kept))

    @cached_property
    def vjp(self) -> Call:
        """The call that computes gradients from cotangents of the results."""
        cotangents = map(gradient_of, self.results)
        gradients = tuple(map(gradient_of, self.differentiable))
        return Call(f"{self.name}_vjp", (*self.operands, *self.residuals, *cotangents), gradients)

    @cached_property
    def jvp(self) -> Call:
        """The call that computes tangents of the results. If ``has_jvp`` is false, there is no such
        native call, and JAX's primitive of this kind is composed of other operations."""
        read = (name for name in self.operands if name not in self.linear_in)
        tangents = map(tangent_of, self.differentiable)
        results = tuple(map(tangent_of, self.results))
        return Call(f"{self.name}_jvp", (*read, *self.residuals, *tangents), results)

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        """All native calls."""
        return (self.value, self.vjp, self.jvp) if self.has_jvp else (self.value, self.vjp)

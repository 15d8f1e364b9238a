# SPDX-License-Identifier: BSD-3-Clause
"""Linear scans in JAX: their primitives and derivatives.

Value (the forward computation), tangent and adjoint are kernels. The rules of differentiation are
composed of these kernels:

========= =============================== =============
primitive its tangent                     its transpose
========= =============================== =============
value     tangent                         adjoint
tangent   tangent of an equivalent scan   adjoint
adjoint   adjoint with further cotangents tangent
========= =============================== =============
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import ad
from jax.typing import DTypeLike

from ..._jax.arrays import boundary_dtype
from ..._jax.fused import jvp_of, nonzero, summed
from ..._jax.scans import Problem, Scans, zero_of
from ..._jax.sharding import placed_as
from ..._jax.types import Args, Arrays, Batched, Dims, Names, Params, Tangents
from ..spec import primal_of
from .spec import LINEAR

__all__ = ["LINEAR_SCAN", "STATES", "resets_of", "moves_gate"]

#: The operands that a derivative reads only if it is with respect to the gate.
STATES = {"state", "initial_state"}


def moves_gate(operands: Names, results: Names) -> bool:
    """Whether a derivative is with respect to the gate, so that it reads states."""
    return "gate_tangent" in operands or "gate_grad" in results


class _LinearScan(Scans):
    operation = LINEAR
    user_call = "linear_scan"

    def __init__(self) -> None:
        super().__init__()
        ad.primitive_transposes[self.primitives["value"]] = self.transpose

    def unread(self, kind: str, problem: Problem, operands: Names, results: Names) -> Names:
        if kind == "value":
            return ()
        return {"input"} if moves_gate(operands, results) else {"input", *STATES}

    def batch(self, args: Args, dims: Dims, *, params: Params, **_: Any) -> Batched:
        batched = {name for name, d in zip(params.operands, dims) if d is not None}
        wanted = params.shapes
        if params.kind == "vjp" and batched <= STATES and len(wanted) > 1:
            # Only the gradient of the gate depends on the states. Compute the other gradients once
            # for the whole batch.
            own = params._replace(results=(("gate_grad", wanted.pop("gate_grad")),))
            out = self.vjp(params.problem, params.named(args), wanted)
            (gate_grad,) = super().batch(args, dims, params=own)[0]
            # The gradient of the gate is the first result.
            return [gate_grad, *out.values()], [0, *[None] * len(out)]
        return super().batch(args, dims, params=params)

    def transpose(self, cts: Args, *args: Any, params: Params, **_: Any) -> list[Any]:
        if params.kind == "value" and isinstance(args[0], ad.UndefinedPrimal):
            raise NotImplementedError("scanrec: linear_scan is not linear in its gate")
        return super().transpose(cts, *args, params=params)

    def derived_jvp(self, primals: Args, tangents: Args, *, params: Params, **_: Any) -> Tangents:
        arrays, nonzero_tangents = params.named(primals), nonzero(params.operands, tangents)
        if params.kind == "jvp":
            return jvp_of(partial(self._scanned, params), arrays, nonzero_tangents)
        if "gate_grad" in params.shapes:
            return jvp_of(partial(self._by_input, params), arrays, nonzero_tangents)
        return self._adjoint_jvp(params, arrays, nonzero_tangents)

    def _scanned(self, params: Params, arrays: Arrays) -> list[jax.Array]:
        """The tangent as a scan. Its input is gate_tangent * previous state + input_tangent."""
        gate, problem = arrays["gate"], params.problem
        dtype = boundary_dtype(gate.dtype)
        tangent_in = zero_of(problem, dtype)
        if "gate_tangent" in arrays:
            before = _before(arrays, problem, dtype)
            tangent_in = _masked(arrays["gate_tangent"].astype(dtype) * before, arrays, problem)
        if "input_tangent" in arrays:
            tangent_in = tangent_in + arrays["input_tangent"].astype(dtype)
        given = {
            "gate": gate,
            "input": tangent_in.astype(gate.dtype),
            "initial_state": arrays.get("initial_tangent"),
            "resets": arrays.get("resets"),
        }
        wanted = {primal_of(name): shape for name, shape in params.results}
        return list(self.value(problem, given, wanted).values())

    def _by_input(self, params: Params, arrays: Arrays) -> list[jax.Array]:
        """The adjoint, with gate_grad = input_grad * previous state."""
        problem, dtype = params.problem, boundary_dtype(arrays["gate"].dtype)
        wanted = {**params.shapes, "input_grad": problem.shape}
        del wanted["gate_grad"]
        out = self.vjp(problem, arrays, wanted)
        product = out["input_grad"].astype(dtype) * _before(arrays, problem, dtype)
        out["gate_grad"] = _masked(product, arrays, problem).astype(arrays["gate"].dtype)
        return [summed(out[name], shape) for name, shape in params.results]

    def _adjoint_jvp(
        self, params: Params, arrays: Arrays, nonzero_tangents: Arrays
    ) -> tuple[list[jax.Array], list[jax.Array]]:
        """The gradients of input and initial state, and the tangents of these gradients.

        The gradients come from a scan in the opposite direction, which is linear in its cotangents.
        For their tangents, the tangent of the gate times the gradient of the input is a further
        cotangent.
        """
        problem, wanted = params.problem, params.shapes
        if "gate" in nonzero_tangents:
            wanted["input_grad"] = problem.shape
        values = self.vjp(problem, arrays, wanted)

        cotangent, first = nonzero_tangents.get("state_grad"), None
        if "gate" in nonzero_tangents:
            dtype = boundary_dtype(arrays["gate"].dtype)
            product = nonzero_tangents["gate"].astype(dtype) * values["input_grad"].astype(dtype)
            product = _masked(product, arrays, problem)
            into = _shifted(product, None, problem.axis, back=not problem.reverse)
            if cotangent is not None:
                into = into + cotangent.astype(dtype)
            cotangent = into.astype(arrays["gate"].dtype)
            if problem.steps > 0:
                at = problem.steps - 1 if problem.reverse else 0
                first = jax.lax.slice_in_dim(product, at, at + 1, axis=problem.axis)
        given = {
            "gate": arrays["gate"],
            "resets": arrays.get("resets"),
            "state_grad": cotangent,
            "final_grad": nonzero_tangents.get("final_grad"),
        }
        shapes = {
            n: problem.boundary if n == "initial_grad" else problem.shape for n in params.shapes
        }
        out = self.vjp(problem, given, shapes)
        if first is not None and "initial_grad" in out:
            out["initial_grad"] = out["initial_grad"] + first
        value, tangent = (
            [summed(x[name], shape) for name, shape in params.results] for x in (values, out)
        )
        return value, tangent


def _before(arrays: Arrays, problem: Problem, dtype: DTypeLike) -> jax.Array:
    """The state before every step of the scan."""
    state = jnp.broadcast_to(arrays["state"], problem.shape).astype(dtype)
    return _shifted(state, arrays.get("initial_state"), problem.axis, back=problem.reverse)


def _shifted(x: jax.Array, first: jax.Array | None, axis: int, *, back: bool) -> jax.Array:
    """Move x one step later in time, or one step earlier with ``back``. The step that becomes free
    gets ``first``, or 0 if ``first`` is None. The shift is computed by padding, which keeps the
    sharding of arrays."""
    steps = x.shape[axis]
    if steps == 0:
        return x

    def padded(value: jax.Array, low: int, high: int) -> jax.Array:
        low, high = (high, low) if back else (low, high)
        config = [(low, high, 0) if i == axis else (0, 0, 0) for i in range(value.ndim)]
        return jax.lax.pad(value, jnp.zeros((), value.dtype), config)

    shifted = padded(x, 1, -1)
    return shifted if first is None else shifted + padded(first, 0, steps - 1)


def resets_of(resets: jax.Array, problem: Problem) -> jax.Array:
    """For each step, whether a reset separates it from the previous step of the scan."""
    # In a reverse scan the reset of step t + 1 separates step t from step t + 1.
    if resets.shape[problem.axis] > problem.steps:
        first = 1 if problem.reverse else 0
        return jax.lax.slice_in_dim(resets, first, first + problem.steps, axis=problem.axis)
    if problem.reverse:
        return _shifted(resets.astype(np.int8), None, problem.axis, back=True) != 0
    return resets


def _masked(x: jax.Array, arrays: Arrays, problem: Problem) -> jax.Array:
    """Return x, with 0 at steps that a reset separates from the previous step of the scan."""
    x = jnp.broadcast_to(x, problem.shape)
    if "resets" not in arrays:
        return x
    resets = jnp.broadcast_to(resets_of(arrays["resets"], problem), problem.shape)
    return jnp.where(placed_as(resets, x), jnp.zeros_like(x), x)


#: The primitives of linear scans.
LINEAR_SCAN = _LinearScan()

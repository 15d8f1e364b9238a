# SPDX-License-Identifier: BSD-3-Clause
"""Linear scans in JAX: their primitives and derivatives.

Value, tangent and adjoint are kernels, and the rules are composed of these:

========= ====================================== ===========================
primitive its tangent                            its transpose
========= ====================================== ===========================
value     tangent                                adjoint
tangent   that of a scan, composed               adjoint
adjoint   that of a reversed scan, composed      tangent
========= ====================================== ===========================
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import ad

from ..._jax.arrays import edge_dtype
from ..._jax.fused import jvp_of, nonzero, summed
from ..._jax.scans import Problem, Scans, zero_of
from ..._jax.sharding import placed_as
from ..spec import tangent_of
from .spec import LINEAR

__all__ = ["LINEAR_SCAN", "STATES", "moves_gate"]

#: The operands that derivatives read only for the sake of the gate.
STATES = {"state", "initial_state"}


def moves_gate(operands, results):
    """Whether a derivative is one with respect to the gate, and so reads states."""
    return "gate_tangent" in operands or "gate_grad" in results


class _LinearScan(Scans):
    operation = LINEAR
    user_call = "linear_scan"

    def __init__(self):
        super().__init__()
        ad.primitive_transposes[self.primitives["value"]] = self._value_transpose

    def residuals(self, problem, arrays, moved):
        return {"state": "state"} if "gate" in moved else {}

    def gate(self, problem, arrays):
        return arrays["gate"]

    def unread(self, kind, problem, operands, results):
        if kind == "value":
            return ()
        return {"input"} if moves_gate(operands, results) else {"input", *STATES}

    def batch(self, kind, args, dims, *, problem, operands, results, **_):
        batched = {name for name, d in zip(operands, dims) if d is not None}
        wanted = dict(results)
        if kind == "vjp" and batched <= STATES and len(wanted) > 1:
            # Only the gradient of the gate depends on the states. The others are the same for all.
            given = dict(zip(operands, args))
            shapes = {name: shape for name, shape in results if name != "gate_grad"}
            out = self.vjp(problem, given, shapes)
            own = (("gate_grad", wanted["gate_grad"]),)
            (out["gate_grad"],), _ = super().batch(
                kind, args, dims, problem=problem, operands=operands, results=own
            )
            return [out[n] for n in wanted], [0 if n == "gate_grad" else None for n in wanted]
        return super().batch(kind, args, dims, problem=problem, operands=operands, results=results)

    def _value_transpose(self, cts, gate, *args, **params):
        if ad.is_undefined_primal(gate):
            raise NotImplementedError("scanrec: linear_scan is not linear in its gate")
        return self.transpose("value", cts, gate, *args, **params)

    def derived_jvp(self, kind, primals, tangents, *, problem, operands, results, **_):
        arrays, moved = dict(zip(operands, primals)), nonzero(operands, tangents)
        if kind == "jvp":
            return jvp_of(lambda arrays: self._scanned(arrays, problem, results), arrays, moved)
        if "gate_grad" in dict(results):
            return jvp_of(lambda arrays: self._by_input(arrays, problem, results), arrays, moved)
        return self._adjoint_jvp(arrays, moved, problem, results)

    def _scanned(self, arrays, problem, results):
        """The tangent as a scan of the tangents of gate times state, plus input."""
        gate = arrays["gate"]
        dtype = edge_dtype(gate.dtype)
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
        wanted = dict(results)
        of = {name: wanted.get(tangent_of(name)) for name in LINEAR.results}
        return list(
            self.value(problem, given, {n: shape for n, shape in of.items() if shape}).values()
        )

    def _by_input(self, arrays, problem, results):
        """The adjoint, with the gradient of the gate as that of the input times the states."""
        gate = arrays["gate"]
        dtype = edge_dtype(gate.dtype)
        wanted = {**dict(results), "input_grad": problem.shape}
        wanted.pop("gate_grad")
        out = self.vjp(problem, arrays, wanted)
        product = out["input_grad"].astype(dtype) * _before(arrays, problem, dtype)
        out["gate_grad"] = _masked(product, arrays, problem).astype(gate.dtype)
        return [summed(out[name], shape) for name, shape in results]

    def _adjoint_jvp(self, arrays, moved, problem, results):
        """The tangent of the adjoint without the gradient of the gate. It is a scan against time
        that is linear in its cotangents. The tangent of the gate is multiplied by its results."""
        dtype = edge_dtype(arrays["gate"].dtype)
        wanted = dict(results)
        if "gate" in moved:
            wanted["input_grad"] = problem.shape
        values = self.vjp(problem, arrays, wanted)

        cotangent, first = moved.get("state_grad"), None
        if "gate" in moved:
            product = moved["gate"].astype(dtype) * values["input_grad"].astype(dtype)
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
            "final_grad": moved.get("final_grad"),
        }
        shapes = {n: problem.edge if n == "initial_grad" else problem.shape for n, _ in results}
        out = self.vjp(problem, given, shapes)
        if first is not None and "initial_grad" in out:
            out["initial_grad"] = out["initial_grad"] + first
        both = (values, out)
        return tuple([summed(x[name], shape) for name, shape in results] for x in both)


def _before(arrays, problem: Problem, dtype):
    """The state before every step."""
    state = jnp.broadcast_to(arrays["state"], problem.shape).astype(dtype)
    return _shifted(state, arrays.get("initial_state"), problem.axis, back=problem.reverse)


def _shifted(x, first, axis, *, back):
    """Moves x one step later in time, or earlier with ``back``. ``first`` fills the free step, or 0
    if it is None. Padding leaves arrays that are split over devices as they are."""
    steps = x.shape[axis]
    if steps == 0:
        return x

    def padded(value, low, high):
        config = [(low, high, 0) if i == axis else (0, 0, 0) for i in range(value.ndim)]
        return jax.lax.pad(value, jnp.zeros((), value.dtype), config)

    moved = padded(x, -1, 1) if back else padded(x, 1, -1)
    if first is None:
        return moved
    return moved + (padded(first, steps - 1, 0) if back else padded(first, 0, steps - 1))


def _masked(x, arrays, problem: Problem):
    """Returns x, and 0 at steps that a reset separates from the step before in the scan."""
    x = jnp.broadcast_to(x, problem.shape)
    resets = arrays.get("resets")
    if resets is None:
        return x
    # A reset of the step after it separates a step of a reverse scan from the one before.
    if resets.shape[problem.axis] > problem.steps:
        first = 1 if problem.reverse else 0
        resets = jax.lax.slice_in_dim(resets, first, first + problem.steps, axis=problem.axis)
    elif problem.reverse:
        resets = _shifted(resets.astype(np.int8), None, problem.axis, back=True) != 0
    resets = placed_as(jnp.broadcast_to(resets, problem.shape), x)
    return jnp.where(resets, jnp.zeros_like(x), x)


#: The primitives of linear scans.
LINEAR_SCAN = _LinearScan()

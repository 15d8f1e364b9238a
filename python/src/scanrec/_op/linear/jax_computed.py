# SPDX-License-Identifier: BSD-3-Clause
"""Linear scans in JAX whose gate and input are computed from the operands: the base class, which
defines their tangents, and the primitives of scans of logarithms."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from ..._jax.arrays import boundary_dtype
from ..._jax.fused import jvp_of
from ..._jax.scans import Problem, Scans, boundaries_of, zero_of
from ..._jax.sharding import varying_alike
from ..._jax.types import Arrays, Names, Params
from ..spec import tangent_of
from .jax_rules import LINEAR_SCAN, STATES, moves_gate
from .spec import LINEAR, LOG_GATE, LOG_INPUT

__all__ = ["LOG_SCAN", "ComputedScan"]

#: The gate, the input, and the factor that multiplies the states to give the output. Without a
#: factor, the last entry is None, and the states are the output.
Steps: TypeAlias = tuple[jax.Array, jax.Array, jax.Array | None]


class ComputedScan(Scans):
    """A linear scan whose gate and input are computed from the operands. The value (the forward
    computation) and the adjoint are kernels. The tangent is composed: it computes the tangents of
    gate and input, and then that of the linear scan."""

    def has_kernel(self, kind: str) -> bool:
        return kind != "jvp"

    def steps(self, problem: Problem, arrays: Arrays) -> Steps:
        """Return gate, input and factor (see ``Steps``), in the type in which kernels compute. Each
        has extent 1 in time if the operands that it depends on have this extent."""
        raise NotImplementedError

    def reads_states(self, problem: Problem, names: Names) -> bool:
        """Whether the derivatives with respect to these operands read states."""
        raise NotImplementedError

    def states(self, problem: Problem, arrays: Arrays) -> jax.Array:
        """The states that the value kept."""
        return arrays["state"]

    def tangent_of_scan(
        self, problem: Problem, arrays: Arrays, given: Mapping[str, Any]
    ) -> dict[str, jax.Array]:
        """Return the tangents of states and final state, given the operands of the linear scan and
        their tangents."""
        shapes = {"state_tangent": problem.shape, "final_tangent": problem.boundary}
        return LINEAR_SCAN.jvp(problem.linear, given, shapes)

    def gate(self, problem: Problem, arrays: Arrays) -> jax.Array:
        return self.steps(problem, arrays)[0]

    def composed(self, problem: Problem, arrays: Arrays) -> Arrays:
        gate, input, output = self.steps(problem, arrays)
        given = {**boundaries_of(arrays), "gate": gate, "input": input}
        shapes = {"state": problem.shape, "final_state": problem.boundary}
        out = LINEAR_SCAN.value(problem.linear, given, shapes)
        state = out["state"] if output is None else output * out["state"]
        name = self.operation.results[0]
        return {**out, name: state.astype(self.dtype(name, arrays))}

    def tangent(self, params: Params, arrays: Arrays) -> list[jax.Array]:
        problem = params.problem
        names = [n for n in self.operation.differentiable if n != "initial_state"]
        nonzero_tangents = {name: arrays[t] for name in names if (t := tangent_of(name)) in arrays}
        steps = partial(self.steps, problem)
        state = gate_t = input_t = output_t = None
        if nonzero_tangents:
            (gate, _, output), (gate_t, input_t, output_t) = jvp_of(steps, arrays, nonzero_tangents)
        else:
            gate, _, output = steps(arrays)
        if self.reads_states(problem, nonzero_tangents):
            state = self.states(problem, arrays).astype(gate.dtype)
        else:  # states are not read: the tangents of gate and factor are 0
            gate_t = output_t = None
        given = {
            **boundaries_of(arrays),
            "gate": gate,
            "state": state,
            "gate_tangent": gate_t,
            "input_tangent": input_t,
            "initial_tangent": arrays.get("initial_tangent"),
        }
        out = self.tangent_of_scan(problem, arrays, given)
        moves = out["state_tangent"]
        if output is not None:
            moves = output * moves
            if output_t is not None and state is not None:
                moves = moves + output_t * state
        name = self.operation.results[0]
        out[tangent_of(name)] = moves.astype(self.dtype(name, arrays))
        return [out[name] for name in params.shapes]


# ---- scans of logarithms -------------------------------------------------------------------------


class _LogScan(ComputedScan):
    operation = LINEAR
    user_call = "linear_scan"

    def steps(self, problem: Problem, arrays: Arrays) -> Steps:
        dtype = boundary_dtype(arrays["gate"].dtype)
        gate, input = (arrays[name].astype(dtype) for name in ("gate", "input"))
        gate = jnp.exp(gate) if problem.logarithms & LOG_GATE else gate
        return gate, jnp.exp(input) if problem.logarithms & LOG_INPUT else input, None

    def reads_states(self, problem: Problem, names: Names) -> bool:
        return "gate" in names

    def unread(self, kind: str, problem: Problem, operands: Names, results: Names) -> Names:
        if kind == "value" or moves_gate(operands, results):
            return ()
        moves_input = "input_tangent" in operands or "input_grad" in results
        reads_input = problem.logarithms & LOG_INPUT and moves_input
        return STATES if reads_input else {"input", *STATES}

    def completed(self, problem: Problem, arrays: Arrays) -> Arrays:
        # The input is absent if no wanted derivative depends on it.
        zero = zero_of(problem, arrays["gate"].dtype)
        return super().completed(problem, {"input": zero, **arrays})

    def tangent(self, params: Params, arrays: Arrays) -> list[jax.Array]:
        return super().tangent(params, self.completed(params.problem, arrays))

    def tangent_of_scan(
        self, problem: Problem, arrays: Arrays, given: Mapping[str, Any]
    ) -> dict[str, jax.Array]:
        gate, tangent_in = given["gate"], given["input_tangent"]
        if not problem.logarithms & LOG_GATE:
            return super().tangent_of_scan(problem, arrays, given)
        # Scan the tangents with the log gates: exp() would round gates close to 1.
        if given["gate_tangent"] is not None:
            # The input of this scan, gate_tangent * previous state + input_tangent, is the tangent
            # of a scan whose gates are 0.
            now = {**given, "gate": jnp.zeros_like(gate), "initial_tangent": None}
            shapes = {"state_tangent": problem.shape}
            tangent_in = LINEAR_SCAN.jvp(problem.linear, now, shapes)["state_tangent"]
        scanned = {
            "gate": arrays["gate"].astype(gate.dtype),
            "input": zero_of(problem, gate.dtype) if tangent_in is None else tangent_in,
            "initial_state": given["initial_tangent"],
            "resets": given.get("resets"),
        }
        out = self.value(
            problem.linear._replace(logarithms=LOG_GATE),
            varying_alike({name: x for name, x in scanned.items() if x is not None}),
            {"state": problem.shape, "final_state": problem.boundary},
        )
        return {tangent_of(name): x for name, x in out.items()}


#: The primitives of linear scans of logarithms.
LOG_SCAN = _LogScan()

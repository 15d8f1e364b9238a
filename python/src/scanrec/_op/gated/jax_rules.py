# SPDX-License-Identifier: BSD-3-Clause
"""QRNN pooling in JAX: its primitives, and what their derivatives are composed of.

Pre-activations are arrays of the rank of the problem, or one array that stacks them along one more
axis. The stack takes the place of the candidate, and the gates are absent.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ..._jax.arrays import edge_dtype
from ..._jax.scans import zero_of
from ..._jax.sharding import is_split, varying_alike
from ..linear.jax_computed import ComputedScan
from ..spec import primal_of
from .spec import GATED, GATES

__all__ = ["GATED_SCAN"]


class _GatedScan(ComputedScan):
    """The residuals are the states, or with ``problem.recompute`` checkpoints. Up to 128 steps
    there are no checkpoints. Only the derivatives in the forget gate and the output gate read
    residuals. Without an output gate the outputs are the states."""

    operation = GATED
    user_call = "qrnn_pool"

    def user_name(self, name, problem):
        return "pre" if name == "candidate" and problem.stack >= 0 else name

    def steps(self, problem, arrays):
        if problem.stack >= 0:
            stack, axis = arrays["candidate"], problem.stack
            parts = [jax.lax.index_in_dim(stack, i, axis, False) for i in range(stack.shape[axis])]
        else:
            parts = [arrays[name] for name in GATES if name in arrays]
        dtype = edge_dtype(parts[0].dtype)
        candidate, forget, *others = (part.astype(dtype) for part in parts)
        forget = forget + problem.forget_bias
        into = others[1] if len(others) > 1 else -forget
        if "zoneout" in arrays:  # whatever these are, NaN too
            candidate, forget, into = (
                jnp.where(arrays["zoneout"], 0, x) for x in (candidate, forget, into)
            )
        gate = jax.nn.sigmoid(forget)
        input = jax.nn.sigmoid(into) * jnp.tanh(candidate)  # which is 0 for a candidate of 0
        if "zoneout" in arrays:
            gate = jnp.where(arrays["zoneout"], 1, gate)
        return gate, input, jax.nn.sigmoid(others[0]) if others else None

    def reads_states(self, problem, names):
        of = {"candidate"} if problem.stack >= 0 else {"forget_gate", "output_gate"}
        return not of.isdisjoint(names)

    def states(self, problem, arrays):
        if not problem.recompute:
            return arrays["state"]
        # Another call computes the same states.
        name = _result_with_states(problem, arrays)
        return self.value(problem, arrays, {name: problem.shape})[name]

    def residuals(self, problem, arrays, moved):
        if not self.reads_states(problem, moved):
            return {}
        if not problem.recompute:
            return {"state": _result_with_states(problem, arrays)}
        has_any = 0 not in self.shape("checkpoints", problem, arrays)
        return {"checkpoints": "checkpoints"} if has_any else {}

    def unread(self, kind, problem, operands, results):
        names = operands if kind == "jvp" else results
        derived = {primal_of(name) for name in names if name != primal_of(name)}
        if kind == "value" or self.reads_states(problem, derived):
            return ()
        return {"state", "checkpoints"}

    def linearised(self, problem, arrays, moved):
        # The derivative in the initial state alone reads no input, so a number takes its place. It
        # would not fit if the types of the other arrays say how they are split.
        is_whole = problem.stack < 0 and not any(map(is_split, arrays.values()))
        if not is_whole or moved.keys() != {"initial_state"}:
            return arrays
        number = zero_of(problem, arrays["candidate"].dtype)
        unread = {name: number for name in ("candidate", "input_gate") if name in arrays}
        return varying_alike({**arrays, **unread})


def _result_with_states(problem, arrays):
    """The result that has the states: the output, if there is no output gate."""
    gates = arrays["candidate"].shape[problem.stack] if problem.stack >= 0 else 2
    return "state" if gates > 2 or "output_gate" in arrays else "output"


#: The primitives of QRNN pooling.
GATED_SCAN = _GatedScan()

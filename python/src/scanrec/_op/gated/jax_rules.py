# SPDX-License-Identifier: BSD-3-Clause
"""QRNN pooling in JAX. Kernels compute the value and the adjoint. All other derivatives are
composed of activations and linear scans.

Pre-activations are arrays with as many axes as ``problem.shape``, or one array that stacks them
along one more axis. Such a stack is passed as the candidate, and the gates are absent.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from ..._jax.arrays import boundary_dtype
from ..._jax.scans import Problem, zero_of
from ..._jax.sharding import is_split, varying_alike
from ..linear.jax_computed import ComputedScan
from ..spec import primal_of
from .spec import GATED, GATES, linear_steps

__all__ = ["GATED_SCAN"]

Arrays: TypeAlias = Mapping[str, jax.Array]


class _GatedScan(ComputedScan):
    """The primitives of QRNN pooling.

    The residuals are the states, or checkpoints with ``problem.recompute``. Calls of up to 128
    steps have no checkpoints. Only derivatives with respect to the forget gate and the output gate
    read residuals. Without an output gate the outputs are the states.
    """

    operation = GATED
    user_call = "qrnn_pool"

    def user_name(self, name: str, problem: Problem) -> str:
        return "pre" if name == "candidate" and problem.stack >= 0 else name

    def steps(self, problem: Problem, arrays: Arrays) -> tuple[Any, Any, Any]:
        if problem.stack >= 0:
            stack, axis = arrays["candidate"], problem.stack
            parts = [jax.lax.index_in_dim(stack, i, axis, False) for i in range(stack.shape[axis])]
        else:
            parts = [arrays[name] for name in GATES if name in arrays]
        dtype, zoneout = boundary_dtype(parts[0].dtype), arrays.get("zoneout")
        parts = [part.astype(dtype) for part in parts]
        return linear_steps(jnp, jax.nn.sigmoid, parts, problem.forget_bias, zoneout)

    def reads_states(self, problem: Problem, names: Collection[str]) -> bool:
        of = {"candidate"} if problem.stack >= 0 else {"forget_gate", "output_gate"}
        return not of.isdisjoint(names)

    def states(self, problem: Problem, arrays: Arrays) -> Any:
        if not problem.recompute:
            return arrays["state"]
        # Only checkpoints were kept, so compute the value again, this time with all states.
        name = _result_with_states(problem, arrays)
        return self.value(problem, arrays, {name: problem.shape})[name]

    def residuals(
        self, problem: Problem, arrays: Arrays, nonzero_tangents: Arrays
    ) -> dict[str, str]:
        if not self.reads_states(problem, nonzero_tangents):
            return {}
        if not problem.recompute:
            return {"state": _result_with_states(problem, arrays)}
        has_any = 0 not in self.shape("checkpoints", problem, arrays)
        return {"checkpoints": "checkpoints"} if has_any else {}

    def unread(
        self, kind: str, problem: Problem, operands: Collection[str], results: Collection[str]
    ) -> Collection[str]:
        names = operands if kind == "jvp" else results
        derived = {primal_of(name) for name in names if name != primal_of(name)}
        if kind == "value" or self.reads_states(problem, derived):
            return ()
        return {"state", "checkpoints"}

    def linearised(self, problem: Problem, arrays: Arrays, nonzero_tangents: Arrays) -> Arrays:
        # If only the initial state has a tangent, the input of the linear scan is not needed, so a
        # number replaces candidate and input gate. If the type of an array says how it is split
        # over devices, all arrays are kept, since the type of a number cannot say that. A stack is
        # kept too, since it includes the forget gate.
        is_whole = problem.stack < 0 and not any(map(is_split, arrays.values()))
        if not is_whole or nonzero_tangents.keys() != {"initial_state"}:
            return arrays
        number = zero_of(problem, arrays["candidate"].dtype)
        unread = {name: number for name in ("candidate", "input_gate") if name in arrays}
        return varying_alike({**arrays, **unread})


def _result_with_states(problem: Problem, arrays: Arrays) -> str:
    """The result that has the states: "output" if there is no output gate, otherwise "state"."""
    gates = arrays["candidate"].shape[problem.stack] if problem.stack >= 0 else 2
    return "state" if gates > 2 or "output_gate" in arrays else "output"


#: The primitives of QRNN pooling.
GATED_SCAN = _GatedScan()

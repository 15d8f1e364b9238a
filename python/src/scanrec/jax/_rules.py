# SPDX-License-Identifier: BSD-3-Clause
"""How the primitives differentiate. The rules use one another only, so what is differentiable once
is so any number of times:

========= ====================================== ===========================
primitive its tangent                            its transpose
========= ====================================== ===========================
scan      tangent                                adjoint
tangent   that of a scan, composed               adjoint
adjoint   that of a reversed scan, composed      tangent
========= ====================================== ===========================

Gradients are those of JAX: transposes, without conjugates.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import ad

from ._primitives import PRIMITIVES, STATES, Problem, bind, edge_dtype
from ._sharding import placed_as

__all__ = ["jvp_of", "nonzero", "summed", "transpose"]

#: What a result's derivative is called among operands of the other calls, and the other way round.
_TANGENTS = {
    "gate": "gate_tangent",
    "input": "input_tangent",
    "initial_state": "initial_tangent",
    "state": "state_tangent",
    "final_state": "final_tangent",
}
_GRADIENTS = {
    "gate_tangent": "gate_grad",
    "input_tangent": "input_grad",
    "initial_tangent": "initial_grad",
    "state_tangent": "state_grad",
    "final_tangent": "final_grad",
}


def nonzero(names, tangents):
    """The tangents that are there, by name."""
    return {
        name: t
        for name, t in zip(names, tangents)
        if not isinstance(t, ad.Zero) and t.dtype != jax.dtypes.float0
    }


# ---- tangents ------------------------------------------------------------------------------------


def _scan_jvp(primals, tangents, *, problem, operands, results):
    arrays = dict(zip(operands, primals))
    moved = nonzero(operands, tangents)
    wanted = dict(results)
    if "gate" in moved:  # which meets the states
        wanted["state"] = problem.shape
    values = bind("linear_scan", problem, arrays, wanted)
    with_states = {"gate": arrays["gate"], "resets": arrays.get("resets")}
    if "gate" in moved:
        with_states.update(state=values["state"], initial_state=arrays.get("initial_state"))
    out = bind(
        "linear_scan_jvp",
        problem,
        {**with_states, **{_TANGENTS[name]: t for name, t in moved.items()}},
        {_TANGENTS[name]: shape for name, shape in results},
    )
    return [values[name] for name, _ in results], [out[_TANGENTS[name]] for name, _ in results]


def _tangent_jvp(primals, tangents, *, problem, operands, results):
    """A tangent is a scan over what the tangents of gate and input come to."""

    def composed(arrays):
        gate = arrays["gate"]
        dtype = edge_dtype(gate.dtype)
        come = jnp.zeros((1,) * len(problem.shape), dtype)
        if "gate_tangent" in arrays:
            before = _before(arrays, problem, dtype)
            come = _linked(arrays["gate_tangent"].astype(dtype) * before, arrays, problem)
        if "input_tangent" in arrays:
            come = come + arrays["input_tangent"].astype(dtype)
        out = bind(
            "linear_scan",
            problem,
            {
                "gate": gate,
                "input": come.astype(gate.dtype),
                "initial_state": arrays.get("initial_tangent"),
                "resets": arrays.get("resets"),
            },
            {"state" if name == "state_tangent" else "final_state": of for name, of in results},
        )
        return list(out.values())

    return jvp_of(composed, dict(zip(operands, primals)), nonzero(operands, tangents))


def _adjoint_jvp(primals, tangents, *, problem, operands, results):
    if "gate_grad" in dict(results):
        # That gradient is the one of the input, times the states.
        def composed(arrays):
            gate = arrays["gate"]
            dtype = edge_dtype(gate.dtype)
            wanted = {**dict(results), "input_grad": problem.shape}
            wanted.pop("gate_grad")
            given = {n: v for n, v in arrays.items() if n not in STATES}
            out = bind("linear_scan_vjp", problem, given, wanted)
            met = out["input_grad"].astype(dtype) * _before(arrays, problem, dtype)
            out["gate_grad"] = _linked(met, arrays, problem).astype(gate.dtype)
            return [summed(out[name], shape) for name, shape in results]

        return jvp_of(composed, dict(zip(operands, primals)), nonzero(operands, tangents))
    return _pull_jvp(primals, tangents, problem=problem, operands=operands, results=results)


def _pull_jvp(primals, tangents, *, problem, operands, results):
    """Of the adjoint without the gradient of the gate: a scan against time, linear in its
    cotangents; a tangent of the gate meets what that scan gave."""
    arrays = dict(zip(operands, primals))
    moved = nonzero(operands, tangents)
    wanted = dict(results)
    if "gate" in moved:
        wanted["input_grad"] = problem.shape
    values = bind("linear_scan_vjp", problem, arrays, wanted)

    come, first = moved.get("state_grad"), None
    if "gate" in moved:
        dtype = edge_dtype(arrays["gate"].dtype)
        met = moved["gate"].astype(dtype) * values["input_grad"].astype(dtype)
        met = _linked(met, arrays, problem)
        into = _shifted(met, None, problem.axis, back=not problem.reverse)
        if come is not None:
            into = into + come.astype(dtype)
        come = into.astype(arrays["gate"].dtype)
        if problem.steps > 0:
            at = problem.steps - 1 if problem.reverse else 0
            first = jax.lax.slice_in_dim(met, at, at + 1, axis=problem.axis)
    out = bind(
        "linear_scan_vjp",
        problem,
        {
            "gate": arrays["gate"],
            "resets": arrays.get("resets"),
            "state_grad": come,
            "final_grad": moved.get("final_grad"),
        },
        {name: problem.edge if name == "initial_grad" else problem.shape for name, _ in results},
    )
    if first is not None and "initial_grad" in out:
        out["initial_grad"] = out["initial_grad"] + first
    return (
        [summed(values[name], shape) for name, shape in results],
        [summed(out[name], shape) for name, shape in results],
    )


def jvp_of(composed, arrays, moved):
    """jax.jvp of a function of arrays by name, in those that have tangents in `moved`."""
    return jax.jvp(
        lambda *values: composed({**arrays, **dict(zip(moved, values))}),
        tuple(arrays[name] for name in moved),
        tuple(moved.values()),
    )


def _before(arrays, problem: Problem, dtype):
    """The state before every step."""
    state = jnp.broadcast_to(arrays["state"], problem.shape).astype(dtype)
    first = arrays.get("initial_state")
    return _shifted(state, first, problem.axis, back=problem.reverse)


def _shifted(x, first, axis, *, back):
    """x one step later in time, or earlier, with `first`, unless it is None, where nothing comes
    in. By padding, which leaves arrays split over devices as they are."""
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


def _linked(x, arrays, problem: Problem):
    """x, and 0 at steps that are cut from the one before them in the scan."""
    x = jnp.broadcast_to(x, problem.shape)
    cut = arrays.get("resets")
    if cut is None:
        return x
    # A reverse scan is cut by the mark of the step after, or behind the last.
    more = cut.shape[problem.axis] > problem.steps
    if more:
        first = 1 if problem.reverse else 0
        cut = jax.lax.slice_in_dim(cut, first, first + problem.steps, axis=problem.axis)
    elif problem.reverse:
        cut = _shifted(cut.astype(np.int8), None, problem.axis, back=True) != 0
    cut = placed_as(jnp.broadcast_to(cut, problem.shape), x)
    return jnp.where(cut, jnp.zeros_like(x), x)


def summed(x, shape):
    """x summed over the axes along which something of this shape broadcasts."""
    axes = tuple(i for i, (n, m) in enumerate(zip(x.shape, shape)) if n != m)
    return jnp.sum(x, axes, keepdims=True) if axes else x


# ---- transposes ----------------------------------------------------------------------------------


def _scan_transpose(cts, gate, *args, **params):
    if ad.is_undefined_primal(gate):
        raise NotImplementedError("scanrec: linear_scan is not linear in its gate")
    return _tangent_transpose(cts, gate, *args, **params)


def _tangent_transpose(cts, *args, problem, operands, results):
    """Of the scan, too, which is linear in input and initial state."""
    gradient = {**{name: _GRADIENTS[t] for name, t in _TANGENTS.items()}, **_GRADIENTS}
    return transpose("linear_scan_vjp", gradient, _kept, cts, args, problem, operands, results)


def _adjoint_transpose(cts, *args, problem, operands, results):
    """A tangent has a place at every step; a cotangent that broadcast receives the sum."""
    tangent = {gradient: name for name, gradient in _GRADIENTS.items()}
    full = {"state_tangent": problem.shape, "final_tangent": problem.edge}
    return transpose("linear_scan_jvp", tangent, _kept, cts, args, problem, operands, results, full)


def _kept(wanted, given):
    """What a transpose reads of what the call itself read."""
    meets_states = "gate_grad" in wanted or "gate_tangent" in given
    return ("gate", "resets", *(STATES if meets_states else ()))


def transpose(into, names, kept, cts, args, problem, operands, results, full=None):
    """Of a call that is linear in some operands: calls `into`, among whose operands are our
    results, and among whose results are those operands, both under `names`. These have the shapes
    of the operands, or what `full` says."""
    arrays = dict(zip(operands, args))
    unknown = {name: v.aval for name, v in arrays.items() if ad.is_undefined_primal(v)}
    given = {names[name]: ct for (name, _), ct in zip(results, cts) if not isinstance(ct, ad.Zero)}
    if not given:
        return [ad.Zero(unknown[n]) if n in unknown else None for n in operands]
    wanted = {
        names[n]: aval.shape if full is None else full[names[n]] for n, aval in unknown.items()
    }
    known = {name: arrays[name] for name in kept(wanted, given) if name in arrays}
    out = bind(into, problem, {**known, **given}, wanted)
    return [
        placed_as(summed(out[names[n]], unknown[n].shape), unknown[n]) if n in unknown else None
        for n in operands
    ]


for _call, _jvp, _back in (
    ("linear_scan", _scan_jvp, _scan_transpose),
    ("linear_scan_jvp", _tangent_jvp, _tangent_transpose),
    ("linear_scan_vjp", _adjoint_jvp, _adjoint_transpose),
):
    ad.primitive_jvps[PRIMITIVES[_call]] = _jvp
    ad.primitive_transposes[PRIMITIVES[_call]] = _back

# SPDX-License-Identifier: BSD-3-Clause
"""How gated scans differentiate, QRNN pooling and linear scans of logarithms. The value and its
adjoint are fused kernels. The tangent is composed of activations and the tangent of a scan, and is
a primitive for the sake of its transpose, which is the fused adjoint:

========= ============================= ===============
primitive its tangent                   its transpose
========= ============================= ===============
value     tangent
tangent   that of the composed value's  adjoint
adjoint   that of the composed value's  tangent
========= ============================= ===============

Where only tangents or cotangents vary, in which the last two are linear, each is its own tangent.

Tangent and adjoint read the states that the value kept, or with ``problem.recompute`` checkpoints,
of which up to 128 steps there are none. They follow from the pre-activations, which is where the
composed functions take them from: tangents of the kept ones are dropped. Only gradients of the
forget and the output gate depend on states. Without these none are kept, and the kernel of the
adjoint gets a number in their place.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax.interpreters import ad, mlir

from .._native import GATED, GATES, LOG_GATE, LOG_INPUT, checkpoint_shape
from ._primitives import PRIMITIVES, Problem, bind, edge_dtype, lower, on_gpu
from ._rules import jvp_of, nonzero, summed, transpose
from ._sharding import spec_of, varying_alike

__all__ = ["MEET_STATES", "gates_of", "keeps_states", "without_unread_input"]

_TANGENTS = {name: f"{name}_tangent" for name in ("pre", *GATES, "output")}
_TANGENTS |= {"initial_state": "initial_tangent", "final_state": "final_tangent"}
_GRADIENTS = {tangent: f"{tangent.removesuffix('_tangent')}_grad" for tangent in _TANGENTS.values()}
_READ = ("pre", *GATED, "checkpoints")
_KEPT = ("state", "checkpoints")
#: What the tangent and the adjoint are linear in.
_LINEAR = {*_TANGENTS.values(), *_GRADIENTS.values()}
#: Operands whose tangents and gradients depend on states, that of a linear scan included.
MEET_STATES = {"gate", "pre", "forget_gate", "output_gate"}


# ---- composed of other primitives ----------------------------------------------------------------


def _pre_activations(arrays, problem):
    """Candidate, forget gate, and the gates that there are besides, in the type of the states."""
    if "pre" in arrays:
        stack, axis = arrays["pre"], problem.stack
        parts = [jax.lax.index_in_dim(stack, i, axis, False) for i in range(stack.shape[axis])]
    else:
        parts = [arrays[name] for name in GATES if name in arrays]
    dtype = edge_dtype(parts[0].dtype)
    return parts[0].dtype, [part.astype(dtype) for part in parts]


def gates_of(arrays, problem):
    """The gates of the scan, with extent 1 in time at the least where all of them broadcast."""
    return _steps(arrays, problem)[0]


def keeps_states(arrays, problem):
    """Whether there are states that are not the outputs."""
    return "output_gate" in arrays or ("pre" in arrays and arrays["pre"].shape[problem.stack] > 2)


def without_unread_input(arrays, problem, moved):
    """The arrays, with a number for candidate and input gate if neither a tangent in `moved` nor
    its transpose reads them. Types that say how arrays are split would not fit a number."""
    linear = problem.cell and not problem.cell & LOG_INPUT  # in the candidate
    if "candidate" not in arrays or not (linear or moved.keys() == {"initial_state"}):
        return arrays
    if any(spec_of(getattr(x, "aval", None)) is not None for x in arrays.values()):
        return arrays
    number = _number(problem, arrays["candidate"].dtype)
    unread = {name: number for name in ("candidate", "input_gate") if name in arrays}
    return varying_alike({**arrays, **unread})


def _steps(arrays, problem):
    """(gate, input, output gate or None) of the scan."""
    _, (candidate, forget, *others) = _pre_activations(arrays, problem)
    if problem.cell:
        gate = jnp.exp(forget) if problem.cell & LOG_GATE else forget
        return gate, jnp.exp(candidate) if problem.cell & LOG_INPUT else candidate, None
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


def _value(arrays, problem, results):
    """The value without a kernel of its own."""
    dtype, _ = _pre_activations(arrays, problem)
    gate, input, output = _steps(arrays, problem)
    scanned = bind(
        "linear_scan",
        _plain(problem),
        {**_edges(arrays), "gate": gate, "input": input},
        {"state": problem.shape, "final_state": problem.edge},
    )
    state = scanned["state"]
    out = {
        "state": state.astype(dtype),
        "output": (state if output is None else output * state).astype(dtype),
        "final_state": scanned["final_state"],
    }
    return [out[name] for name, _ in results]


def _tangent(arrays, problem, results):
    """The tangent at the states that were kept."""
    dtype, _ = _pre_activations(arrays, problem)
    moved = [n for n in ("pre", *GATES) if _TANGENTS[n] in arrays]
    state = None
    if not MEET_STATES.isdisjoint(moved):
        state = _states(arrays, problem).astype(edge_dtype(dtype))
    if moved:
        at = [_alike(arrays[n], arrays[_TANGENTS[n]]) for n in moved]
        (gate, _, output), (gate_t, input_t, output_t) = jax.jvp(
            lambda *pre: _steps({**arrays, **dict(zip(moved, pre))}, problem),
            tuple(at),
            tuple(_alike(arrays[_TANGENTS[n]], arrays[n]) for n in moved),
        )
        if state is None:  # these are 0
            gate_t = output_t = None
    else:
        gate, _, output = _steps(arrays, problem)
        gate_t = input_t = output_t = None
    if problem.cell & LOG_GATE:
        out = _tangent_of_logarithms(arrays, problem, gate, state, gate_t, input_t)
        return [out[name].astype(dtype) if "output" in name else out[name] for name, _ in results]
    out = bind(
        "linear_scan_jvp",
        _plain(problem),
        {
            **_edges(arrays), "gate": gate, "state": state,
            "gate_tangent": gate_t, "input_tangent": input_t,
            "initial_tangent": arrays.get("initial_tangent"),
        },
        {"state_tangent": problem.shape, "final_tangent": problem.edge},
    )  # fmt: skip
    moves = out["state_tangent"]
    if output is not None:
        moves = output * moves
        if output_t is not None:
            moves = moves + output_t * state
    out["output_tangent"] = moves.astype(dtype)
    return [out[name] for name, _ in results]


def _tangent_of_logarithms(arrays, problem, gate, state, gate_t, input_t):
    """The tangent by a scan of the same gates, so that it keeps what their logarithms hold."""
    if gate_t is not None:  # times the state before a step: the tangent of a scan of gates 0
        tangent = bind(
            "linear_scan_jvp",
            _plain(problem),
            {
                **_edges(arrays), "gate": jnp.zeros_like(gate), "state": state,
                "gate_tangent": gate_t, "input_tangent": input_t,
            },
            {"state_tangent": problem.shape},
        )["state_tangent"]  # fmt: skip
    else:
        tangent = _number(problem, gate.dtype) if input_t is None else input_t
    given = {
        "candidate": tangent,
        "forget_gate": arrays["forget_gate"].astype(tangent.dtype),
        "initial_state": arrays.get("initial_tangent"),
        "resets": arrays.get("resets"),
    }
    out = bind(
        "gated_scan",
        _plain(problem)._replace(cell=LOG_GATE),
        varying_alike({name: x for name, x in given.items() if x is not None}),
        {"output": problem.shape, "final_state": problem.edge},
    )
    return {"output_tangent": out["output"], "final_tangent": out["final_state"]}


def _adjoint(arrays, problem, results):
    """The adjoint as JAX has it of the composed value."""
    wanted = dict(results)
    names = [n for n in ("pre", *GATES, "initial_state") if _GRADIENTS[_TANGENTS[n]] in wanted]
    shapes = {n: wanted[_GRADIENTS[_TANGENTS[n]]] for n in names}
    given = [n for n in ("output", "final_state") if _GRADIENTS[_TANGENTS[n]] in arrays]

    def value(*differentiated):
        return _value(
            {**arrays, **dict(zip(names, differentiated))}, problem, [(n, None) for n in given]
        )

    arrays = _with_initial_state(arrays, problem)
    at = [jnp.broadcast_to(arrays[name], shapes[name]) for name in names]
    out, pull = jax.vjp(value, *at)
    cotangents = [
        jnp.broadcast_to(arrays[_GRADIENTS[_TANGENTS[n]]], x.shape) for n, x in zip(given, out)
    ]
    gradients = dict(zip(names, pull(cotangents)))
    by_result = {_GRADIENTS[_TANGENTS[n]]: summed(g, shapes[n]) for n, g in gradients.items()}
    return [by_result[name] for name, _ in results]


def _states(arrays, problem):
    """The states that were kept, or those of another call, which are the same."""
    if not problem.recompute:
        return arrays["state"]
    name = "state" if keeps_states(arrays, problem) else "output"
    read = {n: x for n, x in arrays.items() if n in ("pre", *GATED)}
    return bind("gated_scan", problem, read, {name: problem.shape})[name]


def _with_initial_state(arrays, problem):
    """The arrays, with a state of zeros where a part of split time leaves it out: without the
    states derivatives depend on its tangent alone."""
    dtype = edge_dtype(_pre_activations(arrays, problem)[0])
    return varying_alike({"initial_state": jnp.zeros(problem.edge, dtype), **arrays})


def _number(problem, dtype):
    """A zero that broadcasts to the shape of the problem."""
    return jnp.zeros((1,) * len(problem.shape), dtype)


def _plain(problem):
    """The problem of the scan that it is composed of."""
    return Problem(problem.shape, problem.axis, problem.reverse)


def _edges(arrays):
    """What a composed scan takes over as it is."""
    return {n: arrays[n] for n in ("initial_state", "resets") if n in arrays}


def _alike(x, other):
    return jnp.broadcast_to(x, jnp.broadcast_shapes(x.shape, other.shape))


# ---- the rules -----------------------------------------------------------------------------------


def _value_jvp(primals, tangents, *, problem, operands, results):
    arrays = dict(zip(operands, primals))
    moved = nonzero(operands, tangents)
    wanted = dict(results)
    meets_states = not MEET_STATES.isdisjoint(moved)
    if meets_states and problem.recompute:
        if problem.steps > 128:
            wanted["checkpoints"] = checkpoint_shape(problem.shape, problem.axis)
    elif meets_states:  # which are the outputs where there is no output gate
        wanted["state" if keeps_states(arrays, problem) else "output"] = problem.shape
    values = bind("gated_scan", problem, arrays, wanted)
    kept = {}
    if not meets_states:
        problem = problem._replace(recompute=False)
        arrays = without_unread_input(arrays, problem, moved)
    elif problem.recompute:
        kept = {"checkpoints": values.get("checkpoints")}
    else:
        kept = {"state": values.get("state", values.get("output"))}
    out = bind(
        "gated_scan_jvp",
        problem,
        {
            **arrays,
            **kept,
            **{_TANGENTS[name]: t for name, t in moved.items()},
        },
        {_TANGENTS[name]: shape for name, shape in results if name not in _KEPT},
    )
    return [values[name] for name, _ in results], [
        ad.Zero(values[name].aval.to_tangent_aval()) if name in _KEPT else out[_TANGENTS[name]]
        for name, _ in results
    ]


def _composed_jvp(call, composed, primals, tangents, *, problem, operands, results):
    def of_all_but_states(arrays):
        return composed(arrays, problem, results)

    arrays, moved = dict(zip(operands, primals)), nonzero(operands, tangents)
    for name in _KEPT:
        moved.pop(name, None)
    if moved.keys() <= _LINEAR:  # a tangent of the call is the call itself
        known = {name: x for name, x in arrays.items() if name not in _LINEAR}
        both = [bind(call, problem, {**known, **x}, dict(results)) for x in (arrays, moved)]
        return tuple([out[name] for name, _ in results] for out in both)
    return jvp_of(of_all_but_states, arrays, moved)


def _tangent_anew(arrays, problem, results):
    """The tangent of the composed value, states and all."""
    moved = {n: arrays[t] for n, t in _TANGENTS.items() if t in arrays}
    arrays = _with_initial_state(arrays, problem)
    at = {name: _alike(arrays[name], tangent) for name, tangent in moved.items()}
    names = {tangent: name for name, tangent in _TANGENTS.items()}
    return jax.jvp(
        lambda *values: _value(
            {**arrays, **dict(zip(moved, values))}, problem, [(names[t], None) for t, _ in results]
        ),
        tuple(at.values()),
        tuple(_alike(t, at[n]) for n, t in moved.items()),
    )[1]


def _tangent_transpose(cts, *args, **params):
    return transpose("gated_scan_vjp", _GRADIENTS, lambda *_: _READ, cts, args, **params)


def _adjoint_transpose(cts, *args, problem, **params):
    names = {gradient: tangent for tangent, gradient in _GRADIENTS.items()}
    full = {"output_tangent": problem.shape, "final_tangent": problem.edge}
    return transpose(
        "gated_scan_jvp", names, lambda *_: _READ, cts, args, problem, full=full, **params
    )


def _run_composed(*args, problem, operands, results):
    return _tangent(dict(zip(operands, args)), problem, results)


def _run_without_states(*args, problem, operands, results):
    """The kernel takes any states where no gradient depends on them."""
    arrays = {**dict(zip(operands, args)), "state": _number(problem, args[0].dtype)}
    out = bind("gated_scan_vjp", problem, varying_alike(arrays), dict(results))
    return [out[name] for name, _ in results]


def _lower_adjoint(ctx, *args, **params):
    """To the kernel, which reads states or recomputes them."""
    if "state" in params["operands"] or params["problem"].recompute:
        return lower("gated_scan_vjp", ctx, *args, **params)
    return mlir.lower_fun(_run_without_states, multiple_results=True)(ctx, *args, **params)


ad.primitive_jvps[PRIMITIVES["gated_scan"]] = _value_jvp
for _call, _composed in (("gated_scan_jvp", _tangent_anew), ("gated_scan_vjp", _adjoint)):
    ad.primitive_jvps[PRIMITIVES[_call]] = partial(_composed_jvp, _call, _composed)
ad.primitive_transposes[PRIMITIVES["gated_scan_jvp"]] = _tangent_transpose
ad.primitive_transposes[PRIMITIVES["gated_scan_vjp"]] = _adjoint_transpose
mlir.register_lowering(PRIMITIVES["gated_scan_vjp"], _lower_adjoint, platform="cpu")
mlir.register_lowering(PRIMITIVES["gated_scan_vjp"], on_gpu(_lower_adjoint), platform="cuda")
mlir.register_lowering(
    PRIMITIVES["gated_scan_jvp"], mlir.lower_fun(_run_composed, multiple_results=True)
)

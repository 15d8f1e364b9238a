# SPDX-License-Identifier: BSD-3-Clause
"""How selective scans differentiate. The value and its adjoint are fused kernels. The tangent is
composed of elementwise operations and scans, and is a primitive for the sake of its transpose,
which is the fused adjoint:

========= ============================= ===============
primitive its tangent                   its transpose
========= ============================= ===============
value     tangent
tangent   that of the composed value's  adjoint
adjoint   that of the composed value's  tangent
========= ============================= ===============

Composed functions have arrays of (batch, time, channel, state). The states that the value keeps for
the adjoint they have no use for: those follow from the rest, and tangents of them are dropped.
Gradients are transposes, without conjugates; outputs are real parts of complex sums.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import ad, batching, mlir

from ._arrays import of_rank
from ._primitives import Problem, bind
from ._rules import jvp_of, nonzero
from ._selective_primitives import (
    GRADIENTS,
    READ,
    SELECTIVE_PRIMITIVES,
    TANGENTS,
    bind_selective,
    checkpoints_of,
)
from ._selective_sharding import over_devices
from ._sharding import placed_as

__all__: list[str] = []

_KEPT = (*READ, "checkpoints")


# ---- composed of other primitives ----------------------------------------------------------------


def _softplus(x):
    """That of the kernels: x above 20."""
    above = x > 20
    return jnp.where(above, x, jnp.logaddexp(jnp.where(above, 0, x), 0))


def _of_all_channels(mixing, channels, dtype):
    """B or C as (batch or 1, time or 1, channel or 1, state)."""
    is_complex = np.issubdtype(dtype, np.complexfloating)
    if is_complex and not jnp.iscomplexobj(mixing) and mixing.ndim == 4:  # parts, side by side
        pairs = mixing.astype(jnp.finfo(dtype).dtype)
        pairs = pairs.reshape(*pairs.shape[:-1], pairs.shape[-1] // 2, 2)
        mixing = jax.lax.complex(pairs[..., 0], pairs[..., 1])
    mixing = mixing.astype(dtype)
    if mixing.ndim == 2:
        return mixing[None, None]
    batch, steps, groups, states = mixing.shape
    if groups == 1:
        return mixing
    every = (batch, steps, groups, channels // groups, states)
    return jnp.broadcast_to(mixing[..., None, :], every).reshape(batch, steps, channels, states)


def _value(arrays, problem, results):
    """`out` and `final_state`, those of them that are results, without a kernel of their own."""
    u, a = arrays["u"], arrays["a"]
    dtype, (batch, steps, channels) = jnp.finfo(a.dtype).dtype, u.shape  # the real one
    x, step = u.astype(dtype), arrays["delta"].astype(dtype)
    if "delta_bias" in arrays:
        step = step + of_rank(arrays["delta_bias"], 3)
    if problem.softplus:
        step = _softplus(step)
    if "intervals" in arrays:
        step = step * arrays["intervals"][..., None]
    into = (step * x)[..., None].astype(a.dtype) * _of_all_channels(arrays["b"], channels, a.dtype)
    scan = Problem((batch, steps, channels, a.shape[1]), 1, problem.reverse)
    edges = {"initial_state": ("initial_state", 1), "resets": ("resets", -1)}
    scanned = bind(
        "linear_scan",
        scan,
        {
            "gate": jnp.exp(step[..., None].astype(a.dtype) * of_rank(a, 4)),
            "input": into,
            **{n: jnp.expand_dims(arrays[of], at) for n, (of, at) in edges.items() if of in arrays},
        },
        {"state": scan.shape, "final_state": scan.edge},
    )
    out = {}
    if "out" in results:
        y = jnp.sum(scanned["state"] * _of_all_channels(arrays["c"], channels, a.dtype), -1)
        if jnp.iscomplexobj(y):
            y = 2 * y.real
        if "skip" in arrays:
            y = y + of_rank(arrays["skip"], 3) * x
        if "z" in arrays:
            y = y * jax.nn.silu(arrays["z"].astype(dtype))
        out["out"] = y.astype(u.dtype)
    if "final_state" in results:
        out["final_state"] = jax.lax.squeeze(scanned["final_state"], (1,))
    return [out[name] for name in results]


def _tangent(arrays, problem, results):
    moved = {name: arrays[t] for name, t in TANGENTS.items() if t in arrays}
    values = [name for name, t in TANGENTS.items() if t in results]
    of = lambda given: _value(given, problem, values)
    out = dict(zip(values, jvp_of(of, _read(arrays), moved)[1]))
    names = {tangent: name for name, tangent in TANGENTS.items()}
    return [out[names[t]] for t in results]


def _adjoint(arrays, problem, results):
    names = {gradient: name for name, gradient in GRADIENTS.items()}
    moved = [names[g] for g in results]
    values = [name for name in ("out", "final_state") if GRADIENTS[name] in arrays]
    read = _read(arrays)
    _, pull = jax.vjp(
        lambda *x: _value({**read, **dict(zip(moved, x))}, problem, values),
        *(read[name] for name in moved),
    )
    return list(pull([arrays[GRADIENTS[name]] for name in values]))


def _read(arrays):
    return {name: arrays[name] for name in READ if name in arrays}


# ---- the rules -----------------------------------------------------------------------------------


def _value_jvp(primals, tangents, *, problem, operands, results):
    arrays = dict(zip(operands, primals))
    moved = nonzero(operands, tangents)
    kept = ("checkpoints",) if checkpoints_of(arrays["u"].shape[1]) > 0 else ()
    values = bind_selective("selective_scan", problem, arrays, {*results, *kept})
    out = bind_selective(
        "selective_scan_jvp",
        problem,
        {
            **arrays,
            **{name: values[name] for name in kept},
            **{TANGENTS[name]: t for name, t in moved.items()},
        },
        [TANGENTS[name] for name in results if name != "checkpoints"],
    )
    return [values[name] for name in results], [
        ad.Zero(values[name].aval.to_tangent_aval())
        if name == "checkpoints"
        else out[TANGENTS[name]]
        for name in results
    ]


def _composed_jvp(composed, primals, tangents, *, problem, operands, results):
    moved = nonzero(operands, tangents)
    moved.pop("checkpoints", None)
    return jvp_of(
        lambda arrays: composed(arrays, problem, results), dict(zip(operands, primals)), moved
    )


def _transpose(into, names, cts, *args, problem, operands, results):
    """Of a call that is linear in some operands: calls `into`, among whose operands are our
    results, and among whose results are those operands, both under `names`."""
    arrays = dict(zip(operands, args))
    unknown = {name: x.aval for name, x in arrays.items() if ad.is_undefined_primal(x)}
    given = {names[name]: ct for name, ct in zip(results, cts) if not isinstance(ct, ad.Zero)}
    if not given:
        return [ad.Zero(unknown[name]) if name in unknown else None for name in operands]
    known = {name: arrays[name] for name in _KEPT if name in arrays}
    out = bind_selective(into, problem, {**known, **given}, [names[name] for name in unknown])
    return [
        placed_as(out[names[name]], unknown[name]) if name in unknown else None for name in operands
    ]


def _run_tangent(*args, problem, operands, results):
    return _tangent(dict(zip(operands, args)), problem, results)


def _lower_tangent(ctx, *args, problem, operands, results):
    run = partial(_run_tangent, problem=problem, operands=operands, results=results)
    shapes = {name: aval.shape for name, aval in zip(results, ctx.avals_out)}
    parted = over_devices(run, dict(zip(operands, ctx.avals_in)), shapes)
    return mlir.lower_fun(parted or run, multiple_results=True)(ctx, *args)


def _batch_tangent(args, dims, **params):
    """As its parts are: what is shared is computed once."""
    out = jax.vmap(partial(_run_tangent, **params), in_axes=dims)(*args)
    return out, [0] * len(out)


_scan, _back, _forth = (
    SELECTIVE_PRIMITIVES[f"selective_scan{kind}"] for kind in ("", "_vjp", "_jvp")
)
_gradient_of = {TANGENTS[name]: GRADIENTS[name] for name in TANGENTS}
_tangent_of = {gradient: tangent for tangent, gradient in _gradient_of.items()}
ad.primitive_jvps[_scan] = _value_jvp
ad.primitive_jvps[_forth] = partial(_composed_jvp, _tangent)
ad.primitive_jvps[_back] = partial(_composed_jvp, _adjoint)
ad.primitive_transposes[_forth] = partial(_transpose, "selective_scan_vjp", _gradient_of)
ad.primitive_transposes[_back] = partial(_transpose, "selective_scan_jvp", _tangent_of)
batching.primitive_batchers[_forth] = _batch_tangent
mlir.register_lowering(_forth, _lower_tangent)

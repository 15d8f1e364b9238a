# SPDX-License-Identifier: BSD-3-Clause
"""The primitives of selective scans: the scan and its adjoint, one fused kernel each, and the
tangent, which is composed.

Operands have the axes of the C interface: sequences (batch, time, channel); b and c (batch, time,
group, state), or (channel, state) the same at all steps; intervals (batch, time); states (batch,
channel, state); resets with extent 1 wherever they broadcast, perhaps with one step more. Which
there are is said by ``operands`` and ``results``, tuples of names: what is absent is neither read
nor written. The type of ``a`` is what is computed in; where it is complex, b and c of every step
may be real, with the parts of twice as many numbers, side by side. Gradients are those of JAX,
without conjugates. Batching is done by axes that there are. How they differentiate is in
``_selective_rules.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import mlir

from .._native import SELECTIVE
from ._primitives import (
    TARGET_VERSION,
    make_primitive,
    on_gpu,
    register_targets,
    used_results,
    with_fewer,
)
from ._selective_sharding import axes_of, is_split, over_devices, specs_of_results

__all__ = [
    *("GRADIENTS", "OPERANDS", "READ", "RESULTS", "SELECTIVE_PRIMITIVES", "TANGENTS"),
    *("SelectiveProblem", "bind_selective", "checkpoints_of"),
]

#: Steps between the states that the adjoint starts from.
_INTERVAL = 128

#: What the scan reads; its tangent and adjoint do, too.
READ = SELECTIVE["selective_scan"][: SELECTIVE["selective_scan"].index("out")]
_MOVED = tuple(name for name in READ if name != "resets")

#: What tangents are called,
TANGENTS = {name: f"{name}_tangent" for name in (*_MOVED, "out")}
TANGENTS |= {"initial_state": "initial_tangent", "final_state": "final_tangent"}
#: and gradients.
GRADIENTS = {name: f"{tangent.removesuffix('tangent')}grad" for name, tangent in TANGENTS.items()}
_OF = {derived: name for names in (TANGENTS, GRADIENTS) for name, derived in names.items()}

#: The names of operands and results of every primitive, in their order: those of the C interface.
OPERANDS = {
    "selective_scan": READ,
    "selective_scan_vjp": (*READ, "checkpoints", "out_grad", "final_grad"),
    "selective_scan_jvp": (*READ, "checkpoints", *(TANGENTS[name] for name in _MOVED)),
}
RESULTS = {
    "selective_scan": ("out", "final_state", "checkpoints"),
    "selective_scan_vjp": tuple(GRADIENTS[name] for name in _MOVED),
    "selective_scan_jvp": ("out_tangent", "final_tangent"),
}


class SelectiveProblem(NamedTuple):
    """Options of a call."""

    softplus: bool
    reverse: bool


def checkpoints_of(steps: int) -> int:
    """How many states the adjoint has kept for it, per channel and state."""
    return max(steps - 1, 0) // _INTERVAL


def bind_selective(
    call: str, problem: SelectiveProblem, arrays: Mapping[str, Any], wanted: Sequence[str]
) -> dict[str, Any]:
    """Binds the primitive of a call to those arrays that are there, and returns what is wanted, by
    name."""
    operands = tuple(name for name in OPERANDS[call] if arrays.get(name) is not None)
    results = tuple(name for name in RESULTS[call] if name in wanted)
    if not results:
        return {}
    out = SELECTIVE_PRIMITIVES[call].bind(
        *(arrays[name] for name in operands), problem=problem, operands=operands, results=results
    )
    return dict(zip(results, out))


# ---- types ---------------------------------------------------------------------------------------


def _result(name, avals):
    """(shape, element type) of a result, from the operands."""
    of = _OF.get(name, name)
    (batch, steps, channels), (_, states) = avals["u"].shape, avals["a"].shape
    if of in ("initial_state", "final_state"):
        return (batch, channels, states), avals["a"].dtype
    if of == "checkpoints":  # as kernels have them
        return (batch, checkpoints_of(steps), states, channels), avals["a"].dtype
    like = avals["u" if of == "out" else of]
    return like.shape, like.dtype


def _abstract(call, *avals, problem, operands, results):
    by_name = dict(zip(operands, avals))
    shapes = {name: _result(name, by_name) for name in results}
    specs = specs_of_results(by_name, {name: shape for name, (shape, _) in shapes.items()})
    out = []
    for (shape, dtype), sharding in zip(shapes.values(), specs):
        split = {} if sharding is None else {"sharding": sharding}
        out.append(avals[0].update(shape=shape, dtype=dtype, weak_type=False, **split))
    return out


# ---- programs ------------------------------------------------------------------------------------


def _on_parts(call, ctx, problem, operands, results):
    """The call of every device, or None for one device."""
    by_name = dict(zip(operands, ctx.avals_in))
    shapes = {name: aval.shape for name, aval in zip(results, ctx.avals_out)}
    bind = partial(
        SELECTIVE_PRIMITIVES[call].bind, problem=problem, operands=operands, results=results
    )
    return over_devices(bind, by_name, shapes)


def _mask(names, there):
    return np.int64(sum(1 << i for i, name in enumerate(names) if name in there))


def _lower(call, ctx, *args, problem, operands, results):
    parted = _on_parts(call, ctx, problem, operands, results)
    if parted is not None:
        return mlir.lower_fun(parted, multiple_results=True)(ctx, *args)
    rule = jax.ffi.ffi_lowering(f"scanrec_{call}_v{TARGET_VERSION}")
    if call == "selective_scan_vjp":  # the kernels' gradients of complex numbers are conjugated
        kept = [name != GRADIENTS["final_state"] for name in operands]
        args = [x if k else _conjugated(ctx, x, of) for x, of, k in zip(args, ctx.avals_in, kept)]
    out = rule(
        ctx,
        *args,
        **problem._asdict(),
        operands=_mask(OPERANDS[call], operands),
        results=_mask(RESULTS[call], results),
    )
    if call == "selective_scan_vjp":
        out = [_conjugated(ctx, *x) for x in zip(out, ctx.avals_out)]
    return out


def _conjugated(ctx, value, aval):
    """A value of a program, conjugated if it is one of complex numbers."""
    if not np.issubdtype(aval.dtype, np.complexfloating):
        return value
    conjugate = mlir.lower_fun(jax.lax.conj, multiple_results=False)
    (out,) = conjugate(ctx.replace(primitive=None, avals_in=[aval], avals_out=[aval]), value)
    return out


def _eliminate(call, used, equation):
    """Results that nobody uses are not computed, and what only they need is not read."""
    if not any(used):
        return [False] * len(equation.invars), None
    only_out = {"skip", "z"} if call == "selective_scan" else set()
    without = set() if "out" in used_results(equation, used) else only_out
    kept = [name not in without for name in equation.params["operands"]]
    return with_fewer(equation, kept, used)


# ---- batching ------------------------------------------------------------------------------------


def _batch(call, args, dims, *, problem, operands, results):
    """More sequences where weights are shared by all; otherwise more channels, each with weights of
    its own."""
    size = next(a.shape[d] for a, d in zip(args, dims) if d is not None)
    arrays = {
        name: a if d is None else jnp.moveaxis(a, d, 0) for name, a, d in zip(operands, args, dims)
    }
    batched = {name for name, d in zip(operands, dims) if d is not None}
    if any(is_split(x) for x in arrays.values()):
        return _one_by_one(call, arrays, batched, problem, results)
    ranks = {name: x.ndim - (name in batched) for name, x in arrays.items()}
    axes = {name: axes_of(_OF.get(name, name), rank) for name, rank in ranks.items()}
    # A gradient has the axes of what it is of.
    axes |= {name: axes.get(_OF.get(name)) or axes_of(_OF.get(name, name), 0) for name in results}
    with_weights = any("batch" not in axes[name] for name in (*batched, *results))
    places = {name: _place(of, with_weights) for name, of in axes.items()}
    if any(places[name] is None for name in (*batched, *results)):  # intervals beside weights
        return _one_by_one(call, arrays, batched, problem, results)
    if "resets" in batched:  # where they broadcast, each to its own
        arrays["resets"] = _spread(arrays, places["resets"] + 1, "u" in batched)
    folded = {
        name: _folded(name, x, name in batched, places[name], size) for name, x in arrays.items()
    }
    out = bind_selective(call, problem, folded, results)
    return [_unfolded(out[name], places[name], size) for name in results], [0] * len(results)


def _place(axes, with_weights):
    """The axis that a batch goes into: the one of sequences, or of channels or their groups. None:
    there is none."""
    names = ("channel", "group") if with_weights else ("batch",)
    return next((i for i, name in enumerate(axes) if name in names), None)


def _spread(arrays, axis, u_batched):
    """Batched marks with the extent of a batched `u` along an axis."""
    marks, extent = arrays["resets"], arrays["u"].shape[axis if u_batched else axis - 1]
    return jnp.broadcast_to(marks, (*marks.shape[:axis], extent, *marks.shape[axis + 1 :]))


def _folded(name, x, is_batched, place, size):
    if place is None or (not is_batched and name == "resets" and x.shape[place] == 1):
        return x
    if not is_batched:
        x = jnp.broadcast_to(x, (size, *x.shape))
    x = jnp.moveaxis(x, 0, place)
    return x.reshape(*x.shape[:place], -1, *x.shape[place + 2 :])


def _unfolded(x, place, size):
    shape = (*x.shape[:place], size, x.shape[place] // size, *x.shape[place + 1 :])
    return jnp.moveaxis(x.reshape(shape), place, 0)


def _one_by_one(call, arrays, batched, problem, results):
    """Without axes that change: for arrays whose types say how they are split over devices, and for
    intervals beside weights, of which channels have none of their own."""

    def one(moved):
        return tuple(bind_selective(call, problem, {**arrays, **moved}, results).values())

    out = jax.lax.map(one, {name: arrays[name] for name in batched})
    return list(out), [0] * len(results)


SELECTIVE_PRIMITIVES = {
    _call: make_primitive(_call, *(partial(f, _call) for f in (_abstract, _batch, _eliminate)))
    for _call in OPERANDS
}
register_targets(SELECTIVE)
for _call in SELECTIVE:
    _primitive, _rule = SELECTIVE_PRIMITIVES[_call], partial(_lower, _call)
    mlir.register_lowering(_primitive, _rule, platform="cpu")
    mlir.register_lowering(_primitive, on_gpu(_rule), platform="cuda")

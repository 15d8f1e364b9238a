# SPDX-License-Identifier: BSD-3-Clause
"""Time over several devices: every one has a part of the steps, and knows the state before it from
what the parts before do to a state::

    part k takes a state x to a_k x + u_k      a_k: the product of its gates      u_k: where it ends
    from 0

That is one small message per sequence and device, by XLA's collectives. The maps of parts are a
linear recurrence again, which the scan itself walks. How it differentiates:

======== ============================ =====================================================
value    states from the state before x = scan(h)
tangent  two terms, linear            tangent(gate, input; from 0) + tangent(from dh alone)
gradient the transpose of those       where the second ends from 0, a message, one adjoint
======== ============================ =====================================================

so a gradient reads what an adjoint reads, and the gates and cotangents once more, which become the
message from the right.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from .._arguments import refuse
from .._native import LOG_GATE
from ._gated_rules import MEET_STATES, gates_of, keeps_states, without_unread_input
from ._primitives import Problem, bind, edge_dtype
from ._sharding import is_replicated, split_over_time, varying_alike

__all__ = ["bind_parts"]

#: Bytes that a device may receive beyond what log2(devices) messages would bring before these,
#: which come one after the other, are the shorter way: what 10 us are worth at 100 GB/s.
_MORE_BYTES = 1 << 20

#: What a tangent needs of a call besides its results: none of the primitive's.
_KEPT = ("entering", "products", "cuts")

_TANGENT = {"linear_scan": "linear_scan_jvp", "gated_scan": "gated_scan_jvp"}
_OUTPUT = {"linear_scan": "state", "gated_scan": "output"}


def bind_parts(
    call: str, problem: Problem, arrays: dict[str, Any], wanted: dict[str, Any], axis_name: Any
) -> dict[str, Any]:
    """Binds the primitive of a call; where time is split over devices, as ``axis_name`` or types of
    arrays say, to the part of each."""
    if axis_name is None:
        by_types = split_over_time(call, partial(_on_each, call), arrays, problem, wanted)
        return by_types or bind(call, problem, varying_alike(arrays), wanted)
    return _on_each(call, problem, arrays, wanted, _names(call, axis_name))


def _names(call, axis_name):
    """The axes of the mesh that time is split over, the outermost first."""
    names = tuple(axis_name) if isinstance(axis_name, (tuple, list)) else (axis_name,)
    for name in names:
        try:
            jax.lax.axis_index(name)
        except (NameError, TypeError, KeyError, ValueError):
            refuse(call, "axis_name", "axes of a mesh, within shard_map over them", repr(axis_name))
    return names


def _on_each(call, problem, arrays, wanted, names, behind=None):
    """The call on the part that this device has. ``behind``: a mark behind the last step of all."""
    if problem.recompute:
        refuse("qrnn_pool", "memory", "'store' where time is split over devices", "'recompute'")
    alike = "gate" in arrays and is_replicated(arrays["gate"], names)
    arrays = varying_alike(arrays, names)
    parts = _Parts(names, problem.reverse, jax.lax.psum(1, names))
    if "resets" in arrays:
        arrays["resets"] = parts.with_mark_behind(arrays["resets"], behind, problem)
    operands = tuple(arrays)
    at = _Call(call, problem, operands, tuple(wanted.items()), parts)
    product = _product(at, arrays, alike)
    out = dict(zip(wanted, _walk(at, product, *arrays.values())))
    if "final_state" in out:  # of the whole sequence: everybody's
        out["final_state"] = jax.lax.psum(parts.at_last(out["final_state"]), names)
    return out


class _Parts(NamedTuple):
    """The devices that time is split over, in the order of the scan."""

    names: tuple[Any, ...]
    reverse: bool
    count: int

    @property
    def place(self):
        index = jax.lax.axis_index(self.names)
        return self.count - 1 - index if self.reverse else index

    def at_first(self, x):
        return jnp.where(self.place == 0, x, jnp.zeros_like(x))

    def at_last(self, x):
        return jnp.where(self.place == self.count - 1, x, jnp.zeros_like(x))

    def from_before(self, x, by=1):
        """What the device so many places before has; zeros where there is none. Of several axes
        ppermute counts devices as the mesh has them, not as names and the other collectives do."""
        if len(self.names) > 1:
            index = self.count - 1 - self.place if self.reverse else self.place
            every = jax.lax.all_gather(x, self.names)
            from_ = jnp.clip(index + (by if self.reverse else -by), 0, self.count - 1)
            there = jax.lax.dynamic_index_in_dim(every, from_, keepdims=False)
            return jnp.where(self.place >= by, there, jnp.zeros_like(there))
        order = range(self.count)[:: -1 if self.reverse else 1]
        return jax.lax.ppermute(x, self.names, list(zip(order[:-by], order[by:])))

    def with_mark_behind(self, marks, behind, problem):
        """The marks of a part and that of the step behind it: the first of the next part."""
        axis = problem.axis
        if not self.reverse or marks.shape[axis] != problem.steps or problem.steps == 0:
            return marks
        first = jax.lax.slice_in_dim(marks, 0, 1, axis=axis).astype(np.uint8)
        mark = self.from_before(first)
        if behind is not None:
            mark = jnp.where(self.place == 0, behind.astype(np.uint8), mark)
        return jnp.concatenate([marks, mark != 0], axis)


class _Call(NamedTuple):
    """What is known of a call before its arrays are."""

    name: str
    problem: Problem
    operands: tuple[str, ...]
    results: tuple[tuple[str, tuple[int, ...]], ...]
    parts: _Parts


# ---- maps of parts -------------------------------------------------------------------------------


def _product(at, arrays, alike):
    """The product of a part's gates, with extent 1 in time and wherever gates broadcast. One gate
    for all steps of all devices is raised to their number by each, and has one axis less."""
    problem, marks = at.problem, arrays.get("resets")
    if at.name == "gated_scan":
        gate = gates_of(arrays, problem)
    else:
        gate = arrays["gate"]
    dtype = edge_dtype(gate.dtype)
    if gate.shape[problem.axis] == 1 and marks is None and at.name == "linear_scan":
        power = _finite(jax.lax.integer_pow(gate.astype(dtype), problem.steps))
        return jax.lax.squeeze(power, (problem.axis,)) if alike else power
    extents = [gate.shape] if marks is None else [gate.shape, marks.shape]
    shape = tuple(
        problem.steps if i == problem.axis else max(of[i] for of in extents)
        for i in range(len(problem.shape))
    )
    small = Problem(shape, problem.axis, problem.reverse)
    ones = varying_alike({"x": jnp.ones(small.edge, dtype), "g": gate})["x"]
    if problem.cell & LOG_GATE:  # which is not rounded
        logarithms = arrays["forget_gate"].astype(dtype)
        nothing = varying_alike({"x": jnp.zeros(shape, dtype), "g": gate})["x"]
        out = bind(
            "gated_scan",
            small._replace(cell=LOG_GATE),
            {
                "candidate": nothing, "forget_gate": logarithms, "resets": marks,
                "initial_state": ones,
            },
            {"final_state": small.edge},
        )  # fmt: skip
        return _finite(out["final_state"])
    out = bind(
        "linear_scan_jvp",
        small,
        {"gate": gate, "resets": marks, "initial_tangent": ones},
        {"final_tangent": small.edge},
    )
    return _finite(out["final_tangent"])


def _finite(product):
    """Products that overflow as large numbers: 0 times one is 0, and a part that the state 0 comes
    to ends where it ends from 0."""
    most = jnp.finfo(product.dtype).max
    if jnp.iscomplexobj(product):
        return jax.lax.complex(
            jnp.clip(product.real, -most, most), jnp.clip(product.imag, -most, most)
        )
    return jnp.clip(product, -most, most)


def _cuts(at, arrays, dtype):
    """Whether a part is cut from the one before, or within, as numbers; None: nowhere."""
    marks, problem = arrays.get("resets"), at.problem
    if marks is None or marks.shape[problem.axis] == 0:
        return None
    if problem.reverse and marks.shape[problem.axis] > problem.steps:
        # The first mark cuts the part that comes after this one.
        marks = jax.lax.slice_in_dim(marks, 1, None, axis=problem.axis)
    elif marks.shape[problem.axis] > problem.steps:
        marks = jax.lax.slice_in_dim(marks, 0, problem.steps, axis=problem.axis)
    return jnp.any(marks, problem.axis, keepdims=True).astype(dtype)


def _message(parts, axis, *arrays):
    """One all-gather: the arrays of every device, side by side in time."""
    flat = jnp.concatenate([x.ravel() for x in arrays])
    every, out, at = jax.lax.all_gather(flat, parts.names), [], 0
    for x in arrays:
        one = jax.lax.slice_in_dim(every, at, at + x.size, axis=1)
        one = jnp.moveaxis(one.reshape(parts.count, *x.shape), 0, axis)
        out.append(jax.lax.squeeze(one, (axis + 1,)))
        at += x.size
    return out


class _Maps(NamedTuple):
    """What parts do to the state before them: of this part, or of all; without where they end."""

    product: Any  #: with one axis less where all have the same
    cuts: Any  #: whether a mark cuts a part from the state before it, as numbers; None: nowhere


def _by_doubling(parts, maps, ends):
    """Whether messages that come one after the other are the shorter way."""
    if len(parts.names) > 1:
        return False
    sent = [x for x in (maps.product, maps.cuts, ends) if x is not None and x.ndim == ends.ndim]
    rounds = (parts.count - 1).bit_length() + 1
    return (parts.count - 1 - rounds) * sum(x.nbytes for x in sent) > _MORE_BYTES


def _walked(at, maps, ends):
    """The state before this part, 0 before the first, from the maps of all: the first to the
    last."""
    parts, axis = at.parts, at.problem.axis
    shared = maps.product.ndim < ends.ndim
    arrays = {"gate": jnp.expand_dims(maps.product, axis) if shared else maps.product}
    arrays["input"] = ends
    if maps.cuts is not None:
        marks = maps.cuts != 0
        if parts.reverse:  # which finds the link behind a step
            config = [(int(i == axis), 0, 0) for i in range(marks.ndim)]
            marks = jax.lax.pad(marks, jnp.zeros((), bool), config)
        arrays["resets"] = marks
    problem = Problem(ends.shape, axis, parts.reverse)
    arrays = varying_alike(arrays, parts.names)
    states = bind("linear_scan", problem, arrays, {"state": ends.shape})["state"]
    index = jax.lax.axis_index(parts.names) + (1 if parts.reverse else -1)
    before = jax.lax.dynamic_slice_in_dim(states, jnp.clip(index, 0, parts.count - 1), 1, axis)
    return jnp.where(parts.place == 0, jnp.zeros_like(before), before)


def _doubled(at, maps, ends):
    """The same by log2 of the devices messages: what 1, 2, 4, ... parts up to this one come to."""
    parts, product, cuts = at.parts, maps.product, maps.cuts
    shared = product.ndim < ends.ndim
    if shared:
        product = jnp.expand_dims(product, at.problem.axis)
    by = 1
    while by < parts.count:
        there = parts.place >= by
        kept = product * parts.from_before(ends, by)
        if cuts is not None:
            kept = jnp.where(cuts != 0, jnp.zeros_like(kept), kept)
            cuts = jnp.where(there, cuts + parts.from_before(cuts, by), cuts)
        ends = jnp.where(there, kept + ends, ends)
        if shared:
            product = _finite(product * product)
        else:
            product = jnp.where(there, _finite(product * parts.from_before(product, by)), product)
        by *= 2
    return parts.from_before(ends)


# ---- the call and its tangent --------------------------------------------------------------------


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _walk(at, product, *operands):
    """The results of a part, by which there may be `entering`, the state before it, and the maps of
    all parts."""
    arrays = dict(zip(at.operands, operands))
    parts, problem, initial = at.parts, at.problem, arrays.pop("initial_state", None)
    first = {}
    if initial is not None:
        initial = jnp.broadcast_to(initial, problem.edge)
        first["initial_state"] = parts.at_first(initial)
    ends = bind(at.name, problem, {**arrays, **first}, {"final_state": problem.edge})["final_state"]
    maps = _Maps(product, _cuts(at, arrays, ends.dtype))
    if _by_doubling(parts, maps, ends):
        entering = _doubled(at, maps, ends)
    else:
        sent = [x for x in (*maps, ends) if x is not None and x.ndim == ends.ndim]
        *of_all, ends = _message(parts, problem.axis, *sent)
        cuts = of_all.pop() if maps.cuts is not None else None
        maps = _Maps(*(of_all or (product,)), cuts)
        entering = _walked(at, maps, ends)
    if initial is not None:
        entering = jnp.where(parts.place == 0, initial, entering)
    wanted = {n: shape for n, shape in at.results if n not in _KEPT}
    out = bind(at.name, problem, {**arrays, "initial_state": entering}, wanted)
    out |= {"entering": entering, "products": maps.product, "cuts": maps.cuts}
    return [out[name] for name, _ in at.results]


@partial(_walk.defjvp, symbolic_zeros=True)
def _walk_jvp(at, primals, tangents):
    (product, *operands), (product_t, *_) = primals, tangents
    arrays = dict(zip(at.operands, operands))
    moved = {
        name: t
        for name, t in zip(at.operands, tangents[1:])  # a product follows from the gates
        if not isinstance(t, SymbolicZero) and t.dtype != jax.dtypes.float0
    }
    problem, parts = at.problem, at.parts
    wanted = {**dict(at.results), "entering": problem.edge, "products": ()}
    if "resets" in arrays:
        wanted["cuts"] = ()
    is_gated = at.name == "gated_scan"
    meets_states = not MEET_STATES.isdisjoint(moved)
    if meets_states and is_gated and not keeps_states(arrays, problem):  # the outputs are these
        wanted["output"] = problem.shape
    elif meets_states:
        wanted["state"] = problem.shape
    asked = at._replace(results=tuple(wanted.items()))
    values = dict(zip(wanted, _walk(asked, product, *operands)))

    if is_gated and not meets_states:
        arrays = without_unread_input(arrays, problem, moved)
    known = {n: x for n, x in arrays.items() if n not in ("input", "initial_state")}
    tangent, output = _TANGENT[at.name], f"{_OUTPUT[at.name]}_tangent"
    states = {}
    if meets_states:
        state = values.get("state", values.get("output"))
        states = {"state": state, "initial_state": values["entering"]}
    wanted = {output: problem.shape, "final_tangent": problem.edge}
    initial = moved.pop("initial_state", None)
    if initial is not None:
        initial = jnp.broadcast_to(initial, problem.edge)
        moved["initial"] = parts.at_first(initial)
    own = {f"{name}_tangent": t for name, t in moved.items()}
    here = bind(tangent, problem, {**known, **states, **own}, wanted)
    ends = here["final_tangent"]
    maps = _Maps(values["products"], values.get("cuts"))
    if _by_doubling(parts, _Maps(product, maps.cuts), ends):
        before = _doubled(at, maps, ends)
    else:
        before = _walked(at, maps, *_message(parts, problem.axis, ends))
    through = bind(
        tangent,
        problem,
        {**known, **(states if is_gated else {}), "initial_tangent": before},
        wanted,
    )
    out = {name: here[name] + through[name] for name in wanted}
    moves = {
        _OUTPUT[at.name]: out[output],
        "final_state": out["final_tangent"],
        "entering": before + moved["initial"] if initial is not None else before,
    }
    if not isinstance(product_t, SymbolicZero):
        moves["products"] = product_t
        if product_t.shape != values["products"].shape:
            (moves["products"],) = _message(parts, problem.axis, product_t)
    results = [values[name] for name, _ in at.results]
    return results, [
        moves[name].astype(x.dtype) if name in moves else jnp.zeros_like(x)  # kept, and dropped
        for (name, _), x in zip(at.results, results)
    ]

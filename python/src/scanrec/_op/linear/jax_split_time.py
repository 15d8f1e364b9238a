# SPDX-License-Identifier: BSD-3-Clause
"""Time split over devices in JAX.

Each device has a part of the steps. Composing the maps of the parts before its own gives it its
initial state::

    part k maps the state x before it to the state a_k x + u_k at its end
    a_k    product of its gates
    u_k    its final state from 0

The maps are one small message per sequence and device, by XLA's collectives. They are a linear
recurrence again, and the scan itself runs it. The derivatives are:

======== ============================ =====================================================
value    states from the state before x = scan(h)
tangent  two terms, linear            tangent(gate, input; from 0) + tangent(from dh alone)
gradient the transpose of those       where the second ends from 0, a message, one adjoint
======== ============================ =====================================================

A gradient reads the arrays that an adjoint reads. It reads the gates and cotangents once more, for
the message from the devices after.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from ..._arguments import refuse
from ..._jax.arrays import edge_dtype
from ..._jax.scans import Problem, Scans
from ..._jax.sharding import is_replicated, split_over_time, varying_alike
from ..spec import tangent_of
from .jax_computed import LOG_SCAN
from .jax_rules import LINEAR_SCAN
from .spec import LOG_GATE

__all__ = ["scan_parts"]

#: The latency of a message in bytes: 10 us at 100 GB/s. Doubling sends about log2(devices) messages
#: one after the other. It is used if one all-gather would send this many bytes more.
_MORE_BYTES = 1 << 20

#: Further results of a call that its tangent reads. The primitives do not have these.
_KEPT = ("entering", "products", "cuts")


def scan_parts(
    scan: Scans, problem: Problem, arrays: dict[str, Any], return_final: bool, axis_name: Any
) -> Any:
    """Returns the output of a scan, or (output, final state). If time is split over devices, as
    ``axis_name`` or the types of the arrays say, every device scans its part."""
    output = scan.operation.results[0]
    wanted = {output: problem.shape}
    if return_final:
        wanted["final_state"] = problem.edge
    if axis_name is not None:
        out = _on_each(scan, problem, arrays, wanted, _names(scan.user_call, axis_name))
    else:
        out = split_over_time(scan, partial(_on_each, scan), problem, arrays, wanted)
        out = out or scan.value(problem, varying_alike(arrays), wanted)
    if return_final:
        return out[output], jax.lax.squeeze(out["final_state"], (problem.axis,))
    return out[output]


def _names(call, axis_name):
    """The axes of the mesh that time is split over, the outermost first."""
    names = tuple(axis_name) if isinstance(axis_name, (tuple, list)) else (axis_name,)
    for name in names:
        try:
            jax.lax.axis_index(name)
        except (NameError, TypeError, KeyError, ValueError):
            refuse(call, "axis_name", "axes of a mesh, within shard_map over them", repr(axis_name))
    return names


def _on_each(scan, problem, arrays, wanted, names, after=None):
    """Runs a call on the part of this device. ``after`` is the reset mask after the last step of
    the whole sequence."""
    if problem.recompute:
        refuse("qrnn_pool", "memory", "'store' where time is split over devices", "'recompute'")
    is_shared = "gate" in arrays and is_replicated(arrays["gate"], names)
    arrays = varying_alike(arrays, names)
    parts = _Parts(names, problem.reverse, jax.lax.psum(1, names))
    if "resets" in arrays:
        arrays["resets"] = parts.with_reset_after(arrays["resets"], after, problem)
    at = _Call(scan, problem, tuple(arrays), tuple(wanted.items()), parts)
    product = _product(at, arrays, is_shared)
    out = dict(zip(wanted, _run(at, product, *arrays.values())))
    if "final_state" in out:  # of the whole sequence, on every device
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
        """The array of the device that is ``by`` places before; zeros on the first devices.
        ppermute counts the devices of several axes in the order of the mesh, and the other
        collectives in the order of the names."""
        if len(self.names) > 1:
            index = self.count - 1 - self.place if self.reverse else self.place
            every = jax.lax.all_gather(x, self.names)
            from_ = jnp.clip(index + (by if self.reverse else -by), 0, self.count - 1)
            there = jax.lax.dynamic_index_in_dim(every, from_, keepdims=False)
            return jnp.where(self.place >= by, there, jnp.zeros_like(there))
        order = range(self.count)[:: -1 if self.reverse else 1]
        return jax.lax.ppermute(x, self.names, list(zip(order[:-by], order[by:])))

    def with_reset_after(self, resets, after, problem):
        """The resets of a part and that of the step after it: the first of the next part."""
        axis = problem.axis
        if not self.reverse or resets.shape[axis] != problem.steps or problem.steps == 0:
            return resets
        first = jax.lax.slice_in_dim(resets, 0, 1, axis=axis).astype(np.uint8)
        reset = self.from_before(first)
        if after is not None:
            reset = jnp.where(self.place == 0, after.astype(np.uint8), reset)
        return jnp.concatenate([resets, reset != 0], axis)


class _Call(NamedTuple):
    """The parameters of a call, without its arrays."""

    scan: Scans
    problem: Problem
    operands: tuple[str, ...]
    results: tuple[tuple[str, tuple[int, ...]], ...]
    parts: _Parts


# ---- maps of parts -------------------------------------------------------------------------------


def _product(at, arrays, is_shared):
    """The product of a part's gates, with extent 1 in time and wherever gates broadcast. If all
    devices share one gate of all steps, each raises it to the number of steps, and the product has
    one axis less."""
    problem, resets = at.problem, arrays.get("resets")
    gate = at.scan.gate(problem, arrays)
    dtype = edge_dtype(gate.dtype)
    if gate.shape[problem.axis] == 1 and resets is None and at.scan is LINEAR_SCAN:
        power = _finite(jax.lax.integer_pow(gate.astype(dtype), problem.steps))
        return jax.lax.squeeze(power, (problem.axis,)) if is_shared else power
    extents = [gate.shape] if resets is None else [gate.shape, resets.shape]
    shape = tuple(
        problem.steps if i == problem.axis else max(of[i] for of in extents)
        for i in range(len(problem.shape))
    )
    small = Problem(shape, problem.axis, problem.reverse)
    ones = varying_alike({"x": jnp.ones(small.edge, dtype), "g": gate})["x"]
    if problem.logarithms & LOG_GATE:  # their exponentials would be rounded
        zeros = varying_alike({"x": jnp.zeros(shape, dtype), "g": gate})["x"]
        given = {"gate": arrays["gate"].astype(dtype), "input": zeros, "initial_state": ones}
        small = small._replace(logarithms=LOG_GATE)
        out = LOG_SCAN.value(small, {**given, "resets": resets}, {"final_state": small.edge})
        return _finite(out["final_state"])
    given = {"gate": gate, "resets": resets, "initial_tangent": ones}
    out = LINEAR_SCAN.jvp(small, given, {"final_tangent": small.edge})
    return _finite(out["final_tangent"])


def _finite(product):
    """Returns products that overflow as large numbers: 0 times one is 0, so a part that the state 0
    enters ends where it ends from 0."""
    most = jnp.finfo(product.dtype).max
    if jnp.iscomplexobj(product):
        return jax.lax.complex(
            jnp.clip(product.real, -most, most), jnp.clip(product.imag, -most, most)
        )
    return jnp.clip(product, -most, most)


def _cuts(at, arrays, dtype):
    """Whether a reset at a part or within it separates its end from the state before, as numbers;
    None if there are no resets."""
    resets, problem = arrays.get("resets"), at.problem
    if resets is None or resets.shape[problem.axis] == 0:
        return None
    if problem.reverse and resets.shape[problem.axis] > problem.steps:
        # The first reset belongs to the part that comes after this one.
        resets = jax.lax.slice_in_dim(resets, 1, None, axis=problem.axis)
    elif resets.shape[problem.axis] > problem.steps:
        resets = jax.lax.slice_in_dim(resets, 0, problem.steps, axis=problem.axis)
    return jnp.any(resets, problem.axis, keepdims=True).astype(dtype)


class _Maps(NamedTuple):
    """The maps of this part, or of all, without their ends."""

    product: Any  #: with one axis less if all devices have the same
    cuts: Any  #: whether resets cut off the state before, as numbers, or None


def _gathered(parts, axis, *arrays):
    """The arrays of all devices, side by side in time, by one all-gather."""
    flat = jnp.concatenate([x.ravel() for x in arrays])
    every, out, at = jax.lax.all_gather(flat, parts.names), [], 0
    for x in arrays:
        one = jax.lax.slice_in_dim(every, at, at + x.size, axis=1)
        one = jnp.moveaxis(one.reshape(parts.count, *x.shape), 0, axis)
        out.append(jax.lax.squeeze(one, (axis + 1,)))
        at += x.size
    return out


def _is_doubling(parts, maps, ends):
    """Whether doubling takes less time than one all-gather."""
    if len(parts.names) > 1:
        return False
    sent = [x for x in (maps.product, maps.cuts, ends) if x is not None and x.ndim == ends.ndim]
    rounds = (parts.count - 1).bit_length() + 1
    return (parts.count - 1 - rounds) * sum(x.nbytes for x in sent) > _MORE_BYTES


def _by_scan(at, maps, ends):
    """The state before this part, 0 before the first, by a scan of the maps of all parts."""
    parts, axis = at.parts, at.problem.axis
    is_shared = maps.product.ndim < ends.ndim
    arrays = {"gate": jnp.expand_dims(maps.product, axis) if is_shared else maps.product}
    arrays["input"] = ends
    if maps.cuts is not None:
        resets = maps.cuts != 0
        if parts.reverse:  # a reverse scan reads the reset of the step after
            config = [(int(i == axis), 0, 0) for i in range(resets.ndim)]
            resets = jax.lax.pad(resets, jnp.zeros((), bool), config)
        arrays["resets"] = resets
    problem = Problem(ends.shape, axis, parts.reverse)
    arrays = varying_alike(arrays, parts.names)
    states = LINEAR_SCAN.value(problem, arrays, {"state": ends.shape})["state"]
    index = jax.lax.axis_index(parts.names) + (1 if parts.reverse else -1)
    before = jax.lax.dynamic_slice_in_dim(states, jnp.clip(index, 0, parts.count - 1), 1, axis)
    return jnp.where(parts.place == 0, jnp.zeros_like(before), before)


def _by_doubling(at, maps, ends):
    """The same by log2(devices) messages: the maps of 1, 2, 4, ... parts up to this one."""
    parts, product, cuts = at.parts, maps.product, maps.cuts
    is_shared = product.ndim < ends.ndim
    if is_shared:
        product = jnp.expand_dims(product, at.problem.axis)
    by = 1
    while by < parts.count:
        has_before = parts.place >= by
        through = product * parts.from_before(ends, by)
        if cuts is not None:
            through = jnp.where(cuts != 0, jnp.zeros_like(through), through)
            cuts = jnp.where(has_before, cuts + parts.from_before(cuts, by), cuts)
        ends = jnp.where(has_before, through + ends, ends)
        if is_shared:
            product = _finite(product * product)
        else:
            longer = _finite(product * parts.from_before(product, by))
            product = jnp.where(has_before, longer, product)
        by *= 2
    return parts.from_before(ends)


# ---- the call and its tangent --------------------------------------------------------------------


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _run(at, product, *operands):
    """Returns the results of a part. They may include ``entering``, the state before the part, and
    the maps of all parts."""
    arrays = dict(zip(at.operands, operands))
    parts, problem, initial = at.parts, at.problem, arrays.pop("initial_state", None)
    first = {}
    if initial is not None:
        initial = jnp.broadcast_to(initial, problem.edge)
        first["initial_state"] = parts.at_first(initial)
    out = at.scan.value(problem, {**arrays, **first}, {"final_state": problem.edge})
    ends = out["final_state"]
    maps = _Maps(product, _cuts(at, arrays, ends.dtype))
    if _is_doubling(parts, maps, ends):
        entering = _by_doubling(at, maps, ends)
    else:
        sent = [x for x in (*maps, ends) if x is not None and x.ndim == ends.ndim]
        *of_all, ends = _gathered(parts, problem.axis, *sent)
        cuts = of_all.pop() if maps.cuts is not None else None
        maps = _Maps(*(of_all or (product,)), cuts)
        entering = _by_scan(at, maps, ends)
    if initial is not None:
        entering = jnp.where(parts.place == 0, initial, entering)
    wanted = {name: shape for name, shape in at.results if name not in _KEPT}
    out = at.scan.value(problem, {**arrays, "initial_state": entering}, wanted)
    out |= {"entering": entering, "products": maps.product, "cuts": maps.cuts}
    return [out[name] for name, _ in at.results]


@partial(_run.defjvp, symbolic_zeros=True)
def _run_jvp(at, primals, tangents):
    (product, *operands), (product_t, *_) = primals, tangents
    scan, problem, parts = at.scan, at.problem, at.parts
    arrays = dict(zip(at.operands, operands))
    moved = {
        name: t
        for name, t in zip(at.operands, tangents[1:])  # the product follows from the gates
        if not isinstance(t, SymbolicZero) and t.dtype != jax.dtypes.float0
    }
    wanted = {**dict(at.results), "entering": problem.edge, "products": ()}
    if "resets" in arrays:
        wanted["cuts"] = ()
    kept = scan.residuals(problem, arrays, moved)
    wanted |= {name: problem.shape for name in kept.values()}
    asked = at._replace(results=tuple(wanted.items()))
    values = dict(zip(wanted, _run(asked, product, *operands)))

    known = {
        **scan.linearised(problem, arrays, moved),
        **{name: values[of] for name, of in kept.items()},
        "initial_state": values["entering"] if kept else None,
    }
    own = {tangent_of(name): t for name, t in moved.items()}
    if "initial_tangent" in own:
        initial = jnp.broadcast_to(own["initial_tangent"], problem.edge)
        own["initial_tangent"] = parts.at_first(initial)
    results = {
        tangent_of(name): scan.shape(name, problem, arrays) for name in scan.operation.results
    }
    here = scan.jvp(problem, {**known, **own}, results)
    ends = here["final_tangent"]
    maps = _Maps(values["products"], values.get("cuts"))
    if _is_doubling(parts, _Maps(product, _cuts(at, arrays, ends.dtype)), ends):  # as for the value
        before = _by_doubling(at, maps, ends)
    else:
        before = _by_scan(at, maps, *_gathered(parts, problem.axis, ends))
    through = scan.jvp(problem, {**known, "initial_tangent": before}, results)
    moves = {
        name: here[tangent_of(name)] + through[tangent_of(name)] for name in scan.operation.results
    }
    moves["entering"] = before + own["initial_tangent"] if "initial_tangent" in own else before
    if not isinstance(product_t, SymbolicZero):
        moves["products"] = product_t
        if product_t.shape != values["products"].shape:
            (moves["products"],) = _gathered(parts, problem.axis, product_t)
    out = [values[name] for name, _ in at.results]
    return out, [
        moves[name].astype(x.dtype) if name in moves else jnp.zeros_like(x)  # residuals: dropped
        for (name, _), x in zip(at.results, out)
    ]

# SPDX-License-Identifier: BSD-3-Clause
"""Time split over devices in JAX.

Each device has a part of the steps. A part maps the state before it to the state at its end. The
maps of all parts that are earlier in the scan, composed, give the state before a part::

    part k maps the state h before it to the state a_k h + u_k at its end
    a_k    product of its gates
    u_k    its final state if it starts from 0

Devices exchange the maps by one all-gather, or in about log2(devices) rounds of messages by
doubling. The maps have a few numbers per sequence. They are the steps of a linear recurrence too,
which a linear scan computes after an all-gather. Let x be the states of a part, and dh the tangent
of h. The value and the derivatives of x are:

======== ================================================================
value    scan from h
tangent  (tangent with dh = 0) + (tangent from dh alone)
gradient transpose of the second term (a message), then that of the first
======== ================================================================

A gradient reads the arrays that the adjoint of an unsplit scan reads. It reads the gates and
cotangents a second time, to compute the message that the devices exchange.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from ..._arguments import refuse
from ..._jax.arrays import boundary_dtype
from ..._jax.fused import nonzero
from ..._jax.scans import Problem, Scans, zero_of
from ..._jax.sharding import is_replicated, split_over_time, varying_alike
from ..._jax.types import Arrays, Params
from ..spec import tangent_of
from .jax_computed import LOG_SCAN
from .jax_rules import LINEAR_SCAN, resets_of
from .spec import LOG_GATE

__all__ = ["scan_parts"]

#: The latency of a message, in bytes: 10 us at 100 GB/s. Maps are composed by doubling
#: (``_by_doubling``) only if it sends fewer bytes than an all-gather, by more than this number.
_MORE_BYTES = 1 << 20


def scan_parts(
    scan: Scans, problem: Problem, arrays: Arrays, return_final: bool, axis_name: Any
) -> jax.Array | tuple[jax.Array, jax.Array]:
    """Return the output of a scan, or (output, final state). If ``axis_name`` or the types of the
    arrays say that time is split over devices, each device scans its part."""
    output = scan.operation.results[0]
    wanted = {output: problem.shape}
    if return_final:
        wanted["final_state"] = problem.boundary
    params = Params("value", problem, tuple(arrays), tuple(wanted.items()))
    if axis_name is not None:
        out = _on_each(scan, params, arrays, _names(scan.user_call, axis_name))
    else:
        found = split_over_time(scan, params, arrays, partial(_on_each, scan))
        out = found or scan.value(problem, varying_alike(arrays), wanted)
    if return_final:
        return out[output], jax.lax.squeeze(out["final_state"], (problem.axis,))
    return out[output]


def _names(call: str, axis_name: Any) -> tuple[Any, ...]:
    """The axes of the mesh that time is split over, the outermost first."""
    names = tuple(axis_name) if isinstance(axis_name, (tuple, list)) else (axis_name,)
    try:
        if len(set(names)) < max(len(names), 1):
            raise ValueError
        jax.lax.axis_index(names)
    except (NameError, TypeError, KeyError, ValueError):
        expected = "distinct axes of the mesh of an enclosing shard_map"
        refuse(call, "axis_name", expected, repr(axis_name))
    return names


def _on_each(
    scan: Scans, params: Params, arrays: Arrays, names: tuple[Any, ...]
) -> dict[str, jax.Array]:
    """Run a call on the part of this device. The array "after", if present, is the reset after the
    last step of the whole sequence."""
    problem: Problem = params.problem
    if problem.recompute:
        refuse("qrnn_pool", "memory", "'store', since time is split over devices", "'recompute'")
    is_shared = "gate" in arrays and is_replicated(arrays["gate"], names)
    arrays = varying_alike(arrays, names)
    after = arrays.pop("after", None)
    parts = jax.lax.psum(1, names)  # type: ignore[no-untyped-call]
    part = _Part(scan, params, names, parts)
    if "resets" in arrays:
        arrays["resets"] = part.with_reset_after(arrays["resets"], after)
    product = part.product(arrays, is_shared)
    part = part._replace(is_doubling=part.doubling_is_faster(product, arrays.get("resets")))
    out = _run(part, product, *(arrays[name] for name in params.operands))
    found = dict(zip(params.shapes, out))
    if "final_state" in found:  # every device gets the final state of the whole sequence
        final = jnp.where(part.position == part.parts - 1, found["final_state"], 0)
        found["final_state"] = jax.lax.psum(final, names)  # type: ignore[no-untyped-call]
    return found


class _Part(NamedTuple):
    """A call on one device's part of the steps. The parts are in the order of the scan.

    Arrays with these names describe the map of a part, or, once gathered, the maps of all parts
    side by side in time:

    - "products": the products of gates, with one axis less if all parts have the same product.
    - "resets": 1 if a reset separates the end of a part from the state before the part, else 0.
    - "ends": the final states if parts start from 0, except that the first part starts from the
      initial state.
    """

    scan: Scans
    params: Params
    names: tuple[Any, ...]  #: the axes of the mesh that time is split over
    parts: int  #: the number of parts
    is_doubling: bool = False  #: whether maps are composed by doubling

    @property
    def problem(self) -> Problem:
        problem: Problem = self.params.problem
        return problem

    @property
    def position(self) -> jax.Array:
        """The index of the part."""
        index = jax.lax.axis_index(self.names)
        return self.parts - 1 - index if self.problem.reverse else index

    def at_start(self, initial: jax.Array) -> jax.Array:
        """The initial state in the first part, and 0 in the others."""
        return jnp.where(self.position == 0, jnp.broadcast_to(initial, self.problem.boundary), 0)

    def from_before(self, x: jax.Array, by: int = 1) -> jax.Array:
        """The array of the part that is ``by`` parts earlier. The first ``by`` parts get zeros.

        With several axes, ppermute numbers devices in the order of the mesh. The other collectives
        number them in the order of the names, so an all-gather takes the place of ppermute.
        """
        if len(self.names) > 1:
            every = jax.lax.all_gather(x, self.names)
            device = jax.lax.axis_index(self.names) + (by if self.problem.reverse else -by)
            device = jnp.clip(device, 0, self.parts - 1)
            there = jax.lax.dynamic_index_in_dim(every, device, keepdims=False)
            return jnp.where(self.position >= by, there, 0)
        order = range(self.parts)[:: -1 if self.problem.reverse else 1]
        pairs = list(zip(order[:-by], order[by:]))
        received: jax.Array = jax.lax.ppermute(x, self.names, pairs)  # type: ignore[no-untyped-call]
        return received

    def with_reset_after(self, resets: jax.Array, after: jax.Array | None) -> jax.Array:
        """The resets of a part. A reverse scan also reads the reset of the step after the part,
        which the next device has. After the last part it is ``after``, if present."""
        steps, axis = self.problem.steps, self.problem.axis
        if not self.problem.reverse or resets.shape[axis] != steps or steps == 0:
            return resets
        reset = self.from_before(jax.lax.slice_in_dim(resets, 0, 1, axis=axis).astype(np.uint8))
        if after is not None:
            reset = jnp.where(self.position == 0, after.astype(np.uint8), reset)
        return jnp.concatenate([resets, reset != 0], axis)

    # ---- maps of parts ---------------------------------------------------------------------------

    def product(self, arrays: Arrays, is_shared: bool) -> jax.Array:
        """The product of a part's gates, with extent 1 in time and wherever gates and resets
        broadcast. In a linear scan without resets, the product of a gate that is constant in time
        is a power. If all devices share this gate, the product has one axis less."""
        problem, resets = self.problem, arrays.get("resets")
        gate = self.scan.gate(problem, arrays)
        dtype = boundary_dtype(gate.dtype)
        if gate.shape[problem.axis] == 1 and resets is None and self.scan is LINEAR_SCAN:
            power = _finite(jax.lax.integer_pow(gate.astype(dtype), problem.steps))
            return jax.lax.squeeze(power, (problem.axis,)) if is_shared else power
        shape = list(gate.shape if resets is None else map(max, gate.shape, resets.shape))
        shape[problem.axis] = problem.steps
        small = Problem(tuple(shape), problem.axis, problem.reverse)
        given = {"gate": gate, "initial_tangent": jnp.ones(small.boundary, dtype)}
        if problem.logarithms & LOG_GATE:  # the exponentials of log gates would be rounded
            small = small._replace(logarithms=LOG_GATE)
            given["gate"] = arrays["gate"].astype(dtype)
            given["initial_state"] = given.pop("initial_tangent")
            given["input"] = zero_of(small, dtype)
        given = varying_alike(given if resets is None else {**given, "resets": resets})
        if problem.logarithms & LOG_GATE:
            return _finite(
                LOG_SCAN.value(small, given, {"final_state": small.boundary})["final_state"]
            )
        out = LINEAR_SCAN.jvp(small, given, {"final_tangent": small.boundary})
        return _finite(out["final_tangent"])

    def doubling_is_faster(self, product: jax.Array, resets: jax.Array | None) -> bool:
        """Whether doubling is estimated to be faster than one all-gather."""
        if len(self.names) > 1:
            return False
        sent = prod(self.problem.boundary)
        if product.ndim == len(self.problem.shape):
            sent += product.size
        if resets is not None:
            sent += resets.size // max(1, resets.shape[self.problem.axis])
        rounds = (self.parts - 1).bit_length() + 1
        return (self.parts - 1 - rounds) * sent * product.dtype.itemsize > _MORE_BYTES

    def gathered(self, maps: Arrays) -> Arrays:
        """Gather the maps of all parts, side by side in time, by one all-gather. With doubling,
        return only the map of this part. A product that all parts share remains as it is."""
        rank, axis = len(self.problem.shape), self.problem.axis
        sent = {name: x for name, x in maps.items() if x.ndim == rank}
        if self.is_doubling or not sent:
            return maps
        flat = jnp.concatenate([x.ravel() for x in sent.values()])
        every, out, at = jax.lax.all_gather(flat, self.names), dict(maps), 0
        for name, x in sent.items():
            one = jax.lax.slice_in_dim(every, at, at + x.size, axis=1)
            one = jnp.moveaxis(one.reshape(self.parts, *x.shape), 0, axis)
            out[name] = jax.lax.squeeze(one, (axis + 1,))
            at += x.size
        return out

    def entering(self, maps: Arrays) -> jax.Array:
        """The state before this part, given the result of ``gathered``. It is 0 for the first
        part."""
        ends, product, axis = maps["ends"], maps["products"], self.problem.axis
        is_shared = product.ndim < ends.ndim
        product = jnp.expand_dims(product, axis) if is_shared else product
        if self.is_doubling:
            return self._by_doubling(product, is_shared, ends, maps.get("resets"))
        arrays = {"gate": product, "input": ends}
        if "resets" in maps:
            # A reverse scan reads the reset of step t + 1 at step t, so move resets one step later.
            more = [(int(self.problem.reverse and i == axis), 0) for i in range(ends.ndim)]
            arrays["resets"] = jnp.pad(maps["resets"] != 0, more)
        problem = Problem(ends.shape, axis, self.problem.reverse)
        arrays = varying_alike(arrays, self.names)
        states = LINEAR_SCAN.value(problem, arrays, {"state": ends.shape})["state"]
        device = jax.lax.axis_index(self.names) + (1 if self.problem.reverse else -1)
        device = jnp.clip(device, 0, self.parts - 1)
        before = jax.lax.dynamic_slice_in_dim(states, device, 1, axis)
        return jnp.where(self.position == 0, 0, before)

    def _by_doubling(
        self, product: jax.Array, is_shared: bool, ends: jax.Array, resets: jax.Array | None
    ) -> jax.Array:
        """Compute the state before this part in about log2(devices) rounds of messages, which
        compose the maps of the last 1, 2, 4, ... parts."""
        by = 1
        while by < self.parts:
            has_before = self.position >= by
            through = product * self.from_before(ends, by)
            if resets is not None:
                through = jnp.where(resets != 0, 0, through)
                resets = jnp.where(has_before, resets + self.from_before(resets, by), resets)
            ends = jnp.where(has_before, through + ends, ends)
            if is_shared:
                product = _finite(product * product)
            else:
                longer = _finite(product * self.from_before(product, by))
                product = jnp.where(has_before, longer, product)
            by *= 2
        return self.from_before(ends)


def _finite(product: jax.Array) -> jax.Array:
    """Limit products to the largest finite numbers. A product that overflows, times the state 0, is
    then 0 and not NaN, so that the map takes the state 0 to u_k."""
    most = np.finfo(product.dtype).max
    clipped = partial(jnp.clip, min=-most, max=most)
    if jnp.iscomplexobj(product):
        return jax.lax.complex(clipped(product.real), clipped(product.imag))
    return clipped(product)


# ---- the call and its tangent --------------------------------------------------------------------


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _run(part: _Part, product: jax.Array, *operands: jax.Array) -> list[jax.Array]:
    """Return the results of a part. They may include ``entering``, the state before the part, and
    the gathered maps."""
    arrays, problem = part.params.named(operands), part.problem
    initial = arrays.get("initial_state")
    first = None if initial is None else part.at_start(initial)
    given = {**arrays, "initial_state": first}
    out = part.scan.value(problem, given, {"final_state": problem.boundary})
    own = {"products": product, "ends": out["final_state"]}
    if "resets" in arrays:
        resets = jnp.any(resets_of(arrays["resets"], problem), problem.axis, keepdims=True)
        own["resets"] = resets.astype(product.dtype)
    maps = part.gathered(own)
    entering = part.entering(maps)
    if initial is not None:
        entering = jnp.where(part.position == 0, initial, entering)
    known = {**maps, "entering": entering}
    wanted = {name: shape for name, shape in part.params.results if name not in known}
    out = part.scan.value(problem, {**arrays, "initial_state": entering}, wanted) | known
    return [out[name] for name in part.params.shapes]


@partial(_run.defjvp, symbolic_zeros=True)
def _run_jvp(part: _Part, primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
    (product, *operands), (product_t, *operands_t) = primals, tangents
    scan, params, problem = part.scan, part.params, part.problem
    arrays, nonzero_tangents = params.named(operands), nonzero(params.operands, operands_t)
    wanted = {**params.shapes, "entering": problem.boundary, "products": ()}
    if "resets" in arrays:
        wanted["resets"] = ()
    kept = scan.residuals(problem, arrays, nonzero_tangents)
    wanted |= {name: problem.shape for name in kept.values()}
    asked = part._replace(params=params._replace(results=tuple(wanted.items())))
    values = dict(zip(wanted, _run(asked, product, *operands)))

    known = {
        **scan.linearised(problem, arrays, nonzero_tangents),
        **{name: values[of] for name, of in kept.items()},
        "initial_state": values["entering"] if kept else None,
    }
    own = {tangent_of(name): t for name, t in nonzero_tangents.items()}
    if "initial_tangent" in own:
        own["initial_tangent"] = part.at_start(own["initial_tangent"])
    tangents_of = {name: tangent_of(name) for name in scan.operation.results}
    shapes = {t: scan.shape(name, problem, arrays) for name, t in tangents_of.items()}
    here = scan.jvp(problem, {**known, **own}, shapes)
    # The jvp of the part includes the tangents of its gates, so the tangent of their product is not
    # used here.
    ends = part.gathered({"ends": here["final_tangent"]})
    before = part.entering({**values, **ends})
    through = scan.jvp(problem, {**known, "initial_tangent": before}, shapes)
    moves = {name: here[t] + through[t] for name, t in tangents_of.items()}
    moves["entering"] = before + own.get("initial_tangent", 0)
    if not isinstance(product_t, SymbolicZero):
        moves |= part.gathered({"products": product_t})
    # The tangents of residuals and of reset masks are 0, and so are those of constant products.
    out = [values[name] for name in params.shapes]
    return out, [
        moves[name].astype(x.dtype) if name in moves else jnp.zeros_like(x)
        for name, x in zip(params.shapes, out)
    ]

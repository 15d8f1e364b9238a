# SPDX-License-Identifier: BSD-3-Clause
"""Automatic sharding: XLA chooses how the arrays of a program are split over devices.

Kernels tell XLA how they can be split, by :mod:`jax.experimental.custom_partitioning`. Otherwise
XLA would gather the arrays on every device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import count
from math import prod
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import Mesh, NamedSharding

from .._op.spec import primal_of
from .sharding import WHOLE, Split, is_split, names_of

if TYPE_CHECKING:
    from .primitives import Primitives

__all__ = ["devices_of", "partitioned", "program_of"]


@cache
def _partitioned_program():
    same = custom_partitioning(lambda x: x)
    same.def_partition(lambda mesh, args, out: (mesh, same, out.sharding, (out.sharding,)))
    return jax.make_jaxpr(same)(jax.ShapeDtypeStruct((), np.float32))


def program_of(arrays: Sequence[Any]) -> Any:
    """Returns a parameter for a primitive of these arrays: a program with a partitioned function,
    or None if the types of arrays or shard_map say how they are split.

    JAX tells the lowering of programs that contain such functions which devices there are. In
    return these programs must have one mesh, and cannot be exported for several devices."""
    if not hasattr(jax, "shard_map"):  # before JAX 0.7 XLA gathers the arrays
        return None
    if jax.sharding.get_abstract_mesh().manual_axes or any(map(is_split, arrays)):
        return None
    return _partitioned_program()


def devices_of(ctx: Any) -> tuple[Any, ...]:
    """The devices that XLA splits a program over, if the primitive has the program of
    :func:`program_of`."""
    return getattr(ctx.module_context.axis_context, "device_assignment", None) or ()


def partitioned(
    primitives: Primitives, run: Callable, problem, shapes: Mapping[str, Any], results, devices
) -> Callable:
    """A primitive as a function that XLA splits over devices. ``run(*arrays, problem=...,
    results=...)`` computes it on one device, and ``shapes`` are those of the arrays."""
    arrays = [(name, tuple(shape), primal_of(name)) for name, shape in (*shapes.items(), *results)]
    axes = [primitives.axes(of, len(shape), problem) for _, shape, of in arrays]
    extents: dict[Any, set[int]] = {}  # without 1
    for of, (_, shape, _) in zip(axes, arrays):
        for axis, extent in zip(of, shape):
            if extent != 1:
                extents.setdefault(axis, set()).add(extent)

    def split_by(mesh, shardings):
        """How the axes of the problem are split, given the shardings of arrays. An axis is split as
        the first array that is split along it, if all parts are of one size."""
        if mesh.empty:
            mesh = Mesh(np.asarray(devices), ("devices",))
        names: dict[Any, Any] = {}
        for of, (_, shape, _), sharding in zip(axes, arrays, shardings):
            for axis, extent, by in zip(of, shape, getattr(sharding, "spec", ())):
                used = {name for given in names.values() for name in given}
                by = names_of(by)
                parts = prod(mesh.shape[name] for name in by)
                is_free = axis not in {*WHOLE, *names} and used.isdisjoint(by)
                if by and is_free and extent != 1 and all(n % parts == 0 for n in extents[axis]):
                    names[axis] = by
        return Split(primitives, problem, mesh, names)

    def shardings_of(split, of):
        return tuple(NamedSharding(split.mesh, split.spec(name, shape)) for name, shape, _ in of)

    def partition(mesh, args, out):
        split = split_by(mesh, [x.sharding for x in (*args, *out)])
        on_one, _ = split.on_one(run, results)
        every = shardings_of(split, arrays)
        return split.mesh, on_one, list(every[len(shapes) :]), every[: len(shapes)]

    def infer(mesh, args, out):
        split = split_by(mesh, [x.sharding for x in args])
        return list(shardings_of(split, arrays[len(shapes) :]))

    @custom_partitioning
    def call(*args):
        return run(*args, problem=problem, results=results)

    # Shardy splits axes of the same name alike, which must have one extent. Axes along which arrays
    # broadcast, and those that must not be split, have names of their own.
    others = count()

    def words(of, shape):
        return " ".join(
            f"other{next(others)}" if axis in WHOLE or extent == 1 else f"axis{axis}_{extent}"
            for axis, extent in zip(of, shape)
        )

    rule = [words(of, shape) for of, (_, shape, _) in zip(axes, arrays)]
    sharding_rule = f"{', '.join(rule[: len(shapes)])} -> {', '.join(rule[len(shapes) :])}"
    call.def_partition(partition, infer_sharding_from_operands=infer, sharding_rule=sharding_rule)
    return call

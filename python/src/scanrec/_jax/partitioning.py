# SPDX-License-Identifier: BSD-3-Clause
"""Automatic sharding: XLA chooses how the arrays of a program are split over devices.

:mod:`jax.experimental.custom_partitioning` tells XLA how calls of kernels can be split. Otherwise
XLA would gather the arrays on every device.
"""

from __future__ import annotations

from functools import cache, partial
from itertools import count
from math import prod
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import Mesh

from .._op.spec import primal_of
from .sharding import WHOLE, Split, is_split, names_of
from .types import Args, Avals, Axis, Params, Run

if TYPE_CHECKING:
    from .primitives import Primitives

__all__ = ["partitioned", "program_of"]


@cache
def _partitioned_program() -> Any:
    same: Any = custom_partitioning(lambda x: x)  # type: ignore[no-untyped-call]
    same.def_partition(lambda mesh, args, out: (mesh, same, out.sharding, (out.sharding,)))
    return jax.make_jaxpr(same)(np.float32(0))


def program_of(arrays: Args) -> Any:
    """Return the value of a primitive's parameter ``program``: a jaxpr that contains a
    custom_partitioning function, or None.

    It is None if the types of the arrays, or an enclosing shard_map, already say how the arrays are
    split, and always before JAX 0.6.1.

    JAX passes the list of devices only to lowerings of programs that contain such a function. The
    price is that these programs must have one mesh, and cannot be exported for several devices.
    """
    if not hasattr(jax, "shard_map"):  # before JAX 0.6.1 XLA gathers the arrays
        return None
    if jax.sharding.get_abstract_mesh().manual_axes or any(map(is_split, arrays)):
        return None
    return _partitioned_program()


def partitioned(primitives: Primitives, params: Params, avals: Avals, ctx: Any) -> Run | None:
    """Return a primitive as a function that XLA splits over devices, or None if there is one device
    or the devices are unknown. The lowering knows the devices if the primitive's parameter
    ``program`` is the jaxpr from :func:`program_of`."""
    devices = getattr(ctx.module_context.axis_context, "device_assignment", None) or ()
    if len(devices) < 2:
        return None
    arrays = [*((name, aval.shape) for name, aval in avals.items()), *params.results]
    axes = [primitives.axes(primal_of(n), len(shape), params.problem) for n, shape in arrays]
    extents = [item for of, (_, shape) in zip(axes, arrays) for item in zip(of, shape)]

    def split_by(mesh: Any, types: Args) -> Split:
        """How the axes of the problem are split, given the types of arrays. Each axis is split as
        in the first array that splits it into equal parts, over axes of the mesh that no other axis
        of the problem uses."""
        if mesh.empty:
            mesh = Mesh(np.asarray(devices), ("devices",))
        names: dict[Axis, Any] = {}
        for of, (_, shape), kind in zip(axes, arrays, types):
            for axis, extent, by in zip(of, shape, getattr(kind.sharding, "spec", ())):
                used = {name for given in names.values() for name in given}
                by = names_of(by)
                parts = prod(mesh.shape[name] for name in by)
                is_free = axis not in {*WHOLE, *names} and used.isdisjoint(by)
                is_even = all(n % parts == 0 for a, n in extents if a == axis and n != 1)
                if by and is_free and extent != 1 and is_even:
                    names[axis] = by
        return Split(primitives, params, mesh, names)

    def partition(mesh: Any, args: Args, out: Args) -> tuple[Any, ...]:
        split = split_by(mesh, (*args, *out))
        every = split.shardings(arrays)
        return split.mesh, split.on_one(), every[len(args) :], tuple(every[: len(args)])

    def infer(mesh: Any, args: Args, out: Any) -> list[Any]:
        return split_by(mesh, args).shardings(params.results)

    # Shardy (XLA's partitioner) splits axes of the same name alike, and requires that they have the
    # same extent, so names include the extent. Axes along which arrays broadcast, and axes that
    # must not be split, have unique names.
    others = count()
    rule = [
        " ".join(
            f"other{next(others)}" if axis in WHOLE or extent == 1 else f"axis{axis}_{extent}"
            for axis, extent in zip(of, shape)
        )
        for of, (_, shape) in zip(axes, arrays)
    ]
    sharding_rule = f"{', '.join(rule[: len(avals)])} -> {', '.join(rule[len(avals) :])}"
    run: Any = custom_partitioning(partial(primitives.run, params))  # type: ignore[no-untyped-call]
    run.def_partition(partition, infer_sharding_from_operands=infer, sharding_rule=sharding_rule)
    found: Run = run
    return found

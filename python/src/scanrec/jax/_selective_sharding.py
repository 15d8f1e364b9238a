# SPDX-License-Identifier: BSD-3-Clause
"""Selective scans over several devices, where types of arrays say how these are split: sequences do
not know of one another, nor do channels but for the B and C that they share. So every device scans
what it has, and nothing is communicated but sums: gradients of what devices share.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from .._arguments import refuse
from ._sharding import mesh_of, names_of, parts_of, reshard, spec_of

__all__ = ["axes_of", "is_split", "over_devices", "specs_of_results"]

_SEQUENCE, _STATES = ("batch", "time", "channel"), ("batch", "channel", "state")
_AXES = {
    **dict.fromkeys(("u", "delta", "z", "out", "resets"), _SEQUENCE),
    **dict.fromkeys(("initial_state", "final_state"), _STATES),
    **dict.fromkeys(("skip", "delta_bias"), ("channel",)),
    "intervals": ("batch", "time"),
    "a": ("channel", "state"),
    "checkpoints": ("batch", "checkpoint", "state", "channel"),
}
_CALL, _ARGUMENTS = "selective_scan", {"a": "A", "b": "B", "c": "C", "skip": "D"}


def axes_of(name: str, rank: int) -> tuple[str, ...]:
    """The axes of an array; of b and c there are two kinds."""
    if name in ("b", "c"):
        return ("batch", "time", "group", "state") if rank == 4 else ("channel", "state")
    return _AXES[name]


def is_split(x: Any) -> bool:
    """Whether the type of an array says that it is split over devices."""
    return hasattr(jax, "typeof") and spec_of(jax.typeof(x)) is not None


def _base(name):
    """What a tangent or a gradient is of."""
    of = name.removesuffix("_tangent").removesuffix("_grad")
    return of if of == name or of not in ("initial", "final") else f"{of}_state"


def _whole_spec(avals):
    """How a problem is split, by the names of its axes: as any of its arrays is. None where types
    say nothing."""
    found: dict[str, Any] = {}
    for name, aval in avals.items():
        spec, base = spec_of(aval), _base(name)
        if spec is None:
            continue
        for axis, extent, names in zip(axes_of(base, len(spec)), aval.shape, spec):
            axis = "channel" if axis == "group" else axis
            if names is None or extent == 1:
                continue
            if axis not in ("batch", "channel") and parts_of(mesh_of([aval]), names) > 1:
                of, expected = (
                    _ARGUMENTS.get(base, base),
                    f"an array that is not split along {axis}",
                )
                refuse(_CALL, of, expected, spec)
            found.setdefault(axis, names)
    if not found:
        return None
    every = [name for names in found.values() for name in names_of(names)]
    if len(set(every)) != len(every):
        refuse(_CALL, "u", "arrays split alike", f"one mesh axis for two of {found}")
    return found


def _spec_for(name, shape, whole, mesh):
    """How an array is split. Groups of channels are as channels are, if there is more than one."""
    split = []
    for axis, extent in zip(axes_of(_base(name), len(shape)), shape):
        names = whole.get("channel" if axis == "group" else axis)
        parts = parts_of(mesh, names)
        if extent == 1:  # shared by all
            names = None
        elif extent % parts != 0:
            of = _ARGUMENTS.get(_base(name), _base(name))
            refuse(_CALL, of, f"as many of its axis of {axis} as {parts} devices share", extent)
        split.append(names)
    return PartitionSpec(*split)


def specs_of_results(avals: dict[str, Any], shapes: dict[str, Any]) -> list[Any]:
    """Shardings of results, or None where types say nothing."""
    whole = _whole_spec(avals)
    if whole is None:
        return [None] * len(shapes)
    mesh = mesh_of(avals.values())
    return [
        NamedSharding(mesh, _spec_for(name, shape, whole, mesh)) for name, shape in shapes.items()
    ]


def over_devices(bind: Any, avals: dict[str, Any], shapes: dict[str, Any]) -> Any:
    """``bind``, the call on one device, as a function of arrays that types say are split; or None
    for one device. ``shapes`` are those of the results."""
    whole = _whole_spec(avals)
    if whole is None or not hasattr(jax, "shard_map"):  # before JAX 0.7 XLA gathers the arrays
        return None
    mesh = mesh_of(avals.values())
    split = [_spec_for(name, aval.shape, whole, mesh) for name, aval in avals.items()]
    into = [_spec_for(name, shape, whole, mesh) for name, shape in shapes.items()]
    devices = {name for names in whole.values() for name in names_of(names)}

    def on_one(*arrays):
        out = bind(*arrays)
        return [
            _sum_over(x, devices - {name for names in spec for name in names_of(names)})
            for x, spec in zip(out, into)
        ]

    on_each = jax.shard_map(
        on_one, mesh=mesh, in_specs=tuple(split), out_specs=into, check_vma=False
    )
    return lambda *arrays: on_each(*(reshard(x, mesh, of) for x, of in zip(arrays, split)))


def _sum_over(x, names):
    """The sum of what devices have that share an array: in float32, if it has fewer bits."""
    if not names:
        return x
    wide = jnp.promote_types(x.dtype, jnp.float32)
    return jax.lax.psum(x.astype(wide), tuple(sorted(names))).astype(x.dtype)

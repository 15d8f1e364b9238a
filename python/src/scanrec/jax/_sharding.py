# SPDX-License-Identifier: BSD-3-Clause
"""Arrays over several devices. Sequences do not know of one another, so every device scans its own:
nothing is communicated but sums over what a gate was shared by. Time that is split is another
matter: ``_split_time.py``.
"""

from __future__ import annotations

from math import prod
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from .._arguments import refuse

__all__ = [
    *("allow_in_shard_map", "is_replicated", "mesh_of", "names_of", "over_devices", "parts_of"),
    *("placed_as", "reshard", "spec_of", "specs_of_results", "split_over_time", "varying_alike"),
]

# ---- explicit sharding: what types of arrays say -------------------------------------------------


def spec_of(aval: Any) -> tuple[Any, ...] | None:
    """How an array is split, by axis, if its type says so."""
    sharding = getattr(aval, "sharding", None)
    spec = getattr(sharding, "spec", None)
    if spec is None or all(names is None for names in spec):
        return None
    return tuple(spec) + (None,) * (len(aval.shape) - len(spec))


def _given(call, problem):
    """The call as users know it, and its argument."""
    if call.startswith("gated_scan") and not problem.cell:
        return call.replace("gated_scan", "qrnn_pool"), "pre"
    return call.replace("gated_scan", "linear_scan"), "input"


def _problem_spec(call, avals, problem):
    """How a problem is split: as any of its arrays is, though not along time."""
    spec = _whole_spec(call, avals, problem)
    if spec is not None and parts_of(mesh_of(avals), spec[problem.axis]) > 1:
        refuse(*_given(call, problem), "an array that is not split along time", f"{spec}")
    return spec


def _whole_spec(call, avals, problem):
    specs = []
    for aval in avals:
        spec = spec_of(aval)
        if spec is not None and len(spec) > len(problem.shape):
            if spec[problem.stack] is not None:
                words = "pre-activations that are not split from one another"
                refuse(*_given(call, problem), words, f"{spec}")
            spec = spec[: problem.stack] + spec[problem.stack + 1 :]
        if spec is not None:
            specs.append(spec)
    if not specs:
        return None
    spec = tuple(next((n for n in names if n is not None), None) for names in zip(*specs))
    every = [name for names in spec for name in names_of(names)]
    if len(set(every)) != len(every):
        refuse(*_given(call, problem), "arrays split alike", f"one mesh axis for two of {spec}")
    return spec


def mesh_of(avals: Any) -> Any:
    """The mesh that arrays are split over, of which types of some say so."""
    return next(a.sharding.mesh for a in avals if spec_of(a) is not None)


def _mesh_with_devices(arrays):
    """The mesh that arrays are split over, with its devices if the call is not traced: there may be
    no mesh around it."""
    if any(isinstance(x, jax.core.Tracer) for x in arrays):
        return mesh_of([jax.typeof(x) for x in arrays])
    return next(x.sharding.mesh for x in arrays if spec_of(jax.typeof(x)) is not None)


def names_of(names: Any) -> tuple[Any, ...]:
    """The axes of a mesh that an axis of an array is split over."""
    return names if isinstance(names, tuple) else (names,) if names is not None else ()


def parts_of(mesh: Any, names: Any) -> int:
    """How many parts an axis of an array is split into."""
    return prod(mesh.shape[name] for name in names_of(names))


def specs_of_results(call, avals, problem, results) -> list[Any]:
    """Shardings of results, or None where types say nothing."""
    spec = _problem_spec(call, avals, problem)
    if spec is None:
        return [None] * len(results)
    mesh = mesh_of(avals)
    return [
        NamedSharding(mesh, PartitionSpec(*_where(spec, shape, problem))) for _, shape in results
    ]


def _along(spec, shape, problem):
    """For every axis of an array: its extent, that of the problem, and how it is split."""
    full = list(zip(problem.shape, spec))
    if len(shape) > len(full):
        full.insert(problem.stack, (shape[problem.stack], None))
    return [(n, m, names) for n, (m, names) in zip(shape, full)]


def _where(spec, shape, problem):
    """The part of a spec for an array that may broadcast."""
    return tuple(names if n == m else None for n, m, names in _along(spec, shape, problem))


def over_devices(call, bind, avals, problem, results):
    """The call of every device as a function of its parts of the arrays, or None for one device.

    ``bind(*arrays, problem=..., results=...)`` is the call on one device."""
    spec = _problem_spec(call, avals, problem)
    if spec is None or not hasattr(jax, "shard_map"):  # before JAX 0.7 XLA gathers the arrays
        return None
    mesh = mesh_of(avals)

    def on_one(*arrays):
        out = bind(
            *arrays,
            problem=_local(problem, mesh, spec),
            results=tuple((name, _part(shape, mesh, spec, problem)) for name, shape in results),
        )
        return [_sum_over(x, spec, shape, problem) for x, (_, shape) in zip(out, results)]

    split = [PartitionSpec(*_where(spec, a.shape, problem)) for a in avals]
    on_each = jax.shard_map(
        on_one,
        mesh=mesh,
        in_specs=tuple(split),
        out_specs=[PartitionSpec(*_where(spec, shape, problem)) for _, shape in results],
        check_vma=False,
    )
    return lambda *arrays: on_each(*(reshard(x, mesh, of) for x, of in zip(arrays, split)))


def _part(shape, mesh, spec, problem):
    """The shape of a device's part of an array."""
    return tuple(
        n // parts_of(mesh, names) if n == m else n for n, m, names in _along(spec, shape, problem)
    )


def _local(problem, mesh, spec):
    """The problem of one device."""
    return problem._replace(shape=_part(problem.shape, mesh, spec, problem))


def split_over_time(call, on_each, arrays, problem, results):
    """The call over arrays whose types say that time is split, or None if they do not:
    ``on_each(problem, arrays, results, axes of the mesh, mark behind the last step)`` on every
    device."""
    if not hasattr(jax, "shard_map") or not hasattr(jax, "typeof"):
        return None
    avals = [jax.typeof(x) for x in arrays.values()]
    spec = _whole_spec(call, avals, problem)
    if spec is None or parts_of(mesh_of(avals), spec[problem.axis]) == 1:
        return None
    mesh, names = _mesh_with_devices(arrays.values()), names_of(spec[problem.axis])
    given = dict(arrays)
    if "resets" in given and given["resets"].shape[problem.axis] > problem.steps:
        marks = given["resets"]
        given["resets"] = jax.lax.slice_in_dim(marks, 0, problem.steps, axis=problem.axis)
        given["behind"] = jax.lax.slice_in_dim(marks, problem.steps, None, axis=problem.axis)

    def on_one(parts):
        behind = parts.pop("behind", None)
        wanted = {name: _part(shape, mesh, spec, problem) for name, shape in results.items()}
        return on_each(_local(problem, mesh, spec), parts, wanted, names, behind)

    split = {name: PartitionSpec(*_where(spec, x.shape, problem)) for name, x in given.items()}
    return jax.shard_map(
        on_one,
        mesh=mesh,
        in_specs=(split,),
        out_specs={
            name: PartitionSpec(*_where(spec, shape, problem)) for name, shape in results.items()
        },
    )({name: reshard(x, mesh, split[name]) for name, x in given.items()})


def placed_as(x, like):
    """x, split over devices as another array, or its type."""
    if not hasattr(jax, "typeof"):
        return x
    of = getattr(
        like if isinstance(like, jax.core.ShapedArray) else jax.typeof(like), "sharding", None
    )
    if of is None:
        return x
    now = getattr(jax.typeof(x), "sharding", None)
    if now is None or now.spec == of.spec or not hasattr(jax, "shard_map"):
        return x
    # The type of what was made with no mesh around it has none.
    return reshard(x, now.mesh if of.mesh.empty else of.mesh, of.spec)


def reshard(x: Any, mesh: Any, spec: Any) -> Any:
    """x, split over devices anew. With the mesh by name: there may be none around the call."""
    to = NamedSharding(mesh, spec)
    return (getattr(jax, "reshard", None) or jax.sharding.reshard)(x, to)


def _sum_over(x, spec, shape, problem):
    """The sum over the devices that had a part of what x is the sum over."""
    split = [names for n, m, names in _along(spec, shape, problem) if n != m]
    flat = tuple(name for names in split for name in names_of(names))
    return jax.lax.psum(x, flat) if flat else x


# ---- shard_map -----------------------------------------------------------------------------------


def _varying_axes(x):
    """The axes of the mesh over which an array's type says that it varies, within shard_map."""
    kind = jax.typeof(x)
    varying = getattr(kind, "manual_axis_type", kind)
    return set(getattr(varying, "varying", getattr(varying, "vma", ())))


def _checks_varying(names):
    """Whether types say over which of the axes arrays vary."""
    return hasattr(jax, "typeof") and bool(_varying_axes(jax.lax.axis_index(names)))


def is_replicated(x: Any, names: tuple[Any, ...]) -> bool:
    """Whether an array is known to be the same along axes of the mesh."""
    return _checks_varying(names) and not _varying_axes(x) & set(names)


def varying_alike(arrays: dict[str, Any], names: tuple[Any, ...] = ()) -> dict[str, Any]:
    """Within shard_map: arrays that are replicated over an axis of the mesh become varying over it
    if any other is, or if it is one of `names`, so that their gradients are summed over it."""
    if not hasattr(jax, "typeof"):
        return arrays
    every = set().union(*(_varying_axes(x) for x in arrays.values()))
    if names and _checks_varying(names):
        every |= set(names)
    if not every:
        return arrays

    def varying(x):
        missing = tuple(sorted(every - _varying_axes(x)))
        if not missing:
            return x
        if hasattr(jax.lax, "pcast"):
            return jax.lax.pcast(x, missing, to="varying")
        return jax.lax.pvary(x, missing)

    return {name: varying(x) for name, x in arrays.items()}


def allow_in_shard_map(primitive: Any) -> None:
    """Before JAX 0.6 shard_map asks what is replicated: what all operands agree on. Since then
    types of arrays say it."""
    try:
        from jax.experimental.shard_map import register_standard_check, register_standard_rewrite
    except ImportError:
        return
    register_standard_check(primitive)
    register_standard_rewrite(primitive)

# SPDX-License-Identifier: BSD-3-Clause
"""Arrays over several devices.

Sequences are independent, and so are channels, except for the arrays that they share. Each device
therefore runs the kernels on its part of the arrays. If all arrays are split in the same way, the
only communication is the sum of gradients of shared arrays over the devices.
``_op/linear/jax_split_time.py`` handles time that is split over devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from .._arguments import refuse
from .._op.spec import primal_of
from .types import Arrays, Avals, Axis, Params, Run, Shape

if TYPE_CHECKING:
    from .primitives import Primitives

__all__ = [
    *("WHOLE", "Split", "allow_in_shard_map", "is_replicated", "is_split", "names_of"),
    *("over_devices", "placed_as", "result_shardings", "spec_of", "split_over_time"),
    "varying_alike",
]

# ---- explicit sharding: the types of arrays say how they are split -------------------------------

#: Axes that must not be split, and the expected value in the error.
WHOLE: dict[Axis, str] = {
    a: f"an array that is not split along {a}" for a in ("time", "state", "tap")
}
WHOLE["stack"] = "stacked pre-activations that are on one device"
WHOLE["checkpoint"] = WHOLE["past"] = WHOLE["time"]


def spec_of(aval: Any) -> tuple[Any, ...] | None:
    """The axes of the mesh that each axis of an array is split over, or None if its type names no
    axis of a mesh."""
    spec = tuple(aval.sharding.spec)
    if all(names is None for names in spec):
        return None
    return spec + (None,) * (len(aval.shape) - len(spec))


def is_split(x: Any) -> bool:
    """Whether the type of an array says that it is split over devices."""
    return spec_of(jax.typeof(x)) is not None


def names_of(names: Any) -> tuple[Any, ...]:
    """The axes of a mesh that an axis of an array is split over, as a tuple."""
    return names if isinstance(names, tuple) else (names,) if names is not None else ()


class Split(NamedTuple):
    """How the axes of a problem are split over a mesh."""

    primitives: Primitives
    params: Params
    mesh: Any
    names: dict[Axis, Any]  #: the axes of the mesh that each axis of the problem is split over

    def parts(self, names: Any) -> int:
        """The number of parts of an axis that is split over these axes of the mesh."""
        return prod(self.mesh.shape[name] for name in names_of(names))

    def spec(self, name: str, shape: Shape) -> PartitionSpec:
        """How an array is split. Axes along which it broadcasts are not split."""
        of, spec = primal_of(name), []
        for axis, extent in zip(self.primitives.axes(of, len(shape), self.params.problem), shape):
            names = self.names.get(axis)
            if extent != 1 and extent % (parts := self.parts(names)) != 0:
                expected = f"an extent of axis {axis} that is divisible by {parts} devices"
                _refuse(self.primitives, of, self.params, expected, extent)
            spec.append(None if extent == 1 else names)
        return PartitionSpec(*spec)  # type: ignore[no-untyped-call]

    def shardings(self, arrays: Iterable[tuple[str, Shape]]) -> list[NamedSharding]:
        """The shardings of arrays, given their names and shapes."""
        return [NamedSharding(self.mesh, self.spec(name, shape)) for name, shape in arrays]

    def local(self) -> Params:
        """The parameters of the primitive on one device."""
        results = [
            (name, tuple(n // self.parts(by) for n, by in zip(shape, self.spec(name, shape))))
            for name, shape in self.params.results
        ]
        parts = {axis: self.parts(names) for axis, names in self.names.items()}
        problem = self.primitives.local(self.params.problem, parts)
        return self.params._replace(problem=problem, results=tuple(results))

    def on_one(self) -> Run:
        """The primitive as a function of one device's parts of the arrays."""
        params, specs = self.local(), [self.spec(*result) for result in self.params.results]
        return lambda *arrays: list(map(self._total, self.primitives.run(params, *arrays), specs))

    def _total(self, x: jax.Array, spec: PartitionSpec) -> jax.Array:
        """Sum a result over the axes of the mesh that split the problem but not this result. 16-bit
        types are summed in float32."""
        devices = {name for names in self.names.values() for name in names_of(names)}
        devices -= {name for names in spec for name in names_of(names)}
        if not devices:
            return x
        wide = jnp.promote_types(x.dtype, jnp.float32)
        total: jax.Array
        total = jax.lax.psum(x.astype(wide), tuple(sorted(devices)))  # type: ignore[no-untyped-call]
        return total.astype(x.dtype)


def _refuse(
    primitives: Primitives, name: str, params: Params, expected: str, got: object
) -> NoReturn:
    """Raise ValueError with the public names of the call and the array."""
    of = primitives.user_name(name, params.problem)
    refuse(primitives.user_call, of, expected, got)


def _split_of(
    primitives: Primitives, params: Params, avals: Avals, *, may_split_time: bool = False
) -> Split | None:
    """How a problem is split, from the types of its arrays. None if no type names a mesh axis."""
    found: dict[Axis, Any] = {}
    mesh = None
    for name, aval in avals.items():
        spec, of = spec_of(aval), primal_of(name)
        for axis, names in zip(primitives.axes(of, len(aval.shape), params.problem), spec or ()):
            if names is None:
                continue
            if mesh is None:
                mesh = aval.sharding.mesh
            parts = prod(aval.sharding.mesh.shape[n] for n in names_of(names))
            if parts > 1 and axis in WHOLE and not (may_split_time and axis == "time"):
                _refuse(primitives, of, params, WHOLE[axis], spec)
            found.setdefault(axis, names)
    if not found:
        return None
    every = [name for names in found.values() for name in names_of(names)]
    if len(set(every)) != len(every):
        got, expected = f"shared ones in {found}", "a different mesh axis for each split axis"
        _refuse(primitives, primitives.operation.operands[0], params, expected, got)
    return Split(primitives, params, mesh, found)


def result_shardings(primitives: Primitives, params: Params, avals: Avals) -> list[Any]:
    """The shardings of results, given the types of the operands. Each is None if the operands have
    no mesh."""
    split = _split_of(primitives, params, avals)
    if split is not None:
        return split.shardings(params.results)
    mesh = getattr(getattr(next(iter(avals.values())), "sharding", None), "mesh", None)
    if mesh is None or mesh.empty:
        return [None] * len(params.results)
    whole = Split(primitives, params, mesh, {})
    return whole.shardings(params.results)


def over_devices(primitives: Primitives, params: Params, avals: Avals) -> Run | None:
    """Return a primitive over all devices as a function of its operands. Returns None if no
    operand's type says that it is split, and always before JAX 0.6.1."""
    split = _split_of(primitives, params, avals)
    if split is None or not hasattr(jax, "shard_map"):  # before JAX 0.6.1 XLA gathers the arrays
        return None
    mesh, specs = split.mesh, tuple(split.spec(name, aval.shape) for name, aval in avals.items())
    into = [split.spec(*result) for result in params.results]
    run = jax.shard_map(split.on_one(), mesh=mesh, in_specs=specs, out_specs=into, check_vma=False)
    return lambda *arrays: run(*(_reshard(x, mesh, s) for x, s in zip(arrays, specs)))


def split_over_time(
    primitives: Primitives,
    params: Params,
    arrays: Mapping[str, Any],
    on_each: Callable[[Params, dict[str, Any], tuple[Any, ...]], Any],
) -> dict[str, jax.Array] | None:
    """Run a call on each device's part of the arrays, if their types say that time is split.

    Otherwise, and before JAX 0.6.1, returns None. ``on_each(params, arrays, names)`` runs the call
    on one device. ``names`` are the axes of the mesh that time is split over. A reset after the
    last step is passed as the array "after".
    """
    if not hasattr(jax, "shard_map"):
        return None
    avals = {name: jax.typeof(x) for name, x in arrays.items()}
    split = _split_of(primitives, params, avals, may_split_time=True)
    if split is None or split.parts(split.names.get("time")) == 1:
        return None
    if not any(isinstance(x, jax.core.Tracer) for x in arrays.values()):
        # Outside jit there may be no current mesh, but the mesh of an array has devices.
        mesh = next(x.sharding.mesh for x in arrays.values() if is_split(x))
        split = split._replace(mesh=mesh)
    given = dict(arrays)
    steps, axis = params.problem.steps, params.problem.axis
    if "resets" in given and given["resets"].shape[axis] > steps:
        resets = given["resets"]
        given["resets"] = jax.lax.slice_in_dim(resets, 0, steps, axis=axis)
        given["after"] = jax.lax.slice_in_dim(resets, steps, None, axis=axis)
    specs = {name: split.spec(name, x.shape) for name, x in given.items()}
    local, names = split.local(), names_of(split.names["time"])
    run: Callable[..., dict[str, jax.Array]] = jax.shard_map(
        lambda parts: on_each(local, parts, names),
        mesh=split.mesh,
        in_specs=(specs,),
        out_specs={name: split.spec(name, shape) for name, shape in params.results},
    )
    return run({name: _reshard(x, split.mesh, specs[name]) for name, x in given.items()})


def placed_as(x: Any, like: Any) -> Any:
    """Return x, split over devices like another array."""
    if not hasattr(jax, "shard_map"):
        return x
    of = (like if isinstance(like, jax.core.ShapedArray) else jax.typeof(like)).sharding
    now = jax.typeof(x).sharding
    if now.spec == of.spec:
        return x
    # The type of an array has no mesh if there was no current mesh when it was made.
    return _reshard(x, now.mesh if of.mesh.empty else of.mesh, of.spec)


def _reshard(x: Any, mesh: Any, spec: PartitionSpec) -> Any:
    """Return x, split as ``spec`` says. The mesh is explicit: there may be no current mesh."""
    to = NamedSharding(mesh, spec)
    return (getattr(jax, "reshard", None) or jax.sharding.reshard)(x, to)


# ---- shard_map -----------------------------------------------------------------------------------


def _varying_axes(x: Any) -> set[Any]:
    """The axes of the mesh over which an array's type says that it varies, within shard_map."""
    kind = jax.typeof(x)
    varying = getattr(kind, "manual_axis_type", kind)
    return set(getattr(varying, "varying", getattr(varying, "vma", ())))


def is_replicated(x: Any, names: tuple[Any, ...]) -> bool:
    """Whether an array is known to be the same on all devices along these axes of the mesh."""
    along = _varying_axes(jax.lax.axis_index(names))  # empty if types say nothing
    return bool(along) and along.isdisjoint(_varying_axes(x))


def varying_alike(arrays: Arrays, names: tuple[Any, ...] = ()) -> dict[str, jax.Array]:
    """Mark replicated arrays as varying over axes of the mesh, within shard_map.

    These are the axes that any other array varies over, and ``names``. JAX then sums the gradients
    of replicated arrays over these axes.
    """
    every: set[Any] = set().union(*map(_varying_axes, arrays.values()))
    if names:
        every |= _varying_axes(jax.lax.axis_index(names))

    def varying(x: Any) -> Any:
        missing = tuple(sorted(every - _varying_axes(x)))
        if not missing:
            return x
        if hasattr(jax.lax, "pcast"):
            return jax.lax.pcast(x, missing, to="varying")
        return jax.lax.pvary(x, missing)  # type: ignore[attr-defined]

    return {name: varying(x) for name, x in arrays.items()} if every else dict(arrays)


def allow_in_shard_map(primitive: Any) -> None:
    """Allow a primitive in the shard_map of JAX before 0.6.1. Its results are replicated over the
    axes of the mesh that all operands are replicated over. Newer versions infer this from types."""
    try:
        from jax.experimental.shard_map import (  # type: ignore[attr-defined]
            register_standard_check,
            register_standard_rewrite,
        )
    except ImportError:
        return
    register_standard_check(primitive)
    register_standard_rewrite(primitive)

# SPDX-License-Identifier: BSD-3-Clause
"""Arrays over several devices.

Sequences are independent, and so are channels but for the arrays that they share. Each device
therefore runs the kernels on its part of the arrays. Only gradients of shared arrays are
communicated: their sum over the devices. Time that is split over devices is handled in
``_op/linear/jax_split_time.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from .._arguments import refuse
from .._op.spec import primal_of

if TYPE_CHECKING:
    from .primitives import Primitives

__all__ = [
    *("WHOLE", "Split", "allow_in_shard_map", "is_replicated", "is_split", "names_of"),
    *("over_devices", "placed_as", "result_shardings", "spec_of", "split_over_time"),
    "varying_alike",
]

# ---- explicit sharding: the types of arrays say how they are split -------------------------------

#: Axes that must not be split, and the words of the error.
WHOLE = {axis: f"an array that is not split along {axis}" for axis in ("time", "state")}
WHOLE["stack"] = "pre-activations that are not split from one another"
WHOLE["checkpoint"] = WHOLE["time"]


def spec_of(aval: Any) -> tuple[Any, ...] | None:
    """The axes of the mesh that each axis of an array is split over. None if its type names no
    axis of a mesh."""
    sharding = getattr(aval, "sharding", None)
    spec = getattr(sharding, "spec", None)
    if spec is None or all(names is None for names in spec):
        return None
    return tuple(spec) + (None,) * (len(aval.shape) - len(spec))


def is_split(x: Any) -> bool:
    """Whether the type of an array says that it is split over devices."""
    return hasattr(jax, "typeof") and spec_of(jax.typeof(x)) is not None


def names_of(names):
    """The axes of a mesh that an axis of an array is split over, as a tuple."""
    return names if isinstance(names, tuple) else (names,) if names is not None else ()


class Split(NamedTuple):
    """How the axes of a problem are split over a mesh."""

    primitives: Primitives
    problem: Any
    mesh: Any
    names: dict[Any, Any]  #: axes of the mesh by the names of axes of arrays

    def parts(self, axis: Any) -> int:
        """The number of parts of an axis."""
        return prod(self.mesh.shape[name] for name in names_of(self.names.get(axis)))

    def spec(self, name: str, shape: tuple[int, ...]) -> PartitionSpec:
        """How an array is split. Axes along which it broadcasts are not."""
        of, spec = primal_of(name), []
        for axis, extent in zip(self.primitives.axes(of, len(shape), self.problem), shape):
            if extent != 1 and extent % self.parts(axis) != 0:
                expected = (
                    f"an extent of axis {axis} that is divisible by {self.parts(axis)} devices"
                )
                refuse(*_argument(self.primitives, of, self.problem), expected, extent)
            spec.append(None if extent == 1 else self.names.get(axis))
        return PartitionSpec(*spec)

    def part(self, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a device's part of an array."""
        split = [
            prod(self.mesh.shape[n] for n in names_of(names)) for names in self.spec(name, shape)
        ]
        return tuple(extent // parts for extent, parts in zip(shape, split))

    def local(self) -> Any:
        """The problem of one device."""
        return self.primitives.local(self.problem, {axis: self.parts(axis) for axis in self.names})

    def on_one(self, run: Callable, results) -> tuple[Callable, list[PartitionSpec]]:
        """Returns a primitive on one device as a function of its parts of the arrays, and how the
        results are split. ``run(*arrays, problem=..., results=...)`` computes the primitive."""
        specs = [self.spec(name, shape) for name, shape in results]
        parts = tuple((name, self.part(name, shape)) for name, shape in results)

        def computed(*arrays):
            out = run(*arrays, problem=self.local(), results=parts)
            return [self._total(x, spec) for x, spec in zip(out, specs)]

        return computed, specs

    def _total(self, x, spec):
        """The sum over the devices that share an array: in float32, if it has fewer bits."""
        devices = {name for names in self.names.values() for name in names_of(names)}
        devices -= {name for names in spec for name in names_of(names)}
        if not devices:
            return x
        wide = jnp.promote_types(x.dtype, jnp.float32)
        return jax.lax.psum(x.astype(wide), tuple(sorted(devices))).astype(x.dtype)


def _argument(primitives, name, problem):
    """The call and the name of an array as users know them."""
    return primitives.user_call, primitives.user_name(name, problem)


def _mesh_of(avals):
    """The mesh of the first array whose type names axes of one."""
    return next(aval.sharding.mesh for aval in avals if spec_of(aval) is not None)


def _split_of(primitives, problem, avals, *, may_split_time=False):
    """How a problem is split: as its arrays are. None if the types of all say nothing."""
    found: dict[Any, Any] = {}
    for name, aval in avals.items():
        spec, of = spec_of(aval), primal_of(name)
        if spec is None:
            continue
        for axis, names in zip(primitives.axes(of, len(spec), problem), spec):
            if names is None:
                continue
            parts = prod(aval.sharding.mesh.shape[n] for n in names_of(names))
            if parts > 1 and axis in WHOLE and not (may_split_time and axis == "time"):
                refuse(*_argument(primitives, of, problem), WHOLE[axis], spec)
            found.setdefault(axis, names)
    if not found:
        return None
    every = [name for names in found.values() for name in names_of(names)]
    if len(set(every)) != len(every):
        argument = _argument(primitives, primitives.operation.operands[0], problem)
        refuse(*argument, "arrays split alike", f"one mesh axis for two of {found}")
    return Split(primitives, problem, _mesh_of(avals.values()), found)


def result_shardings(primitives: Primitives, problem, avals: Mapping[str, Any], results) -> list:
    """The shardings of results, given the types of the operands; None for all if these say
    nothing."""
    split = _split_of(primitives, problem, avals)
    if split is None:
        return [None] * len(results)
    return [NamedSharding(split.mesh, split.spec(name, shape)) for name, shape in results]


def over_devices(
    primitives: Primitives, run: Callable, problem, avals: Mapping[str, Any], results
) -> Callable | None:
    """A primitive over all devices as a function of its operands, or None for one device.
    ``run(*arrays, problem=..., results=...)`` computes it on one device."""
    split = _split_of(primitives, problem, avals)
    if split is None or not hasattr(jax, "shard_map"):  # before JAX 0.7 XLA gathers the arrays
        return None
    on_one, into = split.on_one(run, results)
    specs = tuple(split.spec(name, aval.shape) for name, aval in avals.items())
    on_each = jax.shard_map(
        on_one, mesh=split.mesh, in_specs=specs, out_specs=into, check_vma=False
    )
    return lambda *arrays: on_each(*(_reshard(x, split.mesh, s) for x, s in zip(arrays, specs)))


def split_over_time(
    primitives: Primitives, on_each: Callable, problem, arrays: Mapping[str, Any], results
) -> dict[str, Any] | None:
    """Runs a call on every device's part of arrays whose types say that time is split. Returns None
    if they do not. ``on_each(problem, arrays, results, names, after)`` runs it on one device, given
    the axes of the mesh that time is split over, and the reset mask after the last step or None."""
    if not hasattr(jax, "shard_map") or not hasattr(jax, "typeof"):
        return None
    avals = {name: jax.typeof(x) for name, x in arrays.items()}
    split = _split_of(primitives, problem, avals, may_split_time=True)
    if split is None or split.parts("time") == 1:
        return None
    if not any(isinstance(x, jax.core.Tracer) for x in arrays.values()):
        # There may be no mesh around a call that is not traced; those of arrays have devices.
        mesh = next(x.sharding.mesh for x in arrays.values() if is_split(x))
        split = split._replace(mesh=mesh)
    given = dict(arrays)
    steps, axis = problem.steps, problem.axis
    if "resets" in given and given["resets"].shape[axis] > steps:
        resets = given["resets"]
        given["resets"] = jax.lax.slice_in_dim(resets, 0, steps, axis=axis)
        given["after"] = jax.lax.slice_in_dim(resets, steps, None, axis=axis)

    def on_one(parts):
        after = parts.pop("after", None)
        wanted = {name: split.part(name, shape) for name, shape in results.items()}
        return on_each(split.local(), parts, wanted, names_of(split.names["time"]), after)

    specs = {name: split.spec(name, x.shape) for name, x in given.items()}
    return jax.shard_map(
        on_one,
        mesh=split.mesh,
        in_specs=(specs,),
        out_specs={name: split.spec(name, shape) for name, shape in results.items()},
    )({name: _reshard(x, split.mesh, specs[name]) for name, x in given.items()})


def placed_as(x: Any, like: Any) -> Any:
    """Returns x, split over devices as another array, or as its type says."""
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
    # The type of an array that was made with no mesh around it has none.
    return _reshard(x, now.mesh if of.mesh.empty else of.mesh, of.spec)


def _reshard(x, mesh, spec):
    """Returns x, split in another way. The mesh is named: there may be none around the call."""
    to = NamedSharding(mesh, spec)
    return (getattr(jax, "reshard", None) or jax.sharding.reshard)(x, to)


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
    """Within shard_map, makes arrays that are replicated over an axis of the mesh vary over it if
    any other array does, or if it is one of ``names``. Their gradients are then summed over it."""
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
    """Allows a primitive in the shard_map of JAX before 0.6. Its results are replicated over the
    axes of the mesh that all operands are replicated over. In newer versions types say so."""
    try:
        from jax.experimental.shard_map import register_standard_check, register_standard_rewrite
    except ImportError:
        return
    register_standard_check(primitive)
    register_standard_rewrite(primitive)

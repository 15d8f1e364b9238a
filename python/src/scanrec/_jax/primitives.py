# SPDX-License-Identifier: BSD-3-Clause
"""The three primitives of an operation: "value" (the forward computation), "vjp" (the adjoint) and
"jvp" (the tangent).

Arrays have named axes. An array broadcasts along an axis if it has extent 1 and other arrays have
more. Its gradient is then the sum over that axis. Batching, the shapes of results and the sharding
over devices follow from the names of the axes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial, partialmethod
from itertools import compress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir, partial_eval

from .. import _native
from .._op.spec import Operation, is_boundary, primal_of, tangent_of
from .arrays import boundary_dtype
from .partitioning import partitioned, program_of
from .sharding import allow_in_shard_map, is_split, over_devices, result_shardings
from .targets import on_gpu, target_of
from .types import Args, Arrays, Axis, Batched, Dims, Names, Params, Shape, Shapes

__all__ = ["Primitives"]


class Primitives:
    """The primitives of an operation. A subclass describes the operation."""

    operation: Operation
    #: The name of the public call, for errors.
    user_call: str
    #: The names of the axes of every operand, result and residual. If an array may have different
    #: ranks, "|" separates its layouts. At least one operand must have an axis "time". The axes
    #: "batch" and "channel" may be split over devices.
    layout: Mapping[str, str]
    #: Whether the kernels' gradients of complex numbers are conjugated, unlike those of JAX.
    conjugated = False

    def __init__(self) -> None:
        op = self.operation
        tangents = tuple(map(tangent_of, op.differentiable))
        self.calls = {"value": op.value, "vjp": op.vjp, "jvp": op.jvp}
        #: The operands of the primitives. "jvp" may read any operand of "value".
        self.reads = {name: call.reads for name, call in self.calls.items()}
        self.reads["jvp"] = (*op.operands, *op.residuals, *tangents)
        self.primitives = {kind: self._primitive(kind) for kind in self.calls}

    # ---- what depends on the operation -----------------------------------------------------------

    def has_kernel(self, kind: str) -> bool:
        """Whether a primitive has a kernel. Otherwise it is composed of other operations."""
        return kind != "jvp" or self.operation.has_jvp

    def user_name(self, name: str, problem: Any) -> str:
        """The name of an operand in the public call."""
        return self.operation.names.get(name, name)

    def axes(self, name: str, rank: int, problem: Any) -> tuple[Axis, ...]:
        """The names of the axes of an operand, result or residual."""
        kinds = [kind.split() for kind in self.layout[name].split("|")]
        return tuple(next((kind for kind in kinds if len(kind) == rank), kinds[0]))

    def shape(self, name: str, problem: Any, arrays: Arrays) -> Shape:
        """The shape of a result or residual that does not broadcast, given the operands."""
        extents: dict[Axis, int] = {}
        for of in self.operation.operands:
            if of in arrays:
                shape = arrays[of].shape
                for axis, extent in zip(self.axes(of, len(shape), problem), shape):
                    extents.setdefault(axis, extent)
        (extents["checkpoint"],) = _native.checkpoint_shape((extents["time"],), 0)
        return tuple(extents[axis] for axis in self.axes(name, 0, problem))

    def dtype(self, name: str, arrays: Arrays) -> np.dtype[Any]:
        """The element type of a result of a primitive, given its operands."""
        of = primal_of(name)
        if of in arrays:
            return arrays[of].dtype
        if is_boundary(of) or of == "checkpoints":
            return self.computed(arrays)
        return arrays[self.operation.operands[0]].dtype

    def computed(self, arrays: Arrays) -> np.dtype[Any]:
        """The element type that the kernels compute in."""
        return boundary_dtype(arrays[self.operation.operands[0]].dtype)

    def attributes(self, problem: Any) -> dict[str, Any]:
        """The attributes of the XLA handlers, by name: the options of the problem."""
        return dict(problem._asdict())

    def local(self, problem: Any, parts: Mapping[Axis, int]) -> Any:
        """The problem of one device, given the number of parts of each axis that is split."""
        return problem

    def unread(self, kind: str, problem: Any, operands: Names, results: Names) -> Names:
        """The operands that a primitive does not need for these results."""
        return ()

    # ---- calls -----------------------------------------------------------------------------------

    def bind(
        self, kind: str, problem: Any, arrays: Mapping[str, jax.Array | None], wanted: Shapes
    ) -> dict[str, jax.Array]:
        """Bind a primitive to the arrays that it needs and that are present. ``wanted`` has the
        shapes of the results to compute, by name. Returns these results by name."""
        present = {name for name, x in arrays.items() if x is not None}
        present -= set(self.unread(kind, problem, present, wanted))
        operands = tuple(name for name in self.reads[kind] if name in present)
        writes = self.calls[kind].writes
        results = tuple((name, tuple(wanted[name])) for name in writes if name in wanted)
        if not results:
            return {}
        args = [arrays[name] for name in operands]
        params = Params(kind, problem, operands, results)
        out = self.primitives[kind].bind(*args, params=params, program=program_of(args))
        return dict(zip(params.shapes, out))

    #: The value returns results and residuals. The adjoint returns gradients, given operands,
    #: residuals and cotangents. The tangent returns tangents of results, given operands, residuals
    #: and tangents of operands.
    value: partialmethod[dict[str, jax.Array]] = partialmethod(bind, "value")
    vjp: partialmethod[dict[str, jax.Array]] = partialmethod(bind, "vjp")
    jvp: partialmethod[dict[str, jax.Array]] = partialmethod(bind, "jvp")

    def run(self, params: Params, *args: jax.Array) -> Sequence[jax.Array]:
        """Compute a primitive on one device, by its kernel. :class:`scanrec._jax.fused.Fused`
        overrides this method for primitives without a kernel."""
        call, arrays = self.calls[params.kind], params.named(args)
        conjugates = self.conjugated and params.kind == "vjp"
        struct: Callable[..., Any] = jax.ShapeDtypeStruct
        kernel = jax.ffi.ffi_call(
            target_of(call.name),
            [struct(shape, self.dtype(name, arrays)) for name, shape in params.results],
        )
        out = kernel(
            *(jnp.conj(x) if conjugates and n != primal_of(n) else x for n, x in arrays.items()),
            **{name: _attribute(value) for name, value in self.attributes(params.problem).items()},
            operands=_mask(call.reads, arrays),
            results=_mask(call.writes, params.shapes),
        )
        return [jnp.conj(x) for x in out] if conjugates else out

    def run_composed(self, params: Params, *args: jax.Array) -> Sequence[jax.Array]:
        """Compute a primitive by other operations."""
        raise NotImplementedError

    # ---- primitives ------------------------------------------------------------------------------

    def _primitive(self, kind: str) -> Any:
        primitive: Any = Primitive(f"scanrec_{self.calls[kind].name}")
        primitive.multiple_results = True
        primitive.def_abstract_eval(self._abstract)
        primitive.def_impl(partial(_run_eagerly, primitive))
        batching.primitive_batchers[primitive] = self.batch
        partial_eval.dce_rules[primitive] = self._eliminate
        mlir.register_lowering(primitive, self._lower, platform="cpu")
        lower: Callable[..., Any] = self._lower
        if not self.operation.on_gpu:
            lower = mlir.lower_fun(self._composed)
        elif self.has_kernel(kind):
            lower = on_gpu(lower)
        mlir.register_lowering(primitive, lower, platform="cuda")
        allow_in_shard_map(primitive)
        return primitive

    def _abstract(self, *avals: Any, params: Params, **_: Any) -> list[Any]:
        arrays = params.named(avals)
        out = []
        for (name, shape), sharding in zip(params.results, result_shardings(self, params, arrays)):
            split = {} if sharding is None else {"sharding": sharding}
            dtype = self.dtype(name, arrays)
            out.append(avals[0].update(shape=shape, dtype=dtype, weak_type=False, **split))
        return out

    def _lower(self, ctx: Any, *args: Any, params: Params, **_: Any) -> Any:
        avals = params.named(ctx.avals_in)
        run = over_devices(self, params, avals)
        if run is None and self.has_kernel(params.kind):
            run = partitioned(self, params, avals, ctx)
        return mlir.lower_fun(run or partial(self.run, params))(ctx, *args)

    def _composed(self, *args: Any, params: Params, **_: Any) -> Sequence[jax.Array]:
        return self.run_composed(params, *args)

    def _eliminate(self, used: Sequence[bool], *more: Any) -> tuple[list[bool], Any]:
        """Remove unused results, and the operands that only unused results need."""
        equation = more[-1]  # newer versions of JAX have one more argument before it
        if not any(used):
            return [False] * len(equation.invars), None
        params: Params = equation.params["params"]
        results = tuple(compress(params.results, used))
        unread = self.unread(params.kind, params.problem, params.operands, dict(results))
        kept = [name not in unread for name in params.operands]
        params = params._replace(operands=tuple(compress(params.operands, kept)), results=results)
        return kept, equation.replace(
            invars=list(compress(equation.invars, kept)),
            outvars=list(compress(equation.outvars, used)),
            params={**equation.params, "params": params},
        )

    def batch(self, args: Args, dims: Dims, *, params: Params, **_: Any) -> Batched:
        """Merge the axis of vmap into another axis if possible. The batch becomes more sequences if
        all batched arrays and all results have an axis "batch", and more channels otherwise."""
        kind, problem, operands, results = params
        in_front: list[int | None] = [0] * len(results)
        if not self.has_kernel(kind):
            # jax.vmap computes only once what does not depend on the batch.
            return list(jax.vmap(partial(self.run, params), dims)(*args)), in_front
        batched = {name for name, d in zip(operands, dims) if d is not None}
        arrays = {
            name: a if d is None else jnp.moveaxis(a, d, 0)
            for name, a, d in zip(operands, args, dims)
        }
        ranks = {name: x.ndim - (name in batched) for name, x in arrays.items()}
        ranks |= {name: len(shape) for name, shape in results}
        axes = {name: self.axes(primal_of(name), rank, problem) for name, rank in ranks.items()}
        changed = {*batched, *params.shapes}
        into = "batch" if all("batch" in axes[name] for name in changed) else "channel"
        axes_of = {name: of.index(into) for name, of in axes.items() if into in of}
        if any(map(is_split, arrays.values())) or not changed <= axes_of.keys():
            # Loop over the batch: an array is split over devices, or a batched array or a result
            # lacks the axis `into`.
            wanted = params.shapes
            out = jax.lax.map(
                lambda one: tuple(self.bind(kind, problem, {**arrays, **one}, wanted).values()),
                {name: arrays[name] for name in batched},
            )
            return list(out), in_front

        size = next(arrays[name].shape[0] for name in batched)
        extent = arrays[operands[0]].shape[axes_of[operands[0]] + (operands[0] in batched)]
        for name in arrays.keys() & axes_of.keys():
            x, axis = arrays[name], axes_of[name]
            shape = x.shape[1:] if name in batched else x.shape
            if name == "resets" and shape[axis] == 1:
                if name not in batched:
                    continue
                # Batched resets of extent 1 hold for all sequences (or channels) of their own batch
                # element only, so expand them before merging.
                shape = (*shape[:axis], extent, *shape[axis + 1 :])
            x = jnp.broadcast_to(x if name in batched else x[None], (size, *shape))
            arrays[name] = jnp.moveaxis(x, 0, axis).reshape(_grown(shape, axis, size))
        wanted = {name: _grown(shape, axes_of[name], size) for name, shape in results}
        out = self.bind(kind, problem, arrays, wanted)
        apart = {
            name: out[name].reshape(*shape[: axes_of[name]], size, *shape[axes_of[name] :])
            for name, shape in results
        }
        return [jnp.moveaxis(x, axes_of[name], 0) for name, x in apart.items()], in_front


def _grown(shape: Shape, axis: int, size: int) -> Shape:
    return (*shape[:axis], size * shape[axis], *shape[axis + 1 :])


def _mask(names: Sequence[str], present: Names) -> Any:
    """An integer with one bit for every array that is present."""
    return np.int64(sum(1 << i for i, name in enumerate(names) if name in present))


def _attribute(value: bool | int | float | Shape) -> Any:
    """A value of Python in the type that handlers take."""
    if isinstance(value, bool):
        return value
    return np.float64(value) if isinstance(value, float) else np.asarray(value, np.int64)[()]


@lru_cache(maxsize=4096)
def _jitted(primitive: Primitive, params: Params, program: Any) -> Any:
    return jax.jit(partial(primitive.bind, params=params, program=program))


def _run_eagerly(primitive: Primitive, *args: Any, params: Params, program: Any) -> Any:
    if not any(isinstance(x, jax.Array) and len(x.sharding.device_set) > 1 for x in args):
        program = None  # nothing is split, and without a program a call takes 3 us less
    with jax.disable_jit(False):
        return _jitted(primitive, params, program)(*args)

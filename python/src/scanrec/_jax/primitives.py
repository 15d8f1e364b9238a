# SPDX-License-Identifier: BSD-3-Clause
"""The three primitives of an operation: its value, its adjoint ("vjp") and its tangent ("jvp").

The parameters of a primitive are the problem, which is a named tuple of options; ``operands``, the
names of the arrays that are present; and ``results``, pairs (name, shape) of the arrays that are
wanted. Absent operands are not read, and other results are not computed.

Arrays have named axes. An array that has extent 1 where the others have more broadcasts, and its
gradient is the sum over that axis. Batching, the shapes of results and the sharding over devices
follow from the names of the axes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir, partial_eval

from .. import _native
from .._op.spec import Operation, is_edge, primal_of, tangent_of
from .arrays import edge_dtype
from .partitioning import devices_of, partitioned, program_of
from .sharding import allow_in_shard_map, is_split, over_devices, result_shardings
from .targets import on_gpu, target_of

__all__ = ["Primitives"]

Shapes = Mapping[str, Sequence[int]]


class Primitives:
    """The primitives of an operation. A subclass describes the operation."""

    operation: Operation
    #: The call as users know it.
    user_call: str
    #: The names of the axes of every operand, result and residual. An array of several kinds, which
    #: differ in rank, has them separated by "|". Some operand must have an axis "time". The axes
    #: "batch" and "channel" may be split over devices.
    layout: Mapping[str, str]
    #: Whether the kernels' gradients of complex numbers are conjugated, unlike those of JAX.
    conjugated = False

    @property
    def composes_tangent(self) -> bool:
        """Whether the tangent has no kernel and is composed of other operations."""
        return not self.operation.has_jvp

    def __init__(self) -> None:
        op = self.operation
        tangents = tuple(map(tangent_of, op.differentiable))
        self.calls = {"value": op.value, "vjp": op.vjp, "jvp": op.jvp}
        #: The operands of the primitives. A tangent may read any that the value reads.
        self.reads = {name: call.reads for name, call in self.calls.items()}
        self.reads["jvp"] = (*op.operands, *op.residuals, *tangents)
        self.primitives = {kind: self._primitive(kind) for kind in self.calls}

    # ---- what depends on the operation -----------------------------------------------------------

    def user_name(self, name: str, problem) -> str:
        """The name of an operand in the public call."""
        return self.operation.names.get(name, name)

    def axes(self, name: str, rank: int, problem) -> tuple[Any, ...]:
        """The names of the axes of an operand, result or residual."""
        kinds = [kind.split() for kind in self.layout[name].split("|")]
        return tuple(next((kind for kind in kinds if len(kind) == rank), kinds[0]))

    def shape(self, name: str, problem, arrays: Mapping[str, Any]) -> tuple[int, ...]:
        """The shape of a result or residual that does not broadcast, given the operands."""
        extents: dict[Any, int] = {}
        for of in self.operation.operands:
            if of in arrays:
                shape = arrays[of].shape
                for axis, extent in zip(self.axes(of, len(shape), problem), shape):
                    extents.setdefault(axis, extent)
        (extents["checkpoint"],) = _native.checkpoint_shape((extents["time"],), 0)
        return tuple(extents[axis] for axis in self.axes(name, 0, problem))

    def dtype(self, name: str, arrays: Mapping[str, Any]) -> Any:
        """The element type of a result of a primitive, given its operands."""
        of = primal_of(name)
        if of in arrays:
            return arrays[of].dtype
        if is_edge(of) or of == "checkpoints":
            return self.computed(arrays)
        return arrays[self.operation.operands[0]].dtype

    def computed(self, arrays: Mapping[str, Any]) -> Any:
        """The element type that the kernels compute in."""
        return edge_dtype(arrays[self.operation.operands[0]].dtype)

    def attributes(self, problem) -> dict[str, Any]:
        """The attributes of the XLA handlers, by name: the options of the problem."""
        return problem._asdict()

    def local(self, problem, parts: Mapping[Any, int]):
        """The problem of one device, if axes are split into so many parts."""
        return problem

    def unread(
        self, kind: str, problem, operands: Collection[str], results: Collection[str]
    ) -> Collection[str]:
        """The operands that a primitive does not need for these results."""
        return ()

    def run(self, kind: str, *args, problem, operands, results) -> Sequence[jax.Array]:
        """Computes a primitive on one device."""
        return self._run_kernel(kind, *args, problem=problem, operands=operands, results=results)

    # ---- calls -----------------------------------------------------------------------------------

    def bind(self, kind: str, problem, arrays: Mapping[str, Any], wanted: Shapes) -> dict[str, Any]:
        """Binds a primitive to those arrays that are not None and that it needs. Returns the wanted
        results, given by name with their shapes."""
        present = {name for name, x in arrays.items() if x is not None}
        present -= set(self.unread(kind, problem, present, wanted))
        operands = tuple(name for name in self.reads[kind] if name in present)
        writes = self.calls[kind].writes
        results = tuple((name, tuple(wanted[name])) for name in writes if name in wanted)
        if not results:
            return {}
        args = [arrays[name] for name in operands]
        params = {"problem": problem, "operands": operands, "results": results}
        params["program"] = program_of(args)
        out = self.primitives[kind].bind(*args, **params)
        return {name: x for (name, _), x in zip(results, out)}

    def value(self, problem, arrays: Mapping[str, Any], wanted: Shapes) -> dict[str, Any]:
        """Returns results, and residuals, of the operation."""
        return self.bind("value", problem, arrays, wanted)

    def vjp(self, problem, arrays: Mapping[str, Any], wanted: Shapes) -> dict[str, Any]:
        """Returns gradients, given operands, residuals and cotangents."""
        return self.bind("vjp", problem, arrays, wanted)

    def jvp(self, problem, arrays: Mapping[str, Any], wanted: Shapes) -> dict[str, Any]:
        """Returns tangents of results, given operands, residuals and tangents."""
        return self.bind("jvp", problem, arrays, wanted)

    # ---- primitives ------------------------------------------------------------------------------

    def _primitive(self, kind):
        primitive = Primitive(f"scanrec_{self.calls[kind].name}")
        primitive.multiple_results = True
        primitive.def_abstract_eval(partial(self._abstract, kind))
        primitive.def_impl(partial(_run_eagerly, primitive))
        batching.primitive_batchers[primitive] = partial(self.batch, kind)
        partial_eval.dce_rules[primitive] = partial(self._eliminate, kind)
        lower = partial(self._lower, kind)
        mlir.register_lowering(primitive, lower, platform="cpu")
        mlir.register_lowering(
            primitive, on_gpu(lower) if self._has_kernel(kind) else lower, platform="cuda"
        )
        allow_in_shard_map(primitive)
        return primitive

    def _has_kernel(self, kind):
        return kind != "jvp" or not self.composes_tangent

    def _abstract(self, kind, *avals, problem, operands, results, **_):
        arrays = dict(zip(operands, avals))
        shardings = result_shardings(self, problem, arrays, results)
        out = []
        for (name, shape), sharding in zip(results, shardings):
            split = {} if sharding is None else {"sharding": sharding}
            dtype = self.dtype(name, arrays)
            out.append(avals[0].update(shape=shape, dtype=dtype, weak_type=False, **split))
        return out

    def _lower(self, kind, ctx, *args, problem, operands, results, **_):
        on_one = partial(self.run, kind, operands=operands)
        avals = dict(zip(operands, ctx.avals_in))
        run = over_devices(self, on_one, problem, avals, results)
        if run is None and len(devices := devices_of(ctx)) > 1 and self._has_kernel(kind):
            shapes = {name: aval.shape for name, aval in avals.items()}
            run = partitioned(self, on_one, problem, shapes, results, devices)
        run = run or partial(on_one, problem=problem, results=results)
        return mlir.lower_fun(run, multiple_results=True)(ctx, *args)

    def _run_kernel(self, kind, *args, problem, operands, results):
        call, arrays = self.calls[kind], dict(zip(operands, args))
        if self.conjugated and kind == "vjp":
            args = [x if name == primal_of(name) else jnp.conj(x) for name, x in arrays.items()]
        kernel = jax.ffi.ffi_call(
            target_of(call.name),
            [jax.ShapeDtypeStruct(shape, self.dtype(name, arrays)) for name, shape in results],
        )
        out = kernel(
            *args,
            **{name: _attribute(value) for name, value in self.attributes(problem).items()},
            operands=_mask(call.reads, operands),
            results=_mask(call.writes, dict(results)),
        )
        return [jnp.conj(x) for x in out] if self.conjugated and kind == "vjp" else out

    def _eliminate(self, kind, used, *more):
        """Leaves out results that nobody uses, and the operands that only these need."""
        equation = more[-1]  # newer versions of JAX have one more argument before it
        if not any(used):
            return [False] * len(equation.invars), None
        params = equation.params
        results = tuple(result for result, is_used in zip(params["results"], used) if is_used)
        unread = self.unread(kind, params["problem"], params["operands"], dict(results))
        kept = [name not in unread for name in params["operands"]]
        operands = tuple(name for name in params["operands"] if name not in unread)
        return kept, equation.replace(
            invars=[x for x, is_kept in zip(equation.invars, kept) if is_kept],
            outvars=[x for x, is_used in zip(equation.outvars, used) if is_used],
            params={**params, "operands": operands, "results": results},
        )

    # ---- batching --------------------------------------------------------------------------------

    def batch(self, kind: str, args, dims, *, problem, operands, results, **_):
        """Makes a batch part of an axis. The batch becomes more sequences if no operand with
        weights is batched, and more channels otherwise."""
        if not self._has_kernel(kind):
            # JAX computes once what the batch shares.
            run = partial(self.run, kind, problem=problem, operands=operands, results=results)
            return jax.vmap(run, in_axes=dims)(*args), [0] * len(results)
        size = next(a.shape[d] for a, d in zip(args, dims) if d is not None)
        batched = {name for name, d in zip(operands, dims) if d is not None}
        arrays = {
            name: a if d is None else jnp.moveaxis(a, d, 0)
            for name, a, d in zip(operands, args, dims)
        }
        ranks = {name: x.ndim - (name in batched) for name, x in arrays.items()}
        ranks |= {name: len(shape) for name, shape in results}
        axes = {name: self.axes(primal_of(name), rank, problem) for name, rank in ranks.items()}
        changed = {*batched, *dict(results)}
        into = "batch" if all("batch" in axes[name] for name in changed) else "channel"
        places = {name: of.index(into) if into in of else None for name, of in axes.items()}
        if any(map(is_split, arrays.values())) or any(places[name] is None for name in changed):
            return self._batch_one_by_one(kind, arrays, batched, problem, results)
        if "resets" in batched:  # where they broadcast, each broadcasts to its own sequences
            first, place = operands[0], places["resets"] + 1
            extent = arrays[first].shape[places[first] + (first in batched)]
            shape = arrays["resets"].shape
            arrays["resets"] = jnp.broadcast_to(
                arrays["resets"], (*shape[:place], extent, *shape[place + 1 :])
            )
        folded = {
            name: _folded(name, x, name in batched, places[name], size)
            for name, x in arrays.items()
        }
        wanted = {
            name: (*shape[: places[name]], size * shape[places[name]], *shape[places[name] + 1 :])
            for name, shape in results
        }
        out = self.bind(kind, problem, folded, wanted)
        return [_unfolded(out[name], places[name], size) for name, _ in results], [0] * len(results)

    def _batch_one_by_one(self, kind, arrays, batched, problem, results):
        """Runs the elements of a batch one after the other. This is for arrays that are split over
        devices, and for those without the axis that the batch becomes part of."""

        def one(moved):
            return tuple(self.bind(kind, problem, {**arrays, **moved}, dict(results)).values())

        out = jax.lax.map(one, {name: arrays[name] for name in batched})
        return list(out), [0] * len(results)


def _folded(name, x, is_batched, place, size):
    if place is None or (not is_batched and name == "resets" and x.shape[place] == 1):
        return x
    if not is_batched:
        x = jnp.broadcast_to(x, (size, *x.shape))
    x = jnp.moveaxis(x, 0, place)
    return x.reshape(*x.shape[:place], -1, *x.shape[place + 2 :])


def _unfolded(x, place, size):
    shape = (*x.shape[:place], size, x.shape[place] // size, *x.shape[place + 1 :])
    return jnp.moveaxis(x.reshape(shape), place, 0)


def _mask(names, present):
    """A bit for every array that is present."""
    return np.int64(sum(1 << i for i, name in enumerate(names) if name in present))


def _attribute(value):
    """A value of Python in the type that handlers take."""
    if isinstance(value, bool):
        return value
    return np.float64(value) if isinstance(value, float) else np.asarray(value, np.int64)[()]


@lru_cache(maxsize=4096)
def _jitted(primitive, params):
    return jax.jit(partial(primitive.bind, **dict(params)))


def _run_eagerly(primitive, *args, **params):
    with jax.disable_jit(False):
        return _jitted(primitive, tuple(params.items()))(*args)

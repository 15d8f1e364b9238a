# SPDX-License-Identifier: BSD-3-Clause
"""The primitives, one per kernel: the scan, its fused tangent and its fused adjoint, gated scans
and their fused adjoint; and the tangent of gated scans, which is composed.

All operands of a primitive have the rank of the problem, with extent 1 wherever they broadcast;
states at the edges have extent 1 in time, and resets may have one step more. Pre-activations may
lie in one array, ``pre``, stacked along one more axis. Which arrays there are is said by
``operands``, a tuple of names, and ``results``, a tuple of pairs (name, shape): what is absent is
neither read nor written, and a gradient of extent 1 receives the sum over the axis. Batching is
then one more axis in front. How they differentiate is in ``_rules.py`` and ``_gated_rules.py``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir, partial_eval

from .. import _cuda, _native
from .._arguments import EDGE_DTYPES
from .._native import EDGES, GATED, GATES
from ._sharding import allow_in_shard_map, over_devices, specs_of_results

__all__ = [
    *("OPERANDS", "PRIMITIVES", "RESULTS", "STATES", "TARGET_VERSION", "Problem"),
    *(
        "bind",
        "edge_dtype",
        "lower",
        "make_primitive",
        "on_gpu",
        "register_targets",
        "used_results",
    ),
    "with_fewer",
]

#: Names of the targets end in it: it grows when what a handler of a release takes changes.
TARGET_VERSION = 1

_REBUILD = (
    "where jaxlib is installed, build the package again with pip install --no-build-isolation"
)

#: What is read for the sake of the gate alone, but by the scan itself.
STATES = ("state", "initial_state")

#: The names of operands and results of every primitive, in their order.
OPERANDS = {
    **_native.OPERANDS,
    "gated_scan": ("pre", *_native.OPERANDS["gated_scan"]),
    "gated_scan_vjp": ("pre", *_native.OPERANDS["gated_scan_vjp"]),
    "gated_scan_jvp": (
        *("pre", *GATED, "checkpoints"),
        *("pre_tangent", *(f"{name}_tangent" for name in GATES), "initial_tangent"),
    ),
}
RESULTS = {
    **_native.RESULTS,
    "gated_scan_vjp": ("pre_grad", *_native.RESULTS["gated_scan_vjp"]),
    "gated_scan_jvp": ("output_tangent", "final_tangent"),
}


class Problem(NamedTuple):
    """What all arrays of a call have in common."""

    shape: tuple[int, ...]
    axis: int  #: of time
    reverse: bool
    stack: int = -1  #: the axis of the array of pre-activations along which they are stacked
    cell: int = 0  #: of gated scans: QRNN pooling, or what is given by logarithms
    forget_bias: float = 0.0
    recompute: bool = False  #: gradients find checkpoints instead of states

    def batched(self, size: int) -> Problem:
        """The problem with one more axis in front."""
        stack = self.stack + 1 if self.stack >= 0 else -1
        return self._replace(shape=(size, *self.shape), axis=self.axis + 1, stack=stack)

    @property
    def edge(self) -> tuple[int, ...]:
        """The shape of a state at an edge."""
        return tuple(1 if i == self.axis else n for i, n in enumerate(self.shape))

    @property
    def steps(self) -> int:
        return self.shape[self.axis]


def edge_dtype(dtype: Any) -> np.dtype:
    """The type that arrays of a type are computed in, which states at edges have."""
    return np.dtype(EDGE_DTYPES[np.dtype(dtype).name])


def bind(
    call: str,
    problem: Problem,
    arrays: Mapping[str, Any],
    wanted: Mapping[str, Sequence[int]],
) -> dict[str, Any]:
    """Binds the primitive of a call to those arrays that are there, and returns what is wanted, by
    name: a mapping to shapes."""
    operands = tuple(name for name in OPERANDS[call] if arrays.get(name) is not None)
    results = tuple((name, tuple(wanted[name])) for name in RESULTS[call] if name in wanted)
    if not results:
        return {}
    out = PRIMITIVES[call].bind(
        *(arrays[name] for name in operands), problem=problem, operands=operands, results=results
    )
    return {name: value for (name, _), value in zip(results, out)}


def _abstract(call, *avals, problem, results, **_):
    gate = avals[0]
    out = []
    for (name, shape), sharding in zip(results, specs_of_results(call, avals, problem, results)):
        dtype = edge_dtype(gate.dtype) if name in EDGES or name == "checkpoints" else gate.dtype
        split = {} if sharding is None else {"sharding": sharding}
        out.append(gate.update(shape=shape, dtype=dtype, weak_type=False, **split))
    return out


def _mask(names, there, stacked):
    """A bit for every array that there is; a stack is the first of them."""
    there = {*there, *(names[:stacked] if {"pre", "pre_grad"} & {*there} else ())}
    return np.int64(sum(1 << i for i, name in enumerate(names) if name in there))


def lower(
    call: str, ctx: Any, *args: Any, problem: Problem, operands: Sequence[str], results: tuple
) -> Any:
    """Lowers a call to its kernel, on every device that has a part of the arrays."""
    bind_parts = partial(PRIMITIVES[call].bind, operands=operands)
    parted = over_devices(call, bind_parts, ctx.avals_in, problem, results)
    if parted is not None:
        return mlir.lower_fun(parted, multiple_results=True)(ctx, *args)
    rule = jax.ffi.ffi_lowering(f"scanrec_{call}_v{TARGET_VERSION}")
    stacked = ctx.avals_in[0].shape[problem.stack] if problem.stack >= 0 else 0
    return rule(
        ctx,
        *args,
        axis=np.int64(problem.axis),
        reverse=problem.reverse,
        shape=np.asarray(problem.shape, np.int64),
        stack=np.int64(problem.stack),
        cell=np.int64(problem.cell),
        forget_bias=np.float64(problem.forget_bias),
        operands=_mask(_native.OPERANDS[call], operands, stacked),
        results=_mask(_native.RESULTS[call], dict(results), stacked),
    )


@lru_cache(maxsize=4096)
def _jitted(primitive, params):
    return jax.jit(partial(primitive.bind, **dict(params)))


def _run_eagerly(primitive, *args, **params):
    with jax.disable_jit(False):
        return _jitted(primitive, tuple(params.items()))(*args)


def _batch(call, args, dims, *, problem, operands, results):
    size = next(a.shape[d] for a, d in zip(args, dims) if d is not None)
    batched = {name for name, d in zip(operands, dims) if d is not None}
    names = dict(results)
    if call == "linear_scan_vjp" and batched <= set(STATES) and len(names) > 1:
        # States matter for the gradient of the gate alone: the others are the same for all.
        given = dict(zip(operands, args))
        others = {n: x for n, x in given.items() if n not in STATES}
        shapes = {n: of for n, of in names.items() if n != "gate_grad"}
        alike = bind(call, problem, others, shapes)
        gate_grad, _ = _batch(
            call, args, dims, problem=problem, operands=operands,
            results=(("gate_grad", names["gate_grad"]),),
        )  # fmt: skip
        out = {**alike, "gate_grad": gate_grad[0]}
        return [out[n] for n in names], [0 if n == "gate_grad" else None for n in names]
    return [
        *PRIMITIVES[call].bind(
            *(
                jnp.expand_dims(a, 0) if d is None else jnp.moveaxis(a, d, 0)
                for a, d in zip(args, dims)
            ),
            problem=problem.batched(size),
            operands=operands,
            results=tuple((name, (size, *shape)) for name, shape in results),
        )
    ], [0] * len(results)


def _eliminate(call, used, equation):
    """Results that nobody uses are not computed, and what only they need is not read."""
    if not any(used):
        return [False] * len(equation.invars), None
    results = used_results(equation, used)
    operands = equation.params["operands"]
    kept = [n not in STATES or _needs_states(call, operands, results) for n in operands]
    return with_fewer(equation, kept, used)


def used_results(equation: Any, used: Sequence[bool]) -> tuple:
    """Those results of an equation that somebody uses."""
    return tuple(r for r, u in zip(equation.params["results"], used) if u)


def with_fewer(equation: Any, kept: Sequence[bool], used: Sequence[bool]) -> Any:
    """What the rule of dead code returns: which operands are read, and the equation of these and of
    the results that are used."""
    operands = equation.params["operands"]
    return kept, equation.replace(
        invars=[v for v, k in zip(equation.invars, kept) if k],
        outvars=[v for v, u in zip(equation.outvars, used) if u],
        params={
            **equation.params,
            "operands": tuple(n for n, k in zip(operands, kept) if k),
            "results": used_results(equation, used),
        },
    )


def _needs_states(call, operands, results):
    """Whether a call reads the states, and the initial one for their sake: those of a scan are its
    own, and a gated scan always does."""
    if call.startswith("gated_scan"):
        return True
    return "input" in operands or "gate_tangent" in operands or "gate_grad" in dict(results)


def make_primitive(call: str, abstract: Any, batch: Any, eliminate: Any) -> Primitive:
    """A primitive, given its types, and how it is batched and what of it nobody uses left out."""
    primitive = Primitive(f"scanrec_{call}")
    primitive.multiple_results = True
    primitive.def_abstract_eval(abstract)
    primitive.def_impl(partial(_run_eagerly, primitive))
    batching.primitive_batchers[primitive] = batch
    # Newer JAX says between the two which operands anybody reads later, which matters to Refs
    # alone.
    partial_eval.dce_rules[primitive] = lambda used, *more: eliminate(used, more[-1])
    allow_in_shard_map(primitive)
    return primitive


def _register_target(library, prefix, call, platform):
    handler = jax.ffi.pycapsule(getattr(library, f"{prefix}{call}"))
    jax.ffi.register_ffi_target(f"scanrec_{call}_v{TARGET_VERSION}", handler, platform=platform)


@cache
def _register_cuda_targets():
    library = _cuda.library()
    if not hasattr(library, "scanrec_xla_cuda_linear_scan"):
        raise RuntimeError(f"scanrec.jax: this build's {_cuda.PATH.name} knows no JAX; {_REBUILD}")
    for call in (*_native.OPERANDS, *_native.SELECTIVE):
        _register_target(library, "scanrec_xla_cuda_", call, "CUDA")


def on_gpu(lower: Any) -> Any:
    """A rule of lowering, for GPUs: says so if there are no kernels. Those of machines without a
    driver are loaded here."""

    def lower_on_gpu(*args, **params):
        _register_cuda_targets()
        return lower(*args, **params)

    return lower_on_gpu


def _load():
    path = Path(_native.__file__).with_name("libscanrec_xla.so")
    if not path.exists():
        raise ImportError(f"scanrec.jax: this build has no libscanrec_xla.so; {_REBUILD}")
    return ctypes.CDLL(str(path))


_library = _load()


def register_targets(calls: Iterable[str]) -> None:
    """Has XLA know the handlers of calls, for CPUs."""
    for call in calls:
        _register_target(_library, "scanrec_xla_", call, "cpu")


PRIMITIVES: dict[str, Primitive] = {
    _call: make_primitive(_call, *(partial(f, _call) for f in (_abstract, _batch, _eliminate)))
    for _call in OPERANDS
}
register_targets(_native.OPERANDS)
for _call in _native.OPERANDS:
    if _call != "gated_scan_vjp":  # which may have no states: see _gated_rules.py
        mlir.register_lowering(PRIMITIVES[_call], partial(lower, _call), platform="cpu")
        mlir.register_lowering(PRIMITIVES[_call], on_gpu(partial(lower, _call)), platform="cuda")
if _cuda.is_built() and _cuda.has_driver():  # before a program comes that another process lowered
    _register_cuda_targets()

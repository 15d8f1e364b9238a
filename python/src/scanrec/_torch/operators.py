# SPDX-License-Identifier: BSD-3-Clause
"""Native calls as operators of PyTorch, private and functional.

An operator takes the tensors that its call reads, in the order of the call, and then options.
Absent tensors are None, and results that are not wanted are empty. The derivatives of an operator
are registered beside its function, so a recorded program that contains the operator alone has
derivatives, too. Functions call ``run_below``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from .. import _cuda, _native
from .._arguments import EDGE_DTYPES, check_shape
from .._op.spec import Call, is_edge
from .modes import below_autograd, is_recorded
from .types import Maybe

__all__ = [
    *("View", "blank", "check_shapes", "checkpoint_memory", "checkpoints_in", "define"),
    *("define_as", "differentiate", "dtype_name", "edge_dtype", "edge_of", "empty"),
    *("keep_lazy_views", "run_below", "run_native", "scan_problem", "strides_of", "views_of"),
]

_NAMES: dict[torch.dtype, str] = {getattr(torch, name): name for name in EDGE_DTYPES}
_EDGES: dict[torch.dtype, torch.dtype] = {
    of: getattr(torch, EDGE_DTYPES[name]) for of, name in _NAMES.items()
}

Kernel = Callable[..., Any]

_library: Any = torch.library.Library("scanrec", "DEF")  # type: ignore[no-untyped-call]


def dtype_name(dtype: torch.dtype) -> str:
    """The native name of an element type."""
    return _NAMES[dtype]


def edge_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type that a type is computed in, which states at the edges have."""
    return _EDGES[dtype]


def edge_of(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    """The shape of a state at an edge, with extent 1 in time."""
    return (*shape[:axis], 1, *shape[axis + 1 :])


# ---- operators -----------------------------------------------------------------------------------


def define(
    call: Call,
    required: Collection[str],
    options: str,
    results: int,
    kernel: Kernel,
    fake: Kernel,
) -> Any:
    """Defines the operator of a native call for CPUs and GPUs.

    Parameters
    ----------
    call:
        The native call, whose ``reads`` are the tensor arguments.
    required:
        The tensors that are never absent.
    options:
        The schema of the further arguments.
    results:
        The number of tensors that the operator returns.
    kernel, fake:
        The functions that compute the results, and that make them without values.
    """
    tensors = ", ".join(f"Tensor{'' if n in required else '?'} {n}" for n in call.reads)
    return define_as(f"_{call.name}", f"{tensors}, {options}", results, kernel, fake)


def define_as(name: str, arguments: str, results: int, kernel: Kernel, fake: Kernel) -> Any:
    """Defines an operator, given its name and the schema of its arguments."""
    returned = ", ".join(["Tensor"] * results)
    _library.define(f"{name}({arguments}) -> {f'({returned})' if results > 1 else returned}")
    for device in ("CPU", "CUDA"):
        _library.impl(name, kernel, device)
    torch.library.register_fake(f"scanrec::{name}", fake, lib=_library)
    return getattr(torch.ops.scanrec, name).default


def keep_lazy_views(op: Any) -> None:
    """Has an operator that changes an argument see lazily conjugated or negated tensors, which
    PyTorch cannot resolve for it."""
    for view in ("Conjugate", "Negative"):
        _library.impl(op, torch.library.fallthrough_kernel, view)


def run_below(op: Kernel, *arguments: Any) -> Any:
    """Runs an operator without its derivatives, which the caller records or does not need."""
    with below_autograd():
        return op(*arguments)


def differentiate(op: Any, function: Kernel) -> None:
    """Registers a differentiable function that has the arguments and results of an operator."""

    def kernel(*arguments: Any) -> Any:
        if is_recorded(*(x for x in arguments if isinstance(x, torch.Tensor))):
            return function(*arguments)
        return run_below(op, *arguments)

    _library.impl(op, kernel, "Autograd")
    # Before torch.func takes a call to its innermost level: Function.apply does that, too.
    _library.impl(op, function, "FuncTorchDynamicLayerFrontMode")


# ---- tensors -------------------------------------------------------------------------------------


def empty(like: torch.Tensor, shape: Sequence[int] | None, *, edge: bool = False) -> torch.Tensor:
    """Returns an uninitialised result, in the type of a tensor or of its states at the edges. A
    shape of None makes one of no elements."""
    dtype = edge_dtype(like.dtype) if edge else like.dtype
    return torch.empty((0,) if shape is None else shape, dtype=dtype, device=like.device)


def checkpoint_memory(shape: Sequence[int]) -> tuple[int]:
    """The shape of memory for checkpoints of this shape: one axis of 2 numbers or more. PyTorch
    asks of any tensor whether it has less than 2, and of an axis whether it has one: a program for
    all lengths must not depend on that."""
    count = math.prod(shape)
    return (max(count, 2) if isinstance(count, int) else torch.sym_max(count, 2),)


def blank(memory: torch.Tensor, shape: Sequence[int]) -> None:
    """Writes 0 to new memory that is longer than its checkpoints, so that an operator returns the
    same numbers each time."""
    if memory.shape[0] > math.prod(shape):
        memory.zero_()


def checkpoints_in(memory: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """The checkpoints of this shape in such memory, or the tensor itself if it has the axes."""
    if memory.dim() == len(shape) > 1:
        return memory
    return memory.narrow(0, 0, math.prod(shape)).view(shape)


def check_shapes(call: str, tensors: Mapping[str, Maybe], shape: Sequence[int], axis: int) -> None:
    """Refuses tensors of a recorded program whose shapes do not belong to the shape of the call,
    which the program may have fixed: kernels would read memory after their end."""
    shape = tuple(shape)
    for name, x in tensors.items():
        if x is None or x.shape == shape:
            continue
        wanted = shape
        if is_edge(name):
            wanted = edge_of(shape, axis)
        elif name == "resets" and x.dim() == len(shape) and x.shape[axis] == shape[axis] + 1:
            wanted = (*shape[:axis], shape[axis] + 1, *shape[axis + 1 :])
        check_shape(call, name, x.shape, wanted, equal=x.dim() != len(shape))


# ---- native calls --------------------------------------------------------------------------------


class View(NamedTuple):
    """An array of a native call within one of its tensors."""

    tensor: int  #: the number of the tensor
    strides: Sequence[int]  #: in elements
    offset: int = 0  #: in bytes


def strides_of(x: torch.Tensor) -> list[int]:
    """The strides of a tensor, 0 along axes of extent 1."""
    return [0 if n == 1 else s for n, s in zip(x.shape, x.stride())]


def views_of(names: Iterable[str], tensors: Iterable[Maybe], first: int = 0) -> dict[str, View]:
    """The views of those tensors that are present, by name. ``first`` is the number of the
    first."""
    every = enumerate(zip(names, tensors), first)
    return {name: View(i, strides_of(x)) for i, (name, x) in every if x is not None}


class _Plan(NamedTuple):
    """A native call without its tensors."""

    prepared: _native.Prepared
    places: list[tuple[int, int]]  #: of each array: the number of its tensor, and bytes from there


# A plan holds no tensors, and knows them by their numbers: one tensor may have several roles.
# Most of the time of a small call would go into checks, and into finding the strides of arrays.
# Both depend on layouts and options alone. Under these a plan is kept, which never changes.
_plans: dict[tuple[Any, ...], _Plan] = {}
_MOST_PLANS = 256


#: Views and element types of arrays by their names, and the problem.
Described = tuple[Mapping[str, View], Mapping[str, str] | None, dict[str, Any]]


def run_native(
    name: str,
    tensors: Sequence[Any],
    options: tuple[Any, ...],
    describe: Callable[[], Described],
    user: tuple[str, Mapping[str, str]],
) -> None:
    """Runs a native call on the device of its tensors.

    Parameters
    ----------
    name:
        The native call.
    tensors:
        All tensors that it reads and writes, the first of which is present.
    options:
        The options on which the call depends besides.
    describe:
        Checks the tensors and returns the views and element types of arrays, by name, and the
        problem. It depends on the layouts of the tensors and on the options alone.
    user:
        The names that errors are to have for the call and for its arguments.
    """
    first = tensors[0]
    layouts = [None if x is None else (x.dtype, x.shape, x.stride()) for x in tensors]
    threads = 0 if first.is_cuda else torch.get_num_threads()
    key = (name, threads, options, *layouts)
    plan = _plans.get(key)
    try:
        if plan is None:
            views, dtypes, problem = describe()
            strides = {of: view.strides for of, view in views.items()}
            prepared = _native.Prepared(name, strides, dtypes, threads=threads, **problem)
            plan = _Plan(prepared, [(view.tensor, view.offset) for view in views.values()])
            if len(_plans) >= _MOST_PLANS:
                _plans.clear()
            _plans[key] = plan
        addresses = [tensors[i].data_ptr() + offset for i, offset in plan.places]
        (_run_on_gpu if first.is_cuda else _run_on_cpu)(first, plan.prepared, addresses)
    except _native.ArgumentError as error:
        raise error.renamed(*user) from None


def _run_on_cpu(_: torch.Tensor, prepared: _native.Prepared, addresses: Sequence[int]) -> None:
    prepared.run(addresses)


def _run_on_gpu(like: torch.Tensor, prepared: _native.Prepared, addresses: Sequence[int]) -> None:
    """Queues a call in the current stream of a tensor's GPU. Its workspace is a tensor there."""
    held = []

    def allocate(bytes: int) -> int:
        held.append(torch.empty(bytes, dtype=torch.uint8, device=like.device))
        return held[-1].data_ptr()

    with torch.cuda.device(like.device):
        stream = torch.cuda.current_stream().cuda_stream
        _cuda.run(prepared, addresses, stream=stream, allocate=allocate)


def scan_problem(
    like: torch.Tensor, resets: Maybe, shape: Sequence[int], axis: int, reverse: bool
) -> dict[str, Any]:
    """The fields that the problems of linear and gated scans share."""
    more_resets = resets is not None and resets.shape[axis] > shape[axis]
    dtype = _NAMES[like.dtype]
    return dict(dtype=dtype, shape=shape, axis=axis, reverse=reverse, more_resets=more_resets)

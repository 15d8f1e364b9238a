# SPDX-License-Identifier: BSD-3-Clause
"""Native calls as private operators of PyTorch.

An operator takes the tensors that its call reads, in the order of the call, and then options. It
does not change its arguments, unless :func:`define_as` defines it with a schema that says so.
Absent tensors are None, and results that are not wanted are empty. The derivatives of an operator
are registered with the operator, so that a traced program that contains only the operator has
derivatives too. Autograd functions call the operator by ``run_below``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from .. import _cuda, _native
from .._arguments import BOUNDARY_DTYPES, check_shape, refuse
from .._op.plans import Plans
from .._op.spec import Call, is_boundary
from .modes import below_autograd, is_plain, is_recorded
from .types import Maybe, Tensors

__all__ = [
    *(
        "Arrays",
        "Described",
        "Plan",
        "View",
        "checkpoints_in",
        "define",
        "define_as",
        "describe_scan",
    ),
    *("differentiate", "dtype_name", "boundary_dtype", "boundary_of", "empty", "keep_lazy_views"),
    *("new_checkpoints", "none_as_empty", "plain_layouts", "planned", "run_below", "run_native"),
    *("refuse_derivatives", "run_step", "strides_of"),
]

_NAMES: dict[torch.dtype, str] = {getattr(torch, name): name for name in BOUNDARY_DTYPES}
_BOUNDARIES: dict[torch.dtype, torch.dtype] = {
    of: getattr(torch, BOUNDARY_DTYPES[name]) for of, name in _NAMES.items()
}

Kernel = Callable[..., Any]
#: The tensors of a call by their names.
Arrays = dict[str, Maybe]

_library: Any = torch.library.Library("scanrec", "DEF")  # type: ignore[no-untyped-call]


def dtype_name(dtype: torch.dtype) -> str:
    """The native name of an element type."""
    return _NAMES[dtype]


def boundary_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type in which kernels compute if elements have this type. It is also the type of boundary
    (initial and final) states."""
    return _BOUNDARIES[dtype]


def boundary_of(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    """The shape of a boundary state, with extent 1 in time."""
    return (*shape[:axis], 1, *shape[axis + 1 :])


# ---- operators -----------------------------------------------------------------------------------


def define(
    call: Call, required: Collection[str], options: str, results: Callable[..., Tensors]
) -> Any:
    """Define the operator of a native call for CPUs and GPUs.

    Parameters
    ----------
    call:
        The native call, whose ``reads`` are the tensor arguments.
    required:
        The tensors that are never absent. The first tensor is one of them.
    options:
        The schema of the further arguments.
    results:
        A function that computes the results, with None for each unwanted result. Its arguments are
        the call, the tensors by name, whether the results are fake (without values), and the
        options.
    """
    tensors = ", ".join(f"Tensor{'' if n in required else '?'} {n}" for n in call.reads)
    count = len(call.reads)

    def of(is_fake: bool, *arguments: Any) -> tuple[torch.Tensor, ...]:
        arrays = dict(zip(call.reads, arguments))
        return none_as_empty(arguments[0], results(call, arrays, is_fake, *arguments[count:]))

    schema, returned = f"{tensors}, {options}", len(call.writes)
    return define_as(f"_{call.name}", schema, returned, partial(of, False), partial(of, True))


def none_as_empty(like: torch.Tensor, results: Tensors) -> tuple[torch.Tensor, ...]:
    """Return the results of an operator. A result that is not wanted becomes an empty tensor."""
    return tuple([like.new_empty((0,)) if x is None else x for x in results])


def define_as(name: str, arguments: str, results: int, kernel: Kernel, fake: Kernel) -> Any:
    """Define an operator, given its name and the schema of its arguments."""
    returned = ", ".join(["Tensor"] * results)
    _library.define(f"{name}({arguments}) -> {f'({returned})' if results > 1 else returned}")
    for device in ("CPU", "CUDA"):
        _library.impl(name, kernel, device)
    torch.library.register_fake(f"scanrec::{name}", fake, lib=_library)
    return getattr(torch.ops.scanrec, name).default


def keep_lazy_views(op: Any) -> None:
    """Pass lazily conjugated or negated tensors to an operator unchanged. PyTorch cannot resolve
    them for an operator that changes an argument."""
    for view in ("Conjugate", "Negative"):
        _library.impl(op, torch.library.fallthrough_kernel, view)


def run_below(op: Kernel, *arguments: Any) -> Any:
    """Run an operator without its derivatives. The caller is an autograd function that defines
    them, or does not need them."""
    with below_autograd():
        return op(*arguments)


def differentiate(op: Any, function: Kernel) -> None:
    """Register a function that runs instead of an operator if the call is differentiated or
    batched. It has the arguments and results of the operator."""

    def kernel(*arguments: Any) -> Any:
        if is_recorded(*(x for x in arguments if isinstance(x, torch.Tensor))):
            return function(*arguments)
        return run_below(op, *arguments)

    _library.impl(op, kernel, "Autograd")
    # With this key, the function runs before torch.func moves the call to its innermost level.
    # Function.apply, which the function calls, makes this move.
    _library.impl(op, function, "FuncTorchDynamicLayerFrontMode")


def refuse_derivatives(op: Any, call: str, names: Sequence[str]) -> None:
    """Let an operator raise NotImplementedError if a derivative or a batch would be lost.

    ``names`` are the names of its first tensors. The error names the first of them that requires a
    gradient; under forward mode and torch.func it names the first tensor.
    """

    def kernel(*tensors: Any) -> None:
        for name, value in zip(names, tensors):
            if value is not None and is_recorded(value):
                expected = "no gradients, forward mode or transformation of torch.func"
                got = "a call with one of them"
                refuse(call, name, expected, got, NotImplementedError)

    differentiate(op, kernel)


# ---- tensors -------------------------------------------------------------------------------------


def empty(like: torch.Tensor, shape: Sequence[int], *, boundary: bool = False) -> torch.Tensor:
    """Return an uninitialised tensor of the dtype of ``like``, or of its boundary states."""
    return like.new_empty(shape, dtype=boundary_dtype(like.dtype) if boundary else None)


def new_checkpoints(like: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Return memory for checkpoints of this shape: a vector of at least 2 numbers.

    PyTorch's decisions depend on whether an extent is 0 or 1. A program that is compiled for all
    lengths must not depend on that, so the extent is never below 2.
    """
    count: Any = math.prod(shape)
    if isinstance(count, int) and count < 2:  # zeros, since kernels do not write all of it
        return like.new_zeros((2,), dtype=boundary_dtype(like.dtype))
    return empty(like, (torch.sym_max(count, 2),), boundary=True)


def checkpoints_in(memory: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """View memory of :func:`new_checkpoints` in this shape. Checkpoints that already have
    this number of axes are returned unchanged."""
    if memory.dim() == len(shape) > 1:
        return memory
    return memory.narrow(0, 0, math.prod(shape)).view(shape)


# ---- native calls --------------------------------------------------------------------------------


class View(NamedTuple):
    """The position and the strides of an array of a native call within one of its tensors."""

    tensor: str  #: the name of the tensor
    strides: Sequence[int]  #: in elements
    offset: int = 0  #: in bytes


#: The views and element types of arrays by their names, and the fields of the native problem.
Described = tuple[dict[str, View], Mapping[str, str] | None, dict[str, Any]]


def strides_of(x: torch.Tensor) -> list[int]:
    """The strides of a tensor, 0 along axes of extent 1."""
    return [0 if n == 1 else s for n, s in zip(x.shape, x.stride())]


class Plan(NamedTuple):
    """A native call without its tensors."""

    prepared: _native.Prepared
    addresses: list[
        tuple[int, int]
    ]  #: of each array: the index of its tensor, and its offset in bytes


# A plan identifies a tensor by its index in the arrays of the call. One tensor may be two of them,
# such as the initial and the final state.
_plans: Plans[Plan] = Plans()


def planned(call: Call, threads: int, described: Described) -> Plan:
    """Return the plan of a native call."""
    views, dtypes, fields = described
    strides = {name: view.strides for name, view in views.items()}
    prepared = _native.Prepared(call.name, strides, dtypes, threads=threads, **fields)
    return Plan(prepared, [(call.arrays.index(v.tensor), v.offset) for v in views.values()])


def plain_layouts(values: Sequence[Any]) -> tuple[Any, ...] | None:
    """Return the number of threads and the layouts that a native plan depends on.

    Returns None if a value is not a tensor, or if the call must pass through the dispatcher because
    it is compiled, differentiated, batched, traced or profiled.
    """
    if torch.compiler.is_compiling():
        return None
    for x in values:
        if x is not None and not isinstance(x, torch.Tensor):
            return None
    if not is_plain(*values):
        return None
    return torch.get_num_threads(), *_layouts(values)


def _layouts(tensors: Sequence[Maybe]) -> list[Any]:
    return [None if x is None else (x.dtype, x.shape, x.stride()) for x in tensors]


def run_step(
    plan: Plan, tensors: Sequence[Any], state: torch.Tensor, user: tuple[str, Mapping[str, str]]
) -> None:
    """Run a plan on CPUs. Its call updates a state in place.

    Parameters
    ----------
    plan:
        A plan for tensors of these layouts.
    tensors:
        The arrays of the call, in the order of ``call.arrays``. Absent ones are None.
    state:
        The tensor that is updated.
    user:
        The names of the call and of its arguments in errors.
    """
    try:
        plan.prepared.run([tensors[i].data_ptr() for i, _ in plan.addresses])
    except _native.ArgumentError as error:
        raise error.renamed(*user) from None
    torch.autograd.graph.increment_version(state)


def run_native(
    call: Call,
    arrays: Arrays,
    problem: tuple[Any, ...],
    describe: Callable[[Arrays, Any], Described],
    user: tuple[str, Mapping[str, str]],
) -> None:
    """Run a native call on the device of its tensors.

    Parameters
    ----------
    call:
        The native call.
    arrays:
        The tensors that the call reads and writes, by name. The first array of the call is never
        absent.
    problem:
        The options of the call.
    describe:
        A function of the arrays and the problem that checks the tensors and describes the call. The
        result depends only on the problem and on the layouts of the tensors.
    user:
        The names of the call and of its arguments in errors.
    """
    tensors: list[Any] = [arrays.get(name) for name in call.arrays]
    first = tensors[0]
    threads = 0 if first.is_cuda else torch.get_num_threads()
    key = (call.name, threads, problem, *_layouts(tensors))
    plan = _plans.get(key)
    try:
        if plan is None:
            plan = _plans.keep(key, planned(call, threads, describe(arrays, problem)))
        addresses = [tensors[i].data_ptr() + offset for i, offset in plan.addresses]
        (_run_on_gpu if first.is_cuda else _run_on_cpu)(first, plan.prepared, addresses)
    except _native.ArgumentError as error:
        raise error.renamed(*user) from None


def _run_on_cpu(_: torch.Tensor, prepared: _native.Prepared, addresses: Sequence[int]) -> None:
    prepared.run(addresses)


def _run_on_gpu(like: torch.Tensor, prepared: _native.Prepared, addresses: Sequence[int]) -> None:
    """Queue a call in the current stream of a tensor's GPU. PyTorch allocates the workspace."""
    held = []

    def allocate(bytes: int) -> int:
        held.append(torch.empty(bytes, dtype=torch.uint8, device=like.device))
        return held[-1].data_ptr()

    with torch.cuda.device(like.device):
        stream = torch.cuda.current_stream().cuda_stream
        _cuda.run(prepared, addresses, stream=stream, allocate=allocate)


def describe_scan(call: str, arrays: Arrays, problem: Any, dtype: torch.dtype) -> Described:
    """Describe a call on sequences, whose problem has a shape, an axis and a direction.

    Raises an error if shapes of tensors do not fit the shape of the call. A traced program may have
    fixed the shape of the call. With tensors of other shapes, kernels would read out of bounds.
    """
    shape, axis, more_resets = problem.shape, problem.axis, False
    views = {}
    for name, x in arrays.items():
        if x is None:
            continue
        wanted = boundary_of(shape, axis) if is_boundary(name) else shape
        if name == "resets" and x.dim() == len(shape) and x.shape[axis] == shape[axis] + 1:
            more_resets, wanted = True, (*shape[:axis], shape[axis] + 1, *shape[axis + 1 :])
        check_shape(call, name, x.shape, wanted, equal=x.dim() != len(shape))
        views[name] = View(name, strides_of(x))
    fields = dict(dtype=dtype_name(dtype), shape=shape, axis=axis, reverse=problem.reverse)
    return views, None, fields | {"more_resets": more_resets}

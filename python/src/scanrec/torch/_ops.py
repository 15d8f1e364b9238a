# SPDX-License-Identifier: BSD-3-Clause
"""The kernels as operators of PyTorch: functional and private.

Each operator has its derivatives registered beside the functions that compute them, so a recorded
program that contains an operator alone is differentiated, too. Functions call ``run_below``.

All tensors of a call have the rank of its shape, with extent 1 wherever they broadcast; states at
the edges have extent 1 in time, and resets may have one step more. What is absent is None; of the
adjoint's results, one of shape None is not computed, and empty.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from contextlib import contextmanager
from functools import partial

import torch

from .. import _cuda, _native
from .._arguments import EDGE_DTYPES, check_shape, contiguous
from .._native import GATES, OPERANDS, RESULTS
from ._modes import below_autograd, is_recorded

__all__ = [
    *("DEVICES", "array_of", "blank", "checkpoint_memory", "checkpoints_in"),
    *("differentiate", "edge_dtype", "edge_of", "in_words_of", "problem_of", "queue_of"),
    "run_below",
    *("jvp_op", "gated_op", "gated_vjp_op", "scan_op", "vjp_op"),
]

#: What the operators have kernels for, by PyTorch's dispatch keys.
DEVICES = ("CPU", "CUDA")

_NAMES = {getattr(torch, name): name for name in EDGE_DTYPES}
_EDGES = {of: getattr(torch, EDGE_DTYPES[name]) for of, name in _NAMES.items()}


def edge_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type that tensors of a type are computed in, which states at edges have."""
    return _EDGES[dtype]


def edge_of(shape, axis: int):
    """The shape of a state at an edge."""
    return (*shape[:axis], 1, *shape[axis + 1 :])


def run_below(op, *arguments):
    """Runs an operator without its derivatives, which the caller records or has no use for."""
    with below_autograd():
        return op(*arguments)


def differentiate(op, function) -> None:
    """Registers a differentiable function that has the arguments and results of an operator."""

    def kernel(*arguments):
        if is_recorded(*(x for x in arguments if isinstance(x, torch.Tensor))):
            return function(*arguments)
        return run_below(op, *arguments)

    _library.impl(op, kernel, "Autograd")
    # Before torch.func takes a call to its innermost level: Function.apply does that, too.
    _library.impl(op, function, "FuncTorchDynamicLayerFrontMode")


_library = torch.library.Library("scanrec", "DEF")
_PROBLEM = "SymInt[] shape, int axis, bool reverse"
_library.define(
    f"_linear_scan(Tensor gate, Tensor input, Tensor? initial_state, Tensor? resets, {_PROBLEM})"
    " -> (Tensor, Tensor)"
)
_library.define(
    "_linear_scan_jvp(Tensor gate, Tensor? state, Tensor? initial_state, Tensor? resets, "
    "Tensor? gate_tangent, Tensor? input_tangent, Tensor? initial_tangent, "
    f"{_PROBLEM}) -> (Tensor, Tensor)"
)
_library.define(
    "_linear_scan_vjp(Tensor gate, Tensor? state, Tensor? initial_state, Tensor? resets, "
    "Tensor? state_grad, Tensor? final_grad, "
    f"{_PROBLEM}, SymInt[]? gate_shape, SymInt[]? input_shape, SymInt[]? initial_shape)"
    " -> (Tensor, Tensor, Tensor)"
)


def _empty(gate, shape, *, edge=False):
    dtype = edge_dtype(gate.dtype) if edge else gate.dtype
    return torch.empty((0,) if shape is None else shape, dtype=dtype, device=gate.device)


def _results(call, gate, shape, axis, shapes):
    """What a call returns, uninitialised; `shapes` are those of an adjoint."""
    if call == "linear_scan_vjp":
        return tuple(_empty(gate, of, edge=i == 2) for i, of in enumerate(shapes))
    return _empty(gate, shape), _empty(gate, edge_of(shape, axis), edge=True)


def _split(call, arguments):
    """Tensors that are read, problem, shapes of results."""
    read = len(OPERANDS[call])
    return arguments[:read], arguments[read : read + 3], arguments[read + 3 :]


def _fake(call, *arguments):
    (gate, *_), (shape, axis, _), shapes = _split(call, arguments)
    return _results(call, gate, shape, axis, shapes)


def checkpoint_memory(shape) -> tuple[int]:
    """The shape of memory for checkpoints of this shape: one axis of 2 numbers or more. PyTorch
    asks of any tensor whether it has less than 2, and of an axis whether it has one: a program for
    all lengths must not depend on that."""
    count = math.prod(shape)
    return (max(count, 2) if isinstance(count, int) else torch.sym_max(count, 2),)


def blank(memory: torch.Tensor, shape) -> None:
    """Writes 0 to new memory that is longer than its checkpoints, so that all that an operator
    returns is the same each time."""
    if memory.shape[0] > math.prod(shape):
        memory.zero_()


def checkpoints_in(memory: torch.Tensor, shape) -> torch.Tensor:
    """The checkpoints of this shape in such memory, or as they are."""
    if memory.dim() == len(shape) > 1:
        return memory
    return memory.narrow(0, 0, math.prod(shape)).view(shape)


def in_words_of(call: str, names: Mapping[str, str], error: ValueError) -> ValueError:
    """What the kernels refuse, by the names that a call has for itself and for its arguments."""
    said = str(error).partition(": ")[2]
    said = re.sub(r"'(\w+)'", lambda found: f"'{names.get(found[1], found[1])}'", said)
    return ValueError(f"{call}: {said}")


def _check_shapes(call, names, tensors, shape, axis):
    """Refuses tensors of a recorded program whose shapes do not belong to the shape of the call,
    which the program may have fixed: kernels would read memory that is not theirs."""
    shape = tuple(shape)
    for name, x in zip(names, tensors):
        if x is None or x.shape == shape:
            continue
        wanted = shape
        if name.startswith(("initial", "final")):
            wanted = edge_of(shape, axis)
        elif name == "resets" and x.dim() == len(shape) and x.shape[axis] == shape[axis] + 1:
            wanted = (*shape[:axis], shape[axis] + 1, *shape[axis + 1 :])
        check_shape(call, name, x.shape, wanted, equal=x.dim() != len(shape))


def array_of(x: torch.Tensor) -> _native.Array:
    """Where a tensor begins, and its strides."""
    return _native.Array(x.data_ptr(), [0 if n == 1 else s for n, s in zip(x.shape, x.stride())])


def _named(names, tensors):
    """The arrays of tensors. PyTorch resolves lazy views before it calls a kernel."""
    return {name: array_of(x) for name, x in zip(names, tensors) if x is not None}


def _run_on_cpu(call, arrays, like, problem):
    _native.call(call, arrays, threads=torch.get_num_threads(), **problem)


def _run_on_gpu(call, arrays, like, problem):
    with queue_of(like) as queue:
        _cuda.call(call, arrays, **queue, **problem)


@contextmanager
def queue_of(like: torch.Tensor):
    """The stream that is current on the GPU of a tensor, and who lends memory there: what calls of
    ``_cuda`` take, in whose context they are made."""
    lent = []

    def allocate(bytes):
        lent.append(torch.empty(bytes, dtype=torch.uint8, device=like.device))
        return lent[-1].data_ptr()

    with torch.cuda.device(like.device):
        yield {"stream": torch.cuda.current_stream().cuda_stream, "allocate": allocate}


def problem_of(like, resets, shape, axis, reverse) -> dict:
    """What all arrays of a call have in common."""
    more_resets = resets is not None and resets.shape[axis] > shape[axis]
    return dict(
        dtype=_NAMES[like.dtype], shape=shape, axis=axis, reverse=reverse, more_resets=more_resets
    )


def _call(call, arrays, like, resets, shape, axis, reverse, **of_cell):
    run = _run_on_gpu if like.is_cuda else _run_on_cpu
    run(call, arrays, like, problem_of(like, resets, shape, axis, reverse) | of_cell)


def _run(call, *arguments):
    inputs, (shape, axis, reverse), shapes = _split(call, arguments)
    _check_shapes("linear_scan", OPERANDS[call], inputs, shape, axis)
    results = _results(call, inputs[0], shape, axis, shapes)
    wanted = [of is not None for of in shapes] or [True] * len(results)
    arrays = _named(OPERANDS[call], inputs)
    for name, x, is_wanted in zip(RESULTS[call], results, wanted):
        if is_wanted:
            arrays[name] = array_of(x)
    resets = inputs[OPERANDS[call].index("resets")]
    _call(call, arrays, inputs[0], resets, shape, axis, reverse)
    return results


for _name in ("linear_scan", "linear_scan_jvp", "linear_scan_vjp"):
    for _device in DEVICES:
        _library.impl(f"_{_name}", partial(_run, _name), _device)
    torch.library.register_fake(f"scanrec::_{_name}", partial(_fake, _name), lib=_library)

#: The operators: scan, jvp, vjp.
scan_op = torch.ops.scanrec._linear_scan.default
jvp_op = torch.ops.scanrec._linear_scan_jvp.default
vjp_op = torch.ops.scanrec._linear_scan_vjp.default

# ---- gated scans ---------------------------------------------------------------------------------

# Lists of tensors would keep PyTorch from batching the operators: a stack takes the first place.
_PRE = "Tensor pre, Tensor? forget_gate, Tensor? output_gate, Tensor? input_gate"
_GATED = f"{_PROBLEM}, int stack, int cell, float forget_bias, bool recompute"
_library.define(
    f"_gated_scan({_PRE}, Tensor? initial_state, Tensor? resets, Tensor? zoneout, "
    f"{_GATED}, bool keep) -> (Tensor, Tensor, Tensor)"
)
_library.define(
    f"_gated_scan_vjp({_PRE}, Tensor kept, Tensor? initial_state, Tensor? resets, "
    "Tensor? zoneout, Tensor? output_grad, Tensor? final_grad, "
    f"{_GATED}, bool[] wanted) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"
)


# What the calls say to the arrays of the kernels.
_OF_LOGARITHMS = {"candidate": "input", "forget_gate": "gate"}
_OF_STACK = dict.fromkeys(GATES, "pre")


def _gates_of(tensors, stack, suffix=""):
    """The arrays of pre-activations, or of their gradients: of a stack, its slices."""
    if stack < 0 or tensors[0] is None:
        return _named((f"{name}{suffix}" for name in GATES), tensors)
    x = tensors[0]
    first, step = array_of(x.select(stack, 0)), x.stride(stack) * x.element_size()
    return {
        f"{name}{suffix}": first._replace(data=first.data + i * step)
        for i, name in zip(range(x.shape[stack]), GATES)
    }


def _check_gated(pre, names, others, shape, axis, stack, cell):
    """As :func:`_check_shapes`; of a stack, every slice."""
    call = "linear_scan" if cell else "qrnn_pool"
    if stack >= 0:
        apart = pre[0].shape[:stack] + pre[0].shape[stack + 1 :]
        check_shape(call, "pre", apart, shape, equal=True)
        pre = ()
    _check_shapes(call, (*GATES[: len(pre)], *names), (*pre, *others), shape, axis)


def _gated_results(*arguments):
    """Outputs, final states, and the states or checkpoints if they are kept, uninitialised."""
    pre, shape, axis, (recompute, keep) = arguments[0], *arguments[7:9], arguments[13:]
    kept = checkpoint_memory(_native.checkpoint_shape(shape, axis)) if recompute else shape
    return (
        _empty(pre, shape),
        _empty(pre, edge_of(shape, axis), edge=True),
        _empty(pre, kept if keep else None, edge=recompute),
    )


def _kept(memory, shape, axis, recompute):
    """States or checkpoints, by the name that kernels have for them."""
    if not recompute:
        return {"state": array_of(memory)}
    shape = _native.checkpoint_shape(shape, axis)
    if 0 in shape:
        return {}
    if memory.dim() == 1:
        return {"checkpoints": _native.Array(memory.data_ptr(), contiguous(shape))}
    return {"checkpoints": array_of(memory)}


def _run_gated(*arguments):
    results = _gated_results(*arguments)
    pre, edges = arguments[:4], arguments[4:7]
    shape, axis, reverse, stack, cell, forget_bias, recompute, keep = arguments[7:]
    if keep and recompute:
        blank(results[2], _native.checkpoint_shape(shape, axis))
    arrays = {
        **_gates_of(pre, stack),
        **_named(("initial_state", "resets", "zoneout"), edges),
        **_named(("output", "final_state"), results),
        **(_kept(results[2], shape, axis, recompute) if keep else {}),
    }
    of_cell = {"cell": cell, "forget_bias": forget_bias}
    names = ("initial_state", "resets", "zoneout")
    try:
        _check_gated(pre, names, edges, shape, axis, stack, cell)
        _call("gated_scan", arrays, pre[0], edges[1], shape, axis, reverse, **of_cell)
    except ValueError as error:
        if cell:
            raise in_words_of("linear_scan", _OF_LOGARITHMS, error) from None
        raise in_words_of("qrnn_pool", _OF_STACK if stack >= 0 else {}, error) from None
    return results


def _gated_gradients(*arguments):
    """Gradients of the pre-activations and of the initial state, uninitialised; of what is not
    wanted, empty."""
    pre, initial, wanted = arguments[:4], arguments[5], arguments[-1]
    return tuple(
        torch.empty_like(x, memory_format=torch.contiguous_format)
        if w
        else pre[0].new_empty((0,), dtype=x.dtype if x is not None else None)
        for x, w in zip((*pre, initial), wanted)
    )


def _run_gated_vjp(*arguments):
    results = _gated_gradients(*arguments)
    pre, (kept, *others) = arguments[:4], arguments[4:10]
    shape, axis, reverse, stack, cell, forget_bias, recompute, wanted = arguments[10:]
    names = ("initial_state", "resets", "zoneout", "output_grad", "final_grad")
    stored = None if recompute else kept
    _check_gated(pre, (*names, "state"), (*others, stored), shape, axis, stack, cell)
    arrays = {
        **_gates_of(pre, stack),
        **_kept(kept, shape, axis, recompute),
        **_named(names, others),
    }
    given = [g if w else None for g, w in zip(results, wanted)]
    arrays |= _gates_of(given[:4], stack, "_grad")
    arrays |= _named(("initial_grad",), given[4:])
    of_cell = {"cell": cell, "forget_bias": forget_bias}
    _call("gated_scan_vjp", arrays, pre[0], others[1], shape, axis, reverse, **of_cell)
    return results


for _device in DEVICES:
    _library.impl("_gated_scan", _run_gated, _device)
    _library.impl("_gated_scan_vjp", _run_gated_vjp, _device)
torch.library.register_fake("scanrec::_gated_scan", _gated_results, lib=_library)
torch.library.register_fake("scanrec::_gated_scan_vjp", _gated_gradients, lib=_library)

#: The operators of gated scans and of their adjoint.
gated_op = torch.ops.scanrec._gated_scan.default
gated_vjp_op = torch.ops.scanrec._gated_scan_vjp.default

# SPDX-License-Identifier: BSD-3-Clause
"""Selective scans as private operators of PyTorch: functional but for a state that moves a step on.

Tensors have the axes of the calls: (B, D, L), b and c (D, N) or (B, G, N, L), intervals (B, L),
states (B, D, N), resets (1 or B, 1 or D, L or L + 1). What is absent is None; a gradient that is
not wanted is empty. The type of `a` is what is computed in; where it is complex, b and c of every
step are the parts of complex numbers, side by side: (B, G, N, 2 L). Checkpoints are (B, K, N, D),
which lie in memory of one axis.
"""

from __future__ import annotations

import torch

from .. import _cuda, _native
from .._arguments import EDGE_DTYPES, check_shape, contiguous, refuse
from ._modes import is_recorded
from ._ops import (
    DEVICES,
    array_of,
    blank,
    checkpoint_memory,
    checkpoints_in,
    differentiate,
    in_words_of,
    queue_of,
)

__all__ = ["checkpoints_like", "selective_op", "selective_vjp_op", "update_op"]

_READ = (
    *("u", "delta", "a", "b", "c", "skip", "z", "delta_bias", "intervals"),
    *("initial_state", "resets"),
)
_library = torch.library.Library("scanrec", "FRAGMENT")
_ARRAYS = (
    "Tensor u, Tensor delta, Tensor a, Tensor b, Tensor c, Tensor? skip, Tensor? z, "
    "Tensor? delta_bias, Tensor? intervals, Tensor? initial_state, Tensor? resets"
)
_library.define(
    f"_selective_scan({_ARRAYS}, bool softplus, bool reverse, bool keep)"
    " -> (Tensor, Tensor, Tensor)"
)
_library.define(
    f"_selective_scan_vjp({_ARRAYS}, Tensor? checkpoints, Tensor? out_grad, Tensor? final_grad, "
    "bool softplus, bool reverse, bool[] wanted) -> "
    f"({', '.join(['Tensor'] * 10)})"
)
_library.define(
    "_selective_state_update(Tensor(a!) state, Tensor x, Tensor dt, Tensor a, Tensor b, Tensor c, "
    "Tensor? skip, Tensor? z, Tensor? dt_bias, Tensor? rows, bool softplus) -> Tensor"
)

# What the calls say to the arrays of the kernels.
_OF_SCAN = {"a": "A", "b": "B", "c": "C", "skip": "D"}
_OF_STEP = _OF_SCAN | {
    "u": "x", "delta": "dt", "delta_bias": "dt_bias", "initial_state": "state",
    "final_state": "state",
}  # fmt: skip
_NAMES = {getattr(torch, name): name for name in EDGE_DTYPES}
# The axes of the C interface, in its order, among those of tensors here.
_SEQUENCE, _STEPS = (0, 2, 1), (0, 3, 1, 2)
_AXES = {name: _SEQUENCE for name in ("u", "delta", "z", "out", "resets")}
_INTERVAL = 128  # of checkpoints
_CALL = "selective_scan"


def _array(name, x, parts):
    array, of = array_of(x), name.removesuffix("_grad")
    if x.numel() == 0:  # with any strides, those of one place for all among them
        array = array._replace(strides=contiguous(x.shape))
    axes = _AXES.get(of)
    if of in ("b", "c") and x.dim() == 4:
        axes = _STEPS
        array = array._replace(strides=[*array.strides[:3], parts * array.strides[3]])
    if of == "checkpoints":
        axes = (0, 1, 3, 2)
    return array if axes is None else array._replace(strides=[array.strides[i] for i in axes])


def _run(call, tensors, softplus, reverse):
    """Runs a call on tensors by their names."""
    # Held until it is over: what resolves a view may be a copy.
    held = {name: _resolved(x) for name, x in tensors.items() if x is not None}
    parts = 2 if held["a"].is_complex() else 1
    for name in ("b", "c") if parts == 2 else ():
        if held[name].dim() == 4 and held[name].stride(3) != 1:
            held[name] = held[name].contiguous()
    (batch, channels, steps), a, resets = held["u"].shape, held["a"], held.get("resets")
    b, c = held["b"], held["c"]
    groups = next((x.shape[1] for x in (b, c) if x.dim() == 4), 1)
    _check_shapes(held, parts, groups)
    (_run_on_gpu if a.is_cuda else _run_on_cpu)(
        a,
        call,
        {name: _array(name, x, parts) for name, x in held.items()},
        {name: _NAMES[x.dtype] for name, x in held.items() if name != "resets"},
        dtype=_NAMES[a.dtype],
        shape=(batch, steps, channels, a.shape[1], groups),
        b_of_steps=b.dim() == 4,
        c_of_steps=c.dim() == 4,
        softplus=softplus,
        reverse=reverse,
        more_resets=resets is not None and resets.shape[2] > steps,
    )


def _check_shapes(tensors, parts, groups):
    """Refuses tensors of a recorded program whose shapes do not belong together: kernels would read
    memory that is not theirs."""
    sequence, a = tensors["u"].shape, tensors["a"].shape
    batch, channels, steps = sequence
    mixing = (batch, groups, a[1], parts * steps)
    for names, shape in (
        (("delta", "z", "out_grad"), sequence),
        (("a",), (channels, a[1])),
        (("skip", "delta_bias"), (channels,)),
        (("intervals",), (batch, steps)),
        (("initial_state", "final_grad"), (batch, channels, a[1])),
        (("b",), mixing if tensors["b"].dim() == 4 else a),
        (("c",), mixing if tensors["c"].dim() == 4 else a),
    ):
        for name in names:
            x = tensors.get(name)
            if x is not None and x.shape != shape:
                check_shape(_CALL, name, x.shape, shape, equal=True)
    marks = tensors.get("resets")
    if marks is not None:
        steps += marks.shape[2] == steps + 1
        check_shape(_CALL, "resets", marks.shape, (batch, channels, steps))


def _run_on_cpu(_, *arguments, **problem):
    _native.call_selective(*arguments, threads=torch.get_num_threads(), **problem)


def _run_on_gpu(like, *arguments, **problem):
    with queue_of(like) as queue:
        _cuda.call_selective(*arguments, **queue, **problem)


def _resolved(x):
    return x.resolve_conj().resolve_neg() if x.is_complex() else x.resolve_neg()


def _scan_results(*arguments):
    """Outputs, laid out as u, final states, and checkpoints if they are kept, uninitialised."""
    (u, _, a, *_), keep = arguments[:11], arguments[-1]
    batch, channels, _ = u.shape
    return (
        torch.empty_like(u),
        a.new_empty((batch, channels, a.shape[1])),
        checkpoints_like(u, a, keep),
    )


def checkpoints_like(u, a, keep):
    """Memory for checkpoints if they are kept, uninitialised."""
    return a.new_empty(checkpoint_memory(_checkpoint_shape(u, a)) if keep else (0,))


def _checkpoint_shape(u, a):
    batch, channels, steps = u.shape
    return batch, max(steps - 1, 0) // _INTERVAL, a.shape[1], channels


def _add_checkpoints(tensors, memory):
    shape = _checkpoint_shape(tensors["u"], tensors["a"])
    if memory is not None and 0 not in shape:
        tensors["checkpoints"] = checkpoints_in(memory, shape)


def _scan(*arguments):
    results = _scan_results(*arguments)
    softplus, reverse, keep = arguments[11:]
    out, final, checkpoints = results
    tensors = dict(zip(_READ, arguments[:11]), out=out, final_state=final)
    if keep:
        blank(checkpoints, _checkpoint_shape(arguments[0], arguments[2]))
        _add_checkpoints(tensors, checkpoints)
    try:
        _run("selective_scan", tensors, softplus, reverse)
    except ValueError as error:
        raise in_words_of("selective_scan", _OF_SCAN, error) from None
    return results


def _gradients(*arguments):
    """Gradients of all that is read but the marks, uninitialised, laid out as what they are of."""
    a = arguments[2]

    def like(name, x):
        if a.is_complex() and name in ("b", "c") and x.dim() == 4:  # whose parts are side by side
            return torch.empty_like(x, memory_format=torch.contiguous_format)
        return torch.empty_like(x)

    return tuple(
        like(name, x) if w else arguments[0].new_empty((0,))
        for name, x, w in zip(_READ, arguments[:10], arguments[-1])
    )


def _vjp(*arguments):
    results = _gradients(*arguments)
    checkpoints, out_grad, final_grad, softplus, reverse, wanted = arguments[11:]
    tensors = dict(zip(_READ, arguments[:11]), out_grad=out_grad, final_grad=final_grad)
    _add_checkpoints(tensors, checkpoints)
    for name, x, is_wanted in zip(_READ, results, wanted):
        if is_wanted:
            tensors["initial_grad" if name == "initial_state" else f"{name}_grad"] = x
    _run("selective_scan_vjp", tensors, softplus, reverse)
    return results


def _update(state, x, dt, a, b, c, skip, z, dt_bias, rows, softplus):
    taken, there = state, None
    if rows is not None:
        rows, there = _rows_of(rows, state.shape[0])
        taken = state.index_select(0, rows)
    now = taken if there is None else torch.where(there, taken, 0)
    now = _resolved(now.to(a.dtype))
    out = torch.empty_like(x)
    step = lambda x: None if x is None else x.unsqueeze(-1)
    # Of complex numbers the parts are the last axis already.
    mixing = (lambda x: x) if a.is_complex() else step
    read = (step(x), step(dt), a, mixing(b), mixing(c), skip, step(z), dt_bias, None, now)
    tensors = dict(zip(_READ, read), out=step(out), final_state=now)
    try:
        _run("selective_scan", tensors, softplus, False)
    except ValueError as error:
        raise in_words_of("selective_state_update", _OF_STEP, error) from None
    if rows is not None:
        now = now.to(state.dtype)
        if there is not None:
            rows, now = _instead_of_padding(rows, torch.where(there, now, taken), there)
        state.index_copy_(0, rows, now)
    elif now is not state:
        state.copy_(now)
    torch.autograd.graph.increment_version(state)
    return out


def _rows_of(rows, held):
    """Rows within the state, and which of them were given so: None where no row is padding."""
    at = rows.long()
    if rows.shape[0] == 0 or not (rows.is_cuda or _has_padding(rows.tolist(), held)):
        return at, None  # a GPU is not waited for
    within = at.clamp(0, held - 1)
    return within, (within == at)[:, None, None]


def _has_padding(rows, held):
    """Whether some are no rows of a state; refuses rows that occur twice."""
    inside = [row for row in rows if 0 <= row < held]
    if len(set(inside)) < len(inside):
        expected = "every row of 'state' once at most"
        refuse("selective_state_update", "state_batch_indices", expected, rows)
    return len(inside) < len(rows)


def _instead_of_padding(rows, states, there):
    """Replaces padding by a row that is written in any case, and its state. If all is padding, the
    first row is written as it was read."""
    there = there.flatten()
    each = torch.arange(len(rows), device=rows.device)
    source = torch.where(there, each, there.int().argmax())
    return rows[source], states[source]


for _device in DEVICES:
    _library.impl("_selective_scan", _scan, _device)
    _library.impl("_selective_scan_vjp", _vjp, _device)
    _library.impl("_selective_state_update", _update, _device)
# PyTorch cannot resolve lazy views for operators that change an argument: the kernel resolves them.
for _view in ("Conjugate", "Negative"):
    _library.impl("_selective_state_update", torch.library.fallthrough_kernel, _view)
torch.library.register_fake("scanrec::_selective_scan", _scan_results, lib=_library)
torch.library.register_fake("scanrec::_selective_scan_vjp", _gradients, lib=_library)
torch.library.register_fake(
    "scanrec::_selective_state_update", lambda state, x, *_: torch.empty_like(x), lib=_library
)

#: The operators: a scan, its adjoint, and a step that a state moves on.
selective_op = torch.ops.scanrec._selective_scan.default
selective_vjp_op = torch.ops.scanrec._selective_scan_vjp.default
update_op = torch.ops.scanrec._selective_state_update.default


def _refuse_derivatives(*arguments):
    """Raises for the first argument of which a derivative, or a batch, would be lost."""
    names = ("state", "x", "dt", "A", "B", "C", "D", "z", "dt_bias")
    for name, value in zip(names, arguments):
        if value is not None and is_recorded(value):
            expected = "a tensor without gradients, batching and tangents"
            refuse(
                "selective_state_update", name, expected, "one that has them", NotImplementedError
            )


differentiate(update_op, _refuse_derivatives)

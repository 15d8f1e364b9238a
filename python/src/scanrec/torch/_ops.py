# SPDX-License-Identifier: BSD-3-Clause
"""The kernels as operators of PyTorch: functional, without derivatives, private.

All tensors of a call have the rank of its shape, with extent 1 wherever they broadcast; states at
the edges have extent 1 in time. What is absent is None; of the adjoint's results, one of shape None
is not computed, and empty.
"""

from __future__ import annotations

import torch

from .. import _native
from .._arguments import EDGE_DTYPES

__all__ = ["edge_dtype", "edge_of", "jvp_op", "scan_op", "vjp_op"]

_NAMES = {getattr(torch, name): name for name in EDGE_DTYPES}
_EDGES = {of: getattr(torch, EDGE_DTYPES[name]) for of, name in _NAMES.items()}


def edge_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type that tensors of a type are computed in, which states at edges have."""
    return _EDGES[dtype]


def edge_of(shape, axis: int):
    """The shape of a state at an edge."""
    return (*shape[:axis], 1, *shape[axis + 1 :])


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


def _scan_results(gate, shape, axis):
    return _empty(gate, shape), _empty(gate, edge_of(shape, axis), edge=True)


def _vjp_results(gate, gate_shape, input_shape, initial_shape):
    return (
        _empty(gate, gate_shape),
        _empty(gate, input_shape),
        _empty(gate, initial_shape, edge=True),
    )


def _array(x):
    return _native.Array(x.data_ptr(), [0 if n == 1 else s for n, s in zip(x.shape, x.stride())])


def _run(call, shape, axis, reverse, inputs, outputs):
    """Runs a call on tensors by name."""
    kept = {n: x.resolve_conj().resolve_neg() for n, x in inputs.items() if x is not None}
    _native.call(
        call,
        {name: _array(x) for name, x in {**kept, **outputs}.items()},
        dtype=_NAMES[inputs["gate"].dtype],
        shape=shape,
        axis=axis,
        reverse=reverse,
        threads=torch.get_num_threads(),
    )


def _linear_scan(gate, input, initial_state, resets, shape, axis, reverse):
    state, final = out = _scan_results(gate, shape, axis)
    inputs = {"gate": gate, "input": input, "initial_state": initial_state, "resets": resets}
    outputs = {"state": state, "final_state": final}
    _run("linear_scan", shape, axis, reverse, inputs, outputs)
    return out


def _linear_scan_jvp(
    gate, state, initial_state, resets, gate_tangent, input_tangent, initial_tangent,
    shape, axis, reverse,
):  # fmt: skip
    tangent, final = out = _scan_results(gate, shape, axis)
    inputs = {
        "gate": gate,
        "state": state,
        "initial_state": initial_state,
        "resets": resets,
        "gate_tangent": gate_tangent,
        "input_tangent": input_tangent,
        "initial_tangent": initial_tangent,
    }
    outputs = {"state_tangent": tangent, "final_tangent": final}
    _run("linear_scan_jvp", shape, axis, reverse, inputs, outputs)
    return out


def _linear_scan_vjp(
    gate, state, initial_state, resets, state_grad, final_grad,
    shape, axis, reverse, gate_shape, input_shape, initial_shape,
):  # fmt: skip
    shapes = (gate_shape, input_shape, initial_shape)
    out = _vjp_results(gate, *shapes)
    inputs = {
        "gate": gate,
        "state": state,
        "initial_state": initial_state,
        "resets": resets,
        "state_grad": state_grad,
        "final_grad": final_grad,
    }
    names = ("gate_grad", "input_grad", "initial_grad")
    outputs = {name: x for name, x, of in zip(names, out, shapes) if of is not None}
    _run("linear_scan_vjp", shape, axis, reverse, inputs, outputs)
    return out


_library.impl("_linear_scan", _linear_scan, "CPU")
_library.impl("_linear_scan_jvp", _linear_scan_jvp, "CPU")
_library.impl("_linear_scan_vjp", _linear_scan_vjp, "CPU")


@torch.library.register_fake("scanrec::_linear_scan", lib=_library)
def _(gate, input, initial_state, resets, shape, axis, reverse):
    return _scan_results(gate, shape, axis)


@torch.library.register_fake("scanrec::_linear_scan_jvp", lib=_library)
def _(
    gate, state, initial_state, resets, gate_tangent, input_tangent, initial_tangent,
    shape, axis, reverse,
):  # fmt: skip
    return _scan_results(gate, shape, axis)


@torch.library.register_fake("scanrec::_linear_scan_vjp", lib=_library)
def _(
    gate, state, initial_state, resets, state_grad, final_grad,
    shape, axis, reverse, gate_shape, input_shape, initial_shape,
):  # fmt: skip
    return _vjp_results(gate, gate_shape, input_shape, initial_shape)


#: The operators: scan, jvp, vjp.
scan_op = torch.ops.scanrec._linear_scan.default
jvp_op = torch.ops.scanrec._linear_scan_jvp.default
vjp_op = torch.ops.scanrec._linear_scan_vjp.default

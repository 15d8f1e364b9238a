# SPDX-License-Identifier: BSD-3-Clause
"""Selective scans in PyTorch: their two operators, and a composition of elementwise operations and
a linear scan for forward mode, vmap and higher-order derivatives.

Tensors have the axes of the Python call. u, delta, z and outputs are (B, D, L), and a is (D, N).
b and c are (D, N) or (B, G, N, L), and intervals (B, L). Initial and final states are (B, D, N),
and resets (1 or B, 1 or D, L or L + 1). The K checkpoints per sequence are (B, K, N, D), stored as
a flat tensor.

Kernels compute in the type of `a`. If that type is complex, b and c that vary over time are real,
with alternating real and imaginary parts: (B, G, N, 2 L).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import silu, softplus

from ..._arguments import check_shape, contiguous
from ..._native import checkpoint_shape
from ..._torch.fused import Fused
from ..._torch.operators import (
    Arrays,
    Described,
    View,
    checkpoints_in,
    dtype_name,
    empty,
    new_checkpoints,
    run_native,
    strides_of,
)
from ..linear.torch_rules import scan
from ..spec import Call, primal_of
from .spec import LAYOUT, SELECTIVE, SelectiveProblem

__all__ = ["describe", "run_selective", "selective"]


# ---- native calls --------------------------------------------------------------------------------


def run_selective(
    call: Call,
    arrays: dict[str, Any],
    problem: SelectiveProblem,
    user: tuple[str, Mapping[str, str]] = ("selective_scan", SELECTIVE.names),
) -> None:
    """Run a native call on named tensors.

    They must not be lazy views (conjugated or negated). Entries of ``arrays`` may be replaced
    by contiguous copies. ``user`` has the names of the call and of its arguments in errors.
    """
    for name in ("b", "c") if arrays["a"].is_complex() else ():
        if arrays[name].dim() == 4 and arrays[name].stride(3) != 1:
            arrays[name] = arrays[name].contiguous()
    run_native(call, arrays, problem, describe, user)


def describe(arrays: dict[str, Any], problem: SelectiveProblem) -> Described:
    """Describe a native call on these arrays."""
    arrays = {name: x for name, x in arrays.items() if x is not None}
    u, a = arrays["u"], arrays["a"]
    (batch, channels, steps), states = u.shape, a.shape[1]
    parts = 2 if a.is_complex() else 1
    of_steps = [name for name in ("b", "c") if arrays[name].dim() == 4]
    groups = arrays[of_steps[0]].shape[1] if of_steps else 1
    more_resets = "resets" in arrays and arrays["resets"].shape[2] > steps
    extents = {"batch": batch, "time": steps, "channel": channels, "state": states}
    special = dict.fromkeys(of_steps, {"channel": groups, "time": parts * steps})
    if more_resets:
        special["resets"] = {"time": steps + 1}
    kept = _checkpoint_shape(arrays)
    views = {}
    for name, x in arrays.items():
        if name == "checkpoints":
            if 0 not in kept:
                strides = strides_of(checkpoints_in(x, kept))
                views[name] = View(name, [strides[axis] for axis in (0, 1, 3, 2)])
            continue
        of = primal_of(name)
        strides = strides_of(x) if x.numel() > 0 else contiguous(x.shape)
        axes = LAYOUT[of].split("|")[0 if of in of_steps else -1].split()
        own = sorted(axes, key="time".__eq__)  # the same axes with time last
        wanted = {**extents, **special.get(of, {})}
        # A traced program may run with other shapes, for which kernels would read out of bounds.
        shape = [wanted[axis] for axis in own]
        user_name = SELECTIVE.names.get(name, name)
        check_shape("selective_scan", user_name, x.shape, shape, equal=name != "resets")
        if of in of_steps:
            strides[-1] *= parts
        views[name] = View(name, [strides[own.index(axis)] for axis in axes])
    dtypes = {name: dtype_name(x.dtype) for name, x in arrays.items() if name != "resets"}
    fields = dict(
        dtype=dtype_name(a.dtype),
        shape=(batch, steps, channels, states, groups),
        b_of_steps="b" in of_steps,
        c_of_steps="c" in of_steps,
        softplus=problem.softplus,
        reverse=problem.reverse,
        more_resets=more_resets,
    )
    return views, dtypes, fields


def _checkpoint_shape(tensors: dict[str, Any]) -> tuple[int, ...]:
    batch, channels, steps = tensors["u"].shape
    return checkpoint_shape((batch, steps, tensors["a"].shape[1], channels), 1)


# ---- derivatives ---------------------------------------------------------------------------------


def _of_all_channels(bc: Tensor, channels: int, dtype: torch.dtype) -> Tensor:
    """Return the operand b or c in a shape that broadcasts to (B, D, N, L)."""
    if bc.dim() == 2:
        return bc.to(dtype).unsqueeze(-1)
    if dtype.is_complex:
        bc = torch.unflatten(bc.to(dtype.to_real()), -1, (-1, 2))
        bc = torch.complex(bc[..., 0], bc[..., 1])
    bc, groups = bc.to(dtype), bc.shape[1]
    return bc if groups == 1 else bc.repeat_interleave(channels // groups, 1)


class _Selective(Fused):
    operation, problem = SELECTIVE, SelectiveProblem
    required = ("u", "delta", "a", "b", "c")

    def new(self, problem: Any, tensors: dict[str, Any], name: str) -> Tensor:
        """Outputs have the memory layout of u, and gradients that of their operands."""
        u, a = tensors["u"], tensors["a"]
        if name == "checkpoints":
            return new_checkpoints(a, _checkpoint_shape(tensors))
        if name == "final_state":
            return empty(a, (*u.shape[:2], a.shape[1]))
        x = u if name == "out" else tensors[primal_of(name)]
        if a.is_complex() and name in ("b_grad", "c_grad") and x.dim() == 4:
            # The kernel writes the real and the imaginary part of a number side by side.
            return torch.empty_like(x, memory_format=torch.contiguous_format)
        return torch.empty_like(x)

    def kernel(self, call: Call, problem: SelectiveProblem, arrays: Arrays) -> None:
        run_selective(call, arrays, problem)

    def composed(self, problem: Any, *tensors: Any) -> tuple[Tensor, ...]:
        """Compute the results by elementwise operations and a linear scan, which writes the states
        of all steps."""
        u, delta, a, b, c, d, z, bias, intervals, initial, resets = tensors
        dtype, (batch, channels, steps) = a.dtype.to_real(), u.shape
        x, step = u.to(dtype), delta.to(dtype)
        if bias is not None:
            step = step + bias.unsqueeze(-1)
        if problem.softplus:
            step = softplus(step)  # the identity above 20, as in the kernels
        if intervals is not None:
            step = step * intervals.unsqueeze(1)
        gate = torch.exp(step.unsqueeze(2) * a.unsqueeze(-1))
        input = (step * x).unsqueeze(2) * _of_all_channels(b, channels, a.dtype)
        state, final = scan(
            gate,
            input.expand(batch, channels, a.shape[1], steps),
            None if initial is None else initial.unsqueeze(-1),
            None if resets is None else resets.unsqueeze(2),
            3,
            problem.reverse,
        )
        out = (state * _of_all_channels(c, channels, a.dtype)).sum(2)
        if a.is_complex():
            out = 2 * out.real
        if d is not None:
            out = out + d.unsqueeze(-1) * x
        if z is not None:
            out = out * silu(z.to(dtype))
        return out.to(u.dtype), final.squeeze(-1)


_FUSED = _Selective()


@torch.compiler.allow_in_graph  # type: ignore[untyped-decorator]
def selective(problem: SelectiveProblem, *tensors: Tensor | None) -> Any:
    """Return outputs and final state under any transformation."""
    return _FUSED.run(problem, *tensors)

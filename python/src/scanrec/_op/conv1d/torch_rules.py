# SPDX-License-Identifier: BSD-3-Clause
"""Causal convolutions in PyTorch: operators for the value and the adjoint, and a composition of
PyTorch operations. The composition is used on GPUs, under vmap, and for forward mode and higher
orders.

The axes of tensors are x (B, D, L), weight (D, W), bias (D) and resets (B, L). States (B, D, S)
hold the last S inputs, with S of W - 1 or more. Weight and bias have the type of the kernel's sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import conv1d, pad, silu

from ..._arguments import check_shape, contiguous
from ..._torch.fused import Fused
from ..._torch.operators import Arrays, Described, View, dtype_name, run_native, strides_of
from ..spec import Call, primal_of
from .spec import CONV1D, LAYOUT, Conv1dProblem

__all__ = ["convolve", "describe", "run_conv1d"]


#: The users' names of arrays.
_NAMES = {"initial_state": "initial_states", "final_state": "final_states"}


def run_conv1d(
    call: Call,
    arrays: Arrays,
    problem: Conv1dProblem,
    user: tuple[str, Mapping[str, str]] = ("causal_conv1d", _NAMES),
) -> None:
    """Run a native call on named tensors. ``user`` has the names of the call and of arrays for
    errors."""
    run_native(call, arrays, problem, describe, user)


def describe(arrays: Arrays, problem: Conv1dProblem) -> Described:
    """Describe a native call on these tensors."""
    given = {name: x for name, x in arrays.items() if x is not None}
    x, weight = given["x"], given["weight"]
    (batch, channels, steps), width = x.shape, weight.shape[1]
    past = {"initial": width - 1, "final": width - 1}
    views = {}
    for name, tensor in given.items():
        of = primal_of(name)
        axes = LAYOUT[of].split()
        if len(axes) == 3 or of == "resets":
            axes = sorted(axes, key=("batch", "channel", "past", "time").index)
        extents = {"batch": batch, "time": steps, "channel": channels, "tap": width}
        if "past" in axes:
            boundary = of.removesuffix("_state")
            past[boundary] = extents["past"] = max(width - 1, tensor.shape[-1])
        # A traced program may run with shapes other than those of its trace. Without this check,
        # kernels would read out of bounds.
        shape = [extents[axis] for axis in axes]
        check_shape("causal_conv1d", _NAMES.get(name, name), tensor.shape, shape, equal=True)
        strides = strides_of(tensor) if tensor.numel() > 0 else contiguous(tensor.shape)
        views[name] = View(name, [strides[axes.index(axis)] for axis in LAYOUT[of].split()])
    dtypes = {name: dtype_name(x.dtype) for name, x in given.items() if name != "resets"}
    sizes = batch, steps, channels, width, past["initial"], past["final"]
    return views, dtypes, dict(dtype=dtype_name(weight.dtype), shape=sizes, silu=problem.silu)


class _Conv1d(Fused):
    operation, problem = CONV1D, Conv1dProblem
    required = ("x", "weight")

    def new(self, problem: Any, tensors: dict[str, Any], name: str) -> Tensor:
        """Outputs have the memory layout of x, and gradients that of their operands. The channels
        of final states are contiguous."""
        x = tensors["x"]
        if name == "final_state":
            batch, channels, _ = x.shape
            past = tensors["weight"].shape[1] - 1
            final: Tensor = x.new_empty((batch, past, channels)).transpose(1, 2)
            return final
        return torch.empty_like(x if name == "out" else tensors[primal_of(name)])

    def kernel(self, call: Call, problem: Conv1dProblem, arrays: Arrays) -> None:
        run_conv1d(call, arrays, problem)

    def composed(self, problem: Any, *tensors: Any) -> tuple[Tensor, ...]:
        """Compute PyTorch's convolution, or one product per tap if there are resets or no steps."""
        x, weight, bias, initial, resets = tensors
        channels, steps, before = x.shape[1], x.shape[2], weight.shape[1] - 1
        now = x.to(weight.dtype)
        if initial is None:
            every = pad(now, (before, 0))
        else:
            every = torch.cat([initial.to(now.dtype), now], -1)
        final = every[..., steps:]
        if resets is None and steps > 0:
            out = conv1d(every, weight.unsqueeze(1), bias, groups=channels)
        else:
            # The index of the sequence to which each step belongs. It is 0 for the steps of the
            # initial state and for those before the first reset.
            starts = torch.zeros_like(x[:, 0], dtype=torch.bool) if resets is None else resets
            number = pad(starts.cumsum(-1), (before, 0)).unsqueeze(1)
            out = torch.zeros_like(now)
            for k in range(before + 1):
                seen = number[..., k : k + steps] == number[..., before:]
                tap = weight[:, k : k + 1] * every[..., k : k + steps]
                out = out + torch.where(seen, tap, 0)
            if bias is not None:
                out = out + bias.unsqueeze(-1)
            final = torch.where(number[..., steps:] == number[..., -1:], final, 0)
        return (silu(out) if problem.silu else out).to(x.dtype), final.to(x.dtype)


_FUSED = _Conv1d()


@torch.compiler.allow_in_graph  # type: ignore[untyped-decorator]
def convolve(problem: Conv1dProblem, *tensors: Tensor | None) -> Any:
    """Return outputs and final state under any transformation."""
    x: Any = tensors[0]
    if x.is_cuda:
        return _FUSED.composed(problem, *tensors)
    return _FUSED.run(problem, *tensors)

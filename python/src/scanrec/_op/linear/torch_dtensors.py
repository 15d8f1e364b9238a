# SPDX-License-Identifier: BSD-3-Clause
"""Scans of DTensors: each process scans its part. The placements tell which dimension of the mesh
splits time. Sequences are independent, so all axes other than time may be split in any way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex

import torch
from torch import Tensor
from torch.autograd import Function
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard

from ... import _arguments as arguments
from ..._torch.modes import uncompiled

__all__ = ["scan_dtensors"]

_CALL = "linear_scan"


@uncompiled
def scan_dtensors(
    scan: Callable[..., Any],
    values: Sequence[Any],
    axis: SupportsIndex,
    reverse: bool,
    return_final: bool,
) -> DTensor | tuple[DTensor, DTensor]:
    """Scan DTensors. ``scan`` runs on the tensors of one process. The values are gate, input,
    initial state and resets."""
    gate, input, initial_state, resets = values
    if not isinstance(input, DTensor):
        got = type(input).__name__
        arguments.refuse(_CALL, "input", "a DTensor, like another argument", got, TypeError)
    shape, mesh = input.shape, input.device_mesh
    time = arguments.time_axis(_CALL, axis, shape)
    placements = tuple(Replicate() if p.is_partial() else p for p in input.placements)
    for p in placements:
        if type(p) not in (Shard, Replicate):
            arguments.refuse(_CALL, "input", "placements Shard or Replicate", p)
    over_time = [i for i, p in enumerate(placements) if p.is_shard(time)]
    if len(over_time) > 1:
        arguments.refuse(_CALL, "input", "time split over one mesh dimension at most", placements)

    def local(name: str, x: Any, axes: Sequence[int]) -> Any:
        if x is not None and not isinstance(x, (DTensor, bool, int, float, complex)):
            got = type(x).__name__
            arguments.refuse(_CALL, name, "a DTensor, like 'input'", got, TypeError)
        if not isinstance(x, DTensor):
            return x
        if x.device_mesh != mesh:
            arguments.refuse(_CALL, name, f"a DTensor on {mesh}, like 'input'", x.device_mesh)
        extents = tuple(shape[i] for i in axes)
        if name == "resets" and not over_time:  # resets may have one step more than the input
            extents = arguments.check_resets(_CALL, tuple(x.shape), shape, time)
        arguments.check_shape(_CALL, name, x.shape, extents)
        return _local(x, len(axes), [_within(p, axes) for p in placements], placements)

    axes = list(range(len(shape)))
    boundaries = [i for i in axes if i != time]
    group = mesh.get_group(over_time[0]) if over_time else None
    out = scan(
        local("gate", gate, axes),
        local("input", input, axes),
        local("initial_state", initial_state, boundaries),
        resets=local("resets", resets, axes),
        axis=time,
        reverse=reverse,
        return_final=return_final,
        group=group,
    )
    if not return_final:
        return _global(out, mesh, placements, shape)
    state, final = out
    if group is not None:
        final = _OfAll.apply(final, mesh.get_local_rank(over_time[0]) == 0)
    boundary_placements = [_within(p, boundaries) for p in placements]
    boundary_shape = arguments.boundary_shape(shape, time)
    final = _global(final, mesh, boundary_placements, boundary_shape)
    return _global(state, mesh, placements, shape), final


def _within(placement: Placement, axes: Sequence[int]) -> Placement:
    """Convert a placement of the input to that of a tensor with only these axes of the input."""
    if not isinstance(placement, Shard):
        return placement
    return Shard(axes.index(placement.dim)) if placement.dim in axes else Replicate()


def _local(
    x: DTensor, rank: int, placements: Sequence[Placement], of_input: Sequence[Placement]
) -> Tensor:
    """Return this process's part of a tensor that broadcasts to a shape of this rank and these
    placements. ``of_input`` are the placements of the input."""
    own: list[Placement] = []
    grads: list[Placement] = []
    for p, of in zip(placements, of_input):
        at = p.dim - (rank - x.ndim) if isinstance(p, Shard) else -1
        own.append(Shard(at) if at >= 0 and x.shape[at] != 1 else Replicate())
        # If all parts of a split axis share a tensor, each part has a partial sum of its gradient.
        grads.append(Partial() if of.is_shard() and not own[-1].is_shard() else own[-1])
    return x.redistribute(placements=own).to_local(grad_placements=grads)


def _global(
    x: Tensor, mesh: DeviceMesh, placements: Sequence[Placement], shape: Sequence[int]
) -> DTensor:
    like = torch.empty(shape, device="meta")
    return DTensor.from_local(x, mesh, placements, shape=like.shape, stride=like.stride())


class _OfAll(Function):
    """A final state that all processes have. Its gradient is also the same on all processes and
    counts once, so only one process passes it on."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, has_gradient: bool) -> Tensor:
        ctx.has_gradient = has_gradient
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return (grad if ctx.has_gradient else torch.zeros_like(grad)), None

# SPDX-License-Identifier: BSD-3-Clause
"""Time over the processes of torch.distributed: every one has a part of the steps, and knows the
state before it from what the parts before do to a state::

    part k takes a state x to a_k x + u_k      a_k: the product of its gates      u_k: where it ends from 0

Maps are made, sent and walked in the wide type: float64, complex128. They are a linear recurrence
again, which the scan itself walks, the first part to the last, so bits do not depend on who comes
first. The adjoint comes from the other side: conj(a_k), and the gradient before the part from 0.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, NamedTuple
from zlib import crc32

import torch
import torch.distributed as dist
from torch.autograd import Function, forward_ad
from torch.distributed.device_mesh import DeviceMesh

from .._arguments import refuse
from ._functions import Problem, Scan, adjoint, tangent_of
from ._modes import levels
from ._ops import edge_dtype, edge_of, scan_op

__all__ = ["scan_parts", "telling"]

#: Numbers of a gate that are widened at a time.
_TOGETHER = 1 << 18


def group_of(call: str, group: Any) -> dist.ProcessGroup:
    """The processes that time is split over."""
    if isinstance(group, DeviceMesh):
        if group.ndim != 1:
            refuse(call, "group", "a mesh of one dimension", f"{group.ndim} of them")
        return group.get_group()
    if not isinstance(group, dist.ProcessGroup):
        refuse(call, "group", "a ProcessGroup or a DeviceMesh", type(group).__name__, TypeError)
    return group


class _Parts(NamedTuple):
    """The processes of a call, in the order in which the scan comes to them."""

    group: dist.ProcessGroup
    backwards: bool
    steps: tuple[int, ...]  #: of every rank

    @property
    def count(self):
        return len(self.steps)

    @property
    def rank(self):
        return dist.get_rank(self.group)

    @property
    def place(self):
        return self.count - 1 - self.rank if self.backwards else self.rank

    @property
    def is_first(self):
        return self.place == 0

    def turned(self):
        """In the order of the adjoint."""
        return self._replace(backwards=not self.backwards)


# ---- what processes tell each other ---------------------------------------------------------------


def _all_gather(x, group):
    """(P, ...): the x of every rank."""
    real = torch.view_as_real(x.resolve_conj()) if x.is_complex() else x  # gloo knows no complex ones
    count = dist.get_world_size(group)
    out = real.new_empty(count * real.numel())
    if real.numel():
        dist.all_gather_into_tensor(out, real.reshape(-1), group=group)
    out = out.reshape(count, *real.shape)
    return torch.view_as_complex(out) if x.is_complex() else out


class _Gather(Function):
    """x -> (P, ...), the x of every rank; its gradient is what all make of it."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return _all_gather(x, group)

    @staticmethod
    def backward(ctx, grad):
        return _Return.apply(grad, ctx.group), None


class _Return(Function):
    """(P, ...) -> the sum over ranks of what they have for this one, in the order of ranks."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        real = torch.view_as_real(x.resolve_conj()) if x.is_complex() else x
        out = torch.empty_like(real, memory_format=torch.contiguous_format)
        if real.numel():
            dist.all_to_all_single(out, real.contiguous(), group=group)
        return (torch.view_as_complex(out) if x.is_complex() else out).sum(0)

    @staticmethod
    def backward(ctx, grad):
        return _Gather.apply(grad, ctx.group), None


def agree(group, failed, device, steps, *alike):
    """Steps of every rank, once all can take part: what is `alike` must be the same everywhere.
    Raises in every process if one of them has failed, there what it has failed by."""
    mine = torch.tensor([failed is None, steps, crc32(repr(alike).encode())], device=device)
    every = _all_gather(mine, group).tolist()
    if failed is not None:
        raise failed
    for rank, (takes_part, _, _) in enumerate(every):
        if not takes_part:
            raise RuntimeError(f"linear_scan: rank {rank} of the group cannot take part in the call")
    if len({same for _, _, same in every}) > 1:
        raise RuntimeError(
            "linear_scan: shapes, types, options or requires_grad differ between ranks of the group"
        )
    return tuple(steps for _, steps, _ in every)


@contextmanager
def telling(group):
    """The others learn that this process cannot take part in the call that follows."""
    try:
        yield
    except Exception as error:
        group = group_of("linear_scan", group)
        agree(group, error, _device(group), 0)


# ---- maps of parts --------------------------------------------------------------------------------


def _wide(dtype):
    return torch.complex128 if dtype.is_complex else torch.float64


def _product(gate, resets, problem):
    """The product of a part's gates in the wide type, with extent 1 in time and wherever gates and
    marks broadcast. Products that overflow are large numbers: 0 times one is 0."""
    axis, wide = problem.axis, _wide(gate.dtype)
    if resets is None and gate.shape[axis] == 1:
        power, product, left = gate.to(wide), None, problem.steps
        while left > 0:
            if left % 2 == 1:
                product = power if product is None else product * power
            power, left = power * power, left // 2
        return _finite(torch.ones_like(power) if product is None else product)
    shape = list(gate.shape)
    if resets is not None:
        shape = [max(n, m) for n, m in zip(shape, resets.shape)]
    shape[axis] = 1
    product = torch.ones(shape, dtype=wide, device=gate.device)
    length = max(1, _TOGETHER // max(1, product.numel()))
    begins = range(0, problem.steps, length)
    for begin in reversed(begins) if problem.reverse else begins:
        steps = min(length, problem.steps - begin)
        piece = gate if gate.shape[axis] == 1 else gate.narrow(axis, begin, steps)
        marks = None
        if resets is not None:
            marks = resets.narrow(axis, begin, min(steps + 1, resets.shape[axis] - begin))
        shape[axis] = steps
        small = Problem(tuple(shape), axis, problem.reverse)
        _, product = tangent_of(piece.to(wide), None, None, marks, None, None, product, small)
        # What is 0 stays so; gates that are not finite are met by the walk from 0 as well.
        if not torch.is_grad_enabled() and product.device.type == "cpu" and not product.any():
            break
    return _finite(product)


def _finite(product):
    most = torch.finfo(torch.float64).max
    if product.is_complex():
        return torch.complex(product.real.clamp(-most, most), product.imag.clamp(-most, most))
    return product.clamp(-most, most)


def _cut(resets, problem):
    """Whether a part is cut from the state before it, or within."""
    if resets is None:
        return None
    more = resets.shape[problem.axis] > problem.steps
    first = 1 if more and problem.reverse else 0
    marks = resets.narrow(problem.axis, first, resets.shape[problem.axis] - more)
    return marks.any(problem.axis, keepdim=True)


def _with_mark_behind(resets, problem, parts):
    """The marks of a part of a reverse scan, and the first of the next part that has steps."""
    axis = problem.axis
    if resets is None or not problem.reverse:
        return resets
    every = _all_gather(_first_mark(resets, axis), parts.group)
    if resets.shape[axis] > problem.steps:
        return resets
    behind = next((r for r in range(parts.rank + 1, parts.count) if parts.steps[r]), None)
    mark = torch.zeros_like(every[0]) if behind is None else every[behind]
    return torch.cat([resets, mark.bool()], axis)


def _first_mark(resets, axis):
    if resets.shape[axis] == 0:
        shape = [1 if i == axis else n for i, n in enumerate(resets.shape)]
        return torch.zeros(shape, dtype=torch.uint8, device=resets.device)
    return resets.narrow(axis, 0, 1).to(torch.uint8)


class _Maps(NamedTuple):
    """What all parts do to the state before them, side by side along the axis of time: without where
    they end."""

    products: torch.Tensor
    cuts: torch.Tensor | None


def _message(parts, axis, *tensors):
    """One all-gather: the tensors of every rank, side by side in time."""
    every = _Gather.apply(torch.cat([x.reshape(-1) for x in tensors]), parts.group)
    pieces = every.split([x.numel() for x in tensors], 1)
    return [
        p.reshape(parts.count, *x.shape).movedim(0, axis).flatten(axis, axis + 1)
        for p, x in zip(pieces, tensors)
    ]


def _state_before(parts, axis, maps, ends):
    """The state before this part in the order of the scan, 0 before the first."""
    marks = maps.cuts
    if marks is not None and parts.backwards:  # which finds the link behind a step
        marks = torch.cat([torch.zeros_like(marks.narrow(axis, 0, 1)), marks], axis)
    problem = Problem(tuple(ends.shape), axis, parts.backwards)
    states, _ = Scan.apply(maps.products, ends, None, marks, problem)
    neighbour = parts.rank + (1 if parts.backwards else -1)
    before = states.narrow(axis, min(max(neighbour, 0), parts.count - 1), 1)
    # The first one takes part in what becomes of gradients, too.
    return torch.where(_all(parts.is_first, before), torch.zeros_like(before), before)


def _all(value, like):
    return torch.full((), value, dtype=torch.bool, device=like.device)


# ---- the call -------------------------------------------------------------------------------------


def _maps_and_ends(gate, resets, ends, problem, parts):
    """One message: the maps of all parts, and where they end."""
    axis, wide = problem.axis, _wide(gate.dtype)
    cut = _cut(resets, problem)
    sent = [_product(gate, resets, problem), *([] if cut is None else [cut.to(wide)]), ends.to(wide)]
    products, *cuts, ends = _message(parts, axis, *sent)
    return _Maps(products, cuts[0].real != 0 if cuts else None), ends


class _SplitScan(Function):
    """(gate, input, initial_state, resets, problem, parts) -> (state, final state of the part, state
    before the part)"""

    @staticmethod
    def forward(ctx, gate, input, initial, resets, problem, parts):
        edge = problem.edge
        first = None if initial is None or not parts.is_first else initial.expand(edge)
        _, ends = scan_op(gate, input, first, resets, *problem)
        maps, ends = _maps_and_ends(gate, resets, ends, problem, parts)
        before = _state_before(parts, problem.axis, maps, ends).to(edge_dtype(gate.dtype))
        entering = before if first is None else first.clone()
        state, final = scan_op(gate, input, entering, resets, *problem)
        ctx.problem, ctx.parts = problem, parts
        ctx.save_for_backward(gate, state, resets, entering, *maps)
        ctx.shapes = gate.shape, input.shape, None if initial is None else initial.shape
        ctx.set_materialize_grads(False)
        return state, final, entering

    @staticmethod
    def backward(ctx, state_grad, final_grad, entering_grad):
        gate, state, resets, entering, *maps = ctx.saved_tensors
        problem, parts = ctx.problem, ctx.parts.turned()
        maps, wide = _Maps(*maps), _wide(gate.dtype)
        begins, last = entering.new_zeros(problem.edge), final_grad if parts.is_first else None
        if state_grad is not None or last is not None:
            begins = adjoint(
                gate, None, None, resets, state_grad, last, problem, (None, None, problem.edge)
            )[2]
        if entering_grad is not None:
            begins = begins + entering_grad
        if torch.is_grad_enabled():  # gradients of gradients: products move, too
            maps, begins = _maps_and_ends(gate, resets, begins, problem, parts)
        else:
            (begins,) = _message(parts, problem.axis, begins.to(wide))
        maps = maps._replace(products=maps.products.conj().resolve_conj())
        after = _state_before(parts, problem.axis, maps, begins).to(entering.dtype)
        if final_grad is not None:  # of the last part; nobody sees that of others
            after = after + final_grad
        shapes = [s if n else None for n, s in zip(ctx.needs_input_grad[:3], ctx.shapes)]
        wanted = (*shapes[:2], None if shapes[2] is None else problem.edge)
        out = adjoint(gate, state, entering, resets, state_grad, after, problem, wanted)
        initial_grad = out[2]
        if initial_grad is not None:  # the first one's is that of the whole sequence
            if entering_grad is not None:
                initial_grad = initial_grad + entering_grad
            is_first = _all(ctx.parts.is_first, initial_grad)
            initial_grad = torch.where(is_first, initial_grad, torch.zeros_like(initial_grad))
            axes = [i for i, (n, m) in enumerate(zip(problem.edge, shapes[2])) if n != m]
            initial_grad = initial_grad.sum(axes, keepdim=True) if axes else initial_grad
        return *out[:2], initial_grad, None, None, None


@torch.compiler.disable
def scan_parts(checked: Any, group: Any, return_final: bool, reverse: bool) -> Any:
    """The scan of this process's part. ``checked()`` gives its tensors, aligned, and the axis of
    time, or raises."""
    call = "linear_scan"
    group = group_of(call, group)
    failed, steps, alike, device = None, 0, (), _device(group)
    try:
        if levels() or forward_ad._current_level >= 0:
            raise NotImplementedError(
                f"{call}: over a group there are gradients, of any order; no torch.func, no forward mode"
            )
        (gate, input, initial, resets), axis = checked()
        shape, steps, device = tuple(input.shape), input.shape[axis], input.device
        lanes = [None if x is None else edge_of(x.shape, axis) for x in (gate, input, resets)]
        moved = [x is not None and x.requires_grad for x in (gate, input, initial)]
        alike = (lanes, axis, input.dtype, reverse, return_final, torch.is_grad_enabled(), moved)
    except Exception as error:
        failed = error
    every = agree(group, failed, device, steps, *alike)
    parts = _Parts(group, reverse, every)
    problem = Problem(shape, axis, reverse)
    resets = _with_mark_behind(resets, problem, parts)
    state, final, _ = _SplitScan.apply(gate, input, initial, resets, problem, parts)
    if not return_final:
        return state
    last = 0 if reverse else parts.count - 1
    return state, _Gather.apply(final, group)[last].squeeze(axis)


def _device(group):
    """A device on which the group can tell that a process has no tensors."""
    if "nccl" in dist.get_backend(group):
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")

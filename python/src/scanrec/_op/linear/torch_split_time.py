# SPDX-License-Identifier: BSD-3-Clause
"""Time split over the processes of torch.distributed.

Every process has a part of the steps. Part k maps the state x before it to a_k x + u_k. Here a_k is
the product of its gates, and u_k is its final state if it starts from 0 (the first part: from the
initial state). The composed maps of the earlier parts give the state before a part.

The wide type is float64 or complex128. Products of gates are computed in it, and maps are sent and
composed in it. The states after the parts form a linear recurrence with gates a_k and inputs u_k,
which a scan over the parts computes. Results therefore do not depend on the order in which messages
arrive.

The adjoint composes maps in the opposite direction. The map of part k then consists of conj(a_k)
and of the gradient of the state before the part, without the contribution of later parts.

With ``ranges``, a process may have several such parts, called pieces, side by side in its tensors.
Each piece has its own map. A process sends all of its maps in one message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from operator import index
from typing import Any, NamedTuple
from zlib import crc32

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function
from torch.distributed.device_mesh import DeviceMesh

from ..._arguments import refuse
from ..._torch.modes import is_eager, uncompiled
from ..._torch.operators import boundary_dtype, boundary_of
from ..._torch.types import Maybe
from .torch_rules import Problem, Scan, Scanned, adjoint, scan_op, summed, tangent_of

__all__ = ["scan_parts", "telling"]

#: For every rank, the ranges (begin, end) of its pieces, in their order in the rank's tensors.
Table = tuple[tuple[tuple[int, int], ...], ...]

_CALL = "linear_scan"

#: How many numbers of a gate are converted to the wide type at a time.
_TOGETHER = 1 << 18


def group_of(group: Any) -> dist.ProcessGroup:
    """The processes that time is split over."""
    if isinstance(group, DeviceMesh):
        if group.ndim != 1:
            refuse(_CALL, "group", "a mesh with one dimension", f"{group.ndim} dimensions")
        return group.get_group()
    if not isinstance(group, dist.ProcessGroup):
        refuse(_CALL, "group", "a ProcessGroup or a DeviceMesh", type(group).__name__, TypeError)
    return group


class _Parts(NamedTuple):
    """How the sequence is split into pieces, and which process has each piece."""

    group: dist.ProcessGroup
    backwards: bool
    ranges: Table

    @property
    def rank(self) -> int:
        return dist.get_rank(self.group)

    @property
    def lengths(self) -> list[int]:
        """The number of steps of each of this process's pieces."""
        return [end - begin for begin, end in self.ranges[self.rank]]

    @property
    def most(self) -> int:
        """The largest number of pieces of a process."""
        return max(len(own) for own in self.ranges)

    @property
    def order(self) -> list[tuple[int, int]]:
        """(rank, piece) of all pieces, in the order of time."""
        pieces = [(*r, rank, i) for rank, own in enumerate(self.ranges) for i, r in enumerate(own)]
        return [(rank, i) for _, _, rank, i in sorted(pieces)]

    @property
    def positions(self) -> list[int]:
        """The positions of this process's pieces in the order of time."""
        order, rank = self.order, self.rank
        return [order.index((rank, i)) for i in range(len(self.ranges[rank]))]

    @property
    def first(self) -> int | None:
        """The index of the piece where the scan starts, or None if another process has it."""
        rank, piece = self.order[-1 if self.backwards else 0]
        return piece if rank == self.rank else None

    def problems(self, problem: Problem) -> list[Problem]:
        """The problems of this process's pieces."""
        shape, axis = problem.shape, problem.axis
        shapes = [(*shape[:axis], n, *shape[axis + 1 :]) for n in self.lengths]
        return [problem._replace(shape=of) for of in shapes]

    def pieces_of(self, x: Maybe, axis: int) -> Sequence[Any]:
        """Split a tensor into this process's pieces of the sequence. A tensor that is absent or has
        extent 1 in time is returned for each piece."""
        if x is None or x.shape[axis] == 1 != sum(self.lengths):
            return [x] * len(self.lengths)
        return torch.split(x, self.lengths, axis)

    def boundaries_of(self, x: Maybe, axis: int) -> Sequence[Any]:
        """Split a tensor that has one state for each of this process's pieces."""
        return [None] * len(self.lengths) if x is None else torch.split(x, 1, axis)


def _table(ranges: Any, count: int) -> Table:
    """Return the ranges of all ranks. Raises an error unless every rank has a range and the ranges
    cover the sequence exactly once."""
    try:
        table = tuple(tuple((index(begin), index(end)) for begin, end in own) for own in ranges)
    except (TypeError, ValueError):
        expected = "a list of pairs (begin, end) for every rank"
        refuse(_CALL, "ranges", expected, repr(ranges), TypeError)
    if len(table) != count:
        refuse(_CALL, "ranges", f"ranges of {count} ranks", f"ranges of {len(table)}")
    at = 0
    for begin, end in sorted(r for own in table for r in own):
        if begin != at or end <= begin:
            refuse(_CALL, "ranges", f"a range of at least one step from step {at}", (begin, end))
        at = end
    if not all(table):
        got = f"none for rank {table.index(())}"
        refuse(_CALL, "ranges", "at least one range for every rank", got)
    return table


# ---- messages between the processes --------------------------------------------------------------


def _real(x: Tensor) -> Tensor:
    """View a complex tensor as real numbers, since gloo does not support complex types."""
    return torch.view_as_real(x.resolve_conj()) if x.is_complex() else x


def _typed_as(like: Tensor, real: Tensor) -> Tensor:
    """Undo :func:`_real`: return real numbers as a tensor of the type of ``like``."""
    return torch.view_as_complex(real) if like.is_complex() else real


def _all_gather(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Return the x of every rank, ``(P, ...)`` for P ranks."""
    real, count = _real(x), dist.get_world_size(group)
    out = real.new_empty((count, *real.shape))
    if real.numel():
        dist.all_gather_into_tensor(out.reshape(-1), real.reshape(-1), group=group)
    return _typed_as(x, out)


class _Gather(Function):
    """x -> (P, ...), the x of every rank. Its gradient is the sum of the gradients of all ranks."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return _all_gather(x, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, None]:
        return _Return.apply(grad, ctx.group), None


class _Return(Function):
    """x (P, ...) -> the sum of the entries ``x[this rank]`` of all ranks, in the order of ranks."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        real = _real(x)
        out = torch.empty_like(real, memory_format=torch.contiguous_format)
        if real.numel():
            dist.all_to_all_single(out, real.contiguous(), group=group)
        return _typed_as(x, out).sum(0)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, None]:
        return _Gather.apply(grad, ctx.group), None


def agree(
    group: dist.ProcessGroup,
    failed: Exception | None,
    device: torch.device,
    steps: int,
    *alike: Any,
) -> tuple[int, ...]:
    """Return the number of steps of every rank, after all have sent theirs. Raises RuntimeError if
    `alike` differs between ranks. Ranks that failed raise their own errors instead, and the other
    ranks then raise RuntimeError."""
    mine = torch.tensor([failed is None, steps, crc32(repr(alike).encode())], device=device)
    every = _all_gather(mine, group).tolist()
    if failed is not None:
        raise failed
    for rank, (takes_part, _, _) in enumerate(every):
        if not takes_part:
            raise RuntimeError(f"{_CALL}: rank {rank} of the group cannot take part in the call")
    if len({same for _, _, same in every}) > 1:
        raise RuntimeError(
            f"{_CALL}: shapes, types, options or requires_grad differ between ranks of the group"
        )
    return tuple(steps for _, steps, _ in every)


@contextmanager
def telling(group: Any) -> Iterator[None]:
    """Tell the other processes if the body raises an error, since they wait for this process."""
    try:
        yield
    except Exception as error:
        group = group_of(group)
        agree(group, error, _device(group), 0)


# ---- maps of parts -------------------------------------------------------------------------------


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.complex128 if dtype.is_complex else torch.float64


def _product(gate: Tensor, resets: Maybe, problem: Problem) -> Tensor:
    """The product of a part's gates in the wide type, with extent 1 in time and wherever gates and
    resets broadcast. It is 0 where a reset separates the end of the part from the state before the
    part. Overflowing products are clipped, so that 0 times a product is 0, not NaN."""
    axis, wide = problem.axis, _wide(gate.dtype)
    if resets is None and gate.shape[axis] == 1:
        power, left = gate.to(wide), problem.steps
        product = torch.ones_like(power)
        while left > 0:
            if left % 2 == 1:
                product = product * power
            power, left = power * power, left // 2
        return _finite(product)
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
        reset_mask = None
        if resets is not None:
            reset_mask = resets.narrow(axis, begin, min(steps + 1, resets.shape[axis] - begin))
        shape[axis] = steps
        small = Problem(tuple(shape), axis, problem.reverse)
        of = Scanned(piece.to(wide), None, reset_mask, None)
        _, product = tangent_of(of, (None, None, product), small)
        # A product of 0 stays 0. Only a later gate that is not finite would make it NaN, but the
        # final state of the part is then not finite either.
        if not torch.is_grad_enabled() and product.device.type == "cpu" and not product.any():
            break
    return _finite(product)


def _finite(product: Tensor) -> Tensor:
    most = torch.finfo(torch.float64).max
    return _typed_as(product, _real(product).clamp(-most, most))


def _any_reset(resets: Maybe, problem: Problem) -> Maybe:
    """Whether a reset separates the end of a part from the state before the part."""
    if resets is None:
        return None
    more = resets.shape[problem.axis] > problem.steps
    first = 1 if more and problem.reverse else 0
    reset_mask = resets.narrow(problem.axis, first, resets.shape[problem.axis] - more)
    return reset_mask.any(problem.axis, keepdim=True)


def _resets_of_pieces(resets: Maybe, problem: Problem, parts: _Parts) -> Sequence[Maybe]:
    """Return the resets of this process's pieces. In a reverse scan each piece also gets the reset
    of the step after it."""
    axis, steps = problem.axis, sum(parts.lengths)
    if resets is None:
        return [None] * len(parts.lengths)
    only = resets.shape[axis] > steps  # a single piece, with a reset after its last step
    if not problem.reverse:
        return [resets] if only else parts.pieces_of(resets, axis)
    own = torch.split(resets.narrow(axis, 0, steps), parts.lengths, axis)
    none = resets.new_zeros(boundary_of(resets.shape, axis))
    firsts = [torch.cat([x, none], axis).narrow(axis, 0, 1).to(torch.uint8) for x in own]
    (of_all,) = _message(parts, axis, firsts)
    if only:
        return [resets]
    pieces = []
    lengths = [end - begin for begin, end in (parts.ranges[rank][i] for rank, i in parts.order)]
    for x, position in zip(own, parts.positions):
        after = next((k for k in range(position + 1, len(lengths)) if lengths[k] > 0), None)
        mark = none if after is None else of_all.narrow(axis, after, 1).bool()
        pieces.append(torch.cat([x, mark], axis))
    return pieces


def _padded(tensors: Sequence[Tensor], axis: int, count: int) -> Tensor:
    """Concatenate tensors along an axis, with tensors of zeros appended up to ``count`` tensors."""
    left = count - len(tensors)
    tensors = [*tensors, *[torch.zeros_like(tensors[0])] * left]
    return tensors[0] if count == 1 else torch.cat(tensors, axis)


def _message(parts: _Parts, axis: int, *values: Sequence[Tensor]) -> list[Tensor]:
    """Gather values of the pieces of all processes in one message. Each value becomes one tensor
    with all pieces side by side in the order of time."""
    tensors = [_padded(pieces, axis, parts.most) for pieces in values]
    every = _Gather.apply(torch.cat([x.reshape(-1) for x in tensors]), parts.group)
    positions = [rank * parts.most + piece for rank, piece in parts.order]
    out = []
    for x, like in zip(every.split([x.numel() for x in tensors], 1), tensors):
        x = x.reshape(len(parts.ranges), *like.shape).movedim(0, axis).flatten(axis, axis + 1)
        if positions != list(range(x.shape[axis])):
            x = x.index_select(axis, torch.tensor(positions, device=x.device))
        out.append(x)
    return out


def _states_before(
    parts: _Parts, axis: int, products: Tensor, resets: Maybe, ends: Tensor
) -> list[Tensor]:
    """For each of this process's pieces, the state before it in the order of the scan. It is 0 for
    the piece where the scan starts."""
    if resets is not None and parts.backwards:  # a reverse scan reads the reset of the next step
        resets = torch.cat([torch.zeros_like(resets.narrow(axis, 0, 1)), resets], axis)
    problem = Problem(tuple(ends.shape), axis, parts.backwards)
    states, _ = Scan.apply(products, ends, None, resets, problem)
    count, out = ends.shape[axis], []
    for position in parts.positions:
        neighbour = position + (1 if parts.backwards else -1)
        before = states.narrow(axis, min(max(neighbour, 0), count - 1), 1)
        out.append(_zero_unless(0 <= neighbour < count, before))
    return out


def _zero_unless(keep: bool, x: Tensor) -> Tensor:
    """Return x or zeros. The result depends on x in either case, so that all processes take part in
    the messages of its gradient."""
    kept = torch.full((), keep, dtype=torch.bool, device=x.device)
    return torch.where(kept, x, torch.zeros_like(x))


# ---- the call ------------------------------------------------------------------------------------


def _maps_and_ends(
    gates: Sequence[Tensor],
    reset_mask: Sequence[Maybe],
    ends: Sequence[Tensor],
    problems: Sequence[Problem],
    parts: _Parts,
) -> tuple[Tensor, Maybe, Tensor]:
    """Exchange the maps of all pieces in one message. ``ends`` has the constant terms of the maps:
    final states, or gradients in the adjoint. Returns the products of the gates, a mask of the
    pieces with resets (or None), and the constant terms, each side by side in the order of time."""
    axis, wide = problems[0].axis, _wide(gates[0].dtype)
    resets = [x for m, p in zip(reset_mask, problems) if (x := _any_reset(m, p)) is not None]
    sent = [[_product(g, m, p) for g, m, p in zip(gates, reset_mask, problems)], ends, resets]
    wide_ones = ([x.to(wide) for x in pieces] for pieces in sent if pieces)
    products, all_ends, *all_resets = _message(parts, axis, *wide_ones)
    return products, all_resets[0].real != 0 if all_resets else None, all_ends


class _SplitScan(Function):
    """(gate, input, initial_state, problem, parts, resets of pieces) -> (state, final states of the
    pieces, states before them)"""

    @staticmethod
    def forward(
        ctx: Any,
        gate: Tensor,
        input: Tensor,
        initial: Maybe,
        problem: Problem,
        parts: _Parts,
        *reset_mask: Maybe,
    ) -> tuple[Tensor, Tensor, Tensor]:
        axis, problems = problem.axis, parts.problems(problem)
        gates, inputs = parts.pieces_of(gate, axis), parts.pieces_of(input, axis)

        def scan_pieces() -> list[Any]:
            pieces = zip(gates, inputs, entering, reset_mask, problems)
            return [scan_op(*tensors, *p) for *tensors, p in pieces]

        entering: list[Maybe] = [None] * len(problems)
        if initial is not None and parts.first is not None:
            entering[parts.first] = initial.expand(problem.boundary).clone()
        own_ends = [end for _, end in scan_pieces()]
        products, resets, ends = _maps_and_ends(gates, reset_mask, own_ends, problems, parts)
        dtype = boundary_dtype(gate.dtype)
        for i, x in enumerate(_states_before(parts, axis, products, resets, ends)):
            if entering[i] is None:
                entering[i] = x.to(dtype)
        results: Any = (*zip(*scan_pieces()), entering)
        state, final, before = (_padded(x, axis, len(problems)) for x in results)
        ctx.problem, ctx.parts = problem, parts
        of_gate = (state, before) if ctx.needs_input_grad[0] else (None, None)
        ctx.save_for_backward(gate, *of_gate, products, resets, *reset_mask)
        ctx.initial_shape = None if initial is None else initial.shape
        ctx.set_materialize_grads(False)
        return state, final, before

    @staticmethod
    def backward(
        ctx: Any, state_grad: Maybe, final_grad: Maybe, before_grad: Maybe
    ) -> tuple[Maybe, ...]:
        gate, state, before, products, resets, *reset_mask = ctx.saved_tensors
        problem, parts = ctx.problem, ctx.parts
        parts = parts._replace(backwards=not parts.backwards)  # in the order of the adjoint
        axis, problems, wide = problem.axis, parts.problems(problem), _wide(gate.dtype)
        dtype = boundary_dtype(gate.dtype)
        gates = parts.pieces_of(gate, axis)
        states, befores = parts.pieces_of(state, axis), parts.boundaries_of(before, axis)
        state_grads = parts.pieces_of(state_grad, axis)
        final_grads = parts.boundaries_of(final_grad, axis)
        before_grads = parts.boundaries_of(before_grad, axis)
        own_begins = []
        for i, (g, m, s, last, more, p) in enumerate(
            zip(gates, reset_mask, state_grads, final_grads, before_grads, problems)
        ):
            last = last if i == parts.first else None
            of = Scanned(g, None, m, None)
            begin = adjoint(of, (s, last), p, (None, None, p.boundary))[2]
            begin = gate.new_zeros(p.boundary, dtype=dtype) if begin is None else begin
            own_begins.append(begin if more is None else begin + more)
        if torch.is_grad_enabled():  # for gradients of gradients, products have gradients too
            products, resets, begins = _maps_and_ends(
                gates, reset_mask, own_begins, problems, parts
            )
        else:
            (begins,) = _message(parts, axis, [x.to(wide) for x in own_begins])
        products = products.conj().resolve_conj()
        needs, out = ctx.needs_input_grad, []
        for g, s, b, m, s_grad, last, after, p in zip(
            *(gates, states, befores, reset_mask, state_grads, final_grads),
            *(_states_before(parts, axis, products, resets, begins), problems),
        ):
            after = after.to(dtype)
            if last is not None:  # 0 except in the piece whose final state is returned
                after = after + last
            wanted = [x if n else None for n, x in zip(needs, (g.shape, p.shape, p.boundary))]
            out.append(adjoint(Scanned(g, b, m, s), (s_grad, after), p, wanted))
        of_gate, of_input, of_initial = zip(*out)
        return (
            _joined(of_gate, gates, axis) if needs[0] else None,
            _padded(of_input, axis, len(problems)) if needs[1] else None,
            _of_first(of_initial, before_grads, ctx) if needs[2] else None,
            *[None] * (2 + len(reset_mask)),
        )


def _joined(grads: Sequence[Tensor], pieces: Sequence[Tensor], axis: int) -> Tensor:
    """Concatenate the gradients of pieces, or add them if all pieces share one tensor."""
    if len(pieces) > 1 and pieces[0] is pieces[1]:
        return sum(grads[1:], start=grads[0])
    return _padded(grads, axis, len(pieces))


def _of_first(initial_grads: Sequence[Tensor], more: Sequence[Maybe], ctx: Any) -> Tensor:
    """The gradient of the initial state. It is 0 on processes without the piece where the scan
    starts."""
    first = ctx.parts.first
    at = first or 0
    grad, of_state = initial_grads[at], more[at]
    grad = grad if of_state is None else grad + of_state
    return summed(_zero_unless(first is not None, grad), ctx.initial_shape)


@uncompiled
def scan_parts(
    checked: Callable[[], Any], group: Any, ranges: Any, return_final: bool, reverse: bool
) -> Tensor | tuple[Tensor, Tensor]:
    """The scan of this process's part of the sequence. ``checked()`` returns the tensors of the
    part and the time axis, or raises an error."""
    group = group_of(group)
    failed: Exception | None = None
    steps, device = 0, _device(group)
    alike: tuple[Any, ...] = ()
    try:
        if not is_eager():
            raise NotImplementedError(
                f"{_CALL}: a call with 'group' supports backward of any order, but neither "
                "torch.func nor forward mode"
            )
        (gate, input, initial, resets), axis = checked()
        shape, steps, device = tuple(input.shape), input.shape[axis], input.device
        if ranges is not None:
            ranges = _table(ranges, dist.get_world_size(group))
            own = sum(end - begin for begin, end in ranges[dist.get_rank(group)])
            expected = f"{own} steps, as in this rank's 'ranges'"
            if steps != own:
                refuse(_CALL, "input", expected, steps)
            if resets is not None and resets.shape[axis] > steps:
                refuse(_CALL, "resets", expected, resets.shape[axis])
        lanes = [None if x is None else boundary_of(x.shape, axis) for x in (gate, input, resets)]
        needs_grad = [x is not None and x.requires_grad for x in (gate, input, initial)]
        options = reverse, return_final, torch.is_grad_enabled()
        alike = (lanes, axis, input.dtype, needs_grad, options, ranges)
    except Exception as error:
        failed = error
    every = agree(group, failed, device, steps, *alike)
    if ranges is None:  # one part per rank, in the order of ranks
        ranges = tuple(((end - n, end),) for end, n in zip(accumulate(every), every))
    parts = _Parts(group, reverse, ranges)
    problem = Problem(shape, axis, reverse)
    reset_mask = _resets_of_pieces(resets, problem, parts)
    state: Tensor
    state, finals, _ = _SplitScan.apply(gate, input, initial, problem, parts, *reset_mask)
    if not return_final:
        return state
    rank, piece = parts.order[0 if reverse else -1]
    final = finals.narrow(axis, piece if rank == parts.rank else 0, 1)
    return state, _Gather.apply(final, group)[rank].squeeze(axis)


def _device(group: dist.ProcessGroup) -> torch.device:
    """A device for the message of a process that failed before it had tensors."""
    if "nccl" in dist.get_backend(group):
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")

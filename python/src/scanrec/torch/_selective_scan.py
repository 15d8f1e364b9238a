# SPDX-License-Identifier: BSD-3-Clause
"""The selective scan and a step of it: arguments checked, then the function, or what it is composed
of."""

from __future__ import annotations

import operator
from typing import Literal, overload

import torch
from torch import Tensor

from .. import _arguments as arguments
from ._modes import is_recorded
from ._ops import run_below
from ._selective_functions import real_type, selective
from ._selective_ops import update_op
from ._tensors import check_dense, marks

__all__ = ["resets_from_cu_seqlens", "selective_scan", "selective_state_update"]

_STORED = {
    torch.float32: (torch.float32, torch.bfloat16, torch.float16),
    torch.float64: (torch.float64,),
}


@overload
def selective_scan(
    u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None = None,
    z: Tensor | None = None, delta_bias: Tensor | None = None, delta_softplus: bool = False,
    return_last_state: Literal[False] = False, *, initial_state: Tensor | None = None,
    resets: Tensor | None = None, cu_seqlens: Tensor | None = None,
    intervals: Tensor | None = None, reverse: bool = False,
) -> Tensor: ...  # fmt: skip
@overload
def selective_scan(
    u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None = None,
    z: Tensor | None = None, delta_bias: Tensor | None = None, delta_softplus: bool = False,
    *, return_last_state: Literal[True], initial_state: Tensor | None = None,
    resets: Tensor | None = None, cu_seqlens: Tensor | None = None,
    intervals: Tensor | None = None, reverse: bool = False,
) -> tuple[Tensor, Tensor]: ...  # fmt: skip
@overload
def selective_scan(
    u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None,
    z: Tensor | None, delta_bias: Tensor | None, delta_softplus: bool,
    return_last_state: Literal[True], *, initial_state: Tensor | None = None,
    resets: Tensor | None = None, cu_seqlens: Tensor | None = None,
    intervals: Tensor | None = None, reverse: bool = False,
) -> tuple[Tensor, Tensor]: ...  # fmt: skip
@overload
def selective_scan(
    u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None = None,
    z: Tensor | None = None, delta_bias: Tensor | None = None, delta_softplus: bool = False,
    return_last_state: bool = False, *, initial_state: Tensor | None = None,
    resets: Tensor | None = None, cu_seqlens: Tensor | None = None,
    intervals: Tensor | None = None, reverse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]: ...  # fmt: skip
def selective_scan(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    delta_softplus: bool = False,
    return_last_state: bool = False,
    *,
    initial_state: Tensor | None = None,
    resets: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    intervals: Tensor | None = None,
    reverse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """The recurrence of Mamba, with the arguments of mamba_ssm's ``selective_scan_fn``::

        step[t] = softplus(delta[t] + delta_bias)             or delta[t] + delta_bias
        x[t] = exp(step[t] A) x[t-1] + step[t] B[t] u[t]      N states per channel
        out[t] = (sum(C[t] x[t]) + D u[t]) silu(z[t])       2 Re(sum) where A is complex

    Value and gradient are one pass over memory each, with all tensors read where they are; the N
    states stay in registers. Differentiable in all that is not a mark or an option.

    Parameters
    ----------
    u, delta:
        ``(B, D, L)``, of any strides.
    A:
        ``(D, N)``, float32 or float64, or complex of them: the type of states. The others are of
        its real type, each of its own: with 32 bits they may be bfloat16 and float16, too.
    B, C:
        ``(B, N, L)``, ``(B, G, N, L)`` for G groups of channels, or ``(D, N)``, the same at all
        steps. Complex, where ``A`` is; those of every step may also be real, with ``2 L`` numbers
        that are the parts of complex ones, side by side.
    D:
        ``(D,)``; None is 0.
    z:
        ``(B, D, L)``; without, outputs are not gated.
    delta_bias:
        ``(D,)``; None is 0.
    delta_softplus:
        Whether steps are ``softplus(delta + delta_bias)``.
    return_last_state:
        Returns ``(out, last_state)``, the latter ``(B, D, N)`` in the type of ``A``.
    initial_state:
        The state before the first step: any shape that broadcasts to ``(B, D, N)``. None is 0.
    resets:
        Booleans ``(B, L)``, or of three axes that broadcast to ``(B, D, L)``, though not along
        time. Where one is set a sequence starts, as in :func:`linear_scan`; there may be one step
        more of them. :func:`resets_from_cu_seqlens` makes them.
    cu_seqlens:
        For S sequences that lie one after the other in a batch of 1: int32 or int64 ``(S + 1,)``,
        the numbers of steps before each, ``[0, n0, n0 + n1, ..., L]``, read on the host.
        ``initial_state`` and the last state are then those of the sequences, ``(S, D, N)``. With
        either of them every sequence is a call of its own, otherwise there is one call.
    intervals:
        For samples at irregular times, ``(B, L)``: the factor of all steps at each.
    reverse:
        Time runs from the end; ``initial_state`` is then the one after the last step, and the last
        state that of the first.

    Returns
    -------
    The outputs, in the type of ``u``, and laid out as it is if it has no gaps.

    Raises
    ------
    ValueError, TypeError:
        Names the argument, what was expected and what came.
    NotImplementedError:
        As of ``linear_scan``.

    Notes
    -----
    Autograd keeps the states before every 128 steps, and computes those in between anew. Forward
    mode, batching by ``torch.func`` and higher orders are composed of elementwise operations and
    scans, with arrays of ``(B, D, N, L)``. Results do not depend on the number of threads.

    Source: Gu and Dao, Mamba: Linear-time sequence modeling with selective state spaces (2023).
    """
    call = "selective_scan"
    softplus = arguments.flag(call, "delta_softplus", delta_softplus)
    return_last_state = arguments.flag(call, "return_last_state", return_last_state)
    reverse = arguments.flag(call, "reverse", reverse)
    checked = _Checked(call, "u", u, A, 3)
    batch, channels, steps = u.shape
    states = A.shape[1]
    checked.same("delta", delta)
    b = checked.mixing("B", B, (batch, states, steps))
    c = checked.mixing("C", C, (batch, states, steps))
    if b.dim() == c.dim() == 4 and b.shape[1] != c.shape[1]:
        arguments.refuse(call, "C", f"as many groups as 'B' has, {b.shape[1]}", c.shape[1])
    skip = checked.weight("D", D)
    if z is not None:
        checked.same("z", z)
    bias = checked.weight("delta_bias", delta_bias)
    if intervals is not None:
        checked.type("intervals", intervals)
        arguments.check_shape(call, "intervals", intervals.shape, (batch, steps), equal=True)
        intervals = intervals.to(real_type(A.dtype))
    sequences = batch
    if cu_seqlens is not None:
        sequences = _sequences(call, cu_seqlens, u, resets)
        if initial_state is not None or return_last_state or _is_known(cu_seqlens):
            bounds = _bounds(call, cu_seqlens, steps)
        if initial_state is None and not return_last_state:
            resets, cu_seqlens = _marks_at(cu_seqlens, steps), None
    edge = (sequences, channels, states)
    if initial_state is not None:
        checked.state_type("initial_state", initial_state)
        arguments.check_shape(call, "initial_state", initial_state.shape, edge)
        initial_state = initial_state.to(A.dtype).expand(edge)
    if isinstance(resets, Tensor) and resets.dim() == 2:
        resets = resets.unsqueeze(1)
    cuts = marks(call, resets, u.shape, 2, u.device)
    tensors = u, delta, A, b, c, skip, z, bias, intervals, initial_state, cuts
    if cu_seqlens is None:
        out, last = selective(*tensors, softplus, reverse)
    else:
        out, last = _each(bounds, tensors, softplus, reverse)
    return (out, last) if return_last_state else out


def _sequences(call, cu_seqlens, u, resets):
    """How many sequences lie one after the other."""
    _check_lengths(call, cu_seqlens)
    if cu_seqlens.shape[0] < 2:
        arguments.refuse(call, "cu_seqlens", "2 numbers or more", tuple(cu_seqlens.shape))
    if u.shape[0] != 1:
        expected = "a batch of 1, as there are 'cu_seqlens'"
        arguments.refuse(call, "u", expected, f"shape {tuple(u.shape)}")
    if resets is not None:
        arguments.refuse(call, "resets", "None, as there are 'cu_seqlens'", type(resets).__name__)
    return cu_seqlens.shape[0] - 1


def _each(bounds, tensors, softplus, reverse):
    """The outputs and last states of sequences between these steps, by one call for each."""
    u, delta, a, b, c, skip, z, bias, intervals, initial, _ = tensors
    lengths = [end - begin for begin, end in zip(bounds, bounds[1:])]

    def of_each(x):
        if x is None or x.dim() == 2 and x is not intervals:  # B or C of channels
            return [x] * len(lengths)
        numbers = x.shape[-1] // u.shape[-1] if u.shape[-1] else 1  # 2 for parts of complex ones
        return x.split([numbers * n for n in lengths], -1)

    firsts = [None] * len(lengths) if initial is None else initial.split(1)
    results = [
        selective(u, delta, a, b, c, skip, z, bias, times, first, None, softplus, reverse)
        for u, delta, b, c, z, times, first in zip(
            *(of_each(x) for x in (u, delta, b, c, z, intervals)), firsts
        )
    ]
    out, last = zip(*results)
    return torch.cat(out, -1), torch.cat(last)


class _Checked:
    """The first arguments of a call, and what follows from them for the others."""

    def __init__(self, call, name, first, a, rank):
        self.call, self.first, self.name = call, first, name
        self.tensor(name, first)
        if first.dim() != rank:
            axes = "(B, D, L)" if rank == 3 else "(B, D)"
            arguments.refuse(call, name, f"a tensor {axes}", f"shape {tuple(first.shape)}")
        if first.device.type not in ("cpu", "cuda", "meta"):
            expected = "a tensor on a CPU or a GPU"
            arguments.refuse(call, name, expected, first.device, NotImplementedError)
        self.tensor("A", a)
        if a.dtype not in (*_STORED, torch.complex64, torch.complex128):
            expected = "float32 or float64, or complex of them"
            arguments.refuse(call, "A", expected, a.dtype, TypeError)
        self.a, self.channels = a, first.shape[1]
        if a.dim() != 2 or a.shape[0] != self.channels or a.shape[1] < 1:
            arguments.refuse(
                call, "A", f"shape ({self.channels}, N), N of 1 or more", tuple(a.shape)
            )
        self.type(name, first)

    def tensor(self, name, x):
        """Refuses what is no tensor beside the first."""
        check_dense(self.call, name, x)
        if x.device != self.first.device:
            expected = f"a tensor on {self.first.device} as '{self.name}' is"
            arguments.refuse(self.call, name, expected, x.device)

    def type(self, name, x, also=()):
        """Refuses types that do not compute in the real one of A."""
        self.tensor(name, x)
        stored = (*_STORED[real_type(self.a.dtype)], *also)
        if x.dtype not in stored:
            names = " or ".join(str(of).removeprefix("torch.") for of in stored)
            own = str(self.a.dtype).removeprefix("torch.")
            arguments.refuse(self.call, name, f"{names}, as 'A' is {own}", x.dtype, TypeError)

    def state_type(self, name, x):
        """Refuses types that do not compute in that of A."""
        self.type(name, x, (self.a.dtype,) if self.a.is_complex() else ())

    def same(self, name, x):
        """Refuses another shape than the first has."""
        self.type(name, x)
        arguments.check_shape(self.call, name, x.shape, self.first.shape, equal=True)

    def weight(self, name, x):
        """One number per channel in the type of A, or None."""
        if x is None:
            return None
        self.type(name, x)
        arguments.check_shape(self.call, name, x.shape, (self.channels,), equal=True)
        return x.to(real_type(self.a.dtype))

    def mixing(self, name, x, shape, *, of_channels=True):
        """B or C with an axis of groups, given the shape without; or of every channel (D, N).
        Complex ones of every step by their parts, twice as many."""
        self.state_type(name, x)
        got, own = tuple(x.shape), tuple(self.a.shape)
        if of_channels and len(got) == 2 and got == own:
            return x.to(self.a.dtype)
        others = [own] if of_channels else []
        if x.is_complex():
            whole = (x if of_channels else x.unsqueeze(-1)).resolve_conj()
            parts = torch.view_as_real(whole).flatten(-2)
            steps = (*shape[:-1], 2 * shape[-1]) if of_channels else (*shape, 2)
            return self.grouped(name, parts, steps, got, shape, others)
        if self.a.is_complex():
            shape = (*shape[:-1], 2 * shape[-1]) if of_channels else (*shape, 2)
        return self.grouped(name, x, shape, got, shape, others)

    def grouped(self, name, x, shape, got, said, others):
        """A tensor of every step with an axis of groups; errors speak of its shape as the call has
        it."""
        if tuple(x.shape) == shape:
            return x.unsqueeze(1)
        if x.dim() == len(shape) + 1 and (x.shape[0], *x.shape[2:]) == shape:
            if x.shape[1] >= 1 and self.channels % x.shape[1] == 0:
                return x
        batch, *rest = said
        grouped = f"({batch}, G, {', '.join(map(str, rest))})"
        known = ", ".join(map(str, (*others, said)))
        expected = f"shape {known} or {grouped} of G groups of which "
        expected += f"{self.channels} channels are a multiple"
        arguments.refuse(self.call, name, expected, got)


def selective_state_update(
    state: Tensor,
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    dt_bias: Tensor | None = None,
    dt_softplus: bool = False,
    state_batch_indices: Tensor | None = None,
) -> Tensor:
    """One step of :func:`selective_scan`, with the arguments of mamba_ssm's: moves `state` on in
    place, and returns the outputs ``(B, D)`` in the type of ``x``. Without derivatives.

    Parameters
    ----------
    state:
        ``(B, D, N)``; in a type of 16 bits it is rounded at every step.
    x, dt, z:
        ``(B, D)``.
    A:
        ``(D, N)``, as in :func:`selective_scan`.
    B, C:
        ``(B, N)``, or ``(B, G, N)`` for G groups of channels; complex, where ``A`` is.
    D, dt_bias:
        ``(D,)``.
    state_batch_indices:
        Integers ``(B,)``, each another: the rows of `state`, which may have any number of them,
        that these are the steps of. The other rows do not change. Integers that are no rows of
        `state`, such as -1, mark padding: outputs are those of a state of 0, nothing is written.

    Raises
    ------
    ValueError, TypeError:
        Names the argument, what was expected and what came; nothing has been written then.
    NotImplementedError:
        For tensors that require gradients, where these are recorded, and as of
        :func:`selective_scan`.
    """
    call = "selective_state_update"
    softplus = arguments.flag(call, "dt_softplus", dt_softplus)
    checked = _Checked(call, "x", x, A, 2)
    batch, channels = x.shape
    checked.state_type("state", state)
    if state.is_complex() != A.is_complex():
        arguments.refuse(call, "state", f"{A.dtype}, as 'A' is", state.dtype, TypeError)
    rows = state_batch_indices
    held = batch if rows is None or state.dim() != 3 else state.shape[0]
    arguments.check_shape(call, "state", state.shape, (held, channels, A.shape[1]), equal=True)
    overlaps = any(n > 1 and step == 0 for n, step in zip(state.shape, state.stride()))
    if overlaps and state.numel() > 0:
        expected = "memory of its own for every element"
        arguments.refuse(call, "state", expected, f"strides {tuple(state.stride())}")
    checked.same("dt", dt)
    b = checked.mixing("B", B, (batch, A.shape[1]), of_channels=False)
    c = checked.mixing("C", C, (batch, A.shape[1]), of_channels=False)
    if b.shape[1] != c.shape[1]:
        arguments.refuse(call, "C", f"as many groups as 'B' has, {b.shape[1]}", c.shape[1])
    skip, bias = checked.weight("D", D), checked.weight("dt_bias", dt_bias)
    if z is not None:
        checked.same("z", z)
    tensors = state, x, dt, A, b, c, skip, z, bias
    options = _rows(call, rows, state, batch), softplus
    if torch.compiler.is_compiling() or is_recorded(*tensors):  # which the operator refuses
        return update_op(*tensors, *options)
    return run_below(update_op, *tensors, *options)


def _rows(call, rows, state, batch):
    """The rows of a state that is held for more sequences. The operator checks their values."""
    name = "state_batch_indices"
    if rows is None:
        return None
    if not isinstance(rows, Tensor) or rows.dtype not in (torch.int32, torch.int64):
        got = rows.dtype if isinstance(rows, Tensor) else type(rows).__name__
        arguments.refuse(call, name, "a tensor of int32 or int64", got, TypeError)
    if rows.device != state.device:
        arguments.refuse(call, name, f"a tensor on {state.device} as 'x' is", rows.device)
    arguments.check_shape(call, name, rows.shape, (batch,), equal=True)
    if state.shape[0] < 1:
        arguments.refuse(call, "state", "1 row or more", 0)
    return rows


def resets_from_cu_seqlens(cu_seqlens: Tensor, length: int) -> Tensor:
    """Marks ``(1, length)`` for :func:`selective_scan` of sequences that lie one behind the other
    in one of so many steps, from the numbers of steps before each: ``[0, n0, n0 + n1, ...]``, up to
    the number of all. What is left behind that is a sequence of its own.

    Raises
    ------
    ValueError, TypeError:
        Names the argument, what was expected and what came.
    """
    call = "resets_from_cu_seqlens"
    _check_lengths(call, cu_seqlens)
    length = _length(call, length)
    if _is_known(cu_seqlens):
        _bounds(call, cu_seqlens, length, whole=False)
    return _marks_at(cu_seqlens, length)


def _marks_at(cu_seqlens, length):
    marked = torch.zeros(length + 1, dtype=torch.bool, device=cu_seqlens.device)
    marked[cu_seqlens.long()] = True
    return marked[:length].unsqueeze(0)


def _check_lengths(call, cu_seqlens):
    """Refuses values that are no numbers of steps by their type or shape."""
    name = "cu_seqlens"
    if not isinstance(cu_seqlens, Tensor):
        arguments.refuse(call, name, "a tensor", type(cu_seqlens).__name__, TypeError)
    if cu_seqlens.dtype not in (torch.int32, torch.int64):
        arguments.refuse(call, name, "int32 or int64", cu_seqlens.dtype, TypeError)
    if cu_seqlens.dim() != 1 or cu_seqlens.shape[0] < 1:
        arguments.refuse(call, name, "one axis, of 1 number or more", tuple(cu_seqlens.shape))


def _is_known(cu_seqlens):
    """Whether values are there, not only when a program runs."""
    return not (torch.compiler.is_compiling() or cu_seqlens.is_meta)


def _bounds(call, cu_seqlens, length, whole=True):
    """The numbers of steps before sequences, and before the end of the last: of all steps if it is
    the whole that they divide."""
    found = cu_seqlens.tolist()
    rises = found[0] == 0 and found == sorted(found)
    if not rises or found[-1] > length or (whole and found[-1] < length):
        expected = f"numbers that rise from 0 to {length}{'' if whole else ' at most'}"
        arguments.refuse(call, "cu_seqlens", expected, found if len(found) < 10 else "others")
    return found


def _length(call, value):
    """A number of steps, as it is: of programs for any length it is not to be asked for."""
    expected, found = "an integer of 0 or more", value
    if not isinstance(value, (int, torch.SymInt)):
        try:
            found = operator.index(value)
        except TypeError:
            arguments.refuse(call, "length", expected, repr(value), TypeError)
    if isinstance(value, bool):
        arguments.refuse(call, "length", expected, value, TypeError)
    if found < 0:
        arguments.refuse(call, "length", expected, found)
    return found

# SPDX-License-Identifier: BSD-3-Clause
"""``selective_scan`` in PyTorch."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Literal, overload

import torch
from torch import Tensor

from ... import _arguments as arguments
from ..._torch.tensors import check_dense, reset_mask_of
from ..doc import documented
from ..spec import SEQUENCE_DOC
from .arguments import Checks, types_of
from .spec import SELECTIVE_SCAN_DOC, SelectiveProblem
from .torch_rules import selective

__all__ = ["Checked", "resets_from_cu_seqlens", "selective_scan"]


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
@documented(SEQUENCE_DOC, SELECTIVE_SCAN_DOC)
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
    """The positional arguments are those of ``selective_scan_fn`` of mamba_ssm. Tensors of any
    strides are read in place, with one exception: if ``A`` is complex, a ``B`` or ``C`` that varies
    over time is copied unless its last axis is contiguous. If ``u`` has no gaps, the outputs have
    its memory layout.

    Parameters
    ----------
    u:
        ``(B, D, L)``. In the shapes of other arguments, ``...`` stands for the batch axis.
    B, C:
        ``(B, N, L)``, ``(B, G, N, L)`` for G groups of channels, or ``(D, N)`` if constant over
        time. If ``A`` is complex, they may be complex too. A real tensor that varies over time then
        has ``2 * L`` numbers, in which real and imaginary parts alternate.
    resets:
        Booleans ``(B, L)``, or with three axes that broadcast to ``(B, D, L)``. The time axis is
        never broadcast; it has L or L + 1 steps. A sequence starts at each step that is True, as in
        :func:`linear_scan`. :func:`resets_from_cu_seqlens` computes them.
    cu_seqlens:
        int32 or int64, ``(S + 1,)``, for S concatenated sequences in a batch of 1: the number of
        steps before each sequence, then the total, ``[0, n0, n0 + n1, ..., L]``. The host reads it.
        ``initial_state`` and the final state are then ``(S, D, N)``, one per sequence. If either
        is used, each sequence is a separate native call. Otherwise there is one native call.
    intervals:
        ``(B, L)``: factors of the step sizes of all channels, for samples at irregular times.

    Raises
    ------
    NotImplementedError:
        A tensor is neither on a CPU nor on a GPU. The cases of :func:`linear_scan` also apply.

    Notes
    -----
    Under ``torch.func.vmap`` and in forward mode, elementwise operations and a :func:`linear_scan`
    replace the kernel of this call.
    """
    call = "selective_scan"
    softplus = arguments.flag(call, "delta_softplus", delta_softplus)
    return_last_state = arguments.flag(call, "return_last_state", return_last_state)
    reverse = arguments.flag(call, "reverse", reverse)
    checked = Checked(call, "u", u, A, "a tensor (B, D, L)")
    (batch, channels, steps), states = u.shape, checked.states
    operands = checked.operands(
        (batch, states, steps), (batch, states, 2 * steps), constant=True,
        delta=delta, B=B, C=C, D=D, z=z, delta_bias=delta_bias,
    )  # fmt: skip
    for name in ("b", "c"):
        x = operands[name]
        if x.is_complex() and x.dim() == 4:
            operands[name] = torch.view_as_real(x.resolve_conj()).flatten(-2)
    if intervals is not None:
        intervals = checked.equal("intervals", intervals, (batch, steps)).to(checked.real)
    sequences, bounds = batch, None
    if cu_seqlens is not None:
        sequences = _sequences(call, cu_seqlens, u, resets)
        if initial_state is not None or return_last_state:
            bounds = _bounds(call, cu_seqlens, steps)
        else:
            resets = _resets(call, cu_seqlens, steps)
    boundary = (sequences, channels, states)
    if initial_state is not None:
        checked.typed("initial_state", initial_state, may_be_complex=True)
        arguments.check_shape(call, "initial_state", initial_state.shape, boundary)
        initial_state = initial_state.to(A.dtype).expand(boundary)
    if isinstance(resets, Tensor) and resets.dim() == 2:
        resets = resets.unsqueeze(1)
    resets = reset_mask_of(call, resets, u.shape, 2, u.device)
    tensors = *operands.values(), intervals, initial_state, resets
    problem = SelectiveProblem(softplus, reverse)
    out, last = selective(problem, *tensors) if bounds is None else _each(bounds, tensors, problem)
    return (out, last) if return_last_state else out


class Checked(Checks):
    """Checks of tensors, which must all be on the device of the first argument."""

    types = types_of(lambda name: getattr(torch, name))
    converted = staticmethod(Tensor.to)
    expanded = staticmethod(Tensor.unsqueeze)

    def __init__(self, call: str, name: str, first: Any, a: object, axes: str) -> None:
        check_dense(call, name, first)
        if first.device.type not in ("cpu", "cuda", "meta"):
            expected = "a tensor on a CPU or a GPU"
            arguments.refuse(call, name, expected, first.device, NotImplementedError)
        self.device, self.name = first.device, name
        super().__init__(call, name, first, a, 1, axes)

    def array(self, name: str, x: Any, expected: str = "a tensor") -> Any:
        check_dense(self.call, name, x, expected)
        if x.device != self.device:
            expected = f"a tensor on {self.device}, like '{self.name}'"
            arguments.refuse(self.call, name, expected, x.device)
        return x


def _sequences(call: str, cu_seqlens: Tensor, u: Tensor, resets: Tensor | None) -> int:
    """Return the number of sequences, which are concatenated in a batch of 1."""
    _check_lengths(call, cu_seqlens)
    if cu_seqlens.shape[0] < 2:
        arguments.refuse(call, "cu_seqlens", "at least 2 numbers", tuple(cu_seqlens.shape))
    if u.shape[0] != 1:
        expected = "a batch of 1 with 'cu_seqlens'"
        arguments.refuse(call, "u", expected, f"shape {tuple(u.shape)}")
    if resets is not None:
        arguments.refuse(call, "resets", "None with 'cu_seqlens'", type(resets).__name__)
    return cu_seqlens.shape[0] - 1


def _each(
    bounds: list[int], tensors: Sequence[Any], problem: SelectiveProblem
) -> tuple[Tensor, Tensor]:
    """Return the outputs and the final states of the sequences between these bounds, which are
    scanned one by one."""
    u, delta, a, b, c, d, z, bias, intervals, initial, _ = tensors
    lengths = [end - begin for begin, end in zip(bounds, bounds[1:])]

    def of_each(x: Tensor | None) -> Sequence[Tensor | None]:
        if x is None or x.dim() == 2 and x is not intervals:  # absent, or constant over time
            return [x] * len(lengths)
        numbers = x.shape[-1] // u.shape[-1] if u.shape[-1] else 1  # 2 for real and imaginary parts
        return torch.split(x, [numbers * n for n in lengths], -1)

    firsts = [None] * len(lengths) if initial is None else initial.split(1)
    results = [
        selective(problem, u, delta, a, b, c, d, z, bias, times, first, None)
        for u, delta, b, c, z, times, first in zip(
            *(of_each(x) for x in (u, delta, b, c, z, intervals)), firsts
        )
    ]
    out, last = zip(*results)
    return torch.cat(out, -1), torch.cat(last)


@documented()
def resets_from_cu_seqlens(cu_seqlens: Tensor, length: int) -> Tensor:
    """Compute ``resets`` of :func:`selective_scan` for concatenated sequences.

    Parameters
    ----------
    cu_seqlens:
        int32 or int64: the number of steps before each sequence, then the total,
        ``[0, n0, n0 + n1, ...]``. If the total is below ``length``, the remaining steps form one
        more sequence.
    length:
        The number of steps.

    Returns
    -------
    Booleans ``(1, length)``.
    """
    call, expected = "resets_from_cu_seqlens", "an integer of 0 or more"
    _check_lengths(call, cu_seqlens)
    try:  # Converting a SymInt would restrict a program compiled for any length to this length.
        steps = length if isinstance(length, (int, torch.SymInt)) else operator.index(length)
    except TypeError:
        steps = None
    if steps is None or isinstance(length, bool):
        arguments.refuse(call, "length", expected, repr(length), TypeError)
    if steps < 0:
        arguments.refuse(call, "length", expected, steps)
    return _resets(call, cu_seqlens, steps, whole=False)


def _resets(call: str, cu_seqlens: Tensor, length: int, whole: bool = True) -> Tensor:
    """Return the reset mask of sequences. Checks their bounds, unless the call is compiled or
    ``cu_seqlens`` is a meta tensor, which has no values."""
    if not (torch.compiler.is_compiling() or cu_seqlens.is_meta):
        _bounds(call, cu_seqlens, length, whole)
    mask_steps = torch.zeros(length + 1, dtype=torch.bool, device=cu_seqlens.device)
    mask_steps[cu_seqlens.long()] = True
    return mask_steps[:length].unsqueeze(0)


def _check_lengths(call: str, cu_seqlens: Tensor) -> None:
    name = "cu_seqlens"
    if not isinstance(cu_seqlens, Tensor):
        arguments.refuse(call, name, "a tensor", type(cu_seqlens).__name__, TypeError)
    if cu_seqlens.dtype not in (torch.int32, torch.int64):
        arguments.refuse(call, name, "int32 or int64", cu_seqlens.dtype, TypeError)
    if cu_seqlens.dim() != 1 or cu_seqlens.shape[0] < 1:
        arguments.refuse(call, name, "a vector of at least 1 number", tuple(cu_seqlens.shape))


def _bounds(call: str, cu_seqlens: Tensor, length: int, whole: bool = True) -> list[int]:
    """Return the bounds of sequences. The last bound must be ``length`` if ``whole``, and at most
    ``length`` otherwise."""
    found: list[int] = cu_seqlens.tolist()
    rises = found[0] == 0 and found == sorted(found)
    if not rises or found[-1] > length or (whole and found[-1] < length):
        expected = f"numbers from 0 to {'' if whole else 'at most '}{length} that never decrease"
        got: object = found
        if len(found) >= 10:
            falls = [f", {x} before {y}" for x, y in zip(found, found[1:]) if x > y][:1]
            got = f"{len(found)} numbers from {found[0]} to {found[-1]}{''.join(falls)}"
        arguments.refuse(call, "cu_seqlens", expected, got)
    return found

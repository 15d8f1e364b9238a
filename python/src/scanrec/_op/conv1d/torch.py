# SPDX-License-Identifier: BSD-3-Clause
"""``causal_conv1d`` and ``causal_conv1d_update`` in PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, overload

import torch
from torch import Tensor

from ... import _arguments as arguments
from ..._torch.modes import is_recorded
from ..._torch.operators import (
    Plan,
    boundary_dtype,
    define_as,
    dtype_name,
    keep_lazy_views,
    plain_layouts,
    planned,
    refuse_derivatives,
    run_below,
    run_step,
)
from ..._torch.tensors import check_dense
from ..doc import documented
from ..plans import Plans
from .spec import (
    CAUSAL_CONV1D_DOC,
    CONV1D,
    Conv1dProblem,
    check_channels,
    check_types,
    is_silu,
)
from .torch_rules import convolve, describe, run_conv1d

__all__ = ["causal_conv1d", "causal_conv1d_update"]

_TYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


@overload
def causal_conv1d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, seq_idx: Tensor | None = None,
    initial_states: Tensor | None = None, return_final_states: Literal[False] = False,
    final_states_out: Tensor | None = None, activation: str | None = None,
) -> Tensor: ...  # fmt: skip
@overload
def causal_conv1d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, seq_idx: Tensor | None = None,
    initial_states: Tensor | None = None, *, return_final_states: Literal[True],
    final_states_out: Tensor | None = None, activation: str | None = None,
) -> tuple[Tensor, Tensor]: ...  # fmt: skip
@overload
def causal_conv1d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, seq_idx: Tensor | None = None,
    initial_states: Tensor | None = None, return_final_states: bool = False,
    final_states_out: Tensor | None = None, activation: str | None = None,
) -> Tensor | tuple[Tensor, Tensor]: ...  # fmt: skip
@documented(CAUSAL_CONV1D_DOC)
def causal_conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    seq_idx: Tensor | None = None,
    initial_states: Tensor | None = None,
    return_final_states: bool = False,
    final_states_out: Tensor | None = None,
    activation: str | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """The arguments are those of ``causal_conv1d_fn`` of the package causal_conv1d. On a CPU,
    tensors of any strides are read in place. The outputs then have the memory layout of ``x`` if
    its elements neither overlap nor leave gaps.

    Parameters
    ----------
    x:
        ``(B, D, L)``, float32, float64, bfloat16 or float16. ``weight`` and ``bias`` have its type.
        If that is a 16-bit type, they may also be float32.
    seq_idx:
        int32 or int64, ``(B, L)``: the index of the sequence to which each step belongs. A sequence
        starts wherever the index changes, and does not depend on earlier steps. Negative indices
        are sequences too, unlike in the package.
    initial_states:
        ``(B, D, W - 1)``, the inputs before the first step, 0 if absent.
    return_final_states:
        Whether to return a pair, the outputs and the final states. The final states have the last
        W - 1 inputs, ``(B, D, W - 1)``, with 0 for inputs of earlier sequences. They are the
        ``initial_states`` for the next steps.
    final_states_out:
        A tensor that receives the final states. If a pair is returned, it contains this tensor.

    Returns
    -------
    The outputs, in the shape and type of ``x``.
    """
    call = "causal_conv1d"
    silu = is_silu(call, activation)
    with_final = arguments.flag(call, "return_final_states", return_final_states)
    x, weight, bias = _checked(call, x, weight, bias, 3)
    (batch, channels, steps), before = x.shape, weight.shape[1] - 1
    past = (batch, channels, before)
    if initial_states is not None:
        _check_alike(call, "initial_states", initial_states, x, past)
    if final_states_out is not None:
        _check_alike(call, "final_states_out", final_states_out, x, past)
    resets = None
    if seq_idx is not None:
        check_dense(call, "seq_idx", seq_idx)
        _check_device(call, "seq_idx", seq_idx, x)
        _check_integers(call, "seq_idx", seq_idx, (batch, steps))
        # The first step belongs to the sequence of the initial states.
        resets = torch.zeros_like(seq_idx, dtype=torch.bool)
        resets[:, 1:] = seq_idx[:, 1:] != seq_idx[:, :-1]
    out, final = convolve(Conv1dProblem(silu), x, weight, bias, initial_states, resets)
    if final_states_out is not None:
        final = final_states_out.copy_(final)
    return (out, final) if with_final else out


def _checked(
    call: str, x: Any, weight: Any, bias: Any, *ranks: int
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the arguments, with weight and bias in the type of the kernel's sums."""
    check_dense(call, "x", x)
    if x.dtype not in _TYPES:
        expected = "a tensor of float32, float64, bfloat16 or float16"
        arguments.refuse(call, "x", expected, x.dtype, TypeError)
    if x.dim() not in ranks:
        axes = "a tensor (B, D, L)" if len(ranks) == 1 else "a tensor (B, D) or (B, D, L)"
        arguments.refuse(call, "x", axes, f"shape {tuple(x.shape)}")
    computed = boundary_dtype(x.dtype)
    for name, value in (("weight", weight), ("bias", bias)):
        if value is None and name == "bias":
            continue
        check_dense(call, name, value)
        own, of_x = (str(of.dtype).removeprefix("torch.") for of in (value, x))
        check_types(call, name, of_x, own, dtype_name(computed))
        _check_device(call, name, value, x)
    check_channels(call, x.shape[1], weight.shape, None if bias is None else bias.shape)
    return x, weight.to(computed), None if bias is None else bias.to(computed)


def _check_device(call: str, name: str, value: Tensor, x: Tensor) -> None:
    if value.device != x.device:
        arguments.refuse(call, name, f"a tensor on {x.device}, like 'x'", value.device)


def _check_alike(call: str, name: str, value: Any, x: Tensor, shape: Sequence[int]) -> None:
    """Raise an error unless the value is a tensor of this shape, with the type and device of x."""
    check_dense(call, name, value)
    if value.dtype != x.dtype:
        arguments.refuse(call, name, f"{x.dtype}, like 'x'", value.dtype, TypeError)
    _check_device(call, name, value, x)
    arguments.check_shape(call, name, value.shape, shape, equal=True)


def _check_integers(call: str, name: str, value: Tensor, shape: Sequence[int]) -> None:
    if value.dtype not in (torch.int32, torch.int64):
        arguments.refuse(call, name, "int32 or int64", value.dtype, TypeError)
    arguments.check_shape(call, name, value.shape, shape, equal=True)


# ---- streams -------------------------------------------------------------------------------------

_CALL = "causal_conv1d_update"
_NAMES = dict.fromkeys(("initial_state", "final_state"), "conv_state")


@documented()
def causal_conv1d_update(
    x: Tensor,
    conv_state: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
    cache_seqlens: Tensor | None = None,
    conv_state_indices: Tensor | None = None,
) -> Tensor:
    """Compute the next steps of a stream of :func:`causal_conv1d`, for decoding.

    The arguments are those of ``causal_conv1d_update`` of the package causal_conv1d. If one is
    invalid, nothing is written. The call has no derivatives.

    Parameters
    ----------
    x:
        ``(B, D)`` for one step, or ``(B, D, L)``, in the types of :func:`causal_conv1d`.
    conv_state:
        ``(B, D, S)`` with S of ``W - 1`` or more, in the type of ``x``: the last S inputs. It is
        updated in place.
    weight, bias, activation:
        As in :func:`causal_conv1d`.
    cache_seqlens:
        int32 or int64, ``(B,)``: the number of inputs so far. ``conv_state`` is then a circular
        buffer, in which input n has the position ``n % S``.
    conv_state_indices:
        int32 or int64, ``(B,)``: the rows of ``conv_state`` to update. ``conv_state`` then has any
        number of rows, and the others do not change. No row may occur twice, which is not checked
        on a GPU. An index that is out of range, such as -1, means padding: the output is that of a
        zero state, and no state is written.

    Returns
    -------
    The outputs, in the shape and type of ``x``.

    Raises
    ------
    NotImplementedError:
        A tensor requires gradients outside ``torch.no_grad()``, or forward mode or a transformation
        of ``torch.func`` is active.
    """
    given = x, conv_state, weight, bias
    is_plain = cache_seqlens is None and conv_state_indices is None
    is_plain = is_plain and (activation is None or isinstance(activation, str))
    layouts = plain_layouts(given) if is_plain else None
    key = (activation, layouts)
    if layouts is not None and (plan := _plans.get(key)) is not None:
        return _run(plan, given)
    silu = is_silu(_CALL, activation)
    x, weight, bias = _checked(_CALL, x, weight, bias, 2, 3)
    batch, channels = x.shape[:2]
    check_dense(_CALL, "conv_state", conv_state)
    rows = batch if conv_state_indices is None or conv_state.dim() != 3 else conv_state.shape[0]
    held = conv_state.shape[-1] if conv_state.dim() == 3 else -1
    if held < weight.shape[1] - 1:
        expected = f"shape ({rows}, {channels}, S), S of {weight.shape[1] - 1} or more"
        arguments.refuse(_CALL, "conv_state", expected, tuple(conv_state.shape))
    _check_alike(_CALL, "conv_state", conv_state, x, (rows, channels, held))
    overlaps = any(n > 1 and s == 0 for n, s in zip(conv_state.shape, conv_state.stride()))
    if overlaps and conv_state.numel() > 0:
        expected = "a tensor whose elements do not overlap"
        arguments.refuse(_CALL, "conv_state", expected, f"strides {tuple(conv_state.stride())}")
    for name, value in (
        ("cache_seqlens", cache_seqlens),
        ("conv_state_indices", conv_state_indices),
    ):
        if value is not None:
            check_dense(_CALL, name, value)
            _check_device(_CALL, name, value, x)
            _check_integers(_CALL, name, value, (batch,))
    if conv_state_indices is not None and rows < 1:
        arguments.refuse(_CALL, "conv_state", "at least 1 row", 0)
    tensors = x, conv_state, weight, bias
    if layouts is not None and weight.dtype == given[2].dtype:
        if bias is None or bias.dtype == given[3].dtype:  # type: ignore[union-attr]
            return _run(_plans.keep(key, _plan_of(tensors, silu)), given)
    # Under differentiation or vmap, the operator raises an error. run_below would not.
    is_seen = torch.compiler.is_compiling() or is_recorded(*tensors)
    run = _op if is_seen else partial(run_below, _op)
    out: Tensor = run(*tensors, cache_seqlens, conv_state_indices, silu)
    return out


_plans: Plans[Plan] = Plans()


def _arrays(x: Any, state: Any, weight: Any, bias: Any, out: Any) -> dict[str, Any]:
    """The arrays of the native call."""
    if x.dim() == 2:
        x, out = x.unsqueeze(-1), out.unsqueeze(-1)
    operands = x, weight, bias, state, None
    return dict(zip(CONV1D.value.arrays, (*operands, out, state)))


def _plan_of(tensors: Sequence[Any], silu: bool) -> Plan:
    x, state, weight, bias = tensors
    arrays = _arrays(x, state, weight, bias, torch.empty_like(x))
    described = describe(arrays, Conv1dProblem(silu))
    return planned(CONV1D.value, torch.get_num_threads(), described)


def _run(plan: Plan, given: Sequence[Any]) -> Tensor:
    """Return the outputs of an update whose arguments have the plan's layouts."""
    x, state, weight, bias = given
    out = torch.empty_like(x)
    run_step(plan, (x, weight, bias, state, None, out, state), state, (_CALL, _NAMES))
    return out


def _update(
    x: Tensor, state: Tensor, weight: Tensor, bias: Tensor | None, lengths: Tensor | None,
    rows: Tensor | None, silu: bool,
) -> Tensor:  # fmt: skip
    problem = Conv1dProblem(silu)
    if not (x.is_cuda or state.is_neg()) and lengths is None and rows is None:
        x, weight = x.resolve_neg(), weight.resolve_neg()
        bias = None if bias is None else bias.resolve_neg()
        out = torch.empty_like(x)
        arrays = _arrays(x, state, weight, bias, out)
        run_conv1d(CONV1D.value, arrays, problem, (_CALL, _NAMES))
        torch.autograd.graph.increment_version(state)
        return out
    steps = x if x.dim() == 3 else x.unsqueeze(-1)
    held, count, before = state.shape[-1], steps.shape[-1], weight.shape[1] - 1
    at = within = None
    now = state
    if rows is not None:
        at = rows.long()
        within = (at >= 0) & (at < len(state))
        if not x.is_cuda:  # do not wait for a GPU
            inside = at[within].tolist()
            arguments.check_distinct(_CALL, "conv_state_indices", inside, "conv_state")
        at = at.clamp(0, len(state) - 1)
        now = state.index_select(0, at)
    if lengths is None:
        past, after = now[..., held - before :], torch.cat([now, steps], -1)[..., count:]
    else:
        ages = torch.arange(-before, 0, device=x.device)
        past = now.gather(-1, _positions(lengths, ages, now))
        last = torch.arange(max(count - held, 0), count, device=x.device)
        after = now.scatter(-1, _positions(lengths, last, now), steps[..., max(count - held, 0) :])
    if at is None or within is None:
        out, _ = convolve(problem, steps, weight, bias, past, None)
        state.copy_(after)
    else:
        exists = within[:, None, None]
        out, _ = convolve(problem, steps, weight, bias, torch.where(exists, past, 0), None)
        if len(at) > 0:
            # An index that means padding repeats the write of the first valid index. If no index is
            # valid, all of them write one row back unchanged.
            each = torch.arange(len(at), device=at.device)
            source = torch.where(within, each, within.int().argmax())
            state.index_copy_(0, at[source], torch.where(exists, after, now)[source])
    torch.autograd.graph.increment_version(state)
    result: Tensor = out if x.dim() == 3 else out.squeeze(-1)
    return result


def _positions(lengths: Tensor, offsets: Tensor, like: Tensor) -> Tensor:
    """Return where in the circular buffers the inputs of numbers ``lengths + offsets`` are."""
    at = (lengths.long()[:, None] + offsets) % max(like.shape[-1], 1)
    return at[:, None].expand(-1, like.shape[1], -1)


_op = define_as(
    "_causal_conv1d_update",
    "Tensor x, Tensor(a!) state, Tensor weight, Tensor? bias, Tensor? lengths, Tensor? rows, "
    "bool silu",
    1,
    _update,
    lambda x, *_: torch.empty_like(x),
)
keep_lazy_views(_op)  # _update resolves them
refuse_derivatives(_op, _CALL, ("x", "conv_state", "weight", "bias"))

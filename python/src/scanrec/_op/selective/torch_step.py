# SPDX-License-Identifier: BSD-3-Clause
"""``selective_state_update`` in PyTorch: one step of a selective scan, in place.

With few sequences, checks and PyTorch's dispatcher take most of the time. On CPUs, later steps with
the same layouts skip both. Exceptions are calls that must pass through the dispatcher, calls with
``state_batch_indices``, and calls with complex or converted arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ... import _arguments as arguments
from ..._torch.modes import is_recorded
from ..._torch.operators import (
    Arrays,
    Plan,
    define_as,
    keep_lazy_views,
    plain_layouts,
    planned,
    refuse_derivatives,
    run_below,
    run_step,
)
from ..doc import documented
from ..plans import Plans
from .arguments import has_padding
from .spec import SELECTIVE, SELECTIVE_STATE_UPDATE_DOC, SelectiveProblem
from .torch import Checked
from .torch_rules import describe, run_selective

__all__ = ["selective_state_update"]

_CALL = "selective_state_update"
_NAMES = {**SELECTIVE.names, "u": "x", "delta": "dt", "delta_bias": "dt_bias"}
_NAMES |= dict.fromkeys(("initial_state", "final_state"), "state")


@documented(SELECTIVE_STATE_UPDATE_DOC)
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
    """The arguments are those of ``selective_state_update`` of mamba_ssm. ``state`` is updated in
    place. If an argument is invalid, nothing is written. In shapes, ``...`` stands for the batch
    axis. The call has no derivatives.

    Returns
    -------
    The outputs, ``(B, D)``, in the type of ``x``.

    Raises
    ------
    NotImplementedError:
        A tensor requires gradients, outside ``torch.no_grad()``, or the call is under forward mode
        or a transformation of ``torch.func``. Or a tensor is neither on a CPU nor on a GPU.
    """
    given = state, x, dt, A, B, C, D, z, dt_bias
    has_plan = state_batch_indices is None and type(dt_softplus) is bool
    layouts = plain_layouts(given) if has_plan else None
    if layouts is not None and (plan := _plans.get((dt_softplus, *layouts))) is not None:
        return _run(plan, given)
    softplus = arguments.flag(_CALL, "dt_softplus", dt_softplus)
    checked = Checked(_CALL, "x", x, A, "a tensor (B, D)")
    batch, states = x.shape[0], checked.states
    rows = state_batch_indices
    if rows is not None:
        checked.array("state_batch_indices", rows, "a tensor of int32 or int64")
    checked.state(state, (batch,), rows)
    overlaps = any(n > 1 and step == 0 for n, step in zip(state.shape, state.stride()))
    if overlaps and state.numel() > 0:
        expected = "a tensor whose elements do not overlap"
        arguments.refuse(_CALL, "state", expected, f"strides {tuple(state.stride())}")
    operands = checked.operands(
        (batch, states), (batch, states, 2), constant=False,
        dt=dt, B=B, C=C, D=D, z=z, dt_bias=dt_bias,
    )  # fmt: skip
    for name in ("b", "c"):
        if operands[name].is_complex():
            operands[name] = torch.view_as_real(operands[name].resolve_conj())
    tensors = state, *operands.values()
    if layouts is not None and (made := _plan_of(given, tensors, softplus)) is not None:
        return _run(_plans.keep((softplus, *layouts), made), given)
    # Under differentiation or vmap, the operator raises an error. run_below would not.
    is_seen = torch.compiler.is_compiling() or is_recorded(*tensors)
    run = _op if is_seen else partial(run_below, _op)
    out: Tensor = run(*tensors, rows, softplus)
    return out


# ---- steps that were checked before --------------------------------------------------------------


_plans: Plans[Plan] = Plans()


def _run(plan: Plan, given: Sequence[Any]) -> Tensor:
    """Return the outputs of a step whose arguments have the plan's layouts."""
    state, *operands = given
    out = torch.empty_like(operands[0])
    # The arrays in the order of the native call. Intervals and resets are absent.
    run_step(plan, (*operands, None, state, None, out, state), state, (_CALL, _NAMES))
    return out


def _plan_of(given: Sequence[Any], checked: Sequence[Any], softplus: bool) -> Plan | None:
    """Return the plan of a step on real tensors that the kernel reads in place, or None if an
    argument is complex or was converted. ``checked`` has the arguments after the checks."""
    state, a = checked[0], checked[3]
    if a.is_complex() or state.dtype != a.dtype:
        return None
    for x, y in zip(given, checked):
        if x is not None and (x.dtype != y.dtype or x.data_ptr() != y.data_ptr()):
            return None
    arrays = _native_arrays(*checked, out=torch.empty_like(given[1]))
    described = describe(arrays, SelectiveProblem(softplus, reverse=False))
    return planned(SELECTIVE.value, torch.get_num_threads(), described)


# ---- the operator --------------------------------------------------------------------------------

#: The operands of a step, without the state.
_OPERANDS = ("u", "delta", "a", "b", "c", "d", "z", "delta_bias")


def _native_arrays(
    state: Tensor, x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor | None,
    z: Tensor | None, dt_bias: Tensor | None, *, out: Tensor,
) -> Arrays:  # fmt: skip
    """The arrays of the native call, which is a scan of one step."""
    step: Callable[[Any], Any] = lambda x: None if x is None else x.unsqueeze(-1)
    if not a.is_complex():  # otherwise B and C have a last axis of real and imaginary parts
        b, c = step(b), step(c)
    operands = step(x), step(dt), a, b, c, d, step(z), dt_bias
    arrays = dict(zip(_OPERANDS, operands), out=step(out), initial_state=state, final_state=state)
    return {name: arrays.get(name) for name in SELECTIVE.value.arrays}


def _update(
    state: Tensor, x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor | None,
    z: Tensor | None, dt_bias: Tensor | None, rows: Tensor | None, softplus: bool,
) -> Tensor:  # fmt: skip
    now, within = state, None
    if rows is not None:
        at = rows.long()
        if len(at) > 0 and (at.is_cuda or has_padding(at, len(state))):  # do not wait for a GPU
            at = at.clamp(0, len(state) - 1)
            within = (at == rows)[:, None, None]
        now = taken = state.index_select(0, at)
    if within is not None:
        now = torch.where(within, now, 0)
    now = _resolved(now.to(a.dtype))
    out = torch.empty_like(x)
    read = (None if x is None else _resolved(x) for x in (x, dt, a, b, c, d, z, dt_bias))
    tensors = _native_arrays(now, *read, out=out)  # type: ignore[arg-type]
    problem = SelectiveProblem(softplus, reverse=False)
    run_selective(SELECTIVE.value, tensors, problem, (_CALL, _NAMES))
    if rows is not None:
        now = now.to(state.dtype)
        if within is not None:
            # An index that means padding repeats the write of the first valid index. If no index is
            # valid, all of them write the row of the first index, unchanged.
            each = torch.arange(len(at), device=at.device)
            source = torch.where(within.flatten(), each, within.int().argmax())
            at, now = at[source], torch.where(within, now, taken)[source]
        state.index_copy_(0, at, now)
    elif now is not state:
        state.copy_(now)
    torch.autograd.graph.increment_version(state)
    return out


def _resolved(x: Tensor) -> Tensor:
    """Return the tensor, or a copy if it is a lazily conjugated or negated view."""
    return x.resolve_conj().resolve_neg() if x.is_complex() else x.resolve_neg()


_op = define_as(
    "_selective_state_update",
    "Tensor(a!) state, Tensor x, Tensor dt, Tensor a, Tensor b, Tensor c, Tensor? d, Tensor? z, "
    "Tensor? dt_bias, Tensor? rows, bool softplus",
    1,
    _update,
    lambda state, x, *_: torch.empty_like(x),
)
keep_lazy_views(_op)  # _update resolves them
refuse_derivatives(_op, _CALL, ("state", "x", "dt", "A", "B", "C", "D", "z", "dt_bias"))

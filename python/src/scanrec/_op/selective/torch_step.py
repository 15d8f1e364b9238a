# SPDX-License-Identifier: BSD-3-Clause
"""``selective_state_update`` in PyTorch: one step of a selective scan, in place."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ... import _arguments as arguments
from ..._torch.modes import is_recorded
from ..._torch.operators import define_as, differentiate, keep_lazy_views, run_below
from ..doc import documented
from .arguments import has_padding
from .spec import SELECTIVE, SELECTIVE_STATE_UPDATE_DOC, SelectiveProblem
from .torch import Checked
from .torch_rules import run_selective

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
    """The arguments are those of ``selective_state_update`` of mamba_ssm. They are checked before
    anything is written. ``...`` is one batch axis. ``state`` is updated in place. The call has no
    derivatives.

    Returns
    -------
    The outputs, ``(B, D)``, in the type of ``x``.

    Raises
    ------
    NotImplementedError:
        A tensor requires gradients where these are recorded, or as in :func:`selective_scan`.
    """
    softplus = arguments.flag(_CALL, "dt_softplus", dt_softplus)
    checked = Checked(_CALL, "x", x, A, "a tensor (B, D)")
    batch, states = x.shape[0], checked.states
    rows = state_batch_indices
    if rows is not None:
        checked.array("state_batch_indices", rows, "a tensor of int32 or int64")
    checked.state(state, (batch,), rows)
    overlaps = any(n > 1 and step == 0 for n, step in zip(state.shape, state.stride()))
    if overlaps and state.numel() > 0:
        expected = "memory of its own for every element"
        arguments.refuse(_CALL, "state", expected, f"strides {tuple(state.stride())}")
    operands = checked.operands(
        (batch, states), (batch, states, 2), constant=False,
        dt=dt, B=B, C=C, D=D, z=z, dt_bias=dt_bias,
    )  # fmt: skip
    for name in ("b", "c"):
        if operands[name].is_complex():
            operands[name] = torch.view_as_real(operands[name].resolve_conj())
    tensors = state, *operands.values()
    # The operator refuses tensors that are recorded, so it has to see them.
    is_seen = torch.compiler.is_compiling() or is_recorded(*tensors)
    run = _op if is_seen else partial(run_below, _op)
    out: Tensor = run(*tensors, rows, softplus)
    return out


# ---- the operator --------------------------------------------------------------------------------


def _update(
    state: Tensor, x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, skip: Tensor | None,
    z: Tensor | None, dt_bias: Tensor | None, rows: Tensor | None, softplus: bool,
) -> Tensor:  # fmt: skip
    now, within = state, None
    if rows is not None:
        at = rows.long()
        if len(at) > 0 and (at.is_cuda or has_padding(at, len(state))):  # a GPU is not waited for
            at = at.clamp(0, len(state) - 1)
            within = (at == rows)[:, None, None]
        now = taken = state.index_select(0, at)
    if within is not None:
        now = torch.where(within, now, 0)
    now = _resolved(now.to(a.dtype))
    out = torch.empty_like(x)
    step: Callable[[Any], Any] = lambda x: None if x is None else x.unsqueeze(-1)
    if not a.is_complex():  # of which the parts are the last axis already
        b, c = step(b), step(c)
    read = step(x), step(dt), a, b, c, skip, step(z), dt_bias, None, now
    resolved = (None if x is None else _resolved(x) for x in read)
    tensors = dict(zip(SELECTIVE.operands, resolved), out=step(out), final_state=now)
    problem = SelectiveProblem(softplus, reverse=False)
    run_selective(SELECTIVE.value, tensors, problem, (_CALL, _NAMES))
    if rows is not None:
        now = now.to(state.dtype)
        if within is not None:
            # Padding writes another row once more. If all is padding, that is the first row, as it
            # was read.
            each = torch.arange(len(at), device=at.device)
            source = torch.where(within.flatten(), each, within.int().argmax())
            at, now = at[source], torch.where(within, now, taken)[source]
        state.index_copy_(0, at, now)
    elif now is not state:
        state.copy_(now)
    torch.autograd.graph.increment_version(state)
    return out


def _resolved(x: Tensor) -> Tensor:
    """The tensor, if it is no lazily conjugated or negated view, else a copy."""
    return x.resolve_conj().resolve_neg() if x.is_complex() else x.resolve_neg()


_op = define_as(
    "_selective_state_update",
    "Tensor(a!) state, Tensor x, Tensor dt, Tensor a, Tensor b, Tensor c, Tensor? skip, Tensor? z, "
    "Tensor? dt_bias, Tensor? rows, bool softplus",
    1,
    _update,
    lambda state, x, *_: torch.empty_like(x),
)
keep_lazy_views(_op)  # the kernel resolves them


def _refuse_derivatives(*tensors: Any) -> None:
    """Raises for the first argument whose derivative or batch axis would be lost."""
    names = ("state", "x", "dt", "A", "B", "C", "D", "z", "dt_bias")
    for name, value in zip(names, tensors):
        if value is not None and is_recorded(value):
            expected = "a tensor without gradients, batching and tangents"
            got = "one that has them"
            arguments.refuse(_CALL, name, expected, got, NotImplementedError)


differentiate(_op, _refuse_derivatives)

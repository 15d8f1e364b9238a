# SPDX-License-Identifier: BSD-3-Clause
"""``selective_state_update`` in PyTorch: one step of a selective scan, in place."""

from __future__ import annotations

import torch
from torch import Tensor

from ... import _arguments as arguments
from ..._torch.modes import is_recorded
from ..._torch.operators import define_as, differentiate, keep_lazy_views, run_below
from ..doc import documented
from .spec import SELECTIVE, SELECTIVE_STATE_UPDATE_DOC
from .torch_arguments import Checked
from .torch_rules import run_selective

__all__ = ["selective_state_update"]

_CALL = "selective_state_update"
_NAMES = SELECTIVE.names | {
    "u": "x", "delta": "dt", "delta_bias": "dt_bias", "initial_state": "state",
    "final_state": "state",
}  # fmt: skip


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
    call = "selective_state_update"
    softplus = arguments.flag(call, "dt_softplus", dt_softplus)
    checked = Checked(call, "x", x, A, 2)
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
        return _op(*tensors, *options)
    return run_below(_op, *tensors, *options)


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


# ---- the operator --------------------------------------------------------------------------------


def _update(state, x, dt, a, b, c, skip, z, dt_bias, rows, softplus):
    taken, there = state, None
    if rows is not None:
        rows, there = _rows_of(rows, state.shape[0])
        taken = state.index_select(0, rows)
    now = taken if there is None else torch.where(there, taken, 0)
    now = _resolved(now.to(a.dtype))
    out = torch.empty_like(x)
    step = lambda x: None if x is None else x.unsqueeze(-1)
    # Of complex numbers the parts are the last axis already.
    mixing = (lambda x: x) if a.is_complex() else step
    read = (step(x), step(dt), a, mixing(b), mixing(c), skip, step(z), dt_bias, None, now)
    read = (None if x is None else _resolved(x) for x in read)
    tensors = dict(zip(SELECTIVE.operands, read), out=step(out), final_state=now)
    run_selective("selective_scan", tensors, softplus, False, (_CALL, _NAMES))
    if rows is not None:
        now = now.to(state.dtype)
        if there is not None:
            rows, now = _instead_of_padding(rows, torch.where(there, now, taken), there)
        state.index_copy_(0, rows, now)
    elif now is not state:
        state.copy_(now)
    torch.autograd.graph.increment_version(state)
    return out


def _resolved(x):
    """The tensor, if it is no lazily conjugated or negated view, else a copy."""
    return x.resolve_conj().resolve_neg() if x.is_complex() else x.resolve_neg()


def _rows_of(rows, held):
    """Rows within the state, and which of them were given so: None where no row is padding."""
    at = rows.long()
    if rows.shape[0] == 0 or not (rows.is_cuda or _has_padding(rows.tolist(), held)):
        return at, None  # a GPU is not waited for
    within = at.clamp(0, held - 1)
    return within, (within == at)[:, None, None]


def _has_padding(rows, held):
    """Whether some are no rows of a state; refuses rows that occur twice."""
    inside = [row for row in rows if 0 <= row < held]
    if len(set(inside)) < len(inside):
        expected = "every row of 'state' once at most"
        arguments.refuse(_CALL, "state_batch_indices", expected, rows)
    return len(inside) < len(rows)


def _instead_of_padding(rows, states, there):
    """Replaces padding by a row that is written in any case, and its state. If all is padding, the
    first row is written as it was read."""
    there = there.flatten()
    each = torch.arange(len(rows), device=rows.device)
    source = torch.where(there, each, there.int().argmax())
    return rows[source], states[source]


_op = define_as(
    "_selective_state_update",
    "Tensor(a!) state, Tensor x, Tensor dt, Tensor a, Tensor b, Tensor c, Tensor? skip, Tensor? z, "
    "Tensor? dt_bias, Tensor? rows, bool softplus",
    1,
    _update,
    lambda state, x, *_: torch.empty_like(x),
)
keep_lazy_views(_op)  # the kernel resolves them


def _refuse_derivatives(*tensors):
    """Raises for the first argument of which a derivative, or a batch, would be lost."""
    names = ("state", "x", "dt", "A", "B", "C", "D", "z", "dt_bias")
    for name, value in zip(names, tensors):
        if value is not None and is_recorded(value):
            expected = "a tensor without gradients, batching and tangents"
            got = "one that has them"
            arguments.refuse(_CALL, name, expected, got, NotImplementedError)


differentiate(_op, _refuse_derivatives)

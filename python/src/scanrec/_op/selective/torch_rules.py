# SPDX-License-Identifier: BSD-3-Clause
"""Selective scans in PyTorch: their two operators, and what their derivatives are composed of.

Tensors have the axes of the calls: (B, D, L), b and c (D, N) or (B, G, N, L), intervals (B, L),
states (B, D, N), resets (1 or B, 1 or D, L or L + 1). The type of `a` is the one that is computed
in. If it is complex, b and c of every step are the parts of complex numbers, side by side:
(B, G, N, 2 L). Checkpoints are (B, K, N, D), in memory of one axis.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import silu, softplus

from ..._arguments import check_shape, contiguous
from ..._native import checkpoint_shape
from ..._torch.fused import Fused
from ..._torch.operators import (
    View,
    blank,
    checkpoint_memory,
    checkpoints_in,
    define,
    dtype_name,
    run_native,
    strides_of,
)
from ..linear.torch_rules import scan
from ..spec import gradient_of, primal_of
from .spec import LAYOUT, SELECTIVE, SelectiveProblem

__all__ = ["run_selective", "selective"]


# ---- operators -----------------------------------------------------------------------------------


def run_selective(
    call: str,
    tensors: Mapping[str, Tensor | None],
    softplus: bool,
    reverse: bool,
    user: tuple[str, Mapping[str, str]] = ("selective_scan", SELECTIVE.names),
) -> None:
    """Runs a native call on tensors by their names, which are no lazy views. ``user`` has the names
    for errors."""
    # Held until the call is over: there may be copies among them.
    held = {name: x for name, x in tensors.items() if x is not None}
    parts = 2 if held["a"].is_complex() else 1
    for name in ("b", "c") if parts == 2 else ():
        if held[name].dim() == 4 and held[name].stride(3) != 1:
            held[name] = held[name].contiguous()

    def describe() -> tuple[dict[str, View], dict[str, str], dict[str, Any]]:
        (batch, channels, steps), states = held["u"].shape, held["a"].shape[1]
        of_steps = [name for name in ("b", "c") if held[name].dim() == 4]
        groups = held[of_steps[0]].shape[1] if of_steps else 1
        more_resets = "resets" in held and held["resets"].shape[2] > steps
        extents = {"batch": batch, "time": steps, "channel": channels, "state": states}
        special = dict.fromkeys(of_steps, {"channel": groups, "time": parts * steps})
        if more_resets:
            special["resets"] = {"time": steps + 1}
        views = {}
        for i, (name, x) in enumerate(held.items()):
            of = primal_of(name)
            strides = strides_of(x) if x.numel() > 0 else contiguous(x.shape)
            if of == "checkpoints":
                views[name] = View(i, [strides[axis] for axis in (0, 1, 3, 2)])
                continue
            axes = LAYOUT[of].split("|")[0 if of in of_steps else -1].split()
            own = sorted(axes, key="time".__eq__)  # in which time is last
            wanted = {**extents, **special.get(of, {})}
            # Programs may be run on other shapes, and kernels would read memory after the end.
            shape = [wanted[axis] for axis in own]
            user_name = SELECTIVE.names.get(name, name)
            check_shape("selective_scan", user_name, x.shape, shape, equal=name != "resets")
            if of in of_steps:
                strides[-1] *= parts
            views[name] = View(i, [strides[own.index(axis)] for axis in axes])
        dtypes = {name: dtype_name(x.dtype) for name, x in held.items() if name != "resets"}
        problem = dict(
            dtype=dtype_name(held["a"].dtype),
            shape=(batch, steps, channels, states, groups),
            b_of_steps="b" in of_steps,
            c_of_steps="c" in of_steps,
            softplus=softplus,
            reverse=reverse,
            more_resets=more_resets,
        )
        return views, dtypes, problem

    run_native(call, (*held.values(),), (*held, softplus, reverse), describe, user)


def _checkpoint_shape(u: Tensor, a: Tensor) -> tuple[int, ...]:
    batch, channels, steps = u.shape
    return checkpoint_shape((batch, steps, a.shape[1], channels), 1)


def _add_checkpoints(tensors: dict[str, Any], memory: Tensor | None) -> None:
    shape = _checkpoint_shape(tensors["u"], tensors["a"])
    if memory is not None and 0 not in shape:
        tensors["checkpoints"] = checkpoints_in(memory, shape)


def _results(*arguments: Any) -> tuple[Tensor, ...]:
    """Returns uninitialised outputs, laid out as u, final states, and checkpoints, which have no
    elements unless they are kept."""
    u, a, keep = arguments[0], arguments[2], arguments[-1]
    batch, channels, _ = u.shape
    memory = checkpoint_memory(_checkpoint_shape(u, a)) if keep else (0,)
    return torch.empty_like(u), a.new_empty((batch, channels, a.shape[1])), a.new_empty(memory)


def _value(*arguments: Any) -> tuple[Tensor, ...]:
    out, final, checkpoints = results = _results(*arguments)
    softplus, reverse, keep = arguments[-3:]
    tensors = dict(zip(SELECTIVE.operands, arguments), out=out, final_state=final)
    if keep:
        blank(checkpoints, _checkpoint_shape(arguments[0], arguments[2]))
        _add_checkpoints(tensors, checkpoints)
    run_selective("selective_scan", tensors, softplus, reverse)
    return results


def _gradients(*arguments: Any) -> tuple[Tensor, ...]:
    """Returns uninitialised gradients, laid out as their operands; those that are not wanted have
    no elements."""
    a = arguments[2]

    def like(name: str, x: Tensor) -> Tensor:
        if a.is_complex() and name in ("b", "c") and x.dim() == 4:  # whose parts are side by side
            return torch.empty_like(x, memory_format=torch.contiguous_format)
        return torch.empty_like(x)

    return tuple(
        like(name, x) if w else arguments[0].new_empty((0,))
        for name, x, w in zip(SELECTIVE.differentiable, arguments, arguments[-1])
    )


def _adjoint(*arguments: Any) -> tuple[Tensor, ...]:
    results = _gradients(*arguments)
    *_, softplus, reverse, wanted = arguments
    tensors = dict(zip(SELECTIVE.vjp.reads, arguments))
    _add_checkpoints(tensors, tensors.pop("checkpoints"))
    for name, x, is_wanted in zip(SELECTIVE.differentiable, results, wanted):
        if is_wanted:
            tensors[gradient_of(name)] = x
    run_selective("selective_scan_vjp", tensors, softplus, reverse)
    return results


_REQUIRED = ("u", "delta", "a", "b", "c")
_OPTIONS = "bool softplus, bool reverse, "
_op = define(SELECTIVE.value, _REQUIRED, f"{_OPTIONS}bool keep", 3, _value, _results)
_vjp_op = define(SELECTIVE.vjp, _REQUIRED, f"{_OPTIONS}bool[] wanted", 10, _adjoint, _gradients)

# ---- derivatives ---------------------------------------------------------------------------------


def _of_all_channels(mixing: Tensor, channels: int, dtype: torch.dtype) -> Tensor:
    """Returns B or C as (B or 1, D or 1, N, L or 1)."""
    if mixing.dim() == 2:
        return mixing.to(dtype).unsqueeze(-1)
    if dtype.is_complex:
        mixing = torch.unflatten(mixing.to(dtype.to_real()), -1, (-1, 2))
        mixing = torch.complex(mixing[..., 0], mixing[..., 1])
    mixing, groups = mixing.to(dtype), mixing.shape[1]
    return mixing if groups == 1 else mixing.repeat_interleave(channels // groups, 1)


class _Selective(Fused):
    operation = SELECTIVE
    value, adjoint, problem = _op, _vjp_op, SelectiveProblem

    def composed(self, problem: Any, *tensors: Any) -> tuple[Tensor, ...]:
        """Elementwise operations and a scan, with an array of the states of all steps."""
        u, delta, a, b, c, skip, z, bias, intervals, initial, resets = tensors
        dtype, (batch, channels, steps) = a.dtype.to_real(), u.shape
        x, step = u.to(dtype), delta.to(dtype)
        if bias is not None:
            step = step + bias.unsqueeze(-1)
        if problem.softplus:
            step = softplus(step)  # its argument above 20, as in the kernels
        if intervals is not None:
            step = step * intervals.unsqueeze(1)
        gate = torch.exp(step.unsqueeze(2) * a.unsqueeze(-1))
        input = (step * x).unsqueeze(2) * _of_all_channels(b, channels, a.dtype)
        state, final = scan(
            gate,
            input.expand(batch, channels, a.shape[1], steps),
            None if initial is None else initial.unsqueeze(-1),
            None if resets is None else resets.unsqueeze(2),
            3,
            problem.reverse,
        )
        out = (state * _of_all_channels(c, channels, a.dtype)).sum(2)
        if a.is_complex():
            out = 2 * out.real
        if skip is not None:
            out = out + skip.unsqueeze(-1) * x
        if z is not None:
            out = out * silu(z.to(dtype))
        return out.to(u.dtype), final.squeeze(-1)

    def keeps(self, problem: Any, tensors: Any, needs: Any) -> bool:
        return True

    def residuals(self, problem: Any, out: Any, keep: bool, needs: Any) -> Any:
        return out[2:]


_FUSED = _Selective()
_FUSED.register(_results)


@torch.compiler.allow_in_graph  # type: ignore[untyped-decorator]
def selective(problem: SelectiveProblem, *tensors: Tensor | None) -> Any:
    """Returns outputs and final state under any transformation."""
    return _FUSED.run(problem, *tensors)

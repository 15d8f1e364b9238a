# SPDX-License-Identifier: BSD-3-Clause
"""Stands in for ``torchrl.objectives.value.functional``: advantages and returns of trajectories.

Values, rewards and masks have one shape, ``(..., T, F)`` unless ``time_dim`` gives another time
axis. ``log_pi`` and ``log_mu`` broadcast to this shape. Trajectories follow each other along time.

- ``done`` is True at the last step of a trajectory. Nothing after this step affects the results up
  to it, not even a NaN.
- ``terminated`` is True where the value after the step counts as 0. If absent, it is ``done``.
- ``gamma`` and ``lmbda`` are numbers, or tensors that broadcast to the shape of the values. The
  original rounds numbers to float32 even if values are float64. These functions do not.
- The ``vec_`` functions compute the same as the functions without ``vec_``, except for
  ``rolling_gamma``. As in the original, they ignore it if ``gamma`` and ``lmbda`` are numbers or
  tensors of one element. Unlike the original, they keep terms below 1e-7, and build a tensor of
  ``(B, T, T)`` only where ``rolling_gamma=False`` takes effect.
- Invalid arguments raise ``ValueError`` or ``TypeError``. The original raises ``RuntimeError``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from scanrec import _arguments as arguments
from scanrec.torch import linear_scan

from ._calls import ABSENT, named
from ._torch import tensor

__all__ = [
    "generalized_advantage_estimate",
    "reward2go",
    "td1_advantage_estimate",
    "td1_return_estimate",
    "td_lambda_advantage_estimate",
    "td_lambda_return_estimate",
    "vec_generalized_advantage_estimate",
    "vec_td1_advantage_estimate",
    "vec_td1_return_estimate",
    "vec_td_lambda_advantage_estimate",
    "vec_td_lambda_return_estimate",
    "vtrace_advantage_estimate",
]

_Pairs: TypeAlias = Callable[..., tuple[Tensor, Tensor]]
_Values: TypeAlias = Callable[..., Tensor]


def _gae(
    call: str,
    gamma: float | Tensor,
    lmbda: float | Tensor,
    state_value: Tensor,
    next_state_value: Tensor,
    reward: Tensor,
    done: Tensor,
    terminated: Tensor | None = None,
    *,
    time_dim: int = -2,
) -> tuple[Tensor, Tensor]:
    """Compute ``A[t] = delta[t] + gamma * lmbda * A[t+1]``.

    ``delta`` is ``reward + gamma * next_state_value - state_value``. Returns
    ``(A, A + state_value)``.
    """
    values = {"state_value": state_value, "reward": reward}
    axis, terminated = _checked(call, next_state_value, values, done, terminated, time_dim)
    gamma, lmbda = _factors(call, next_state_value, gamma=gamma, lmbda=lmbda)
    delta = reward + (gamma * next_state_value).masked_fill(terminated, 0) - state_value
    advantage = _backward(gamma * lmbda, delta, None, done, axis).to(next_state_value.dtype)
    return advantage, advantage + state_value


generalized_advantage_estimate: _Pairs = named("generalized_advantage_estimate", _gae)
vec_generalized_advantage_estimate: _Pairs = named("vec_generalized_advantage_estimate", _gae)


def _td(
    call: str,
    gamma: float | Tensor,
    lmbda: float | Tensor,
    state_value: Tensor,
    next_state_value: Tensor,
    reward: Tensor,
    done: Tensor,
    terminated: Tensor | None = None,
    rolling_gamma: bool | None = None,
    time_dim: int = -2,
) -> Tensor:
    """Compute returns ``G`` of TD(1) or TD(lambda), or advantages, which are ``G - state_value``.

    TD(1) is ``G[t] = reward[t] + gamma * G[t+1]``. At the last step of a trajectory,
    ``next_state_value[t]`` replaces ``G[t+1]``. Where ``terminated``, 0 replaces it.

    TD(lambda) is ``G[t] = reward[t] + gamma * ((1 - lmbda) * next_state_value[t] + lmbda *
    G[t+1])``. At the last step of a trajectory, ``next_state_value[t]`` replaces ``G[t+1]``.

    With ``rolling_gamma=False`` the return of step t uses the factors of step t at all later steps.
    This needs a ``gamma`` or ``lmbda`` of the shape of ``done``, and ``T`` times as much memory.
    If step T-1 is not ``done``, TD(1) then counts the value after it as 0, as in the original.
    """
    values = {"state_value": state_value, "reward": reward}
    axis, terminated = _checked(call, next_state_value, values, done, terminated, time_dim)
    factors = _factors(call, next_state_value, gamma=gamma, lmbda=lmbda)
    rolling = rolling_gamma is None or arguments.flag(call, "rolling_gamma", rolling_gamma)
    tensors = [x for x in factors if isinstance(x, Tensor)]
    if call.startswith("vec_") and all(x.numel() == 1 for x in tensors):
        rolling = True  # the original ignores the flag here
    if not rolling and all(x.shape != done.shape for x in tensors):
        expected = "True or None, unless 'gamma' or 'lmbda' has the shape of 'done'"
        arguments.refuse(call, "rolling_gamma", expected, rolling_gamma)
    value, time = next_state_value.masked_fill(terminated, 0), axis
    if not rolling:
        # One more axis, before time: its index is the step whose factors are used.
        time = axis + 1
        factors = [
            x.expand(done.shape).unsqueeze(time) if isinstance(x, Tensor) else x for x in factors
        ]
        done, terminated, value, reward = (
            x.unsqueeze(axis) for x in (done, terminated, value, reward)
        )
    gamma, *mixing = factors
    if mixing:
        gate, ends = gamma * mixing[0], done
        mixed = torch.where(done, value, (1 - mixing[0]) * value)
    else:
        gate, ends, mixed = gamma, done | terminated, value.masked_fill(~done, 0)
    last = _at_end(value, time) if mixing or rolling else None
    returns = _backward(gate, reward + gamma * mixed, last, ends, time)
    if not rolling:  # the return of step t with the factors of step t
        returns = returns.diagonal(dim1=axis, dim2=time).movedim(-1, axis)
    returns = returns.to(next_state_value.dtype)
    return returns if state_value is ABSENT else returns - state_value


td1_return_estimate: _Values = named(
    "td1_return_estimate", _td, keyword_only="time_dim", lmbda=ABSENT, state_value=ABSENT
)
vec_td1_return_estimate: _Values = named(
    "vec_td1_return_estimate", _td, lmbda=ABSENT, state_value=ABSENT
)
td1_advantage_estimate: _Values = named("td1_advantage_estimate", _td, lmbda=ABSENT)
vec_td1_advantage_estimate: _Values = named("vec_td1_advantage_estimate", _td, lmbda=ABSENT)
td_lambda_return_estimate: _Values = named(
    "td_lambda_return_estimate", _td, keyword_only="time_dim", state_value=ABSENT
)
vec_td_lambda_return_estimate: _Values = named(
    "vec_td_lambda_return_estimate", _td, keyword_only="time_dim", state_value=ABSENT
)
td_lambda_advantage_estimate: _Values = named("td_lambda_advantage_estimate", _td)
vec_td_lambda_advantage_estimate: _Values = named("vec_td_lambda_advantage_estimate", _td)


def vtrace_advantage_estimate(
    gamma: float | Tensor,
    log_pi: Tensor,
    log_mu: Tensor,
    state_value: Tensor,
    next_state_value: Tensor,
    reward: Tensor,
    done: Tensor,
    terminated: Tensor | None = None,
    rho_thresh: float | Tensor = 1.0,
    c_thresh: float | Tensor = 1.0,
    time_dim: int = -2,
) -> tuple[Tensor, Tensor]:
    """Compute V-trace with the weights ``exp(log_pi - log_mu)``.

    Weights are clipped at ``rho_thresh`` in the errors, and at ``c_thresh`` in the discounts of
    later errors. Returns ``(advantages, targets)``.
    """
    call = "vtrace_advantage_estimate"
    values = {"state_value": state_value, "reward": reward}
    axis, terminated = _checked(call, next_state_value, values, done, terminated, time_dim)
    tensor(call, "log_pi", log_pi, broadcast=done.shape, like=done)
    tensor(call, "log_mu", log_mu, broadcast=done.shape, like=done)
    thresholds = {"rho_thresh": rho_thresh, "c_thresh": c_thresh}
    factor, *most = _factors(call, next_state_value, gamma=gamma, **thresholds)
    weight = (log_pi - log_mu).exp()
    rho, c = (weight.clamp_max(x) for x in most)

    def error(ahead: Tensor) -> Tensor:
        return rho * (reward + (factor * ahead).masked_fill(terminated, 0) - state_value)

    target = _backward(factor * c, error(next_state_value), None, done, axis) + state_value
    last = _at_end(next_state_value, axis).unsqueeze(axis)
    ahead = torch.cat((target, last), axis).narrow(axis, 1, target.shape[axis])
    return error(torch.where(done, next_state_value, ahead)), target


def reward2go(reward: Tensor, done: Tensor, gamma: float | Tensor, *, time_dim: int = -2) -> Tensor:
    """Compute ``G[t] = reward[t] + gamma * G[t+1]`` within each trajectory."""
    axis, _ = _checked("reward2go", reward, {}, done, None, time_dim, "reward")
    (factor,) = _factors("reward2go", reward, gamma=gamma)
    return _backward(factor, reward, None, done, axis).to(reward.dtype)


def _checked(
    call: str,
    first: Tensor,
    values: dict[str, Tensor],
    done: Tensor,
    terminated: Tensor | None,
    time_dim: int,
    name: str = "next_state_value",
) -> tuple[int, Tensor]:
    """Return the axis of time, counted from the front, and ``terminated`` or its default."""
    tensor(call, name, first, real=True)
    axis = arguments.time_axis(call, time_dim, first.shape, "time_dim")
    for other, x in values.items():
        if x is not ABSENT:
            tensor(call, other, x, shape=first.shape, like=first, real=True)
    tensor(call, "done", done, shape=first.shape, like=first, boolean=True)
    if terminated is None:
        return axis, done
    return axis, tensor(call, "terminated", terminated, shape=done.shape, like=done, boolean=True)


def _factors(call: str, like: Tensor, **given: Any) -> list[float | Tensor]:
    """Return Python numbers, and tensors of real floating point types on the device of ``like``."""
    factors: list[float | Tensor] = []
    for name, given_factor in given.items():
        x = given_factor.item() if isinstance(given_factor, np.number) else given_factor
        if isinstance(x, Tensor) and not x.is_complex():
            x = x.to(like.device) if x.is_floating_point() else x.to(like)
        elif x is not ABSENT and not isinstance(x, (int, float)):
            got = x.dtype if isinstance(x, Tensor) else repr(x)
            arguments.refuse(call, name, "a number or a tensor of a real type", got, TypeError)
        if x is not ABSENT:
            factors.append(x)
    return factors


def _at_end(x: Tensor, axis: int) -> Tensor:
    """Return a copy of the last step, or zeros if T is 0. A view would keep x in memory."""
    if x.shape[axis]:
        return x.select(axis, -1).clone()
    return x.new_zeros(arguments.boundary_shape(x.shape, axis))


def _backward(
    gate: float | Tensor, input: Tensor, last: Tensor | None, done: Tensor, axis: int
) -> Tensor:
    """Scan ``x[t] = input[t] + gate[t] * x[t+1]`` within each trajectory, from ``x[T] = last``."""
    begins = done.new_zeros(arguments.boundary_shape(done.shape, axis)).unsqueeze(axis)
    ends = torch.cat((begins, done), axis)
    return linear_scan(gate, input, last, axis=axis, reverse=True, resets=ends)

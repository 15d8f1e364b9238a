# SPDX-License-Identifier: BSD-3-Clause
"""``torchrl.objectives.value.functional``: advantages and returns of trajectories that lie one
behind the other.

Tensors of one shape, ``(..., T, F)`` or with time at ``time_dim``. Where ``done`` is set a
trajectory ends, and nothing behind is looked at, not even a NaN; where ``terminated`` is, which is
``done`` unless given, the value after the step is not either. Discounts are numbers, or tensors of
any shape that broadcasts to theirs; numbers are not rounded to float32, as the original's are where
values are float64. The original's functions with ``vec_`` drop what is discounted
below 1e-7, and for discounts that are tensors build one of ``(B, T, T)``; here they are the others.
Wrong arguments raise ``ValueError`` and ``TypeError``, where the original raises ``RuntimeError``.
"""

from __future__ import annotations

from typing import Any

import torch

from scanrec import _arguments as arguments
from scanrec.compat._torch import tensor
from scanrec.torch import linear_scan

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


def generalized_advantage_estimate(
    gamma: Any,
    lmbda: Any,
    state_value: torch.Tensor,
    next_state_value: torch.Tensor,
    reward: torch.Tensor,
    done: torch.Tensor,
    terminated: torch.Tensor | None = None,
    *,
    time_dim: int = -2,
) -> tuple[torch.Tensor, torch.Tensor]:
    """``A[t] = delta[t] + gamma * lmbda * A[t+1]`` with
    ``delta = reward + gamma * next_state_value - state_value``; returns
    ``(A, A + state_value)``."""
    call = "generalized_advantage_estimate"
    values = {"state_value": state_value, "reward": reward}
    axis, terminated = _checked(call, next_state_value, values, done, terminated, time_dim)
    gamma, lmbda = _factors(next_state_value, gamma, lmbda)
    delta = reward + (gamma * next_state_value).masked_fill(terminated, 0) - state_value
    advantage = _backward(gamma * lmbda, delta, None, done, axis).to(next_state_value.dtype)
    return advantage, advantage + state_value


def td1_return_estimate(
    gamma: Any,
    next_state_value: torch.Tensor,
    reward: torch.Tensor,
    done: torch.Tensor,
    terminated: torch.Tensor | None = None,
    rolling_gamma: bool | None = None,
    time_dim: int = -2,
) -> torch.Tensor:
    """``G[t] = reward[t] + gamma * G[t+1]``, with the value after the step in place of ``G[t+1]``
    where a trajectory ends that is not ``terminated``.

    ``rolling_gamma=False``, for a ``gamma`` of every step: the return of a step is discounted by
    its own throughout, and takes no value from behind the last one, as in the original. That takes
    memory for ``T`` times as many numbers. ``time_dim`` may go by position, as in the original's
    ``vec_td1_return_estimate``.
    """
    call = "td1_return_estimate"
    axis, terminated = _checked(
        call, next_state_value, {"reward": reward}, done, terminated, time_dim
    )
    rolling = _is_rolling(call, rolling_gamma, done, gamma)
    (gamma,) = _factors(next_state_value, gamma)
    ended = done | terminated
    truncated = next_state_value.masked_fill(~(done & ~terminated), 0)
    if rolling:
        last = next_state_value.select(axis, -1)
        returns = _backward(gamma, reward + gamma * truncated, last, ended, axis)
    else:
        gamma = gamma.unsqueeze(axis + 1)
        input = reward.unsqueeze(axis) + gamma * truncated.unsqueeze(axis)
        returns = _of_own_step(gamma, input, None, ended, axis)
    return returns.to(next_state_value.dtype)


def td1_advantage_estimate(
    gamma: Any,
    state_value: torch.Tensor,
    next_state_value: torch.Tensor,
    reward: torch.Tensor,
    done: torch.Tensor,
    terminated: torch.Tensor | None = None,
    rolling_gamma: bool | None = None,
    time_dim: int = -2,
) -> torch.Tensor:
    """:func:`td1_return_estimate` less ``state_value``."""
    _same("td1_advantage_estimate", "state_value", state_value, next_state_value)
    returns = td1_return_estimate(
        gamma, next_state_value, reward, done, terminated, rolling_gamma, time_dim=time_dim
    )
    return returns - state_value


def td_lambda_return_estimate(
    gamma: Any,
    lmbda: Any,
    next_state_value: torch.Tensor,
    reward: torch.Tensor,
    done: torch.Tensor,
    terminated: torch.Tensor | None = None,
    rolling_gamma: bool | None = None,
    *,
    time_dim: int = -2,
) -> torch.Tensor:
    """``G[t] = reward[t] + gamma * ((1 - lmbda) * next_state_value[t] + lmbda * G[t+1])``, with the
    value in place of ``G[t+1]`` where a trajectory ends. ``rolling_gamma`` as of
    :func:`td1_return_estimate`."""
    call = "td_lambda_return_estimate"
    axis, terminated = _checked(
        call, next_state_value, {"reward": reward}, done, terminated, time_dim
    )
    rolling = _is_rolling(call, rolling_gamma, done, gamma, lmbda)
    gamma, lmbda = _factors(next_state_value, gamma, lmbda)
    value = next_state_value.masked_fill(terminated, 0)
    last = value.select(axis, -1)
    if rolling:
        mixed = torch.where(done, value, (1 - lmbda) * value)
        returns = _backward(gamma * lmbda, reward + gamma * mixed, last, done, axis)
    else:
        gamma, lmbda = (x.expand(done.shape).unsqueeze(axis + 1) for x in (gamma, lmbda))
        ends, value, reward = (x.unsqueeze(axis) for x in (done, value, reward))
        mixed = torch.where(ends, value, (1 - lmbda) * value)
        returns = _of_own_step(gamma * lmbda, reward + gamma * mixed, last, done, axis)
    return returns.to(next_state_value.dtype)


def td_lambda_advantage_estimate(
    gamma: Any,
    lmbda: Any,
    state_value: torch.Tensor,
    next_state_value: torch.Tensor,
    reward: torch.Tensor,
    done: torch.Tensor,
    terminated: torch.Tensor | None = None,
    rolling_gamma: bool | None = None,
    time_dim: int = -2,
) -> torch.Tensor:
    """:func:`td_lambda_return_estimate` less ``state_value``."""
    _same("td_lambda_advantage_estimate", "state_value", state_value, next_state_value)
    returns = td_lambda_return_estimate(
        gamma, lmbda, next_state_value, reward, done, terminated, rolling_gamma, time_dim=time_dim
    )
    return returns - state_value


def vtrace_advantage_estimate(
    gamma: Any,
    log_pi: torch.Tensor,
    log_mu: torch.Tensor,
    state_value: torch.Tensor,
    next_state_value: torch.Tensor,
    reward: torch.Tensor,
    done: torch.Tensor,
    terminated: torch.Tensor | None = None,
    rho_thresh: Any = 1.0,
    c_thresh: Any = 1.0,
    time_dim: int = -2,
) -> tuple[torch.Tensor, torch.Tensor]:
    """V-trace of weights ``exp(log_pi - log_mu)``, clipped at ``rho_thresh`` and, where errors are
    carried back, at ``c_thresh``; returns ``(advantages, targets)``."""
    call = "vtrace_advantage_estimate"
    values = {"state_value": state_value, "reward": reward}
    axis, terminated = _checked(call, next_state_value, values, done, terminated, time_dim)
    for name, x in (("log_pi", log_pi), ("log_mu", log_mu)):
        arguments.check_shape(call, name, tensor(call, name, x, like=done).shape, done.shape)
    gamma, rho_thresh, c_thresh = _factors(next_state_value, gamma, rho_thresh, c_thresh)
    weight = (log_pi - log_mu).exp()
    rho, c = weight.clamp_max(rho_thresh), weight.clamp_max(c_thresh)
    discounted = lambda x: (gamma * x).masked_fill(terminated, 0)
    delta = rho * (reward + discounted(next_state_value) - state_value)
    target = _backward(gamma * c, delta, None, done, axis) + state_value
    last = next_state_value.narrow(axis, -1, 1)
    ahead = torch.cat((target.narrow(axis, 1, target.shape[axis] - 1), last), axis)
    ahead = torch.where(done, next_state_value, ahead)
    return rho * (reward + discounted(ahead) - state_value), target


def reward2go(
    reward: torch.Tensor, done: torch.Tensor, gamma: Any, *, time_dim: int = -2
) -> torch.Tensor:
    """``G[t] = reward[t] + gamma * G[t+1]`` within each trajectory, of the shape of ``reward``."""
    axis, _ = _checked("reward2go", reward, {}, done, None, time_dim, "reward")
    (gamma,) = _factors(reward, gamma)
    return _backward(gamma, reward, None, done, axis).to(reward.dtype)


vec_generalized_advantage_estimate = generalized_advantage_estimate
vec_td1_return_estimate = td1_return_estimate
vec_td1_advantage_estimate = td1_advantage_estimate
vec_td_lambda_return_estimate = td_lambda_return_estimate
vec_td_lambda_advantage_estimate = td_lambda_advantage_estimate


def _checked(call, first, values, done, terminated, time_dim, name="next_state_value"):
    """The axis of time from the front, and where values after a step count for nothing."""
    tensor(call, name, first, real=True)
    axis = arguments.time_axis(call, time_dim, first.shape, "time_dim")
    for other, x in values.items():
        _same(call, other, x, first)
    marks = {"done": done, "terminated": done if terminated is None else terminated}
    for other, x in marks.items():
        if not isinstance(x, torch.Tensor) or x.dtype != torch.bool:
            got = x.dtype if isinstance(x, torch.Tensor) else type(x).__name__
            arguments.refuse(call, other, "a tensor of booleans", got, TypeError)
        arguments.check_shape(call, other, x.shape, first.shape, equal=True)
        if x.device != first.device:
            arguments.refuse(call, other, f"a tensor on {first.device}", x.device)
    return axis, marks["terminated"]


def _same(call, name, x, first):
    shape = first.shape if isinstance(first, torch.Tensor) else None
    return tensor(call, name, x, shape=shape, like=first if shape is not None else None, real=True)


def _factors(like, *given):
    """Numbers stay what they are, tensors come to where the others are."""
    return tuple(x.to(like.device) if isinstance(x, torch.Tensor) else x for x in given)


def _is_rolling(call, rolling_gamma, done, *factors):
    rolling = rolling_gamma is None or arguments.flag(call, "rolling_gamma", rolling_gamma)
    whole = [isinstance(x, torch.Tensor) and x.shape == done.shape for x in factors]
    if not rolling and not any(whole):
        expected = "True or None where discounts are not tensors of every step"
        arguments.refuse(call, "rolling_gamma", expected, rolling_gamma)
    return rolling


def _backward(gate, input, last, done, axis):
    """``x[t] = input[t] + gate[t] * x[t+1]`` within each trajectory, and ``last`` behind the last
    step."""
    ends = torch.cat((torch.zeros_like(done.narrow(axis, 0, 1)), done), axis)
    return linear_scan(gate, input, last, axis=axis, reverse=True, resets=ends)


def _of_own_step(gate, input, last, done, axis):
    """The same for every step with factors of its own, which lie along ``axis``, before time."""
    last = None if last is None else last.unsqueeze(axis)
    all_steps = _backward(gate, input, last, done.unsqueeze(axis), axis + 1)
    return all_steps.diagonal(dim1=axis, dim2=axis + 1).movedim(-1, axis)

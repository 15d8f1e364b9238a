# SPDX-License-Identifier: BSD-3-Clause
"""Stands in for ``torchrl.objectives.value.functional``: advantages and returns of trajectories.

Tensors have one shape, ``(..., T, F)``, or time at ``time_dim``. Trajectories follow each other
along time.

- ``done`` is True at the last step of a trajectory. Nothing after it has an effect, not even a NaN.
- ``terminated`` is True where the value after the step counts as 0; it is ``done`` if absent.
- ``gamma`` and ``lmbda`` are numbers, or tensors that broadcast to the shape of the others. Numbers
  are not rounded to float32, as the original rounds them where values are float64.
- The ``vec_`` functions are the functions without ``vec_`` under another name. They drop nothing
  below 1e-7 and build no tensor of ``(B, T, T)``. As in the original, they ignore ``rolling_gamma``
  if every discount is a number or a tensor of one element.
- Wrong arguments raise ``ValueError`` and ``TypeError``; the original raises ``RuntimeError``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

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


def _gae(
    call: str,
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


generalized_advantage_estimate: Callable[..., tuple[torch.Tensor, torch.Tensor]] = named(
    "generalized_advantage_estimate", _gae
)
vec_generalized_advantage_estimate: Callable[..., tuple[torch.Tensor, torch.Tensor]] = named(
    "vec_generalized_advantage_estimate", _gae
)


def _td(
    call: str,
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
    """Compute returns ``G`` of TD(1) or TD(lambda), or advantages, which are ``G - state_value``.

    TD(1) is ``G[t] = reward[t] + gamma * G[t+1]``. Where a trajectory ends but is not
    ``terminated``, the value after the step takes the place of ``G[t+1]``.

    TD(lambda) is ``G[t] = reward[t] + gamma * ((1 - lmbda) * next_state_value[t] + lmbda *
    G[t+1])``. Where a trajectory ends, the value takes the place of ``G[t+1]``.

    With ``rolling_gamma=False`` each return has the factors of its own step throughout. This needs
    a ``gamma`` or ``lmbda`` of the shape of ``done``, and memory for ``T`` times as many numbers.
    TD(1) then does not use the value after the last step, as in the original.
    """
    values = {"reward": reward}
    if state_value is not ABSENT:
        values = {"state_value": state_value, "reward": reward}
    axis, terminated = _checked(call, next_state_value, values, done, terminated, time_dim)
    factors = {"gamma": gamma} if lmbda is ABSENT else {"gamma": gamma, "lmbda": lmbda}
    rolling = _is_rolling(call, rolling_gamma, done, *factors.values())
    gamma, *mixing = _factors(call, next_state_value, **factors)
    value = next_state_value.masked_fill(terminated, 0)
    last = _at_end(value, axis)
    cuts, ends, scan = done, done, _backward
    if not mixing:
        cuts = done | terminated
        last = last if rolling else None
    if not rolling:
        scan = _with_own_factors
        gamma, *mixing = (
            x.expand(done.shape).unsqueeze(axis + 1) if isinstance(x, torch.Tensor) else x
            for x in (gamma, *mixing)
        )
        ends, value, reward = (x.unsqueeze(axis) for x in (done, value, reward))
    if mixing:
        (lmbda,) = mixing
        gate, mixed = gamma * lmbda, torch.where(ends, value, (1 - lmbda) * value)
    else:
        gate, mixed = gamma, value.masked_fill(~ends, 0)
    returns = scan(gate, reward + gamma * mixed, last, cuts, axis).to(next_state_value.dtype)
    return returns if state_value is ABSENT else returns - state_value


td1_return_estimate: Callable[..., torch.Tensor] = named(
    "td1_return_estimate", _td, keyword_only="time_dim", lmbda=ABSENT, state_value=ABSENT
)
vec_td1_return_estimate: Callable[..., torch.Tensor] = named(
    "vec_td1_return_estimate", _td, lmbda=ABSENT, state_value=ABSENT
)
td1_advantage_estimate: Callable[..., torch.Tensor] = named(
    "td1_advantage_estimate", _td, lmbda=ABSENT
)
vec_td1_advantage_estimate: Callable[..., torch.Tensor] = named(
    "vec_td1_advantage_estimate", _td, lmbda=ABSENT
)
td_lambda_return_estimate: Callable[..., torch.Tensor] = named(
    "td_lambda_return_estimate", _td, keyword_only="time_dim", state_value=ABSENT
)
vec_td_lambda_return_estimate: Callable[..., torch.Tensor] = named(
    "vec_td_lambda_return_estimate", _td, keyword_only="time_dim", state_value=ABSENT
)
td_lambda_advantage_estimate: Callable[..., torch.Tensor] = named(
    "td_lambda_advantage_estimate", _td
)
vec_td_lambda_advantage_estimate: Callable[..., torch.Tensor] = named(
    "vec_td_lambda_advantage_estimate", _td
)


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
    """Compute V-trace with the weights ``exp(log_pi - log_mu)``.

    Weights are clipped at ``rho_thresh`` in the errors, and at ``c_thresh`` in the discounts of
    later errors. Returns ``(advantages, targets)``.
    """
    call = "vtrace_advantage_estimate"
    values = {"state_value": state_value, "reward": reward}
    axis, terminated = _checked(call, next_state_value, values, done, terminated, time_dim)
    for name, x in (("log_pi", log_pi), ("log_mu", log_mu)):
        arguments.check_shape(call, name, tensor(call, name, x, like=done).shape, done.shape)
    gamma, rho_thresh, c_thresh = _factors(
        call, next_state_value, gamma=gamma, rho_thresh=rho_thresh, c_thresh=c_thresh
    )
    weight = (log_pi - log_mu).exp()
    rho, c = weight.clamp_max(rho_thresh), weight.clamp_max(c_thresh)
    discounted = lambda x: (gamma * x).masked_fill(terminated, 0)
    delta = rho * (reward + discounted(next_state_value) - state_value)
    target = _backward(gamma * c, delta, None, done, axis) + state_value
    last = _at_end(next_state_value, axis).unsqueeze(axis)
    ahead = torch.cat((target, last), axis).narrow(axis, 1, target.shape[axis])
    ahead = torch.where(done, next_state_value, ahead)
    return rho * (reward + discounted(ahead) - state_value), target


def reward2go(
    reward: torch.Tensor, done: torch.Tensor, gamma: Any, *, time_dim: int = -2
) -> torch.Tensor:
    """Compute ``G[t] = reward[t] + gamma * G[t+1]`` within each trajectory."""
    axis, _ = _checked("reward2go", reward, {}, done, None, time_dim, "reward")
    (gamma,) = _factors("reward2go", reward, gamma=gamma)
    return _backward(gamma, reward, None, done, axis).to(reward.dtype)


def _checked(call, first, values, done, terminated, time_dim, name="next_state_value"):
    """Return the axis of time, counted from the front, and ``terminated`` or its default."""
    tensor(call, name, first, real=True)
    axis = arguments.time_axis(call, time_dim, first.shape, "time_dim")
    for other, x in values.items():
        tensor(call, other, x, shape=first.shape, like=first, real=True)
    marks = {"done": done}
    if terminated is not None:
        marks["terminated"] = terminated
    for other, x in marks.items():
        if not isinstance(x, torch.Tensor) or x.dtype != torch.bool:
            got = x.dtype if isinstance(x, torch.Tensor) else type(x).__name__
            arguments.refuse(call, other, "a tensor of booleans", got, TypeError)
        arguments.check_shape(call, other, x.shape, first.shape, equal=True)
        if x.device != first.device:
            arguments.refuse(call, other, f"a tensor on {first.device}", x.device)
    return axis, done if terminated is None else terminated


def _factors(call, like, **given):
    """Return Python numbers, and tensors of real floating point types on the device of ``like``."""
    return tuple(_factor(call, name, x, like) for name, x in given.items())


def _factor(call, name, x, like):
    if isinstance(x, torch.Tensor) and not x.is_complex():
        return x.to(like.device) if x.is_floating_point() else x.to(like)
    if isinstance(x, np.number):
        x = x.item()
    if not isinstance(x, (int, float)):
        got = x.dtype if isinstance(x, torch.Tensor) else repr(x)
        arguments.refuse(call, name, "a number or a tensor of a real type", got, TypeError)
    return x


def _is_rolling(call, rolling_gamma, done, *factors):
    rolling = rolling_gamma is None or arguments.flag(call, "rolling_gamma", rolling_gamma)
    if call.startswith("vec_") and not any(
        isinstance(x, torch.Tensor) and x.numel() != 1 for x in factors
    ):
        return True  # The original ignores the flag here.
    whole = [isinstance(x, torch.Tensor) and x.shape == done.shape for x in factors]
    if not rolling and not any(whole):
        expected = "True or None where discounts are not tensors of every step"
        arguments.refuse(call, "rolling_gamma", expected, rolling_gamma)
    return rolling


def _at_end(x, axis):
    """Return a copy of the last step, or zeros if T is 0. The gradient of a view would keep x."""
    if x.shape[axis]:
        return x.select(axis, -1).clone()
    return x.new_zeros(arguments.edge_shape(x.shape, axis))


def _backward(gate, input, last, done, axis):
    """Scan ``x[t] = input[t] + gate[t] * x[t+1]`` within each trajectory, from ``x[T] = last``."""
    begins = done.new_zeros(arguments.edge_shape(done.shape, axis)).unsqueeze(axis)
    ends = torch.cat((begins, done), axis)
    return linear_scan(gate, input, last, axis=axis, reverse=True, resets=ends)


def _with_own_factors(gate, input, last, done, axis):
    """Scan once for the factors of each step, and return the result of the step they belong to.

    The steps that have the factors lie along ``axis``, before time.
    """
    last = None if last is None else last.unsqueeze(axis)
    all_steps = _backward(gate, input, last, done.unsqueeze(axis), axis + 1)
    return all_steps.diagonal(dim1=axis, dim2=axis + 1).movedim(-1, axis)

# SPDX-License-Identifier: BSD-3-Clause
"""``torchrl.objectives.value.functional``: advantages and returns of trajectories that lie one
behind the other.

Tensors of one shape, ``(..., T, F)`` or with time at ``time_dim``. Where ``done`` is set a
trajectory ends, and nothing behind is looked at, not even a NaN; where ``terminated`` is, which is
``done`` unless given, the value after the step is not either. Discounts are numbers, or tensors of
any shape that broadcasts to theirs, each in any form whatever the others have; numbers are not
rounded to float32, as the original's are where values are float64. The original's functions with
``vec_`` drop what is discounted below 1e-7, and for discounts that are tensors build one of
``(B, T, T)``; here they are the others. As there, they ignore ``rolling_gamma`` where every
discount is a number or a tensor of one.
Wrong arguments raise ``ValueError`` and ``TypeError``, where the original raises ``RuntimeError``.
"""

from __future__ import annotations

from typing import Any

import torch

from scanrec import _arguments as arguments
from scanrec.compat._torch import tensor

from . import _estimates as estimates

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
    return estimates.gae(
        call, gamma, lmbda, state_value, next_state_value, reward, done, terminated, time_dim
    )


def vec_generalized_advantage_estimate(
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
    """:func:`generalized_advantage_estimate`."""
    call = "vec_generalized_advantage_estimate"
    return estimates.gae(
        call, gamma, lmbda, state_value, next_state_value, reward, done, terminated, time_dim
    )


def td1_return_estimate(
    gamma: Any,
    next_state_value: torch.Tensor,
    reward: torch.Tensor,
    done: torch.Tensor,
    terminated: torch.Tensor | None = None,
    rolling_gamma: bool | None = None,
    *,
    time_dim: int = -2,
) -> torch.Tensor:
    """``G[t] = reward[t] + gamma * G[t+1]``, with the value after the step in place of ``G[t+1]``
    where a trajectory ends that is not ``terminated``.

    ``rolling_gamma=False``, for a ``gamma`` of the shape of ``done``: the return of a step is
    discounted by its own throughout, and takes no value from behind the last one, as in the
    original. That takes memory for ``T`` times as many numbers.
    """
    call = "td1_return_estimate"
    return estimates.td1(
        call, gamma, next_state_value, reward, done, terminated, rolling_gamma, time_dim
    )


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
    call = "td1_advantage_estimate"
    estimates.same(call, "state_value", state_value, next_state_value)
    given = gamma, next_state_value, reward, done, terminated, rolling_gamma, time_dim
    return estimates.td1(call, *given) - state_value


def vec_td1_return_estimate(
    gamma: Any,
    next_state_value: torch.Tensor,
    reward: torch.Tensor,
    done: torch.Tensor,
    terminated: torch.Tensor | None = None,
    rolling_gamma: bool | None = None,
    time_dim: int = -2,
) -> torch.Tensor:
    """:func:`td1_return_estimate`."""
    call = "vec_td1_return_estimate"
    return estimates.td1(
        call, gamma, next_state_value, reward, done, terminated, rolling_gamma, time_dim
    )


def vec_td1_advantage_estimate(
    gamma: Any,
    state_value: torch.Tensor,
    next_state_value: torch.Tensor,
    reward: torch.Tensor,
    done: torch.Tensor,
    terminated: torch.Tensor | None = None,
    rolling_gamma: bool | None = None,
    time_dim: int = -2,
) -> torch.Tensor:
    """:func:`vec_td1_return_estimate` less ``state_value``."""
    call = "vec_td1_advantage_estimate"
    estimates.same(call, "state_value", state_value, next_state_value)
    given = gamma, next_state_value, reward, done, terminated, rolling_gamma, time_dim
    return estimates.td1(call, *given) - state_value


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
    :func:`td1_return_estimate`, where ``gamma`` or ``lmbda`` has the shape of ``done``."""
    call = "td_lambda_return_estimate"
    return estimates.td_lambda(
        call, gamma, lmbda, next_state_value, reward, done, terminated, rolling_gamma, time_dim
    )


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
    call = "td_lambda_advantage_estimate"
    estimates.same(call, "state_value", state_value, next_state_value)
    given = gamma, lmbda, next_state_value, reward, done, terminated, rolling_gamma, time_dim
    return estimates.td_lambda(call, *given) - state_value


def vec_td_lambda_return_estimate(
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
    """:func:`td_lambda_return_estimate`."""
    call = "vec_td_lambda_return_estimate"
    return estimates.td_lambda(
        call, gamma, lmbda, next_state_value, reward, done, terminated, rolling_gamma, time_dim
    )


def vec_td_lambda_advantage_estimate(
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
    """:func:`vec_td_lambda_return_estimate` less ``state_value``."""
    call = "vec_td_lambda_advantage_estimate"
    estimates.same(call, "state_value", state_value, next_state_value)
    given = gamma, lmbda, next_state_value, reward, done, terminated, rolling_gamma, time_dim
    return estimates.td_lambda(call, *given) - state_value


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
    axis, terminated = estimates.checked(call, next_state_value, values, done, terminated, time_dim)
    for name, x in (("log_pi", log_pi), ("log_mu", log_mu)):
        arguments.check_shape(call, name, tensor(call, name, x, like=done).shape, done.shape)
    gamma, rho_thresh, c_thresh = estimates.factors(
        call, next_state_value, gamma=gamma, rho_thresh=rho_thresh, c_thresh=c_thresh
    )
    weight = (log_pi - log_mu).exp()
    rho, c = weight.clamp_max(rho_thresh), weight.clamp_max(c_thresh)
    discounted = lambda x: (gamma * x).masked_fill(terminated, 0)
    delta = rho * (reward + discounted(next_state_value) - state_value)
    target = estimates.backward(gamma * c, delta, None, done, axis) + state_value
    last = estimates.at_end(next_state_value, axis).unsqueeze(axis)
    ahead = torch.cat((target, last), axis).narrow(axis, 1, target.shape[axis])
    ahead = torch.where(done, next_state_value, ahead)
    return rho * (reward + discounted(ahead) - state_value), target


def reward2go(
    reward: torch.Tensor, done: torch.Tensor, gamma: Any, *, time_dim: int = -2
) -> torch.Tensor:
    """``G[t] = reward[t] + gamma * G[t+1]`` within each trajectory, of the shape of ``reward``."""
    axis, _ = estimates.checked("reward2go", reward, {}, done, None, time_dim, "reward")
    (gamma,) = estimates.factors("reward2go", reward, gamma=gamma)
    return estimates.backward(gamma, reward, None, done, axis).to(reward.dtype)

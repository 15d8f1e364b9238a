# SPDX-License-Identifier: BSD-3-Clause
"""What the functions that differ in name and signature alone compute; ``call`` is the name."""

from __future__ import annotations

import numpy as np
import torch

from scanrec import _arguments as arguments
from scanrec.compat._torch import tensor
from scanrec.torch import linear_scan

__all__ = ["at_end", "backward", "checked", "factors", "gae", "same", "td1", "td_lambda"]


def gae(call, gamma, lmbda, state_value, next_state_value, reward, done, terminated, time_dim):
    """Advantages, and returns."""
    values = {"state_value": state_value, "reward": reward}
    axis, terminated = checked(call, next_state_value, values, done, terminated, time_dim)
    gamma, lmbda = factors(call, next_state_value, gamma=gamma, lmbda=lmbda)
    delta = reward + (gamma * next_state_value).masked_fill(terminated, 0) - state_value
    advantage = backward(gamma * lmbda, delta, None, done, axis).to(next_state_value.dtype)
    return advantage, advantage + state_value


def td1(call, gamma, next_state_value, reward, done, terminated, rolling_gamma, time_dim):
    """Returns with nothing in place of what is to come but at the end."""
    axis, terminated = checked(
        call, next_state_value, {"reward": reward}, done, terminated, time_dim
    )
    rolling = _is_rolling(call, rolling_gamma, done, gamma)
    (gamma,) = factors(call, next_state_value, gamma=gamma)
    ended = done | terminated
    truncated = next_state_value.masked_fill(~(done & ~terminated), 0)
    if rolling:
        last = at_end(next_state_value, axis)
        returns = backward(gamma, reward + gamma * truncated, last, ended, axis)
    else:
        gamma = gamma.unsqueeze(axis + 1)
        input = reward.unsqueeze(axis) + gamma * truncated.unsqueeze(axis)
        returns = _of_own_step(gamma, input, None, ended, axis)
    return returns.to(next_state_value.dtype)


def td_lambda(
    call, gamma, lmbda, next_state_value, reward, done, terminated, rolling_gamma, time_dim
):
    """Returns that mix values with what is to come."""
    axis, terminated = checked(
        call, next_state_value, {"reward": reward}, done, terminated, time_dim
    )
    rolling = _is_rolling(call, rolling_gamma, done, gamma, lmbda)
    gamma, lmbda = factors(call, next_state_value, gamma=gamma, lmbda=lmbda)
    value = next_state_value.masked_fill(terminated, 0)
    last = at_end(value, axis)
    if rolling:
        mixed = torch.where(done, value, (1 - lmbda) * value)
        returns = backward(gamma * lmbda, reward + gamma * mixed, last, done, axis)
    else:
        gamma, lmbda = (
            x.expand(done.shape).unsqueeze(axis + 1) if isinstance(x, torch.Tensor) else x
            for x in (gamma, lmbda)
        )
        ends, value, reward = (x.unsqueeze(axis) for x in (done, value, reward))
        mixed = torch.where(ends, value, (1 - lmbda) * value)
        returns = _of_own_step(gamma * lmbda, reward + gamma * mixed, last, done, axis)
    return returns.to(next_state_value.dtype)


def checked(call, first, values, done, terminated, time_dim, name="next_state_value"):
    """The axis of time from the front, and where values after a step count for nothing."""
    tensor(call, name, first, real=True)
    axis = arguments.time_axis(call, time_dim, first.shape, "time_dim")
    for other, x in values.items():
        same(call, other, x, first)
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


def same(call, name, x, first):
    shape = first.shape if isinstance(first, torch.Tensor) else None
    return tensor(call, name, x, shape=shape, like=first if shape is not None else None, real=True)


def factors(call, like, **given):
    """Python numbers, and tensors of real floating point types on the device of ``like``."""
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
        return True  # As in the original, which looks at the flag for other discounts alone.
    whole = [isinstance(x, torch.Tensor) and x.shape == done.shape for x in factors]
    if not rolling and not any(whole):
        expected = "True or None where discounts are not tensors of every step"
        arguments.refuse(call, "rolling_gamma", expected, rolling_gamma)
    return rolling


def at_end(x, axis):
    """A copy of the numbers of the last step, 0 where there is no step. Gradients keep a view's
    whole array."""
    if x.shape[axis]:
        return x.select(axis, -1).clone()
    return x.new_zeros(arguments.edge_shape(x.shape, axis))


def backward(gate, input, last, done, axis):
    """``x[t] = input[t] + gate[t] * x[t+1]`` within each trajectory, and ``last`` behind the last
    step."""
    begins = done.new_zeros(arguments.edge_shape(done.shape, axis)).unsqueeze(axis)
    ends = torch.cat((begins, done), axis)
    return linear_scan(gate, input, last, axis=axis, reverse=True, resets=ends)


def _of_own_step(gate, input, last, done, axis):
    """The same for every step with factors of its own, which lie along ``axis``, before time."""
    last = None if last is None else last.unsqueeze(axis)
    all_steps = backward(gate, input, last, done.unsqueeze(axis), axis + 1)
    return all_steps.diagonal(dim1=axis, dim2=axis + 1).movedim(-1, axis)

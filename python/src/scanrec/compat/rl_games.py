# SPDX-License-Identifier: BSD-3-Clause
"""Stands in for the advantages of rl_games, as methods of its ``A2CBase``.

``A2CBase.discount_values = discount_values`` sets the method for all agents.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from scanrec import _arguments as arguments
from scanrec.torch import linear_scan

from ._calls import ABSENT, named
from ._torch import tensor

__all__ = ["discount_values", "discount_values_masks"]


def _discount_values(
    call: str,
    self: Any,
    fdones: Tensor,
    last_extrinsic_values: Tensor,
    mb_fdones: Tensor,
    mb_extrinsic_values: Tensor,
    mb_rewards: Tensor,
    mb_masks: Tensor,
) -> Tensor:
    """Compute ``A[t] = delta[t] + gamma * tau * (1 - mb_fdones[t+1]) * A[t+1]``.

    ``delta[t]`` is ``r[t] + gamma * (1 - mb_fdones[t+1]) * v[t+1] - v[t]``, with the rewards ``r``
    and the values ``v``. ``self`` has ``gamma``, ``tau``, and T as ``horizon_length``. Rewards and
    values are ``(T, N, V)``, and ``mb_fdones`` is ``(T, N)``. In ``discount_values_masks``, each
    ``A[t]`` is also multiplied by ``mb_masks[t]``, of shape ``(N,)``. ``mb_fdones[T]`` is
    ``fdones``, ``(N,)``, and ``v[T]`` is ``last_extrinsic_values``, ``(N, V)``.
    """
    steps, actors, _ = tensor(call, "mb_rewards", mb_rewards, axes="(T, N, V)").shape
    if steps != self.horizon_length:
        expected = f"the agent's horizon of {self.horizon_length} steps"
        arguments.refuse(call, "mb_rewards", expected, steps)
    r, last, values = mb_rewards, last_extrinsic_values, mb_extrinsic_values
    tensor(call, "fdones", fdones, shape=(actors,), like=r)
    tensor(call, "last_extrinsic_values", last, shape=r.shape[1:], like=r)
    tensor(call, "mb_fdones", mb_fdones, shape=(steps, actors), like=r)
    tensor(call, "mb_extrinsic_values", values, shape=r.shape, like=r)
    alive = 1 - torch.cat((mb_fdones[1:], fdones.unsqueeze(0))).unsqueeze(-1)
    ahead = torch.cat((values[1:], last.unsqueeze(0)))
    gate = self.gamma * self.tau * alive
    delta = r + self.gamma * ahead * alive - values
    if mb_masks is not ABSENT:
        mask = tensor(call, "mb_masks", mb_masks, shape=(steps, actors), like=r).unsqueeze(-1)
        gate, delta = gate * mask, delta * mask
    return linear_scan(gate, delta, axis=0, reverse=True).to(r.dtype)


discount_values: Callable[..., Tensor] = named("discount_values", _discount_values, mb_masks=ABSENT)
discount_values_masks: Callable[..., Tensor] = named("discount_values_masks", _discount_values)

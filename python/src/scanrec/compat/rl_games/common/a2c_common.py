# SPDX-License-Identifier: BSD-3-Clause
"""``rl_games.common.a2c_common``: advantages, as methods of its ``A2CBase``.

``A2CBase.discount_values = discount_values`` has all agents compute them so.
"""

from __future__ import annotations

from typing import Any

import torch

from scanrec import _arguments as arguments
from scanrec.compat._torch import tensor
from scanrec.torch import linear_scan

__all__ = ["discount_values", "discount_values_masks"]


def discount_values(
    self: Any,
    fdones: torch.Tensor,
    last_extrinsic_values: torch.Tensor,
    mb_fdones: torch.Tensor,
    mb_extrinsic_values: torch.Tensor,
    mb_rewards: torch.Tensor,
) -> torch.Tensor:
    """Advantages of ``mb_rewards`` ``(T, N, V)``, with ``self.gamma`` and ``self.tau``:
    ``A[t] = delta[t] + gamma * tau * (1 - mb_fdones[t+1]) * A[t+1]``.

    ``mb_fdones`` ``(T, N)`` says, as a number, whether an episode ended before the step, ``fdones``
    ``(N,)`` after the last; ``last_extrinsic_values`` ``(N, V)`` are the values there.
    """
    gate, delta = _terms(
        "discount_values", self, fdones, last_extrinsic_values, mb_fdones, mb_extrinsic_values,
        mb_rewards,
    )  # fmt: skip
    return linear_scan(gate, delta, axis=0, reverse=True).to(mb_rewards.dtype)


def discount_values_masks(
    self: Any,
    fdones: torch.Tensor,
    last_extrinsic_values: torch.Tensor,
    mb_fdones: torch.Tensor,
    mb_extrinsic_values: torch.Tensor,
    mb_rewards: torch.Tensor,
    mb_masks: torch.Tensor,
) -> torch.Tensor:
    """:func:`discount_values`, each advantage times its number in ``mb_masks``, ``(T, N)``."""
    call = "discount_values_masks"
    gate, delta = _terms(
        call, self, fdones, last_extrinsic_values, mb_fdones, mb_extrinsic_values, mb_rewards
    )
    mask = tensor(call, "mb_masks", mb_masks, shape=mb_rewards.shape[:2], like=mb_rewards)
    mask = mask.unsqueeze(-1)
    return linear_scan(gate * mask, delta * mask, axis=0, reverse=True).to(mb_rewards.dtype)


def _terms(call, agent, fdones, last, mb_fdones, values, rewards):
    steps, actors, _ = tensor(call, "mb_rewards", rewards, axes="(T, N, V)").shape
    if steps != agent.horizon_length:
        expected = f"the agent's horizon of {agent.horizon_length} steps"
        arguments.refuse(call, "mb_rewards", expected, steps)
    shapes = {
        "fdones": (fdones, (actors,)),
        "last_extrinsic_values": (last, rewards.shape[1:]),
        "mb_fdones": (mb_fdones, (steps, actors)),
        "mb_extrinsic_values": (values, rewards.shape),
    }
    for name, (value, shape) in shapes.items():
        tensor(call, name, value, shape=shape, like=rewards)
    alive = 1 - torch.cat((mb_fdones[1:], fdones.unsqueeze(0))).unsqueeze(-1)
    ahead = torch.cat((values[1:], last.unsqueeze(0)))
    return agent.gamma * agent.tau * alive, rewards + agent.gamma * ahead * alive - values

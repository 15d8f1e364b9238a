# SPDX-License-Identifier: BSD-3-Clause
"""Stands in for the advantages of rl_games, as methods of its ``A2CBase``.

``A2CBase.discount_values = discount_values`` sets the method for all agents.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from scanrec import _arguments as arguments
from scanrec.torch import linear_scan

from ._calls import ABSENT, named
from ._torch import check_tensors, tensor

__all__ = ["discount_values", "discount_values_masks"]


def _discount_values(
    call: str,
    self: Any,
    fdones: torch.Tensor,
    last_extrinsic_values: torch.Tensor,
    mb_fdones: torch.Tensor,
    mb_extrinsic_values: torch.Tensor,
    mb_rewards: torch.Tensor,
    mb_masks: torch.Tensor,
) -> torch.Tensor:
    """Compute ``A[t] = delta[t] + gamma * tau * (1 - mb_fdones[t+1]) * A[t+1]``.

    ``delta[t]`` is ``r[t] + gamma * (1 - mb_fdones[t+1]) * v[t+1] - v[t]``, with the rewards ``r``
    and the values ``v``. ``self`` has ``gamma`` and ``tau``.

    Parameters
    ----------
    fdones : (N,), 1 where an episode ended after the last step
    last_extrinsic_values : (N, V), values after the last step
    mb_fdones : (T, N), 1 where an episode ended before the step
    mb_extrinsic_values, mb_rewards : (T, N, V)
    mb_masks : (T, N), factors of ``A[t]``; ``discount_values`` has none
    """
    steps, actors, _ = tensor(call, "mb_rewards", mb_rewards, axes="(T, N, V)").shape
    if steps != self.horizon_length:
        expected = f"the agent's horizon of {self.horizon_length} steps"
        arguments.refuse(call, "mb_rewards", expected, steps)
    check_tensors(
        call,
        mb_rewards,
        fdones=(fdones, (actors,)),
        last_extrinsic_values=(last_extrinsic_values, mb_rewards.shape[1:]),
        mb_fdones=(mb_fdones, (steps, actors)),
        mb_extrinsic_values=(mb_extrinsic_values, mb_rewards.shape),
    )
    alive = 1 - torch.cat((mb_fdones[1:], fdones.unsqueeze(0))).unsqueeze(-1)
    ahead = torch.cat((mb_extrinsic_values[1:], last_extrinsic_values.unsqueeze(0)))
    gate = self.gamma * self.tau * alive
    delta = mb_rewards + self.gamma * ahead * alive - mb_extrinsic_values
    if mb_masks is not ABSENT:
        check_tensors(call, mb_rewards, mb_masks=(mb_masks, (steps, actors)))
        mask = mb_masks.unsqueeze(-1)
        gate, delta = gate * mask, delta * mask
    return linear_scan(gate, delta, axis=0, reverse=True).to(mb_rewards.dtype)


discount_values: Callable[..., torch.Tensor] = named(
    "discount_values", _discount_values, mb_masks=ABSENT
)
discount_values_masks: Callable[..., torch.Tensor] = named(
    "discount_values_masks", _discount_values
)

# SPDX-License-Identifier: BSD-3-Clause
"""Types of arguments in PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

if TYPE_CHECKING or torch.distributed.is_available():
    from torch.distributed import ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh
else:
    DeviceMesh = ProcessGroup = Any

__all__ = ["Group", "Maybe", "Ranges", "Tensors"]

#: A tensor, or None for an absent one.
Maybe: TypeAlias = torch.Tensor | None
#: Tensors, None for absent ones.
Tensors: TypeAlias = Sequence[Maybe]

#: Processes that time is split over.
Group: TypeAlias = ProcessGroup | DeviceMesh
#: For every process, a list of its time steps as pairs (begin, end).
Ranges: TypeAlias = Sequence[Sequence[Sequence[int]]]

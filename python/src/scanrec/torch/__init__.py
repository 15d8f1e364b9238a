# SPDX-License-Identifier: BSD-3-Clause
"""scanrec for PyTorch: functions that support autograd, torch.func and torch.compile."""

from typing import TYPE_CHECKING

_OLDEST = (2, 10)

try:
    import torch as _torch
except ImportError as _error:
    raise ImportError("scanrec.torch needs PyTorch: pip install 'scanrec[torch]'") from _error
if tuple(int(n) for n in _torch.__version__.split(".")[:2]) < _OLDEST:
    raise ImportError(
        f"scanrec.torch needs PyTorch {'.'.join(map(str, _OLDEST))} or newer, found "
        f"{_torch.__version__}: pip install --upgrade 'scanrec[torch]'"
    )

from .._op.conv1d.torch import causal_conv1d, causal_conv1d_update
from .._op.gated.torch import qrnn_pool
from .._op.linear.torch import linear_scan
from .._op.selective.torch import resets_from_cu_seqlens, selective_scan
from .._op.selective.torch_step import selective_state_update
from .._op.state_space.torch import lru, s5
from .._parts import importer
from . import integrations

__all__ = [
    "causal_conv1d",
    "causal_conv1d_update",
    "integrations",
    "linear_scan",
    "lru",
    "qrnn_pool",
    "resets_from_cu_seqlens",
    "s5",
    "selective_scan",
    "selective_state_update",
]

if TYPE_CHECKING:
    from . import nn as nn
else:
    __getattr__ = importer(__name__, {"nn"})


def __dir__() -> list[str]:
    return sorted({*__all__, "nn"})

# SPDX-License-Identifier: BSD-3-Clause
"""scanrec for JAX: functions that support JAX's transformations, such as grad, vmap and jit."""

from __future__ import annotations

from typing import TYPE_CHECKING

_OLDEST = (0, 5, 3)

try:
    import jax as _jax
except ImportError as _error:
    raise ImportError("scanrec.jax needs JAX: pip install 'scanrec[jax]'") from _error
if _jax.__version_info__ < _OLDEST:
    raise ImportError(
        f"scanrec.jax needs JAX {'.'.join(map(str, _OLDEST))} or newer, found {_jax.__version__}: "
        "pip install --upgrade 'scanrec[jax]'"
    )

from .._op.conv1d.jax import causal_conv1d, causal_conv1d_update
from .._op.gated.jax import qrnn_pool
from .._op.linear.jax import linear_scan
from .._op.selective.jax import selective_scan, selective_state_update
from .._op.state_space.jax import lru, s5
from .._parts import importer

__all__ = [
    "causal_conv1d",
    "causal_conv1d_update",
    "linear_scan",
    "lru",
    "qrnn_pool",
    "s5",
    "selective_scan",
    "selective_state_update",
]
_PARTS = {"nn", "nnx"}

if TYPE_CHECKING:
    from . import nn as nn
    from . import nnx as nnx
else:
    __getattr__ = importer(__name__, _PARTS)


def __dir__() -> list[str]:
    # Lists only parts that were imported, as in scanrec.__dir__.
    return sorted({*__all__, *(_PARTS & globals().keys())})

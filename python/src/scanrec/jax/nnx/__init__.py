# SPDX-License-Identifier: BSD-3-Clause
"""The layers of scanrec.jax.nn as modules of flax.nnx, and a wrapper like flax.nnx.RNN.

    layer = scanrec.jax.nnx.MinGRU(8, 16, num_layers=2, rngs=nnx.Rngs(0))
    output, state = layer(input)                   # (..., T, 8) to (..., T, 16)
    output, state = layer.step(next_input, state)

This subpackage needs Flax. The others do not.
"""

try:
    from flax import nnx as _nnx  # noqa: F401
except ImportError as _error:
    raise ImportError("scanrec.jax.nnx needs Flax: pip install 'scanrec[flax]'") from _error

from ..nn import MambaState, QRNNState
from ._modules import LRU, QRNN, RGLRU, S5, Mamba, MinGRU
from ._rnn import RNN

__all__ = ["LRU", "Mamba", "MambaState", "MinGRU", "QRNN", "QRNNState", "RGLRU", "RNN", "S5"]

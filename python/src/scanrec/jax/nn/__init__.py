# SPDX-License-Identifier: BSD-3-Clause
"""Recurrent layers for JAX: pure functions of parameters, inputs and states.

    layer = scanrec.jax.nn.MinGRU(8, 16, num_layers=2)
    params = layer.init(jax.random.key(0))
    output, state = layer.apply(params, input)             # (..., T, 8) to (..., T, 16)
    output, state = layer.step(params, next_input, state)  # (..., 8) to (..., 16)

A layer is a frozen dataclass that holds only its configuration. :class:`Layer` describes the
options that all layers share. Parameters are ``params["layer_k"]["forward"][name]``, or
``"reverse"`` in the reverse direction.
"""

from ._gated import QRNN, RGLRU, MinGRU, QRNNState
from ._layer import Layer
from ._mamba import Mamba, MambaState
from ._state_space import LRU, S5

__all__ = ["LRU", "Layer", "Mamba", "MambaState", "MinGRU", "QRNN", "QRNNState", "RGLRU", "S5"]

# SPDX-License-Identifier: BSD-3-Clause
"""Recurrent layers with the interface of torch.nn.LSTM, on the scans of scanrec.torch.

The arguments that all layers share are those of torch.nn.LSTM: ``input_size``, ``hidden_size``,
``num_layers``, ``bias``, ``batch_first``, ``dropout``, which acts on the outputs of all layers but
the last, ``bidirectional``, ``device`` and ``dtype``. The other options are keyword arguments.
Names of the parameters of layer k end with ``_lk``, in the reverse direction with ``_lk_reverse``.
"""

from ._gated import QRNN, RGLRU, MinGRU, QRNNState
from ._mamba import Mamba, MambaState
from ._state_space import LRU, S5

__all__ = ["LRU", "Mamba", "MambaState", "MinGRU", "QRNN", "QRNNState", "RGLRU", "S5"]

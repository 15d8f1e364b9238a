# SPDX-License-Identifier: BSD-3-Clause
"""Recurrent layers with the interface of torch.nn.LSTM, on the scans of scanrec.torch.

All classes take these arguments of torch.nn.LSTM: ``input_size``, ``hidden_size``, ``num_layers``,
``bias``, ``batch_first``, ``dropout``, ``bidirectional``, ``device`` and ``dtype``. Further options
of a class are keyword-only. Dropout acts on the outputs of all stacked layers except the last.
The names of the parameters of stacked layer k end with ``_lk``, or with ``_lk_reverse`` in the
reverse direction.
"""

from ._gated import QRNN, RGLRU, MinGRU, QRNNState
from ._mamba import Mamba, MambaState
from ._state_space import LRU, S5

__all__ = ["LRU", "Mamba", "MambaState", "MinGRU", "QRNN", "QRNNState", "RGLRU", "S5"]

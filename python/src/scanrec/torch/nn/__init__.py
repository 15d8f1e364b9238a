# SPDX-License-Identifier: BSD-3-Clause
"""Recurrent layers in the habits of torch.nn.LSTM, on the scans of scanrec.torch."""

from ._lru import LRU
from ._mamba import Mamba, MambaState
from ._min_gru import MinGRU
from ._qrnn import QRNN, QRNNState
from ._rg_lru import RGLRU
from ._s5 import S5

__all__ = ["LRU", "Mamba", "MambaState", "MinGRU", "QRNN", "QRNNState", "RGLRU", "S5"]

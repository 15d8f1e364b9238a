# SPDX-License-Identifier: BSD-3-Clause
"""Descriptions of the layers, without a framework: options, parameters, states, documentation.

The layers of scanrec.torch.nn and scanrec.jax.nn inherit from them.
"""

from ._gated import MinGRUSpec, QRNNSpec, RGLRUSpec
from ._spec import Spec
from ._state_space import LRUSpec, MambaSpec, S5Spec

__all__ = ["LRUSpec", "MambaSpec", "MinGRUSpec", "QRNNSpec", "RGLRUSpec", "S5Spec", "Spec"]

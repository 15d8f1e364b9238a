# SPDX-License-Identifier: BSD-3-Clause
"""The layers of scanrec.jax.nn as modules of flax.nnx.

    layer = scanrec.jax.nnx.MinGRU(8, 16, num_layers=2, rngs=nnx.Rngs(0))
    output, state = layer(input)                   # (..., T, 8) to (..., T, 16)
    output, state = layer.step(next_input, state)

Needs Flax, which nothing else here does.
"""

from __future__ import annotations

from typing import Any, ClassVar

try:
    from flax import nnx as _nnx
except ImportError as error:
    raise ImportError("scanrec.jax.nnx needs Flax: pip install 'scanrec[flax]'") from error

import jax
import jax.numpy as jnp

from .. import _arguments as arguments
from . import nn as _nn
from .nn import MambaState, QRNNState

__all__ = ["LRU", "Mamba", "MambaState", "MinGRU", "QRNN", "QRNNState", "RGLRU", "S5"]


class _Parameters(_nnx.Module):
    """Parameters, or more of these, by name."""

    def __init__(self, params: dict[str, Any]) -> None:
        for name, x in params.items():
            setattr(self, name, _Parameters(x) if isinstance(x, dict) else _nnx.Param(x))


class _Module(_nnx.Module):
    """A layer, and parameters in the places where ``layer.init`` has them: ``layer_0.forward.weight``.

    Parameters
    ----------
    sizes, options:
        Those of the layer of this name in :mod:`scanrec.jax.nn`, which is the attribute ``layer``.
    dtype:
        Of all parameters.
    rngs:
        Draws parameters from the stream ``params``, and, where ``dropout`` or ``zoneout`` is not 0,
        forks the stream ``dropout`` for calls that drop.

    ``deterministic``, set by ``eval()`` and ``train()``, says whether nothing is dropped.
    """

    _kind: ClassVar[type[_nn.Layer]]

    def __init__(self, *sizes: int, dtype: Any = jnp.float32, rngs: _nnx.Rngs, **options: Any):
        if not isinstance(rngs, _nnx.Rngs):
            call = type(self).__name__
            arguments.refuse(call, "rngs", "flax.nnx.Rngs", type(rngs).__name__, TypeError)
        self.layer = self._kind(*sizes, **options)
        for name, x in self.layer.init(rngs.params(), dtype).items():
            setattr(self, name, _Parameters(x))
        self.deterministic = False
        self._draws = self.layer.dropout > 0 or getattr(self.layer, "zoneout", 0) > 0
        if self._draws:
            self.rngs = rngs.dropout.fork()

    @property
    def params(self) -> dict[str, Any]:
        """The parameters as ``layer.apply`` takes them."""
        names = [f"layer_{i}" for i in range(self.layer.num_layers)]
        return {name: _arrays(getattr(self, name)) for name in names}

    def __call__(self, input: Any, state: Any = None, resets: Any = None) -> tuple[jax.Array, Any]:
        """``layer.apply`` with these parameters: outputs, and the state after them."""
        draws = self._draws and not self.deterministic
        key = self.rngs() if draws else None
        return self.layer.apply(self.params, input, state, resets=resets, key=key)

    def step(self, input: Any, state: Any = None) -> tuple[jax.Array, Any]:
        """``layer.step`` with these parameters, of which nothing is dropped."""
        return self.layer.step(self.params, input, state)


def _arrays(module):
    """Those of a module in dictionaries."""
    return {
        name: _arrays(x) if isinstance(x, _Parameters) else x[...]
        for name, x in vars(module).items()
        if isinstance(x, (_Parameters, _nnx.Param))
    }


class QRNN(_Module):
    """Layers of a quasi-recurrent network: :class:`scanrec.jax.nn.QRNN`, with ``dtype`` and ``rngs``."""

    _kind = _nn.QRNN


class MinGRU(_Module):
    """Layers of minimal gated recurrent units: :class:`scanrec.jax.nn.MinGRU`, with ``dtype`` and ``rngs``."""

    _kind = _nn.MinGRU


class LRU(_Module):
    """Layers of linear recurrent units: :class:`scanrec.jax.nn.LRU`, with ``dtype`` and ``rngs``."""

    _kind = _nn.LRU


class S5(_Module):
    """Layers of diagonal state spaces: :class:`scanrec.jax.nn.S5`, with ``dtype`` and ``rngs``."""

    _kind = _nn.S5


class RGLRU(_Module):
    """Layers of real-gated linear recurrent units: :class:`scanrec.jax.nn.RGLRU`, with ``dtype`` and ``rngs``."""

    _kind = _nn.RGLRU


class Mamba(_Module):
    """Layers of selective state spaces: :class:`scanrec.jax.nn.Mamba`, with ``dtype`` and ``rngs``."""

    _kind = _nn.Mamba

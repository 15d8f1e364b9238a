# SPDX-License-Identifier: BSD-3-Clause
"""A module for each kind of layer: its options, ``dtype`` and ``rngs``."""

from __future__ import annotations

import math
from typing import Literal, overload

import jax
import jax.numpy as jnp
from flax import nnx
from numpy.typing import DTypeLike

from ..._types import Candidate, Discretisation, Memory, Pool, State
from .. import nn
from ._module import Module

__all__ = ["LRU", "Mamba", "MinGRU", "QRNN", "RGLRU", "S5"]


class QRNN(Module[State]):
    """Layers of a quasi-recurrent network: :class:`scanrec.jax.nn.QRNN`, with ``dtype`` and
    ``rngs``."""

    layer: nn.QRNN[State]

    @overload
    def __init__(
        self: QRNN[jax.Array], input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, dropout: float = 0.0, bidirectional: bool = False,
        kernel_size: Literal[1] = 1, pool: Pool = "fo", zoneout: float = 0.0,
        memory: Memory = "store", *, dtype: DTypeLike = jnp.float32, rngs: nnx.Rngs,
    ) -> None: ...  # fmt: skip
    @overload
    def __init__(
        self: QRNN[nn.QRNNState], input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, dropout: float = 0.0, bidirectional: bool = False,
        *, kernel_size: Literal[2], pool: Pool = "fo", zoneout: float = 0.0,
        memory: Memory = "store", dtype: DTypeLike = jnp.float32, rngs: nnx.Rngs,
    ) -> None: ...  # fmt: skip
    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        dropout: float = 0.0,
        bidirectional: bool = False,
        kernel_size: Literal[1, 2] = 1,
        pool: Pool = "fo",
        zoneout: float = 0.0,
        memory: Memory = "store",
        *,
        dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
    ) -> None:
        shared = input_size, hidden_size, num_layers, bias, dropout, bidirectional
        layer = nn.QRNN(*shared, kernel_size=kernel_size, pool=pool, zoneout=zoneout, memory=memory)
        super().__init__(layer, dtype, rngs)


class MinGRU(Module[jax.Array]):
    """Layers of minimal gated recurrent units: :class:`scanrec.jax.nn.MinGRU`, with ``dtype`` and
    ``rngs``."""

    layer: nn.MinGRU

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        dropout: float = 0.0,
        bidirectional: bool = False,
        candidate: Candidate = "identity",
        *,
        dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
    ) -> None:
        shared = input_size, hidden_size, num_layers, bias, dropout, bidirectional
        super().__init__(nn.MinGRU(*shared, candidate), dtype, rngs)


class LRU(Module[jax.Array]):
    """Layers of linear recurrent units: :class:`scanrec.jax.nn.LRU`, with ``dtype`` and
    ``rngs``."""

    layer: nn.LRU

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        dropout: float = 0.0,
        bidirectional: bool = False,
        state_size: int = 64,
        r_min: float = 0.9,
        r_max: float = 0.999,
        max_phase: float = 2 * math.pi,
        *,
        dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
    ) -> None:
        shared = input_size, hidden_size, num_layers, bias, dropout, bidirectional
        super().__init__(nn.LRU(*shared, state_size, r_min, r_max, max_phase), dtype, rngs)


class S5(Module[jax.Array]):
    """Layers of diagonal state spaces: :class:`scanrec.jax.nn.S5`, with ``dtype`` and ``rngs``."""

    layer: nn.S5

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        dropout: float = 0.0,
        bidirectional: bool = False,
        state_size: int = 64,
        blocks: int = 1,
        discretisation: Discretisation = "zero_order_hold",
        dt_min: float = 1e-3,
        dt_max: float = 1e-1,
        *,
        dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
    ) -> None:
        shared = input_size, hidden_size, num_layers, bias, dropout, bidirectional
        super().__init__(
            nn.S5(*shared, state_size, blocks, discretisation, dt_min, dt_max), dtype, rngs
        )


class RGLRU(Module[jax.Array]):
    """Layers of real-gated linear recurrent units: :class:`scanrec.jax.nn.RGLRU`, with ``dtype``
    and ``rngs``."""

    layer: nn.RGLRU

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        dropout: float = 0.0,
        bidirectional: bool = False,
        heads: int = 1,
        c: float = 8.0,
        *,
        dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
    ) -> None:
        shared = input_size, hidden_size, num_layers, bias, dropout, bidirectional
        super().__init__(nn.RGLRU(*shared, heads, c), dtype, rngs)


class Mamba(Module[nn.MambaState]):
    """Layers of selective state spaces: :class:`scanrec.jax.nn.Mamba`, with ``dtype`` and
    ``rngs``."""

    layer: nn.Mamba

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        dropout: float = 0.0,
        bidirectional: bool = False,
        state_size: int = 16,
        conv: int = 4,
        expand: int = 2,
        dt_rank: int | Literal["auto"] = "auto",
        *,
        dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
    ) -> None:
        shared = input_size, hidden_size, num_layers, bias, dropout, bidirectional
        super().__init__(nn.Mamba(*shared, state_size, conv, expand, dt_rank), dtype, rngs)

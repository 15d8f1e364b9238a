# SPDX-License-Identifier: BSD-3-Clause
"""Stands in for mambapy: ``pscan``, and ``selective_scan`` of its ``MambaBlock``.

If mambapy is installed, this module also has subclasses of its ``Mamba`` and ``MambaBlock`` that
use this ``selective_scan``, with the same parameters and methods. It then also has mambapy's
``MambaConfig``, ``ResidualBlock`` and ``RMSNorm``. Blocks whose configuration has ``pscan=False``
or ``use_cuda=True`` compute as in mambapy.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from scanrec import torch as ops

from ._torch import common_dtype, tensor

__all__ = ["pscan", "selective_scan"]


def __getattr__(name: str) -> Any:
    if name not in ("Mamba", "MambaBlock", "MambaConfig", "RMSNorm", "ResidualBlock"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import mambapy.mamba as original

    if name not in ("Mamba", "MambaBlock"):
        return getattr(original, name)
    scan = {"__module__": __name__, "selective_scan": staticmethod(selective_scan)}
    block = type("MambaBlock", (original.MambaBlock,), scan)

    def initialise(self: Any, config: Any) -> None:
        original.Mamba.__init__(self, config)
        for layer in self.layers:  # the original's constructor makes blocks of its own class
            layer.mixer.__class__ = block

    members = {"__module__": __name__, "__init__": initialise}
    globals().update(MambaBlock=block, Mamba=type("Mamba", (original.Mamba,), members))
    return globals()[name]


def pscan(A: Tensor, X: Tensor) -> Tensor:
    """Compute ``H[t] = A[t] * H[t-1] + X[t]`` along the second axis of ``(B, L, D, N)``.

    ``A`` may have any shape that broadcasts to that of ``X``. Nothing is cloned or padded to a
    power of two. 16-bit types are computed in float32. Second derivatives are correct.
    """
    tensor("pscan", "X", X, axes="(B, L, D, N)")
    tensor("pscan", "A", A, broadcast=X.shape, like=X)
    return ops.linear_scan(A, X, axis=1)


def selective_scan(x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor) -> Tensor:
    """Compute the scan of ``MambaBlock.selective_scan``, as a function.

    ``MambaBlock.selective_scan = staticmethod(selective_scan)`` sets it for all blocks of mambapy.
    No tensor of shape ``(B, L, D, N)`` is made. 16-bit tensors are computed in float32.
    """
    call = "selective_scan"
    batch, steps, channels = tensor(call, "x", x, axes="(B, L, D)", real=True).shape
    states = tensor(call, "A", A, axes="(D, N)").shape[1]
    tensor(call, "delta", delta, shape=x.shape, like=x, real=True)
    tensor(call, "A", A, shape=(channels, states), like=x, real=True)
    tensor(call, "B", B, shape=(batch, steps, states), like=x, real=True)
    tensor(call, "C", C, shape=(batch, steps, states), like=x, real=True)
    tensor(call, "D", D, shape=(channels,), like=x, real=True)
    dtype = common_dtype(x, delta, A, B, C, D)
    computed = torch.float64 if dtype == torch.float64 else torch.float32
    x, delta, A, B, C, D = (t.to(computed) for t in (x, delta, A, B, C, D))
    x, delta, B, C = (t.transpose(1, 2) for t in (x, delta, B, C))
    return ops.selective_scan(x, delta, A, B, C, D).transpose(1, 2).to(dtype)

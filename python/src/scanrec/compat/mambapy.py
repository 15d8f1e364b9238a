# SPDX-License-Identifier: BSD-3-Clause
"""Stands in for mambapy: ``pscan``, and ``selective_scan`` of its ``MambaBlock``.

Where mambapy is installed, this module also has its ``Mamba`` and ``MambaBlock`` on this
``selective_scan``, as subclasses with the same parameters and methods, and its ``MambaConfig``,
``ResidualBlock`` and ``RMSNorm``. Blocks whose configuration has ``pscan=False`` or
``use_cuda=True`` compute as in mambapy.
"""

from __future__ import annotations

from typing import Any

import torch

from scanrec import _arguments as arguments
from scanrec import torch as ops

from ._torch import check_tensors, common_dtype, tensor

__all__ = ["pscan", "selective_scan"]


def __getattr__(name: str) -> Any:
    if name not in ("Mamba", "MambaBlock", "MambaConfig", "RMSNorm", "ResidualBlock"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import mambapy.mamba as original

    if name not in ("Mamba", "MambaBlock"):
        return getattr(original, name)

    class MambaBlock(original.MambaBlock):
        selective_scan = staticmethod(selective_scan)

    class Mamba(original.Mamba):
        def __init__(self, config: Any) -> None:
            super().__init__(config)
            for layer in self.layers:  # the original's constructor makes blocks of its own class
                layer.mixer.__class__ = MambaBlock

    for kind in (MambaBlock, Mamba):
        kind.__module__, kind.__qualname__ = __name__, kind.__name__
        globals()[kind.__name__] = kind
    return globals()[name]


def pscan(A: torch.Tensor, X: torch.Tensor) -> torch.Tensor:
    """Compute ``H[t] = A[t] * H[t-1] + X[t]`` along the second axis of ``(B, L, D, N)``.

    ``A`` may have any shape that broadcasts to that of ``X``. Nothing is cloned or padded to a
    power of two. 16-bit types are computed in float32. Second derivatives are right.
    """
    tensor("pscan", "X", X, axes="(B, L, D, N)")
    tensor("pscan", "A", A, like=X)
    arguments.check_shape("pscan", "A", A.shape, X.shape)
    return ops.linear_scan(A, X, axis=1)


def selective_scan(
    x: torch.Tensor,
    delta: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    C: torch.Tensor,
    D: torch.Tensor,
) -> torch.Tensor:
    """Compute ``MambaBlock.selective_scan``, as a function.

    ``MambaBlock.selective_scan = staticmethod(selective_scan)`` sets it for all blocks of mambapy.
    No tensor of shape ``(B, L, D, N)`` is made. 16-bit tensors are computed in float32.

    Parameters
    ----------
    x, delta : (B, L, D); ``delta`` is the result of softplus.
    A : (D, N)
    B, C : (B, L, N)
    D : (D,)
    """
    call = "selective_scan"
    batch, steps, channels = tensor(call, "x", x, axes="(B, L, D)", real=True).shape
    states = tensor(call, "A", A, axes="(D, N)", like=x).shape[1]
    check_tensors(
        call,
        x,
        real=True,
        delta=(delta, x.shape),
        A=(A, (channels, states)),
        B=(B, (batch, steps, states)),
        C=(C, (batch, steps, states)),
        D=(D, (channels,)),
    )
    dtype = common_dtype(x, delta, A, B, C, D)
    computed = torch.float64 if dtype == torch.float64 else torch.float32
    x, delta, A, B, C, D = (t.to(computed) for t in (x, delta, A, B, C, D))
    x, delta, B, C = (t.transpose(1, 2) for t in (x, delta, B, C))
    return ops.selective_scan(x, delta, A, B, C, D).transpose(1, 2).to(dtype)

# SPDX-License-Identifier: BSD-3-Clause
"""``mambapy.mamba``: the selective scan of ``MambaBlock``, and, where mambapy is installed, its
``Mamba`` and ``MambaBlock`` with it, and its ``MambaConfig``, ``ResidualBlock`` and ``RMSNorm``.

``Mamba`` and ``MambaBlock`` are subclasses of mambapy's, of the same parameters, names and steps.
Blocks whose configuration has ``pscan=False`` or ``use_cuda=True`` compute as there.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import torch

from scanrec import torch as ops

from .._torch import tensor

__all__ = ["selective_scan"]


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
            for layer in self.layers:  # whose blocks the original has made
                layer.mixer.__class__ = MambaBlock

    for kind in (MambaBlock, Mamba):
        kind.__module__, kind.__qualname__ = __name__, kind.__name__
        globals()[kind.__name__] = kind
    return globals()[name]


def selective_scan(
    x: torch.Tensor,
    delta: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    C: torch.Tensor,
    D: torch.Tensor,
) -> torch.Tensor:
    """``MambaBlock.selective_scan`` as a function. For all blocks of a model
    ``MambaBlock.selective_scan = staticmethod(selective_scan)``.

    ``x`` and ``delta``, after softplus, are ``(B, L, D)``, ``A`` is ``(D, N)``, ``B`` and ``C`` are
    ``(B, L, N)``, ``D`` is ``(D,)``; returns ``(B, L, D)``.

    No tensor of ``(B, L, D, N)`` is made. 16-bit tensors are computed in float32.
    """
    call = "selective_scan"
    batch, steps, channels = tensor(call, "x", x, axes="(B, L, D)", real=True).shape
    states = tensor(call, "A", A, axes="(D, N)", like=x).shape[1]
    shapes = {
        "delta": (delta, x.shape),
        "A": (A, (channels, states)),
        "B": (B, (batch, steps, states)),
        "C": (C, (batch, steps, states)),
        "D": (D, (channels,)),
    }
    for name, (value, shape) in shapes.items():
        tensor(call, name, value, shape=shape, like=x, real=True)
    dtype = reduce(torch.promote_types, (t.dtype for t in (x, delta, A, B, C, D)))
    kind = torch.float64 if dtype == torch.float64 else torch.float32
    u, delta, A, B, C, D = (t.to(kind) for t in (x, delta, A, B, C, D))
    turned = (t.transpose(1, 2) for t in (B, C))
    out = ops.selective_scan(u.transpose(1, 2), delta.transpose(1, 2), A, *turned, D)
    return out.transpose(1, 2).to(dtype)

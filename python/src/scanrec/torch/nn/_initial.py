# SPDX-License-Identifier: BSD-3-Clause
"""Initial values of parameters, drawn from the distributions of the descriptions."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from ..._layers import _spec as spec

__all__ = ["draw"]


def draw(weight: Tensor, initial: tuple) -> None:
    """Fill a parameter in place."""
    match initial:
        case spec.Constant(np.ndarray() as values):
            weight.copy_(torch.from_numpy(values))
        case spec.Constant(value):
            weight.fill_(value)
        case spec.Normal(inputs):
            weight.normal_(0, inputs**-0.5)
        case spec.Uniform(inputs):
            weight.uniform_(-(inputs**-0.5), inputs**-0.5)
        case spec.LogUniform(least, most):
            weight.uniform_(math.log(least), math.log(most))
        case spec.LogIntegers():
            weight.copy_(torch.arange(1, weight.shape[-1] + 1, device=weight.device).log())
        case spec.RingRadius(least, most):
            square = least**2 + (most**2 - least**2) * _between_0_and_1(weight)
            weight.copy_(torch.log(-0.5 * torch.log(square)))
        case spec.RingAngle(most):
            weight.copy_(torch.log(most * _between_0_and_1(weight)))
        case spec.GateDecay(least, most, c):
            gate = torch.empty_like(weight, dtype=torch.float64).uniform_(least, most)
            weight.copy_(torch.log(torch.expm1(-torch.log(gate) / c)))
        case spec.StepBias(least, most):
            steps = torch.empty_like(weight, dtype=torch.float64)
            steps = steps.uniform_(math.log(least), math.log(most)).exp()
            weight.copy_(steps + torch.log(-torch.expm1(-steps)))
        case spec.HippoInput(basis, blocks):
            of_block, inputs = basis.shape[0], weight.shape[1]
            vectors = torch.from_numpy(basis)
            b = vectors.mH @ _normal(vectors, blocks, of_block, inputs) * inputs**-0.5
            weight.copy_(torch.view_as_real(b.flatten(0, 1)))
        case spec.HippoOutput(basis, blocks):
            of_block, outputs = basis.shape[0], weight.shape[0]
            vectors = torch.from_numpy(basis)
            c = _normal(vectors, outputs, blocks, of_block) @ vectors * (blocks * of_block) ** -0.5
            weight.copy_(torch.view_as_real(c.flatten(1)))


def _between_0_and_1(weight):
    """Uniform numbers without 0 and 1, so that their logarithms are finite and not 0."""
    return torch.empty_like(weight, dtype=torch.float64).uniform_(1e-12, 1 - 1e-12)


def _normal(vectors, *shape):
    return torch.randn(shape, dtype=torch.float64, device="cpu").to(vectors)

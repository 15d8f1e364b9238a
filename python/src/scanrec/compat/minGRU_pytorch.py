# SPDX-License-Identifier: BSD-3-Clause
"""Stands in for the scan of minGRU-pytorch."""

from __future__ import annotations

from torch import Tensor

from scanrec import _arguments as arguments
from scanrec.torch import linear_scan

from ._torch import common_dtype, tensor

__all__ = ["heinsen_associative_scan_log"]


def heinsen_associative_scan_log(log_coeffs: Tensor, log_values: Tensor) -> Tensor:
    """Compute ``h[t] = exp(log_coeffs[t]) * h[t-1] + exp(log_values[t])`` along the second axis.

    Coefficients are multiplied. The original adds their logarithms, and its error grows with this
    sum. A state outside the range of the type is 0 or infinite, even if a later large coefficient
    would bring it back. 16-bit types are computed in float32.
    """
    call = "heinsen_associative_scan_log"
    if tensor(call, "log_values", log_values, real=True).dim() < 2:
        got = f"shape {tuple(log_values.shape)}"
        arguments.refuse(call, "log_values", "a batch axis and a time axis", got)
    tensor(call, "log_coeffs", log_coeffs, shape=log_values.shape, like=log_values, real=True)
    h = linear_scan(log_coeffs, log_values, axis=1, log_gate=True, log_input=True)
    return h.to(common_dtype(log_coeffs, log_values))

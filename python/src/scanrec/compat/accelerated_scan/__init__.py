# SPDX-License-Identifier: BSD-3-Clause
"""Stands in for accelerated-scan: ``scan`` of its modules ``warp``, ``scalar``, ``complex`` and
``ref``, on tensors of CPUs and GPUs alike."""

from .warp import scan

__all__ = ["scan"]

# SPDX-License-Identifier: BSD-3-Clause
"""Stands in for mambapy: ``pscan.pscan``, and ``mamba.selective_scan``, the function of its
blocks."""

# SPDX-License-Identifier: BSD-3-Clause
"""Stands in for mambapy: ``pscan.pscan``; ``mamba.selective_scan``, the function of its blocks, and
``mamba.Mamba`` and ``mamba.MambaBlock`` with it."""

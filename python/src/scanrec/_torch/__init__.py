# SPDX-License-Identifier: BSD-3-Clause
"""Machinery that operations and layers share in PyTorch: operators, derivatives, checks."""

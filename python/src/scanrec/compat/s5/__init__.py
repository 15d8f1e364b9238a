# SPDX-License-Identifier: BSD-3-Clause
"""Stands in for two packages that are both imported as ``s5``: ``s5_model`` for s5-pytorch, ``ssm``
for the S5 of its authors, in JAX."""

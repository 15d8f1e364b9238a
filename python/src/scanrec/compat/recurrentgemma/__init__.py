# SPDX-License-Identifier: BSD-3-Clause
"""Stands in for recurrentgemma: ``jax.scan.linear_scan``."""

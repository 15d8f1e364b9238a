# SPDX-License-Identifier: BSD-3-Clause
"""Stands in for memax: ``semigroup_scan`` of ``equinox.scans`` and ``linen.scans``."""

# SPDX-License-Identifier: BSD-3-Clause
"""Stands in for memax: ``equinox.scans.semigroup_scan``."""

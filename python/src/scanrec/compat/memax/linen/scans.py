# SPDX-License-Identifier: BSD-3-Clause
"""``memax.linen.scans``: the same function as in ``memax.equinox.scans``, for its modules of
Flax."""

from ..equinox.scans import semigroup_scan

__all__ = ["semigroup_scan"]

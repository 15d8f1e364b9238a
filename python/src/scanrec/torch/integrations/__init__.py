# SPDX-License-Identifier: BSD-3-Clause
"""scanrec in the models of other packages: scans replaced in place, and put back."""

from ._transformers import apply_to, restore

__all__ = ["apply_to", "restore"]

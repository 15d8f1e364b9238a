# SPDX-License-Identifier: BSD-3-Clause
"""Functions that replace the scans of other packages' models by those of scanrec, and undo this."""

from ._transformers import apply_to, restore

__all__ = ["apply_to", "restore"]

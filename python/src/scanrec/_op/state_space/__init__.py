# SPDX-License-Identifier: BSD-3-Clause
"""``s5`` and ``lru``: diagonal state spaces, matrix products around a linear scan."""

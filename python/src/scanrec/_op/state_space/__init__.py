# SPDX-License-Identifier: BSD-3-Clause
"""``s5`` and ``lru``: diagonal state spaces, computed by matrix products around a linear scan."""

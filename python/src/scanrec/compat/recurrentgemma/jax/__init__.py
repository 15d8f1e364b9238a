# SPDX-License-Identifier: BSD-3-Clause
"""``recurrentgemma.jax``."""

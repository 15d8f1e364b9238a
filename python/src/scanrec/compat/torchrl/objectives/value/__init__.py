# SPDX-License-Identifier: BSD-3-Clause
"""``torchrl.objectives.value``."""

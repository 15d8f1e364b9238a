# SPDX-License-Identifier: BSD-3-Clause
"""``rl_games.common``."""

# SPDX-License-Identifier: BSD-3-Clause
"""Stands in for rl_games: ``common.a2c_common.discount_values``."""

# SPDX-License-Identifier: BSD-3-Clause
"""``selective_scan``: Mamba's recurrence."""

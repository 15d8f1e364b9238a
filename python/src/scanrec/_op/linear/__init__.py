# SPDX-License-Identifier: BSD-3-Clause
"""``linear_scan``: the linear recurrence itself."""

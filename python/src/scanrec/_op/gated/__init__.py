# SPDX-License-Identifier: BSD-3-Clause
"""``qrnn_pool``: scans whose gates are activated by the kernels."""

# SPDX-License-Identifier: BSD-3-Clause
"""``qrnn_pool``: scans whose kernels compute the gates from pre-activations."""

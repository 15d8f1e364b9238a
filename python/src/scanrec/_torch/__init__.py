# SPDX-License-Identifier: BSD-3-Clause
"""The shared parts of operations and layers in PyTorch: operators, derivatives, checks."""

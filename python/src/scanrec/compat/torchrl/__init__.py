# SPDX-License-Identifier: BSD-3-Clause
"""Stands in for TorchRL: ``objectives.value.functional``."""

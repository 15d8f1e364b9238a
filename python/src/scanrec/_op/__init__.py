# SPDX-License-Identifier: BSD-3-Clause
"""The operations: one folder each, with a description and the bindings for its frameworks."""

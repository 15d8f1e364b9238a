# SPDX-License-Identifier: BSD-3-Clause
"""The operations: one folder for each, with its description and a binding per framework."""

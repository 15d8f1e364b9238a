# SPDX-License-Identifier: BSD-3-Clause
"""Stands in for minGRU-pytorch: ``minGRU.heinsen_associative_scan_log``."""

# SPDX-License-Identifier: BSD-3-Clause
"""Stands in for philtorch: ``linear_recurrence`` of its ``lti``, whose coefficients are constant,
and of its ``lpv``, whose coefficients vary."""

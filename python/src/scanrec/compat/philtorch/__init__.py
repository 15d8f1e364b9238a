# SPDX-License-Identifier: BSD-3-Clause
"""Stands in for philtorch, for recurrences of the first order: ``lti``, whose coefficients are
constant, with states that do not mix and filters of one pole, and ``lpv``, whose coefficients
vary."""

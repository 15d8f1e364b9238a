# SPDX-License-Identifier: BSD-3-Clause
"""Helpers of the scanrec.compat tests that look up functions and build their arguments."""

from __future__ import annotations

import importlib
from operator import attrgetter

import numpy as np
import pytest

__all__ = ["Affine", "Resettable", "called", "framework", "ours"]


def framework(name):
    module = pytest.importorskip(name, reason=f"{name} is not installed")
    if name == "jax":
        module.config.update("jax_enable_x64", True)
    return module


def ours(name):
    """Return the function of scanrec.compat with this name, such as ``philtorch.lti.lfilter``."""
    module, _, function = name.partition(".")
    return attrgetter(function)(importlib.import_module(f"scanrec.compat.{module}"))


class Affine:
    """An affine operator on (gate, input) pairs, with the interface of a memax semigroup."""

    def __call__(self, i, j):
        return j[0] * i[0], j[0] * i[1] + j[1]

    def initialize_carry(self, key):
        return np.ones(2), np.zeros(2)


class Resettable:
    """A stand-in for memax's Resettable. scanrec.compat reads its class name and its algebra."""

    algebra = Affine()


def operator(name):
    return Resettable() if name == "resettable" else Affine()


def called(case):
    """Return the function of scanrec.compat for a case, and its arguments."""
    framework(case.framework)
    arguments = dict(case.arguments)
    if "semigroup_op" in arguments:
        arguments["semigroup_op"] = operator(arguments["semigroup_op"])
    return ours(case.ours), arguments

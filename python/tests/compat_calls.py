# SPDX-License-Identifier: BSD-3-Clause
"""What tests of scanrec.compat call."""

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
    """The function of scanrec.compat with this name, such as ``philtorch.lti.lfilter``."""
    module, _, function = name.partition(".")
    return attrgetter(function)(importlib.import_module(f"scanrec.compat.{module}"))


class Affine:
    """An operator as memax's are, on gates and inputs."""

    def __call__(self, i, j):
        return j[0] * i[0], j[0] * i[1] + j[1]

    def initialize_carry(self, key):
        return np.ones(2), np.zeros(2)


class Resettable:
    """Has the name and the algebra of memax's, and is not called."""

    algebra = Affine()


def operator(name):
    return Resettable() if name == "resettable" else Affine()


def called(case):
    """Ours, and the arguments for it."""
    framework(case.framework)
    arguments = dict(case.arguments)
    if "semigroup_op" in arguments:
        arguments["semigroup_op"] = operator(arguments["semigroup_op"])
    return ours(case.ours), arguments

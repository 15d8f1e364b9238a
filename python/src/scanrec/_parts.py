# SPDX-License-Identifier: BSD-3-Clause
"""Lazy import of the submodules of packages."""

from __future__ import annotations

from collections.abc import Callable, Collection
from importlib import import_module
from types import ModuleType

__all__ = ["importer"]


def importer(package: str, parts: Collection[str]) -> Callable[[str], ModuleType]:
    """Return a ``__getattr__`` for a package. It imports a submodule, one of ``parts``, at the
    first access."""

    def __getattr__(name: str) -> ModuleType:
        if name not in parts:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return import_module(f"{package}.{name}")

    return __getattr__

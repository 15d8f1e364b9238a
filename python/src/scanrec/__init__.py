# SPDX-License-Identifier: BSD-3-Clause
"""Linear recurrences over long sequences, and their adjoints.

``scanrec.linear_scan`` and its derivatives work on NumPy arrays. ``scanrec.jax`` and
``scanrec.torch`` have differentiable functions and layers for these frameworks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import _cuda, _native
from ._op.linear.numpy import Gradients, linear_scan, linear_scan_jvp, linear_scan_vjp
from ._parts import importer

__all__ = [
    "Gradients",
    "__version__",
    "linear_scan",
    "linear_scan_jvp",
    "linear_scan_vjp",
    "show_config",
]

__version__ = _native.version()
_PARTS = {"compat", "jax", "torch"}


def show_config() -> None:
    """Print the version, instruction set, number of threads, and whether GPU kernels are built."""
    print(f"scanrec {__version__}")
    print(f"instruction set: {_native.instruction_set()}")
    print(f"threads: {_native.threads()}")
    kernels = "built" if _cuda.is_built() else f"not built; {_cuda.BUILD} builds them"
    print(f"kernels for GPUs: {kernels}")


if TYPE_CHECKING:
    from . import compat as compat
    from . import jax as jax
    from . import torch as torch
else:
    __getattr__ = importer(__name__, _PARTS)


def __dir__() -> list[str]:
    # List only imported submodules, so that help and completion do not import the frameworks.
    return sorted({*__all__, *(_PARTS & globals().keys())})

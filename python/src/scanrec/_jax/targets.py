# SPDX-License-Identifier: BSD-3-Clause
"""The native calls as targets of XLA's foreign function interface, for CPUs and GPUs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection
from functools import cache
from pathlib import Path
from typing import Any

import jax

from .. import _cuda, _native

__all__ = ["on_gpu", "target_of"]

#: The version at the end of the names of targets. It increases when a release changes the
#: attributes or arrays of the handlers.
_VERSION = 1


def target_of(call: str) -> str:
    """The name of the target of a native call."""
    return f"scanrec_{call}_v{_VERSION}"


def _register(
    library: ctypes.CDLL, prefix: str, platform: str, calls: Collection[str] = _native.CALLS
) -> None:
    for call in calls:
        handler = jax.ffi.pycapsule(getattr(library, prefix + call))  # type: ignore[no-untyped-call]
        jax.ffi.register_ffi_target(target_of(call), handler, platform=platform)


@cache
def _register_on_gpu() -> None:
    _register(_cuda.library(), "scanrec_xla_cuda_", "CUDA", _native.GPU_CALLS)


def on_gpu(lower: Callable[..., Any]) -> Callable[..., Any]:
    """Return a lowering rule for GPUs that loads the kernels and then calls ``lower``.

    The import of this module loads them only if the machine has a driver. A machine without one can
    also lower programs for GPUs. The rule raises RuntimeError if this build has no kernels for
    GPUs.
    """

    def lower_on_gpu(*args: Any, **params: Any) -> Any:
        _register_on_gpu()
        return lower(*args, **params)

    return lower_on_gpu


_library = ctypes.CDLL(str(Path(_native.__file__).with_name("libscanrec_xla.so")))
_register(_library, "scanrec_xla_", "cpu")
if _cuda.is_built() and _cuda.has_driver():  # for programs that another process lowered
    _register_on_gpu()

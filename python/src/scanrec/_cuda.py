# SPDX-License-Identifier: BSD-3-Clause
"""libscanrec_cuda: the C interface of ``include/scanrec/c/scanrec_cuda.h``, through ctypes.

This library is separate from libscanrec, and a build may lack it. It is loaded when it is first
needed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from . import _native

__all__ = ["BUILD", "PATH", "call", "has_driver", "is_built", "library", "run"]

PATH = Path(__file__).with_name("libscanrec_cuda.so")

_Allocate = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


class _Queue(ctypes.Structure):
    _fields_ = [
        ("stream", ctypes.c_void_p),
        ("allocate", _Allocate),
        ("context", ctypes.c_void_p),
    ]


#: The command that builds the kernels. It needs no GPU.
BUILD = "CMAKE_ARGS=-DSCANREC_CUDA=ON pip install -v --force-reinstall --no-deps ./python"


def has_driver() -> bool:
    """Whether this machine has a driver for NVIDIA GPUs."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def is_built() -> bool:
    """Whether this build has kernels for GPUs."""
    return PATH.exists()


@cache
def library() -> ctypes.CDLL:
    """Return the library. Raises RuntimeError if this build has none."""
    if not is_built():
        raise RuntimeError(
            f"scanrec: this build has no kernels for GPUs ({PATH.name}); with nvcc 12.3 or newer "
            f"in PATH, build the package again: {BUILD}"
        )
    return _native.load(PATH, "scanrec_cuda_", _native.GPU_CALLS)


def call(
    name: str,
    arrays: Mapping[str, _native.Array],
    dtypes: Mapping[str, str] | None = None,
    *,
    stream: int | None,
    allocate: Callable[[int], int],
    **problem: Any,
) -> None:
    """Queue a native call on arrays in the memory of the current GPU.

    Parameters
    ----------
    name, arrays, dtypes, **problem:
        The arguments of :func:`scanrec._native.call`.
    stream:
        The CUDA stream; None is the default stream.
    allocate:
        A function that takes a number of bytes and returns the address of a workspace of this size
        in the GPU's memory. The kernels that the call queues in the stream use the workspace.
    """
    prepared = _native.Prepared(
        name, {of: x.strides for of, x in arrays.items()}, dtypes, **problem
    )
    run(prepared, [x.data for x in arrays.values()], stream=stream, allocate=allocate)


def run(
    prepared: _native.Prepared,
    addresses: Sequence[int],
    *,
    stream: int | None,
    allocate: Callable[[int], int],
) -> None:
    """Queue a prepared call. ``addresses`` are in the order of the strides of ``prepared``."""
    raised: list[BaseException] = []

    def allocated(_: int | None, bytes: int) -> int | None:
        try:
            return allocate(bytes)
        except BaseException as error:  # ctypes would print and drop the exception
            raised.append(error)
            return None

    queue = _Queue(stream, _Allocate(allocated), None)
    function = getattr(library(), f"scanrec_cuda_{prepared.name}")
    status = function(prepared.problem, prepared.arrays(addresses), ctypes.byref(queue))
    if raised:
        raise raised.pop()  # pop: no reference from this frame to the traceback
    if status != 0:
        _native.raise_error(library(), "scanrec_cuda_", status, prepared.name)

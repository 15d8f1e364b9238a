# SPDX-License-Identifier: BSD-3-Clause
"""libscanrec_cuda: the C interface of ``include/scanrec/c/scanrec_cuda.h``, through ctypes.

A library of its own, which not every build has, loaded when it is first needed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from . import _native

__all__ = ["PATH", "call", "call_selective", "has_driver", "is_built", "library"]

PATH = Path(__file__).with_name("libscanrec_cuda.so")

_Allocate = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


class _Queue(ctypes.Structure):
    _fields_ = [
        ("stream", ctypes.c_void_p),
        ("allocate", _Allocate),
        ("context", ctypes.c_void_p),
    ]


#: What builds them, whatever GPUs the machine has.
BUILD = "CMAKE_ARGS=-DSCANREC_CUDA=ON pip install -v --force-reinstall --no-deps ./python"


def has_driver() -> bool:
    """Whether this machine has a driver for GPUs."""
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
    """The library. Raises RuntimeError where this build has none."""
    if not is_built():
        raise RuntimeError(
            f"scanrec: this build has no kernels for GPUs ({PATH.name}); with nvcc 12.3 or newer "
            f"in PATH, build the package again: {BUILD}"
        )
    return _native.load(PATH, "scanrec_cuda_")


def call(
    name: str,
    arrays: Mapping[str, _native.Array],
    *,
    stream: int,
    allocate: Callable[[int], int],
    **problem,
) -> None:
    """Queues a call on arrays in the memory of the current GPU. ``allocate(bytes)`` is the address
    of so much of its memory, which work queued in the stream until the call returns may use.

    Otherwise as :func:`scanrec._native.call`.
    """
    prepared = _native.Prepared(name, {of: x.strides for of, x in arrays.items()}, **problem)
    places = prepared.arrays([x.data for x in arrays.values()])
    _queue(name, prepared.problem, places, stream, allocate)


def call_selective(
    name: str,
    arrays: Mapping[str, _native.Array],
    dtypes: Mapping[str, str],
    *,
    stream: int,
    allocate: Callable[[int], int],
    **problem,
) -> None:
    """Queues a selective scan, or its adjoint: as :func:`call`, of what
    :func:`scanrec._native.call_selective` takes."""
    packed, places, kept = _native.packed_selective(name, arrays, dtypes, **problem)
    _queue(name, packed, places, stream, allocate)
    del kept  # what the places lead to


def _queue(name, problem, places, stream, allocate):
    raised = []

    def lend(_, bytes):
        try:
            return allocate(bytes)
        except BaseException as error:  # which ctypes would print, and forget
            raised.append(error)
            return None

    queue = _Queue(stream, _Allocate(lend), None)
    status = getattr(library(), f"scanrec_cuda_{name}")(problem, places, ctypes.byref(queue))
    if raised:
        raise raised.pop()  # which keeps nobody's frames
    if status != 0:
        _native.raise_status(status, library().scanrec_cuda_last_error().decode())

# SPDX-License-Identifier: BSD-3-Clause
"""libscanrec: the C interface of ``include/scanrec/c/scanrec.h``, through ctypes."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = [
    *("DTYPES", "GATES", "OPERANDS", "RESULTS", "Array", "call", "instruction_set"),
    *("load", "marshalled", "raise_status", "threads", "version"),
]

_C_VERSION = 1

_Int64s = ctypes.POINTER(ctypes.c_int64)


class _Problem(ctypes.Structure):
    _fields_ = [
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("shape", _Int64s),
        ("axis", ctypes.c_int32),
        ("reverse", ctypes.c_int32),
        ("plain", ctypes.c_int32),
        ("threads", ctypes.c_int32),
        ("executor", ctypes.c_void_p),
        ("pool", ctypes.c_void_p),
    ]


class _Array(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("strides", _Int64s)]


#: The pre-activations of QRNN pooling: of f-pooling the first two, of fo-pooling three.
GATES = ("candidate", "forget_gate", "output_gate", "input_gate")

#: The names of the arrays of every call, in the order of its struct: first those that are read,
OPERANDS = {
    "linear_scan": ("gate", "input", "initial_state", "resets"),
    "linear_scan_vjp": ("gate", "state", "initial_state", "resets", "state_grad", "final_grad"),
    "linear_scan_jvp": (
        *("gate", "state", "initial_state", "resets"),
        *("gate_tangent", "input_tangent", "initial_tangent"),
    ),
    "qrnn_pool": (*GATES, "initial_state", "resets", "zoneout"),
    "qrnn_pool_vjp": (
        *(*GATES, "state", "initial_state", "resets", "zoneout"),
        *("output_grad", "final_grad"),
    ),
}
#: then those that are written.
RESULTS = {
    "linear_scan": ("state", "final_state"),
    "linear_scan_vjp": ("gate_grad", "input_grad", "initial_grad"),
    "linear_scan_jvp": ("state_tangent", "final_tangent"),
    "qrnn_pool": ("output", "state", "final_state"),
    "qrnn_pool_vjp": (*(f"{name}_grad" for name in GATES), "initial_grad"),
}

#: enum scanrec_dtype, by NumPy's names.
DTYPES = {
    name: code
    for code, name in enumerate(
        ("float32", "float64", "complex64", "complex128", "bfloat16", "float16")
    )
}


class Array(NamedTuple):
    """Where an array begins, and a stride in elements for every axis of the problem."""

    data: int
    strides: Sequence[int]


def load(path: Path, prefix: str, *more: type) -> ctypes.CDLL:
    """A library that has all calls, after a prefix; `more` are the types of what they take besides
    problem and arrays."""
    try:
        lib = ctypes.CDLL(os.fspath(path))
    except OSError as error:
        raise ImportError(f"scanrec: cannot load {path.name}: {error}") from error
    for name in OPERANDS:
        function = getattr(lib, f"{prefix}{name}")
        arrays = _Array * len(OPERANDS[name] + RESULTS[name])
        function.argtypes = [ctypes.POINTER(_Problem), ctypes.POINTER(arrays), *more]
        function.restype = ctypes.c_int
    getattr(lib, f"{prefix}last_error").restype = ctypes.c_char_p
    found = getattr(lib, f"{prefix}c_version")()
    if found != _C_VERSION:
        raise ImportError(f"scanrec: {path.name} has C interface {found}, expected {_C_VERSION}")
    return lib


_lib = load(Path(__file__).with_name("libscanrec.so"), "scanrec_")
for _name in ("version", "instruction_set"):
    getattr(_lib, f"scanrec_{_name}").restype = ctypes.c_char_p


def _text(function: str) -> str:
    value = getattr(_lib, f"scanrec_{function}")()
    return value.decode() if value is not None else ""


def version() -> str:
    """The version of the library, "0.1.0"."""
    return _text("version")


def instruction_set() -> str:
    """The instruction set in use. Raises RuntimeError where none serves."""
    return _text("instruction_set") or raise_status(3, _text("last_error"))


def threads() -> int:
    """How many threads work on one call at most."""
    return _lib.scanrec_threads()


def raise_status(status: int, message: str):
    """Raises what the status of a call stands for."""
    raise {1: ValueError, 2: MemoryError}.get(status, RuntimeError)(message)


def marshalled(
    name: str,
    arrays: Mapping[str, Array],
    *,
    dtype: str,
    shape: Sequence[int],
    axis: int,
    reverse: bool,
    plain: bool = False,
    threads: int = 0,
):
    """Problem and arrays of a call, as its function takes them."""
    extents = ctypes.c_int64 * len(shape)
    problem = _Problem(
        DTYPES[dtype], len(shape), extents(*shape), axis, reverse, plain, threads, None, None
    )
    names = OPERANDS[name] + RESULTS[name]
    list_of = (_Array * len(names))()
    for place, of in zip(list_of, names):
        array = arrays.get(of)
        if array is not None:
            place.data = array.data
            place.strides = extents(*array.strides)
    return problem, list_of


def call(name: str, arrays: Mapping[str, Array], **problem) -> None:
    """Runs a call of the library on arrays by their names; those left out are absent. The problem is
    what :func:`marshalled` takes.

    The arrays must stay alive, and be large enough: nobody else checks that.
    """
    problem, list_of = marshalled(name, arrays, **problem)
    status = getattr(_lib, f"scanrec_{name}")(ctypes.byref(problem), ctypes.byref(list_of))
    if status != 0:
        raise_status(status, _text("last_error"))

# SPDX-License-Identifier: BSD-3-Clause
"""libscanrec: the C interface of ``include/scanrec/c/scanrec.h``, through ctypes."""

from __future__ import annotations

import ctypes
import os
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from struct import Struct
from typing import NamedTuple

__all__ = [
    *("DTYPES", "EDGES", "GATED", "GATES", "LOG_GATE", "LOG_INPUT", "OPERANDS", "RESULTS"),
    *("SELECTIVE", "Array", "Prepared", "call", "call_selective", "checkpoint_shape"),
    *("instruction_set", "load", "packed_selective", "raise_status", "threads", "version"),
]

_C_VERSION = 3

# struct scanrec_problem: dtype, rank, shape, axis, reverse, plain, threads, more_resets, cell;
# forget_bias; executor, pool.
_PROBLEM = Struct("iiPiiiiiidPP")

#: enum scanrec_cell: QRNN pooling, and bits for what of a linear scan is given by logarithms.
LOG_GATE, LOG_INPUT = 1, 2

#: The pre-activations of gated scans: of f-pooling the first two, of fo-pooling three. Of linear
#: scans of logarithms the candidate is the input, the forget gate the gate.
GATES = ("candidate", "forget_gate", "output_gate", "input_gate")

#: What a gated scan and its adjoint read of the forward call.
GATED = (*GATES, "state", "initial_state", "resets", "zoneout")

#: The names of the arrays of every call, in the order of its struct: first those that are read,
OPERANDS = {
    "linear_scan": ("gate", "input", "initial_state", "resets"),
    "linear_scan_vjp": ("gate", "state", "initial_state", "resets", "state_grad", "final_grad"),
    "linear_scan_jvp": (
        *("gate", "state", "initial_state", "resets"),
        *("gate_tangent", "input_tangent", "initial_tangent"),
    ),
    "gated_scan": (*GATES, "initial_state", "resets", "zoneout"),
    "gated_scan_vjp": (*GATED, "output_grad", "final_grad", "checkpoints"),
}
#: then those that are written.
RESULTS = {
    "linear_scan": ("state", "final_state"),
    "linear_scan_vjp": ("gate_grad", "input_grad", "initial_grad"),
    "linear_scan_jvp": ("state_tangent", "final_tangent"),
    "gated_scan": ("output", "state", "final_state", "checkpoints"),
    "gated_scan_vjp": (*(f"{name}_grad" for name in GATES), "initial_grad"),
}

#: States at the edges, which have no axis of time and are in the compute type.
EDGES = frozenset((
    *("initial_state", "final_state", "final_grad"),
    *("initial_grad", "initial_tangent", "final_tangent"),
))  # fmt: skip

#: Steps between checkpoints.
_STRETCH = 128


def checkpoint_shape(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    """The shape of the checkpoints of a gated scan, in the type of the edges; none up to 128
    steps."""
    return (*shape[:axis], max(shape[axis] - 1, 0) // _STRETCH, *shape[axis + 1 :])


# The arrays of a call: of each, where it begins and where its strides are; null for what is absent.
_PLACES = {
    name: {of: 2 * i for i, of in enumerate(OPERANDS[name] + RESULTS[name])} for name in OPERANDS
}
_ARRAYS = {name: Struct(f"{2 * len(places)}P") for name, places in _PLACES.items()}

# What selective scans and their adjoints read alike.
_SELECTIVE = (
    *("u", "delta", "a", "b", "c", "skip", "z", "delta_bias", "intervals"),
    *("initial_state", "resets"),
)
#: The arrays of selective scans, in the order of their structs.
SELECTIVE = {
    "selective_scan": (*_SELECTIVE, "out", "final_state", "checkpoints"),
    "selective_scan_vjp": (
        *(*_SELECTIVE, "checkpoints", "out_grad", "final_grad"),
        *(f"{name}_grad" for name in _SELECTIVE[:-2]),
        "initial_grad",
    ),
}
# Those that have a type of their own, and its place in the struct.
_TYPED = frozenset(("u", "delta", "b", "c", "z", "out"))
_TYPED |= {f"{name}_grad" for name in _TYPED}
_SELECTIVE_ARRAYS = {
    name: Struct("".join("PPi0P" if of in _TYPED else "PP" for of in arrays))
    for name, arrays in SELECTIVE.items()
}
# struct scanrec_selective_problem: dtype; batch, time, channel, states, groups; b_of_steps,
# c_of_steps, softplus, reverse, threads, more_resets; executor, pool.
_SELECTIVE_PROBLEM = Struct("i5q6iPP")

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


def load(path: Path, prefix: str) -> ctypes.CDLL:
    """A library that has all calls, after a prefix. What they take is given as bytes, or by
    reference: to check types would take longer than a small call."""
    try:
        lib = ctypes.CDLL(os.fspath(path))
    except OSError as error:
        raise ImportError(f"scanrec: cannot load {path.name}: {error}") from error
    for name in OPERANDS:
        getattr(lib, f"{prefix}{name}").restype = ctypes.c_int
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


class Prepared:
    """A call of the library on arrays with these strides, by their names; those left out are
    absent. Where the arrays begin is said when it runs, which it may any number of times, in any
    thread.

    The arrays must be alive then, and large enough: nobody else checks that.
    """

    __slots__ = ("_numbers", "_pack", "_places", "_pointers", "function", "problem")

    def __init__(
        self,
        name: str,
        strides: Mapping[str, Sequence[int]],
        *,
        dtype: str,
        shape: Sequence[int],
        axis: int,
        reverse: bool,
        plain: bool = False,
        threads: int = 0,
        more_resets: bool = False,
        cell: int = 0,
        forget_bias: float = 0.0,
    ):
        rank, places, pack = len(shape), _PLACES[name], _ARRAYS[name]
        numbers = array("q", shape)
        for steps in strides.values():
            numbers.extend(steps)
        first, _ = numbers.buffer_info()
        pointers = [0] * (2 * len(places))
        for i, of in enumerate(strides):
            pointers[places[of] + 1] = first + 8 * rank * (i + 1)
        self.problem = _PROBLEM.pack(
            *(DTYPES[dtype], rank, first, axis),
            *(reverse, plain, threads, more_resets, cell, forget_bias, 0, 0),
        )
        self.function = getattr(_lib, f"scanrec_{name}")
        self._numbers = numbers  # which pointers lead to: alive, and never changed
        self._places, self._pointers, self._pack = (
            [places[of] for of in strides],
            pointers,
            pack.pack,
        )

    def arrays(self, addresses: Sequence[int]) -> bytes:
        """The arrays as the call takes them, from where each begins."""
        pointers = self._pointers.copy()
        for place, address in zip(self._places, addresses):
            pointers[place] = address
        return self._pack(*pointers)

    def run(self, addresses: Sequence[int]) -> None:
        """Runs it on arrays that begin at these addresses, in the order of their strides."""
        status = self.function(self.problem, self.arrays(addresses))
        if status != 0:
            raise_status(status, _text("last_error"))


def call(name: str, arrays: Mapping[str, Array], **problem) -> None:
    """Runs a call of the library on arrays by their names; the problem is what :class:`Prepared`
    takes."""
    prepared = Prepared(name, {of: x.strides for of, x in arrays.items()}, **problem)
    prepared.run([x.data for x in arrays.values()])


def packed_selective(
    name: str,
    arrays: Mapping[str, Array],
    dtypes: Mapping[str, str],
    *,
    dtype: str,
    shape: Sequence[int],
    b_of_steps: bool,
    c_of_steps: bool,
    softplus: bool,
    reverse: bool,
    threads: int = 0,
    more_resets: bool = False,
) -> tuple[bytes, bytes, array]:
    """The problem of a selective scan, or of its adjoint, its arrays, and numbers that these lead
    to, to be kept alive. Arrays are given by their names, with strides for the axes that the C
    interface says. `dtypes` are those of arrays in other types than `dtype`, which is computed in;
    `shape` is (batch, time, channel, states, groups)."""
    numbers = array("q")
    for x in arrays.values():
        numbers.extend(x.strides)
    at, _ = numbers.buffer_info()
    places = {}
    for of, x in arrays.items():
        places[of] = (x.data, at)
        at += 8 * len(x.strides)
    fields = []
    for of in SELECTIVE[name]:
        fields.extend(places.get(of, (0, 0)))
        if of in _TYPED:
            fields.append(DTYPES[dtypes.get(of, dtype)])
    problem = _SELECTIVE_PROBLEM.pack(
        *(DTYPES[dtype], *shape, b_of_steps, c_of_steps, softplus, reverse),
        *(threads, more_resets, 0, 0),
    )
    return problem, _SELECTIVE_ARRAYS[name].pack(*fields), numbers


def call_selective(
    name: str, arrays: Mapping[str, Array], dtypes: Mapping[str, str], **problem
) -> None:
    """Runs a selective scan, or its adjoint, on what :func:`packed_selective` takes."""
    packed, places, kept = packed_selective(name, arrays, dtypes, **problem)
    status = getattr(_lib, f"scanrec_{name}")(packed, places)
    del kept
    if status != 0:
        raise_status(status, _text("last_error"))

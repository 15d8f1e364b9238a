# SPDX-License-Identifier: BSD-3-Clause
"""libscanrec: the C interface of ``include/scanrec/c/scanrec.h``, through ctypes."""

from __future__ import annotations

import ctypes
import os
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple, NoReturn

from ._op.conv1d.spec import CONV1D
from ._op.gated.spec import GATED
from ._op.linear.spec import LINEAR
from ._op.selective.spec import SELECTIVE
from ._op.spec import Operation, primal_of

__all__ = [
    "CALLS",
    "DTYPES",
    "GPU_CALLS",
    "Array",
    "ArgumentError",
    "Prepared",
    "call",
    "checkpoint_shape",
]
__all__ += ["instruction_set", "load", "raise_error", "threads", "version"]

_C_VERSION = 5

#: The operations with native calls.
_OPERATIONS = LINEAR, GATED, SELECTIVE, CONV1D

#: The native calls by name.
CALLS = {call.name: call for op in _OPERATIONS for call in op.calls}

#: The names of the calls that also run on GPUs.
GPU_CALLS = [call.name for op in _OPERATIONS if op.on_gpu for call in op.calls]

#: The values of ``enum scanrec_dtype``, by the name of the type.
_NAMES = "float32", "float64", "complex64", "complex128", "bfloat16", "float16"
DTYPES = {name: code for code, name in enumerate(_NAMES)}

#: Steps between checkpoints.
_CHECKPOINT_INTERVAL = 128


def checkpoint_shape(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    """The shape of the checkpoints of sequences of this shape. The extent in time is 0 for up to
    128 steps."""
    count = max(shape[axis] - 1, 0) // _CHECKPOINT_INTERVAL
    return (*shape[:axis], count, *shape[axis + 1 :])


class Array(NamedTuple):
    """The address of an array, and a stride in elements for each of its axes in the C interface."""

    data: int
    strides: Sequence[int]


def load(path: Path, prefix: str, calls: Iterable[str] = CALLS) -> ctypes.CDLL:
    """Load a library that has these calls. The names of its functions begin with ``prefix``.

    No argtypes are declared, since the type checks of ctypes would take longer than a small call.
    Callers pass bytes or addresses.
    """
    try:
        lib = ctypes.CDLL(os.fspath(path))
    except OSError as error:
        raise ImportError(f"scanrec: cannot load {path.name}: {error}") from error
    for name in calls:
        getattr(lib, f"{prefix}{name}").restype = ctypes.c_int
    for part in ("", "_argument", "_reason"):
        getattr(lib, f"{prefix}last_error{part}").restype = ctypes.c_char_p
    found = getattr(lib, f"{prefix}c_version")()
    if found != _C_VERSION:
        raise ImportError(f"scanrec: {path.name} has C interface {found}, expected {_C_VERSION}")
    return lib


_lib = load(Path(__file__).with_name("libscanrec.so"), "scanrec_")
for _name in ("version", "instruction_set"):
    getattr(_lib, f"scanrec_{_name}").restype = ctypes.c_char_p


def version() -> str:
    """The version of the library, such as "0.1.0"."""
    return str(_lib.scanrec_version(), "ascii")


def instruction_set() -> str:
    """The instruction set in use. Raises RuntimeError if the library has no suitable set."""
    return str(_lib.scanrec_instruction_set() or raise_error(_lib, "scanrec_", 3), "ascii")


def threads() -> int:
    """The largest number of threads that work on one call."""
    return int(_lib.scanrec_threads())


class ArgumentError(ValueError):
    """An error of a native call that names an argument.

    Parameters
    ----------
    call, argument:
        The names of the call and the argument: native ones, or a user's after :meth:`renamed`.
    reason:
        The expected and the actual value, as text.
    """

    def __init__(self, call: str, argument: str, reason: str):
        super().__init__(f"{call}: argument '{argument}': {reason}")
        self.argument, self.reason = argument, reason

    def renamed(self, call: str, names: Mapping[str, str]) -> ArgumentError:
        """Return the same error with a user's names of the call and its arguments."""
        reason = self.reason
        for native, name in names.items():
            reason = reason.replace(f"'{native}'", f"'{name}'")
        return ArgumentError(call, names.get(self.argument, self.argument), reason)


def raise_error(lib: ctypes.CDLL, prefix: str, status: int, call: str = "") -> NoReturn:
    """Raise the exception for a status that a call of the library returned."""
    message, argument, reason = (
        getattr(lib, f"{prefix}last_error{part}")().decode()
        for part in ("", "_argument", "_reason")
    )
    if argument:
        raise ArgumentError(call, argument, reason)
    raise {1: ValueError, 2: MemoryError}.get(status, RuntimeError)(message)


class _Layout:
    """The struct of the arrays of a call, and the index of the first field of each array."""

    def __init__(self, names: Sequence[str], typed: frozenset[str]):
        self.typed = [name for name in names if primal_of(name) in typed]
        self.positions: dict[str, int] = {}
        fields, count = "", 0
        for name in names:
            self.positions[name] = count
            fields += "PPi0P" if name in self.typed else "PP"
            count += 3 if name in self.typed else 2
        self.count, self.pack = count, Struct(fields).pack


_LAYOUTS = {call.name: _Layout(call.arrays, op.typed) for op in _OPERATIONS for call in op.calls}

# struct scanrec_problem: dtype, rank, shape, axis, reverse, no_conjugate, threads, more_resets,
# logarithms; forget_bias; executor, pool.
_PROBLEM = Struct("iiPiiiiiidPP")
# struct scanrec_selective_problem: dtype; batch, time, channel, states, groups; b_of_steps,
# c_of_steps, softplus, reverse, threads, more_resets; executor, pool.
_SELECTIVE_PROBLEM = Struct("i5q6iPP")
# struct scanrec_causal_conv1d_problem: dtype; batch, time, channel, width, initial_steps,
# final_steps; silu, threads; executor, pool.
_CONV1D_PROBLEM = Struct("i6q2iPP")


def _problem(
    shape_address: int,
    *,
    dtype: str,
    shape: Sequence[int],
    axis: int,
    reverse: bool,
    no_conjugate: bool = False,
    threads: int = 0,
    more_resets: bool = False,
    logarithms: int = 0,
    forget_bias: float = 0.0,
) -> bytes:
    return _PROBLEM.pack(
        *(
            DTYPES[dtype],
            len(shape),
            shape_address,
            axis,
            reverse,
            no_conjugate,
            threads,
            more_resets,
        ),
        *(logarithms, forget_bias, 0, 0),
    )


def _selective_problem(
    _: int,
    *,
    dtype: str,
    shape: Sequence[int],
    b_of_steps: bool,
    c_of_steps: bool,
    softplus: bool,
    reverse: bool,
    threads: int = 0,
    more_resets: bool = False,
) -> bytes:
    return _SELECTIVE_PROBLEM.pack(
        *(DTYPES[dtype], *shape, b_of_steps, c_of_steps, softplus, reverse),
        *(threads, more_resets, 0, 0),
    )


def _conv1d_problem(
    _: int, *, dtype: str, shape: Sequence[int], silu: bool, threads: int = 0
) -> bytes:
    return _CONV1D_PROBLEM.pack(DTYPES[dtype], *shape, silu, threads, 0, 0)


_MAKE: dict[Operation, Callable[..., bytes]] = {
    SELECTIVE: _selective_problem,
    CONV1D: _conv1d_problem,
}
#: The functions that pack the problem struct, by the name of the call.
_PROBLEMS = {call.name: _MAKE.get(op, _problem) for op in _OPERATIONS for call in op.calls}


class Prepared:
    """A native call on arrays with given strides. It can run any number of times, in any thread.

    Parameters
    ----------
    name:
        The name of the call.
    strides:
        The strides of each array, in elements, by name. Arrays without an entry are absent.
    dtypes:
        The element types of the arrays whose type differs from ``dtype``.
    dtype, shape, **problem:
        Fields of the problem struct of the call. ``shape`` is (batch, time, channel, states,
        groups) for selective scans, and (batch, time, channel, width, initial_steps, final_steps)
        for causal convolutions.
    """

    __slots__ = ("_fields", "_numbers", "_pack", "_positions", "function", "name", "problem")

    def __init__(
        self,
        name: str,
        strides: Mapping[str, Sequence[int]],
        dtypes: Mapping[str, str] | None = None,
        **problem: Any,
    ):
        layout, dtypes = _LAYOUTS[name], dtypes or {}
        numbers = array("q", problem["shape"])
        begins = []
        for steps in strides.values():
            begins.append(len(numbers))
            numbers.extend(steps)
        address, _ = numbers.buffer_info()
        fields = [0] * layout.count
        for of, begin in zip(strides, begins):
            fields[layout.positions[of] + 1] = address + 8 * begin
        for of in layout.typed:
            fields[layout.positions[of] + 2] = DTYPES[dtypes.get(of, problem["dtype"])]
        self.problem = _PROBLEMS[name](address, **problem)
        self.name, self.function = name, getattr(_lib, f"scanrec_{name}")
        self._numbers = numbers  # The fields contain addresses of its elements.
        self._positions = [layout.positions[of] for of in strides]
        self._fields, self._pack = fields, layout.pack

    def arrays(self, addresses: Sequence[int]) -> bytes:
        """The struct of the arrays, given their addresses in the order of the strides."""
        fields = self._fields.copy()
        for position, address in zip(self._positions, addresses):
            fields[position] = address
        return self._pack(*fields)

    def run(self, addresses: Sequence[int]) -> None:
        """Run the call on arrays at these addresses, in the order of the strides. The caller
        ensures that the arrays are large enough: nothing checks it."""
        status = self.function(self.problem, self.arrays(addresses))
        if status != 0:
            raise_error(_lib, "scanrec_", status, self.name)


def call(
    name: str,
    arrays: Mapping[str, Array],
    dtypes: Mapping[str, str] | None = None,
    **problem: Any,
) -> None:
    """Run a native call on named arrays, with the other arguments of :class:`Prepared`."""
    prepared = Prepared(name, {of: x.strides for of, x in arrays.items()}, dtypes, **problem)
    prepared.run([x.data for x in arrays.values()])

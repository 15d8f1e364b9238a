# SPDX-License-Identifier: BSD-3-Clause
"""Tests that calls do not access memory outside their arrays.

Each array begins or ends at an inaccessible page. Access to this page ends the process, so the
cases run in a subprocess. The last line that the subprocess prints names the case that failed.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import subprocess
import sys

import numpy as np
import pytest
from conftest import MANY_AXES

import scanrec
from scanrec import _native as native
from scanrec._op.spec import is_boundary, primal_of

try:
    from ml_dtypes import bfloat16
except ImportError:  # NumPy itself has no bfloat16
    bfloat16 = None

DTYPES = {
    "float32": "float32", "float64": "float64", "complex64": "float32", "complex128": "float64",
    "bfloat16": "float32", "float16": "float32",
}  # fmt: skip
"""Element types, and the real type of their arithmetic."""
LENGTHS = (0, 1, 2, 3, 15, 16, 17, 33, 65, 66, 127, 128, 129, 130, 260)
CHANNELS = (1, 2, 3, 7, 8, 15, 16, 17, 19, 33, 64, 65, 129)

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
)  # fmt: skip
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


class Memory:
    """Bytes between two inaccessible pages, adjacent to one of them at random."""

    def __init__(self, size, rng):
        page = mmap.PAGESIZE
        inside = (size + page - 1) // page * page
        self.mapped = inside + 2 * page
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self.all = _libc.mmap(None, self.mapped, 0, flags, -1, 0)
        assert self.all not in (None, ctypes.c_void_p(-1).value), os.strerror(ctypes.get_errno())
        if inside:
            access = mmap.PROT_READ | mmap.PROT_WRITE
            assert _libc.mprotect(self.all + page, inside, access) == 0
        self.address = self.all + page + rng.choice((0, inside - size))
        self.bytes = (ctypes.c_char * size).from_address(self.address)
        ctypes.memset(self.address, 0xFF, size)

    def __del__(self):
        _libc.munmap(self.all, self.mapped)


def random_strides(shape, rng, broadcast):
    """Return strides of either sign, in elements. Axes are shuffled; some have gaps or broadcast."""
    axes = list(range(len(shape)))
    rng.shuffle(axes)
    strides, span = [0] * len(shape), rng.choice((1, 1, 1, 1, 2))
    for axis in axes:
        if broadcast and rng.random() < 1 / 6:
            continue
        span += rng.choice((0, 0, 0, 0, 1, 3))
        strides[axis] = rng.choice((1, 1, -1)) * span
        if shape[axis] == 1 and rng.random() < 0.5:
            strides[axis] = 4099  # an axis of extent 1 may have any stride
        span *= max(shape[axis], 1)
    return strides


class Guarded:
    """Random numbers in their own memory. Gaps are bytes 0xFF, which are NaN in float types."""

    def __init__(self, shape, dtype, rng, broadcast=False, scale=1.0):
        self.strides = random_strides(shape, rng, broadcast)
        # An axis of stride 0 stores one element, even if its extent is 0: an empty sum is written.
        stored = [1 if stride == 0 else n for n, stride in zip(shape, self.strides)]
        kind = np.dtype({"bfloat16": "uint16"}.get(dtype, dtype))
        steps = [(n - 1) * stride for n, stride in zip(stored, self.strides)]
        first = -sum(min(step, 0) for step in steps) if 0 not in stored else 0
        span = sum(abs(step) for step in steps) + 1 if 0 not in stored else 0
        self.memory = Memory(span * kind.itemsize, rng)
        self.array = np.ndarray(
            stored, kind, self.memory.bytes, first * kind.itemsize,
            [stride * kind.itemsize for stride in self.strides],
        )  # fmt: skip
        numbers = np.random.default_rng(rng.getrandbits(32)).uniform(-1, 1, (2, *stored)) * scale
        if dtype == "bool":
            self.array[...] = numbers[0] > 0.7
        elif dtype == "bfloat16":
            self.array[...] = (numbers[0].astype("float32").view("uint32") >> 16).astype("uint16")
        elif dtype.startswith("complex"):
            self.array[...] = 0.7 * (numbers[0] + 1j * numbers[1])
        else:
            self.array[...] = numbers[0]
        owned = np.zeros(span, bool)
        owned_view = np.ndarray(stored, bool, owned, first, self.strides)
        owned_view[...] = True
        self.unit = 1  # stored numbers per element; strides passed to calls count numbers
        self.gaps = np.repeat(~owned, kind.itemsize)
        self.dtype = dtype
        # The broadcast array, as the call reads it.
        self.view = np.broadcast_to(self.array, shape)

    def make_negative(self):
        """Replace every number x by -|x|."""
        if self.dtype == "bfloat16":
            self.array |= 0x8000
        else:
            self.array[...] = -abs(self.array)

    @property
    def native(self):
        return native.Array(self.array.ctypes.data, [self.unit * stride for stride in self.strides])

    def check(self):
        """Check that no gap between the elements was written and that all elements are finite."""
        now = np.frombuffer(self.memory.bytes, np.uint8)
        assert np.all(now[self.gaps] == 0xFF)
        numbers = self.array
        if self.dtype == "bfloat16":
            numbers = (numbers.astype("uint32") << 16).view("float32")
        assert np.all(np.isfinite(numbers))


class Case:
    """A random problem: a shape, a time axis, and arrays of this shape.

    Kernels take four axes, and the library loops over the others. With `many_axes` there are six.
    They rarely merge, because each array has its own order of strides.
    """

    def __init__(self, number, dtype, many_axes=False):
        self.rng = rng = random.Random(number)
        self.number, self.dtype = number, dtype
        self.boundary_dtype = DTYPES[dtype] if dtype in ("bfloat16", "float16") else dtype
        while not many_axes:
            self.shape = [rng.choice((1, 1, 2, 3)), rng.choice(LENGTHS), rng.choice(CHANNELS)]
            self.axis = rng.choice((1, 1, 1, 0, 2))
            self.shape.insert(self.axis, self.shape.pop(1))
            if np.prod(self.shape) <= 10000:
                break
        if many_axes:
            self.shape = list(MANY_AXES["shape"])
            rng.shuffle(self.shape)
            self.axis = rng.randrange(6)
            self.shape[self.axis] = rng.choice((1, 5, 17, 33, 130))
        self.reverse = rng.random() < 0.5
        self.more = rng.random() < 0.5
        self.arrays = {}

    def one_in(self, n):
        return self.rng.randrange(n) == 0

    def add(self, name, shape=None, dtype=None, broadcast=True, scale=1.0):
        shape = self.shape if shape is None else shape
        self.arrays[name] = Guarded(shape, dtype or self.dtype, self.rng, broadcast, scale)
        return self.arrays[name]

    def boundary(self, name, broadcast=True):
        shape = list(self.shape)
        shape[self.axis] = 1
        self.add(name, shape, self.boundary_dtype, broadcast)

    def resets(self):
        shape = list(self.shape)
        shape[self.axis] += self.more
        reset_mask = self.add("resets", shape, "bool")
        # The Python package never passes a reset mask that broadcasts along time.
        if reset_mask.strides[self.axis] == 0:
            del self.arrays["resets"]
            self.more = False

    def describe(self, call):
        strides = "; ".join(f"{name} {x.strides}" for name, x in self.arrays.items())
        print(
            f"{call} {self.dtype}, case {self.number}: shape {self.shape}, axis {self.axis}, "
            f"reverse {self.reverse}; {strides}", flush=True,
        )  # fmt: skip


def run_native(call, dtype, number):
    """Run a call of the C interface on the arrays of a random problem."""
    case = Case(number, dtype, many_axes=number % 8 == 7)
    options = {}
    reads, writes = native.CALLS[call].reads, native.CALLS[call].writes
    real = not dtype.startswith("complex")
    if call in ("linear_scan", "linear_scan_vjp") and real and case.one_in(2):
        options["logarithms"] = case.rng.randrange(1, 4)
    if call.startswith("gated"):
        absent = set()
        if case.one_in(2):
            absent.add("input_gate")
        if absent >= {"input_gate"} and case.one_in(2):
            absent.add("output_gate")
        # The call keeps states or checkpoints. Without an output gate, the outputs are the states.
        keeps = "checkpoints" if case.one_in(2) else "state"
        absent.add({"checkpoints": "state", "state": "checkpoints"}[keeps])
        absent |= {f"{name}_grad" for name in absent}
        if call == "gated_scan" and "output_gate" in absent:
            absent.add("state")
        reads = [name for name in reads if name not in absent]
        writes = [name for name in writes if name not in absent]
    optional = {"initial_state", "final_grad", "initial_tangent", "zoneout"}
    checkpoints = native.checkpoint_shape(case.shape, case.axis)
    for name in reads:
        if name in optional and case.one_in(3):
            continue
        if name == "resets":
            if case.one_in(2):
                case.more = False
            else:
                case.resets()
        elif name == "zoneout":
            case.add(name, dtype="bool", broadcast=False)
        elif name == "checkpoints":
            case.add(name, checkpoints, case.boundary_dtype, broadcast=False)
        elif is_boundary(name):
            case.boundary(name)
        else:
            case.add(name)
            if name == "gate" and options.get("logarithms"):
                case.arrays[name].make_negative()  # keeps gates below 1
    for name in writes:
        if name == "checkpoints":
            case.add(name, checkpoints, case.boundary_dtype, broadcast=False)
        elif is_boundary(name):
            case.boundary(name, broadcast=name == "initial_grad")
        else:
            case.add(name, broadcast=name in ("gate_grad", "input_grad"))
    case.describe(call)
    native.call(
        call, {name: x.native for name, x in case.arrays.items()}, dtype=dtype, shape=case.shape,
        axis=case.axis, reverse=case.reverse, more_resets=case.more,
        threads=case.rng.choice((1, 2, 5)), **options,
    )  # fmt: skip
    for x in case.arrays.values():
        x.check()


def run_selective(call, dtype, number):
    """Run a selective scan of the C interface; `dtype` is the element type of its states."""
    case = Case(number, dtype)
    rng, real = case.rng, DTYPES[dtype]
    batch, time = rng.choice((1, 2, 3)), rng.choice(LENGTHS)
    groups, states = rng.choice((1, 1, 2)), rng.choice((1, 2, 3, 8, 16))
    channels = groups * rng.choice((1, 2, 5, 8, 17))
    b_of_steps, c_of_steps = rng.random() < 0.7, rng.random() < 0.7
    if not b_of_steps and not c_of_steps:
        groups = 1
    stored = rng.choice(("float32", "bfloat16", "float16")) if real == "float32" else real
    whole, own = (batch, time, channels), (channels, states)
    typed, dtypes = {"u": whole, "delta": whole, "z": whole, "out": whole}, {}
    shapes = {
        "a": own, "d": (channels,), "delta_bias": (channels,), "intervals": (batch, time),
        "initial_state": (batch, channels, states), "final_state": (batch, channels, states),
        "checkpoints": (batch, max(time - 1, 0) // 128, channels, states),
    }  # fmt: skip
    for name, of_steps in (("b", b_of_steps), ("c", c_of_steps)):
        if of_steps:
            typed[name] = (batch, time, groups, states)
        else:
            shapes[name] = own
    reals = {"d", "delta_bias", "intervals"}
    names = native.CALLS[call].arrays
    for name in names:
        of = name.removesuffix("_grad")
        of = {"final": "final_state", "initial": "initial_state"}.get(of, of)
        optional = ("d", "z", "delta_bias", "intervals", "initial_state", "resets")
        if of in optional and number % 3 == 0:
            continue
        writes = name.endswith("_grad") and name not in ("out_grad", "final_grad")
        if of == "resets":
            case.more = rng.random() < 0.5
            case.add(name, (batch, time + case.more, channels), "bool", broadcast=False)
        elif of in typed:
            if of in ("b", "c") and dtype.startswith("complex"):
                # Strides count numbers: real and imaginary parts alternate.
                case.add(name, typed[of], dtype, broadcast=False).unit = 2
                dtypes[name] = real
            else:
                case.add(name, typed[of], stored, broadcast=False)
                dtypes[name] = stored
        else:
            kind = real if of in reals else dtype
            x = case.add(name, shapes[of], kind, broadcast=False)
            if of == "a" and not writes:
                x.make_negative()
            if of == "intervals" and not writes:
                x.array[...] = abs(x.array)
    if "resets" not in case.arrays:
        case.more = False
    case.describe(call)
    native.call(
        call, {name: x.native for name, x in case.arrays.items()}, dtypes, dtype=dtype,
        shape=(batch, time, channels, states, groups), b_of_steps=b_of_steps, c_of_steps=c_of_steps,
        softplus=True, reverse=case.reverse, threads=rng.choice((1, 2, 5)), more_resets=case.more,
    )  # fmt: skip
    for x in case.arrays.values():
        x.check()


def run_conv1d(call, dtype, number):
    """Run a causal convolution of the C interface; `dtype` is the element type of its weights."""
    case = Case(number, dtype)
    rng = case.rng
    batch, time, channels = rng.choice((1, 2, 3)), rng.choice(LENGTHS), rng.choice(CHANNELS)
    width = rng.choice((1, 2, 3, 4, 4, 4, 9))
    stored = rng.choice(("float32", "bfloat16", "float16")) if dtype == "float32" else dtype
    before, after = (width - 1 + rng.choice((0, 0, 1, 5)) for _ in range(2))
    typed = {
        "x": (batch, time, channels), "out": (batch, time, channels),
        "initial_state": (batch, before, channels), "final_state": (batch, after, channels),
    }  # fmt: skip
    shapes, dtypes = {"weight": (channels, width), "bias": (channels,)}, {}
    for name in native.CALLS[call].arrays:
        of = primal_of(name)
        if of in ("bias", "initial_state", "final_state", "resets") and case.one_in(3):
            continue
        if of == "resets":
            case.add(name, (batch, time), "bool", broadcast=False)
        elif of in typed:
            case.add(name, typed[of], stored, broadcast=False)
            dtypes[name] = stored
        else:
            case.add(name, shapes[of], dtype, broadcast=False)
    case.describe(call)
    native.call(
        call, {name: x.native for name, x in case.arrays.items()}, dtypes, dtype=dtype,
        shape=(batch, time, channels, width, before, after), silu=case.one_in(2),
        threads=rng.choice((1, 2, 5)),
    )  # fmt: skip
    for x in case.arrays.values():
        x.check()


def run_numpy(call, dtype, number):
    """Run a NumPy function on views with random strides."""
    case = Case(number, dtype)
    for name in ("gate", "input", "state", "state_grad", "gate_tangent", "input_tangent"):
        case.add(name)
    boundary_states = ("initial_state", "final_grad", "initial_tangent")
    for name in boundary_states:
        if not case.one_in(3):
            case.boundary(name)
    case.resets()
    with_logarithms = call != "linear_scan_jvp" and not dtype.startswith("complex")
    log_gate, log_input = (with_logarithms and case.one_in(2) for _ in range(2))
    if log_gate:
        case.arrays["gate"].make_negative()
    case.describe(f"numpy.{call}, log_gate {log_gate}, log_input {log_input},")
    given = {
        name: x.view.squeeze(case.axis) if name in boundary_states else x.view
        for name, x in case.arrays.items()
    }
    if dtype == "bfloat16":
        given = {k: x.view(bfloat16) if x.dtype == "uint16" else x for k, x in given.items()}
    options = dict(axis=case.axis, reverse=case.reverse)
    options |= {name: given.get(name) for name in ("initial_state", "resets")}
    if with_logarithms:
        options |= {"log_gate": log_gate, "log_input": log_input}
    gate, input, state = given["gate"], given["input"], given["state"]
    with np.errstate(all="raise"):
        if call == "linear_scan":
            got = scanrec.linear_scan(gate, input, return_final=True, **options)
        elif call == "linear_scan_vjp":
            grads = given["state_grad"], given.get("final_grad")
            got = scanrec.linear_scan_vjp(gate, state, *grads, input=input, **options)
        else:
            tangents = (given.get(f"{name}_tangent") for name in ("gate", "input", "initial"))
            got = scanrec.linear_scan_jvp(gate, state, *tangents, return_final=True, **options)
    assert all(np.all(np.isfinite(x)) for x in got)
    for x in case.arrays.values():
        x.check()


CALLS = [
    *((call, dtype) for call in native.CALLS for dtype in DTYPES
      if not (call.startswith("gated") and dtype.startswith("complex"))
      and not (call.startswith("selective") and dtype.endswith("16"))
      and not (call.startswith("causal") and dtype not in ("float32", "float64"))),
    *((f"numpy.{call}", dtype) for call in ("linear_scan", "linear_scan_vjp", "linear_scan_jvp")
      for dtype in (*("float32", "float64", "complex128", "float16"),
                    *(("bfloat16",) if bfloat16 else ()))),
]  # fmt: skip


@pytest.mark.parametrize("call", sorted({call for call, _ in CALLS}))
def test_calls_access_no_memory_outside_their_arrays(call):
    ran = subprocess.run(
        [sys.executable, __file__, call, "150"], capture_output=True, text=True, timeout=600
    )
    assert ran.returncode == 0, f"{ran.stdout[-2000:]}\n{ran.stderr[-4000:]}"
    cases = [line for line in ran.stdout.splitlines() if ", case " in line]
    assert len(cases) == 150 * sum(call == of for of, _ in CALLS)


if __name__ == "__main__":
    for call, dtype in CALLS:
        if call != sys.argv[1]:
            continue
        runs = {"selective": run_selective, "causal": run_conv1d}
        run = runs.get(call.partition("_")[0], run_native)
        for number in range(int(sys.argv[2])):
            if call.startswith("numpy."):
                run_numpy(call.removeprefix("numpy."), dtype, number)
            else:
                run(call, dtype, number)

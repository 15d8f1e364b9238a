# SPDX-License-Identifier: BSD-3-Clause
"""Tests of native/xla_ffi.hpp, which declares XLA's foreign function interface as jaxlib does, and of
the GPU handlers that use it."""

import ctypes
import os
import shutil
import subprocess
from ctypes import c_char_p, c_int, c_int64, c_size_t, c_void_p
from pathlib import Path

import numpy as np
import pytest

import scanrec

jax = pytest.importorskip("jax", reason="JAX is not installed")

#: "our struct = XLA's struct: members". A member is "ours=theirs" where the names differ.
STRUCTS = """
version = XLA_FFI_Api_Version: major=major_version minor=minor_version
metadata = XLA_FFI_Metadata: struct_size api_version traits
metadata_extension = XLA_FFI_Metadata_Extension: base=extension_base data=metadata
buffer = XLA_FFI_Buffer: dtype data rank dimensions=dims
buffers = XLA_FFI_Args: size types items=args
buffers = XLA_FFI_Rets: size types items=rets
text = XLA_FFI_ByteSpan: data=ptr size=len
scalar = XLA_FFI_Scalar: dtype value
array = XLA_FFI_Array: dtype size data
attributes = XLA_FFI_Attrs: size types names values=attrs
error_create_args = XLA_FFI_Error_Create_Args: message code=errc
error_destroy_args = XLA_FFI_Error_Destroy_Args: which=error
stream_get_args = XLA_FFI_Stream_Get_Args: ctx stream
memory_allocate_args = XLA_FFI_DeviceMemory_Allocate_Args: ctx size alignment data
memory_free_args = XLA_FFI_DeviceMemory_Free_Args: ctx size data
schedule_args = XLA_FFI_ThreadPool_Schedule_Args: ctx task data
num_threads_args = XLA_FFI_ThreadPool_NumThreads_Args: ctx num_threads
api = XLA_FFI_Api: api_version error_create=XLA_FFI_Error_Create \
 error_destroy=XLA_FFI_Error_Destroy stream_get=XLA_FFI_Stream_Get \
 memory_allocate=XLA_FFI_DeviceMemory_Allocate memory_free=XLA_FFI_DeviceMemory_Free \
 schedule=XLA_FFI_ThreadPool_Schedule num_threads=XLA_FFI_ThreadPool_NumThreads
call_frame = XLA_FFI_CallFrame: api ctx stage operands=args results=rets attributes=attrs
"""

CONSTANTS = """
pred = XLA_FFI_DataType_PRED
s64 = XLA_FFI_DataType_S64
f16 = XLA_FFI_DataType_F16
f32 = XLA_FFI_DataType_F32
f64 = XLA_FFI_DataType_F64
c64 = XLA_FFI_DataType_C64
bf16 = XLA_FFI_DataType_BF16
c128 = XLA_FFI_DataType_C128
invalid_argument = XLA_FFI_Error_Code_INVALID_ARGUMENT
resource_exhausted = XLA_FFI_Error_Code_RESOURCE_EXHAUSTED
internal = XLA_FFI_Error_Code_INTERNAL
array_attribute = XLA_FFI_AttrType_ARRAY
scalar_attribute = XLA_FFI_AttrType_SCALAR
asks_for_metadata = XLA_FFI_Extension_Metadata
execute = XLA_FFI_ExecutionStage_EXECUTE
major_version = XLA_FFI_API_MAJOR
"""


def assertions():
    """Yield lines of C++ that compile only if the two headers agree."""
    for line in STRUCTS.replace("\\\n", "").strip().splitlines():
        names, members = line.split(":")
        ours, theirs = names.split(" = ")
        for member in members.split():
            mine, other = member.split("=") if "=" in member else (member, member)
            yield f"SAME({ours}, {mine}, {theirs}, {other})"
    for line in CONSTANTS.strip().splitlines():
        ours, theirs = line.split(" = ")
        yield f"static_assert(int(xla::{ours}) == int({theirs}));"


PROGRAM = """
#include <xla/ffi/api/c_api.h>
#include "xla_ffi.hpp"
namespace xla = scanrec::native::xla;
#define SAME(ours, mine, theirs, other) \\
  static_assert(offsetof(xla::ours, mine) == offsetof(theirs, other)); \\
  static_assert(sizeof(xla::ours::mine) == sizeof(theirs::other));
"""


def test_struct_layout_equals_that_of_jaxlib(tmp_path):
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler found")
    native = Path(__file__).parents[1] / "native"
    source = tmp_path / "layout.cpp"
    source.write_text(PROGRAM + "\n".join(assertions()) + "\n")
    include = [f"-I{jax.ffi.include_dir()}", f"-I{native}"]
    command = [compiler, "-std=c++20", "-fsyntax-only", *include, str(source)]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def struct(*fields):
    """Return a struct type of the interface: its size, a pointer to extensions, then `fields`."""
    head = [("struct_size", c_size_t), ("extensions", c_void_p)]
    return type("Struct", (ctypes.Structure,), {"_fields_": head + list(fields)})


Buffer = struct(("dtype", c_int), ("data", c_void_p), ("rank", c_int64), ("dims", c_void_p))
Buffers = struct(("size", c_int64), ("types", c_void_p), ("items", c_void_p))
Attributes = struct(
    ("size", c_int64), ("types", c_void_p), ("names", c_void_p), ("values", c_void_p)
)
Version = struct(("major", c_int), ("minor", c_int))
ErrorCreate = struct(("message", c_char_p), ("code", c_int))
StreamGet = struct(("ctx", c_void_p), ("stream", c_void_p))
Allocate = struct(("ctx", c_void_p), ("size", c_size_t), ("align", c_size_t), ("data", c_void_p))
Free = struct(("ctx", c_void_p), ("size", c_size_t), ("data", c_void_p))
Frame = struct(
    *[("api", c_void_p), ("ctx", c_void_p), ("stage", c_int)],
    *[("operands", Buffers), ("results", Buffers), ("attributes", Attributes)],
)


class Extension(ctypes.Structure):
    """The extension with which a runtime asks for the version."""

    _fields_ = [("struct_size", c_size_t), ("type", c_int), ("next", c_void_p), ("data", c_void_p)]


class Metadata(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("version", Version), ("traits", ctypes.c_uint32)]


class Runtime:
    """A stand-in for XLA's runtime that calls GPU handlers. Its device memory is host memory."""

    def __init__(self, has_memory=True, minor=1, stage=3):
        self.has_memory, self.stage = has_memory, stage
        self.errors, self.allocated, self.held = [], {}, []
        callback = ctypes.CFUNCTYPE(c_void_p, c_void_p)
        functions = (callback * 13)()  # handlers do not call those that stay null
        functions[0] = callback(self.error_create)
        functions[2] = callback(lambda args: None)  # error_destroy
        functions[4] = callback(self.stream_get)
        functions[9] = callback(self.memory_allocate)
        functions[10] = callback(self.memory_free)
        Api = struct(("version", Version), ("internal", c_void_p), ("functions", callback * 13))
        self.api = Api(version=Version(minor=minor), functions=functions)

    def error_create(self, args):
        error = ErrorCreate.from_address(args)
        self.errors.append((error.code, error.message.decode()))
        return 1

    def stream_get(self, args):
        StreamGet.from_address(args).stream = None

    def memory_allocate(self, args):
        if not self.has_memory:
            return 1
        asked = Allocate.from_address(args)
        asked.data = address = _address(memory := np.full(asked.size + 16, 0xFF, np.uint8))
        self.allocated[address] = memory

    def memory_free(self, args):
        del self.allocated[Free.from_address(args).data]

    def call(self, handler, operands, results, attributes):
        """Call a handler with arrays and attributes, as XLA does."""
        frame = Frame(api=ctypes.addressof(self.api), stage=self.stage)
        frame.operands, frame.results = self._buffers(operands), self._buffers(results)
        types, names, values = [], [], []
        for name, value in sorted(attributes.items()):
            types.append(1 if isinstance(value, list) else 3)
            names.append(self._keep(_TEXT(name.encode(), len(name))))
            values.append(self._keep(self._attribute(value)))
        frame.attributes.size = len(names)
        frame.attributes.types = self._keep((c_int * len(types))(*types))
        frame.attributes.names = self._keep((c_void_p * len(names))(*names))
        frame.attributes.values = self._keep((c_void_p * len(values))(*values))
        return handler(ctypes.byref(frame))

    def version_of(self, handler):
        """Return the version of the interface that a handler reports."""
        answer = Metadata()
        asked = Extension(type=1, data=ctypes.addressof(answer))
        frame = Frame(
            api=self.api and ctypes.addressof(self.api), extensions=ctypes.addressof(asked)
        )
        assert handler(ctypes.byref(frame)) is None
        assert answer.traits == 0
        return answer.version.major, answer.version.minor

    def _keep(self, value):
        self.held.append(value)
        return ctypes.addressof(value)

    def _buffers(self, arrays):
        items = []
        for x in arrays:
            dims = self._keep((c_int64 * x.ndim)(*x.shape))
            items.append(self._keep(Buffer(0, None, 11, _address(x), x.ndim, dims)))
        types, items = (c_int * len(items))(*len(items) * [1]), (c_void_p * len(items))(*items)
        return Buffers(0, None, len(arrays), self._keep(types), self._keep(items))

    def _attribute(self, value):
        if isinstance(value, list):
            data = self._keep((c_int64 * len(value))(*value))
            return _ARRAY(5, len(value), data)
        dtype, kind = {bool: (1, ctypes.c_bool), int: (5, c_int64), float: (12, ctypes.c_double)}[
            type(value)
        ]
        return _SCALAR(dtype, self._keep(kind(value)))


def _address(array):
    return array.ctypes.data


def _plain(*fields):
    return type("Struct", (ctypes.Structure,), {"_fields_": fields})


_TEXT = _plain(("data", c_char_p), ("size", c_size_t))
_SCALAR = _plain(("dtype", c_int), ("value", c_void_p))
_ARRAY = _plain(("dtype", c_int), ("size", c_size_t), ("data", c_void_p))


@pytest.fixture
def handler():
    """Return the GPU handler of the linear scan from a build for the emulator."""
    path = os.environ.get("SCANREC_EMULATED_CUDA")
    if not path:
        pytest.skip("SCANREC_EMULATED_CUDA is not set")
    function = ctypes.CDLL(path).scanrec_xla_cuda_linear_scan
    function.restype = c_void_p
    return function


SHAPE = (1, 3000, 2)
SCAN = {
    **{"axis": 1, "forget_bias": 0.0, "logarithms": 0, "operands": 0b11, "results": 0b1},
    **{"reverse": False, "shape": list(SHAPE), "stack": -1},
}


def scan_arrays():
    random = np.random.default_rng(0)
    gate, input = random.uniform(-1, 1, (2, *SHAPE)).astype(np.float32)
    return gate, input, np.empty_like(input)


def test_gpu_handler_runs_a_call_frame_and_frees_its_memory(handler):
    gate, input, state = scan_arrays()
    runtime = Runtime()
    assert runtime.call(handler, [gate, input], [state], SCAN) is None, runtime.errors
    want = scanrec.linear_scan(gate, input)
    np.testing.assert_allclose(state, want, rtol=2e-5, atol=2e-5)
    assert not runtime.allocated


def test_gpu_handler_reports_failed_allocations(handler):
    gate, input, state = scan_arrays()
    runtime = Runtime(has_memory=False)
    assert runtime.call(handler, [gate, input], [state], SCAN) == 1
    ((code, message),) = runtime.errors
    assert code == 8 and "memory" in message


def test_gpu_handler_rejects_stages_other_than_execution(handler):
    gate, input, state = scan_arrays()
    runtime = Runtime(stage=1)
    assert runtime.call(handler, [gate, input], [state], SCAN) == 1
    assert [code for code, _ in runtime.errors] == [3]


CHANGES = [{"axis": True}, {"operands": 0b111}, {"shape": [1, 3000]}, {"unknown": 1}]


@pytest.mark.parametrize("change", CHANGES)
def test_gpu_handler_rejects_invalid_call_frames(handler, change):
    gate, input, state = scan_arrays()
    runtime = Runtime()
    assert runtime.call(handler, [gate, input], [state], {**SCAN, **change}) == 1
    assert [code for code, _ in runtime.errors] == [3]


@pytest.mark.parametrize("stack, extent", [(0, 0), (0, 9), (7, 2)])
def test_gpu_handler_rejects_stacks_of_a_wrong_size_or_position(handler, stack, extent):
    gate, input, state = scan_arrays()
    runtime = Runtime()
    stacked = np.zeros((extent, *SHAPE), np.float32)
    assert runtime.call(handler, [stacked, input], [state], {**SCAN, "stack": stack}) == 1
    assert [code for code, _ in runtime.errors] == [3]


@pytest.mark.parametrize("minor, answer", [(1, 1), (3, 3), (9, 5)])
def test_handler_reports_the_older_of_both_interface_versions(handler, minor, answer):
    assert Runtime(minor=minor).version_of(handler) == (0, answer)


def test_handler_reports_the_oldest_version_to_a_runtime_without_one(handler):
    runtime = Runtime()
    runtime.api = None
    assert runtime.version_of(handler) == (0, 1)

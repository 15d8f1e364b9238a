# SPDX-License-Identifier: BSD-3-Clause
"""Fixtures that run GPU calls on the emulator or on a GPU.

SCANREC_EMULATED_CUDA names a build of libscanrec_cuda for the emulator of the C++ tests
(-DSCANREC_CUDA_ON_HOST=ON), whose calls take host arrays. Tests on a GPU are skipped if their
framework sees none.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from scanrec import _cuda, _native

ROUNDING = {
    **{"float32": 2e-5, "float64": 1e-13, "complex64": 2e-5, "complex128": 1e-13},
    **{"bfloat16": 3e-2, "float16": 4e-3},
}


@pytest.fixture(params=["emulator", "gpu"])
def device(request):
    """Return a function that runs a call on host arrays. A GPU gets copies of them."""
    if request.param == "emulator":
        request.getfixturevalue("emulated")
        return lambda call, arrays, *more, **problem: _cuda.call(
            call, {name: array_of(x) for name, x in arrays.items()}, *more,
            stream=None, allocate=Memory(), **problem,
        )  # fmt: skip
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available() or not _cuda.is_built():
        pytest.skip("no GPU, or no kernels for one")
    return partial(run_on_copies, torch)


def run_on_copies(torch, call, arrays, *more, **problem):
    held, copies = [], {}
    for name, x in arrays.items():
        reach = [(n - 1) * s for n, s in zip(x.shape, x.strides) if x.size]
        low, high = (sum(f(0, r) for r in reach) for f in (min, max))
        last = x.itemsize * (2 if is_real_part(x) else 1)
        bytes = (ctypes.c_uint8 * (high - low + last)).from_address(x.ctypes.data + low)
        host = torch.from_numpy(np.ctypeslib.as_array(bytes))
        held.append((host, host.cuda()))
        copies[name] = array_of(x)._replace(data=held[-1][1].data_ptr() - low)

    def allocate(bytes):
        held.append((None, torch.full((bytes,), 0xFF, dtype=torch.uint8, device="cuda")))
        return held[-1][1].data_ptr()

    stream = torch.cuda.current_stream().cuda_stream
    _cuda.call(call, copies, *more, stream=stream, allocate=allocate, **problem)
    for host, copy in held:
        if host is not None:
            host.copy_(copy)


@pytest.fixture
def emulated(monkeypatch):
    """Use the emulated library, whose kernels run on the host."""
    path = os.environ.get("SCANREC_EMULATED_CUDA")
    if not path:
        pytest.skip("SCANREC_EMULATED_CUDA is not set")
    library = _native.load(Path(path), "scanrec_cuda_", _native.GPU_CALLS)
    monkeypatch.setattr(_cuda, "library", lambda: library)


def is_real_part(x):
    """Return whether the strides are those of the real parts of complex numbers."""
    return x.dtype.kind in "fV" and x.ndim > 0 and x.strides[-1] == 2 * x.itemsize


class Memory:
    """Workspace filled with 0xFF bytes, to detect kernels that expect zeros."""

    def __init__(self):
        self.lent = []

    def __call__(self, bytes):
        self.lent.append(np.full(bytes + 16, 0xFF, np.uint8))
        return (self.lent[-1].ctypes.data + 15) // 16 * 16


def array_of(x):
    if isinstance(x, _native.Array):
        return x
    strides = [0 if n == 1 else s // x.itemsize for n, s in zip(x.shape, x.strides)]
    return _native.Array(x.ctypes.data, strides)


@pytest.fixture
def torch_on_emulator(emulated, monkeypatch):
    """Run CPU tensors through the GPU code path, on the emulator."""
    torch = pytest.importorskip("torch")
    from scanrec._torch import operators

    monkeypatch.setattr(operators, "_run_on_cpu", operators._run_on_gpu)
    monkeypatch.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=0))
    return torch


def numpy_dtype(name):
    if name == "bfloat16":
        return pytest.importorskip("ml_dtypes").bfloat16
    return np.dtype(name)


def assert_alike(got, want, dtype, terms=1):
    scale = ROUNDING[dtype] * terms
    for name in want:
        kind = np.complex128 if np.iscomplexobj(want[name]) else np.float64
        np.testing.assert_allclose(
            got[name].astype(kind), want[name].astype(kind), rtol=scale, atol=scale, err_msg=name
        )

# SPDX-License-Identifier: BSD-3-Clause
"""Tests that libscanrec_cuda gives the results of the CPU library, also in PyTorch and JAX."""

from __future__ import annotations

import ctypes
import math
from pathlib import Path

import numpy as np
import pytest
from conftest import MANY_AXES, Random, check_many_axes
from devices import Memory, array_of, assert_alike, numpy_dtype

from scanrec import _cuda, _native
from scanrec._op.gated.spec import GATES

GRADIENTS = {
    "linear_scan_vjp": {"gate": "gate_grad", "input": "input_grad"},
    "gated_scan_vjp": {name: f"{name}_grad" for name in GATES},
}
WIDE = {"bfloat16": "float32", "float16": "float32"}


def run_on_cpu(call, arrays, **problem):
    _native.call(call, {name: array_of(x) for name, x in arrays.items()}, **problem)


def both(device, call, dtype, shape, read, written, **problem):
    """Return the results of a call on the CPU and on a device, as dictionaries."""
    out = []
    for run in (run_on_cpu, device):
        results = {name: np.full_like(x, 77) for name, x in written.items()}
        options = dict(dtype=dtype, shape=shape, axis=1, **{"reverse": False, **problem})
        run(call, {**read, **results}, **options)
        out.append(results)
    return out


DTYPES = list(_native.DTYPES)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(2, 70, 33), (1, 1500, 2), (3, 1, 5)])
def test_linear_scans_equal_the_cpu(device, dtype, shape):
    random, kind = Random(1), numpy_dtype(dtype)
    boundary, edge_kind = (shape[0], 1, shape[2]), WIDE.get(dtype, dtype)
    gate, input, tangent, grad = (random(*shape, dtype=kind) for _ in range(4))
    first, final_grad = (random(*boundary, dtype=edge_kind) for _ in range(2))
    resets = random.booleans(shape[0], shape[1] + 1, 1)
    resets[0, -1] = True  # after the last step
    backwards = dict(reverse=True, more_resets=True)
    given = {"gate": gate, "initial_state": first, "resets": resets}
    written = {"state": np.empty_like(gate), "final_state": np.empty_like(first)}
    for options in ({}, backwards):
        want, got = both(
            device, "linear_scan", dtype, shape, {**given, "input": input}, written, **options
        )
        assert_alike(got, want, dtype)

    state = want["state"]
    written = {"gate_grad": gate, "input_grad": input, "initial_grad": first}
    read = {**given, "state": state, "state_grad": grad, "final_grad": final_grad}
    for plain in (False, True):
        options = dict(backwards, no_conjugate=True) if plain else {}
        want, got = both(device, "linear_scan_vjp", dtype, shape, read, written, **options)
        assert_alike(got, want, dtype, 4)

    written = {"state_tangent": gate, "final_tangent": first}
    read = {**given, "state": state, "gate_tangent": tangent, "input_tangent": input}
    want, got = both(device, "linear_scan_jvp", dtype, shape, read, written, **backwards)
    assert_alike(got, want, dtype, 4)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
@pytest.mark.parametrize("count", [2, 3, 4])
def test_pooling_equals_the_cpu(device, dtype, count):
    random, kind, shape = Random(count), numpy_dtype(dtype), (2, 70, 18)
    packed = random(*shape[:2], count * shape[2], dtype=kind, scale=2.0)
    pre = dict(zip(GATES, np.split(packed, count, -1)))
    first = random(2, 1, 18, dtype=WIDE.get(dtype, dtype))
    given = {**pre, "initial_state": first, "zoneout": random.booleans(*shape)}
    like = random(*shape, dtype=kind)
    written = {"output": like, "final_state": first} | ({"state": like} if count > 2 else {})
    want, got = both(device, "gated_scan", dtype, shape, given, written)
    assert_alike(got, want, dtype)

    read = {**given, "state": want["state" if count > 2 else "output"], "output_grad": like}
    written = {f"{name}_grad": like for name in pre} | {"initial_grad": first}
    want, got = both(device, "gated_scan_vjp", dtype, shape, read, written)
    assert_alike(got, want, dtype, 4)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("steps", [40, 300])  # 40: a thread per sequence; 300: split into tiles
def test_outputs_are_the_same_with_and_without_states(device, dtype, count, steps):
    """One kernel serves calls with and without states; calls with zoneout have another kernel."""
    random, kind, shape = Random(steps + count), numpy_dtype(dtype), (2, steps, 16)
    pre = {name: random(*shape, dtype=kind, scale=2.0) for name in GATES[:count]}
    for reset_mask in ({}, {"zoneout": random.booleans(*shape)}):
        outputs = []
        for names in (["output"], ["output", "state"]):
            written = {name: np.empty(shape, kind) for name in names}
            want, got = both(device, "gated_scan", dtype, shape, {**pre, **reset_mask}, written)
            assert_alike(got, want, dtype)
            outputs.append(got["output"].tobytes())
        assert outputs[0] == outputs[1]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("steps", [100, 300])
def test_pooling_from_checkpoints_equals_the_cpu(device, dtype, count, steps):
    random, kind, shape = Random(steps + count), numpy_dtype(dtype), (2, steps, 16)
    wide = WIDE.get(dtype, dtype)
    pre = {name: random(*shape, dtype=kind, scale=2.0) for name in GATES[:count]}
    given = {
        **pre,
        "initial_state": random(2, 1, 16, dtype=wide),
        "resets": random.booleans(2, steps, 1),
    }
    like = random(*shape, dtype=kind)
    kept = random(*_native.checkpoint_shape(shape, 1), dtype=wide)
    options = {"reverse": True, "forget_bias": 0.5}
    written = {"output": like, "checkpoints": kept}
    want, got = both(device, "gated_scan", dtype, shape, given, written, **options)
    assert_alike(got, want, dtype)
    read = {**given, "checkpoints": want["checkpoints"], "output_grad": like}
    written = {f"{name}_grad": like for name in pre} | {"initial_grad": given["initial_state"]}
    want, got = both(device, "gated_scan_vjp", dtype, shape, read, written, **options)
    assert_alike(got, want, dtype, 4)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
@pytest.mark.parametrize("logarithms", [1, 2, 3])
def test_logarithms_equal_the_cpu(device, dtype, logarithms):
    random, kind, shape = Random(logarithms), numpy_dtype(dtype), (2, 300, 18)
    gate = -np.abs(random(1, 1, 18, dtype="float32")).astype(kind)
    first, like = random(2, 1, 18, dtype=WIDE.get(dtype, dtype)), random(*shape, dtype=kind)
    given = {"gate": gate, "input": random(*shape, dtype=kind), "initial_state": first}
    written, options = {"state": like, "final_state": first}, {"logarithms": logarithms}
    want, got = both(device, "linear_scan", dtype, shape, given, written, **options)
    assert_alike(got, want, dtype)
    read = {**given, "state": want["state"], "state_grad": like}
    written = {"gate_grad": gate, "input_grad": like, "initial_grad": first}
    want, got = both(device, "linear_scan_vjp", dtype, shape, read, written, **options)
    assert_alike(got, want, dtype, 40)


@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 1, 2), (0, 3, 5)])
def test_summed_gradients_over_six_axes_equal_the_cpu(device, axes):
    """The six axes do not merge, so the library loops over some and accumulates the sums."""
    random, shape = Random(3), (2, 9, 3, 2, 2, 4)
    whole = random(*(n + 1 for n in shape), dtype="float32")[tuple(slice(0, n) for n in shape)]
    summed = tuple(1 if axis in axes else n for axis, n in enumerate(shape))
    gate = random(*summed, dtype="float32")
    state, _ = both(
        device, "linear_scan", "float32", shape, {"gate": gate, "input": whole}, {"state": whole}
    )
    read = {"gate": gate, "state": state["state"], "state_grad": whole}
    written = {"gate_grad": gate, "input_grad": whole}
    want, got = both(device, "linear_scan_vjp", "float32", shape, read, written)
    assert_alike(got, want, "float32", math.prod(shape) // gate.size)


def test_overlaps_across_looped_axes_are_detected(emulated):
    check_many_axes(
        lambda call, arrays: _cuda.call(
            call, {name: array_of(x) for name, x in arrays.items()},
            stream=None, allocate=Memory(), **MANY_AXES,
        )
    )  # fmt: skip


def test_the_gate_gradient_of_an_empty_batch_is_zero(device):
    empty, gate = np.empty((0, 5, 3), np.float32), np.empty((1, 5, 3), np.float32)
    want, got = both(
        device, "linear_scan_vjp", "float32", (0, 5, 3), {"gate": gate, "state_grad": empty, "state": empty},
        {"gate_grad": gate},
    )  # fmt: skip
    assert not got["gate_grad"].any() and not want["gate_grad"].any()


def test_failed_calls_raise_and_write_nothing(emulated):
    # The look-back over a long sequence needs workspace.
    x = [np.ones((1, 5000, 1), np.float32) for _ in range(3)]
    arrays = {name: array_of(x) for name, x in zip(("gate", "input", "state"), x)}
    problem = dict(dtype="float32", shape=x[0].shape, reverse=False)
    run = lambda axis, allocate: _cuda.call(
        "linear_scan", arrays, stream=None, allocate=allocate, axis=axis, **problem
    )
    with pytest.raises(ValueError, match="'axis': expected an axis below 3, got 7"):
        run(7, Memory())
    with pytest.raises(MemoryError):
        run(1, lambda _: None)

    def fail(_):
        raise KeyError("no memory of this kind")

    with pytest.raises(KeyError, match="of this kind"):
        run(1, fail)
    assert all((one == 1).all() for one in x)


def a_gpu_is_here():
    try:
        return ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
    except OSError:
        return False


def test_calls_without_a_gpu_raise():
    if not _cuda.is_built() or a_gpu_is_here():
        pytest.skip("the build has no kernels for GPUs, or a GPU is present")
    failed = []
    for dtype in ("float16", "float32"):  # a build may have only one of them
        x = [np.ones((2, 9, 3), dtype) for _ in range(3)]
        arrays = {name: array_of(x) for name, x in zip(("gate", "input", "state"), x)}
        with pytest.raises((RuntimeError, ValueError)) as raised:
            _cuda.call(
                "linear_scan", arrays, stream=None, allocate=Memory(), dtype=dtype,
                shape=(2, 9, 3), axis=1, reverse=False,
            )  # fmt: skip
        failed.append(str(raised.value))
    assert any("kernel launch: " in words and "CUDA" in words for words in failed)


def test_a_build_without_kernels_raises(monkeypatch):
    monkeypatch.setattr(_cuda, "PATH", Path("/nowhere/libscanrec_cuda.so"))
    with pytest.raises(RuntimeError, match="no kernels for GPUs .*-DSCANREC_CUDA=ON"):
        _cuda.library.__wrapped__()


# ---- PyTorch -------------------------------------------------------------------------------------


def torch_values(torch, device):
    """Return values and derivatives of linear scans and pooling in scanrec.torch, on a device."""
    import scanrec.torch as scans

    generator = torch.Generator().manual_seed(0)
    rand = lambda *shape: (torch.rand(*shape, generator=generator) - 0.5).to(device)
    booleans = lambda *shape: (torch.rand(*shape, generator=generator) < 0.2).to(device)
    leaf = lambda *shape: rand(*shape).requires_grad_()
    out = []

    def values(result, *leaves):
        results = result if isinstance(result, tuple) else (result,)
        loss = sum((r * r.detach().cos()).abs().sum() for r in results)
        grads = torch.autograd.grad(loss, leaves, create_graph=True)
        again = torch.autograd.grad(sum(g.square().sum().abs() for g in grads), leaves[0])
        out.extend(x.detach().cpu() for x in (*results, *grads, *again))

    gate, input, first = leaf(2, 300, 3), leaf(2, 300, 3), leaf(2, 3)
    values(scans.linear_scan(gate, input, first, return_final=True), gate, input, first)
    scale = leaf(3)
    resets = booleans(2, 300, 1)
    values(scans.linear_scan(scale, input, resets=resets, reverse=True), scale, input)
    tangent = torch.func.jvp(scans.linear_scan, (gate, input), (rand(2, 300, 3), rand(2, 300, 3)))
    out.extend(x.detach().cpu() for x in tangent)
    values(scans.linear_scan(-scale.square(), input, log_gate=True, log_input=True), scale, input)
    pre = leaf(2, 200, 6)
    values(scans.qrnn_pool(pre, memory="recompute", forget_bias=0.5), pre)
    for kind in ("f", "fo", "ifo"):
        pre = leaf(2, 40, 4 * len(kind) + 4)
        values(scans.qrnn_pool(pre, pool=kind, zoneout=booleans(2, 40, 4)), pre)
    return out


def test_pytorch_on_the_emulator_equals_the_cpu(torch_on_emulator, monkeypatch):
    torch = torch_on_emulator
    got = torch_values(torch, "cpu")
    monkeypatch.undo()
    for x, y in zip(got, torch_values(torch, "cpu"), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-4)


def test_pytorch_on_a_gpu_equals_the_cpu():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available() or not _cuda.is_built():
        pytest.skip("no GPU, or no kernels for one")
    want = torch_values(torch, "cpu")
    streams = [torch.cuda.current_stream(), torch.cuda.Stream()]
    for stream in streams:
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            got = torch_values(torch, "cuda")
        for x, y in zip(got, want, strict=True):
            torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-4)


# ---- JAX -----------------------------------------------------------------------------------------


def test_programs_for_gpus_and_cpus_have_the_same_calls():
    """Lowering for a GPU does not need one."""
    jax = pytest.importorskip("jax")
    if not _cuda.is_built():
        pytest.skip("no kernels for GPUs")
    from scanrec.jax import linear_scan

    loss = lambda a, u: linear_scan(a, u).sum()
    x = np.ones((2, 9, 3), np.float32)
    lower = lambda platform: (
        jax.jit(jax.grad(loss, (0, 1))).trace(x, x).lower(lowering_platforms=(platform,)).as_text()
    )
    calls = lambda text: [line.strip() for line in text.splitlines() if "@scanrec" in line]
    assert calls(lower("cuda")) == calls(lower("cpu")) != []


def jax_values(jax, device):
    import scanrec.jax as scans

    random = Random(0)
    put = lambda *shape: jax.device_put(random(*shape, dtype="float32"), device)
    gate, input, first = put(2, 300, 3), put(2, 300, 3), put(2, 3)
    resets = jax.device_put(random.booleans(2, 300, 1), device)
    pre = put(2, 40, 16)
    loss = lambda a, u, x: (scans.linear_scan(a, u, x, resets=resets) ** 2).sum()
    pooled = lambda pre: (scans.qrnn_pool(pre, pool="ifo") ** 2).sum()
    lean = lambda u: (scans.qrnn_pool(u, memory="recompute", forget_bias=1.0) ** 2).sum()
    logs = lambda a, u: (scans.linear_scan(a, u, log_gate=True, log_input=True) ** 2).sum()
    return jax.device_get([
        scans.linear_scan(gate, input, first, return_final=True),
        jax.jit(jax.grad(loss, (0, 1, 2)))(gate, input, first),
        jax.jit(jax.hessian(loss, 2))(gate, input, first),
        jax.jit(jax.vmap(jax.grad(loss), (0, None, None)))(put(4, 3), input, first),
        jax.jit(jax.value_and_grad(pooled))(pre),
        jax.jit(jax.value_and_grad(lean))(gate),
        jax.jit(jax.value_and_grad(logs, (0, 1)))(-first[0], input),
        jax.jit(lambda x: jax.jvp(pooled, (x,), (x,)))(pre),
    ])  # fmt: skip


def test_jax_on_a_gpu_equals_the_cpu():
    jax = pytest.importorskip("jax")
    try:
        gpu = jax.devices("cuda")[0]
    except RuntimeError:
        pytest.skip("no GPU that JAX sees")
    if not _cuda.is_built():
        pytest.skip("no kernels for GPUs")
    got, want = jax_values(jax, gpu), jax_values(jax, jax.devices("cpu")[0])
    for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-4)

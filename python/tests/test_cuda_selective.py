# SPDX-License-Identifier: BSD-3-Clause
"""Tests that selective scans on GPUs equal those on CPUs."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import Random
from devices import Memory, array_of, assert_alike, is_real_part, numpy_dtype

from scanrec import _cuda, _native

TYPED = ("u", "delta", "z", "b", "c")


def run_on_cpu(call, arrays, *more, **problem):
    _native.call(call, {name: array_of(x) for name, x in arrays.items()}, *more, **problem)


def arrays_of(stored, dtype, *, batch, steps, channels, states, groups, mixing):
    """Return the arrays that a scan reads, by name.

    `mixing` says whether B and C vary over time. If they vary and are complex, they are views of the
    real parts of arrays whose real and imaginary parts alternate.
    """
    random, narrow = Random(steps), numpy_dtype(stored)
    real, parts = np.zeros(0, dtype).real.dtype, 2 if dtype.startswith("complex") else 1
    sequence = lambda: random(batch, steps, channels, dtype=narrow)
    mixed = lambda of_steps: (
        random(batch, steps, groups, parts * states, dtype=narrow)[..., ::parts]
        if of_steps
        else random(channels, states, dtype=dtype)
    )
    a_values = random(channels, states, dtype=dtype)
    arrays = {
        **{"u": sequence(), "delta": sequence()},
        "a": (a_values - 2 * np.maximum(a_values.real, 0)).astype(dtype),
        **{"b": mixed(mixing[0]), "c": mixed(mixing[1])},
        **{"d": random(channels, dtype=real), "z": sequence()},
        "delta_bias": random(channels, dtype=real),
        "intervals": 1 + random(batch, steps, dtype=real) / 2,
        "initial_state": random(batch, channels, states, dtype=dtype),
        "resets": random.booleans(batch, steps + 1, 1),
    }
    arrays["u"] = np.ascontiguousarray(arrays["u"].swapaxes(1, 2)).swapaxes(1, 2)  # time-contiguous
    return arrays


def filled(like):
    """Return an array of the shape of `like` to write to: a view of real parts if `like` is one."""
    if is_real_part(like):
        return np.full((*like.shape[:-1], 2 * like.shape[-1]), 77, like.dtype)[..., ::2]
    return np.full(like.shape, 77, like.dtype)


def whole(x):
    """Return real and imaginary parts together if x is a view of real parts, and otherwise x."""
    return x.base if is_real_part(x) else x


@pytest.mark.parametrize("stored, dtype", [
    ("float32", "float32"), ("bfloat16", "float32"), ("float16", "float32"), ("float64", "float64"),
    ("float32", "complex64"), ("bfloat16", "complex64"), ("float64", "complex128"),
])  # fmt: skip
@pytest.mark.parametrize("shape", [
    dict(batch=2, steps=300, channels=6, states=5, groups=2, mixing=(True, True)),
    dict(batch=1, steps=1, channels=3, states=16, groups=1, mixing=(True, False)),
    dict(batch=2, steps=40, channels=4, states=2, groups=1, mixing=(False, False)),
])  # fmt: skip
def test_selective_scans_equal_the_cpu(device, stored, dtype, shape):
    given = arrays_of(stored, dtype, **shape)
    batch, steps, channels, states = (shape[n] for n in ("batch", "steps", "channels", "states"))
    kept = np.empty((batch, (steps - 1) // 128, channels, states), dtype)
    problem = dict(
        dtype=dtype,
        shape=(batch, steps, channels, states, shape["groups"]),
        **{f"{name}_of_steps": of for name, of in zip("bc", shape["mixing"])},
        **{"softplus": True, "more_resets": True},
    )
    types = {name: stored for name in TYPED if given[name].ndim > 2}
    types |= {f"{name}_grad": of for name, of in types.items()}
    types |= {"out": stored, "out_grad": stored}

    def both(call, read, written, **options):
        out = []
        for run in (run_on_cpu, device):
            results = {name: filled(x) for name, x in written.items()}
            run(call, {**read, **results}, types, **problem, **options)
            out.append({name: whole(x) for name, x in results.items()})
        return out

    for reverse in (False, True):
        written = {"out": given["u"], "final_state": given["initial_state"]}
        written |= {"checkpoints": kept} if kept.size else {}
        want, got = both("selective_scan", given, written, reverse=reverse)
        assert_alike(got, want, stored, 4)
        more = {"out_grad": given["delta"], "final_grad": given["initial_state"]}
        more |= {"checkpoints": want["checkpoints"]} if kept.size and reverse else {}
        gradients = {f"{name}_grad": x for name, x in given.items() if name != "resets"}
        gradients["initial_grad"] = gradients.pop("initial_state_grad")
        want, got = both("selective_scan_vjp", {**given, **more}, gradients, reverse=reverse)
        assert_alike(got, want, stored, 4 * steps)


def test_failed_calls_raise_and_write_nothing(emulated):
    x = arrays_of(
        "float32",
        "float32",
        batch=1,
        steps=300,
        channels=2,
        states=3,
        groups=1,
        mixing=(True, True),
    )
    x["out"] = np.full((1, 300, 2), 7, np.float32)
    arrays = {name: array_of(v) for name, v in x.items()}
    problem = dict(dtype="float32", shape=(1, 300, 2, 3, 1), softplus=True, reverse=False)
    problem |= dict(b_of_steps=True, c_of_steps=True, more_resets=True)
    lend = Memory()
    run = lambda call, arrays, allocate=lend, **other: _cuda.call(
        call, arrays, {}, stream=None, allocate=allocate, **{**problem, **other}
    )
    with pytest.raises(ValueError, match="'groups': expected 1 or more groups that divide"):
        run("selective_scan", arrays, shape=(1, 300, 2, 3, 4))
    with pytest.raises(ValueError, match="'dtype': expected a type of 32 bits or more"):
        run("selective_scan", arrays, dtype="float16")
    u_grad = np.full_like(x["out"], 7)
    adjoint = {n: v for n, v in arrays.items() if n != "out"}
    adjoint |= {"out_grad": array_of(x["delta"]), "u_grad": array_of(u_grad)}
    with pytest.raises(MemoryError):
        run("selective_scan_vjp", adjoint, lambda _: None)

    def fail(_):
        raise KeyError("no memory of this kind")

    with pytest.raises(KeyError, match="of this kind"):
        run("selective_scan_vjp", adjoint, fail)
    assert (x["out"] == 7).all() and (u_grad == 7).all()


# ---- PyTorch -------------------------------------------------------------------------------------


def torch_values(torch, device):
    """Return values and derivatives of the scan, and results of single steps, on a device."""
    import scanrec.torch as scans

    generator = torch.Generator().manual_seed(0)
    rand = lambda *shape: (torch.rand(*shape, generator=generator) - 0.5).to(device)
    reset_mask = (torch.rand(2, 140, generator=generator) < 0.1).to(device)
    u, delta, z, B, C = rand(2, 6, 140), rand(2, 6, 140), rand(2, 6, 140), *rand(2, 2, 3, 4, 140)
    B, C = B[:, :2], C[:, 1:]
    A, D, bias, first = -rand(6, 4).abs(), rand(6), rand(6), rand(2, 6, 4)
    times = rand(2, 140) + 1
    leaves = [x.requires_grad_() for x in (u, delta, A, B, C, D, z, bias, first, times)]
    turning = (A.detach() + 2j * rand(6, 4)).requires_grad_()
    parts = [torch.cat([x.detach()] * 2, -1).requires_grad_() for x in (B, C)]
    out = []
    for reverse, a, (b, c) in ((False, A, (B, C)), (True, A, (B, C)), (False, turning, parts)):
        results = scans.selective_scan(
            u, delta, a, b, c, D, z, bias, True, True, initial_state=first, intervals=times,
            resets=reset_mask, reverse=reverse,
        )  # fmt: skip
        loss = sum((x.abs() * x.detach().abs().cos()).sum() for x in results)
        given = (u, delta, a, b, c, D, z, bias, first, times)
        grads = torch.autograd.grad(loss, given, create_graph=True)
        again = torch.autograd.grad(sum(g.abs().square().sum() for g in grads), a)
        out.extend((*results, *grads, *again))
    rows = torch.tensor([2, 0], device=device)
    state, now = rand(3, 6, 4), [x.detach() for x in leaves]
    for options in ({}, {"state_batch_indices": rows}):
        held = state.clone() if options else state[:2].clone()
        y = scans.selective_state_update(
            held, now[0][..., 0], now[1][..., 0], now[2], now[3][..., 0], now[4][..., 0], now[5],
            now[6][..., 0], now[7], True, **options,
        )  # fmt: skip
        out.extend((y, held))
    return [x.detach().cpu() for x in out]


def test_pytorch_on_the_emulator_equals_the_cpu(torch_on_emulator, monkeypatch):
    torch = torch_on_emulator
    import scanrec.torch as scans

    got = torch_values(torch, "cpu")
    x = torch.ones(1, 2, 5)
    with pytest.raises(ValueError, match="'A': expected at most 256 states on a GPU"):
        scans.selective_scan(x, x, torch.ones(2, 300), torch.ones(2, 300), torch.ones(2, 300))
    monkeypatch.undo()
    for x, y in zip(got, torch_values(torch, "cpu"), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-4)


def test_pytorch_on_a_gpu_equals_the_cpu():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available() or not _cuda.is_built():
        pytest.skip("no GPU, or no kernels for one")
    for x, y in zip(torch_values(torch, "cuda"), torch_values(torch, "cpu"), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-4)


# ---- JAX -----------------------------------------------------------------------------------------


def jax_arguments(jax, device=None):
    random = Random(0)
    put = lambda x: jax.device_put(x.astype(np.float32), device)
    x = {name: put(random(2, 140, 6)) for name in ("u", "delta", "z")}
    x |= {name: put(random(2, 140, 2, 4)) for name in "BC"}
    x["A"] = put(-np.abs(random(6, 4)))
    return x | {name: put(random(6)) for name in ("D", "delta_bias")}


def jax_loss(jax):
    from scanrec.jax import selective_scan

    return lambda x: (selective_scan(**x, delta_softplus=True) ** 2).sum()


def test_programs_for_gpus_and_cpus_have_the_same_calls():
    """Lowering for a GPU does not need one."""
    jax = pytest.importorskip("jax")
    if not _cuda.is_built():
        pytest.skip("no kernels for GPUs")
    x, loss = jax_arguments(jax), jax.jit(jax.grad(jax_loss(jax)))
    lower = lambda platform: loss.trace(x).lower(lowering_platforms=(platform,)).as_text()
    calls = lambda text: [line.strip() for line in text.splitlines() if "@scanrec" in line]
    assert calls(lower("cuda")) == calls(lower("cpu")) != []


def test_jax_on_a_gpu_equals_the_cpu():
    jax = pytest.importorskip("jax")
    try:
        gpu = jax.devices("cuda")[0]
    except RuntimeError:
        pytest.skip("no GPU that JAX sees")
    if not _cuda.is_built():
        pytest.skip("no kernels for GPUs")
    values = lambda device: jax.device_get(
        jax.jit(jax.value_and_grad(jax_loss(jax)))(jax_arguments(jax, device))
    )
    got, want = values(gpu), values(jax.devices("cpu")[0])
    for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-4)

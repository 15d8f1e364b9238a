# SPDX-License-Identifier: BSD-3-Clause
"""Tests of the native library: C interface, instruction sets, threads, processes, symbols."""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from conftest import MANY_AXES, Random, check_many_axes, loop, run_alone

import scanrec
from scanrec import _native
from scanrec._op.conv1d.spec import CONV1D
from scanrec._op.gated.spec import GATED
from scanrec._op.linear.spec import LINEAR
from scanrec._op.selective.spec import SELECTIVE as SELECTIVE_SCAN

LIBRARIES = sorted(Path(_native.__file__).parent.glob("libscanrec*.so"))
BIG = (4, 5000, 64)


def scanned(seed=0):
    random = Random(seed)
    return scanrec.linear_scan(random(*BIG, scale=0.9), random(*BIG))


def test_show_config_prints_version_and_instruction_set(capsys):
    scanrec.show_config()
    text = capsys.readouterr().out
    assert scanrec.__version__ in text and _native.instruction_set() in text


def test_submodules_are_listed_and_imported_lazily():
    listing = """import sys, scanrec
frameworks = {"jax", "torch", "scipy"}
assert not frameworks & sys.modules.keys(), "import scanrec must not import a framework"
assert dir(scanrec) == sorted(scanrec.__all__)
assert scanrec.compat.__name__ == "scanrec.compat" and not hasattr(scanrec, "tensorflow")
assert dir(scanrec) == sorted([*scanrec.__all__, "compat"])
help(scanrec)
assert not frameworks & sys.modules.keys()"""
    shown = subprocess.run(
        [sys.executable, "-c", listing], capture_output=True, text=True, check=True
    ).stdout
    assert "linear_scan(" in shown and "\n    jax (package)\n" in shown


@pytest.mark.parametrize("call", [call for op in (LINEAR, GATED) for call in op.calls])
def test_errors_name_arrays_as_python_does(call):
    for name in call.arrays:
        arrays = {name: _native.Array(0, (2**62, 1))}
        with pytest.raises(ValueError, match=f"{call.name}: argument '{name}': expected strides"):
            _native.call(call.name, arrays, dtype="float64", shape=(3, 300), axis=1, reverse=False)


SELECTIVE = dict(
    dtype="float64", shape=(2, 3, 4, 5, 2), b_of_steps=True, c_of_steps=False, softplus=True,
    reverse=False,
)  # fmt: skip


def selective_arrays(random):
    """Return the input arrays of a selective scan with the sizes of SELECTIVE."""
    shapes = dict(u=(2, 3, 4), delta=(2, 3, 4), a=(4, 5), b=(2, 3, 2, 5), c=(4, 5), d=(4,))
    return {name: random(*shape) for name, shape in shapes.items()}


def run_selective(call, arrays, dtypes=(), **problem):
    given = {
        name: _native.Array(x.ctypes.data, [s // x.itemsize for s in x.strides])
        for name, x in arrays.items()
    }
    _native.call(call, given, dict(dtypes), **SELECTIVE | problem)


@pytest.mark.parametrize("call", [call.name for call in SELECTIVE_SCAN.calls])
def test_selective_errors_name_arrays_as_python_does(random, call):
    read = selective_arrays(random)
    for name in _native.CALLS[call].arrays:
        far = _native.Array(64, (2**62, 2**62, 2**62, 2**62))
        given = {k: _native.Array(x.ctypes.data, [1] * x.ndim) for k, x in read.items()}
        if call.endswith("vjp"):
            given["z"] = given["out_grad"] = given["u"]
        if name == "checkpoints":
            problem = SELECTIVE | {"shape": (2, 300, 4, 5, 2)}
        else:
            problem = SELECTIVE
        with pytest.raises(ValueError, match=f"^{call}: argument '{name}': expected strides"):
            _native.call(call, given | {name: far}, {}, **problem)


@pytest.mark.parametrize("call", [call.name for call in CONV1D.calls])
def test_conv1d_errors_name_arrays_as_python_does(random, call):
    shapes = dict(
        x=(2, 3, 5), weight=(5, 4), bias=(5,), initial_state=(2, 3, 5), out_grad=(2, 3, 5)
    )
    problem = dict(dtype="float64", shape=(2, 3, 5, 4, 3, 3), silu=True)
    read = {name: random(*shape) for name, shape in shapes.items()}
    given = {k: _native.Array(x.ctypes.data, [1] * x.ndim) for k, x in read.items()}
    names = _native.CALLS[call].arrays
    for name in names:
        arrays = {k: x for k, x in given.items() if k in names}
        arrays[name] = _native.Array(64, (2**62, 2**62, 2**62))
        with pytest.raises(ValueError, match=f"^{call}: argument '{name}': expected strides"):
            _native.call(call, arrays, {}, **problem)


def test_c_causal_conv1d_equals_a_numpy_sum(random):
    x, weight, out, final = random(1, 6, 2), random(2, 3), np.zeros((1, 6, 2)), np.zeros((1, 2, 2))
    arrays = dict(x=x, weight=weight, out=out, final_state=final)
    given = {
        name: _native.Array(a.ctypes.data, [s // a.itemsize for s in a.strides])
        for name, a in arrays.items()
    }
    problem = dict(dtype="float64", shape=(1, 6, 2, 3, 2, 2), silu=False)
    _native.call("causal_conv1d", given, {}, **problem)
    padded = np.concatenate([np.zeros((1, 2, 2)), x], 1)
    want = sum(weight[:, k] * padded[:, k : k + 6] for k in range(3))
    np.testing.assert_allclose(out, want, 1e-14)
    np.testing.assert_array_equal(final, x[:, 4:])


def test_c_selective_scan_equals_a_numpy_loop(random):
    x = selective_arrays(random)
    x["a"] = -abs(x["a"])
    out, final = np.zeros((2, 3, 4)), np.zeros((2, 4, 5))
    run_selective("selective_scan", x | {"out": out, "final_state": final})
    state, want = np.zeros((2, 4, 5)), np.zeros((2, 3, 4))
    step = np.log1p(np.exp(x["delta"]))
    b = x["b"].repeat(2, 2)
    for t in range(3):
        state = np.exp(step[:, t, :, None] * x["a"]) * state
        state += (step * x["u"])[:, t, :, None] * b[:, t]
        want[:, t] = (state * x["c"]).sum(-1) + x["d"] * x["u"][:, t]
    assert np.allclose(out, want, rtol=1e-12) and np.allclose(final, state, rtol=1e-12)
    # u, delta, z, the output, and B and C that vary over time may have a narrower dtype.
    narrow = {name: x[name].astype(np.float16) for name in ("u", "b")}
    narrow |= {name: v.astype(np.float32) for name, v in x.items() if name not in narrow}
    short = np.zeros((2, 3, 4), np.float16)
    of = dict.fromkeys((*("u", "b"), "out"), "float16")
    run_selective("selective_scan", narrow | {"out": short}, of, dtype="float32")
    assert np.allclose(short, want, rtol=5e-3, atol=5e-3)
    # The gradient of D is summed over batch and time.
    of_d = np.zeros(4)
    run_selective("selective_scan_vjp", x | {"out_grad": out, "d_grad": of_d})
    assert np.allclose(of_d, (out * x["u"]).sum((0, 1)), rtol=1e-12)


def test_selective_channels_have_the_same_bits_alone(random):
    sizes = dict(batch=1, time=40, channel=37, states=9)
    batch, time, channel, states = sizes.values()
    x = dict(
        u=random(batch, time, channel), delta=abs(random(batch, time, channel)),
        a=-abs(random(channel, states)), b=random(batch, time, 1, states), c=random(channel, states),
    )  # fmt: skip
    for dtype, stored in (("float64", "float64"), ("float32", "float32"), ("float32", "float16")):
        typed = {name: v.astype(stored if name in "ub" else dtype) for name, v in x.items()}
        out = np.zeros((batch, time, channel), dtype)
        of = dict.fromkeys("ub", stored)
        shape = (batch, time, channel, states, 1)
        run_selective("selective_scan", typed | {"out": out}, of, dtype=dtype, shape=shape)
        assert out.any()
        for i in (0, 20, 36):
            one = np.zeros((batch, time, 1), dtype)
            of_channel = {"u": np.s_[:, :, i : i + 1], "delta": np.s_[:, :, i : i + 1]}
            alone = {
                name: v if name == "b" else v[of_channel.get(name, np.s_[i : i + 1])]
                for name, v in typed.items()
            }
            shape = (batch, time, 1, states, 1)
            run_selective("selective_scan", alone | {"out": one}, of, dtype=dtype, shape=shape)
            assert np.array_equal(one[..., 0], out[..., i])


def test_c_selective_scan_rejects_invalid_arguments(random):
    x = selective_arrays(random)
    out = np.full((2, 3, 4), 7.0)
    for words, more, dtypes, problem in (
        ("'groups': expected 1 or more .* got 3 for 4", {}, {}, {"shape": (2, 3, 4, 5, 3)}),
        ("'states': expected 1 or more, got 0", {}, {}, {"shape": (2, 3, 4, 0, 2)}),
        ("'u': expected extents of 0 or more", {}, {}, {"shape": (-2, 3, 4, 5, 2)}),
        ("'dtype': .* 32 bits or more .*, got bfloat16", {}, {}, {"dtype": "bfloat16"}),
        ("'threads': expected 0 or more, got -1", {}, {}, {"threads": -1}),
        ("'u': expected float64, got scanrec_dtype 5", {}, {"u": "float16"}, {}),
        ("'c': expected float64, got scanrec_dtype 0", {}, {"c": "float32"}, {}),
        ("'out': expected memory apart from 'u'", {"out": x["u"][::-1]}, {}, {}),
    ):
        with pytest.raises(ValueError, match=f"selective_scan: argument {words}"):
            run_selective("selective_scan", x | {"out": out} | more, dtypes, **problem)
    for name in ("u", "delta", "a", "b", "c"):
        left = {k: v for k, v in x.items() if k != name}
        with pytest.raises(ValueError, match=f"argument '{name}': expected an array, got none"):
            run_selective("selective_scan", left | {"out": out})
    assert np.all(out == 7)


dispatched = pytest.mark.skipif(
    _native.instruction_set() == "native", reason="this build has one instruction set"
)


@dispatched
@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_lower_instruction_sets_pass_the_kernel_tests(level):
    environment = {**os.environ, "SCANREC_ISA": level}
    show = [sys.executable, "-c", "import scanrec; scanrec.show_config()"]
    shown = subprocess.run(show, env=environment, capture_output=True, text=True)
    if shown.returncode != 0:
        assert "SCANREC_ISA" in shown.stderr
        pytest.skip(f"this CPU or this build has no {level}")
    assert level in shown.stdout
    files = [
        str(Path(__file__).with_name(f"test_{name}.py")) for name in ("numpy", "gated_kernels")
    ]
    files.append(f"{__file__}::test_c_selective_scan_equals_a_numpy_loop")
    files.append(f"{__file__}::test_selective_channels_have_the_same_bits_alone")
    subprocess.run([sys.executable, "-m", "pytest", "-q", *files], env=environment, check=True)


@dispatched
def test_v3_and_v4_give_equal_bits():
    code = (
        "import sys; from test_native import scanned; import scanrec\n"
        "x = scanned(); g = scanrec.linear_scan_vjp(0.9, x, x)\n"
        "sys.stdout.buffer.write(x.tobytes() + g.gate.tobytes() + g.input.tobytes())"
    )
    here = str(Path(__file__).parent)
    path = os.pathsep.join([here, *filter(None, sys.path)])
    found = []
    for level in ("x86-64-v3", "x86-64-v4"):
        environment = {**os.environ, "SCANREC_ISA": level, "PYTHONPATH": path}
        run = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, check=False
        )
        if run.returncode != 0 and b"SCANREC_ISA" in run.stderr:
            pytest.skip(f"this CPU or this build has no {level}")
        assert run.returncode == 0, run.stderr
        found.append(run.stdout)
    assert len(found[0]) > 8 * 2 * np.prod(BIG) and found[0] == found[1]


@dispatched
def test_unknown_instruction_set_raises_runtime_error():
    environment = {**os.environ, "SCANREC_ISA": "x86-64-v9"}
    code = "import numpy, scanrec; scanrec.linear_scan(0.5, numpy.ones((3, 2)))"
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert run.returncode == 1 and "RuntimeError: SCANREC_ISA: expected an" in run.stderr


def test_bits_do_not_depend_on_threads(random):
    gate, input = random(*BIG, scale=0.9), random(*BIG)

    def run(threads):
        state = np.empty_like(input)
        array = lambda x: _native.Array(x.ctypes.data, [s // 8 for s in x.strides])
        _native.call(
            "linear_scan",
            {"gate": array(gate), "input": array(input), "state": array(state)},
            dtype="float64", shape=BIG, axis=1, reverse=False, threads=threads,
        )  # fmt: skip
        return state

    for threads in (0, 2):
        assert np.array_equal(run(threads), run(1))


def test_concurrent_calls_give_the_sequential_results():
    want = [scanned(seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(10):
            for got, expected in zip(pool.map(scanned, range(4)), want, strict=True):
                assert np.array_equal(got, expected)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_scans_work_in_child_processes(method):
    """A forked child cannot use its parent's thread pool, so it creates its own."""
    run_alone("test_native", f"scan_in_children({method!r})")


def scan_in_children(method):
    want = scanned()
    with multiprocessing.get_context(method).Pool(2) as pool:
        for got in pool.map_async(scanned, [0, 0, 0]).get(timeout=120):
            assert np.array_equal(got, want)


def test_c_linear_scan_rejects_invalid_arguments():
    with pytest.raises(ValueError, match="linear_scan: argument 'gate': expected an array"):
        _native.call("linear_scan", {}, dtype="float32", shape=[3], axis=0, reverse=False)
    with pytest.raises(ValueError, match="linear_scan: argument 'axis'"):
        _native.call("linear_scan", {}, dtype="float32", shape=[3], axis=1, reverse=False)
    status = _native._lib.scanrec_linear_scan(None, None)
    with pytest.raises(ValueError, match="'problem': expected a pointer, got null"):
        _native.raise_error(_native._lib, "scanrec_", status, "linear_scan")
    # Gradients that are sums are zeroed before the kernel runs, but only after all checks.
    buffer = np.full(3, 7.0)
    shape = [2, 2, 2, 2, 2, 5, 3]
    wide = _native.Array(buffer.ctypes.data, [0, 0, 0, 0, 0, 0, 1])
    null = _native.Array(0, [0, 0, 0, 0, 0, 0, 1])
    options = {"dtype": "float64", "shape": shape, "axis": 5, "reverse": False}
    other = np.ones(shape)
    full = _native.Array(other.ctypes.data, [s // 8 for s in other.strides])
    strided = _native.Array(other.ctypes.data, [0, 48, 0, 0, 0, 3, 1])
    for arrays, words in (
        ({"gate": full, "state_grad": strided, "gate_grad": wide}, "'state': expected an array"),
        ({"gate": full, "state": strided, "state_grad": full, "gate_grad": null}, "null pointer"),
    ):
        with pytest.raises(ValueError, match=words):
            _native.call("linear_scan_vjp", arrays, **options)
    assert np.all(buffer == 7)
    empty = {"dtype": "float64", "shape": [0, 5, 3], "axis": 1, "reverse": False}
    nothing = _native.Array(0, [15, 3, 1])
    sums = {"gate": nothing, "gate_grad": _native.Array(0, [0, 0, 1])}
    with pytest.raises(ValueError, match="null pointer"):
        _native.call("linear_scan_vjp", sums, **empty)
    # Products of extents and strides that overflow.
    far, step = 2**62, {"dtype": "float64", "axis": 1, "reverse": False}
    one = lambda *strides: _native.Array(buffer.ctypes.data, list(strides))
    with pytest.raises(ValueError, match="linear_scan: argument 'shape': expected fewer than 2.52"):
        _native.call("linear_scan", {"gate": one(0, 0, 0)}, shape=[2**40, 3, 2**40], **step)
    for shape in ([2, 3, 4], [0, 3, 4]):
        with pytest.raises(ValueError, match="argument 'gate': expected strides that stay within"):
            _native.call("linear_scan", {"gate": one(12, far, 1)}, shape=shape, **step)
        with pytest.raises(ValueError, match="argument 'gate_grad': expected strides that stay"):
            _native.call("linear_scan_vjp", {"gate_grad": one(0, 0, far)}, shape=shape, **step)
    # The library still works after these errors.
    assert np.array_equal(scanrec.linear_scan(1, np.ones(3), axis=0), [1, 2, 3])


def test_gate_gradient_sums_over_three_separate_broadcast_axes(random):
    shape, gate_shape = (2, 3, 2, 3, 8, 2, 3), (2, 1, 2, 1, 8, 1, 3)
    gate, input, w = random(*gate_shape), random(*shape), random(*shape)
    state = scanrec.linear_scan(gate, input, axis=4)
    assert np.allclose(state, loop(gate, input, axis=4)[0])
    full = scanrec.linear_scan_vjp(np.broadcast_to(gate, shape).copy(), state, w, axis=4).gate
    got = scanrec.linear_scan_vjp(gate, state, w, axis=4).gate
    assert np.allclose(got, full.sum((1, 3, 5), keepdims=True), rtol=1e-12)


def test_overlap_is_checked_over_all_axes():
    def array_of(x):
        if isinstance(x, _native.Array):
            return x
        strides = [0 if n == 1 else s // x.itemsize for n, s in zip(x.shape, x.strides)]
        return _native.Array(x.ctypes.data, strides)

    check_many_axes(
        lambda call, arrays: _native.call(
            call, {name: array_of(x) for name, x in arrays.items()}, **MANY_AXES
        )
    )


@pytest.mark.skipif(shutil.which("nm") is None, reason="needs nm")
@pytest.mark.parametrize("library", LIBRARIES, ids=lambda path: path.name)
def test_library_exports_only_the_c_interface(library):
    """Exported templates could clash with those of other libraries in the process."""
    shown = subprocess.run(
        ["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True
    )
    names = {line.split()[-1] for line in shown.stdout.splitlines()}
    assert names and all(re.fullmatch(r"scanrec_\w+", name) for name in names)
    needed = subprocess.run(
        ["nm", "-D", "--undefined-only", library], capture_output=True, text=True
    )
    assert not re.search(r"GOMP|omp_|\bPy[A-Z_]", needed.stdout)


def test_scans_work_after_a_keyboard_interrupt():
    """The interrupt takes effect between two calls."""
    run_alone("test_native", "scan_until_interrupted()")


def scan_until_interrupted():
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # shells may start processes with SIGINT ignored
    want = scanned()
    for delay in (0.1, 0.101, 0.1023, 0.1037):
        with pytest.raises(KeyboardInterrupt):
            threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT)).start()
            while True:
                scanned()
        assert np.array_equal(scanned(), want)


#: (shape, time axis): one with few axes, and one whose axes do not merge.
OVERLAPS = [((2, 70, 8), 1), ((2, 3, 2, 3, 9, 2), 4)]


@pytest.mark.parametrize("shape, axis", OVERLAPS)
@pytest.mark.parametrize("logarithms", [0, 1, 3])
@pytest.mark.parametrize(
    "call, shared, is_allowed",
    [
        ("linear_scan", ("state", "input"), {0}),
        ("linear_scan", ("state", "gate"), ()),
        ("linear_scan_vjp", ("input_grad", "state_grad"), {0}),
        ("linear_scan_vjp", ("gate_grad", "gate"), {1, 3}),
        ("linear_scan_vjp", ("gate_grad", "state"), ()),
    ],
)
def test_overlapping_arrays_are_accepted_or_rejected_by_name(
    call, shared, is_allowed, logarithms, shape, axis
):
    names = ["gate", "input", "state"]
    if call.endswith("vjp"):
        names += ["state_grad", "gate_grad", "input_grad"]
    wider = tuple(n + 1 for n in shape)
    inside = tuple(map(slice, shape))
    arrays = {name: np.full(wider, -0.5)[inside] for name in names}
    arrays[shared[0]] = arrays[shared[1]]
    described = {
        name: _native.Array(x.ctypes.data, [s // 8 for s in x.strides])
        for name, x in arrays.items()
    }
    problem = dict(dtype="float64", shape=shape, axis=axis, reverse=False, logarithms=logarithms)
    if logarithms in is_allowed:
        _native.call(call, described, **problem)
        return
    with pytest.raises(_native.ArgumentError) as error:
        _native.call(call, described, **problem)
    expected = f"argument '{shared[0]}': expected memory apart from '{shared[1]}'"
    assert f"{call}: {expected}, got memory that overlaps it" == str(error.value)

# SPDX-License-Identifier: BSD-3-Clause
"""Shared test helpers: reference loops, random arrays and checks of overlapping memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from devices import device, emulated, torch_on_emulator  # noqa: F401, fixtures

WIDE = {"f": np.longdouble, "c": np.clongdouble}


def loop(gate, input, initial_state=None, *, axis=-2, reverse=False, resets=None):
    """Compute states and final state step by step in long double."""
    kind = WIDE["c" if np.iscomplexobj(gate) or np.iscomplexobj(input) else "f"]
    shape = np.shape(input)
    steps_first = lambda x: np.moveaxis(np.broadcast_to(x, shape), axis, 0)
    gate, input = (steps_first(np.asarray(x, kind)) for x in (gate, input))
    reset_mask = np.zeros(shape, bool) if resets is None else np.asarray(resets)
    mask_shape = list(shape)  # with or without a reset after the last step
    mask_shape[axis] = reset_mask.shape[axis % len(shape) - len(shape)]
    reset = np.moveaxis(np.broadcast_to(reset_mask, mask_shape), axis, 0)
    state = np.zeros(input.shape[1:], kind)
    if initial_state is not None:
        state[...] = np.asarray(initial_state, kind)
    steps = range(len(input))
    out = np.empty_like(input)
    for t in reversed(steps) if reverse else steps:
        # A reset at t stops the carry between t - 1 and t in both directions.
        mark = t + 1 if reverse else t
        carried = gate[t] * state
        if mark < len(reset):
            carried = np.where(reset[mark], 0, carried)
        state = out[t] = carried + input[t]
    return np.moveaxis(out, 0, axis), state


def derivative(function, step):
    """Return the derivative at 0 of a function of a number, by fourth-order differences."""
    ahead, behind = (8 * function(sign * step) - function(2 * sign * step) for sign in (1, -1))
    return (ahead - behind) / (12 * step)


class SlowDecay:
    """A linear scan of float32 arrays (T, 1) with log gates of -1e-4, and its long double results.

    Inputs and cotangents are random, so rounding errors of states have both signs. Rounding the
    gate, which is close to 1, has the same error at every step. It changes results by up to 2e-4 of
    the largest one.
    """

    #: Allowed error relative to the largest result. It covers 140 roundings in a pack of 64 steps.
    tolerance = 1e-5
    #: Allowed error with lanes along channels, where every step rounds the state.
    tolerance_of_channels = 4e-5

    def __init__(self, reverse=False, steps=100_000):
        drawn = np.random.default_rng(5)
        self.gate = np.full((steps, 1), -1e-4, np.float32)
        self.input = drawn.random((steps, 1), np.float32)
        self.grad = drawn.random((steps, 1), np.float32)
        exact = np.exp(self.gate.astype(np.longdouble))
        self.state = loop(exact, self.input, reverse=reverse)[0]
        self.input_grad = loop(exact, self.grad, reverse=not reverse)[0]  # all gates are equal
        end = -1 if reverse else 0
        self.initial_grad = exact[end] * self.input_grad[end]
        none = np.zeros((1, 1))
        before = (self.state[1:], none) if reverse else (none, self.state[:-1])
        self.gate_grad = exact * np.concatenate(before) * self.input_grad
        # The tangent of the states for log gate tangents of 1.
        self.tangent = loop(exact, exact * np.concatenate(before), reverse=reverse)[0]

    def of_channels(self):
        """Return gate, input and cotangent as (4, T, 16), for lanes along channels."""
        given = (self.gate, self.input, self.grad)
        return [np.repeat(np.repeat(x[None], 16, 2), 4, 0) for x in given]

    def close(self, got, name):
        got, want = np.asarray(got), getattr(self, name)
        tolerance = self.tolerance if got.ndim < 3 else self.tolerance_of_channels
        return np.max(np.abs(got - want)) <= tolerance * np.max(np.abs(want))


#: Shapes of one sequence (twice), of 64 channels, and of a batch of 4 with 16 channels.
SLOW_SUMS = ((100_000,), (100_000, 1), (100_000, 64), (4, 100_000, 16))


def check_slow_sum(scan, shape):
    """Check the final state for float32 log gates of -1e-4 and inputs of 1.

    The exact state is 10000.046. scan(gate, input, axis) returns all states. For one sequence, the
    tolerance is that of SlowDecay.

    For several sequences, the tolerance is the bound of docs/numerics.md with P = 3, for machines
    without fused multiply-adds: a relative error of 1.8e-3. With lanes along channels, every step
    may round the state in the same direction. Rounded gates cause an error of only 2.2e-4, which
    this bound allows. For several sequences, only the tests with SlowDecay.of_channels detect them.
    """
    axis = shape.index(100_000)
    got = np.asarray(scan(np.full(shape, -1e-4, np.float32), np.ones(shape, np.float32), axis))
    log, eps = np.longdouble(np.float32(-1e-4)), np.longdouble(2) ** -24
    total = lambda log: np.expm1(100_000 * log) / np.expm1(log)
    exact = total(log)
    assert abs(exact - 10000.046) < 1e-3
    bound = (1 + eps) ** 5 * total(log - 3 * eps * log + 3 * np.log1p(eps)) - exact
    if np.prod(shape) == 100_000:
        bound = SlowDecay.tolerance * exact
    error = np.max(np.abs(np.take(got, -1, axis) - exact))
    assert got.dtype == np.float32 and error <= bound, (error, bound)


def pooled(pre, initial_state=None, *, reverse=False, resets=None, zoneout=None):
    """Compute outputs, states and final state of QRNN pooling of (..., T, C) in long double."""
    sigmoid = lambda x: 1 / (1 + np.exp(-x))
    candidate, forget, *others = (np.asarray(x, np.longdouble) for x in pre)
    gate = np.broadcast_to(sigmoid(forget), candidate.shape)
    input = (sigmoid(others[1]) if len(others) > 1 else sigmoid(-forget)) * np.tanh(candidate)
    if zoneout is not None:
        gate, input = np.where(zoneout, 1, gate), np.where(zoneout, 0, input)
    state, final = loop(gate, input, initial_state, reverse=reverse, resets=resets)
    return (sigmoid(others[0]) * state if others else state), state, final


def run_alone(module, call):
    """Run a call of a test module in a new interpreter.

    A call that forks may hang in a process with threads of other libraries, such as JAX.
    """
    code = f"import {module}; {module}.{call}"
    here = str(Path(__file__).parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([here, *filter(None, sys.path)])}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=300)


# Six axes that do not merge. The library loops over the two shortest (the first and the fourth).
MANY_AXES = {"dtype": "float64", "shape": (2, 3, 4, 2, 5, 3), "axis": 4, "reverse": False}


def apart(random, *, boundary=False, by=0):
    """Return two views of one buffer, `by` positions apart along axis 0, with the MANY_AXES shape.

    With `boundary`, the shape is that of an initial or final state.
    """
    shape = [1 if boundary and i == 4 else n for i, n in enumerate(MANY_AXES["shape"])]
    buffer = random(*(n + 1 for n in shape))
    at = lambda start: (slice(start, start + shape[0]), *(slice(0, n) for n in shape[1:]))
    return buffer[at(0)], buffer[at(by)]


def overlapping_calls():
    """List (call, arrays read, (array written, array read whose memory it may reuse))."""
    pre = ("candidate", "forget_gate", "output_gate")
    boundary_states = ("initial_state", "final_state"), ("initial_grad", "final_grad")
    return [
        ("linear_scan", ("gate", "input"), ("state", "input")),
        ("linear_scan", ("gate", "input", "initial_state"), ("final_state", "initial_state")),
        ("linear_scan_vjp", ("gate", "state", "state_grad"), ("input_grad", "state_grad")),
        ("linear_scan_vjp", ("gate", "state", "state_grad", "final_grad"), boundary_states[1]),
        ("linear_scan_jvp", ("gate", "input_tangent"), ("state_tangent", "input_tangent")),
        ("linear_scan_jvp", ("gate", "initial_tangent"), ("final_tangent", "initial_tangent")),
        ("gated_scan", (*pre, "initial_state"), boundary_states[0][::-1]),
        ("gated_scan_vjp", (*pre, "state", "output_grad"), ("forget_gate_grad", "forget_gate")),
    ]


def check_many_axes(run):
    """Check that overlaps are detected across the outer axes that the library loops over.

    run(call, arrays by name) runs a call with MANY_AXES.
    """
    from scanrec import _native

    is_boundary = lambda name: name.startswith(("initial", "final"))

    def arrays_of(call, read, pair, by, spare=None):
        random = Random(7)
        arrays = {name: apart(random, boundary=is_boundary(name))[0] for name in read}
        of = "output" if call == "gated_scan" else "state"
        if call in ("linear_scan", "gated_scan"):
            arrays[of] = apart(random)[0]
        written, other = pair
        given, over = apart(random, boundary=is_boundary(other), by=by)
        return arrays | {other: given, written: over.copy() if spare else over}

    for call, read, pair in overlapping_calls():
        # A call in place must equal a call with separate memory.
        want = arrays_of(call, read, pair, 0, spare=True)
        run(call, want)
        got = arrays_of(call, read, pair, 0)
        run(call, got)
        assert got[pair[0]].any() and np.array_equal(got[pair[0]], want[pair[0]]), (call, pair)
        # An offset of one position along an outer axis raises an error, and nothing is written.
        arrays = arrays_of(call, read, pair, 1)
        kept = {name: x.copy() for name, x in arrays.items()}
        with pytest.raises(ValueError, match=f"'{pair[0]}'.*apart from '{pair[1]}'.*in place"):
            run(call, arrays)
        assert all(np.array_equal(x, kept[name]) for name, x in arrays.items())

    # These pairs may neither be one array nor overlap with an offset of one position.
    for call, read, pair in (
        ("linear_scan", ("gate", "input"), ("state", "gate")),
        ("linear_scan_vjp", ("gate", "state", "state_grad"), ("gate_grad", "state")),
        ("linear_scan_vjp", ("gate", "state", "state_grad", "gate_grad"), ("input_grad", "gate_grad")),
        ("linear_scan_jvp", ("gate", "state", "gate_tangent"), ("state_tangent", "state")),
        ("gated_scan", ("candidate", "forget_gate"), ("output", "candidate")),
        ("gated_scan_vjp", ("candidate", "forget_gate", "state"), ("candidate_grad", "state")),
    ):  # fmt: skip
        for by in (0, 1):
            arrays = arrays_of(call, read, pair, by)
            kept = {name: x.copy() for name, x in arrays.items()}
            with pytest.raises(ValueError, match="memory that overlaps it"):
                run(call, arrays)
            assert all(np.array_equal(x, kept[name]) for name, x in arrays.items())

    # Interleaved slices do not overlap, with any number of axes.
    shape = MANY_AXES["shape"]
    for names in (("gate", "input", "state"), ("gate", "state", "input")):
        buffer = Random(8)(*shape[:-1], 3 * shape[-1])[..., ::-1]
        shared = dict(zip(names, (buffer[..., i::3] for i in range(3))))
        alone = {name: x.copy() for name, x in shared.items()}
        run("linear_scan", shared)
        run("linear_scan", alone)
        assert all(np.array_equal(x, alone[name]) for name, x in shared.items())

    # Every element of an output needs its own address.
    whole, (gate, _) = np.full((4, 4, 5, 3, 6, 4), 7.0), apart(Random(9))
    strides = [s // 8 for s in whole.strides]
    for outer, words in ((0, "own address"), (strides[1], "nest"), (2**61, "address space")):
        for name, read in (("state", "input"), ("input_grad", "state_grad")):
            if outer == 0 and name == "input_grad":
                continue  # a stride of 0 requests the sum
            state = _native.Array(whole.ctypes.data, [outer, *strides[1:]])
            call = "linear_scan" if name == "state" else "linear_scan_vjp"
            with pytest.raises(ValueError, match=f"'{name}'.*{words}"):
                run(call, {"gate": gate, read: gate, name: state})
    assert np.all(whole == 7)


class Random:
    """Random arrays from a fixed seed."""

    def __init__(self, seed=0):
        self.generator = np.random.default_rng(seed)

    def __call__(self, *shape, dtype=np.float64, scale=1.0):
        dtype = np.dtype(dtype)
        x = self.generator.uniform(-scale, scale, shape)
        if dtype.kind == "c":
            x = x + 1j * self.generator.uniform(-scale, scale, shape)
        return np.asarray(x).astype(dtype)

    def booleans(self, *shape):
        return self.generator.random(shape) < 0.2


@pytest.fixture
def random():
    return Random()

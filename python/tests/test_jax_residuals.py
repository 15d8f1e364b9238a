# SPDX-License-Identifier: BSD-3-Clause
"""Tests of the residuals that a call keeps for its gradients.

If only some operands are differentiated, a call keeps fewer arrays and gives the same gradients.
"""

from __future__ import annotations

import re
from functools import partial

import numpy as np
import pytest
from conftest import Random

jax = pytest.importorskip("jax", reason="JAX is not installed")
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_num_cpu_devices", 8)

import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from scanrec.jax import linear_scan, qrnn_pool, selective_scan

B, T, C, N = 2, 140, 4, 3  # more than 128 steps, so there are checkpoints
random = Random(5)
X, F, OUT, INTO = (random(B, T, C) for _ in range(4))
FIRST, GATE = random(B, C), random(C)


def kept(f, *operands):
    """Count the arrays kept by jax.vjp that have at least one number per step and sequence."""
    counts = set()
    for call in (f, jax.jit(f)):
        pullback = jax.vjp(call, *operands)[1]
        leaves = {id(x): x for x in jax.tree.leaves(pullback) if hasattr(x, "shape")}
        counts.add(sum(x.size >= B * T for x in leaves.values()))
    assert len(counts) == 1, counts
    return counts.pop()


def pool(kind, **options):
    def call(*pre, first=None):
        return qrnn_pool(pre, first, pool=kind, **options)

    return call


def logarithms(**options):
    return lambda gate, input, first=None: linear_scan(gate, input, first, **options)


# (call, operands, positions of the differentiated operands, number of arrays that are kept)
KEPT = {
    "linear, input, constant gate": (linear_scan, (GATE, X), "1", 0),
    "linear, input": (linear_scan, (F, X), "1", 1),  # the gate
    "linear, gate": (linear_scan, (F, X), "0", 2),  # the gate, the states
    "linear, gate and input": (linear_scan, (F, X), "01", 2),
    "linear, constant gate": (linear_scan, (GATE, X), "0", 1),
    "linear, first state": (linear_scan, (F, X, FIRST), "2", 1),
    "linear, first state, constant gate": (linear_scan, (GATE, X, FIRST), "2", 0),
    "log_input, input, constant gate": (logarithms(log_input=True), (GATE, X), "1", 1),
    "log_input, input": (logarithms(log_input=True), (F, X), "1", 2),
    "log_input, all": (logarithms(log_input=True), (F, X), "01", 3),
    "log_input, first state": (logarithms(log_input=True), (F, X, FIRST), "2", 1),
    "log_gate, input, constant gate": (logarithms(log_gate=True), (GATE, X), "1", 0),
    "log_gate, input": (logarithms(log_gate=True), (F, X), "1", 1),
    "log_gate, first state": (logarithms(log_gate=True), (F, X, FIRST), "2", 1),
    "both logarithms, input": (logarithms(log_gate=True, log_input=True), (F, X), "1", 2),
    "f, candidate, constant gate": (pool("f"), (X, GATE), "0", 1),
    "f, candidate": (pool("f"), (X, F), "0", 2),
    "f, forget gate": (pool("f"), (X, F), "1", 3),
    "f, all": (pool("f"), (X, F), "01", 3),
    "f, candidate, recompute": (pool("f", memory="recompute"), (X, F), "0", 2),
    "fo, candidate": (pool("fo"), (X, F, OUT), "0", 3),
    "fo, all": (pool("fo"), (X, F, OUT), "012", 4),
    "ifo, candidate and input gate": (pool("ifo"), (X, F, OUT, INTO), "03", 4),
    "ifo, all": (pool("ifo"), (X, F, OUT, INTO), "0123", 5),
}


@pytest.mark.parametrize("case", KEPT)
def test_calls_keep_only_arrays_that_the_gradients_need(case):
    call, operands, wanted, expected = KEPT[case]
    assert kept(*of_some(call, operands, wanted)) == expected


def of_some(call, operands, wanted):
    """Return the call as a function of the wanted operands, then these operands."""
    at = [int(i) for i in wanted]

    def f(*values):
        every = list(operands)
        for i, value in zip(at, values):
            every[i] = value
        return call(*every)

    return f, *(operands[i] for i in at)


def test_chained_scans_with_a_constant_gate_keep_nothing():
    def chained(scan):
        def f(x):
            for _ in range(8):
                x = scan(x)
            return x

        return f

    assert kept(chained(partial(jnp.cumsum, axis=1)), X) == 0
    assert kept(chained(partial(linear_scan, 0.9)), X) == 0
    assert kept(chained(partial(linear_scan, -0.1, log_gate=True)), X) == 0


def test_a_selective_scan_keeps_its_operands_and_checkpoints():
    """Every gradient keeps all operands and checkpoints, because one kernel computes all gradients.

    `kept` counts the four operands with a time axis. The others are too small, and so are
    checkpoints, of which there is one per 128 steps.
    """
    u, delta = X, jnp.abs(F)
    b, c = jnp.asarray(random(B, T, N)), jnp.asarray(random(B, T, N))
    operands = u, delta, -jnp.ones((C, N)), b, c, jnp.ones(C)
    for i in range(len(operands)):
        assert kept(*of_some(selective_scan, operands, str(i))) == 4


OPTIONS = [
    {"reverse": True, "resets": random.booleans(B, T + 1, 1)},
    {"initial_state": FIRST, "return_final": True},
]
CALLS = {
    "log_input": (lambda f, x, **o: linear_scan(f, x, log_input=True, **o), (F, X), "1"),
    "log_gate": (lambda f, x, **o: linear_scan(-abs(f), x, log_gate=True, **o), (F, X), "1"),
    "f": (lambda *pre, **o: qrnn_pool(pre, pool="f", **o), (X, F), "0"),
    "f, constant gate": (lambda *pre, **o: qrnn_pool(pre, pool="f", **o), (X, GATE), "0"),
    "fo, recompute": (lambda *p, **o: qrnn_pool(p, memory="recompute", **o), (X, F, OUT), "0"),
    "ifo": (
        lambda *pre, **o: qrnn_pool(
            pre, pool="ifo", zoneout=Random(6).booleans(B, T, C), forget_bias=0.5, **o
        ),
        (X, F, OUT, INTO),
        "03",
    ),
}


@pytest.mark.parametrize("options", range(len(OPTIONS)))
@pytest.mark.parametrize("call", CALLS)
def test_gradients_of_some_operands_equal_those_of_all(call, options):
    call, operands, wanted = CALLS[call]
    options, at = OPTIONS[options], [int(i) for i in wanted]
    loss = lambda *x: sum(jnp.sum(jnp.sin(y)) for y in jax.tree.leaves(call(*x, **options)))
    of_all = jax.grad(loss, tuple(range(len(operands))))
    of_these = jax.grad(loss, tuple(at))
    want = [jax.jit(of_all)(*operands)[i] for i in at]
    same(jax.jit(of_these)(*operands), want)
    same(of_these(*operands), want)
    # Forward mode, second derivatives in all operands, and a batch.
    f, *some = of_some(loss, operands, wanted)
    moves = tuple(jnp.cos(x) for x in operands)
    forward = jax.jit(partial(jax.jvp, f))(tuple(some), tuple(moves[i] for i in at))[1]
    same(forward, sum(jnp.vdot(x, moves[i]) for i, x in zip(at, want)))
    second = jax.jit(partial(jax.jvp, of_these))(operands, moves)[1]
    by_all = jax.jit(partial(jax.jvp, of_all))(operands, moves)[1]
    same(second, [by_all[i] for i in at])
    batch = jax.jit(jax.vmap(of_these))(*(jnp.stack([-x, x]) for x in operands))
    same([x[1] for x in batch], want)


def same(got, want):
    got, want = jax.tree.leaves(got), jax.tree.leaves(want)
    assert len(got) == len(want)
    for x, y in zip(got, want):
        assert x.shape == y.shape and x.dtype == y.dtype
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9)


def test_gradient_of_the_initial_state_alone_keeps_no_array():
    """The gradient is a product of gates, which are constant here."""
    scan = lambda first: linear_scan(GATE, X, first, log_input=True, return_final=True)[1]
    assert kept(scan, FIRST) == 0
    gate = 4 + GATE
    pooled = lambda first: qrnn_pool((X, gate), first, pool="f", return_final=True)[1]
    assert kept(pooled, FIRST) == 0
    product = jax.nn.sigmoid(gate) ** T
    assert jnp.max(product) > 1e-3
    same(jax.vjp(pooled, FIRST)[1](FIRST)[0], product * FIRST)


def test_gradient_without_states_runs_one_adjoint_kernel():
    loss = lambda x: jnp.sum(linear_scan(GATE, x, log_input=True) ** 2)
    compiled = jax.jit(jax.grad(loss)).lower(X).compile().as_text()
    calls = re.findall(r'custom_call_target="scanrec_(\w+)_v1"', compiled)
    assert calls == ["linear_scan", "linear_scan_vjp"]


@pytest.mark.skipif(not hasattr(jax, "set_mesh"), reason="needs JAX 0.7")
@pytest.mark.parametrize("gate", [F, GATE], ids=["full", "constant"])
def test_sharded_gradients_without_states_equal_one_device(gate):
    losses = [
        lambda x, gate: jnp.sum(linear_scan(gate, x, log_input=True) ** 3),
        lambda x, gate: jnp.sum(linear_scan(-abs(gate), x, log_gate=True) ** 3),
        lambda x, gate: jnp.sum(qrnn_pool((x, gate), pool="f") ** 3),
    ]
    mesh = jax.make_mesh((2,), ("d",), axis_types=(jax.sharding.AxisType.Explicit,))
    for loss in losses:
        want = jax.grad(loss)(X, gate)
        with jax.set_mesh(mesh):
            split = NamedSharding(mesh, PartitionSpec("d"))
            at = jax.device_put(
                gate, split if gate.ndim == 3 else NamedSharding(mesh, PartitionSpec())
            )
            got = jax.jit(jax.grad(loss))(jax.device_put(X, split), at)
        same(got, want)

# SPDX-License-Identifier: BSD-3-Clause
"""Tests that scans with time split over JAX devices equal scans of the whole sequence."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from conftest import SlowDecay

jax = pytest.importorskip("jax", reason="JAX is not installed")
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_num_cpu_devices", 8)

import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import scanrec.jax
from scanrec._op.linear import jax_split_time

linear_scan = scanrec.jax.linear_scan
BATCH, STEPS, CHANNELS = 2, 32, 3
OVER_TIME = P(None, "t")

shard_map = getattr(jax, "shard_map", None)
if shard_map is None:  # the older one's replication check rejects custom derivatives
    from jax.experimental.shard_map import shard_map

    shard_map = partial(shard_map, check_rep=False)


def mesh_of(shape, names, kind="Auto"):
    types = getattr(jax.sharding, "AxisType", None)
    devices = jax.devices()[: int(np.prod(shape))]
    more = {"axis_types": (getattr(types, kind),) * len(shape)} if types else {}
    return jax.make_mesh(shape, names, devices=devices, **more)


def close(got, want, **tolerance):
    got, want = jax.tree.leaves(got), jax.tree.leaves(want)
    assert len(got) == len(want)
    for x, y in zip(got, want):
        assert x.shape == y.shape and x.dtype == y.dtype
        np.testing.assert_allclose(x, y, **{"rtol": 1e-11, "atol": 1e-11, **tolerance})


def split(call, specs, out=None, mesh=None):
    mesh = mesh or mesh_of((4,), ("t",))
    out = (OVER_TIME, P()) if out is None else out
    return jax.jit(shard_map(call, mesh=mesh, in_specs=specs, out_specs=out))


def loss_of(call):
    """Return a loss to which all results contribute."""

    def loss(*arguments):
        return sum(
            jnp.sum(jnp.abs(x) ** 2 * np.linspace(1, 2, x.size).reshape(x.shape))
            for x in jax.tree.leaves(call(*arguments))
        )

    return loss


def check_all_modes(random, one, other, arguments):
    """Compare values, tangents, gradients and tangents of gradients of two functions."""
    every = tuple(range(len(arguments)))
    moves = jax.tree.map(lambda x: jnp.asarray(random(*x.shape, dtype=x.dtype)), arguments)

    @partial(jax.jit, static_argnums=0)
    def derivatives(f, arguments, moves):
        gradient = jax.grad(loss_of(f), every)
        return jax.jvp(f, arguments, moves), jax.jvp(gradient, arguments, moves)

    close(*(derivatives(f, arguments, moves) for f in (one, other)))


# (type, shape of the gate, partition of the gate, reverse, resets)
CASES = [
    ("float64", (BATCH, STEPS, CHANNELS), OVER_TIME, False, False),
    ("float64", (BATCH, STEPS, CHANNELS), OVER_TIME, True, True),
    ("complex128", (CHANNELS,), P(), False, False),
    ("complex128", (CHANNELS,), P(), True, True),
    ("float64", (BATCH, 1, CHANNELS), P(), True, False),
    ("float64", (STEPS, 1), P("t"), False, True),
]


def problem(random, dtype, gate_shape):
    gate = jnp.asarray(random(*gate_shape, dtype=dtype, scale=0.7))
    input = jnp.asarray(random(BATCH, STEPS, CHANNELS, dtype=dtype))
    return gate, input, jnp.asarray(random(BATCH, CHANNELS, dtype=dtype))


@pytest.mark.parametrize("doubling", [False, True])
@pytest.mark.parametrize("dtype, gate_shape, of_gate, reverse, resets", CASES)
def test_values_and_derivatives_equal_the_whole_sequence(
    random, monkeypatch, doubling, dtype, gate_shape, of_gate, reverse, resets
):
    if doubling:
        monkeypatch.setattr(jax_split_time, "_MORE_BYTES", -(1 << 40))
    arguments = problem(random, dtype, gate_shape)
    reset_mask = (
        jnp.asarray(random.booleans(BATCH, STEPS, 1).copy()).at[:, 8].set(True)
    )  # at the start of a part
    kept = {"reverse": reverse, "return_final": True}
    specs = (of_gate, OVER_TIME, P(), OVER_TIME)

    def on_each(gate, input, first, reset_mask):
        return linear_scan(
            gate, input, first, resets=reset_mask if resets else None, axis_name="t", **kept
        )

    def parted(*arguments):
        return split(on_each, specs)(*arguments, reset_mask)

    def whole(*arguments):
        return linear_scan(*arguments, resets=reset_mask if resets else None, **kept)

    check_all_modes(random, parted, whole, arguments)


def test_value_and_gradient_compose_maps_in_the_same_way(random, monkeypatch):
    """If the value is computed by an all-gather of maps, so are its derivatives.

    A map takes the state before a part to the state at its end. The alternative to the all-gather is
    doubling, which sends about log2(devices) messages in sequence.
    """
    # For the value, an all-gather sends 336 bytes more than doubling.
    monkeypatch.setattr(jax_split_time, "_MORE_BYTES", 500)
    gate, input, _ = problem(random, "float64", (BATCH, STEPS, CHANNELS))
    reset_mask = jnp.asarray(random.booleans(BATCH, STEPS, 1))
    on_each = lambda gate, input, reset_mask: linear_scan(
        gate, input, resets=reset_mask, axis_name="t"
    )
    parted = split(on_each, (OVER_TIME,) * 3, OVER_TIME, mesh_of((8,), ("t",)))
    whole = lambda gate, input, reset_mask: linear_scan(gate, input, resets=reset_mask)
    got, want = (jax.grad(loss_of(f), (0, 1))(gate, input, reset_mask) for f in (parted, whole))
    close(got, want)


@pytest.mark.parametrize("shape, names, axis_name", [
    ((8,), ("t",), "t"), ((1,), ("t",), "t"),
    ((2, 4), ("a", "b"), ("a", "b")), ((4, 2), ("a", "b"), ("b", "a")), ((2, 4), ("a", "b"), "b"),
])  # fmt: skip
@pytest.mark.parametrize("reverse", [False, True])
def test_meshes_of_one_and_two_axes_equal_one_device(random, shape, names, axis_name, reverse):
    arguments = problem(random, "float64", (BATCH, STEPS, CHANNELS))
    reset_mask = jnp.asarray(random.booleans(BATCH, STEPS, 1))
    of = P(None, axis_name)

    def on_each(gate, input, first, reset_mask):
        return linear_scan(
            gate, input, first, resets=reset_mask, reverse=reverse, return_final=True,
            axis_name=axis_name,
        )  # fmt: skip

    parted = split(on_each, (of, of, P(), of), (of, P()), mesh_of(shape, names))
    whole = linear_scan(*arguments, resets=reset_mask, reverse=reverse, return_final=True)
    got = parted(*arguments, reset_mask)
    close(got, whole)
    for x, y in zip(got, parted(*arguments, reset_mask), strict=True):
        assert np.array_equal(x, y)


def test_vmap_within_and_around_shard_map_equals_the_whole_sequence(random):
    """vmap runs over sequences, inside and outside shard_map, or over parts of time."""
    gate, input, _ = problem(random, "float64", (BATCH, STEPS, CHANNELS))
    whole = linear_scan(gate, input)
    one = lambda gate, input: linear_scan(gate, input, axis_name="t")
    close(split(jax.vmap(one), (OVER_TIME, OVER_TIME), OVER_TIME)(gate, input), whole)
    around = jax.vmap(split(one, (P("t"), P("t")), P("t")))
    close(around(gate, input), whole)
    apart = lambda x: jnp.moveaxis(x.reshape(BATCH, 4, 8, CHANNELS), 1, 0)
    close(jax.vmap(one, axis_name="t")(apart(gate), apart(input)), apart(whole))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_errors_are_within_the_bound_of_the_whole_sequence(random, dtype):
    """The bound of docs/numerics.md is |computed - exact| <= (1 + eps)^L S - s.

    s is the sum of the terms' magnitudes. S is that sum with a factor (1 + eps)^2 for each step
    since the input of a term. L (here 16) counts all other roundings of a term.
    """
    steps, parts = 1024, 8
    eps, rounded = 2.0**-24, 2.0**-8 if dtype == "bfloat16" else 0.0
    gate = jnp.asarray(random(steps, 4, scale=1.0) * 1.02, dtype)
    input = jnp.asarray(random(steps, 4), dtype)
    on_each = lambda gate, input: linear_scan(gate, input, axis_name="t")
    got = split(on_each, (P("t"), P("t")), P("t"), mesh_of((parts,), ("t",)))(gate, input)
    exact, s, most = (np.zeros(4, np.longdouble) for _ in range(3))
    wide = lambda x: np.asarray(x, np.float64).astype(np.longdouble)
    for a, u, x in zip(wide(gate), wide(input), wide(got), strict=True):
        exact = a * exact + u
        s = abs(a) * s + abs(u)
        most = abs(a) * (1 + eps) ** 2 * most + abs(u)
        allowed = (1 + eps) ** 16 * most - s
        assert np.all(abs(x - exact) <= allowed + rounded * (abs(exact) + allowed))


def test_resets_stop_nan_and_overflowing_gates_keep_zeros(random):
    """An overflowing product of gates leaves a state of 0 at 0."""
    on_each = lambda gate, input, reset_mask: linear_scan(
        gate, input, resets=reset_mask, axis_name="t"
    )
    call = split(on_each, (P("t"),) * 3, P("t"))
    input = jnp.asarray(random(STEPS, 3)).at[2].set(jnp.array([jnp.inf, jnp.nan, 1.0]))
    reset_mask = jnp.zeros((STEPS, 1), bool).at[jnp.array([11, 24])].set(True)
    gate = jnp.asarray(random(STEPS, 3))
    got, want = call(gate, input, reset_mask), linear_scan(gate, input, resets=reset_mask)
    assert np.array_equal(np.isfinite(got), np.isfinite(want)) and np.all(np.isfinite(got[11:]))
    np.testing.assert_allclose(got[11:], want[11:], rtol=1e-12, atol=1e-12)
    gate = jnp.full((STEPS, 3), 1e100)
    input = jnp.zeros((STEPS, 3)).at[STEPS - 1].set(1.0)
    none = jnp.zeros((STEPS, 1), bool)
    assert np.array_equal(call(gate, input, none), input)
    gradient = jax.grad(lambda x: jnp.sum(call(gate, x, none)[-2:]))(input)
    assert np.all(np.isfinite(gradient[-1]))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    "pool, count, packed", [("f", 2, True), ("fo", 3, True), ("ifo", 4, False)]
)
def test_qrnn_pool_equals_the_whole_sequence(random, pool, count, packed, reverse):
    pre = [jnp.asarray(random(BATCH, STEPS, CHANNELS)) for _ in range(count)]
    pre = jnp.concatenate(pre, -1) if packed else tuple(pre)
    first = jnp.asarray(random(BATCH, CHANNELS))
    reset_mask, zoneout = (jnp.asarray(random.booleans(BATCH, STEPS, 1)) for _ in range(2))
    kept = {"pool": pool, "reverse": reverse, "return_final": True}

    def on_each(pre, first, reset_mask, zoneout):
        return scanrec.jax.qrnn_pool(
            pre, first, resets=reset_mask, zoneout=zoneout, axis_name="t", **kept
        )

    of_pre = jax.tree.map(lambda _: OVER_TIME, pre)
    parted = lambda pre, first: split(on_each, (of_pre, P(), OVER_TIME, OVER_TIME))(
        pre, first, reset_mask, zoneout
    )
    whole = lambda pre, first: scanrec.jax.qrnn_pool(
        pre, first, resets=reset_mask, zoneout=zoneout, **kept
    )
    check_all_modes(random, parted, whole, (pre, first))


@pytest.mark.parametrize("reverse", [False, True])
def test_logarithms_equal_the_whole_sequence(random, reverse):
    arrays = tuple(jnp.asarray(random(BATCH, STEPS, CHANNELS)) for _ in range(2))
    first = jnp.asarray(random(BATCH, CHANNELS))
    kept = {"log_gate": True, "log_input": True, "reverse": reverse, "return_final": True}
    on_each = lambda a, u, x: scanrec.jax.linear_scan(a, u, x, axis_name="t", **kept)
    whole = lambda a, u, x: scanrec.jax.linear_scan(a, u, x, **kept)
    parted = split(on_each, (OVER_TIME, OVER_TIME, P()))
    check_all_modes(random, parted, whole, (*arrays, first))


@pytest.mark.parametrize(
    "name, arrays", [("linear", 0), ("log_gate", 0), ("log_input", 1), ("pool", 1)]
)
def test_states_are_kept_only_for_gradients_of_gates(random, name, arrays):
    """If the gate is not differentiated, the vjp keeps no states.

    It then keeps the input only if the input passes through an activation or an exp().
    """
    shapes = (BATCH, STEPS, CHANNELS), (CHANNELS,), (BATCH, CHANNELS)
    x, gate, first = (jnp.asarray(random(*shape)) for shape in shapes)
    gate = -abs(gate)
    call = {
        "linear": lambda x, gate, first, **o: linear_scan(gate, x, first, **o),
        "log_gate": lambda x, gate, first, **o: linear_scan(gate, x, first, log_gate=True, **o),
        "log_input": lambda x, gate, first, **o: linear_scan(gate, x, first, log_input=True, **o),
        "pool": lambda x, gate, first, **o: scanrec.jax.qrnn_pool((x, gate), first, pool="f", **o),
    }[name]

    def kept(f, *arguments):
        leaves = jax.tree.leaves(jax.vjp(f, *arguments)[1])
        return sum(getattr(of, "size", 0) >= x.size for of in leaves)

    # The first function splits time, the second only the batch.
    by_time = split(partial(call, axis_name="t"), (OVER_TIME, P(), P()), OVER_TIME)
    by_batch = split(call, (P("t"), P(), P("t")), P("t"), mesh_of((BATCH,), ("t",)))
    for parted in (by_time, by_batch):
        assert kept(lambda x, first: parted(x, gate, first), x, first) == arrays  # noqa: B023
        assert kept(parted, x, gate, first) > arrays
        of_some, want = (jax.jit(jax.grad(loss_of(f), (0, 2))) for f in (parted, call))
        close(of_some(x, gate, first), want(x, gate, first))
        moves = jnp.cos(x), jnp.sin(gate), jnp.cos(first)
        close(*(jax.jvp(f, (x, gate, first), moves)[1] for f in (of_some, want)))


@pytest.mark.parametrize("reverse", [False, True])
def test_slow_decays_are_accurate(reverse):
    """The product of the gates of a part is accurate, too."""
    slow = SlowDecay(reverse, steps=40_000)
    on_each = lambda a, u: scanrec.jax.linear_scan(
        a, u, log_gate=True, reverse=reverse, axis_name="t"
    )
    scan = split(on_each, (OVER_TIME, OVER_TIME), OVER_TIME)
    gate, input, grad = (jnp.asarray(x)[None] for x in (slow.gate, slow.input, slow.grad))
    state, vjp = jax.vjp(scan, gate, input)
    of_gate, of_input = vjp(grad)
    assert slow.close(state[0], "state") and slow.close(of_input[0], "input_grad")
    assert slow.close(of_gate[0], "gate_grad")
    on_each = partial(scanrec.jax.linear_scan, np.float32(-1e-4), log_gate=True, reverse=reverse)
    scan = split(partial(on_each, axis_name="t"), (OVER_TIME, P()), OVER_TIME)
    vjp = jax.vjp(scan, input, jnp.ones((1, 1), jnp.float32))[1]
    of_input, of_first = vjp(grad)
    assert slow.close(of_input[0], "input_grad") and slow.close(of_first[0], "initial_grad")


@pytest.mark.parametrize("ways", ["forward", "reverse", "both"])
def test_state_spaces_equal_the_whole_sequence(random, ways):
    u = jnp.asarray(random(BATCH, STEPS, 3))
    diagonal = random(4, dtype="complex128")
    diagonal = jnp.asarray(diagonal - 1 - np.abs(diagonal.real))
    b, c = (
        jnp.asarray(random(*s, dtype="complex128"))
        for s in ((4, 3), (3, 8 if ways == "both" else 4))
    )
    nu, theta = jnp.asarray(random(4)), jnp.asarray(random(4))
    for call, parameters in (
        (scanrec.jax.s5, (diagonal, b, c)),
        (scanrec.jax.lru, (nu, theta, b, c)),
    ):
        call = partial(call, reverse=ways == "reverse")
        specs = (OVER_TIME, *(P() for _ in parameters))
        parted = split(partial(call, axis_name="t"), specs, OVER_TIME)
        every = tuple(range(len(specs)))
        arguments = (u, *parameters)
        both = lambda f: lambda *x: (f(*x), jax.grad(loss_of(f), every)(*x))  # noqa: B023
        close(*(jax.jit(both(f))(*arguments) for f in (parted, call)))


@pytest.mark.skipif(not hasattr(jax, "set_mesh"), reason="needs JAX 0.7")
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("more", [0, 1])
def test_explicit_sharding_of_time_and_batch_equals_the_whole_sequence(random, reverse, more):
    """Check values and gradients under jit. The next test makes calls without jit."""
    arguments = gate, input, first = problem(random, "float64", (BATCH, STEPS, CHANNELS))
    reset_mask = jnp.asarray(random.booleans(BATCH, STEPS + more, 1))
    kept = {"reverse": reverse, "return_final": True}
    whole = lambda *x: linear_scan(*x, resets=reset_mask, **kept)
    both = lambda f: lambda *x: (f(*x), jax.grad(loss_of(f), (0, 1, 2))(*x))
    want = jax.jit(both(whole))(*arguments)
    mesh = mesh_of((2, 4), ("b", "t"), "Explicit")
    with jax.set_mesh(mesh):
        put = lambda x, *spec: jax.device_put(x, NamedSharding(mesh, P(*spec)))
        placed = put(gate, "b", "t"), put(input, "b", "t"), put(first, "b")
        reset = put(reset_mask, "b") if more else put(reset_mask, "b", "t")
        parted = lambda *x: linear_scan(*x, resets=reset, **kept)
        values, _ = got = jax.jit(both(parted))(*placed)
        assert jax.typeof(values[0]).sharding.spec == P("b", "t", None)
        assert jax.typeof(values[1]).sharding.spec == P("b", None)
    close(jax.tree.map(np.asarray, got), jax.tree.map(np.asarray, want))


@pytest.mark.skipif(not hasattr(jax, "set_mesh"), reason="needs JAX 0.7")
def test_explicit_sharding_works_outside_the_mesh_context(random):
    """The arrays alone determine the mesh."""
    gate, input, _ = problem(random, "float64", (CHANNELS,))
    mesh = mesh_of((2,), ("t",), "Explicit")
    parts = jax.device_put(input, NamedSharding(mesh, OVER_TIME))
    for call in (linear_scan, jax.jit(linear_scan)):
        got = call(gate, parts)
        assert jax.typeof(got).sharding.spec == P(None, "t", None)
        close(np.asarray(got), np.asarray(linear_scan(gate, input)))


def test_devices_exchange_maps_and_not_arrays():
    """A value needs one all-gather of maps. Its gradient adds one message to earlier parts."""
    gate = input = jnp.ones((BATCH, STEPS, CHANNELS))
    on_each = lambda gate, input: linear_scan(gate, input, axis_name="t")
    call = split(on_each, (OVER_TIME, OVER_TIME), OVER_TIME)
    value = call.lower(gate, input).compile().as_text()
    assert value.count(" all-gather(") == 1
    gradient = jax.jit(jax.grad(loss_of(call), (0, 1))).lower(gate, input).compile().as_text()
    assert gradient.count(" all-gather(") == 1
    # One call for the message to earlier parts, one that combines messages, one for all gradients.
    assert len(re.findall('custom_call_target="scanrec_linear_scan_vjp', gradient)) == 3


def test_invalid_axis_names_raise(random):
    _, input, _ = problem(random, "float64", (1,))
    message = "linear_scan: argument 'axis_name': expected distinct axes of the mesh"
    for name in ("t", ("t", "u"), 3.5, ()):
        with pytest.raises(ValueError, match=message):
            linear_scan(0.5, input, axis_name=name)
    twice = split(lambda x: linear_scan(0.5, x, axis_name=("t", "t")), (OVER_TIME,), OVER_TIME)
    with pytest.raises(ValueError, match=message):
        twice(input)


# ---- processes -----------------------------------------------------------------------------------

PROCESSES = 2


def process(rank, port):
    """Run one of two processes with two devices each, and check a loss and its gradient."""
    jax.distributed.initialize(f"localhost:{port}", PROCESSES, rank)
    mesh = mesh_of((2 * PROCESSES,), ("t",))
    of_time = NamedSharding(mesh, P("t"))
    steps = np.arange(64.0)
    input = jax.make_array_from_callback((64,), of_time, lambda at: np.sin(steps[at]))
    on_each = lambda gate, x: linear_scan(gate, x, axis=0, axis_name="t")
    parted = split(on_each, (P(), P("t")), P("t"), mesh)
    loss = lambda gate, x: jnp.sum(parted(gate, x) ** 2)
    got = jax.jit(jax.value_and_grad(loss))(0.9, input)
    whole = jax.value_and_grad(lambda gate: jnp.sum(linear_scan(gate, np.sin(steps), axis=0) ** 2))
    np.testing.assert_allclose([float(x) for x in got], [float(x) for x in whole(0.9)], rtol=1e-12)
    print("equal")


@pytest.mark.skipif(not hasattr(jax, "shard_map"), reason="needs JAX 0.7")
def test_two_processes_equal_one():
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    setting = "jax_cpu_collectives_implementation"
    started = [
        subprocess.Popen(
            [sys.executable, "-c",
             f"import jax; jax.config.update({setting!r}, 'gloo'); import test_jax_split_time as t; "
             f"jax.config.update('jax_num_cpu_devices', 2); t.process({rank}, {port})"],
            cwd=__file__.rpartition("/")[0], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(PROCESSES)
    ]  # fmt: skip
    for one in started:
        out, errors = one.communicate(timeout=120)
        assert one.returncode == 0 and "equal" in out, errors

# SPDX-License-Identifier: BSD-3-Clause
"""Tests of scanrec.jax.nn and scanrec.jax.nnx against loops over single steps."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from dataclasses import fields
from functools import partial

import numpy as np
import pytest
from conftest import Random, SlowDecay

jax = pytest.importorskip("jax", reason="JAX is not installed")
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_num_cpu_devices", 8)

import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec
from stepwise import check_gradients, stepwise, wide

import scanrec.jax
from scanrec.jax import nn

T = 9
LAYERS = {
    "QRNN": nn.QRNN(3, 4, bias=False),
    "QRNN two steps": nn.QRNN(3, 4, 2, kernel_size=2, pool="f"),
    "QRNN both ways": nn.QRNN(
        3, 4, 2, bidirectional=True, kernel_size=2, pool="ifo", zoneout=0.3, memory="recompute"
    ),
    "MinGRU": nn.MinGRU(3, 4, bias=False, candidate="positive"),
    "MinGRU both ways": nn.MinGRU(3, 4, bidirectional=True),
    "RGLRU": nn.RGLRU(4, 4, bias=False, heads=2),
    "RGLRU both ways": nn.RGLRU(3, 4, bidirectional=True, c=4.0),
    "LRU": nn.LRU(4, 4, bias=False, state_size=5, r_min=0.0),
    "LRU both ways": nn.LRU(3, 4, bidirectional=True, state_size=5),
    "S5": nn.S5(4, 4, bias=False, state_size=8, blocks=2, discretisation="bilinear"),
    "S5 both ways": nn.S5(3, 4, bidirectional=True, state_size=6),
    "Mamba": nn.Mamba(4, 4, 2, bias=False, dt_rank=2, state_size=3),
    "Mamba both ways": nn.Mamba(3, 4, bidirectional=True, conv=3, state_size=2),
}
FORWARD = [name for name, layer in LAYERS.items() if not layer.bidirectional]


def weights_of(layer, seed=0):
    """Return random weights, because the program of layer.init takes long to compile."""
    random, shapes = Random(seed), jax.eval_shape(layer.init, jax.random.key(0))
    return jax.tree.map(lambda x: jnp.asarray(random(*x.shape, scale=0.6)), shapes)


def state_of(layer, random, *batch):
    zeros = layer.initial_state(batch, jnp.float64)
    return jax.tree.map(lambda x: jnp.asarray(random(*x.shape, dtype=x.dtype)), zeros)


def compiled(layer):
    """Return layer.apply under jit.

    Before JAX 0.7.2, XLA ends the process if a program contains a product and its root instruction
    is one of our calls. So the program also returns a number.
    """
    apply = jax.jit(lambda *given, **options: (layer.apply(*given, **options), 0))
    return lambda *given, **options: apply(*given, **options)[0]


def same(got, want, *, dtypes=True, **tolerance):
    """Check that trees of arrays are equal. Without `dtypes`, types may differ in size."""
    got, want = jax.tree.leaves(got), jax.tree.leaves(want)
    assert len(got) == len(want)
    for x, y in zip(got, want):
        assert x.shape == y.shape and x.dtype.kind == y.dtype.kind
        assert x.dtype == y.dtype or not dtypes
        np.testing.assert_allclose(x, y, **{"rtol": 1e-10, "atol": 1e-10, **tolerance})


def of_ends(final, xp):
    """Return a number that depends on all final states."""
    return sum(xp.sum(xp.sin(s.real) + xp.cos(s.imag) ** 2) for s in jax.tree.leaves(final))


@pytest.mark.parametrize("name", LAYERS)
def test_values_and_gradients_equal_the_loop(name, random):
    """There is a reset after the last step. Values without state and resets are compared, too."""
    layer = LAYERS[name]
    params, x = weights_of(layer), jnp.asarray(random(2, T, layer.input_size))
    state = state_of(layer, random, 2)
    reset_mask = jnp.asarray(random.booleans(2, T + 1)).at[0, T].set(True)
    weigh = random(2, T, layer.output_size)

    @jax.jit
    def ours(params, x, state):
        def loss(params, x, state):
            output, final = layer.apply(params, x, state, resets=reset_mask)
            return jnp.sum(weigh * output) + of_ends(final, jnp), (output, final)

        both = jax.value_and_grad(loss, (0, 1, 2), has_aux=True)(params, x, state)
        return both, layer.apply(params, x)

    def loss(given):
        output, final = stepwise(layer, *given, reset_mask)
        return np.sum(weigh * output) + of_ends(final, np)

    ((_, values), gradients), begun = got = ours(params, x, state)
    given = wide((params, x, state))
    same(values, stepwise(layer, *given, reset_mask), dtypes=False)
    same(begun, stepwise(layer, *given[:2]), dtypes=False)
    check_gradients(loss, given, gradients, random)
    assert all(np.any(x) for x in jax.tree.leaves(got))


@pytest.mark.parametrize("name", FORWARD)
def test_chunks_and_steps_equal_the_whole_sequence(name, random):
    layer = LAYERS[name]
    params, x = weights_of(layer), jnp.asarray(random(2, 3, T, layer.input_size))
    reset_mask = jnp.asarray(random.booleans(3, T)).at[:, 6:].set(False)

    def pieces():
        first, state = layer.apply(params, x[..., :4, :], resets=reset_mask[:, :4])
        second, state = layer.apply(params, x[..., 4:6, :], state, resets=reset_mask[:, 4:7])
        step = jax.checkpoint(lambda state, u: layer.step(params, u, state)[::-1])
        state, rest = jax.lax.scan(step, state, jnp.moveaxis(x[..., 6:, :], -2, 0))
        # One sequence, without a batch axis and without an initial state. For some layers, an
        # absent state differs from zeros.
        begins = layer.apply(params, x[1, 2, :1])[0][0], layer.step(params, x[1, 2, 0])[0]
        return jnp.concatenate([first, second, jnp.moveaxis(rest, 0, -2)], -2), state, begins

    output, state, begins = jax.jit(pieces)()
    same((output, state), compiled(layer)(params, x, resets=reset_mask))
    same(*begins)


@pytest.mark.parametrize("name", LAYERS)
def test_packed_sequences_are_independent(name, random):
    layer = LAYERS[name]
    params, x = weights_of(layer), jnp.asarray(random(T, layer.input_size))
    starts = jnp.zeros(T, bool).at[jnp.array([2, 3, 6])].set(True)
    apply = compiled(layer)
    output, ended = apply(params, x.at[2].set(jnp.nan), resets=starts)
    assert np.all(np.isnan(output[2]))  # no other step reads it
    for part in (slice(3, 6), slice(6, T)):
        alone, begun = apply(params, x[part])
        same(output[part], alone)
    # The forward final state of the first layer depends on the last sequence alone.
    same(*(jax.tree.map(lambda s: s[0], state) for state in (ended, begun)))


@pytest.mark.parametrize("name", LAYERS)
def test_empty_batches_and_sequences_have_empty_outputs(name, random):
    """After 0 steps, the final state is the initial one."""
    layer = LAYERS[name]
    params, state = weights_of(layer), state_of(layer, random, 2)
    of = lambda *shape: jnp.ones((*shape, layer.input_size))

    def all_of():
        ones = () if layer.bidirectional else layer.step(params, of(0))[:1]
        return layer.apply(params, of(0, T))[0], ones, *layer.apply(params, of(2, 0), state)

    none, ones, still, kept = jax.jit(all_of)()
    assert none.shape == (0, T, layer.output_size) and still.shape == (2, 0, layer.output_size)
    assert [y.shape for y in ones] == ([] if layer.bidirectional else [(0, layer.hidden_size)])
    same(kept, state)


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_of_few_steps_equal_the_loop(name, random):
    """Sequences are shorter than Mamba's default of 4 taps. Gradients of 0 steps are 0."""
    layer = LAYERS[name]
    params, x = weights_of(layer), random(2, 3, layer.input_size)

    @jax.jit
    def gradients(params, x):
        loss = lambda params, steps: jnp.sum(layer.apply(params, x[:, :steps])[0] ** 2)
        return [jax.grad(loss)(params, steps) for steps in (0, 1, 3)]

    none, *got = gradients(params, jnp.asarray(x))
    same(none, jax.tree.map(jnp.zeros_like, params))
    for steps, gradient in zip((1, 3), got):
        loss = lambda params, steps=steps: np.sum(
            stepwise(layer, params, wide(x[:, :steps]))[0] ** 2
        )
        check_gradients(loss, wide(params), gradient, random)


@pytest.mark.skipif(not hasattr(jax, "set_mesh"), reason="needs JAX 0.7")
@pytest.mark.parametrize(
    "name", ["QRNN two steps", "MinGRU", "RGLRU both ways", "LRU", "S5", "Mamba both ways"]
)
def test_explicit_sharding_equals_one_device(name, random):
    """Sequences are split. States and resets are split like them or not at all.

    The last comparison is outside the mesh context.
    """
    layer = LAYERS[name]
    params, x = weights_of(layer), jnp.asarray(random(4, T, layer.input_size))
    state, reset_mask = state_of(layer, random, 4), jnp.asarray(random.booleans(4, T + 1))
    mesh = jax.make_mesh((2,), ("d",), axis_types=(jax.sharding.AxisType.Explicit,))
    split = lambda x, *spec: jax.device_put(x, NamedSharding(mesh, PartitionSpec(*spec)))
    parts = (
        split(x, "d"),
        jax.tree.map(lambda s: split(s, None, "d"), state),
        split(reset_mask, "d"),
    )

    @jax.jit
    def values(params, x, state, reset_mask):
        first = layer.apply(params, x)
        return first, layer.apply(params, x, state, resets=reset_mask)

    @jax.jit
    def gradient(params, x, state):
        loss = lambda *given: jnp.sum(layer.apply(*given, resets=reset_mask)[0] ** 3)
        return jax.grad(loss, (0, 1, 2))(params, x, state)

    want, slopes = values(params, x, state, reset_mask), gradient(params, x, state)
    with jax.set_mesh(mesh):
        (output, _), _ = got = values(params, *parts)
        assert jax.typeof(output).sharding.spec == jax.typeof(parts[0]).sharding.spec
        same(got, want)
        same(values(params, parts[0], state, reset_mask), want)
        same(gradient(params, parts[0], state), slopes)
    same(values(params, *parts), want)


def test_vmap_of_inputs_and_weights_equals_a_loop(random):
    for layer in (LAYERS["QRNN two steps"], LAYERS["S5"], LAYERS["Mamba both ways"]):
        weights = [weights_of(layer, seed) for seed in (0, 1)]
        both = jax.tree.map(lambda *x: np.stack(x), *weights)
        x, apply = jnp.asarray(random(3, T, layer.input_size)), compiled(layer)
        output, state = jax.jit(jax.vmap(jax.vmap(layer.apply, (None, 0)), (0, None)))(both, x)
        for i in range(2):
            mine = jax.tree.map(lambda s, i=i: np.swapaxes(s[i], 0, 1), state)
            same((output[i], mine), apply(weights[i], x))


def test_dropout_and_zoneout_have_their_probabilities(random):
    layer, key = nn.MinGRU(3, 64, 2, dropout=0.25), jax.random.key(3)
    params, x = weights_of(layer), jnp.asarray(random(2, 50, 3))
    plain = nn.MinGRU(3, 64, 2)
    same(compiled(layer)(params, x)[0], compiled(plain)(params, x)[0])
    # With these weights, the states of the second layer equal its inputs.
    copies = {"weight": np.eye(128, 64), "bias": np.repeat([0.0, 50.0], 64)}
    looks = {**params, "layer_1": {"forward": copies}}
    seen, first = compiled(layer)(looks, x, key=key)[0], compiled(plain)(looks, x)[0]
    kept = np.abs(seen) > 1e-9
    assert abs(kept.mean() - 0.75) < 0.02
    same(seen[kept], first[kept] / 0.75)
    assert not np.any(compiled(nn.MinGRU(3, 64, 2, dropout=1.0))(looks, x, key=key)[0])
    with pytest.warns(UserWarning, match="dropout is between layers"):
        nn.MinGRU(3, 4, dropout=0.5)

    layer = nn.QRNN(3, 64, bidirectional=True, pool="f", zoneout=0.25)
    states = compiled(layer)(weights_of(layer), x, key=key)[0]
    stays = np.asarray(states[:, 1:] == states[:, :-1])
    assert abs(np.mean(stays) - 0.25) < 0.02
    assert np.any(stays[:, :-1, :64] != stays[:, 1:, 64:])  # each direction draws its own zoneout


@pytest.mark.parametrize("name", FORWARD)
def test_outputs_and_states_have_the_type_of_the_input(name, random):
    layer = LAYERS[name]
    given = weights_of(layer), jnp.asarray(random(2, T, layer.input_size))
    cast = lambda dtype: jax.tree.map(lambda x: x.astype(dtype), given)
    dtypes = {"float32": 1e-5, "bfloat16": 0.05}
    all_of = jax.jit(lambda: [layer.apply(*cast(dtype)) for dtype in (*dtypes, "float64")])()
    for (dtype, bound), (output, state) in zip(dtypes.items(), all_of):
        zeros = layer.initial_state((2,), dtype)
        assert output.dtype == dtype
        dtypes_of = lambda state: [s.dtype for s in jax.tree.leaves(state)]
        assert dtypes_of(state) == dtypes_of(zeros)
        assert np.max(np.abs(output.astype(float) - all_of[-1][0])) < bound


def test_slow_decays_of_min_gru_are_accurate(random):
    """Update gates are about 1e-4. The tolerance of float32 results is that of SlowDecay."""
    layer, x = nn.MinGRU(1, 1, bidirectional=True), abs(random(100_000, 1)).astype(np.float32)
    names = {"weight": jnp.array([[1], [0]], np.float32), "bias": jnp.array([0, -9.2], np.float32)}
    params = {"layer_0": {"forward": names, "reverse": names}}

    @jax.jit
    def run(params, x):
        y, vjp = jax.vjp(lambda *given: layer.apply(*given)[0], params, x)
        of_params, of_x = vjp(jnp.ones_like(y))
        return y, of_x, *(way["bias"] for way in of_params["layer_0"].values())

    wide = jax.tree.map(lambda x: x.astype(float), (params, x))
    for a, b in zip(run(params, x), run(*wide)):
        assert a.dtype == np.float32
        assert jnp.max(jnp.abs(a - b)) <= SlowDecay.tolerance * jnp.max(jnp.abs(b))


def test_initial_weights_match_the_docstrings():
    def draw(layer, *names):
        start = lambda key: [layer.init(key)["layer_0"]["forward"][name] for name in names]
        return map(np.asarray, jax.jit(start)(jax.random.key(0)))

    (bias,), (decay,) = draw(nn.QRNN(3, 4), "bias"), draw(nn.RGLRU(64, 64), "decay")
    assert np.array_equal(bias, np.repeat([0, 1, 0], 4))
    a, (nu,) = np.exp(-8 * np.log1p(np.exp(decay))), draw(nn.LRU(3, 4, r_min=0.5, r_max=0.6), "nu")
    assert 0.9 <= a.min() and a.max() <= 0.999
    assert np.all(np.abs(np.exp(-np.exp(nu)) - 0.55) < 0.05001)
    (whole,) = draw(nn.LRU(3, 4, state_size=500, r_min=0, r_max=1), "nu")  # as in the paper
    assert np.isfinite(whole).all()
    delta, decay = draw(nn.Mamba(16, 16), "bias_delta", "log_decay")
    step = np.log1p(np.exp(delta))
    assert 0.99e-3 < step.min() and step.max() < 0.101
    np.testing.assert_allclose(np.exp(decay)[3], np.arange(1, 17), rtol=1e-5)
    # The eigenvalues are those of the normal part of HiPPO-LegS. In its eigenbasis, real Gaussian
    # weights become complex Gaussian weights.
    decay, frequency = draw(nn.S5(3, 4, state_size=6), "log_decay", "frequency")
    root = np.sqrt(2 * np.arange(6) + 1)
    lower = np.tril(np.outer(root, root), -1)
    values = np.linalg.eigvals((lower.T - lower - np.eye(6)) / 2)
    np.testing.assert_allclose(-np.exp(decay), values.real[:3], rtol=1e-6)
    np.testing.assert_allclose(np.sort(frequency), np.sort(values.imag)[3:], rtol=1e-5)
    (b,) = draw(nn.S5(200, 4), "b")
    assert np.all(np.abs(np.var(b, (0, 1)) * 2 * 200 - 1) < 0.05)


def problems_of(name, random):
    """Return calls and their arrays, which broadcast and mix types where the call allows it."""
    real, half, complex = (
        lambda *shape, as_=(drawn, dtype): jnp.asarray(random(*shape, dtype=as_[0]), as_[1])
        for drawn, dtype in (
            ("float64", "float32"), ("float64", "bfloat16"), ("complex128", "complex64"),
        )
    )  # fmt: skip
    reset_mask = jnp.asarray(random.booleans(2, T + 1))
    ends = {"resets": reset_mask[..., None], "return_final": True}
    scan = partial(scanrec.jax.linear_scan, **ends)
    pool = partial(scanrec.jax.qrnn_pool, **ends, zoneout=reset_mask[:, :T, None], forget_bias=1)
    s5, lru = scanrec.jax.s5, scanrec.jax.lru
    space = lambda *x: s5(*x[:-1], intervals=x[-1], resets=reset_mask, return_final=True)
    selective = lambda *x: scanrec.jax.selective_scan(
        *x[:-2], initial_state=x[-2], intervals=x[-1], delta_softplus=True, **ends
    )
    step = partial(scanrec.jax.selective_state_update, dt_softplus=True)
    of_rows = partial(step, state_batch_indices=np.array([0, 2]))
    logs = partial(scan, log_gate=True, log_input=True)
    lean = partial(scanrec.jax.qrnn_pool, pool="ifo", memory="recompute", return_final=True)
    system = complex(3), complex(3, 4)
    found = {
        "linear_scan": (
            (scan, real(4), real(2, T, 4), real(4)), (scan, half(T, 1), half(2, T, 4), real(4)),
            (scan, 0.5, complex(2, T, 4), complex(4)), (logs, real(4), real(2, T, 4), real(4)),
        ),
        "qrnn_pool": (
            (pool, real(2, T, 12), real(4)), (lean, [half(2, T, 4), *(half(4),) * 3], real(4)),
        ),
        "s5": (
            (space, real(2, T, 4), *system, complex(4, 3), real(4), real(3), complex(3), real(T)),
            (partial(s5, discretisation="bilinear"), real(2, T, 4), *system, complex(4, 6), real(4)),
        ),
        "lru": (
            (lru, real(2, T, 4), real(3), real(3), system[1], complex(4, 3), real(4), complex(3)),
        ),
        "selective_scan": (
            (
                selective, real(2, T, 4), real(2, T, 4), real(4, 3), real(2, T, 2, 3), real(2, T, 2, 3),
                real(4), real(2, T, 4), real(4), real(4, 3), real(T),
            ),
            (
                selective, half(2, T, 4), half(2, T, 4), complex(4, 3), half(2, T, 6), complex(4, 3),
                half(4), half(2, T, 4), half(4), complex(4, 3), real(T),
            ),
        ),
        "selective_state_update": (
            (
                step, half(2, 4, 3), half(2, 4), half(2, 4), real(4, 3), half(2, 3), half(2, 1, 3),
                half(4), half(2, 4), half(4),
            ),
            (of_rows, real(3, 4, 3), real(2, 4), real(2, 4), real(4, 3), real(2, 3), real(2, 3)),
        ),
    }  # fmt: skip
    if name in found:
        return found[name]
    layer, keep = LAYERS[name], {"resets": reset_mask, "key": jax.random.key(0)}

    def run(params, x, state):
        drawn = layer.init(jax.random.key(0), x.dtype)
        output = layer.apply(params, x), layer.apply(drawn, x, state, **keep)
        return output if layer.bidirectional else (*output, layer.step(params, x[:, 0], state))

    return tuple(
        (
            run,
            jax.tree.map(lambda w, dtype=dtype: w.astype(dtype), weights_of(layer)),
            jnp.asarray(random(2, T, layer.input_size), dtype),
            layer.initial_state(2, dtype),
        )
        for dtype in ("float32", "bfloat16")
    )


CALLS = ("linear_scan", "qrnn_pool", "s5", "lru", "selective_scan", "selective_state_update")


@pytest.mark.parametrize("name", [*CALLS, *LAYERS])
def test_calls_and_derivatives_need_no_implicit_promotion(name, random):
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        for call, *arrays in problems_of(name, random):

            def all_of(*arrays, call=call):
                squares = lambda y: jnp.sum(jnp.abs(y).astype("float32") ** 2)
                loss = lambda *x: sum(map(squares, jax.tree.leaves(call(*x))))
                gradient = jax.grad(loss, tuple(range(len(arrays))))
                return gradient(*arrays), jax.jvp(gradient, arrays, arrays)[1]

            jax.jit(all_of).lower(*arrays)


def test_equal_layers_share_a_compiled_program():
    """Layers are trees without leaves, so equal layers share a program."""
    applied = jax.jit(lambda layer, params, x: layer.apply(params, x)[0] * 2)
    x = jnp.ones((T, 3))
    for layer in (nn.QRNN(3, 4), nn.QRNN(3, 4, kernel_size=2), nn.QRNN(3, 4)):
        params = weights_of(layer)
        want = layer.apply(params, x)[0] * 2
        np.testing.assert_allclose(applied(layer, params, x), want, rtol=1e-6)
    assert applied._cache_size() == 2
    assert not jax.tree.leaves(nn.LRU(3, 4))


@pytest.mark.parametrize("name", FORWARD)
def test_layers_and_states_can_be_pickled_and_copied(name, random):
    layer = LAYERS[name]
    state = state_of(layer, random, 2)
    for again in (copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))):
        assert again(layer) == layer and hash(again(layer)) == hash(layer)
        assert type(again(state)) is type(state)
        same(again(state), state, rtol=0, atol=0)


@pytest.mark.parametrize("name", FORWARD)
def test_exported_programs_can_be_serialised(name, random):
    """States remain named tuples."""
    export = pytest.importorskip("jax.export", reason="jax.export needs absl here")
    pytest.importorskip("flatbuffers", reason="flatbuffers is not installed")
    layer = LAYERS[name]
    x = jnp.asarray(random(2, T, layer.input_size))
    given = weights_of(layer), x, state_of(layer, random, 2)
    calls = ("linear_scan", "gated_scan", "selective_scan")
    allowed = [export.DisabledSafetyCheck.custom_call(f"scanrec_{call}_v1") for call in calls]
    apply = jax.jit(lambda *given: (layer.apply(*given), 0))  # as in `compiled`
    program = export.export(apply, disabled_checks=allowed)(*given)
    got, _ = export.deserialize(program.serialize()).call(*given)
    want = compiled(layer)(*given)
    assert type(got[1]) is type(want[1])
    same(got, want)


def test_invalid_arguments_raise():
    layer, two = nn.MinGRU(3, 4), nn.QRNN(3, 4, kernel_size=2)
    params, x = weights_of(layer), jnp.ones((2, T, 3))
    weights = params["layer_0"]["forward"]
    changed = lambda **other: {"layer_0": {"forward": {**weights, **other}}}
    mamba = nn.Mamba(3, 4)
    of_two, of_mamba = weights_of(two), weights_of(mamba)
    # fmt: off
    for call, error, words in (
        (lambda: nn.QRNN(0, 4), ValueError, "QRNN: argument 'input_size': expected an integer of 1"),
        (lambda: nn.QRNN(3, 4.5), TypeError, "'hidden_size'.*got 4.5"),
        (lambda: nn.QRNN(3, 4, dropout=2.0), ValueError, "'dropout': expected a number from 0 to 1"),
        (lambda: nn.QRNN(3, 4, kernel_size=3), ValueError, "'kernel_size': expected one of 1, 2, got 3"),
        (lambda: nn.MinGRU(3, 4, candidate="tanh"), ValueError, "'candidate'.*'positive'"),
        (lambda: nn.RGLRU(3, 4, heads=3), ValueError, "'heads': expected a divisor"),
        (lambda: nn.S5(3, 4, state_size=7), ValueError, "'state_size'.*multiple"),
        (lambda: layer.init(jax.random.key(0), "int32"), TypeError, "MinGRU.init: argument 'dtype'"),
        (lambda: layer.apply(params, x[..., :2]), ValueError, "MinGRU.apply: argument 'input'.*T, 3"),
        (lambda: layer.apply(params, x * 1j), TypeError, "'input'.*real"),
        (lambda: layer.apply(params, x, jnp.ones((2, 4))), ValueError, r"'state'.*\(1, 2, 4\)"),
        (lambda: layer.apply(params, x, 1j * jnp.ones((1, 2, 4))), TypeError, "'state'.*real"),
        (lambda: two.apply(of_two, x, x), TypeError, r"'state': expected QRNNState\(hidden, before"),
        (lambda: mamba.step(of_mamba, x[:, 0], (x, x)), ValueError, "Mamba.step.*'state.hidden'"),
        (lambda: layer.apply(params, x, resets=jnp.ones((2, 4), bool)), ValueError, "'resets'"),
        (lambda: layer.apply(params, x, resets=jnp.ones((2, T))), TypeError, "'resets'.*booleans"),
        (lambda: layer.init(0), TypeError, "MinGRU.init: argument 'key': expected a key of jax.random"),
        (lambda: layer.apply(x, params), TypeError, "MinGRU.apply: argument 'params': expected a dict"),
        (lambda: layer.apply(params, params), TypeError, "'input': expected an array of numbers, got d"),
        (lambda: layer.apply({}, x), ValueError, r"'params': expected entries \['layer_0'\]"),
        (lambda: layer.apply(changed(bias=x), x), ValueError, r"params\['layer_0'\]\['forward'\]\['b"),
        (lambda: nn.QRNN(3, 4, bidirectional=True).step({}, x), ValueError, "'bidirectional'"),
        (lambda: layer.apply(params, x, key=0), TypeError, "MinGRU.apply: argument 'key': expected a"),
        (lambda: layer.apply(params, x, key=jax.random.split(jax.random.key(0))), TypeError, r"'key'.*\(2,"),
        (lambda: layer.apply(changed(bias=1j * weights["bias"]), x), TypeError, r"\['bias'\]'.*real"),
        (lambda: layer.apply(params, "x"), TypeError, "'input': expected an array of numbers, got"),
        (lambda: layer.apply(changed(bias="x"), x), TypeError, r"\['bias'\]': expected an array of n"),
        (lambda: layer.apply(params, x, "x"), TypeError, "'state': expected an array of numbers, got"),
        (lambda: layer.initial_state((), "int32"), TypeError, "MinGRU.initial_state: argument 'dtype'"),
        (lambda: layer.initial_state((2,), "complex64"), TypeError, "'dtype': expected a real type"),
    ):
        # fmt: on
        with pytest.raises(error, match=words):
            call()


def test_numpy_numbers_are_valid_options():
    """NumPy numbers are converted to Python numbers, because arrays have no hash."""
    given = np.array(3), np.int64(4), np.array(1), np.array(True)
    assert hash(nn.MinGRU(*given)) == hash(nn.MinGRU(3, 4))
    assert nn.MinGRU(*given) == nn.MinGRU(3, 4)
    layer = nn.QRNN(3, 4, kernel_size=np.array(2))
    assert hash(layer) == hash(nn.QRNN(3, 4, kernel_size=2))
    mamba = nn.Mamba(3, 4, dt_rank=np.array(2), state_size=np.array(3))
    assert hash(mamba) == hash(nn.Mamba(3, 4, dt_rank=2, state_size=3))
    same(layer.initial_state(np.int64(2)), nn.QRNN(3, 4, kernel_size=2).initial_state((2,)))


def module_of(layer, seed):
    from flax import nnx as flax

    from scanrec.jax import nnx

    given = {field.name: getattr(layer, field.name) for field in fields(layer)}
    kind = getattr(nnx, type(layer).__name__)
    return kind(**given, dtype="float64", rngs=flax.Rngs(seed))


@pytest.mark.parametrize("name", ["QRNN two steps", "MinGRU both ways", "LRU"])
def test_flax_modules_equal_their_layers(name, random):
    """Check jit, grad, update, copies, pickles and single steps of modules."""
    flax = pytest.importorskip("flax.nnx", reason="Flax is not installed")
    layer = LAYERS[name]
    module, other = module_of(layer, 5), module_of(layer, 6)
    module.eval(), other.eval()
    x = jnp.asarray(random(2, T, layer.input_size))
    state, reset_mask = state_of(layer, random, 2), jnp.asarray(random.booleans(2, T))
    drawn = layer.init(flax.Rngs(5).params(), "float64")
    same(flax.to_pure_dict(flax.state(module, flax.Param)), drawn, rtol=0, atol=0)
    want = compiled(layer)(drawn, x, state, resets=reset_mask)
    call = flax.jit(lambda m: m(x, state, resets=reset_mask))
    flax.update(other, flax.state(module))
    for again in (module, other, copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        same(call(again), want)
    if not layer.bidirectional:
        got = flax.jit(lambda m: m.step(x[:, 0], state))(module)
        same(got, jax.jit(layer.step)(drawn, x[:, 0], state))
    gradient = flax.jit(flax.grad(lambda m: jnp.sum(m(x)[0] ** 2)))(module)
    want = jax.jit(jax.grad(lambda p: jnp.sum(layer.apply(p, x)[0] ** 2)))(drawn)
    same(flax.to_pure_dict(gradient), want)


def test_every_layer_has_a_flax_module():
    flax = pytest.importorskip("flax.nnx", reason="Flax is not installed")
    for layer in LAYERS.values():
        module = flax.eval_shape(lambda layer=layer: module_of(layer, 0))
        assert module.layer == layer
        drawn = jax.eval_shape(lambda layer=layer: layer.init(jax.random.key(0), "float64"))
        assert flax.to_pure_dict(flax.state(module, flax.Param)) == drawn


def test_flax_modules_draw_dropout_only_in_training(random):
    flax = pytest.importorskip("flax.nnx", reason="Flax is not installed")
    module, x = module_of(nn.MinGRU(3, 4, 2, dropout=0.5), 0), jnp.asarray(random(2, T, 3))
    call = flax.jit(lambda m: m(x)[0])
    assert np.any(call(module) != call(module))
    module.eval()
    same(call(module), compiled(module.layer)(module.params, x)[0])
    with pytest.raises(TypeError, match="MinGRU: argument 'rngs': expected flax.nnx.Rngs, got int"):
        type(module)(3, 4, rngs=0)


def test_flax_variables_are_valid_arrays():
    flax = pytest.importorskip("flax.nnx", reason="Flax is not installed")
    from scanrec.jax import linear_scan

    layer, x = nn.MinGRU(3, 4), jnp.ones((T, 3))
    params = weights_of(layer)
    gate, first = jnp.full(3, 0.5), jnp.ones(3)

    def both(params, gate, first, x):
        return layer.apply(params, x)[0] * 2, linear_scan(gate, x, first) * 2

    @jax.jit
    def wrapped(params, gate, first, x):
        return both(jax.tree.map(flax.Param, params), flax.Param(gate), flax.Param(first), x)

    found = wrapped(params, gate, first, x)
    for got, want in zip(found, both(params, gate, first, x), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("name", ["QRNN two steps", "MinGRU"])
def test_arguments_of_rnn_behave_as_in_flax(name, random):
    """The reference is Flax's RNN with the layer's step as its cell.

    RNN distinguishes layers only by whether their state is a tuple.
    """
    flax = pytest.importorskip("flax.nnx", reason="Flax is not installed")
    from scanrec.jax import nnx

    first, other = (module_of(LAYERS[name], seed) for seed in (5, 6))
    inside = lambda state, back=False: jax.tree.map(
        lambda s: jnp.moveaxis(s, back, 1 - back), state
    )

    class Cell(flax.RNNCellBase):
        num_feature_axes = 1

        def __init__(self, module):
            self.module = module

        def initialize_carry(self, shape, rngs=None):
            return inside(self.module.layer.initial_state(shape[:-1], jnp.float64))

        def __call__(self, carry, x):
            y, carry = self.module.step(x, inside(carry, True))
            return inside(carry), y

    x, state = jnp.asarray(random(3, T, first.layer.input_size)), state_of(first.layer, random, 3)
    lengths = jnp.array([4, T, 1])
    valid = (jnp.arange(T) < lengths[:, None])[..., None]
    ours, theirs = (of(first) for of in (nnx.RNN, lambda m: flax.RNN(Cell(m))))
    forms = (
        {},
        {"time_major": True, "return_carry": True},
        {"reverse": True, "return_carry": True},
        {"reverse": True, "keep_order": True, "seq_lengths": lengths},
        {"seq_lengths": lengths, "return_carry": True},
        {"seq_lengths": lengths, "return_carry": True, "reverse": True, "keep_order": True},
        {"initial_carry": state, "return_carry": True},
        {"initial_carry": state, "seq_lengths": lengths},
    )
    by_time = jnp.swapaxes(x, 0, 1)
    of_cells = [
        o | ({"initial_carry": inside(state)} if "initial_carry" in o else {}) for o in forms
    ]

    def results(rnn, forms):
        """Return the results for all options in `forms`, computed by one program."""
        each = lambda m: [m(by_time if "time_major" in o else x, **o) for o in forms]
        return flax.jit(each)(rnn)

    for options, got, want in zip(forms, results(ours, forms), results(theirs, of_cells)):
        if "return_carry" in options:
            same(inside(got[0]), want[0])
            got, want = got[1], want[1]
        if "seq_lengths" in options:
            got, want = (jnp.where(valid, y, 0) for y in (got, want))
        same(got, want)
    both = [
        flax.Bidirectional(of(first), of(other)) for of in (nnx.RNN, lambda m: flax.RNN(Cell(m)))
    ]
    call = flax.jit(lambda m: m(x, seq_lengths=lengths, return_carry=True))
    got, want = (call(rnn) for rnn in both)
    same(inside(got[0]), want[0])
    same(jnp.where(valid, got[1], 0), jnp.where(valid, want[1], 0))
    by_default = nnx.RNN(first, time_major=True, return_carry=True, reverse=True, keep_order=True)
    said = flax.jit(lambda m: m(x, return_carry=True, reverse=True, keep_order=True))(ours)
    carry, outputs = by_default(by_time)
    same(carry, said[0])
    same(jnp.swapaxes(outputs, 0, 1), said[1])
    for call, error, words in (
        (lambda: nnx.RNN(LAYERS[name]), TypeError, "RNN: argument 'layer': expected a module"),
        (
            lambda: ours(x, seq_lengths=lengths[:2]),
            ValueError,
            r"'seq_lengths': expected shape \(3,\)",
        ),
        (lambda: ours(x, seq_lengths=lengths * 1.0), TypeError, "'seq_lengths': expected integers"),
        (lambda: ours(x[0, 0]), ValueError, r"'inputs': expected shape \(..., T, I\)"),
        (
            lambda: ours(x, initial_carry=state, seq_lengths=lengths, return_carry=True),
            ValueError,
            "'initial_carry': expected None with 'seq_lengths'",
        ),
    ):
        with pytest.raises(error, match=words):
            call()


def test_invalid_lengths_of_rnn_raise_or_are_clipped_when_traced(random):
    flax = pytest.importorskip("flax.nnx", reason="Flax is not installed")
    from scanrec.jax import nnx

    rnn, x = nnx.RNN(module_of(LAYERS["MinGRU"], 0)), jnp.asarray(random(3, T, 3))
    traced = flax.jit(lambda m, lengths: m(x, seq_lengths=lengths, return_carry=True, reverse=True))
    for kind in ("int64", "uint8"):
        same(traced(rnn, jnp.array([11, 0, 1], kind)), traced(rnn, jnp.array([T, 1, 1])))
    words = "'seq_lengths': expected integers from 1 to 9, got "
    for lengths, wrong in ((np.array([T, 11, 1]), 11), ([T, 0, 1], 0), (jnp.array([T, 1, -1]), -1)):
        call = partial(nnx.RNN.__call__, inputs=x, seq_lengths=lengths)
        for run in (call, flax.jit(call)):
            with pytest.raises(ValueError, match=f"{words}{wrong}"):
                run(rnn)


def test_rnn_of_a_bidirectional_layer_raises():
    pytest.importorskip("flax.nnx", reason="Flax is not installed")
    from scanrec.jax import nnx

    with pytest.raises(ValueError, match="'layer': expected a layer of one direction"):
        nnx.RNN(module_of(LAYERS["MinGRU both ways"], 0))


def test_layers_can_be_used_in_linen_modules(random):
    linen = pytest.importorskip("flax.linen", reason="Flax is not installed")
    layer = LAYERS["MinGRU"]

    class Model(linen.Module):
        @linen.compact
        def __call__(self, x):
            return layer.apply(self.param("rnn", layer.init), x)[0]

    x = jnp.asarray(random(2, T, 3))
    output, variables = Model().init_with_output(jax.random.key(0), x)
    same(output, layer.apply(variables["params"]["rnn"], x)[0])


def test_submodules_are_imported_lazily():
    """Only scanrec.jax.nnx needs Flax."""
    code = """
import sys, scanrec.jax
assert not {"flax", "scanrec.jax.nn"} & {*sys.modules}
sys.modules["flax"] = None
assert not {"nn", "nnx"} & {*dir(scanrec.jax)} and not hasattr(scanrec.jax, "nnn")
assert scanrec.jax.nn.MinGRU(3, 4) and "nn" in dir(scanrec.jax)
try:
    import scanrec.jax.nnx
except ImportError as error:
    print(error)
scanrec.jax.nnx
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    words = "scanrec.jax.nnx needs Flax: pip install 'scanrec[flax]'"
    assert ran.stdout.strip() == words and ran.stderr.strip().endswith(words)

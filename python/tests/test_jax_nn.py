# SPDX-License-Identifier: BSD-3-Clause
"""scanrec.jax.nn and nnx: layers against the same step by step, in values and gradients."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from dataclasses import fields
from functools import cache

import numpy as np
import pytest
from conftest import Random

jax = pytest.importorskip("jax", reason="JAX is not installed")
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_num_cpu_devices", 8)

import jax.numpy as jnp

from scanrec.jax import nn

T = 9
LAYERS = {
    "QRNN": nn.QRNN(3, 4, bias=False),
    "QRNN two steps": nn.QRNN(3, 4, 2, kernel_size=2, pool="f"),
    "QRNN both ways": nn.QRNN(
        3, 4, 2, bidirectional=True, kernel_size=2, pool="ifo", zoneout=0.3
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
sigmoid, silu = jax.nn.sigmoid, jax.nn.silu


@cache
def weights_of(layer, seed=0):
    """Weights as they start, moved a little: no bias is 0."""
    random, start = Random(seed), jax.jit(lambda key: layer.init(key, "float64"))(jax.random.key(seed))
    return jax.tree.map(lambda x: jnp.asarray(x + random(*x.shape, scale=0.1)), start)


def state_of(layer, random, *batch):
    zeros = layer.initial_state(batch, jnp.float64)
    return jax.tree.map(lambda x: jnp.asarray(random(*x.shape, dtype=x.dtype)), zeros)


def same(got, want, **tolerance):
    got, want = jax.tree.leaves(got), jax.tree.leaves(want)
    assert len(got) == len(want)
    for x, y in zip(got, want):
        assert x.shape == y.shape and x.dtype == y.dtype
        np.testing.assert_allclose(x, y, **{"rtol": 1e-10, "atol": 1e-10, **tolerance})


def advance(layer, p, carry, begins, u):
    """One step of one direction: (state, output). `begins`, (B, 1): the carried state is 0."""
    zero = lambda x: jnp.where(begins.reshape(begins.shape[:1] + (1,) * (x.ndim - 1)), 0, x)
    (h, *more), bias = map(zero, carry), p.get("bias", 0)
    if isinstance(layer, nn.QRNN):
        pre = u @ p["weight"].T + bias + (more[0] if more else 0)
        z, f, *others = jnp.split(pre, {"f": 2, "fo": 3, "ifo": 4}[layer.pool], -1)
        moved = sigmoid(f) * h + (sigmoid(others[1]) if others[1:] else sigmoid(-f)) * jnp.tanh(z)
        h = layer.zoneout * h + (1 - layer.zoneout) * moved
        y = sigmoid(others[0]) * h if others else h
        return (h, *([u @ p["weight_before"].T] if more else [])), y
    if isinstance(layer, nn.MinGRU):
        v, z = jnp.split(u @ p["weight"].T + bias, 2, -1)
        if layer.candidate == "positive":
            v = jnp.where(v >= 0, v + 0.5, sigmoid(v))
        h = (1 - sigmoid(z)) * h + sigmoid(z) * v
        return (h,), h
    if isinstance(layer, nn.RGLRU):
        x = u @ p["weight_in"].T + p.get("bias_in", 0) if "weight_in" in p else u
        whole = lambda w: jax.scipy.linalg.block_diag(*w)
        r = sigmoid(x @ whole(p["weight_recurrence"]) + p.get("bias_recurrence", 0))
        i = sigmoid(x @ whole(p["weight_gate"]) + p.get("bias_gate", 0))
        a = jnp.exp(-layer.c * jax.nn.softplus(p["decay"]) * r)
        h = a * h + jnp.where(begins, 1, jnp.sqrt(1 - a**2)) * i * x
        return (h,), h
    if isinstance(layer, (nn.LRU, nn.S5)):
        b, c = (p[name][..., 0] + 1j * p[name][..., 1] for name in "bc")
        if isinstance(layer, nn.LRU):
            gate = jnp.exp(-jnp.exp(p["nu"]) + 1j * jnp.exp(p["theta"]))
            scale = jnp.sqrt(1 - jnp.abs(gate) ** 2)
        else:
            c, step = 2 * c, jnp.exp(p["log_step"])
            l = -jnp.exp(p["log_decay"]) + 1j * p["frequency"]
            gate, scale = jnp.exp(l * step), (jnp.exp(l * step) - 1) / l
            if layer.discretisation == "bilinear":
                gate, scale = (1 + l * step / 2) / (1 - l * step / 2), step / (1 - l * step / 2)
        h = gate * h + scale * (u @ b.T)
        through = u * p["d"] if p["d"].ndim == 1 else u @ p["d"].T
        return (h,), (h @ c.T).real + through + bias
    u, z = jnp.split(u @ p["weight_in"].T, 2, -1)
    seen = jnp.concatenate([more[0], u[..., None]], -1)  # (B, E, conv)
    v = silu(jnp.sum(seen * p["weight_conv"], -1) + p.get("bias_conv", 0))
    n, r = layer.state_size, p["weight_delta"].shape[1]
    low, b, c = jnp.split(v @ p["weight_mixing"].T, [r, r + n], -1)
    step = jax.nn.softplus(low @ p["weight_delta"].T + p["bias_delta"])[..., None]
    h = jnp.exp(-step * jnp.exp(p["log_decay"])) * h + step * b[:, None] * v[..., None]
    y = (jnp.sum(h * c[:, None], -1) + p["skip"] * v) * silu(z)
    return (h, seen[..., 1:]), y @ p["weight_out"].T


def stepwise(layer, params, x, state=None, marks=None):
    """What layer.apply is, by lax.scan over `advance`; marks: (B, T + 1)."""
    first = layer.initial_state(x.shape[:1], x.dtype) if state is None else state
    arrays, finals = first if isinstance(first, tuple) else (first,), []
    cuts = jnp.zeros((len(x), T + 1), bool) if marks is None else marks
    cuts = [cuts[:, :T], cuts[:, :0:-1]]
    if state is None:
        cuts = [cut.at[:, 0].set(True) for cut in cuts]
    for i in range(layer.num_layers):
        outputs = []
        for d, way in enumerate(params[f"layer_{i}"]):
            p, u = params[f"layer_{i}"][way], x[:, ::-1] if d else x
            mirror = lambda s: s[..., ::-1] if d and isinstance(layer, nn.Mamba) else s
            h, *more = (a[layer.num_directions * i + d] for a in arrays)
            over = jnp.swapaxes(u, 0, 1), cuts[d].T[..., None]
            body = lambda carry, now, p=p: advance(layer, p, carry, now[1], now[0])
            (h, *more), y = jax.lax.scan(body, (h, *map(mirror, more)), over)
            finals.append((h, *map(mirror, more)))
            outputs.append(jnp.swapaxes(y, 0, 1)[:, :: -1 if d else 1])
        x = jnp.concatenate(outputs, -1)
    finals = [jnp.stack(s) for s in zip(*finals)]
    return x, type(first)(*finals) if isinstance(first, tuple) else finals[0]


@pytest.mark.parametrize("name", LAYERS)
def test_step_by_step(name, random):
    """Values and gradients, from a state, with resets also behind the last step; and from none."""
    layer = LAYERS[name]
    params, x = weights_of(layer), jnp.asarray(random(2, T, layer.input_size))
    state, marks = state_of(layer, random, 2), jnp.asarray(random.marks(2, T + 1)).at[0, T].set(True)
    weigh = jnp.asarray(random(2, T, layer.output_size))

    def all_of(apply):
        def loss(params, x, state):
            output, final = apply(params, x, state, marks)
            leaves = jax.tree.leaves(final)
            ends = sum(jnp.sum(jnp.sin(s.real) + jnp.cos(s.imag) ** 2) for s in leaves)
            return jnp.sum(weigh * output) + ends, (output, final)

        return jax.value_and_grad(loss, (0, 1, 2), has_aux=True)(params, x, state), apply(params, x)

    ours = lambda params, x, state=None, marks=None: layer.apply(params, x, state, resets=marks)
    got = jax.jit(lambda: all_of(ours))()
    same(got, jax.jit(lambda: all_of(lambda *given: stepwise(layer, *given)))())
    assert all(np.any(x) for x in jax.tree.leaves(got))


@pytest.mark.parametrize("name", FORWARD)
def test_chunks_and_steps(name, random):
    layer = LAYERS[name]
    params, x = weights_of(layer), jnp.asarray(random(2, 3, T, layer.input_size))
    marks = jnp.asarray(random.marks(3, T)).at[:, 6:].set(False)

    def pieces():
        first, state = layer.apply(params, x[..., :4, :], resets=marks[:, :4])
        second, state = layer.apply(params, x[..., 4:6, :], state, resets=marks[:, 4:7])
        step = jax.checkpoint(lambda state, u: layer.step(params, u, state)[::-1])
        state, rest = jax.lax.scan(step, state, jnp.moveaxis(x[..., 6:, :], -2, 0))
        # A sequence without a batch begins with a step that may be another from a state of 0.
        begins = layer.apply(params, x[1, 2, :1])[0][0], layer.step(params, x[1, 2, 0])[0]
        return jnp.concatenate([first, second, jnp.moveaxis(rest, 0, -2)], -2), state, begins

    output, state, begins = jax.jit(pieces)()
    same((output, state), jax.jit(layer.apply)(params, x, resets=marks))
    same(*begins)


@pytest.mark.parametrize("name", LAYERS)
def test_sequences_packed_into_one_are_alone(name, random):
    layer = LAYERS[name]
    params, x = weights_of(layer), jnp.asarray(random(T, layer.input_size))
    starts = jnp.zeros(T, bool).at[jnp.array([2, 3, 6])].set(True)
    apply = jax.jit(layer.apply)
    output, ended = apply(params, x.at[2].set(jnp.nan), resets=starts)
    assert np.all(np.isnan(output[2]))  # which is seen by none of the others
    for part in (slice(3, 6), slice(6, T)):
        alone, begun = apply(params, x[part])
        same(output[part], alone)
    # A state knows nothing of what came before: that of the first layer, forward.
    same(*(jax.tree.map(lambda s: s[0], state) for state in (ended, begun)))


def test_batches_and_ensembles(random):
    """vmap of inputs, and of weights."""
    for layer in (LAYERS["QRNN two steps"], LAYERS["S5"], LAYERS["Mamba both ways"]):
        weights = [weights_of(layer, seed) for seed in (0, 1)]
        both = jax.tree.map(lambda *x: np.stack(x), *weights)
        x, apply = jnp.asarray(random(3, T, layer.input_size)), jax.jit(layer.apply)
        output, state = jax.jit(jax.vmap(jax.vmap(layer.apply, (None, 0)), (0, None)))(both, x)
        for i in range(2):
            mine = jax.tree.map(lambda s, i=i: np.swapaxes(s[i], 0, 1), state)
            same((output[i], mine), apply(weights[i], x))


def test_dropout_and_zoneout(random):
    layer = nn.MinGRU(3, 64, 2, dropout=0.25)
    params, x = weights_of(layer), jnp.asarray(random(2, 50, 3))
    first = nn.MinGRU(3, 64).apply({"layer_0": params["layer_0"]}, x)[0]
    key, second = jax.random.key(3), nn.MinGRU(64, 64)
    same(layer.apply(params, x)[0], second.apply({"layer_0": params["layer_1"]}, first)[0])
    seen = []  # what the second layer reads: its weights say which candidates these are
    copies = {"weight": jnp.concatenate([jnp.eye(64), jnp.zeros((64, 64))])}
    copies["bias"] = jnp.repeat(jnp.array([0.0, 50.0]), 64)  # a gate that is open
    looks = {**params, "layer_1": {"forward": copies}}
    seen = layer.apply(looks, x, key=key)[0]
    kept = np.abs(seen) > 1e-9
    assert abs(kept.mean() - 0.75) < 0.02
    same(seen[kept], first[kept] / 0.75)
    assert not np.any(nn.MinGRU(3, 64, 2, dropout=1.0).apply(looks, x, key=key)[0])
    with pytest.warns(UserWarning, match="dropout is between layers"):
        nn.MinGRU(3, 4, dropout=0.5)

    layer = nn.QRNN(3, 64, pool="f", zoneout=0.25)
    states = layer.apply(weights_of(layer), x, key=key)[0]
    assert abs(np.mean(states[:, 1:] == states[:, :-1]) - 0.25) < 0.02


@pytest.mark.parametrize("name", FORWARD)
def test_types(name, random):
    layer = LAYERS[name]
    given = weights_of(layer), jnp.asarray(random(2, T, layer.input_size))
    cast = lambda dtype: jax.tree.map(lambda x: x.astype(dtype), given)
    dtypes = {"float32": 1e-5, "bfloat16": 0.05}
    all_of = jax.jit(lambda: [layer.apply(*cast(dtype)) for dtype in (*dtypes, "float64")])()
    for (dtype, bound), (output, state) in zip(dtypes.items(), all_of):
        zeros = layer.initial_state((2,), dtype)
        assert output.dtype == dtype
        assert all(s.dtype == z.dtype for s, z in zip(*map(jax.tree.leaves, (state, zeros))))
        assert np.max(np.abs(output.astype(float) - all_of[-1][0])) < bound


def test_starts():
    """What docstrings say of the weights that are drawn."""
    draw = lambda layer: jax.jit(layer.init)(jax.random.key(0))["layer_0"]["forward"]
    same(draw(nn.QRNN(3, 4))["bias"], np.repeat(np.array([0, 1, 0], np.float32), 4))
    a = np.exp(-8 * np.log1p(np.exp(draw(nn.RGLRU(64, 64))["decay"])))
    assert 0.9 <= a.min() and a.max() <= 0.999
    ring = np.exp(-np.exp(draw(nn.LRU(3, 4, r_min=0.5, r_max=0.6))["nu"]))
    assert 0.4999 <= ring.min() and ring.max() <= 0.6001
    p = draw(nn.Mamba(16, 16))
    step = np.log1p(np.exp(p["bias_delta"]))
    assert 0.99e-3 < step.min() and step.max() < 0.101
    np.testing.assert_allclose(np.exp(p["log_decay"])[3], np.arange(1, 17), rtol=1e-5)
    # The eigenvalues of HiPPO-LegS' normal part.
    p, root = draw(nn.S5(3, 4, state_size=6)), np.sqrt(2 * np.arange(6) + 1)
    lower = np.tril(np.outer(root, root), -1)
    values = np.linalg.eigvals((lower.T - lower - np.eye(6)) / 2)
    np.testing.assert_allclose(-np.exp(p["log_decay"]), values.real[:3], rtol=1e-6)
    np.testing.assert_allclose(np.sort(p["frequency"]), np.sort(values.imag)[3:], rtol=1e-5)


def test_refusals():
    layer, two = nn.MinGRU(3, 4), nn.QRNN(3, 4, kernel_size=2)
    params, x = layer.init(jax.random.key(0)), jnp.ones((2, T, 3))
    weights = params["layer_0"]["forward"]
    changed = lambda **other: {"layer_0": {"forward": {**weights, **other}}}
    mamba = nn.Mamba(3, 4)
    of_two, of_mamba = (one.init(jax.random.key(0)) for one in (two, mamba))
    for call, error, words in (
        (lambda: nn.QRNN(0, 4), ValueError, "QRNN: argument 'input_size': expected an integer of 1"),
        (lambda: nn.QRNN(3, 4.5), TypeError, "'hidden_size'.*got 4.5"),
        (lambda: nn.QRNN(3, 4, dropout=2.0), ValueError, "'dropout': expected a number from 0 to 1"),
        (lambda: nn.QRNN(3, 4, bias=1), TypeError, "'bias': expected a bool"),
        (lambda: nn.QRNN(3, 4, kernel_size=3), ValueError, "'kernel_size': expected 1 or 2, got 3"),
        (lambda: nn.QRNN(3, 4, pool="of"), ValueError, "'pool'.*'of'"),
        (lambda: nn.QRNN(3, 4, zoneout=1), ValueError, "'zoneout'"),
        (lambda: nn.MinGRU(3, 4, candidate="tanh"), ValueError, "'candidate'.*'positive'"),
        (lambda: nn.RGLRU(3, 4, heads=3), ValueError, "'heads': expected a divisor"),
        (lambda: nn.RGLRU(3, 4, c=0), ValueError, "'c'.*above 0"),
        (lambda: nn.LRU(3, 4, r_min=0.95, r_max=0.9), ValueError, "'r_min'.*below r_max"),
        (lambda: nn.LRU(3, 4, max_phase=7), ValueError, "'max_phase'"),
        (lambda: nn.S5(3, 4, state_size=7), ValueError, "'state_size'.*multiple"),
        (lambda: nn.S5(3, 4, discretisation="euler"), ValueError, "'discretisation'"),
        (lambda: nn.S5(3, 4, dt_max=1e-4), ValueError, "'dt_max'"),
        (lambda: nn.Mamba(3, 4, dt_rank="full"), ValueError, "'dt_rank'"),
        (lambda: layer.init(jax.random.key(0), "int32"), TypeError, "MinGRU.init: argument 'dtype'"),
        (lambda: layer.apply(params, x[..., :2]), ValueError, "MinGRU.apply: argument 'input'.*T, 3"),
        (lambda: layer.apply(params, x * 1j), TypeError, "'input'.*real"),
        (lambda: layer.apply(params, x, jnp.ones((2, 4))), ValueError, r"'state'.*\(1, 2, 4\)"),
        (lambda: layer.apply(params, x, 1j * jnp.ones((1, 2, 4))), TypeError, "'state'.*real"),
        (lambda: layer.apply(params, x, (x,)), TypeError, "'state': expected an array, got tuple"),
        (lambda: two.apply(of_two, x, x), TypeError, r"'state': expected QRNNState\(hidden, before"),
        (lambda: mamba.step(of_mamba, x[:, 0], (x, x)), ValueError, "Mamba.step.*'state.hidden'"),
        (lambda: layer.apply(params, x, resets=jnp.ones((2, 4), bool)), ValueError, "'resets'"),
        (lambda: layer.apply(params, x, resets=jnp.ones((2, T))), TypeError, "'resets'.*booleans"),
        (lambda: layer.apply({}, x), ValueError, r"'params': expected entries \['layer_0'\]"),
        (lambda: layer.apply(changed(bias=x), x), ValueError, r"params\['layer_0'\]\['forward'\]\['b"),
        (lambda: layer.apply(changed(more=x), x), ValueError, "'bias', 'weight'.*more"),
        (lambda: nn.QRNN(3, 4, bidirectional=True).step({}, x), ValueError, "'bidirectional'"),
    ):
        with pytest.raises(error, match=words):
            call()


@pytest.mark.parametrize("name", ["QRNN both ways", "MinGRU", "RGLRU", "LRU", "S5", "Mamba"])
def test_modules_of_flax(name, random):
    """Are the same, and go through what Flax does with modules."""
    flax = pytest.importorskip("flax.nnx", reason="Flax is not installed")
    from scanrec.jax import nnx

    layer = LAYERS[name]
    kind, given = type(layer), {f.name: getattr(layer, f.name) for f in fields(layer)}
    made = lambda seed: getattr(nnx, kind.__name__)(**given, dtype="float64", rngs=flax.Rngs(seed))
    module, other = made(5), made(6)
    module.eval(), other.eval()
    x = jnp.asarray(random(2, T, layer.input_size))
    state, marks = state_of(layer, random, 2), jnp.asarray(random.marks(2, T))
    drawn = jax.jit(lambda key: layer.init(key, "float64"))(flax.Rngs(5).params())
    want = jax.jit(layer.apply)(drawn, x, state, resets=marks)
    call = flax.jit(lambda m: m(x, state, resets=marks))
    if not layer.bidirectional:
        same(module.step(x[:, 0], state), layer.step(drawn, x[:, 0], state))
    flax.update(other, flax.state(module))
    for again in (module, other, copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        same(call(again), want)
    same(flax.to_pure_dict(flax.state(module, flax.Param)), drawn)
    gradient = flax.jit(flax.grad(lambda m: jnp.sum(m(x)[0] ** 2)))(module)
    want = jax.jit(jax.grad(lambda p: jnp.sum(layer.apply(p, x)[0] ** 2)))(drawn)
    same(flax.to_pure_dict(gradient), want)


def test_dropout_of_flax(random):
    flax = pytest.importorskip("flax.nnx", reason="Flax is not installed")
    from scanrec.jax import nnx

    module, x = nnx.QRNN(3, 4, 2, dropout=0.5, rngs=flax.Rngs(0)), jnp.asarray(random(2, T, 3))
    first, second = (np.asarray(flax.jit(lambda m: m(x)[0])(module)) for _ in range(2))
    assert np.any(first != second)
    module.eval()
    same(module(x)[0], module.layer.apply(module.params, x)[0])
    with pytest.raises(TypeError, match="QRNN: argument 'rngs': expected flax.nnx.Rngs, got int"):
        nnx.QRNN(3, 4, rngs=0)


def test_flax_is_asked_for():
    """Where it is missing, and by nothing else."""
    code = "import sys; sys.modules['flax'] = None; import scanrec.jax.nn, scanrec.jax.nnx"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert ran.stderr.strip().endswith("scanrec.jax.nnx needs Flax: pip install 'scanrec[flax]'")
    code = "import scanrec.jax, sys; sys.exit('flax' in sys.modules or 'scanrec.jax.nn' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)

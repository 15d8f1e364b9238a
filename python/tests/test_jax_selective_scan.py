# SPDX-License-Identifier: BSD-3-Clause
"""scanrec.jax.selective_scan: values and derivatives against a plain loop that JAX differentiates,
batching, programs, devices."""

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
from jax.test_util import check_grads

import scanrec.jax
from scanrec.jax import selective_scan, selective_state_update

NAMES = ("u", "delta", "A", "B", "C", "D", "z", "delta_bias", "initial_state")


def loop(u, delta, A, B, C, D=None, z=None, delta_bias=None, initial_state=None, *,
         delta_softplus=False, resets=None, reverse=False):  # fmt: skip
    """(out, final state) of (batch, time, channel), step by step, in the type of A."""
    dtype, (batch, steps, channels) = A.dtype, u.shape
    x, step = u.astype(dtype), delta.astype(dtype)
    if delta_bias is not None:
        step = step + delta_bias
    if delta_softplus:
        step = jnp.where(step > 20, step, jnp.log1p(jnp.exp(jnp.minimum(step, 20))))

    def of_channels(mixing):
        if mixing.ndim == 2:
            return jnp.broadcast_to(mixing, (batch, steps, *mixing.shape))
        mixing = mixing.astype(dtype)[..., None, :] if mixing.ndim == 3 else mixing.astype(dtype)
        return jnp.repeat(mixing, channels // mixing.shape[2], 2)

    cut = jnp.zeros((batch, steps + 1, channels), bool)
    if resets is not None:
        cut = cut.at[:, : resets.shape[1]].set(resets)
    cut = cut[:, 1:] if reverse else cut[:, :-1]

    def one(state, now):
        x, step, b, c, cut = now
        carried = jnp.where(cut[..., None], 0, jnp.exp(step[..., None] * A) * state)
        state = carried + (step * x)[..., None] * b
        return state, (c * state).sum(-1)

    first = jnp.zeros((), dtype) if initial_state is None else initial_state
    now = (x, step, of_channels(B), of_channels(C), cut)
    final, y = jax.lax.scan(
        one,
        jnp.broadcast_to(first, (batch, channels, A.shape[1])),
        jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), now),
        reverse=reverse,
    )
    y = jnp.moveaxis(y, 0, 1)
    if D is not None:
        y = y + D * x
    if z is not None:
        y = y * jax.nn.silu(z.astype(dtype))
    return y.astype(u.dtype), final


def arrays_of(random, batch=2, steps=9, channels=4, states=3, groups=None, of="steps steps"):
    """Arguments by name: steps of 0.1 to 2.6 by softplus, gates of exp(-5) to exp(-0.02)."""
    mixing = (batch, steps, *(() if groups is None else (groups,)), states)
    b, c = (mixing if kind == "steps" else (channels, states) for kind in of.split())
    shape = (batch, steps, channels)
    return dict(
        u=random(*shape),
        delta=random(*shape) * 2,
        A=-np.abs(random(channels, states)) - 0.2,
        B=random(*b),
        C=random(*c),
        D=random(channels),
        z=random(*shape) * 2,
        delta_bias=random(channels) * 0.5,
        initial_state=random(batch, channels, states),
    )


def same(got, want, **tolerance):
    """Sums of some tens of terms of order 1, in another order: a few hundred roundings of 1e-16,
    and those of exp and the sigmoid, of 5 units each."""
    got, want = jax.tree.leaves(got), jax.tree.leaves(want)
    assert len(got) == len(want)
    for x, y in zip(got, want):
        assert x.shape == y.shape and x.dtype == y.dtype
        np.testing.assert_allclose(x, y, **{"rtol": 1e-11, "atol": 1e-12, **tolerance})


def bits(got, want):
    same(got, want, rtol=0, atol=0)


def loss_of(f, weights):
    """Of both results, each with a gradient of its own everywhere."""

    def loss(*x):
        return sum(jnp.sum(w * jnp.sin(y)) for w, y in zip(weights, f(*x)))

    return loss


ours = partial(selective_scan, delta_softplus=True, return_final=True)
theirs = partial(loop, delta_softplus=True)


def as_function(call, names, **options):
    """A call as a function of arrays in this order."""
    return lambda *x: call(**dict(zip(names, x)), **options)


# ---- values and gradients -------------------------------------------------------------------------

# (of B and C, groups, reverse, steps with resets, what is left out)
CASES = {
    "plain": dict(),
    "groups": dict(groups=2, marked=9),
    "groups, reverse": dict(groups=2, reverse=True, marked=10),
    "of channels": dict(of="channel channel", reverse=True, marked=9),
    "B of channels": dict(of="channel steps", marked=10),
    "C of channels": dict(of="steps channel", groups=4),
    "long": dict(steps=300, marked=300),
    "long, reverse": dict(steps=300, reverse=True, channels=19),
    "nothing else": dict(without=("D", "z", "delta_bias", "initial_state")),
}


@pytest.fixture(params=CASES.values(), ids=CASES)
def problem(request):
    """Our function and the plain one, arrays to call them with, and weights of a loss."""
    case, random = dict(request.param), Random(1)
    reverse, marked = case.pop("reverse", False), case.pop("marked", 0)
    without = case.pop("without", ())
    given = {n: jnp.asarray(x) for n, x in arrays_of(random, **case).items() if n not in without}
    options = {"reverse": reverse, "delta_softplus": "D" not in without}
    if marked:
        options["resets"] = jnp.asarray(random.marks(2, marked, 1))
    weights = random(*given["u"].shape), random(2, *given["A"].shape)
    names = tuple(given)
    return (
        as_function(selective_scan, names, return_final=True, **options),
        as_function(loop, names, **options),
        tuple(given.values()),
        weights,
    )


def test_values_and_gradients(problem):
    """300 steps of a state that forgets slowly add as many roundings."""
    ours, theirs, arrays, weights = problem
    every = tuple(range(len(arrays)))
    near = {"rtol": 1e-10, "atol": 1e-10 if arrays[0].shape[1] > 100 else 1e-12}
    same(ours(*arrays), theirs(*arrays), **near)
    for of in (weights, (weights[0], 0.0), (0.0, weights[1])):
        got, want = (jax.jit(jax.grad(loss_of(f, of), every))(*arrays) for f in (ours, theirs))
        same(got, want, **near)


def test_derivatives_of_second_order(problem):
    ours, theirs, arrays, weights = problem
    if arrays[0].shape[1] > 100:
        pytest.skip("short sequences say the same")
    random, every = Random(5), tuple(range(len(arrays)))
    moves = tuple(jnp.asarray(random(*x.shape)) for x in arrays)
    dot = lambda x, y: sum(jnp.vdot(*pair) for pair in zip(x, y))

    def all_of(f):
        loss = loss_of(f, weights)
        gradient = jax.grad(loss, every)
        push = lambda *x: jax.jvp(f, x, moves)[1]
        return {
            "forward": push(*arrays),
            "forward of reverse": jax.jvp(gradient, arrays, moves)[1],
            "reverse of reverse": jax.grad(lambda *x: dot(gradient(*x), moves), every)(*arrays),
            "reverse of forward": jax.grad(lambda *x: jax.jvp(loss, x, moves)[1], every)(*arrays),
            "forward of forward": jax.jvp(push, arrays, moves)[1],
            "linear": jax.linearize(f, *arrays)[1](*moves),
        }

    got, want = jax.jit(lambda: all_of(ours))(), jax.jit(lambda: all_of(theirs))()
    for name in want:
        assert all(np.any(x) for x in jax.tree.leaves(want[name])), name
        same(got[name], want[name], rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("reverse", [False, True])
def test_numerical_derivatives(random, reverse):
    given = arrays_of(random, 1, 4, 2, 2)
    resets = np.zeros((1, 4, 1), bool)
    resets[0, 2] = True
    f = as_function(
        selective_scan, tuple(given), delta_softplus=True, return_final=True,
        resets=resets, reverse=reverse,
    )  # fmt: skip
    arrays = tuple(map(jnp.asarray, given.values()))
    check_grads(jax.jit(f), arrays, order=2, modes=("fwd", "rev"), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_types(random, dtype):
    """Sequences are rounded, the rest is float32: outputs are within a unit of what is computed in
    float64 from the same numbers."""
    given = {n: jnp.asarray(x, jnp.float32) for n, x in arrays_of(random, steps=200).items()}
    given |= {n: given[n].astype(dtype) for n in ("u", "delta", "z", "B")}
    wide = {n: x.astype(jnp.float64) for n, x in given.items()}
    out, final = ours(**given)
    assert out.dtype == dtype and final.dtype == jnp.float32
    want, last = theirs(**wide)
    unit = float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(np.asarray(out, float), want, rtol=unit, atol=3e-6)
    np.testing.assert_allclose(final, last, rtol=1e-5, atol=3e-6)
    weights = random(*out.shape), random(*final.shape)
    gradient = lambda f, x: jax.grad(
        lambda x: sum(jnp.sum(w * y.astype(float)) for w, y in zip(weights, f(**x)))
    )(x)
    got, want = gradient(ours, given), gradient(theirs, wide)
    for name in given:
        assert got[name].dtype == given[name].dtype
        # Cotangents of outputs are rounded to their type.
        scale = np.max(np.abs(want[name]))
        error = np.max(np.abs(np.asarray(got[name], float) - want[name]))
        assert error < (3 * unit + 1e-5) * scale, name


def test_leading_axes_and_small_problems(random):
    given = {n: jnp.asarray(x) for n, x in arrays_of(random, batch=6).items()}
    whole = ours(**given, resets=jnp.asarray(random.marks(1, 9, 1)))
    many = {
        n: x.reshape(2, 3, *x.shape[1:]) if x.shape[0] == 6 else x for n, x in given.items()
    }
    random = Random()
    arrays_of(random, batch=6)
    for x, y in zip(ours(**many, resets=jnp.asarray(random.marks(1, 9, 1))), whole):
        bits(x.reshape(y.shape), y)
    # One sequence; states that broadcast.
    one = {n: x[0] if x.shape[0] == 6 else x for n, x in given.items()}
    for x, y in zip(ours(**one), ours(**given)):
        bits(x, y[0])
    bits(ours(**{**one, "initial_state": jnp.ones(3)}), ours(**{**one, "initial_state": jnp.ones((4, 3))}))
    for batch, steps in ((0, 5), (2, 0), (2, 1)):
        small = {n: jnp.asarray(x) for n, x in arrays_of(random, batch, steps).items()}
        gradient = lambda f: jax.grad(lambda x: sum(jnp.sum(y**2) for y in f(**x)))(small)
        same(ours(**small), theirs(**small))
        same(gradient(ours), gradient(theirs))


def test_far_steps(random):
    """Above 20 softplus is its argument and its slope 1, composed or not."""
    given = {n: jnp.asarray(x) for n, x in arrays_of(random).items()}
    given["delta"] = given["delta"] * 30
    loss = lambda f: lambda delta: jnp.sum(f(**{**given, "delta": delta})[0] ** 2)
    same(jax.grad(loss(ours))(given["delta"]), jax.grad(loss(theirs))(given["delta"]))
    push = lambda f: jax.jvp(loss(f), (given["delta"],), (given["u"],))
    same(push(ours), push(theirs))
    assert np.all(np.isfinite(jax.grad(loss(ours))(given["delta"] * 1e3)))


@pytest.mark.parametrize("reverse", [False, True])
def test_packed_sequences_are_separate_ones(random, reverse):
    lengths = (3, 1, 150, 10)
    total, starts = sum(lengths), np.cumsum((0, *lengths))[:-1]
    given = {n: jnp.asarray(x) for n, x in arrays_of(random, 1, total).items()}
    given.pop("initial_state")
    resets = np.zeros((1, total, 1), bool)
    resets[0, starts] = True
    sequences = ("u", "delta", "B", "C", "z")

    def parts(x):
        for start, length in zip(starts, lengths):
            at = slice(start, start + length)
            yield ours(**{n: v[:, at] if n in sequences else v for n, v in x.items()}, reverse=reverse)

    packed = lambda x: ours(**x, resets=resets, reverse=reverse)
    outs, finals = zip(*parts(given))
    bits(packed(given), (jnp.concatenate(outs, 1), finals[0 if reverse else -1]))
    got = jax.grad(lambda x: jnp.sum(packed(x)[0] ** 2))(given)
    want = jax.grad(lambda x: sum(jnp.sum(y**2) for y, _ in parts(x)))(given)
    same(got, want, rtol=1e-9, atol=1e-10)  # those of weights are sums over parts
    # What is on the other side of a mark is not looked at.
    hidden = {n: v.at[:, :3].set(np.nan) if n == "u" else v for n, v in given.items()}
    bits(packed(hidden)[0][:, 3:], packed(given)[0][:, 3:])


@pytest.mark.parametrize("reverse", [False, True])
def test_streams(random, reverse):
    """Chunks go on with the bits of the whole; so do single steps."""
    given = {n: jnp.asarray(x) for n, x in arrays_of(random, steps=140).items()}
    resets = random.marks(2, 140, 1)
    want, last = ours(**given, resets=resets, reverse=reverse)
    outs, state = [], given["initial_state"]
    edges = [(0, 1), (1, 130), (130, 140)][:: -1 if reverse else 1]
    for a, b in edges:
        chunk = {n: x[:, a:b] if n in ("u", "delta", "B", "C", "z") else x for n, x in given.items()}
        chunk["initial_state"] = state
        out, state = ours(**chunk, resets=resets[:, a : b + 1], reverse=reverse)
        outs.append(out)
    bits((jnp.concatenate(outs[:: -1 if reverse else 1], 1), state), (want, last))


@pytest.mark.parametrize("groups", [None, 2])
def test_single_steps(random, groups):
    given = {n: jnp.asarray(x) for n, x in arrays_of(random, groups=groups).items()}
    want, last = ours(**given)
    state, outs = given.pop("initial_state"), []
    names = {"u": "x", "delta": "dt", "delta_bias": "dt_bias"}
    step = jax.jit(partial(selective_state_update, dt_softplus=True), donate_argnums=0)
    for t in range(9):
        now = {
            names.get(n, n): x[:, t] if n in ("u", "delta", "B", "C", "z") else x
            for n, x in given.items()
        }
        out, state = step(state, **now)
        outs.append(out)
    bits((jnp.stack(outs, 1), state), (want, last))
    out, half = step(state.astype(jnp.bfloat16), **{n: x.astype(jnp.float32) for n, x in now.items()})
    assert out.dtype == jnp.float32 and half.dtype == jnp.bfloat16
    one = {n: x[0] if x.ndim > 1 and n != "A" else x for n, x in now.items()}
    bits(step(state[0], **one)[0], step(state, **now)[0][0])

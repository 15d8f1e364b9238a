# SPDX-License-Identifier: BSD-3-Clause
"""Tests of scanrec.jax.selective_scan against a loop that JAX differentiates.

They cover values, derivatives, batching, programs, devices and errors.
"""

from __future__ import annotations

import importlib.util
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
from jax_derivatives import check_derivatives

from scanrec import _cuda
from scanrec.jax import selective_scan, selective_state_update

NAMES = ("u", "delta", "A", "B", "C", "D", "z", "delta_bias", "initial_state", "intervals")


OF_STEPS = ("u", "delta", "B", "C", "z", "intervals")
OF_STATES = ("A", "B", "C", "initial_state")  # may be complex


def loop(u, delta, A, B, C, D=None, z=None, delta_bias=None, initial_state=None,
         intervals=None, *, delta_softplus=False, resets=None, reverse=False):  # fmt: skip
    """Compute (out, final state) for (batch, time, channel) step by step.

    States are computed in the type of A, and arrays without an axis of states in its real type.
    """
    dtype, (batch, steps, channels) = jnp.finfo(A.dtype).dtype, u.shape
    x, step = u.astype(dtype), delta.astype(dtype)
    if delta_bias is not None:
        step = step + delta_bias
    if delta_softplus:
        step = jnp.where(step > 20, step, jnp.log1p(jnp.exp(jnp.minimum(step, 20))))
    if intervals is not None:
        step = step * intervals[..., None]

    def of_channels(mixing):
        if mixing.ndim == 2:
            return jnp.broadcast_to(mixing, (batch, steps, *mixing.shape))
        mixing = mixing.astype(A.dtype)
        mixing = mixing[..., None, :] if mixing.ndim == 3 else mixing
        return jnp.repeat(mixing, channels // mixing.shape[2], 2)

    reset = jnp.zeros((batch, steps + 1, channels), bool)
    if resets is not None:
        reset = reset.at[:, : resets.shape[1]].set(resets)
    reset = reset[:, 1:] if reverse else reset[:, :-1]

    def one(state, now):
        x, step, b, c, reset = now
        carried = jnp.where(reset[..., None], 0, jnp.exp(step[..., None] * A) * state)
        state = carried + (step * x)[..., None] * b
        y = (c * state).sum(-1)
        return state, 2 * y.real if jnp.iscomplexobj(y) else y

    first = jnp.zeros((), A.dtype) if initial_state is None else initial_state
    now = (x, step, of_channels(B), of_channels(C), reset)
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


def arrays_of(random, batch=2, steps=9, channels=4, states=3, groups=None, of="steps steps",
              is_complex=False):  # fmt: skip
    """Return arguments by name.

    Step sizes are 0.07 to 2.6 after softplus. With intervals of 0.3 to 1.3, gates have magnitudes
    of exp(-4.1) to exp(-0.004), and complex gates have phases of up to 3.4 radians.
    """
    mixing = (batch, steps, *(() if groups is None else (groups,)), states)
    b, c = (mixing if kind == "steps" else (channels, states) for kind in of.split())
    shape = (batch, steps, channels)
    given = dict(
        u=random(*shape),
        delta=random(*shape) * 2,
        A=-np.abs(random(channels, states)) - 0.2,
        B=random(*b),
        C=random(*c),
        D=random(channels),
        z=random(*shape) * 2,
        delta_bias=random(channels) * 0.5,
        initial_state=random(batch, channels, states),
        intervals=np.abs(random(batch, steps)) + 0.3,
    )
    for name in OF_STATES if is_complex else ():
        given[name] = given[name] + 1j * random(*given[name].shape)
    return given


def same(got, want, **tolerance):
    """Check that trees of arrays are equal up to rounding.

    Both sides sum some tens of terms of magnitude 1, in different orders. Their difference is a few
    hundred rounding errors of 1e-16, including 5 each from exp and the sigmoid.
    """
    got, want = jax.tree.leaves(got), jax.tree.leaves(want)
    assert len(got) == len(want)
    for x, y in zip(got, want):
        assert x.shape == y.shape and x.dtype == y.dtype
        if x.dtype == jnp.bfloat16:  # NumPy 1.26 cannot compare it
            x, y = x.astype(jnp.float32), y.astype(jnp.float32)
        np.testing.assert_allclose(x, y, **{"rtol": 1e-11, "atol": 1e-12, **tolerance})


def bits(got, want):
    same(got, want, rtol=0, atol=0)


def random_like(random, x):
    """Return random numbers of order 1 in the shape of x. They are complex if x is."""
    one = jnp.asarray(random(*x.shape))
    return one + 1j * random(*x.shape) if jnp.iscomplexobj(x) else one


def loss_of(f, weights):
    """Return a loss of both results, with a different gradient for every element."""

    def loss(*x):
        return sum(jnp.sum(w * jnp.sin(y)).real for w, y in zip(weights, f(*x)))

    return loss


ours = partial(selective_scan, delta_softplus=True, return_final=True)
theirs = jax.jit(partial(loop, delta_softplus=True), static_argnames="reverse")


def as_function(call, names, **options):
    """Return a call as a function of arrays in this order."""
    return lambda *x: call(**dict(zip(names, x)), **options)


# ---- values and gradients ------------------------------------------------------------------------

# Options of arrays_of; `reverse`; the length of the reset mask; the arrays that are absent.
CASES = {
    "plain": dict(),
    "groups": dict(groups=2, mask_steps=9),
    "groups, reverse": dict(groups=2, reverse=True, mask_steps=10),
    "B of channels": dict(of="channel steps", mask_steps=10),
    "C of channels": dict(of="steps channel", groups=4),
    "long": dict(steps=300, mask_steps=300),
    "of channels, kept states": dict(of="channel channel", steps=130, states=2, mask_steps=131),
    "long, reverse": dict(steps=300, reverse=True, channels=19),
    "nothing else": dict(without=("D", "z", "delta_bias", "initial_state", "intervals")),
    "complex, groups, reverse": dict(is_complex=True, groups=2, reverse=True, mask_steps=9),
    "complex, long": dict(is_complex=True, steps=300, of="steps channel", mask_steps=300),
    "complex, of channels, kept states": dict(
        is_complex=True, of="channel channel", steps=130, states=2, mask_steps=131
    ),
    "complex, nothing else": dict(
        is_complex=True, without=("D", "z", "delta_bias", "initial_state", "intervals")
    ),
}


@pytest.fixture
def problem(request):
    """Return our function, the loop, their arguments, and weights of a loss."""
    case, random = dict(request.param), Random(1)
    reverse, mask_steps = case.pop("reverse", False), case.pop("mask_steps", 0)
    without = case.pop("without", ())
    given = {n: jnp.asarray(x) for n, x in arrays_of(random, **case).items() if n not in without}
    options = {"reverse": reverse, "delta_softplus": "D" not in without}
    if mask_steps:
        options["resets"] = jnp.asarray(random.booleans(2, mask_steps, 1))
    weights = random(*given["u"].shape), random(2, *given["A"].shape)
    if jnp.iscomplexobj(given["A"]):
        weights = weights[0], weights[1] + 1j * random(*weights[1].shape)
    names = tuple(given)
    return (
        as_function(selective_scan, names, return_final=True, **options),
        as_function(loop, names, **options),
        tuple(given.values()),
        weights,
    )


@pytest.mark.parametrize("problem", CASES.values(), ids=CASES, indirect=True)
def test_values_and_gradients_equal_the_loop(problem):
    """Long sequences have a larger tolerance: a slowly decaying state accumulates 300 rounding errors."""
    ours, theirs, arrays, weights = problem
    every = tuple(range(len(arrays)))
    near = {"rtol": 1e-10, "atol": 1e-10 if arrays[0].shape[1] > 100 else 1e-12}
    losses = weights, (weights[0], 0.0), (0.0, weights[1])

    @partial(jax.jit, static_argnums=0)
    def all_of(f, *x):
        return f(*x), [jax.grad(loss_of(f, of), every)(*x) for of in losses]

    same(*(all_of(f, *arrays) for f in (ours, theirs)), **near)


SECOND = ("groups, reverse", "of channels, kept states", "complex, groups, reverse")


@pytest.mark.parametrize("problem", [CASES[n] for n in SECOND], ids=SECOND, indirect=True)
def test_second_order_derivatives_equal_the_loop(problem):
    ours, theirs, arrays, weights = problem
    random, every = Random(5), tuple(range(len(arrays)))
    moves = tuple(random_like(random, x) for x in arrays)
    dot = lambda x, y: sum(jnp.sum(p * q).real for p, q in zip(x, y))

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


def test_derivatives_equal_differences(random):
    given = arrays_of(random, 1, 4, 2, 2)
    resets = np.zeros((1, 4, 1), bool)
    resets[0, 2] = True
    f = as_function(
        selective_scan, tuple(given), delta_softplus=True, return_final=True,
        resets=resets, reverse=True,
    )  # fmt: skip
    arrays = tuple(map(jnp.asarray, given.values()))
    check_derivatives(f, arrays, random)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_element_types_of_16_and_32_bits_are_accurate(random, dtype):
    """u, delta, z and B have the type `dtype`. Other arrays are float32.

    Outputs are within one epsilon of `dtype` of results in float64 for the same numbers.
    """
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
    gradient = lambda f, x: jax.jit(
        jax.grad(lambda x: sum(jnp.sum(w * y.astype(float)) for w, y in zip(weights, f(**x))))
    )(x)
    got, want = gradient(ours, given), gradient(theirs, wide)
    for name in given:
        assert got[name].dtype == given[name].dtype
        # Cotangents are rounded to the type of the outputs.
        scale = np.max(np.abs(want[name]))
        error = np.max(np.abs(np.asarray(got[name], float) - want[name]))
        assert error < (3 * unit + 1e-5) * scale, name


def test_leading_axes_and_empty_problems_equal_the_loop(random):
    given = {n: jnp.asarray(x) for n, x in arrays_of(random, batch=6).items()}
    whole = ours(**given, resets=jnp.asarray(random.booleans(1, 9, 1)))
    many = {n: x.reshape(2, 3, *x.shape[1:]) if x.shape[0] == 6 else x for n, x in given.items()}
    random = Random()
    arrays_of(random, batch=6)
    for x, y in zip(ours(**many, resets=jnp.asarray(random.booleans(1, 9, 1))), whole, strict=True):
        bits(x.reshape(y.shape), y)
    # One sequence without a batch axis, then an initial state that broadcasts.
    one = {n: x[0] if x.shape[0] == 6 else x for n, x in given.items()}
    for x, y in zip(ours(**one), ours(**given), strict=True):
        bits(x, y[0])
    bits(
        ours(**{**one, "initial_state": jnp.ones(3)}),
        ours(**{**one, "initial_state": jnp.ones((4, 3))}),
    )
    squares_gradient = lambda f: jax.jit(jax.grad(lambda x: sum(jnp.sum(y**2) for y in f(**x))))
    for batch, steps in ((0, 5), (2, 0), (2, 1)):
        small = {n: jnp.asarray(x) for n, x in arrays_of(random, batch, steps).items()}
        same(jax.jit(ours)(**small), theirs(**small))
        got, want = (squares_gradient(f)(small) for f in (ours, theirs))
        same(got, want)


def test_softplus_above_20_is_the_identity(random):
    given = {n: jnp.asarray(x) for n, x in arrays_of(random).items()}
    given["delta"] = jnp.stack([given["delta"][0] * 30, given["delta"][1] + 22])
    loss = lambda f: lambda delta: jnp.sum(f(**{**given, "delta": delta})[0] ** 2)
    slope = jax.jit(jax.grad(loss(ours)))
    same(slope(given["delta"]), jax.jit(jax.grad(loss(theirs)))(given["delta"]))
    push = lambda f: jax.jit(lambda *x: jax.jvp(loss(f), x[:1], x[1:]))(given["delta"], given["u"])
    same(push(ours), push(theirs))
    assert np.all(np.isfinite(slope(given["delta"] * 1e3)))


@pytest.mark.parametrize("reverse", [False, True])
def test_packed_sequences_equal_separate_ones(random, reverse):
    lengths = (3, 1, 150, 10)
    total, starts = sum(lengths), np.cumsum((0, *lengths))[:-1]
    given = {n: jnp.asarray(x) for n, x in arrays_of(random, 1, total).items()}
    given.pop("initial_state")
    resets = np.zeros((1, total, 1), bool)
    resets[0, starts] = True

    def parts(x):
        for start, length in zip(starts, lengths):
            at = slice(start, start + length)
            yield ours(
                **{n: v[:, at] if n in OF_STEPS else v for n, v in x.items()}, reverse=reverse
            )

    packed = lambda x: ours(**x, resets=resets, reverse=reverse)
    outs, finals = zip(*parts(given))
    bits(packed(given), (jnp.concatenate(outs, 1), finals[0 if reverse else -1]))
    got = jax.jit(jax.grad(lambda x: jnp.sum(packed(x)[0] ** 2)))(given)
    want = jax.jit(jax.grad(lambda x: sum(jnp.sum(y**2) for y, _ in parts(x))))(given)
    same(got, want, rtol=1e-9, atol=1e-10)  # gradients of weights are sums over sequences
    # NaN does not cross a reset.
    hidden = {n: v.at[:, :3].set(np.nan) if n == "u" else v for n, v in given.items()}
    bits(packed(hidden)[0][:, 3:], packed(given)[0][:, 3:])


@pytest.mark.parametrize("reverse", [False, True])
def test_chunks_have_the_bits_of_the_whole_sequence(random, reverse):
    given = {n: jnp.asarray(x) for n, x in arrays_of(random, steps=140).items()}
    resets = random.booleans(2, 140, 1)
    want, last = ours(**given, resets=resets, reverse=reverse)
    outs, state = [], given["initial_state"]
    chunks = [(0, 1), (1, 130), (130, 140)][:: -1 if reverse else 1]
    for a, b in chunks:
        chunk = {n: x[:, a:b] if n in OF_STEPS else x for n, x in given.items()}
        chunk["initial_state"] = state
        out, state = ours(**chunk, resets=resets[:, a : b + 1], reverse=reverse)
        outs.append(out)
    bits((jnp.concatenate(outs[:: -1 if reverse else 1], 1), state), (want, last))


@pytest.mark.parametrize("groups", [None, 2])
def test_single_steps_have_the_bits_of_the_whole_sequence(random, groups):
    given = {n: jnp.asarray(x) for n, x in arrays_of(random, groups=groups).items()}
    given.pop("intervals")
    want, last = ours(**given)
    state, outs = given.pop("initial_state"), []
    names = {"u": "x", "delta": "dt", "delta_bias": "dt_bias"}
    step = jax.jit(partial(selective_state_update, dt_softplus=True), donate_argnums=0)
    for t in range(9):
        now = {names.get(n, n): x[:, t] if n in OF_STEPS else x for n, x in given.items()}
        out, state = step(state, **now)
        outs.append(out)
    bits((jnp.stack(outs, 1), state), (want, last))
    out, half = step(
        state.astype(jnp.bfloat16), **{n: x.astype(jnp.float32) for n, x in now.items()}
    )
    assert out.dtype == jnp.float32 and half.dtype == jnp.bfloat16
    one = {n: x[0] if x.ndim > 1 and n != "A" else x for n, x in now.items()}
    bits(step(state[0], **one)[0], step(state, **now)[0][0])


@pytest.mark.parametrize("is_complex", [False, True])
def test_a_step_updates_only_the_chosen_rows_of_a_state(random, is_complex):
    """Two indices are padding. Values, derivatives and batches equal those of the rows alone."""
    given = arrays_of(random, 4, 1, 4, 3, 2, is_complex=is_complex)
    names = {"u": "x", "delta": "dt", "delta_bias": "dt_bias"}
    now = {
        names.get(n, n): jnp.asarray(x[:, 0] if n in OF_STEPS else x)
        for n, x in given.items()
        if n not in ("intervals", "initial_state")
    }
    held = random_like(random, jnp.zeros((5, 4, 3), now["A"].dtype))
    rows = np.array([3, -1, 0, 5])
    step = partial(selective_state_update, dt_softplus=True)

    def want(state, now):
        before = jnp.stack([state[3], 0 * state[3], state[0], 0 * state[3]])
        out, after = step(before, **now)
        return out, jnp.stack([after[2], state[1], state[2], after[0], state[4]])

    got = lambda state, now, rows=rows: step(state, **now, state_batch_indices=rows)
    plain = want(held, now)
    bits(got(held, now), plain)
    bits(got(held, now, rows.astype(">i8")), plain)
    bits(jax.jit(got)(held, now, jnp.asarray(rows, jnp.int32)), plain)
    moved, donated = jax.jit(got, donate_argnums=0), jnp.array(held)
    bits(moved(donated, now, jnp.asarray(rows)), plain)
    weights = random(4, 4), random(5, 4, 3)

    def derivatives_and_batches(f):
        gradient = jax.grad(lambda *x: loss_of(f, weights)(*x), (0, 1))
        push, many = lambda *x: jax.jvp(f, x, x)[1], jax.vmap(f, (0, None))
        # JAX 0.5.3 folds a batched gather of constants into wrong numbers, so states are arguments.
        of = lambda held, both, now: (gradient(held, now), push(held, now), many(both, now))
        return jax.jit(of)(held, jnp.stack([held, 2 * held]), now)

    found, wanted = map(derivatives_and_batches, (got, want))
    same(found, wanted)
    same([x[0] for x in found[2]], list(plain))
    # One sequence, and types of 16 bits.
    one = {n: x[0] if x.ndim > 1 and n != "A" else x for n, x in now.items()}
    out, after = jax.jit(partial(step, state_batch_indices=2))(held, **one)
    alone = jax.jit(step)(held[2], **one)
    bits((out, after), (alone[0], held.at[2].set(alone[1])))
    if not is_complex:
        single = {n: x.astype(jnp.float32) for n, x in now.items()}
        out, after = got(held.astype(jnp.bfloat16), single)
        assert out.dtype == jnp.float32 and after.dtype == jnp.bfloat16
        # Without x64, JAX keeps the low 32 bits of an index. Here they would be a valid row.
        jax.config.update("jax_enable_x64", False)
        try:
            far = got(held.astype(jnp.float32), single, np.array([3, 2**32 + 1, 0, 5]))
            bits(far, got(held.astype(jnp.float32), single))
        finally:
            jax.config.update("jax_enable_x64", True)
        bits((out, after), want(held.astype(jnp.bfloat16), single))


# ---- batching ------------------------------------------------------------------------------------


BATCHES = {
    "sequences": (
        dict(u=0, delta=0, B=0, C=0, z=0, initial_state=0, intervals=0),
        2,
        "steps steps",
    ),
    "u, along another axis": (dict(u=2), None, "channel steps"),
    "A": (dict(A=0), 2, "steps steps"),
    "all": (dict.fromkeys(NAMES, 0), None, "channel steps"),
    "a bias, and B": (dict(delta_bias=1, B=1), 2, "steps steps"),
}


@pytest.mark.parametrize("of", BATCHES)
def test_vmap_equals_a_loop_over_the_batch(random, of):
    """vmap batches one or several arrays, inside and outside derivatives."""
    axes, groups, of = BATCHES[of]
    given = arrays_of(random, 2, 5, 4, 2, groups, of)
    if "intervals" not in axes:  # with them, vmap would loop instead of adding channels
        given.pop("intervals")
    names, every = tuple(given), tuple(range(len(given)))
    axes = tuple(axes.get(name) for name in names)
    arrays = []
    for x, axis in zip(given.values(), axes):
        shape = x.shape if axis is None else np.insert(x.shape, axis, 3)
        arrays.append(jnp.asarray(random(*shape) if axis is not None else x))
    arrays[2] = -jnp.abs(arrays[2])
    resets = jnp.asarray(random.booleans(1, 5, 1))
    f = as_function(ours, names, resets=resets)
    weights = random(2, 5, 4), random(2, 4, 2)
    gradient = jax.grad(loss_of(f, weights), every)
    push = lambda *x: jax.jvp(f, x, x)[1]
    every_kind = lambda *x: (f(*x), gradient(*x), push(*x))
    one = jax.jit(every_kind)
    each = [
        one(*(x if a is None else jnp.moveaxis(x, a, 0)[i] for x, a in zip(arrays, axes)))
        for i in range(3)
    ]
    want = jax.tree.map(lambda *x: np.stack(x), *each)
    got = jax.jit(jax.vmap(every_kind, axes))(*arrays)
    same(got, want)
    if axes[2] is None and axes[7] is None:  # the batch becomes more sequences
        bits(got[0], want[0])
    same(jax.vmap(f, axes)(*arrays), want[0])  # without jit

    def total(f):  # sums over the batch inside the derivative
        return lambda *x: jnp.sum(jax.vmap(lambda *y: loss_of(f, weights)(*y) ** 2, axes)(*x))

    plain = as_function(theirs, names, resets=resets)
    got, want = (jax.jit(jax.grad(total(g), every))(*arrays) for g in (f, plain))
    same(got, want, rtol=1e-9, atol=1e-10)


def test_batched_resets_equal_a_loop_and_jacobians_equal_the_reference(random):
    given = {n: jnp.asarray(x) for n, x in arrays_of(random, 2, 5, 4, 2).items()}
    for shape in ((3, 1, 6, 1), (3, 2, 5, 4)):
        reset_mask = jnp.asarray(random.booleans(*shape))
        for extra in ({}, {"A": -jnp.abs(jnp.asarray(random(3, 4, 2)))}):
            rest = {n: x for n, x in given.items() if n not in extra}
            call = lambda x, reset_mask: ours(**x, resets=reset_mask)
            axes = {**dict.fromkeys(rest), **dict.fromkeys(extra, 0)}, 0
            got = jax.jit(jax.vmap(call, axes))({**rest, **extra}, reset_mask)
            alone = jax.jit(call)
            for i in range(3):
                one = {**rest, **{n: x[i] for n, x in extra.items()}}
                same([x[i] for x in got], list(alone(one, reset_mask[i])))
    final = lambda f: lambda A: f(**{**given, "A": A})[1]
    want = jax.jit(jax.jacrev(final(theirs)))(given["A"])
    same(jax.jit(jax.jacrev(final(ours)))(given["A"]), want)
    same(jax.jit(jax.jacfwd(final(ours)))(given["A"]), want)
    twice = jax.jit(jax.vmap(jax.vmap(final(ours))))
    A = -jnp.abs(jnp.asarray(random(2, 3, 4, 2)))
    same(twice(A)[1, 2], final(ours)(A[1, 2]))


# ---- programs ------------------------------------------------------------------------------------


def calls_in(f, *arrays):
    """List the custom calls of a program: (name, mask of operands, mask of results)."""
    text = jax.jit(f).lower(*arrays).as_text()
    found = re.findall(
        r"custom_call @scanrec_(\w+)_v1\(.*?operands = (\d+).*?results = (\d+)", text
    )
    return [(name, int(operands), int(results)) for name, operands, results in found]


def test_calls_have_only_the_needed_operands_and_results(random):
    given = {n: jnp.asarray(x) for n, x in arrays_of(random, steps=300).items()}
    everything = 0b11_1111_1111  # all operands except resets
    assert calls_in(lambda x: ours(**x), given) == [("selective_scan", everything, 0b011)]
    loss = lambda x: jnp.sum(ours(**x)[0] ** 2)
    calls = calls_in(jax.grad(loss), given)
    # The forward call omits the final state, which has no cotangent.
    assert calls[0] == ("selective_scan", everything, 0b101)
    assert calls[1] == ("selective_scan_vjp", everything | 0b011 << 11, everything)
    # With the final state alone, the outputs and operands used only by them are absent.
    final = lambda x: jnp.sum(ours(**x)[1])
    assert calls_in(final, given) == [("selective_scan", everything & ~0b1100000, 0b010)]
    of_a = jax.grad(lambda a: final({**given, "A": a}))
    assert calls_in(of_a, given["A"])[1] == ("selective_scan_vjp", everything | 0b101 << 11, 0b100)
    # Short sequences need no checkpoints.
    short = {n: x[:, :9] if n in OF_STEPS else x for n, x in given.items()}
    assert calls_in(jax.grad(loss), short)[0] == ("selective_scan", everything, 0b001)
    # The gradient keeps only every 128th state.
    text = jax.jit(jax.grad(loss)).lower(given).as_text()
    assert "tensor<2x2x3x4xf64>" in text and "300x4x3x" not in text


def test_gradients_are_equal_under_jit_checkpoint_and_lax_scan(random):
    given = {n: jnp.asarray(x) for n, x in arrays_of(random, steps=150).items()}
    loss = lambda x: sum(jnp.sum(y**2) for y in ours(**x))
    value, gradient = ours(**given), jax.grad(loss)(given)
    bits(jax.jit(lambda x: ours(**x))(given), value)
    bits(jax.jit(jax.grad(loss))(given), gradient)
    bits(jax.grad(jax.checkpoint(loss))(given), gradient)
    with jax.disable_jit():
        same(jax.grad(loss)(given), gradient)

    def layers(A):
        return jnp.sum(jax.lax.scan(lambda u, A: (ours(**{**given, "u": u, "A": A})[0], None),
                                    given["u"], A)[0] ** 2)  # fmt: skip

    def unrolled(A):
        u = given["u"]
        for a in A:
            u = theirs(**{**given, "u": u, "A": a})[0]
        return jnp.sum(u**2)

    A = -jnp.abs(jnp.asarray(random(3, 4, 3)))
    same(jax.jit(jax.grad(layers))(A), jax.jit(jax.grad(unrolled))(A), rtol=1e-9, atol=1e-10)


def test_exported_programs_have_the_same_bits(random):
    """Serialised programs are also tested if flatbuffers is installed."""
    export = pytest.importorskip("jax.export", reason="jax.export needs absl here")
    given = {n: jnp.asarray(x) for n, x in arrays_of(random).items()}
    loss = jax.jit(jax.grad(lambda x: jnp.sum(ours(**x)[0] ** 2)))
    allowed = [
        export.DisabledSafetyCheck.custom_call(f"scanrec_selective_scan{kind}_v1")
        for kind in ("", "_vjp")
    ]
    exported = export.export(loss, disabled_checks=allowed)(given)
    bits(exported.call(given), loss(given))
    if importlib.util.find_spec("flatbuffers") is not None:
        bits(export.deserialize(exported.serialize()).call(given), loss(given))
    if not _cuda.is_built():
        with pytest.raises(RuntimeError, match="no kernels for GPUs"):
            export.export(loss, disabled_checks=allowed, platforms=["cuda"])(given)


# ---- several devices -----------------------------------------------------------------------------

shard_map = getattr(jax, "shard_map", None)
if shard_map is None:
    from jax.experimental.shard_map import shard_map

P = PartitionSpec
SEQUENCES = ("u", "delta", "z")


def collectives(f, *arrays):
    text = jax.jit(f).lower(*arrays).compile().as_text()
    return {name for name in ("all-gather", "all-reduce", "all-to-all", "permute") if name in text}


def split_over(batch, channel, mixing=False):
    """Return the partition of every argument over the named axes of a mesh."""
    return dict(
        **{name: P(batch, None, channel) for name in SEQUENCES},
        **{name: P(batch, None, channel if mixing else None) for name in ("B", "C")},
        **{name: P(channel) for name in ("A", "D", "delta_bias")},
        initial_state=P(batch, channel),
        intervals=P(batch),
    )


def of_devices(random, groups):
    given = arrays_of(random, 4, 5, 8, 2, groups)
    if groups:  # all channels share intervals, whose gradient would need a sum
        given.pop("intervals")
    weights = random(4, 5, 8), random(4, 8, 2)
    loss = lambda f: lambda x: loss_of(lambda: f(**x), weights)()
    return {n: jnp.asarray(x) for n, x in given.items()}, loss


SPLITS = {
    "sequences": (("d", None), None, {"all-reduce"}),  # sums gradients of weights
    "channels": ((None, "d"), None, {"all-reduce"}),  # sums gradients of B and C
    "groups": ((None, "d", True), 2, set()),
    "both": (("d", "e"), None, {"all-reduce"}),
}


@pytest.mark.parametrize("split, groups, expected", SPLITS.values(), ids=SPLITS)
def test_shard_map_equals_one_device(random, split, groups, expected):
    types = getattr(jax.sharding, "AxisType", None)
    auto = {"axis_types": (types.Auto,) * 2} if types else {}
    mesh = jax.make_mesh((2, 4 if split[1] == "e" else 1), ("d", "e"), **auto)
    given, loss = of_devices(random, groups)
    specs = split_over(*split)
    if split[1] is None:  # no axis "e", over which results would be replicated
        mesh = jax.make_mesh((4,), ("d",), **({"axis_types": (types.Auto,)} if types else {}))
    parted = shard_map(
        lambda x: ours(**x),
        mesh=mesh,
        in_specs=({n: specs[n] for n in given},),
        out_specs=(specs["u"], specs["initial_state"]),
    )
    f = lambda **x: parted(x)
    bits(jax.jit(parted)(given), ours(**given))
    same(jax.jit(jax.grad(loss(f)))(given), jax.jit(jax.grad(loss(ours)))(given))
    assert collectives(parted, given) == set()
    assert collectives(jax.grad(loss(f)), given) == expected


@pytest.mark.skipif(not hasattr(jax, "set_mesh"), reason="needs JAX 0.7")
@pytest.mark.parametrize("split, groups, expected", SPLITS.values(), ids=SPLITS)
def test_explicit_sharding_equals_one_device(random, split, groups, expected):
    mesh = jax.make_mesh((2, 4), ("d", "e"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)
    plain, loss = of_devices(random, groups)
    gradient = lambda x: jax.grad(loss(ours))(x)
    second = lambda x: jax.jvp(gradient, (x,), (x,))[1]
    again = lambda x: jax.grad(lambda x: sum(jnp.sum(g**2) for g in jax.tree.leaves(gradient(x))))(
        x
    )
    many = lambda x: jax.vmap(lambda s: ours(**{**x, "A": s * x["A"]}), 0)(jnp.arange(1.0, 3.0))
    every = (gradient, second, again, many) if split == ("d", "e") else (gradient,)
    want = [jax.jit(f)(plain) for f in every]
    with jax.set_mesh(mesh):
        specs = split_over(*split)
        given = {n: jax.device_put(x, NamedSharding(mesh, specs[n])) for n, x in plain.items()}
        out = jax.jit(lambda x: ours(**x))(given)
        for x, name in zip(out, ("u", "initial_state"), strict=True):
            assert jax.typeof(x).sharding.spec == jax.typeof(given[name]).sharding.spec
        bits(out, ours(**plain))
        assert collectives(lambda x: ours(**x), given) == set()
        assert collectives(gradient, given) == expected
        got = [jax.jit(f)(given) for f in every]
        for name, g in got[0].items():
            assert jax.typeof(g).sharding.spec == jax.typeof(given[name]).sharding.spec
        u = jax.device_put(jnp.ones((4, 8, 8)), NamedSharding(mesh, P(None, "d")))
        with pytest.raises(ValueError, match="'u': expected an array that is not split along time"):
            selective_scan(u, u, given["A"], given["A"], given["A"])
    without = lambda x: selective_scan(*(x[name] for name in ("u", "delta", "A", "B", "C")))
    bits(without(given), without(plain))  # outside the mesh context
    same(jax.jit(gradient)(given), want[0])
    for x, y in zip(got, want, strict=True):
        same(x, y, rtol=1e-9, atol=1e-10)


@pytest.mark.skipif(not hasattr(jax, "shard_map"), reason="needs JAX 0.7")
@pytest.mark.parametrize("split, groups, expected", SPLITS.values(), ids=SPLITS)
def test_automatic_sharding_gathers_nothing(random, split, groups, expected):
    mesh = jax.make_mesh((2, 4), ("d", "e"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    plain, loss = of_devices(random, groups)
    specs = split_over(*split)
    given = {n: jax.device_put(x, NamedSharding(mesh, specs[n])) for n, x in plain.items()}
    call, gradient = (lambda x: ours(**x)), jax.grad(loss(ours))
    tangent = lambda x: jax.jvp(call, (x,), (x,))[1]
    bits(jax.jit(call)(given), call(plain))
    same(jax.jit(tangent)(given), jax.jit(tangent)(plain))
    got = jax.jit(gradient)(given)
    same(got, jax.jit(gradient)(plain))
    for name, g in got.items():
        assert g.sharding.is_equivalent_to(given[name].sharding, g.ndim)
    assert collectives(call, given) == set()
    assert "all-gather" not in collectives(tangent, given)
    assert collectives(gradient, given) == expected


# ---- errors --------------------------------------------------------------------------------------

U, W, M, S = (np.ones(s) for s in ((2, 9, 4), (4, 3), (2, 9, 3), (2, 4, 3)))


def scan(u=U, delta=U, A=W, B=M, C=M, **more):
    return selective_scan(u, delta, A, B, C, **more)


def update(state=S, dt=U[:, 0], A=W, B=M[:, 0], **more):
    return selective_state_update(state, U[:, 0], dt, A, B, M[:, 0], **more)


@pytest.mark.parametrize(
    "error, words, call",
    [
        (ValueError, "'u': expected an array (..., T, D), got shape (4,)", lambda: scan(u=U[0, 0])),
        (TypeError, "'u': expected float64 with 'A' in float64, got float32", lambda: scan(u=U.astype("f"))),
        (TypeError, "'u': expected an array of numbers, got NoneType", lambda: scan(u=None)),
        (TypeError, "'u': expected an array of numbers, got", lambda: scan(u="a")),
        (TypeError, "'A': expected float32, float64, complex64 or complex128, got int",
         lambda: scan(A=W.astype(int))),
        (ValueError, "'A': expected shape (4, N), N of 1 or more, got (3, 4)", lambda: scan(A=W.T)),
        (TypeError, "'u': expected float64 with 'A' in complex128, got complex128",
         lambda: scan(u=U * 1j, A=W * 1j)),
        (TypeError, "'B': expected float64 with 'A' in float64, got complex128",
         lambda: scan(B=M * 1j)),
        (TypeError, "'C': expected float64 or complex128 with 'A' in complex128, got complex64",
         lambda: scan(A=W * 1j, B=M * 1j, C=M.astype("F"))),
        (ValueError, "'B': expected shape (4, 3), (2, 9, 6) or (2, 9, G, 6), where G divides 4 "
         "channels, got (2, 9, 3)", lambda: scan(A=W * 1j)),
        (ValueError, "'B': expected shape (4, 3), (2, 9, 3)", lambda: scan(A=W * 1j, B=W.T * 1j)),
        (TypeError, "'initial_state': expected float64 with 'A' in float64, got complex128",
         lambda: scan(initial_state=W * 1j)),
        (ValueError, "'delta': expected shape (2, 9, 4), got (9, 4)", lambda: scan(delta=U[0])),
        (ValueError, "'B': expected shape (4, 3), (2, 9, 3) or (2, 9, G, 3), where G divides 4 "
         "channels, got (9, 3)", lambda: scan(B=M[0])),
        (ValueError, "'B': expected shape (9, 3) or (9, G, 3)", lambda: scan(U[0], U[0], B=W, C=M[0])),
        (ValueError, "'C': expected shape", lambda: scan(C=np.ones((2, 9, 3, 3)))),
        (ValueError, "'C': expected 2 groups, like 'B', got 1",
         lambda: scan(B=np.ones((2, 9, 2, 3)))),
        (ValueError, "'D': expected shape (4,), got (3,)", lambda: scan(D=np.ones(3))),
        (ValueError, "'z': expected shape (2, 9, 4)", lambda: scan(z=U[:1])),
        (ValueError, "'delta_bias': expected shape (4,)", lambda: scan(delta_bias=np.ones(1))),
        (ValueError, "'initial_state': expected a shape that broadcasts to (2, 4, 3), got (3, 3)",
         lambda: scan(initial_state=np.ones((3, 3)))),
        (TypeError, "'resets': expected booleans", lambda: scan(resets=U)),
        (ValueError, "'resets': expected a shape that broadcasts to (2, 9, 4)",
         lambda: scan(resets=U[:, :5] > 0)),
        (ValueError, "'intervals': expected a shape that broadcasts to (2, 9), got (4,)",
         lambda: scan(intervals=W[:, 0])),
        (ValueError, "'state': expected shape (2, 4, 3), got (4, 3)", lambda: update(W)),
        (TypeError, "'state': expected complex128, like 'A', got float64",
         lambda: update(A=W * 1j)),
        (ValueError, "'state': expected shape (3, 4, 3), got (3, 3, 4)",
         lambda: update(np.ones((3, 3, 4)), state_batch_indices=np.arange(2))),
        (ValueError, "'state': expected at least 1 row, got 0",
         lambda: update(S[:0], state_batch_indices=np.arange(2))),
        (TypeError, "'state_batch_indices': expected int32 or int64, got float64",
         lambda: update(state_batch_indices=np.ones(2))),
        (ValueError, "'state_batch_indices': expected shape (2,), got (3,)",
         lambda: update(state_batch_indices=np.arange(3))),
        (ValueError, "'state_batch_indices': expected distinct rows of 'state', got [1, 1]",
         lambda: update(state_batch_indices=np.ones(2, int))),
        (ValueError, "'dt': expected shape (2, 4)", lambda: update(dt=U)),
        (ValueError, "'B': expected shape (2, 3) or (2, G, 3)", lambda: update(B=W)),
        (ValueError, "'dt_bias': expected shape (4,)", lambda: update(dt_bias=U)),
    ],
)  # fmt: skip
def test_invalid_arguments_raise_when_traced(error, words, call):
    for run in (call, jax.jit(call)):
        with pytest.raises(error) as raised:
            run()
        assert words in str(raised.value)


def test_errors_in_handlers_raise_in_python():
    call = jax.ffi.ffi_call(
        "scanrec_selective_scan_v1", jax.ShapeDtypeStruct((2, 9, 4), np.float64)
    )
    options = {"softplus": False, "reverse": False, "results": np.int64(1)}
    with pytest.raises(Exception, match="selective_scan: argument 'delta'"):
        call(U, W, M, M, **options, operands=np.int64(0b11101)).block_until_ready()
    assert scan().shape == (2, 9, 4)

# SPDX-License-Identifier: BSD-3-Clause
"""Tests of scanrec.jax.causal_conv1d and its update.

They cover values, derivatives, batches, updates by one or several steps, and errors.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed")

import jax.numpy as jnp
from jax import export
from jax.test_util import check_grads

from scanrec.jax import causal_conv1d, causal_conv1d_update

jax.config.update("jax_enable_x64", True)

BOUNDS = {"float32": 1e-5, "float64": 1e-13, "bfloat16": 3e-2, "float16": 4e-3}


def by_loop(x, weight, bias, initial, resets, activation):
    """Compute outputs in float64 with a loop."""
    x, weight, bias, initial = (np.asarray(a, np.float64) for a in (x, weight, bias, initial))
    width = weight.shape[1]
    every, out = np.concatenate([initial, x], 1), np.zeros(x.shape) + bias
    for b, t in np.ndindex(x.shape[:2]):
        for k in range(width):
            if np.any(resets[b, max(t - k + 1, 0) : t + 1]):
                break
            out[b, t] += weight[:, width - 1 - k] * every[b, width - 1 + t - k]
    return out / (1 + np.exp(-out)) if activation else out


def problem(dtype="float64", steps=30, channels=7, width=4):
    bits = np.random.default_rng(0)
    shapes = (2, steps, channels), (channels, width), (channels,), (2, width - 1, channels)
    arrays = [jnp.asarray(bits.normal(size=shape), dtype) for shape in shapes]
    return *arrays, jnp.asarray(bits.random((2, steps)) < 0.2)


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("width", [1, 3, 4])
def test_values_equal_the_loop(dtype, width):
    x, weight, bias, initial, resets = problem(dtype, channels=33, width=width)
    out, final = causal_conv1d(
        x, weight, bias, activation="silu", initial_state=initial, resets=resets,
        return_final=True,
    )  # fmt: skip
    want = by_loop(x, weight, bias, initial, np.asarray(resets), "silu")
    assert out.dtype == final.dtype == dtype
    got = np.asarray(out, np.float64)
    assert np.all(np.abs(got - want) <= BOUNDS[dtype] * (1 + np.abs(want)))
    last = np.asarray(jnp.concatenate([initial, x], 1)[:, 30:])
    kept = np.asarray(final) == last
    assert np.all(kept | (np.asarray(final) == 0))


@pytest.mark.parametrize("has_resets", [False, True])
def test_derivatives_equal_differences(has_resets):
    *operands, resets = problem(steps=9, channels=3)

    def call(x, weight, bias, initial):
        return causal_conv1d(
            x, weight, bias, activation="silu", initial_state=initial,
            resets=resets if has_resets else None, return_final=True,
        )  # fmt: skip

    check_grads(call, operands, order=3)
    check_grads(lambda x, weight: causal_conv1d(x, weight), operands[:2], order=2)


def test_tangents_of_16_bit_states_have_16_bits():
    x, weight, *_ = problem("bfloat16")
    call = lambda x: causal_conv1d(x, weight, return_final=True)
    out, tangent = jax.jvp(jax.jit(call), (x,), (x,))
    assert [t.dtype for t in tangent] == [y.dtype for y in out] == ["bfloat16", "bfloat16"]
    np.testing.assert_array_equal(tangent[1], x[:, -3:])


def test_vmap_equals_a_loop_over_the_batch():
    x, weight, bias, *_ = problem()
    for axes in ((0, None, None), (None, 0, None), (None, 0, 0), (0, 0, 0)):
        args = [
            jnp.stack([a, 2 * a, -a]) if axis == 0 else a
            for a, axis in zip((x, weight, bias), axes)
        ]
        for call in (
            lambda x, w, b: causal_conv1d(x, w, b, activation="silu"),
            jax.grad(lambda x, w, b: jnp.sum(causal_conv1d(x, w, b) ** 2), (0, 1, 2)),
        ):
            got = jax.vmap(call, axes)(*args)
            each = [
                call(*(a[i] if axis == 0 else a for a, axis in zip(args, axes))) for i in range(3)
            ]
            want = jax.tree.map(lambda *y: jnp.stack(y), *each)
            jax.tree.map(lambda g, w: np.testing.assert_allclose(g, w, 1e-12), got, want)


def test_results_do_not_depend_on_leading_axes():
    x, weight, bias, *_ = problem("float32")
    out = causal_conv1d(x, weight, bias)
    np.testing.assert_array_equal(causal_conv1d(x[0], weight, bias), out[0])
    np.testing.assert_array_equal(causal_conv1d(x[None], weight, bias), out[None])


@pytest.mark.parametrize("held", [3, 4, 7])
@pytest.mark.parametrize("kind", ["rolled", "circular", "rows"])
def test_updates_have_the_bits_of_the_whole_sequence(held, kind):
    x, weight, bias, *_ = problem("float32", steps=12)
    want = causal_conv1d(x, weight, bias, activation="silu")
    state, out, t = jnp.zeros((5 if kind == "rows" else 2, held, 7), "float32"), [], 0
    for steps in (1, 2, 3, 1, 5):
        piece, more = x[:, t : t + steps], {}
        if kind == "circular":
            more["cache_seqlens"] = jnp.array([t, t])
        if kind == "rows":
            piece = jnp.concatenate([piece, piece[:1]])
            more["conv_state_indices"] = jnp.array([4, 0, -1])
        if steps == 1:
            piece = piece[:, 0]
        y, state = causal_conv1d_update(piece, state, weight, bias, activation="silu", **more)
        out.append(y[:2, None] if steps == 1 else y[:2])
        t += steps
    np.testing.assert_array_equal(jnp.concatenate(out, 1), want)
    if kind == "rows":
        assert not np.any(state[1:4])


def test_updates_of_one_row_twice_raise():
    x, weight, bias, *_ = problem("float32")
    update = functools.partial(
        causal_conv1d_update, x[:, 0], jnp.zeros((5, 3, 7), x.dtype), weight, bias
    )
    with pytest.raises(ValueError, match="'conv_state_indices': expected distinct rows"):
        update(conv_state_indices=jnp.array([3, 3]))
    update(conv_state_indices=jnp.array([-1, -1]))  # padding
    jax.jit(lambda rows: update(conv_state_indices=rows))(jnp.array([3, 3]))  # cannot be checked


def test_programs_for_gpus_have_no_native_calls():
    call = jax.jit(jax.grad(lambda x, w: jnp.sum(causal_conv1d(x, w, activation="silu")), (0, 1)))
    x, weight, *_ = problem("float32")
    lowered = export.export(call, platforms=["cuda"])(x, weight)
    assert "custom_call" not in lowered.mlir_module()
    assert "custom_call" in call.lower(x, weight).as_text()


@pytest.mark.parametrize(
    ("argument", "change"),
    [
        ("x", lambda x, w, b, s: causal_conv1d(x.astype(int), w, b)),
        ("x", lambda x, w, b, s: causal_conv1d(b, w, b)),
        ("weight", lambda x, w, b, s: causal_conv1d(x, w[1:], b)),
        ("weight", lambda x, w, b, s: causal_conv1d(x, w.astype("float16"), b)),
        ("bias", lambda x, w, b, s: causal_conv1d(x, w, b[1:])),
        ("activation", lambda x, w, b, s: causal_conv1d(x, w, b, activation="gelu")),
        ("initial_state", lambda x, w, b, s: causal_conv1d(x, w, b, initial_state=s[:, 1:])),
        ("resets", lambda x, w, b, s: causal_conv1d(x, w, b, resets=x[..., 0])),
        ("resets", lambda x, w, b, s: causal_conv1d(x, w, b, resets=np.zeros((2, 3), bool))),
        ("conv_state", lambda x, w, b, s: causal_conv1d_update(x, s[:, 1:], w, b)),
        ("conv_state", lambda x, w, b, s: causal_conv1d_update(x, s[:1], w, b)),
        ("cache_seqlens", lambda x, w, b, s: causal_conv1d_update(x, s, w, b, cache_seqlens=b)),
    ],
)
def test_errors_name_the_invalid_argument(argument, change):
    x, weight, bias, state, _ = problem("float32")
    with pytest.raises((ValueError, TypeError), match=f"'{argument}'"):
        change(x, weight, bias, state)

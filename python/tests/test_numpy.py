# SPDX-License-Identifier: BSD-3-Clause
"""Tests of linear_scan on NumPy arrays: values, layouts, derivatives, plans, invalid input."""

from __future__ import annotations

import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from conftest import SLOW_SUMS, SlowDecay, check_slow_sum, loop

import scanrec
from scanrec._op.linear import numpy_plans as plans

ml_dtypes = pytest.importorskip("ml_dtypes")
signal = pytest.importorskip("scipy.signal")

DTYPES = [np.float32, np.float64, np.complex64, np.complex128, np.float16, ml_dtypes.bfloat16]
TOLERANCE = {
    "float32": 1e-6,
    "float64": 1e-14,
    "complex64": 1e-6,
    "complex128": 1e-14,
    "float16": 2e-3,
    "bfloat16": 2e-2,
}


def close(got, want, dtype, size=1.0):
    scale = max(1.0, float(np.max(np.abs(want), initial=0.0)))
    wide = np.asarray(got).astype(np.clongdouble if np.iscomplexobj(want) else np.longdouble)
    error = float(np.max(np.abs(wide - want), initial=0.0))
    return error <= TOLERANCE[np.dtype(dtype).name] * scale * size


# (input shape, gate shape, time axis)
SHAPES = [
    ((3, 50, 7), (3, 50, 7), -2),
    ((3, 50, 7), (7,), 1),
    ((3, 50, 7), (3, 50, 1), -2),
    ((3, 7, 50), (7, 1), -1),
    ((50,), (50,), 0),
    ((50,), (), -1),
    ((50, 3), (50, 1), 0),
    ((2, 3, 4, 5, 20, 6), (3, 1, 5, 1, 6), -2),
    ((2, 1, 3, 30, 2, 2), (2, 1, 1, 30, 1, 2), 3),
    ((1, 1, 1), (1, 1), 1),
    ((0, 5, 3), (3,), 1),
    ((2, 0, 3), (3,), 1),
    ((2, 5, 0), (1,), 1),
]


@pytest.mark.parametrize("extra_steps", [0, 1])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape, gate_shape, axis", SHAPES)
def test_states_equal_the_loop_and_gradients_pass_the_dot_product_test(
    random, shape, gate_shape, axis, reverse, extra_steps
):
    """The dot-product identity is <J v, w> = <v, J* w>, with tangents v and cotangents w."""
    state_shape = np.delete(shape, axis)
    gate, input, initial = random(*gate_shape), random(*shape), random(*state_shape)
    mask_steps = np.array(shape)
    mask_steps[axis] += extra_steps
    resets = random.booleans(*mask_steps)
    options = {"axis": axis, "reverse": reverse, "resets": resets}
    state, final = scanrec.linear_scan(gate, input, initial, return_final=True, **options)
    want, want_final = loop(gate, input, initial, **options)
    assert close(state, want, np.float64) and close(final, want_final, np.float64)
    assert state.flags.c_contiguous

    v_gate, v_input, v_initial = random(*gate_shape), random(*shape), random(*state_shape)
    w, w_final = random(*shape), random(*state_shape)
    tangent, final_tangent = scanrec.linear_scan_jvp(
        gate, state, v_gate, v_input, v_initial, initial_state=initial, return_final=True, **options
    )
    g = scanrec.linear_scan_vjp(gate, state, w, w_final, initial_state=initial, **options)
    assert g.gate.shape == gate_shape
    forward = np.vdot(w, tangent) + np.vdot(w_final, final_tangent)
    backward = np.vdot(g.gate, v_gate) + np.vdot(g.input, v_input)
    backward += np.vdot(g.initial_state, v_initial)
    assert np.isclose(forward, backward, rtol=1e-12, atol=1e-12)


def test_reverse_chunks_apply_the_reset_at_their_boundary():
    one, resets = np.ones((2, 1)), np.array([[False], [True]])
    whole = scanrec.linear_scan(one, one, reverse=True, resets=resets)
    later, carried = scanrec.linear_scan(
        one[1:], one[1:], reverse=True, resets=resets[1:], return_final=True
    )
    earlier = scanrec.linear_scan(one[:1], one[:1], carried, reverse=True, resets=resets)
    assert np.array_equal(np.concatenate([earlier, later]), whole)
    assert np.array_equal(whole, one)


@pytest.mark.parametrize("axis", [-2, -1])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("channels", [1, 5, 35])
def test_chunked_scans_tangents_and_gradients_equal_unchunked_ones(random, channels, reverse, axis):
    """The vjp processes the chunks in the opposite order."""
    steps, boundaries = 150, (0, 1, 2, 17, 33, 33, 64, 128, 150)
    turned = lambda x: np.ascontiguousarray(np.swapaxes(x, axis, -2))
    gate, input, grad, gate_t, input_t = (turned(random(2, steps, channels)) for _ in range(5))
    first, final_grad, first_t = (random(2, channels) for _ in range(3))
    # Each inner chunk boundary resets only the second half of the channels.
    resets = random.booleans(2, steps, channels)
    resets[:, list(boundaries[1:-1])] = np.arange(channels) >= channels // 2
    resets = turned(resets)

    def chunk(x, a, b):
        return np.swapaxes(np.swapaxes(x, axis, 0)[a:b], 0, axis)

    options = {"axis": axis, "reverse": reverse}
    state, final = scanrec.linear_scan(
        gate, input, first, resets=resets, return_final=True, **options
    )
    tangent, final_t = scanrec.linear_scan_jvp(
        gate, state, gate_t, input_t, first_t, initial_state=first, resets=resets,
        return_final=True, **options,
    )  # fmt: skip
    whole = scanrec.linear_scan_vjp(
        gate, state, grad, final_grad, initial_state=first, resets=resets, **options
    )

    same = lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-11, atol=1e-11)
    chunks = list(zip(boundaries, boundaries[1:]))[:: -1 if reverse else 1]
    x, x_t = first, first_t
    starts = []
    for a, b in chunks:
        starts.append(x)
        reset_mask = chunk(resets, a, b + 1)
        here = [chunk(y, a, b) for y in (gate, input, gate_t, input_t)]
        got_t, x_t = scanrec.linear_scan_jvp(
            here[0], chunk(state, a, b), here[2], here[3], x_t, initial_state=x, resets=reset_mask,
            return_final=True, **options,
        )  # fmt: skip
        got, x = scanrec.linear_scan(
            here[0], here[1], x, resets=reset_mask, return_final=True, **options
        )
        same(got, chunk(state, a, b))
        same(got_t, chunk(tangent, a, b))
    same(x, final)
    same(x_t, final_t)
    dx = final_grad
    for (a, b), start in zip(reversed(chunks), reversed(starts)):
        got = scanrec.linear_scan_vjp(
            chunk(gate, a, b), chunk(state, a, b), chunk(grad, a, b), dx, initial_state=start,
            resets=chunk(resets, a, b + 1), **options,
        )  # fmt: skip
        same(got.gate, chunk(whole.gate, a, b))
        same(got.input, chunk(whole.input, a, b))
        dx = got.initial_state
    same(dx, whole.initial_state)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_is_within_its_tolerance(random, dtype):
    shape = (2, 33, 5)
    gate, input = random(*shape, dtype=dtype, scale=0.6), random(*shape, dtype=dtype)
    state, final = scanrec.linear_scan(gate, input, return_final=True)
    want, want_final = loop(gate, input)
    half = np.dtype(dtype).itemsize == 2
    assert state.dtype == dtype and final.dtype == (np.float32 if half else dtype)
    assert close(state, want, dtype, 4)
    assert close(final, want_final, np.float32 if half else dtype, 4)
    # `final` is not rounded to 16 bits; the last step of `state` is.
    assert np.array_equal(final.astype(dtype), state[:, -1])


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex_gradients_follow_both_conjugation_conventions(random, dtype):
    shape = (2, 20, 3)
    gate, input, w = (random(*shape, dtype=dtype, scale=0.6) for _ in range(3))
    state = scanrec.linear_scan(gate, input)
    v = random(*shape, dtype=dtype)
    tangent = scanrec.linear_scan_jvp(gate, state, v)
    hermitian = scanrec.linear_scan_vjp(gate, state, w, wrt=["gate"]).gate
    plain = scanrec.linear_scan_vjp(gate, state, w, wrt=["gate"], conjugate=False).gate
    assert np.isclose(np.vdot(w, tangent), np.vdot(hermitian, v), rtol=1e-4)
    assert np.isclose(np.sum(w * tangent), np.sum(plain * v), rtol=1e-4)


def test_views_of_any_strides_are_read_and_left_unchanged(random):
    base_gate, base_input = random(6, 40, 10), random(40, 6, 10)
    views = [
        (base_gate[::2, ::-1, 1::3], np.swapaxes(base_input, 0, 1)[::2, ::-1, 1::3]),
        (np.broadcast_to(base_gate[0, 0], (6, 40, 10)), np.swapaxes(base_input, 0, 1)),
        (np.asfortranarray(base_gate), np.asfortranarray(np.swapaxes(base_input, 0, 1))),
    ]
    for gate, input in views:
        kept = input.copy()
        got = scanrec.linear_scan(gate, input)
        assert np.array_equal(input, kept)
        assert np.allclose(got, loop(gate, input)[0], rtol=1e-13)


def test_record_fields_byte_swapped_and_unaligned_arrays_give_equal_bits(random):
    input = random(20, 3)
    want = scanrec.linear_scan(0.5, input)
    records = np.zeros((20, 3), dtype=[("tag", "i1"), ("value", "f8")])
    records["value"] = input
    assert np.array_equal(scanrec.linear_scan(0.5, records["value"]), want)
    assert np.array_equal(scanrec.linear_scan(0.5, input.astype(">f8")), want)
    unaligned = np.frombuffer(b"x" + input.tobytes(), np.uint8)[1:].view(np.float64)
    assert np.array_equal(scanrec.linear_scan(0.5, unaligned.reshape(20, 3)), want)


def test_result_dtype_follows_promotion_rules(random):
    input = random(5, 3, dtype=np.float32)
    assert scanrec.linear_scan(0.5, input).dtype == np.float32
    assert scanrec.linear_scan(np.float64(0.5) * np.ones(3), input).dtype == np.float64
    assert scanrec.linear_scan(0.5j, input).dtype == np.complex64
    assert scanrec.linear_scan(np.float64(0.5), input).dtype == np.float64  # as NumPy 2 promotes
    half = input.astype(np.float16)
    assert scanrec.linear_scan(0.5, half, np.zeros(3, np.float32)).dtype == np.float16
    assert scanrec.linear_scan(np.ones(3, np.float32), half).dtype == np.float32
    assert scanrec.linear_scan(0.5, half, np.zeros(3)).dtype == np.float64
    bfloat16 = input.astype(pytest.importorskip("ml_dtypes").bfloat16)
    assert scanrec.linear_scan(half, bfloat16).dtype == np.float32  # as JAX and PyTorch promote


@pytest.mark.parametrize("gate_shape", [(2, 40, 3), (3,), ()])
@pytest.mark.parametrize("log_gate, log_input", [(True, True), (True, False), (False, True)])
def test_log_gate_and_log_input_equal_the_scan_of_exponentials(
    random, gate_shape, log_gate, log_input
):
    gate, input, initial = -np.abs(random(*gate_shape)), random(2, 40, 3), random(2, 3)
    resets, grad = random.booleans(2, 40, 1), random(2, 40, 3)
    of = {"initial_state": initial, "reverse": True, "resets": resets}
    logs = {"log_gate": log_gate, "log_input": log_input}
    a, u = np.exp(gate) if log_gate else gate, np.exp(input) if log_input else input
    for _ in range(2):  # the second iteration uses a cached plan
        state = scanrec.linear_scan(gate, input, **of, **logs)
        assert close(state, loop(a, u, initial, reverse=True, resets=resets)[0], np.float64)
        got = scanrec.linear_scan_vjp(gate, state, grad, input=input, **of, **logs)
        want = scanrec.linear_scan_vjp(a, state, grad, **of)
        assert close(got.gate, want.gate * (a if log_gate else 1), np.float64)
        assert close(got.input, want.input * (u if log_input else 1), np.float64)
        assert close(got.initial_state, want.initial_state, np.float64)


@pytest.mark.parametrize("reverse", [False, True])
def test_log_gates_of_slow_decays_are_within_tolerance(reverse):
    slow = SlowDecay(reverse)
    of = {"reverse": reverse, "log_gate": True}
    state = scanrec.linear_scan(slow.gate, slow.input, **of)
    assert slow.close(state, "state")
    got = scanrec.linear_scan_vjp(slow.gate, state, slow.grad, input=slow.input, **of)
    assert slow.close(got.input, "input_grad") and slow.close(got.gate, "gate_grad")
    # Also pass the logarithm of the input.
    inputs = np.log(slow.input, where=slow.input > 0, out=np.full_like(slow.input, -np.inf))
    assert slow.close(scanrec.linear_scan(slow.gate, inputs, log_input=True, **of), "state")


@pytest.mark.parametrize("reverse", [False, True])
def test_log_gates_of_slow_decays_are_within_tolerance_for_many_channels(reverse):
    slow = SlowDecay(reverse, steps=20_000)
    gate, input, grad = slow.of_channels()
    of = {"reverse": reverse, "log_gate": True}
    state = scanrec.linear_scan(gate, input, **of)
    assert slow.close(state, "state")
    got = scanrec.linear_scan_vjp(gate, state, grad, **of)
    assert slow.close(got.input, "input_grad") and slow.close(got.gate, "gate_grad")


@pytest.mark.parametrize("shape", SLOW_SUMS, ids=str)
def test_sums_of_equal_inputs_with_slow_decay_are_within_the_bound(shape):
    check_slow_sum(lambda a, u, axis: scanrec.linear_scan(a, u, axis=axis, log_gate=True), shape)


def test_log_gates_of_minus_infinity_and_zero_are_exact(random):
    """Gates of exactly 0 and 1 keep integer states exact."""
    kept = random.booleans(40, 3)
    input = np.floor(100 * random(40, 3)).astype(np.float32)
    logs = np.where(kept, 0, -np.inf).astype(np.float32)
    want = scanrec.linear_scan(kept.astype(np.float32), input)
    assert np.array_equal(scanrec.linear_scan(logs, input, log_gate=True), want)


def test_constant_gate_equals_scipy_lfilter(random):
    x = random(4, 1000)
    pole = 0.97
    assert np.allclose(
        scanrec.linear_scan(pole, x, axis=-1), signal.lfilter([1], [1, -pole], x), rtol=1e-12
    )
    got, final = scanrec.linear_scan(pole, x, x[:, 0], axis=-1, return_final=True)
    want, left = signal.lfilter([1], [1, -pole], x, zi=pole * x[:, :1])
    assert np.allclose(got, want, rtol=1e-12) and np.allclose(pole * final, left[:, 0], rtol=1e-12)


def test_chunks_have_the_bits_of_the_whole_scan(random):
    gate, input = random(2, 100, 32), random(2, 100, 32)
    whole = scanrec.linear_scan(gate, input)
    state, parts = None, []
    for start in range(0, 100, 7):
        now = slice(start, start + 7)
        part, state = scanrec.linear_scan(gate[:, now], input[:, now], state, return_final=True)
        parts.append(part)
    assert np.array_equal(np.concatenate(parts, 1), whole)


def test_absent_cotangents_count_as_zero_and_wrt_selects_gradients(random):
    gate, input = random(2, 9, 3), random(2, 9, 3)
    state = scanrec.linear_scan(gate, input)
    final_grad = random(2, 3)
    w = np.zeros_like(state)
    w[:, -1] = final_grad
    want = scanrec.linear_scan_vjp(gate, state, w)
    got = scanrec.linear_scan_vjp(gate, state, None, final_grad)
    for x, y in zip(got, want, strict=True):
        assert np.allclose(x, y, rtol=1e-13)
    assert scanrec.linear_scan_vjp(gate, state, w, wrt=[]) == (None, None, None)
    assert scanrec.linear_scan_vjp(gate, state, w, wrt=["input"]).gate is None
    assert np.array_equal(
        scanrec.linear_scan_vjp(gate, state, w, wrt=iter(["gate"])).gate, want.gate
    )
    # Without any cotangent or tangent the results are zeros.
    assert not any(np.any(g) for g in scanrec.linear_scan_vjp(gate, state))
    assert not np.any(scanrec.linear_scan_jvp(gate, state))


def test_second_call_with_the_same_layout_skips_checks(random, monkeypatch):
    plans._plans.clear()
    shape, boundary = (2, 9, 3), (2, 3)
    numbers = lambda: (random(3), random(*shape), random(*boundary))
    resets, w = random.booleans(2, 9, 1), random(*shape)

    def all_of(gate, input, first):
        about = {"initial_state": first, "resets": resets}
        state, final = scanrec.linear_scan(gate, input, return_final=True, **about)
        gradients = scanrec.linear_scan_vjp(gate, state, w, final, **about)
        return state, final, *gradients, scanrec.linear_scan_jvp(gate, state, gate, w, **about)

    all_of(*numbers())
    gate, input, first = numbers()
    monkeypatch.setattr(plans.arguments, "check_shape", None)
    got = all_of(gate, input, first)
    assert close(got[0], loop(gate, input, first, resets=resets)[0], np.float64)
    monkeypatch.undo()
    plans._plans.clear()
    assert all(np.array_equal(x, y) for x, y in zip(got, all_of(gate, input, first), strict=True))


def test_second_call_skips_checks_of_copied_operands(random, monkeypatch):
    """Operands are copied to change dtype or byte order, or if strides or alignment require it."""
    plans._plans.clear()
    x = random(9, 3)
    bytes = np.empty(x.nbytes + 1, np.uint8)
    unaligned = bytes[1:].view(np.float64).reshape(x.T.shape).T
    unaligned[...] = x
    records = np.zeros(x.shape, [("x", "f8"), ("mark", "i4")])
    records["x"] = x
    kinds = (x.astype("f4"), x.astype("f4").T.copy().T, x.astype(">f8"), unaligned, records["x"])
    half = (x.astype("f2"), x.astype("f2"), x[0].astype("f2"))  # the initial state becomes float32
    calls = [(kind, x, kind[0]) for kind in kinds] + [(x, kind, kind[0]) for kind in kinds] + [half]
    want = [scanrec.linear_scan(*call) for call in calls]
    monkeypatch.setattr(plans.arguments, "check_shape", None)
    for call, state in zip(calls, want, strict=True):
        assert np.array_equal(scanrec.linear_scan(*call), state) and np.any(state)


def test_cached_plans_serve_one_layout_only(random):
    x, g = random(9, 3), random(9, 3)
    right = lambda *arrays, **about: close(
        scanrec.linear_scan(*arrays, **about), loop(*arrays, **about)[0], np.float64
    )
    assert right(x, x) and right(g, x)  # the same array twice, then two arrays of that layout
    assert right(0.5, x) and right(0.25, x) and right(2, x) and right(True, x)
    for kind in (complex, np.complex64, np.float64, np.float32, np.float16, float):
        for _ in range(2):
            want = np.result_type(x, kind(1)) if kind is not np.complex64 else np.complex128
            assert right(kind(0.5), x) and scanrec.linear_scan(kind(0.5), x).dtype == want
    assert right(g, x, axis=1) and right(g, x, axis=np.int64(1)) and right(g, x, axis=np.array(1))
    assert right(g, x, axis=1, reverse=True) and right(g, x, axis=0)
    with pytest.raises(TypeError, match="'axis': expected an integer"):
        scanrec.linear_scan(g, x, axis=1.0)
    with pytest.raises(TypeError, match="'axis': expected an integer"):
        scanrec.linear_scan(g, x, axis=[1])
    views = lambda y: (y, y[::-1], y[:, ::-1], y[::-1, ::-1], y.T.copy().T)
    for _ in range(2):
        for view in views(x):
            assert right(g, view) and right(view, g)
            frozen = view.view()
            frozen.flags.writeable = False
            assert right(g, frozen) and right(frozen, g)
    bytes = np.empty(x.nbytes + 1, np.uint8)
    unaligned = bytes[1:].view(np.float64).reshape(x.shape)
    unaligned[...] = x
    assert right(g, unaligned) and right(unaligned, x)
    assert right(g, x.astype(">f8")) and right(g.tolist(), x) and right(np.ma.array(g), x)
    (spread,) = np.broadcast_arrays(x[:1], x)[:1]
    assert right(spread, x)


def test_plan_cache_is_bounded_and_keeps_no_arrays_alive():
    x = np.ones(2000)
    gate = weakref.ref(last := x[:1999])
    for n in range(1, 2000):
        assert scanrec.linear_scan(last[:n], x[:n], axis=0)[-1] == n
    scanrec.linear_scan(last, last, axis=0)
    assert 0 < len(plans._plans) <= plans._plans.MOST
    del last
    assert gate() is None


def test_addresses_equal_numpy_data_pointers(random):
    x = random(4, 6)
    for view in (x, x[1:, ::2], x[::-1], x.T, x[:0], x[2, 3:4], np.array(1.0), np.array(True)):
        want = view.ctypes.data
        assert plans._addresses([view]) == [want]
        assert plans._addresses_by_interface([view]) == [want]


def test_concurrent_small_calls_equal_the_loop(random):
    arrays = [(random(5, 4), random(5, 4)) for _ in range(8)]
    want = [loop(*pair)[0] for pair in arrays]

    def often(i):
        return all(close(scanrec.linear_scan(*arrays[i]), want[i], np.float64) for _ in range(300))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(often, range(8)))


ONES = np.ones((2, 9, 3))


class NoArray:
    def __array__(self, *_, **__):
        raise RuntimeError("not today")


@pytest.mark.parametrize(
    "error, words, call",
    [
        (ValueError, "'gate': expected a shape that broadcasts to (2, 9, 3), got (4,)",
         lambda: scanrec.linear_scan(np.ones(4), ONES)),
        (ValueError, "'gate': expected a shape that broadcasts to (9, 3), got (2, 9, 3)",
         lambda: scanrec.linear_scan(ONES, ONES[0])),
        (TypeError, "'input': expected one of float32",
         lambda: scanrec.linear_scan(0.5, np.ones((4, 2), int))),
        (TypeError, "'gate': expected one of float32",
         lambda: scanrec.linear_scan(["a"], ONES)),
        (ValueError, "'axis': expected an axis of an input of shape (2, 9, 3), got 3",
         lambda: scanrec.linear_scan(0.5, ONES, axis=3)),
        (TypeError, "'axis': expected an integer",
         lambda: scanrec.linear_scan(0.5, ONES, axis=1.5)),
        (ValueError, "'axis': expected an axis of an input of shape (4,) (0 for a single sequence), got -2",
         lambda: scanrec.linear_scan(0.5, np.ones(4))),
        (TypeError, "'reverse': expected True or False, got 'no'",
         lambda: scanrec.linear_scan(0.5, ONES, reverse="no")),
        (TypeError, "'input': expected an array of numbers, got NoArray: not today",
         lambda: scanrec.linear_scan(0.5, NoArray())),
        (ValueError, "'gate': expected an array, got none", lambda: scanrec.linear_scan(None, ONES)),
        (TypeError, "'gate': expected an array of numbers, got dict",
         lambda: scanrec.linear_scan({"gate": ONES}, ONES)),
        (ValueError, "'gate': expected an array without masked elements (filled() makes one), got 2 of",
         lambda: scanrec.linear_scan(np.ma.masked_equal([0.5, 0, 0], 0), ONES)),
        (ValueError, "'input': expected an array with a time axis",
         lambda: scanrec.linear_scan(0.5, np.float64(1))),
        (ValueError, "'initial_state': expected a shape that broadcasts to (2, 3), got (2, 9, 3)",
         lambda: scanrec.linear_scan(0.5, ONES, ONES)),
        (TypeError, "'resets': expected booleans, got float64",
         lambda: scanrec.linear_scan(0.5, ONES, resets=ONES)),
        (ValueError, "'resets': expected a shape that broadcasts to (2, 9, 3), with all 9",
         lambda: scanrec.linear_scan(0.5, ONES, resets=np.zeros(3, bool))),
        (ValueError, "'resets': expected a shape that broadcasts to (2, 9, 3), with all 9",
         lambda: scanrec.linear_scan(0.5, ONES, resets=np.zeros((2, 1, 3), bool))),
        (ValueError, "all 9 steps on axis 1, or one more, got (2, 11, 3)",
         lambda: scanrec.linear_scan(0.5, ONES, resets=np.zeros((2, 11, 3), bool))),
        (ValueError, "on axis 1 (such as (2, 9, 1)), or one more, got (2, 9)",
         lambda: scanrec.linear_scan(0.5, ONES, resets=np.zeros((2, 9), bool))),
        (ValueError, "'wrt': expected names among gate, input, initial_state, got 'inputs'",
         lambda: scanrec.linear_scan_vjp(0.5, ONES, ONES, wrt=["inputs"])),
        (TypeError, "'wrt': expected a tuple of names, got 'gate'",
         lambda: scanrec.linear_scan_vjp(0.5, ONES, ONES, wrt="gate")),
        (TypeError, "'wrt': expected a tuple of names, got None",
         lambda: scanrec.linear_scan_vjp(0.5, ONES, ONES, wrt=None)),
        (TypeError, "'reverse': expected True or False, got a ndarray of shape (2,)",
         lambda: scanrec.linear_scan(0.5, ONES, reverse=np.array([True, False]))),
        (ValueError, "'gate': expected a number of magnitude below 1.8e308, got an integer of 1329 bits",
         lambda: [scanrec.linear_scan(one, ONES) for one in (1, 10**400)]),  # the second: planned
        (ValueError, "'initial_state': expected a shape that broadcasts to (2, 3)",
         lambda: scanrec.linear_scan_vjp(0.5, ONES, ONES, initial_state=ONES, wrt=["input"])),
        (ValueError, "'state_grad': expected a shape that broadcasts to (2, 9, 3)",
         lambda: scanrec.linear_scan_vjp(0.5, ONES, np.ones((9, 2)))),
    ],
)  # fmt: skip
def test_invalid_input_raises(error, words, call):
    with pytest.raises(error) as raised:
        call()
    assert words in str(raised.value)


def test_extension_addresses_equal_numpy_and_survive_list_changes():
    module = pytest.importorskip("scanrec._arrays", reason="built without Python's headers")
    x, y = np.ones(3), np.ones((4, 5))[::2, 1:]
    assert module.addresses([x, y]) == [x.ctypes.data, y.ctypes.data]
    arrays = []

    class Emptying:
        @property
        def __array_struct__(self):
            arrays.clear()
            return x.__array_struct__

    arrays += [Emptying(), x]
    with pytest.raises(IndexError):
        module.addresses(arrays)
    with pytest.raises(AttributeError, match="__array_struct__"):
        module.addresses([x, 1])

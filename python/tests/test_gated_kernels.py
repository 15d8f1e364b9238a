# SPDX-License-Identifier: BSD-3-Clause
"""Tests of gated scans through the C interface, against a loop in long double.

Linear scans of logarithms are tested here, too. The environment variable SCANREC_ISA selects the
instruction set.
"""

from __future__ import annotations

import numpy as np
import pytest
from conftest import Random, loop, pooled

from scanrec import _native
from scanrec._op.gated.spec import GATES
from scanrec._op.linear.spec import LOG_GATE, LOG_INPUT

SHAPE = (2, 37, 18)


def array_of(x):
    return _native.Array(
        x.ctypes.data, [0 if n == 1 else s // x.itemsize for n, s in zip(x.shape, x.strides)]
    )


def run(call, dtype, *, shape=SHAPE, reverse=False, logarithms=0, forget_bias=0.0, **arrays):
    _native.call(
        call, {name: array_of(x) for name, x in arrays.items()},
        dtype=dtype, shape=shape, axis=1, reverse=reverse, logarithms=logarithms,
        forget_bias=forget_bias,
    )  # fmt: skip


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize(
    "dtype, rounding", [("float32", 1e-6), ("float64", 1e-14), ("float16", 2e-3)]
)
def test_values_equal_the_loop(count, dtype, rounding):
    random = Random(count)
    packed = random(*SHAPE[:2], count * SHAPE[2], dtype=dtype, scale=2.0)
    pre = np.split(packed, count, -1)
    first = random(2, 1, 18, dtype="float64" if dtype == "float64" else "float32")
    resets, zoneout = random.booleans(2, 37, 1), random.booleans(*SHAPE)
    outputs = {"output": np.empty(SHAPE, dtype), "final_state": np.empty_like(first)}
    if count > 2:
        outputs["state"] = np.empty(SHAPE, dtype)
    run(
        "gated_scan", dtype, **dict(zip(GATES, pre)), initial_state=first,
        resets=resets, zoneout=zoneout, **outputs,
    )  # fmt: skip
    want, state, final = pooled(pre, first[:, 0], resets=resets, zoneout=zoneout)
    for got, exact in zip(outputs.values(), (want, final[:, None], state)):
        np.testing.assert_allclose(got.astype(np.longdouble), exact, rtol=rounding, atol=rounding)


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("dtype, rounding", [("float32", 2e-6), ("float64", 1e-14)])
def test_vjp_equals_the_directional_derivative(count, dtype, rounding):
    """The reference is a difference quotient in long double."""
    random = Random(count)
    pre = [random(*SHAPE, dtype=dtype, scale=2.0) for _ in range(count)]
    first, final_grad = (random(2, 1, 18, dtype=dtype) for _ in range(2))
    output_grad, zoneout = random(*SHAPE, dtype=dtype), random.booleans(*SHAPE)
    state = np.empty(SHAPE, dtype)
    names = GATES[:count]
    kept = {"output": np.empty(SHAPE, dtype), "state": state} if count > 2 else {"output": state}
    run("gated_scan", dtype, **dict(zip(names, pre)), initial_state=first, zoneout=zoneout, **kept)
    gradients = {f"{n}_grad": np.empty(SHAPE, dtype) for n in names}
    gradients["initial_grad"] = np.empty_like(first)
    run(
        "gated_scan_vjp", dtype, **dict(zip(names, pre)), state=state, initial_state=first,
        zoneout=zoneout, output_grad=output_grad, final_grad=final_grad, **gradients,
    )  # fmt: skip
    moves = [random(*x.shape) for x in (*pre, first)]

    def loss(by):
        *at, start = (x.astype(np.longdouble) + by * m for x, m in zip((*pre, first), moves))
        output, _, final = pooled(at, start[:, 0], zoneout=zoneout)
        return np.sum(output * output_grad) + np.sum(final * final_grad[:, 0])

    step = np.longdouble(1e-6)
    want = (loss(step) - loss(-step)) / (2 * step)
    got = sum(np.sum(g.astype(np.longdouble) * m) for g, m in zip(gradients.values(), moves))
    size = sum(np.sum(np.abs(g * m)) for g, m in zip(gradients.values(), moves))
    assert abs(got - want) <= max(rounding, 1e-11) * size


def test_gradient_of_a_broadcast_gate_is_the_sum():
    random = Random()
    candidate, forget = random(*SHAPE), random(1, 1, 18)
    output_grad, out = random(*SHAPE), np.empty(SHAPE)
    run("gated_scan", "float64", candidate=candidate, forget_gate=forget, output=out)
    got = {"forget_gate_grad": np.empty((1, 1, 18))}
    given = {"candidate": candidate, "state": out, "output_grad": output_grad}
    run("gated_scan_vjp", "float64", forget_gate=forget, **given, **got)
    spread = np.ascontiguousarray(np.broadcast_to(forget, SHAPE))
    apart = {"forget_gate_grad": np.empty(SHAPE)}
    run("gated_scan_vjp", "float64", forget_gate=spread, **given, **apart)
    want = apart["forget_gate_grad"].sum((0, 1))
    np.testing.assert_allclose(got["forget_gate_grad"][0, 0], want, rtol=1e-13)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("steps", [1, 128, 129, 300])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("count", [2, 3, 4])
def test_checkpoints_change_no_bit_of_outputs_and_gradients(count, dtype, steps, reverse):
    random, shape, wide = Random(steps), (2, steps, 18), "float32" if dtype == "float16" else dtype
    pre = {n: random(*shape, dtype=dtype, scale=2.0) for n in GATES[:count]}
    given = {
        **{"initial_state": random(2, 1, 18, dtype=wide), "resets": random.booleans(2, steps, 1)},
        **{"zoneout": random.booleans(*shape), "shape": shape, "reverse": reverse},
        "forget_bias": 0.75,
    }
    state = np.empty(shape, dtype)
    checkpoints = np.empty(_native.checkpoint_shape(shape, 1), wide)
    assert checkpoints.shape[1] == (0 if steps <= 128 else 1 if steps == 129 else 2)
    lean, output_grad = np.empty(shape, dtype), random(*shape, dtype=dtype)
    plain = np.empty(shape, dtype) if count > 2 else state
    kept = {"output": plain, "state": state} if count > 2 else {"output": state}
    run("gated_scan", dtype, **pre, **given, **kept)
    run("gated_scan", dtype, **pre, **given, output=lean, checkpoints=checkpoints)
    assert np.array_equal(lean, plain)
    found = []
    for memory in ({"state": state}, {"checkpoints": checkpoints}):
        gradients = {f"{n}_grad": np.empty(shape, dtype) for n in pre}
        gradients["initial_grad"] = np.empty((2, 1, 18), wide)
        run("gated_scan_vjp", dtype, **pre, **given, **memory, output_grad=output_grad, **gradients)
        found.append(gradients)
    for name in found[0]:
        assert np.array_equal(found[0][name], found[1][name]), name


def test_checkpoints_with_outer_axes_change_no_bit_of_gradients():
    random, shape = Random(), (2, 300, 3, 2, 2, 2)
    whole = lambda: random(*(n + 1 for n in shape))[tuple(slice(0, n) for n in shape)]
    pre = {n: whole() for n in GATES[:3]}
    output, state, output_grad = np.empty(shape), np.empty(shape), random(*shape)
    checkpoints = np.empty(_native.checkpoint_shape(shape, 1))
    run("gated_scan", "float64", shape=shape, **pre, output=output, state=state)
    run("gated_scan", "float64", shape=shape, **pre, output=output, checkpoints=checkpoints)
    found = []
    for memory in ({"state": state}, {"checkpoints": checkpoints}):
        found.append({f"{n}_grad": np.empty(shape) for n in pre})
        given = {**pre, **memory, "output_grad": output_grad}
        run("gated_scan_vjp", "float64", shape=shape, **given, **found[-1])
    assert all(np.array_equal(found[0][n], found[1][n]) for n in found[0])


def test_forget_bias_is_added_to_the_gate():
    random, out = Random(), [np.empty(SHAPE), np.empty(SHAPE)]
    candidate, forget = random(*SHAPE), random(*SHAPE)
    of = {"candidate": candidate}
    run("gated_scan", "float64", **of, forget_gate=forget, output=out[0], forget_bias=1.5)
    run("gated_scan", "float64", **of, forget_gate=forget + 1.5, output=out[1])
    assert np.array_equal(*out)


@pytest.mark.parametrize("logarithms", [LOG_GATE, LOG_INPUT, LOG_GATE | LOG_INPUT])
@pytest.mark.parametrize(
    "dtype, rounding", [("float32", 2e-6), ("float64", 1e-14), ("float16", 2e-3)]
)
def test_scans_of_logarithms_equal_the_loop(logarithms, dtype, rounding):
    random, wide = Random(logarithms), "float32" if dtype == "float16" else dtype
    gate = (
        -np.abs(random(*SHAPE, dtype=dtype))
        if logarithms & LOG_GATE
        else random(*SHAPE, dtype=dtype)
    )
    input, first = random(*SHAPE, dtype=dtype), random(2, 1, 18, dtype=wide)
    resets = random.booleans(2, 37, 1)
    if logarithms & LOG_GATE:
        gate[0, 3] = -np.inf
    exact = [
        np.exp(x.astype(np.longdouble)) if logarithms & bit else x.astype(np.longdouble)
        for bit, x in ((LOG_GATE, gate), (LOG_INPUT, input))
    ]
    given = {"gate": gate, "input": input, "initial_state": first, "resets": resets}
    out = {"state": np.empty(SHAPE, dtype), "final_state": np.empty_like(first)}
    run("linear_scan", dtype, logarithms=logarithms, **given, **out)
    want, final = loop(*exact, first[:, 0], resets=resets)
    for got, of in zip(out.values(), (want, final[:, None]), strict=True):
        scale = max(1.0, float(np.max(np.abs(of))))
        np.testing.assert_allclose(got.astype(np.longdouble), of, rtol=0, atol=rounding * scale)

    state_grad = random(*SHAPE, dtype=dtype)
    gradients = {
        "gate_grad": np.empty(SHAPE, dtype),
        "input_grad": np.empty(SHAPE, dtype),
        "initial_grad": np.empty_like(first),
    }
    given |= {"state": out["state"], "state_grad": state_grad}
    run("linear_scan_vjp", dtype, logarithms=logarithms, **given, **gradients)
    # The reference is an adjoint loop, multiplied by the derivatives of exp.
    back, _ = loop(
        np.concatenate([exact[0][:, 1:], exact[0][:, :1]], 1),
        state_grad, reverse=True, resets=resets,
    )  # fmt: skip
    before = np.concatenate([first, want[:, :-1]], 1)
    before = np.where(resets, 0, before)
    slopes = [exact[0] if logarithms & LOG_GATE else 1, exact[1] if logarithms & LOG_INPUT else 1]
    for name, of in (("gate", back * before * slopes[0]), ("input", back * slopes[1])):
        got = gradients[f"{name}_grad"].astype(np.longdouble)
        scale = max(1.0, float(np.max(np.abs(of))))
        np.testing.assert_allclose(got, of, rtol=0, atol=4 * rounding * scale)


def test_only_gradients_of_forget_and_output_gate_read_states(random):
    shape = (2, 300, 18)
    pre = {name: random(*shape) for name in GATES[:3]}
    state, output, found = np.empty(shape), np.empty(shape), []
    run("gated_scan", "float64", shape=shape, **pre, output=output, state=state)
    for kept in ({"state": state}, {}):
        found.append({"candidate_grad": np.empty(shape), "initial_grad": np.empty((2, 1, 18))})
        given = {**pre, **kept, "output_grad": output, "shape": shape}
        run("gated_scan_vjp", "float64", **given, **found[-1])
    assert all(np.array_equal(found[0][name], found[1][name]) for name in found[0])


def test_errors_name_the_invalid_argument():
    x = np.ones(SHAPE)
    pre = {"candidate": x, "forget_gate": x, "output": np.empty(SHAPE)}
    scan = {"gate": x, "input": x, "state": np.empty(SHAPE)}
    with pytest.raises(
        ValueError, match="'logarithms': expected bits of scanrec_logarithms, got 4"
    ):
        run("linear_scan", "float64", logarithms=4, **scan)
    with pytest.raises(ValueError, match="gated_scan: argument 'logarithms': expected 0 for this"):
        run("gated_scan", "float64", logarithms=1, **pre)
    with pytest.raises(
        ValueError, match="linear_scan: argument 'forget_bias': expected 0 for this"
    ):
        run("linear_scan", "float64", forget_bias=1.0, **scan)
    with pytest.raises(ValueError, match="'dtype': expected a type with kernels in this build"):
        run("linear_scan", "complex128", logarithms=1, **{k: v + 0j for k, v in scan.items()})
    adjoint = {"gate": x, "state_grad": x, "input_grad": np.empty(SHAPE)}
    with pytest.raises(ValueError, match="linear_scan_vjp: argument 'input': expected an array of"):
        run("linear_scan_vjp", "float64", logarithms=LOG_INPUT, **adjoint)
    with pytest.raises(
        ValueError, match="linear_scan_vjp: argument 'state': expected an array, since"
    ):
        run("linear_scan_vjp", "float64", logarithms=LOG_GATE, **adjoint, gate_grad=np.empty(SHAPE))
    long = np.ones((2, 300, 18))
    with pytest.raises(ValueError, match="'checkpoints': expected an absent array, since 'state'"):
        run(
            "gated_scan", "float64", shape=long.shape, candidate=long, forget_gate=long,
            output=np.empty_like(long), state=np.empty_like(long),
            checkpoints=np.empty((2, 2, 18)),
        )  # fmt: skip
    with pytest.raises(ValueError, match="'state': expected an array, or 'checkpoints'"):
        run(
            "gated_scan_vjp", "float64", shape=long.shape, candidate=long, forget_gate=long,
            output_grad=long, forget_gate_grad=np.empty_like(long),
        )  # fmt: skip
    with pytest.raises(ValueError, match="'output_gate'.*since 'input_gate' is present"):
        run(
            "gated_scan",
            "float64",
            candidate=x,
            forget_gate=x,
            input_gate=x,
            output=np.empty(SHAPE),
        )
    with pytest.raises(ValueError, match="'forget_gate': expected an array"):
        run("gated_scan", "float64", candidate=x, output=np.empty(SHAPE))
    z = x.astype(complex)
    with pytest.raises(ValueError, match="'dtype': expected a type with kernels in this build"):
        run("gated_scan", "complex128", candidate=z, forget_gate=z, output=np.empty_like(z))

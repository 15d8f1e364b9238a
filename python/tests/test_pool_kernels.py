# SPDX-License-Identifier: BSD-3-Clause
"""QRNN pooling through the C interface, against a loop in long double: every kind, every type, in
whatever instruction set SCANREC_ISA names."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import Random, pooled

from scanrec import _native

SHAPE = (2, 37, 18)


def array_of(x):
    return _native.Array(
        x.ctypes.data, [0 if n == 1 else s // x.itemsize for n, s in zip(x.shape, x.strides)]
    )


def run(call, dtype, **arrays):
    _native.call(
        call, {name: array_of(x) for name, x in arrays.items()},
        dtype=dtype, shape=SHAPE, axis=1, reverse=False,
    )  # fmt: skip


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize(
    "dtype, rounding", [("float32", 1e-6), ("float64", 1e-14), ("float16", 2e-3)]
)
def test_value(count, dtype, rounding):
    random = Random(count)
    packed = random(*SHAPE[:2], count * SHAPE[2], dtype=dtype, scale=2.0)
    pre = np.split(packed, count, -1)
    first = random(2, 1, 18, dtype="float64" if dtype == "float64" else "float32")
    resets, zoneout = random.marks(2, 37, 1), random.marks(*SHAPE)
    outputs = {"output": np.empty(SHAPE, dtype), "final_state": np.empty_like(first)}
    if count > 2:
        outputs["state"] = np.empty(SHAPE, dtype)
    run(
        "qrnn_pool", dtype, **dict(zip(_native.GATES, pre)), initial_state=first,
        resets=resets, zoneout=zoneout, **outputs,
    )  # fmt: skip
    want, state, final = pooled(pre, first[:, 0], resets=resets, zoneout=zoneout)
    for got, exact in zip(outputs.values(), (want, final[:, None], state)):
        np.testing.assert_allclose(got.astype(np.longdouble), exact, rtol=rounding, atol=rounding)


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("dtype, rounding", [("float32", 2e-6), ("float64", 1e-14)])
def test_adjoint(count, dtype, rounding):
    """The derivative in a direction, by the adjoint and by a difference quotient in long double."""
    random = Random(count)
    pre = [random(*SHAPE, dtype=dtype, scale=2.0) for _ in range(count)]
    first, final_grad = (random(2, 1, 18, dtype=dtype) for _ in range(2))
    output_grad, zoneout = random(*SHAPE, dtype=dtype), random.marks(*SHAPE)
    state = np.empty(SHAPE, dtype)
    names = _native.GATES[:count]
    kept = {"output": np.empty(SHAPE, dtype), "state": state} if count > 2 else {"output": state}
    run("qrnn_pool", dtype, **dict(zip(names, pre)), initial_state=first, zoneout=zoneout, **kept)
    gradients = {f"{n}_grad": np.empty(SHAPE, dtype) for n in names}
    gradients["initial_grad"] = np.empty_like(first)
    run(
        "qrnn_pool_vjp", dtype, **dict(zip(names, pre)), state=state, initial_state=first,
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


def test_a_gate_that_broadcasts_receives_the_sum():
    random = Random()
    candidate, forget = random(*SHAPE), random(1, 1, 18)
    output_grad, out = random(*SHAPE), np.empty(SHAPE)
    run("qrnn_pool", "float64", candidate=candidate, forget_gate=forget, output=out)
    got = {"forget_gate_grad": np.empty((1, 1, 18))}
    given = {"candidate": candidate, "state": out, "output_grad": output_grad}
    run("qrnn_pool_vjp", "float64", forget_gate=forget, **given, **got)
    spread = np.ascontiguousarray(np.broadcast_to(forget, SHAPE))
    apart = {"forget_gate_grad": np.empty(SHAPE)}
    run("qrnn_pool_vjp", "float64", forget_gate=spread, **given, **apart)
    want = apart["forget_gate_grad"].sum((0, 1))
    np.testing.assert_allclose(got["forget_gate_grad"][0, 0], want, rtol=1e-13)


def test_what_is_refused():
    x = np.ones(SHAPE)
    with pytest.raises(ValueError, match="'output_gate'.*where there is an input gate"):
        run(
            "qrnn_pool", "float64", candidate=x, forget_gate=x, input_gate=x, output=np.empty(SHAPE)
        )
    with pytest.raises(ValueError, match="'forget_gate': expected an array"):
        run("qrnn_pool", "float64", candidate=x, output=np.empty(SHAPE))
    with pytest.raises(ValueError, match="qrnn_pool_vjp: argument 'state'"):
        run("qrnn_pool_vjp", "float64", candidate=x, forget_gate=x, output_grad=x)
    with pytest.raises(ValueError, match="'dtype': expected a type that there are kernels for"):
        z = x.astype(complex)
        run("qrnn_pool", "complex128", candidate=z, forget_gate=z, output=np.empty_like(z))

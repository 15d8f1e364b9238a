# SPDX-License-Identifier: BSD-3-Clause
"""Tests that lazily conjugated and negated operands of scanrec.torch equal resolved ones."""

from __future__ import annotations

import pytest
from conftest import Random

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch import func
from torch.fx.experimental.proxy_tensor import make_fx

import scanrec.torch as scans


def tensors(*shapes, dtype="float64", seed=3):
    random = Random(seed)
    return [torch.from_numpy(random(*shape, dtype=dtype)) for shape in shapes]


def negated(x):
    """Return x as a lazily negated view; for real x it is the imaginary part of a conjugate."""
    if x.is_complex():
        return torch._neg_view(-x)
    view = torch.complex(torch.zeros_like(x), -x).conj().imag
    assert view.is_neg()
    return view


def conjugated(x):
    view = x.conj().resolve_conj().conj()
    assert view.is_conj()
    return view


VIEWS = {
    "negated": negated,
    "conjugated": conjugated,
    "both": lambda x: negated(x.conj().resolve_conj()).conj(),
}


def linear(gate, input, first):
    return scans.linear_scan(gate, input, first, return_final=True)


def logarithms(gate, input, first):
    return scans.linear_scan(gate, input, first, log_gate=True, log_input=True, return_final=True)


def packed(pre, first):
    return scans.qrnn_pool(pre, first, return_final=True)


def apart(*x):
    return scans.qrnn_pool(x[:-1], x[-1], pool="ifo", memory="recompute", return_final=True)


def selective(u, delta, a, b, c, d, z, bias, first):
    return scans.selective_scan(u, delta, a, b, c, d, z, bias, True, True, initial_state=first)


ALL, CHANNELS = (2, 9, 3), (2, 3, 9)
OF_SELECTIVE = (
    *(CHANNELS, CHANNELS, (3, 4), (2, 4, 9), (3, 4), (3,), CHANNELS, (3,)),
    (2, 3, 4),
)
CALLS = {
    "linear": (linear, tensors(ALL, ALL, (2, 3))),
    "linear, complex": (linear, tensors(ALL, ALL, (2, 3), dtype="complex128")),
    "logarithms": (logarithms, tensors(ALL, ALL, (2, 3))),
    "packed": (packed, tensors(ALL, (2, 1))),
    "apart": (apart, tensors(ALL, ALL, ALL, ALL, (2, 3))),
    "selective": (selective, tensors(*OF_SELECTIVE)),
    "selective, complex": (
        selective,
        [
            x if i in (0, 1, 5, 6, 7) else y
            for i, (x, y) in enumerate(
                zip(tensors(*OF_SELECTIVE), tensors(*OF_SELECTIVE, dtype="complex128"))
            )
        ],
    ),
}


def lazy(x):
    """Return every lazy view of a tensor."""
    return [view(x) for name, view in VIEWS.items() if x.is_complex() or name == "negated"]


def equal(got, want):
    for a, b in zip(got, want, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("name", CALLS)
def test_lazy_operands_cotangents_and_tangents_equal_resolved_ones(name):
    call, x = CALLS[name]
    want = call(*x)
    w = [torch.ones_like(y) * (2 + 3j if y.is_complex() else 2) for y in want]
    pulled = lambda x, w: func.vjp(call, *x)[1](tuple(w))
    pushed = lambda x, moved: func.jvp(call, tuple(x), tuple(moved))[1]
    grads, tangents = pulled(x, w), pushed(x, x)
    recorded = make_fx(call)(*x)
    for i, v in enumerate(x):
        for view in lazy(v):
            mine = [view if k == i else y for k, y in enumerate(x)]
            equal(call(*mine), want)
            if not (call is selective and i == 3 and view.is_conj()):  # view_as_real raises
                equal(recorded(*mine), want)
            equal(pulled(mine, w), grads)
            equal(pushed(x, mine), tangents)
    for i, v in enumerate(w):
        for view in lazy(v):
            equal(pulled(x, [view if k == i else y for k, y in enumerate(w)]), grads)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("rows", [None, [1, 0]])
def test_steps_with_lazy_operands_equal_resolved_ones(dtype, rows):
    """The state is updated in place, and its view stays lazy."""
    state, A = tensors((2, 3, 4), (3, 4), dtype=dtype)
    B, C = tensors((2, 4), (2, 4), dtype=dtype, seed=4)
    x, dt, z, D, bias = tensors((2, 3), (2, 3), (2, 3), (3,), (3,))
    good = dict(state=state, x=x, dt=dt, A=A, B=B, C=C, D=D, z=z, dt_bias=bias)
    rows = None if rows is None else torch.tensor(rows)

    def step(**given):
        return scans.selective_state_update(**given, dt_softplus=True, state_batch_indices=rows)

    moved = state.clone()
    want = step(**{**good, "state": moved})
    assert not torch.equal(moved, state)
    recorded = make_fx(lambda given: step(**given))({**good, "state": state.clone()})
    for run in (step, lambda **given: recorded(given)):
        for name, value in good.items():
            for view in lazy(value):
                if run is not step and name in ("B", "C") and view.is_conj():
                    continue  # view_as_real rejects conjugated views
                given = {**good, "state": state.clone(), name: view}
                bits, version = view.is_neg(), given["state"]._version
                assert torch.equal(run(**given), want), name
                assert torch.equal(given["state"], moved), name
                assert view.is_neg() == bits and given["state"]._version > version


@pytest.mark.parametrize("shape", [(0, 3, 4), (2, 0, 4)])
def test_empty_states_may_have_any_strides(shape):
    zeros = lambda *n: torch.zeros(n)
    batch, channels, states = shape
    out = scans.selective_state_update(
        zeros(1).as_strided(shape, (0, 0, 0)), zeros(batch, channels), zeros(batch, channels),
        zeros(channels, states), zeros(batch, states), zeros(batch, states),
    )  # fmt: skip
    assert out.shape == (batch, channels)

# SPDX-License-Identifier: BSD-3-Clause
"""Tests that autograd saves only tensors that the required gradients of scanrec.torch read."""

from __future__ import annotations

import gc
import weakref
from itertools import chain, combinations

import pytest
from conftest import Random

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import scanrec.torch as scans

STEPS = 300  # two checkpoints
ALL, EDGE, CHANNELS = (2, STEPS, 3), (2, 3), (2, 3, STEPS)
RESETS = torch.from_numpy(Random(1).booleans(2, STEPS, 1))
OUTPUT = "output"


def tensors(*shapes, seed=3):
    random = Random(seed)
    return tuple(torch.from_numpy(random(*shape)) for shape in shapes)


def linear(gate, input, first):
    return scans.linear_scan(gate, input, first, resets=RESETS, return_final=True)


def logarithms(gate, input, first):
    return scans.linear_scan(gate, input, first, log_gate=True, log_input=True, return_final=True)


def log_input(gate, input, first):
    return scans.linear_scan(gate, input, first, log_input=True, return_final=True)


def log_gate(gate, input, first):
    return scans.linear_scan(gate, input, first, log_gate=True, return_final=True)


def pool(kind, memory="store"):
    return lambda *x: scans.qrnn_pool(
        x[:-1], x[-1], pool=kind, memory=memory, resets=RESETS, return_final=True
    )


def selective(u, delta, a, b, c, d, z, first):
    return scans.selective_scan(
        u, delta, a, b, c, d, z, None, True, True, initial_state=first, resets=RESETS[..., 0]
    )


STATES = 2 * STEPS * 3
CHECKPOINTS = 2 * 2 * 3
OF_SELECTIVE = (CHANNELS, CHANNELS, (3, 4), (2, 4, STEPS), (3, 4), (3,), CHANNELS, (2, 3, 4))
#: (call, operand shapes, operands saved for any gradient, operands whose gradients read states,
#: tensor also saved for those gradients, operands also saved for them). Operands are given by
#: index, and the tensor as OUTPUT or by its number of elements.
CALLS = {
    "linear": (linear, (ALL, ALL, EDGE), {0}, {0}, OUTPUT, {2}),
    "logarithms": (logarithms, (ALL, ALL, EDGE), {0, 1, 2}, {0}, OUTPUT, set()),
    "log_input": (log_input, (ALL, ALL, EDGE), {0, 1, 2}, {0}, OUTPUT, set()),
    "log_gate": (log_gate, (ALL, ALL, EDGE), {0, 2}, {0}, OUTPUT, {1}),
    "f": (pool("f"), (ALL, ALL, EDGE), {0, 1, 2}, {1}, OUTPUT, set()),
    "f, recompute": (
        pool("f", "recompute"), (ALL, ALL, EDGE), {0, 1, 2}, {1}, CHECKPOINTS, set(),
    ),
    "fo": (pool("fo"), (ALL, ALL, ALL, EDGE), set(range(4)), {1, 2}, STATES, set()),
    "ifo, recompute": (
        pool("ifo", "recompute"), (ALL, ALL, ALL, ALL, EDGE), set(range(5)), {1, 2}, CHECKPOINTS,
        set(),
    ),
    "selective": (  # every gradient recomputes the states
        selective, OF_SELECTIVE, set(range(8)), set(range(8)), 4 * CHECKPOINTS, set(),
    ),
}  # fmt: skip


def saved(call, x):
    """Return the results of a call, and the tensors that autograd saves for it."""
    found = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: found.append(t) or t, lambda t: t):
        results = call(*x)
    return results, found


def subsets(count):
    return chain.from_iterable(combinations(range(count), n) for n in range(count + 1))


@pytest.mark.parametrize("name", CALLS)
def test_saved_tensors_are_exactly_those_that_gradients_read(name):
    """Check every set of operands that require gradients. Each gradient must have the bits that it
    has if all operands require gradients."""
    call, shapes, always, of_states, kept, operands = CALLS[name]
    x = tensors(*shapes)
    w = tensors(*(v.shape for v in call(*x)), seed=5)
    leaves = [v.clone().requires_grad_() for v in x]
    want = torch.autograd.grad(call(*leaves), leaves, w)
    for moved in subsets(len(x)):
        mine = [v.clone().requires_grad_(i in moved) for i, v in enumerate(x)]
        results, found = saved(call, mine)
        positions = {v.data_ptr(): i for i, v in enumerate(mine)}
        others = [v for v in found if v.data_ptr() not in positions and v.dtype != torch.bool]
        reads = bool(of_states & set(moved))
        expected = (always | (operands if reads else set())) if moved else set()
        assert {positions[v.data_ptr()] for v in found if v.data_ptr() in positions} == expected, (
            moved
        )
        if not reads:
            assert not others, moved
        elif kept == OUTPUT:
            assert [v.data_ptr() for v in others] == [results[0].data_ptr()], moved
        else:
            assert [v.numel() for v in others] == [kept], moved
        if moved:
            got = torch.autograd.grad(results, [mine[i] for i in moved], w)
            assert all(torch.equal(g, want[i]) for i, g in zip(moved, got)), moved


@pytest.mark.parametrize("name", CALLS)
def test_outputs_may_change_in_place_unless_a_gradient_reads_them(name):
    call, shapes, _, of_states, kept, _ = CALLS[name]
    x = tensors(*shapes)
    w = tensors(*(v.shape for v in call(*x)), seed=5)
    for i in range(len(x)):
        mine = [v.clone().requires_grad_(i == k) for k, v in enumerate(x)]
        want = torch.autograd.grad(call(*mine), mine[i], (2 * w[0], w[1]))
        out, final = call(*mine)
        out.mul_(2)
        if i in of_states and kept == OUTPUT:
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                torch.autograd.grad((out, final), mine[i], w)
        else:
            assert torch.equal(*want, *torch.autograd.grad((out, final), mine[i], w))


def test_constant_gate_saves_no_states():
    (x,) = tensors(ALL)
    leaf = x.clone().requires_grad_()

    def chained(x):
        for _ in range(8):
            x = scans.linear_scan(0.9, x)
        return x

    _, found = saved(chained, (leaf,))
    assert [v.numel() for v in found] == [1] * 8
    scans.linear_scan(0.9, leaf).mul_(2).sum().backward()
    other = x.clone().requires_grad_()
    scans.linear_scan(0.9, other).mul(2).sum().backward()
    assert torch.equal(leaf.grad, other.grad)
    out = scans.linear_scan(0.9, leaf)
    function, alive = out.grad_fn, weakref.ref(out)
    del out
    gc.collect()
    assert function is not None and alive() is None


@pytest.mark.parametrize("moved", list(subsets(3)))
def test_second_derivatives_have_equal_bits_for_every_set_of_operands(moved):
    """For every set of operands that require gradients, differentiate the gradients of each subset.
    The bits must be those of second derivatives when all operands require gradients."""
    x = tensors(ALL, ALL, EDGE)
    w = tensors(ALL, EDGE, seed=5)

    def second(of, mine, cotangents):
        first = torch.autograd.grad(linear(*mine), of, cotangents, create_graph=True)
        if not any(g.requires_grad for g in first):  # constant in all leaves that require gradients
            return [None] * 5
        every = [v for v in (*mine, *cotangents) if v.requires_grad]
        total = sum(g.square().sum() for g in first)
        out = iter(torch.autograd.grad(total, every, allow_unused=True))
        return [next(out) if v.requires_grad else None for v in (*mine, *cotangents)]

    for of in subsets(3):
        if not of or not set(of) <= set(moved):
            continue
        for with_cotangents in (False, True):
            leaves = [v.clone().requires_grad_() for v in x]
            w_all = [v.clone().requires_grad_() for v in w]
            want = second([leaves[i] for i in of], leaves, w_all)
            mine = [v.clone().requires_grad_(i in moved) for i, v in enumerate(x)]
            pulled = [v.clone().requires_grad_(with_cotangents) for v in w]
            got = second([mine[i] for i in of], mine, pulled)
            for i in (*moved, *((3, 4) if with_cotangents else ())):
                zero = want[i] is None or not want[i].any()
                assert zero if got[i] is None else torch.equal(got[i], want[i]), (of, i)


def test_double_backward_of_input_gradients_saves_no_states():
    gate, input = tensors(ALL, ALL)
    input.requires_grad_()
    out = scans.linear_scan(gate, input, resets=RESETS)
    w = torch.ones_like(out, requires_grad=True)
    _, found = saved(lambda w: torch.autograd.grad(out, input, w, create_graph=True), (w,))
    assert [v.data_ptr() for v in found if v.dtype != torch.bool] == [gate.data_ptr()]


@pytest.mark.parametrize("name", ["log_input", "f", "fo", "ifo, recompute"])
def test_gpu_gradients_that_read_no_states_have_equal_bits_without_them(name, torch_on_emulator):
    call, shapes, _, of_states, _, _ = CALLS[name]
    x = tensors(*shapes)
    w = tensors(*(v.shape for v in call(*x)), seed=5)
    leaves = [v.clone().requires_grad_() for v in x]
    want = torch.autograd.grad(call(*leaves), leaves, w)
    for i in set(range(len(x))) - of_states:
        mine = [v.clone().requires_grad_(i == k) for k, v in enumerate(x)]
        assert torch.equal(*torch.autograd.grad(call(*mine), mine[i], w), want[i])

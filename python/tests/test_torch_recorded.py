# SPDX-License-Identifier: BSD-3-Clause
"""Tests of programs that PyTorch records: values and derivatives equal those of eager calls.

torch.compile, torch.export, torch.jit.trace and make_fx record a call as a graph of operators.
"""

from __future__ import annotations

import pytest
from conftest import Random

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch import func
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx

import scanrec.torch as scans

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]

STEPS = 131  # above 128, so vjps that recompute states read a checkpoint
RESETS = torch.from_numpy(Random(1).booleans(2, STEPS, 1))


def tensors(*shapes, seed=3):
    """Return random float64 tensors, or complex128 where a shape ends with "complex"."""
    random = Random(seed)
    return tuple(
        torch.from_numpy(
            random(*shape[:-1], dtype=complex) if shape[-1:] == ("complex",) else random(*shape)
        )
        for shape in shapes
    )


def like(x, seed):
    """Return random tensors with the shapes and dtypes of x."""
    random = Random(seed)
    kinds = [str(v.dtype).removeprefix("torch.") for v in x]
    return tuple(torch.from_numpy(random(*v.shape, dtype=kind)) for v, kind in zip(x, kinds))


def squares(values):
    return sum((v * v.conj()).real.sum() for v in values)


def selective(u, delta, a, b, c, d, z, bias, first):
    a = torch.complex(-a.real.abs(), a.imag) if a.is_complex() else -a.abs()
    return scans.selective_scan(
        u, delta, a, b, c, d, z, bias, True, True, initial_state=first, resets=RESETS[..., 0]
    )


ALL = (2, STEPS, 3)
CHANNELS = (2, 3, STEPS)
#: (call that returns outputs and final state, shapes of its operands). The shape of a complex
#: operand ends with "complex".
CALLS = {
    "linear": (
        lambda a, u, x: scans.linear_scan(a, u, x, resets=RESETS, return_final=True),
        (ALL, ALL, (2, 3)),
    ),
    "linear, complex": (
        lambda a, u, x: scans.linear_scan(a, u, x, resets=RESETS, return_final=True),
        ((*ALL, "complex"), (*ALL, "complex"), (2, 3, "complex")),
    ),
    "linear, reverse": (
        lambda a, u: scans.linear_scan(a, u, reverse=True, return_final=True),
        ((3,), ALL),
    ),
    "logarithms": (
        lambda a, u, x: scans.linear_scan(
            a, u, x, log_gate=True, log_input=True, return_final=True
        ),
        ((STEPS, 1), ALL, (2, 3)),
    ),
    "f": (
        lambda z, f, x: scans.qrnn_pool([z, f], x, pool="f", return_final=True),
        (ALL, ALL, (2, 3)),
    ),
    "fo": (
        lambda pre, x: scans.qrnn_pool(pre, x, resets=RESETS, return_final=True),
        ((2, STEPS, 9), (3,)),
    ),
    "ifo": (
        lambda *x: scans.qrnn_pool(x, pool="ifo", memory="recompute", return_final=True),
        (ALL, ALL, ALL, (STEPS, 3)),
    ),
    "selective": (
        selective,
        (CHANNELS, CHANNELS, (3, 2), (2, 2, STEPS), (3, 2), (3,), CHANNELS, (3,), (2, 3, 2)),
    ),
    "selective, complex": (
        lambda u, delta, a, b, c, x: selective(u, delta, a, b, c, None, None, None, x),
        (
            *(CHANNELS, CHANNELS, (3, 2, "complex"), (2, 2, STEPS, "complex")),
            *((3, 2, "complex"), (2, 3, 2, "complex")),
        ),
    ),
}


class Model(torch.nn.Module):
    """A call between multiplications by 2, which do not round."""

    def __init__(self, call):
        super().__init__()
        self.call = call

    def forward(self, *x):
        out, final = self.call(*(2 * v for v in x))
        return 2 * out, 2 * final


def leaves(x):
    return tuple(v.clone().requires_grad_() for v in x)


RECORDERS = {
    "export": lambda m, x: torch.export.export(m, x).module(),
    "export of leaves": lambda m, x: torch.export.export(m, leaves(x)).module(),
    "make_fx": lambda m, x: make_fx(m)(*x),
    "make_fx of leaves": lambda m, x: make_fx(m)(*leaves(x)),
    "make_fx before dispatch": lambda m, x: make_fx(m, pre_dispatch=True)(*x),
    "jit.trace": lambda m, x: torch.jit.trace(m, x),
    "jit.trace of leaves": lambda m, x: torch.jit.trace(m, leaves(x)),
}
COMPILERS = {
    backend: lambda m, x, backend=backend: torch.compile(m, fullgraph=True, backend=backend)
    for backend in ("aot_eager", "inductor")
}


def problem(name):
    call, shapes = CALLS[name]
    x = tensors(*shapes)
    return Model(call), x, like(call(*x), 5)


def backward(program, x, cotangents, **more):
    return torch.autograd.grad(program(*x), x, cotangents, **more)


def equal(got, want):
    for a, b in zip(got, want, strict=True):
        assert torch.equal(a, b)


def close(got, want):
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "name, recorder",
    [
        (name, recorder)
        for name in CALLS
        for recorder in (*RECORDERS, *COMPILERS)
        # Inductor calls the same operators as "aot_eager" and generates only the code around them.
        if recorder != "inductor" or name in ("linear", "fo", "ifo", "selective")
    ],
)
def test_gradients_of_recorded_programs_have_the_bits_of_eager(name, recorder):
    model, x, w = problem(name)
    torch.compiler.reset()
    program = (RECORDERS | COMPILERS)[recorder](model, x)
    moved = leaves(x)
    equal(program(*moved), model(*moved))
    equal(backward(program, moved, w), backward(model, moved, w))
    # Differentiate for each operand alone. Compilers would need a program for each operand.
    for i in range(len(x)) if recorder in RECORDERS else ():
        mine = [v if k == i else v.detach() for k, v in enumerate(moved)]
        got, want = (torch.autograd.grad(f(*mine), moved[i], w) for f in (program, model))
        equal(got, want)
    with torch.no_grad():
        assert not program(*moved)[0].requires_grad
    with torch.inference_mode():
        equal(program(*x), model(*x))


@pytest.mark.parametrize("recorder", RECORDERS)
@pytest.mark.parametrize("name", CALLS)
def test_second_derivatives_of_recorded_programs_have_the_bits_of_eager(name, recorder):
    model, x, w = problem(name)
    program = RECORDERS[recorder](model, x)
    found = []
    for f in (program, model):
        moved = leaves(x)
        first = backward(f, moved, w, create_graph=True)
        found.append(torch.autograd.grad(squares(first), moved))
    equal(*found)


def tangent(f, x, moved):
    with forward_ad.dual_level():
        out = f(*map(forward_ad.make_dual, x, moved))
        return [forward_ad.unpack_dual(y).tangent for y in out]


@pytest.mark.parametrize("recorder", ["export", "make_fx", "jit.trace"])
@pytest.mark.parametrize("name", CALLS)
def test_forward_mode_torch_func_and_vmap_of_recorded_programs_equal_eager(name, recorder):
    model, x, w = problem(name)
    program, moved = RECORDERS[recorder](model, x), like(x, 7)
    close(tangent(program, x, moved), tangent(model, x, moved))
    every = tuple(range(len(x)))

    def loss(f):
        return lambda *x: squares(f(*x))

    for of in (
        lambda f: func.grad(loss(f), every)(*x),
        lambda f: func.jvp(f, x, moved)[1],
        lambda f: func.jvp(func.grad(loss(f), every), x, moved)[1],
        lambda f: func.vjp(func.grad(loss(f), every), *x)[1](moved),
        lambda f: func.vmap(func.grad(loss(f), every))(*(torch.stack([v, -v]) for v in x)),
    ):
        close(of(program), of(model))


@pytest.mark.parametrize("name", CALLS)
def test_derivatives_of_recorded_vjps_and_jvps_equal_eager(name):
    """These programs contain a vjp or a jvp as an operator."""
    model, x, w = problem(name)
    moved = like(x, 7)
    vjp = lambda *x: func.vjp(model, *x)[1](w)
    push = lambda *x: func.jvp(model, x, moved)[1]
    for f in (vjp, push):
        program, at = make_fx(f)(*x), leaves(x)
        found = [torch.autograd.grad(squares(of(*at)), at) for of in (program, f)]
        close(*found)
        close(func.jvp(program, x, moved)[1], func.jvp(f, x, moved)[1])


@pytest.mark.parametrize("name", ["linear", "selective", "fo"])
def test_nested_forward_mode_of_recorded_gradients_equals_eager_or_raises(name):
    """Nestings of two forward modes, for which PyTorch gives wrong values, raise an error."""
    model, x, w = problem(name)
    every = tuple(range(len(x)))
    program = make_fx(lambda *x: func.vjp(model, *x)[1](w))(*x)
    called = lambda *x: func.vjp(model, *x)[1](w)
    moved = like(x, 7)
    push = lambda f: lambda *x: func.jvp(f, x, moved)[1]
    vjp = lambda f: lambda *x: func.grad(lambda *x: sum(y.sum() for y in f(*x)), every)(*x)
    for of in (lambda f: push(vjp(f)), lambda f: vjp(push(f)), lambda f: vjp(vjp(f))):
        close(of(program)(*x), of(called)(*x))
    for of in (lambda f: push(push(f)), lambda f: push(vjp(push(f)))):
        with pytest.raises(NotImplementedError, match="levels of forward mode"):
            of(program)(*x)


def test_recorded_training_has_gradients_of_weights_before_the_scan():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.before, self.after = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)

        def forward(self, u):
            h = self.before(u)
            return self.after(h + scans.linear_scan(torch.sigmoid(h), h))

    net, (u,) = Net().double(), tensors((2, 9, 3))
    want = torch.autograd.grad(net(u).square().sum(), list(net.parameters()))
    for program in (torch.export.export(net, (u,)).module(), torch.jit.trace(net, u)):
        named = dict(program.named_parameters())
        found = torch.autograd.grad(
            program(u).square().sum(), [named[name] for name, _ in net.named_parameters()]
        )
        equal(found, want)


def step(state, x):
    ones = torch.ones
    return scans.selective_state_update(state, x, x, -ones(4, 8), ones(2, 8), ones(2, 8))


@pytest.mark.parametrize("recorder", ["make_fx", "jit.trace"])
def test_recorded_steps_reject_derivatives_and_batching(recorder):
    """The step updates its state in place, so derivatives would be lost silently."""
    state, x = torch.zeros(2, 4, 8), torch.ones(2, 4)
    program = RECORDERS[recorder](step, (state, x))
    want = state.clone()
    assert torch.equal(program(state, x), step(want, x)) and torch.equal(state, want)
    moved = x.clone().requires_grad_()
    # TorchScript raises a RuntimeError that contains the message of the NotImplementedError.
    with pytest.raises((NotImplementedError, RuntimeError), match="'x': expected no gradients"):
        program(state, moved)
    with pytest.raises((NotImplementedError, RuntimeError), match="no gradients, forward mode"):
        func.vmap(lambda x: program(state, x))(torch.ones(3, 2, 4))
    with torch.no_grad():
        step(want, x), program(state, moved)
    assert torch.equal(state, want)


@pytest.mark.parametrize(
    "call, shape, other, words",
    [
        (lambda x: scans.linear_scan(0.9, x), (2, 5, 3), (2, 4, 3), "linear_scan: .* 'input'"),
        (lambda x: scans.linear_scan(ONES, x), (2, 5, 3), (2, 9, 3), "linear_scan: .* 'input'"),
        (lambda x: scans.linear_scan(ONES, x, log_gate=True), (2, 5, 3), (2, 4, 3), "'input'"),
        (lambda x: of_ones(delta=x), (2, 3, 5), (2, 3, 4), "selective_scan: argument 'delta'"),
        (lambda x: of_ones(B=x), (2, 4, 5), (2, 4, 4), "selective_scan: argument 'B'"),
        (lambda x: of_ones(D=x), (3,), (2,), "selective_scan: argument 'D'"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("inference", [False, True])
def test_recorded_programs_reject_other_shapes(call, shape, other, words, inference):
    """Without the check, kernels would read past the end of a tensor."""
    program = make_fx(call)(torch.ones(shape))
    with torch.inference_mode(inference):
        program(torch.ones(shape))
        with pytest.raises(ValueError, match=words):
            program(torch.ones(other))


def test_operators_reject_mismatched_shapes():
    """Check every operand along every axis."""
    ops, ones = torch.ops.scanrec, torch.ones
    boundary, reset_mask = ones(2, 1, 3), ones(1, 6, 1) > 0
    problem, rest = ([2, 5, 3], 1, False), ([2, 5, 3], [2, 5, 3], [2, 1, 3])
    gated, pre = (*problem, -1, 0.0, False), (ONES, ONES, ONES, ONES)
    good = {
        ops._linear_scan: (ONES, ONES, boundary, reset_mask, *problem, 0),
        ops._linear_scan_jvp: (ONES, boundary, reset_mask, ONES, ONES, ONES, boundary, *problem),
        ops._linear_scan_vjp: (
            ONES,
            ONES,
            boundary,
            reset_mask,
            ONES,
            ONES,
            boundary,
            *problem,
            3,
            *rest,
        ),
        ops._gated_scan: (*pre, boundary, reset_mask, ONES > 0, *gated, False),
        ops._gated_scan_vjp: (
            *(*pre, boundary, reset_mask, ONES > 0, ONES, None, ONES, boundary, *gated),
            [True] * 5,
        ),
    }
    for op, operands in good.items():
        op(*operands)
        for i, x in enumerate(operands):
            if isinstance(x, torch.Tensor):
                for axis in range(3):
                    wrong = x.repeat_interleave(4, axis)[:, : 7 if axis == 1 else None]
                    with pytest.raises(ValueError, match="expected a shape that broadcasts to"):
                        op(*operands[:i], wrong, *operands[i + 1 :])


ONES = torch.ones(2, 5, 3)


def of_ones(**x):
    ones = torch.ones
    return scans.selective_scan(
        **{"u": ones(2, 3, 5), "delta": ones(2, 3, 5), "A": -ones(3, 4), "B": ones(2, 4, 5),
           "C": ones(2, 4, 5)} | x,
    )  # fmt: skip


#: (call, function from a length to operand shapes). Layers in test_torch_nn.py cover s5 and lru.
OF_A_LENGTH = {
    "linear_scan": (
        lambda *x: scans.linear_scan(*x, return_final=True),
        lambda n: ((2, n, 3), (2, n, 3), (2, 3)),
    ),
    "linear_scan, complex": (
        lambda *x: scans.linear_scan(*x, return_final=True),
        lambda n: ((2, n, 3, "complex"), (2, n, 3, "complex"), (2, 3, "complex")),
    ),
    "qrnn_pool": (
        lambda *x: scans.qrnn_pool(*x, return_final=True),
        lambda n: ((2, n, 9), (3,)),
    ),
    "selective_scan": (
        lambda *x: scans.selective_scan(*x[:-1], True, True, initial_state=x[-1]),
        lambda n: (
            *((2, 3, n), (2, 3, n), (3, 2), (2, 2, n), (3, 2)),
            *((3,), (2, 3, n), (3,), (2, 3, 2)),
        ),
    ),
}


@pytest.mark.parametrize("name", OF_A_LENGTH)
def test_default_backend_compiles_a_call_once_for_ten_lengths(name):
    """Check outputs and gradients against the eager call."""
    call, shapes = OF_A_LENGTH[name]
    torch.compiler.reset()
    compiled = torch.compile(call, fullgraph=True)
    for steps in range(20, 120, 10):
        x = tensors(*shapes(steps), seed=steps)
        if name == "selective_scan":
            x[2].abs_().neg_()  # gates below 1
        x = leaves(x)
        for v in x if steps == 20 else ():
            for axis in (i for i, n in enumerate(v.shape) if n == steps):
                torch._dynamo.mark_dynamic(v, axis)
        with torch.compiler.set_stance("default" if steps == 20 else "fail_on_recompile"):
            got, want = compiled(*x), call(*x)
            close(got, want)
            w = like(want, 5)
            close(*(torch.autograd.grad(y, x, w) for y in (got, want)))


def test_default_backend_compiles_a_step_once_for_ten_batch_sizes():
    """The step updates its state in place and has no gradients."""
    call = scans.selective_state_update
    torch.compiler.reset()
    compiled = torch.compile(call, fullgraph=True)
    for batch in range(20, 120, 10):
        first, *x = tensors(
            *((batch, 3, 2), (batch, 3), (batch, 3), (3, 2), (batch, 2), (batch, 2)),
            *((3,), (batch, 3), (3,)),
            seed=batch,
        )
        state, other = first.clone(), first.clone()
        for v in (state, *x) if batch == 20 else ():
            if v.shape[0] == batch:
                torch._dynamo.mark_dynamic(v, 0)
        with torch.compiler.set_stance("default" if batch == 20 else "fail_on_recompile"):
            got = compiled(state, *x, True)
        close((got, state), (call(other, *x, True), other))
        assert not torch.equal(state, first)

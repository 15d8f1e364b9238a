# SPDX-License-Identifier: BSD-3-Clause
"""Tests of scanrec.torch.qrnn_pool, s5 and lru: values, derivatives, training and errors."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from conftest import Random, pooled

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch import func
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.utils._pytree import tree_leaves, tree_map

from scanrec.torch import linear_scan, lru, qrnn_pool, s5

POOLS = {"f": 2, "fo": 3, "ifo": 4}
warnings.filterwarnings("ignore", category=FutureWarning)


def tensor(random, *shape, dtype="float64", scale=1.0):
    return torch.from_numpy(random(*shape, dtype=dtype, scale=scale))


def same(got, want, **tolerance):
    got, want = tree_leaves(got), tree_leaves(want)
    assert len(got) == len(want)
    for x, y in zip(got, want):
        torch.testing.assert_close(x, y, **{"rtol": 1e-9, "atol": 1e-9, **tolerance})


def composed(
    pre,
    first=None,
    *,
    pool="fo",
    reverse=False,
    resets=None,
    zoneout=None,
    forget_bias=0,
    memory=None,
):
    """Compute QRNN pooling with PyTorch operations and linear_scan."""
    if isinstance(pre, torch.Tensor):
        pre = pre.chunk(POOLS[pool], -1)
    z, f, *others = pre
    gate = torch.sigmoid(f + forget_bias).expand(z.shape)
    input = (torch.sigmoid(others[1]) if len(others) > 1 else 1 - gate) * torch.tanh(z)
    if zoneout is not None:
        gate = torch.where(zoneout, torch.ones_like(gate), gate)
        input = torch.where(zoneout, torch.zeros_like(input), input)
    state, final = linear_scan(
        gate, input, first, reverse=reverse, resets=resets, return_final=True
    )
    return (torch.sigmoid(others[0]) if others else 1) * state, final


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("pool", POOLS)
def test_every_dtype_equals_the_reference(random, pool, dtype):
    of = getattr(torch, dtype)
    pre = tensor(random, 2, 33, 5 * POOLS[pool], scale=2.0).to(of)
    output, final = qrnn_pool(pre, pool=pool, return_final=True)
    want, _, last = pooled(np.split(pre.double().numpy(), POOLS[pool], -1))
    assert output.dtype == of and final.dtype == (of if of.itemsize > 2 else torch.float32)
    rounding = {2: 2e-2, 4: 1e-6, 8: 1e-14}[of.itemsize]
    np.testing.assert_allclose(output.double(), want.astype(float), atol=rounding)
    np.testing.assert_allclose(final.double(), last.astype(float), atol=rounding)


def test_any_strides_give_equal_outputs(random):
    pre = tensor(random, 9, 12, 2)
    want = qrnn_pool(pre.permute(2, 0, 1).contiguous())
    same(qrnn_pool(pre.permute(2, 0, 1)), want, rtol=0, atol=0)
    same(qrnn_pool(pre.permute(2, 1, 0), axis=-1), want.mT, rtol=1e-14, atol=1e-14)


@pytest.fixture(params=[(p, k, r) for p in POOLS for k, r in (("packed", False), ("apart", True))])
def problem(request):
    """Return qrnn_pool and its composed form, as functions of (pre, first), a function that makes a
    loss of either, operands, and tangents."""
    pool, kind, reverse = request.param
    random = Random(3)
    parts = tuple(tensor(random, 2, 4, 2) for _ in range(POOLS[pool]))
    resets = torch.from_numpy(random.booleans(2, 4 + (pool != "f"), 1))
    resets[0, 2] = True
    options = {
        "pool": pool,
        "reverse": reverse,
        "resets": resets,
        "zoneout": torch.from_numpy(random.booleans(2, 4, 2)),
    }
    assert options["zoneout"].any()
    if kind == "apart":
        options |= {"forget_bias": 0.5, "memory": "recompute"}
    pre = torch.cat(parts, -1) if kind == "packed" else parts
    weights = tensor(random, 2, 4, 2), tensor(random, 2, 2)

    def loss_of(f):
        return lambda *x: sum((w * y.sin()).sum() for w, y in zip(weights, f(*x)))

    arrays = pre, tensor(random, 2, 2)
    moves = tree_map(lambda x: tensor(random, *x.shape), arrays)
    ours = lambda *x: qrnn_pool(*x, return_final=True, **options)
    return ours, lambda *x: composed(*x, **options), loss_of, arrays, moves


def test_torch_func_derivatives_equal_those_of_the_composed_form(problem):
    ours, theirs, loss_of, arrays, moves = problem

    def all_of(f):
        loss = loss_of(f)
        gradient = func.grad(loss, (0, 1))
        dot = lambda x, y: sum((a * b).sum() for a, b in zip(tree_leaves(x), tree_leaves(y)))
        return {
            "value": f(*arrays),
            "reverse": gradient(*arrays),
            "forward": func.jvp(f, arrays, moves)[1],
            "forward of reverse": func.jvp(gradient, arrays, moves)[1],
            "reverse of reverse": func.grad(lambda *x: dot(gradient(*x), moves), (0, 1))(*arrays),
            "reverse of forward": func.grad(lambda *x: func.jvp(loss, x, moves)[1], (0, 1))(
                *arrays
            ),
            "batch": func.vmap(gradient, (0, None))(
                tree_map(lambda *x: torch.stack(x), arrays[0], moves[0]), arrays[1]
            ),
            "batch of initial states": func.vmap(gradient, (None, 0))(
                arrays[0], torch.stack((arrays[1], moves[1]))
            ),
            "reverse per output": func.jacrev(lambda *x: f(*x)[0], (0, 1))(*arrays),
        }

    got, want = all_of(ours), all_of(theirs)
    for name in want:
        same(got[name], want[name])
        assert name == "value" or all(x.any() for x in tree_leaves(got[name])), name


def test_autograd_derivatives_equal_finite_differences(problem):
    ours, _, _, arrays, _ = problem
    leaves = [x.clone().requires_grad_() for x in tree_leaves(arrays)]

    def of_leaves(*x):
        return ours(x[0] if len(x) == 2 else x[:-1], x[-1])

    gradcheck(of_leaves, leaves, check_forward_ad=True, check_batched_grad=True)
    gradgradcheck(of_leaves, leaves, check_fwd_over_rev=True)


def test_forward_mode_that_starts_after_the_call_equals_the_composed_form(random):
    pre, cotangent, moves = (
        tensor(random, 2, 6, 9),
        tensor(random, 2, 6, 3),
        tensor(random, 2, 6, 3),
    )
    value = lambda f: lambda pre: f(pre, return_final=True)[0] if f is qrnn_pool else f(pre)[0]
    out = {}
    for f in (qrnn_pool, composed):
        _, vjp = func.vjp(value(f), pre)
        out[f] = [func.jvp(lambda c, vjp=vjp: vjp(c)[0], (cotangent,), (moves,))[1]]
        leaf = pre.clone().requires_grad_()
        with forward_ad.dual_level():
            weights = forward_ad.make_dual(cotangent, moves)
            (gradient,) = torch.autograd.grad((value(f)(leaf) * weights).sum(), leaf)
            out[f].append(forward_ad.unpack_dual(gradient).tangent)
    same(out[qrnn_pool], out[composed])
    assert all(x.any() for x in out[qrnn_pool])


def test_nan_in_zoned_out_steps_does_not_reach_derivatives(random):
    pre, zoneout = tensor(random, 2, 9, 12), torch.from_numpy(random.booleans(2, 9, 4))
    hidden = torch.where(
        torch.cat([zoneout, zoneout, torch.zeros_like(zoneout)], -1), torch.nan, pre
    )
    loss = lambda pre: (qrnn_pool(pre, zoneout=zoneout) ** 2).sum()
    for order in (loss, func.grad(loss), func.grad(lambda x: (func.grad(loss)(x) ** 2).sum())):
        same(order(hidden), order(pre))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_derivatives_equal_the_composed_form(random, backend):
    pre, moves = (tensor(random, 2, 9, 12, dtype="float32") for _ in range(2))
    loss = lambda f: lambda pre: f(pre * 1.5)[0].sin().sum()
    gradient = lambda f: func.grad(loss(f))
    forward = lambda f: lambda pre: func.jvp(loss(f), (pre,), (moves,))[1]
    ours = lambda pre: qrnn_pool(pre, return_final=True)
    for of in (loss, gradient, forward):
        compiled = torch.compile(of(ours), fullgraph=True, backend=backend)
        same(compiled(pre), of(composed)(pre), rtol=1e-4, atol=1e-5)
    trained, again = (pre.clone().requires_grad_() for _ in range(2))
    torch.compile(loss(ours), fullgraph=True, backend=backend)(trained).backward()
    loss(composed)(again).backward()
    same(trained.grad, again.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("memory", ["store", "recompute"])
def test_exported_and_compiled_programs_run_any_length(random, memory):
    class Pool(torch.nn.Module):
        def forward(self, pre):
            return qrnn_pool(pre, memory=memory, axis=0)

    sizes = ({0: torch.export.Dim("steps"), 1: torch.export.Dim("batch")},)
    inputs = lambda steps: tensor(random, steps, 2, 6).requires_grad_()
    for made in (2, 300):
        program = torch.export.export(Pool(), (inputs(made),), dynamic_shapes=sizes).module()
        for pre in map(inputs, (1, 2, 129, 300)):
            same(program(pre), Pool()(pre))
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    loss = lambda pre, bias: qrnn_pool(pre, memory=memory, axis=0, forget_bias=bias).sin().sum()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager", dynamic=True)
    for pre in map(inputs, (7, 2, 129, 300)):
        got, want = (torch.autograd.grad(f(pre, 1.5), pre) for f in (compiled, loss))
        same(got, want)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    assert compiled(pre, 0.25) == loss(pre, 0.25)


def test_operators_pass_opcheck():
    pre = (torch.randn(2, 5, 3, 4), None, None, None)
    ops = torch.ops.scanrec
    for recompute in (False, True):
        of = ([2, 5, 4], 1, False, 2, 0.5, recompute)
        torch.library.opcheck(ops._gated_scan.default, (*pre, None, None, None, *of, True))
        kept = ops._gated_scan(*pre, None, None, None, *of, True)[2:]
        kept = (None, kept[1]) if recompute else (kept[0], None)
        torch.library.opcheck(
            ops._gated_scan_vjp.default,
            (*pre, *[None] * 3, *kept, torch.randn(2, 5, 4), None, *of, [True, *[False] * 4]),
        )


@pytest.mark.parametrize("steps", [5, 200])
def test_operators_write_all_elements_they_return(steps):
    """Operators return at least 2 elements of checkpoints; here, kernels write at most one."""
    ops, x = torch.ops.scanrec, torch.ones(1, 1, 1, steps)
    torch.use_deterministic_algorithms(True)  # fills new memory with NaN
    try:
        of = ([1, 1, steps], 2, False, 0, 0.0, True)
        pool = ops._gated_scan(torch.ones(3, 1, 1, steps), *[None] * 6, *of, True)
        selective = (x[0], x[0], torch.ones(1, 1), x, x, *[None] * 6, False, False, True)
        for kept in (pool[3], ops._selective_scan(*selective)[2]):
            assert kept.shape == (2,) and kept.isfinite().all()
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("pool", POOLS)
def test_recompute_gives_equal_gradients_from_less_memory(random, pool):
    pre = tensor(random, 2, 300, 8 * POOLS[pool], dtype="float32").requires_grad_()
    found, sizes = [], []
    for memory in ("store", "recompute"):
        kept = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda x, k=kept: k.append(x) or x, lambda x: x
        ):
            out = qrnn_pool(pre, pool=pool, memory=memory)
        sizes.append(sum(x.numel() for x in kept) - pre.numel())
        found += torch.autograd.grad(out.sin().sum(), pre)
    assert torch.equal(*found)
    assert sizes == [2 * 300 * 8, 2 * 2 * 8]


# ---- state spaces --------------------------------------------------------------------------------


def system(random, states=4, inputs=3):
    lambda_ = torch.complex(-tensor(random, states).abs(), 3 * tensor(random, states))
    b, c = (tensor(random, *n, dtype="complex128") for n in ((states, inputs), (inputs, states)))
    return lambda_, b, c


def stepwise(u, gate, drive, c, twice, first):
    """Run the system one step at a time."""
    state, out = first, []
    for t in range(u.shape[1]):
        state = gate[t] * state + drive[:, t]
        out.append(twice * (state @ c.T).real)
    return torch.stack(out, 1), state


@pytest.mark.parametrize("method", ["zero_order_hold", "bilinear"])
@pytest.mark.parametrize("irregular", [False, True])
def test_s5_equals_the_loop(random, method, irregular):
    lambda_, b, c = system(random)
    u, d, log_step = tensor(random, 2, 11, 3), tensor(random, 3), tensor(random, 4) - 2
    first, times = tensor(random, 2, 4, dtype="complex128"), tensor(random, 11).abs()
    step = log_step.exp() * (times if irregular else torch.ones(11))[:, None]
    z = lambda_ * step
    if method == "bilinear":
        gate, scale = (1 + z / 2) / (1 - z / 2), step / (1 - z / 2)
    else:
        gate, scale = z.exp(), (z.exp() - 1) / lambda_
    want, final = stepwise(u, gate, scale * (u.to(b.dtype) @ b.T), c, 2, first)
    got = s5(u, lambda_, b, c, d, log_step, first, discretisation=method,
             intervals=times if irregular else None, return_final=True)  # fmt: skip
    same(got, (want + d * u, final))


def test_bidirectional_s5_is_the_sum_of_both_directions(random):
    lambda_, b, c = system(random)
    u, c2 = tensor(random, 2, 11, 3), torch.cat([c, 2 * c.conj()], 1)
    ahead = s5(u, lambda_, b, c, conjugate_symmetry=False)
    back = s5(u.flip(1), lambda_, b, c2[:, 4:], conjugate_symmetry=False).flip(1)
    same(s5(u, lambda_, b, c2, conjugate_symmetry=False), ahead + back)


def test_lru_equals_the_loop(random):
    _, b, c = system(random)
    u, nu, theta = tensor(random, 2, 11, 3), tensor(random, 4), tensor(random, 4)
    gate = torch.exp(torch.complex(-nu.exp(), theta.exp()))
    drive = (1 - gate.abs() ** 2).sqrt() * (u.to(b.dtype) @ b.T)
    first = torch.zeros(2, 4, dtype=b.dtype)
    want, _ = stepwise(u, gate.expand(11, 4), drive, c, 1, first)
    same(lru(u, nu, theta, b, c), want)
    compiled = torch.compile(lru, fullgraph=True, backend="aot_eager")
    same(compiled(u, nu, theta, b, c), want)


def test_lru_gates_of_0_and_1_have_finite_gradients():
    """Gates of 1 and 0 have input scales of 0 and 1. The gradients of their nu are 0, not NaN."""
    nu = torch.tensor([-110.0, 100.0, -math.inf, math.inf, -1.0], requires_grad=True)
    theta, b, c, u = (torch.ones(n, requires_grad=True) for n in (5, (5, 3), (2, 5), (1, 9, 3)))
    call = lambda nu, *others: lru(others[0], nu, others[1], *(x + 0j for x in others[2:]))
    inputs = (nu, u, theta, b, c)
    y = call(*inputs)
    got = torch.autograd.grad(y.square().sum(), inputs)
    assert y.isfinite().all() and all(x.isfinite().all() for x in got)
    assert got[0].ne(0).tolist() == [False] * 4 + [True]
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    same(torch.autograd.grad(compiled(*inputs).square().sum(), inputs), got, rtol=1e-5, atol=1e-6)
    alone = nu[4:], u, theta[4:], b[4:], c[:, 4:]
    want = torch.autograd.grad(call(*alone).square().sum(), (nu, u))
    only = torch.autograd.grad(call(*inputs[:4], c * (nu == -1)).square().sum(), (nu, u))
    same(only, want, rtol=1e-5, atol=1e-6)


def test_number_as_initial_state_equals_a_tensor(random):
    lambda_, b, c = system(random)
    u = tensor(random, 2, 11, 3)
    first = torch.full((), 0.1 + 0.3j, dtype=torch.complex128)
    same(s5(u, lambda_, b, c, initial_state=0.1 + 0.3j), s5(u, lambda_, b, c, initial_state=first))


@pytest.mark.parametrize("call", [s5, lru])
def test_reverse_state_spaces_equal_the_mirrored_sequence(random, call):
    """Check values and derivatives. A reset after the last step masks the initial state."""
    lambda_, b, c = system(random, 3, 2)
    diagonal = (lambda_,) if call is s5 else (tensor(random, 3), tensor(random, 3))
    u, first = tensor(random, 2, 4, 2), tensor(random, 2, 3, dtype="complex128")
    reset_mask = torch.tensor([[0, 0, 1, 0, 1], [1, 0, 0, 1, 0]], dtype=torch.bool)
    options = {"return_final": True}
    mirrored = {"resets": reset_mask.flip(1)[:, :4]}
    if call is s5:
        times = tensor(random, 4).abs() + 0.2
        options["intervals"], mirrored["intervals"] = times, times.flip(0)

    def ours(u, first, reset_mask=reset_mask):
        return call(
            u, *diagonal, b, c, initial_state=first, reverse=True, resets=reset_mask, **options
        )

    def theirs(u, first):
        kept = {**options, **mirrored}
        y, final = call(u.flip(1), *diagonal, b, c, initial_state=first, **kept)
        return y.flip(1), final

    same(ours(u, first), theirs(u, first))
    assert not ours(u, first)[1].allclose(ours(u, 2 * first, None)[1])
    same(
        ours(u, first, reset_mask[:, :4])[0][1], ours(u, first)[0][1]
    )  # sequence 1 has no reset after the last step
    leaves = [u.requires_grad_(), first.requires_grad_()]
    gradcheck(ours, leaves, check_forward_ad=True, check_batched_grad=True)
    gradgradcheck(ours, leaves, check_fwd_over_rev=True)
    loss = lambda f: lambda u, first: sum(y.abs().square().sum() for y in f(u, first))
    same(func.grad(loss(ours), (0, 1))(*leaves), func.grad(loss(theirs), (0, 1))(*leaves))
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
    same(compiled(u, first), theirs(u, first))
    many = func.vmap(ours)(torch.stack([u, 2 * u]), torch.stack([first, -first]))
    same([x[1] for x in many], theirs(2 * u, -first))

    class Reversed(torch.nn.Module):
        def forward(self, u):
            return call(u, *diagonal, b, c, reverse=True)

    sizes = ({0: torch.export.Dim("batch", min=2), 1: torch.export.Dim("steps", min=2)},)
    program = torch.export.export(Reversed(), (u.detach(),), dynamic_shapes=sizes).module()
    part = u.detach()[:, :3]
    same(program(part), call(part.flip(1), *diagonal, b, c).flip(1))


def test_state_space_derivatives_equal_finite_differences(random):
    lambda_, b, c = system(random, 3, 2)
    u, log_step = tensor(random, 2, 4, 2), tensor(random, 3) - 2
    times = tensor(random, 4).abs() + 0.2
    leaves = [x.requires_grad_() for x in (u, lambda_, b, c, log_step, times)]
    call = lambda u, lambda_, b, c, s, t: s5(u, lambda_, b, c, None, s, intervals=t)
    gradcheck(call, leaves, check_forward_ad=True)
    gradgradcheck(lambda u, lambda_: s5(u, lambda_, b.detach(), c.detach()), leaves[:2])
    rings = [tensor(random, 3).requires_grad_() for _ in range(2)]
    gradcheck(lambda *x: lru(u.detach(), *x, b.detach(), c.detach()), rings, check_forward_ad=True)


# ---- training ------------------------------------------------------------------------------------


def models(random):
    """Return models by name: (function of inputs and parameters, inputs, parameters)."""
    u, z = tensor(random, 2, 12, 3), tensor(random, 2, 12, 3, dtype="complex128")
    lambda_, b, c = system(random)
    nu, theta, log_step = tensor(random, 4) - 1, tensor(random, 4), tensor(random, 4) - 2
    d, first = tensor(random, 3), tensor(random, 2, 4, dtype="complex128")
    both = torch.cat([c, c.conj().resolve_conj() / 2], 1)
    return {
        "linear_scan": (lambda u, gate: linear_scan(gate, u), u, (tensor(random, 3) / 2,)),
        "linear_scan complex": (
            lambda z, gate, drive, first: linear_scan(gate, drive * z, first).real,
            z,
            (tensor(random, 3, dtype="complex128") / 2, z[0, 0].clone(), z[:, 1].clone()),
        ),
        "linear_scan conjugates": (
            lambda z, gate: linear_scan(gate, z.conj(), reverse=True).conj().abs(),
            z,
            (tensor(random, 2, 12, 3, dtype="complex128") / 2,),
        ),
        "qrnn_pool": (lambda u, w: qrnn_pool(u @ w, pool="ifo"), u, (tensor(random, 3, 12),)),
        "s5": (s5, u, (lambda_, b, c, d, log_step, first)),
        "s5 both ways": (
            lambda u, *of: s5(u, *of, conjugate_symmetry=False, discretisation="bilinear"),
            u,
            (lambda_, b, both),
        ),
        "lru": (lru, u, (nu, theta, b, c, d, first)),
        "lru both ways": (lru, u, (nu, theta, b, both)),
    }


OPTIMISERS = [("Adam", 0.01), ("AdamW", 0.01), ("SGD", 0.02)]


def trained(model, u, parameters, target, optimiser, rate, *, pairs=False):
    """Return the losses and the trained parameters. With `pairs`, complex parameters are stored as
    pairs of real numbers, which optimisers treat the same way."""
    keep = lambda x: torch.view_as_real(x) if pairs and x.is_complex() else x
    of = [torch.nn.Parameter(keep(x).clone()) for x in parameters]
    read = lambda p, x: torch.view_as_complex(p) if p.is_complex() != x.is_complex() else p
    steps = getattr(torch.optim, optimiser)(of, lr=rate)
    losses = []
    for _ in range(8):
        steps.zero_grad()
        loss = (model(u, *map(read, of, parameters)) - target).square().mean()
        loss.backward()
        steps.step()
        losses.append(loss.item())
    return losses, [keep(read(p, x).detach()) for p, x in zip(of, parameters)]


@pytest.mark.parametrize("name", list(models(Random())))
def test_optimisers_train_complex_parameters_like_real_pairs(name):
    """Check every optimiser with eager and compiled models."""
    model, u, parameters = models(Random(1))[name]
    target = model(u, *parameters) + 0.3 * tensor(Random(2), 2, 12, 3)
    backend = "inductor" if name == "linear_scan complex" else "aot_eager"
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    for optimiser, rate in OPTIMISERS:
        shake = [x * 1.2 for x in parameters]
        losses, want = trained(model, u, shake, target, optimiser, rate)
        assert losses[-1] < losses[0], (optimiser, losses)
        again, got = trained(compiled, u, shake, target, optimiser, rate)
        same((again, got), (losses, want), rtol=1e-7, atol=1e-9)
        again, got = trained(model, u, shake, target, optimiser, rate, pairs=True)
        want = [torch.view_as_real(x) if x.is_complex() else x for x in want]
        same((again, got), (losses, want), rtol=1e-7, atol=1e-9)


# ---- errors --------------------------------------------------------------------------------------

X, Z = torch.ones(2, 9, 6), torch.ones(4, 6, dtype=torch.complex64)


def misaligned():
    return torch.frombuffer(bytearray(4 * X.numel() + 1), dtype=torch.float32, offset=1).view_as(X)


@pytest.mark.parametrize(
    "error, words, call",
    [
        (ValueError, "'pool': expected one of 'f', 'fo', 'ifo', got 'fifo'", lambda: qrnn_pool(X, pool="fifo")),
        (ValueError, "'memory': expected one of 'store', 'recompute', got 'lean'", lambda: qrnn_pool(X, memory="lean")),
        (TypeError, "'forget_bias': expected a Python number", lambda: qrnn_pool(X, forget_bias=X)),
        (ValueError, "'pre': expected a multiple of 4 channels", lambda: qrnn_pool(X, pool="ifo")),
        (ValueError, "'pre': expected 3 tensors for pool 'fo', got 2", lambda: qrnn_pool((X, X))),
        (TypeError, "'candidate': expected a tensor", lambda: qrnn_pool((1.0, X), pool="f")),
        (TypeError, "'pre': expected a real type", lambda: qrnn_pool(X * 1j)),
        (ValueError, "qrnn_pool: argument 'pre': expected a pointer aligned to 4 bytes", lambda: qrnn_pool(misaligned())),
        (ValueError, "'candidate': expected a pointer aligned to 4 bytes", lambda: qrnn_pool([misaligned()] * 3)),
        (ValueError, "linear_scan: argument 'gate': expected a pointer aligned to 4 bytes", lambda: linear_scan(misaligned(), X, log_gate=True)),
        (ValueError, "'forget_gate': expected a number of float32, at most 3.4e+38, got 1e+300", lambda: qrnn_pool((X, 1e300), pool="f")),
        (ValueError, "s5: argument 'initial_state': expected a number of complex64", lambda: s5(X, Z[:, 0], Z, Z.T, initial_state=1e300)),
        (TypeError, "'zoneout': expected a tensor of booleans", lambda: qrnn_pool(X, zoneout=X)),
        (ValueError, "'c': expected shape (Q, 4), or (Q, 8)", lambda: s5(X, Z[:, 0], Z, Z)),
        (TypeError, "s5: argument 'c': expected an array, got None", lambda: s5(X, Z[:, 0], Z, None)),
        (TypeError, "lru: argument 'u': expected an array", lambda: lru(None, None, None, Z, Z.T)),
        (TypeError, "lru: argument 'nu': expected an array", lambda: lru(X, None, None, Z, Z.T)),
        (TypeError, "'lambda_': expected complex64", lambda: s5(X, X[0, :4, 0], Z, Z.T)),
        (TypeError, "'b': expected a tensor", lambda: lru(X, X[0, :4, 0], X[0, :4, 0], 3, Z.T)),
        (ValueError, "'reverse': expected False for a bidirectional system", lambda: s5(X, Z[:, 0], Z, torch.ones(6, 8) + 0j, reverse=True)),
        (TypeError, "'reverse': expected True or False", lambda: lru(X, X[0, :4, 0], X[0, :4, 0], Z, Z.T, reverse="yes")),
    ],
)  # fmt: skip
def test_invalid_input_raises(error, words, call):
    with pytest.raises(error) as raised:
        call()
    assert words in str(raised.value)

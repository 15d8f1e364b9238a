# SPDX-License-Identifier: BSD-3-Clause
"""Tests of scanrec.torch.linear_scan: values, derivatives, batching and compiled programs.

Every derivative test compares values, because PyTorch returns zeros instead of an error where a
derivative rule is missing.
"""

from __future__ import annotations

import sys
import warnings
import weakref

import numpy as np
import pytest
from conftest import SLOW_SUMS, Random, SlowDecay, check_slow_sum, loop, run_alone

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch import func
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.utils._pytree import tree_leaves

import scanrec
import scanrec.torch
from scanrec._op.linear import torch_plans as plans
from scanrec._torch import operators

linear_scan = scanrec.torch.linear_scan
DTYPES = ["float32", "float64", "complex64", "complex128", "float16", "bfloat16"]
warnings.filterwarnings("ignore", category=FutureWarning)


def by_loop(gate, input, initial_state=None, *, reverse=False, resets=None):
    """Compute states and final state with a loop of differentiable PyTorch operations."""
    boundary = (*input.shape[:-2], input.shape[-1])
    gate = gate.expand(input.shape)
    state = input.new_zeros(boundary) if initial_state is None else initial_state.expand(boundary)
    mask_steps = input.shape[-2] if resets is None else resets.shape[-2]
    reset = torch.zeros((), dtype=torch.bool) if resets is None else resets
    reset = reset.expand(*input.shape[:-2], mask_steps, input.shape[-1])
    steps = range(input.shape[-2])
    out = {}
    for t in reversed(steps) if reverse else steps:
        mark = t + 1 if reverse else t
        carried = gate[..., t, :] * state
        if mark < mask_steps:
            carried = torch.where(reset[..., mark, :], torch.zeros_like(carried), carried)
        state = out[t] = carried + input[..., t, :]
    return torch.stack([out[t] for t in steps], -2), state


def same(got, want, **tolerance):
    got, want = tree_leaves(got), tree_leaves(want)
    assert len(got) == len(want)
    for x, y in zip(got, want):
        assert x.shape == y.shape and x.dtype == y.dtype
        torch.testing.assert_close(x, y, **{"rtol": 1e-9, "atol": 1e-9, **tolerance})


def tensors(*shapes, dtype="float64", scale=0.8, seed=1):
    random = Random(seed)
    return tuple(torch.from_numpy(random(*s, dtype=dtype, scale=scale)) for s in shapes)


# ---- values --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_is_accurate_and_gradients_keep_it(dtype):
    of = getattr(torch, dtype)
    wide = "complex128" if of.is_complex else "float64"
    gate, input = (x.to(of) for x in tensors((2, 33, 5), (2, 33, 5), dtype=wide, scale=0.6))
    got, final = linear_scan(gate, input, return_final=True)
    assert got.dtype == of and final.dtype == (torch.float32 if of.itemsize == 2 else of)
    want, _ = loop(gate.to(getattr(torch, wide)).numpy(), input.to(getattr(torch, wide)).numpy())
    error = np.max(np.abs(got.to(getattr(torch, wide)).numpy() - want))
    assert error < 4 * torch.finfo(of).eps * np.max(np.abs(want))
    first = torch.zeros((2, 5), dtype=final.dtype)
    arrays = [x.requires_grad_() for x in (gate, input, first)]
    linear_scan(*arrays).abs().float().square().sum().backward()
    for x in arrays:
        assert x.grad.dtype == x.dtype and x.grad.shape == x.shape and bool((x.grad != 0).any())


def test_any_axis_gate_shape_and_strides_equal_the_loop():
    (input,) = tensors((3, 4, 20, 5))
    views = [input, input.transpose(1, 3).contiguous().transpose(1, 3), input.flip(2)[::2]]
    for x in views:
        for axis in range(4):
            for gate_shape in [(), (5,), (20, 1), (4, 1, 5), (1, 1, 20, 1)]:
                (gate,) = tensors(gate_shape)
                want, final = loop(gate.numpy(), x.numpy(), axis=axis)
                got, end = linear_scan(gate, x, axis=axis, return_final=True)
                same(got, torch.from_numpy(want.astype(np.float64)))
                same(end, torch.from_numpy(final.astype(np.float64)))
    expanded = input[:1, :1].expand(3, 4, 20, 5)
    same(linear_scan(0.5, expanded), linear_scan(0.5, expanded.contiguous()), rtol=0, atol=0)


def test_conjugate_views_give_the_conjugated_states():
    gate, input = tensors((2, 9, 3), (2, 9, 3), dtype="complex128")
    same(linear_scan(gate.conj(), input.conj()), linear_scan(gate, input).conj(), rtol=0, atol=0)
    assert input.conj().is_conj()


@pytest.mark.parametrize("shape", [(0, 5, 3), (2, 0, 3), (2, 1, 3)])
def test_zero_batch_zero_steps_and_one_step_equal_the_loop(shape):
    gate, input, first = (x.requires_grad_() for x in tensors((3,), shape, (shape[0], 3)))
    got = linear_scan(gate, input, first, return_final=True)
    want = loop(*(x.detach().numpy() for x in (gate, input, first)))
    same(got, [torch.from_numpy(x.astype(np.float64)) for x in want])
    sum(x.square().sum() for x in got).backward()
    assert all(x.grad is not None and torch.isfinite(x.grad).all() for x in (gate, input, first))


def test_one_thread_gives_equal_bits():
    gate, input = tensors((4, 3000, 64), (4, 3000, 64))
    want, threads = linear_scan(gate, input), torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        same(linear_scan(gate, input), want, rtol=0, atol=0)
    finally:
        torch.set_num_threads(threads)


# ---- cached plans --------------------------------------------------------------------------------


def calls_of(dtype):
    """Return operands and options of calls that read their tensors in place."""
    of = getattr(torch, dtype)
    wide = "complex128" if of.is_complex else "float64"
    gate, input, first = tensors((2, 9, 3), (2, 9, 3), (2, 3), dtype=wide)
    gate, input = gate.to(of), input.to(of)
    first = first.to(torch.float32 if of.itemsize == 2 else of)
    reset_mask = torch.from_numpy(Random(3).booleans(2, 10, 1))
    flipped = input.transpose(0, 2).contiguous().transpose(0, 2)
    return [
        ((gate, input), {}),
        ((gate[0, 0], input), {"reverse": True}),
        ((gate[:, :, :1], flipped, first), {"resets": reset_mask, "return_final": True}),
        ((gate[:, ::2], input[:, ::2], first[:1]), {"resets": reset_mask[:, :5]}),
        ((gate, input), {"axis": 0, "return_final": True}),
        ((gate[:, :0], input[:, :0], first), {"return_final": True}),
    ]


def is_planned(call, about):
    """Return whether the call finds a cached plan and skips the checks."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys.modules["scanrec._op.linear.torch"], "_aligned", None)
        try:
            linear_scan(*call, **about)
        except TypeError as error:
            assert "NoneType" in str(error)
            return False
    return True


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("inference", [False, True])
def test_second_call_with_the_same_layout_skips_checks(dtype, inference):
    with torch.inference_mode(inference):
        for call, about in calls_of(dtype):
            plans._plans.clear()
            assert not is_planned(call, about)
            want = tree_leaves(linear_scan(*call, **about))
            assert is_planned(call, about)
            for _ in range(2):
                got = tree_leaves(linear_scan(*call, **about))
                for x, y in zip(got, want, strict=True):
                    assert torch.equal(x, y) and x.dtype == y.dtype and x.is_contiguous()
                    assert x.is_inference() == inference and not x.requires_grad


def test_cached_plans_serve_one_layout_only():
    x, g = tensors((9, 3), (9, 3))
    gates = (g, g.T.contiguous().T, g[:, :1], g[0], g.to(torch.complex128), g.float(), 0.5)
    abouts = ({}, {"axis": 0}, {"axis": 1}, {"axis": -2, "reverse": True})
    calls, want = [(gate, about) for about in abouts for gate in gates], []
    for gate, about in calls:
        plans._plans.clear()
        whole = gate if isinstance(gate, float) else gate.contiguous().clone()
        want.append(linear_scan(whole, x, **about))
    plans._plans.clear()
    for _ in range(2):
        for (gate, about), exact in zip(calls, want):
            same(linear_scan(gate, x, **about), exact, rtol=1e-12, atol=1e-12)
        for wrong in (g[:4], g.int(), g.to("meta")):
            with pytest.raises((ValueError, TypeError), match="linear_scan: argument 'gate'"):
                linear_scan(wrong, x)
        with pytest.raises(TypeError, match="'axis': expected an integer"):
            linear_scan(g, x, axis=-2.0)
    linear_scan(g, x)
    assert is_planned((g, x), {})
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(threads + 1)
        assert not is_planned((g, x), {})
    finally:
        torch.set_num_threads(threads)


def test_modes_tracers_and_transforms_see_the_operator():
    """Cached plans bypass the dispatcher, so they must not run where the dispatcher has work."""
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Seen:
        def __init__(self):
            super().__init__()
            self.names = []

        def __torch_dispatch__(self, function, types, arguments=(), options=None):
            self.names.append(str(function))
            return function(*arguments, **(options or {}))

        __torch_function__ = __torch_dispatch__

    class Dispatched(Seen, TorchDispatchMode): ...

    class Called(Seen, TorchFunctionMode): ...

    class Tagged(torch.Tensor): ...

    gate, input = tensors((2, 9, 3), (2, 9, 3))
    want = linear_scan(gate, input)
    assert is_planned((gate, input), {})
    for mode in (Dispatched, Called):
        with mode() as seen:
            same(linear_scan(gate, input), want, rtol=0, atol=0)
        assert any("_linear_scan" in name for name in seen.names), mode
    with torch.profiler.profile() as profile:
        linear_scan(gate, input)
    assert any(event.name == "scanrec::_linear_scan" for event in profile.events())
    assert "_linear_scan" in make_fx(lambda *x: linear_scan(*x))(gate, input).code
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert type(linear_scan(gate, input)) is not torch.Tensor
    tagged = linear_scan(gate, input.as_subclass(Tagged))
    assert type(tagged) is Tagged and torch.equal(tagged.as_subclass(torch.Tensor), want)
    same(func.vmap(linear_scan)(gate, input), want, rtol=0, atol=0)
    same(func.jvp(lambda x: linear_scan(gate, x), (input,), (input,)), (want, want))
    with forward_ad.dual_level():
        dual = linear_scan(gate, forward_ad.make_dual(input, input))
        same(forward_ad.unpack_dual(dual).tangent, want)
    of_leaf = linear_scan(gate, input.clone().requires_grad_())
    assert of_leaf.grad_fn is not None
    with torch.no_grad():
        assert linear_scan(gate, input.clone().requires_grad_()).grad_fn is None
    for call, _ in calls_of("complex128")[:1]:
        linear_scan(*call)
        lazily = linear_scan(call[0].conj(), call[1].conj())
        same(lazily, linear_scan(call[0].conj().resolve_conj(), call[1].conj().resolve_conj()))


def test_plan_cache_is_bounded_and_keeps_no_tensors_alive():
    x = torch.ones(2000)
    gate = weakref.ref(last := x[:1999])
    for n in range(1, 2000):
        assert linear_scan(last[:n], x[:n], axis=0)[-1] == n
    linear_scan(last, last, axis=0)
    assert 0 < len(plans._plans) <= plans._plans.MOST
    del last
    assert gate() is None


# ---- derivatives ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize(
    "gate_shape, reverse, mask_steps",
    [
        ((2, 4, 2), False, 4), ((4, 1), True, 4), ((2,), True, 0),
        ((2, 4, 2), False, 5), ((2, 4, 2), True, 5), ((2,), True, 5),
    ],
)  # fmt: skip
def test_first_and_second_derivatives_equal_finite_differences(
    dtype, gate_shape, reverse, mask_steps
):
    """Check backward and forward mode, both batched, and each of them over backward. The run time
    grows with the cube of the number of elements."""
    arrays = tuple(x.requires_grad_() for x in tensors(gate_shape, (2, 4, 2), (2,), dtype=dtype))
    reset_mask = torch.from_numpy(Random(2).booleans(2, mask_steps, 1)) if mask_steps else None
    if mask_steps:
        reset_mask[0, 2] = True
        assert not reset_mask[:, :4].all()
    if mask_steps == 5:  # a reset after the last step
        reset_mask[0, 4] = True

    def f(*x):
        return linear_scan(*x, reverse=reverse, resets=reset_mask, return_final=True)

    same(f(*arrays), by_loop(*arrays, reverse=reverse, resets=reset_mask))
    batched = {"check_batched_grad": True}
    assert gradcheck(f, arrays, check_forward_ad=True, check_batched_forward_grad=True, **batched)
    assert gradgradcheck(f, arrays, check_fwd_over_rev=True, **batched)


@pytest.mark.parametrize("reverse", [False, True])
def test_gradients_through_chunks_equal_those_of_the_whole_sequence(reverse):
    """Each chunk starts from the final state of the previous one; some start with a reset."""
    arrays = tensors((2, 9, 3), (2, 9, 3), (2, 3))
    resets = torch.from_numpy(Random(2).booleans(2, 9, 3))
    resets[0, [1, 4, 5]] = True
    chunks = [(0, 1), (1, 4), (4, 5), (5, 9)][:: -1 if reverse else 1]

    def loss(chunks):
        def of(gate, input, state):
            total = 0
            for a, b in chunks:
                here, state = linear_scan(
                    gate[:, a:b], input[:, a:b], state, reverse=reverse,
                    resets=resets[:, a : b + 1], return_final=True,
                )  # fmt: skip
                total = total + (here**3).sum()
            return total + (state**3).sum()

        return of

    for transform in (func.grad_and_value, func.hessian):
        same(transform(loss(chunks), ALL)(*arrays), transform(loss([(0, 9)]), ALL)(*arrays))


def loss(f):
    return lambda *x: sum((y**3).sum() for y in f(*x))


def ours(*x):
    return linear_scan(*x, return_final=True)


ALL = (0, 1, 2)
TRANSFORMS = {
    "grad": lambda f: func.grad(f, ALL),
    "jacfwd": lambda f: func.jacfwd(f, ALL),
    "fwd of rev": lambda f: func.hessian(f, ALL),
    "rev of rev": lambda f: func.jacrev(func.jacrev(f, ALL), ALL),
    "fwd of fwd": lambda f: func.jacfwd(func.jacfwd(f, ALL), ALL),
    "rev of fwd": lambda f: func.jacrev(func.jacfwd(f, ALL), ALL),
    "fwd of rev of fwd": lambda f: func.jacfwd(func.jacrev(func.jacfwd(f))),
    "rev of fwd of fwd": lambda f: func.jacrev(func.jacfwd(func.jacfwd(f))),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_torch_func_transforms_equal_those_of_the_loop(name):
    arrays = tensors((5, 3), (5, 3), (3,))
    of = TRANSFORMS[name]
    same(of(loss(ours))(*arrays), of(loss(by_loop))(*arrays))


@pytest.mark.parametrize("gate_shape", [(5, 3), (3,)])
@pytest.mark.parametrize("name", ["grad", "fwd of rev", "rev of rev", "rev of fwd"])
def test_derivatives_of_log_arguments_equal_the_scan_of_exponentials(name, gate_shape):
    gate, input, first = tensors(gate_shape, (5, 3), (3,))
    arrays, of = (-gate.abs(), input, first), TRANSFORMS[name]
    logs = {"log_gate": True, "log_input": True, "return_final": True}
    got = loss(lambda *x: linear_scan(*x, **logs))
    want = loss(lambda a, u, x: linear_scan(a.exp(), u.exp(), x, return_final=True))
    same(of(got)(*arrays), of(want)(*arrays))
    leaves = [x.clone().requires_grad_() for x in arrays]
    torch.compile(got, fullgraph=True, backend="aot_eager")(*leaves).backward()
    same([x.grad for x in leaves], list(func.grad(want, ALL)(*arrays)))


@pytest.mark.parametrize("reverse", [False, True])
def test_log_gates_of_slow_decays_are_within_tolerance(reverse):
    slow = SlowDecay(reverse)
    gate, input, grad = (torch.from_numpy(x) for x in (slow.gate, slow.input, slow.grad))
    scan = lambda a, u: linear_scan(a, u, log_gate=True, reverse=reverse)
    gate.requires_grad_(), input.requires_grad_()
    state = scan(gate, input)
    state.backward(grad)
    assert slow.close(state.detach(), "state")
    assert slow.close(input.grad, "input_grad") and slow.close(gate.grad, "gate_grad")
    gate, input, ones = gate.detach(), input.detach(), torch.ones_like(gate)
    # Forward mode and second derivatives of log gates are composed of several operations.
    value, tangent = func.jvp(lambda a: scan(a, input), (gate,), (ones,))
    assert value.dtype == tangent.dtype == torch.float32
    assert slow.close(value, "state") and slow.close(tangent, "tangent")
    pulled = lambda a: func.vjp(lambda u: scan(a, u), input)[1](grad)[0]
    assert slow.close(func.jvp(pulled, (gate,), (0 * ones,))[0], "input_grad")


@pytest.mark.parametrize("reverse", [False, True])
def test_log_gates_of_slow_decays_are_within_tolerance_for_many_channels(reverse):
    slow = SlowDecay(reverse, steps=20_000)
    gate, input, grad = map(torch.from_numpy, slow.of_channels())
    gate.requires_grad_(), input.requires_grad_()
    state = linear_scan(gate, input, log_gate=True, reverse=reverse)
    state.backward(grad)
    assert slow.close(state.detach(), "state")
    assert slow.close(input.grad, "input_grad") and slow.close(gate.grad, "gate_grad")


@pytest.mark.parametrize("shape", SLOW_SUMS, ids=str)
def test_sums_of_equal_inputs_with_slow_decay_are_within_the_bound(shape):
    check_slow_sum(
        lambda *x: linear_scan(*map(torch.from_numpy, x[:2]), axis=x[2], log_gate=True), shape
    )


@pytest.mark.parametrize("reverse", [False, True])
def test_constant_log_gates_of_slow_decays_are_within_tolerance(reverse):
    """Gradients of input and initial state save no states. Double backward is checked too."""
    slow = SlowDecay(reverse)
    input, grad = (torch.from_numpy(x).requires_grad_() for x in (slow.input, slow.grad))
    gate, first = torch.tensor(-1e-4), torch.ones(1, requires_grad=True)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x) or x, lambda x: x):
        state = linear_scan(gate, input, first, log_gate=True, reverse=reverse)
    assert all(x.untyped_storage().nbytes() < input.nbytes for x in saved)
    of_input, of_first = torch.autograd.grad(state, (input, first), grad, create_graph=True)
    assert slow.close(of_input.detach(), "input_grad")
    assert slow.close(of_first.detach(), "initial_grad")
    # The gradient is linear in the cotangent; the vjp of this map is the forward scan.
    (again,) = torch.autograd.grad(of_input, grad, input.detach())
    assert slow.close(again, "state")


@pytest.mark.parametrize(
    "of",
    [
        lambda f: func.jacfwd(func.jacfwd(func.jacfwd(f))),
        lambda f: func.jacfwd(func.jacfwd(func.grad(f))),
        lambda f: func.jacfwd(func.grad(lambda *x: func.jacfwd(func.grad(f))(*x).sum())),
    ],
    ids=["fwd of fwd of fwd", "fwd of fwd of rev", "fwd of rev of fwd of rev"],
)
def test_nested_forward_mode_that_pytorch_gets_wrong_raises(of):
    """PyTorch computes wrong values for nested forward mode of functions with their own jvp."""
    with pytest.raises(NotImplementedError, match="levels of forward mode"):
        of(loss(ours))(*tensors((5, 3), (5, 3), (3,)))


@pytest.mark.parametrize("moved", ALL)
def test_forward_over_reverse_of_a_linear_loss_equals_the_loop(moved):
    """The cotangents are constant; only one operand has a tangent."""
    arrays = tensors((5, 3), (5, 3), (3,))

    def gradient(f):
        def of(x):
            mine = [x if i == moved else y for i, y in enumerate(arrays)]
            return func.grad(lambda *y: f(*y)[0].sum(), ALL)(*mine)

        return of

    got, want = (func.jvp(gradient(f), (arrays[moved],), (arrays[moved],)) for f in (ours, by_loop))
    same(list(got), list(want))


def test_result_dtype_follows_pytorch_promotion():
    x = torch.ones(4, 3, dtype=torch.bfloat16)
    assert linear_scan(0.5, x).dtype == torch.bfloat16
    assert linear_scan(torch.tensor(0.5), x).dtype == torch.bfloat16  # like a number
    assert linear_scan(torch.ones(3), x).dtype == torch.float32
    assert linear_scan(0.5, x, torch.ones(3)).dtype == torch.bfloat16
    assert linear_scan(0.5, x, torch.ones(3, dtype=torch.float64)).dtype == torch.float64
    assert linear_scan(0.5j, x.float()).dtype == torch.complex64
    assert (
        linear_scan(torch.tensor(0.5j, dtype=torch.complex128), x.float()).dtype == torch.complex64
    )


def test_dual_tensors_give_the_tangents_of_the_loop():
    arrays, moved = tensors((5, 3), (5, 3), (3,)), tensors((5, 3), (5, 3), (3,), seed=2)
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(x, t) for x, t in zip(arrays, moved)]
        got = [forward_ad.unpack_dual(y).tangent for y in ours(*duals)]
    same(got, list(func.jvp(by_loop, arrays, moved)[1]))


@pytest.mark.parametrize(
    "axes", [(0, None, None), (None, 0, None), (None, None, 0), (1, 0, None), (0, 2, 1)]
)
def test_vmap_over_any_operands_equals_the_loop(axes):
    """Check vmap alone, around derivatives, and inside them."""
    shapes = [
        s if a is None else tuple(np.insert(np.array(s), a, 4))
        for s, a in zip([(5, 3), (5, 3), (3,)], axes)
    ]
    arrays = tensors(*shapes)
    for of in (
        lambda f: func.vmap(f, axes),
        lambda f: func.vmap(func.grad(loss(f), ALL), axes),
        lambda f: func.grad(lambda *x: func.vmap(loss(f), axes)(*x).sum(), ALL),
        lambda f: func.vmap(func.hessian(loss(f)), axes),
    ):
        same(of(ours)(*arrays), of(by_loop)(*arrays))


def test_backward_computes_only_requested_gradients(monkeypatch):
    """Absent cotangents must not reach the vjp, either."""
    from scanrec import _native

    calls, prepared = [], _native.Prepared

    def recorded(name, strides, *more, **problem):
        calls.append((name, set(strides)))
        return prepared(name, strides, *more, **problem)

    monkeypatch.setattr(_native, "Prepared", recorded)
    operators._plans.clear()
    gate, input = tensors((3,), (2, 9, 3))
    final = linear_scan(gate.requires_grad_(), input, return_final=True)[1]
    final.sum().backward()
    assert calls[1] == ("linear_scan_vjp", {"gate", "state", "final_grad", "gate_grad"})
    assert gate.grad.shape == (3,)


def test_plans_distinguish_two_roles_of_one_tensor():
    """A later call with the same layouts may pass a different tensor for each role."""
    x, y, t, s = tensors((5, 3), (5, 3), (5, 3), (5, 3))
    states = lambda *operands: by_loop(*operands)[0]
    for gate, input in ((x, x), (x, y)):
        for tangents in ((t, t), (t, s)):
            want = func.jvp(states, (gate, input), tangents)
            same(func.jvp(linear_scan, (gate, input), tangents), want)
        leaves = [v.clone().requires_grad_() for v in (gate, input)]
        leaves = leaves[:1] * 2 if gate is input else leaves
        grads = [torch.autograd.grad(f(*leaves).sin().sum(), leaves) for f in (linear_scan, states)]
        same(*grads)


def test_checkpoint_keeps_gradients_and_autocast_keeps_float32():
    gate, input = (x.requires_grad_() for x in tensors((5, 3), (5, 3)))
    want = torch.autograd.grad(loss(ours)(gate, input), (gate, input))
    again = torch.utils.checkpoint.checkpoint(loss(ours), gate, input, use_reentrant=False)
    same(torch.autograd.grad(again, (gate, input)), want, rtol=0, atol=0)
    with torch.autocast("cpu", torch.bfloat16):
        assert linear_scan(gate.float(), input.float()).dtype == torch.float32


# ---- programs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["_linear_scan", "_linear_scan_jvp", "_linear_scan_vjp"])
def test_operators_pass_opcheck(name):
    gate, x, y = tensors((2, 5, 3), (2, 5, 3), (2, 5, 3))
    problem = [2, 5, 3], 1, False
    reset_mask = torch.from_numpy(Random(2).booleans(2, 6, 1))
    shapes = [2, 5, 3], None, [2, 1, 3]
    inputs = {
        "_linear_scan": (gate, x, None, reset_mask, *problem, 0),
        "_linear_scan_jvp": (gate, None, None, x, gate, None, None, *problem),
        "_linear_scan_vjp": (gate, None, None, None, x, y, None, *problem, 0, *shapes),
    }
    torch.library.opcheck(getattr(torch.ops.scanrec, name).default, inputs[name])


PROGRAMS = {
    "value": ours,
    "grad": func.grad(loss(ours), ALL),
    "jvp": lambda *x: func.jvp(loss(ours), x, x),
    "vmap": func.vmap(ours, (None, None, 0)),
    "hessian": func.hessian(loss(ours)),
}


@pytest.mark.parametrize(
    "backend, names", [("aot_eager", list(PROGRAMS)), ("inductor", ["grad", "jvp"])]
)
def test_compiled_programs_equal_eager(backend, names):
    """Compile each program as one graph. Compiled forward mode can silently return zeros."""
    arrays = tensors((5, 3), (5, 3), (3,))
    for name in names:
        torch._dynamo.reset()
        inputs = (*arrays[:2], torch.stack([arrays[2]] * 2)) if name == "vmap" else arrays
        compiled = torch.compile(PROGRAMS[name], fullgraph=True, backend=backend)
        same(compiled(*inputs), PROGRAMS[name](*inputs))


def test_one_compiled_training_step_serves_any_length():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    step = torch.compile(loss(ours), fullgraph=True, backend="aot_eager", dynamic=True)
    for steps in (7, 12, 33):
        arrays = tuple(x.requires_grad_() for x in tensors((3,), (2, steps, 3)))
        same(
            torch.autograd.grad(step(*arrays), arrays),
            torch.autograd.grad(loss(ours)(*arrays), arrays),
        )
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_exported_program_runs_other_lengths():
    class Model(torch.nn.Module):
        def forward(self, gate, x):
            return linear_scan(gate, x)

    arrays = tensors((3,), (2, 9, 3))
    steps = torch.export.Dim("steps", min=2)
    program = torch.export.export(Model(), arrays, dynamic_shapes=({}, {1: steps}))
    longer = tensors((3,), (2, 20, 3))
    same(program.module()(*longer), linear_scan(*longer), rtol=0, atol=0)


def test_meta_tensors_have_the_result_shapes():
    state, final = linear_scan(
        torch.empty(3, device="meta"), torch.empty(2, 9, 3, device="meta"), return_final=True
    )
    assert state.shape == (2, 9, 3) and final.shape == (2, 3) and state.is_meta


class Filtered(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return linear_scan(0.5, torch.full((4, 2000, 64), float(i)))[:, -1]


def test_scans_work_in_data_loader_workers():
    run_alone("test_torch", "load_by_workers()")


def load_by_workers():
    Filtered()[1]  # starts the thread pool before the workers fork
    for batch in torch.utils.data.DataLoader(Filtered(), batch_size=2, num_workers=2, timeout=60):
        assert batch.shape == (2, 4, 64)


ONES = torch.ones((2, 9, 3))


@pytest.mark.parametrize(
    "error, words, call",
    [
        (ValueError, "'gate': expected a shape that broadcasts to (2, 9, 3), got (4,)",
         lambda: linear_scan(torch.ones(4), ONES)),
        (TypeError, "'input': expected a tensor, got ndarray",
         lambda: linear_scan(0.5, np.ones((3, 4)))),
        (TypeError, "'input': expected one of float32", lambda: linear_scan(0.5, ONES.int())),
        (TypeError, "'gate': expected a tensor or a number, got list",
         lambda: linear_scan([0.5], ONES)),
        (ValueError, "'axis': expected an axis", lambda: linear_scan(0.5, ONES, axis=3)),
        (ValueError, "'gate': expected a tensor on cpu, like 'input', got meta",
         lambda: linear_scan(torch.ones(3, device="meta"), ONES)),
        (ValueError, "'initial_state': expected a shape that broadcasts to (2, 3)",
         lambda: linear_scan(0.5, ONES, ONES)),
        (TypeError, "'resets': expected a tensor of booleans, got torch.float32",
         lambda: linear_scan(0.5, ONES, resets=ONES)),
        (ValueError, "'resets': expected", lambda: linear_scan(0.5, ONES, resets=ONES[0, 0] > 0)),
        (TypeError, "'input': expected a real type, got complex",
         lambda: linear_scan(0.5j, ONES, log_input=True)),
        (TypeError, "'reverse': expected True or False, got 2",
         lambda: linear_scan(0.5, ONES, reverse=2)),
        (TypeError, "'reverse': expected True or False, got Tensor",
         lambda: linear_scan(0.5, ONES, reverse=torch.tensor(True))),
        (ValueError, "'gate': expected a number of float32, at most 3.4e+38, got 1e+300",
         lambda: linear_scan(1e300, ONES)),
        (ValueError, "'initial_state': expected a number of complex64, at most 3.4e+38, got 1e+39j",
         lambda: linear_scan(0.5, ONES, 1e39j)),
        (ValueError, "'gate': expected a number of float16, at most 6.55e+04, got 1000000",
         lambda: linear_scan(10**6, ONES.half())),
        (ValueError, "'gate': expected a number of magnitude below 1.8e308, got an integer of 1329 bits",
         lambda: linear_scan(10**400, ONES)),
        (TypeError, "'gate': expected a tensor or a number, got NoneType",
         lambda: linear_scan(None, ONES)),
        (TypeError, "'gate': expected a dense tensor, got layout torch.sparse_coo",
         lambda: linear_scan(ONES.to_sparse(), ONES)),
        (TypeError, "'input': expected a dense tensor (concatenate sequences of several lengths",
         lambda: linear_scan(0.5, torch.nested.nested_tensor([ONES[0], ONES[1, :3]]))),
        (TypeError, "'input': expected an array of numbers (for traced or differentiated arrays call scanrec.torch",
         lambda: scanrec.linear_scan(0.5, ONES.clone().requires_grad_())),
    ],
)  # fmt: skip
def test_invalid_input_raises(error, words, call):
    with pytest.raises(error) as raised:
        call()
    assert words in str(raised.value)


def test_complex_gate_gradient_has_the_bits_of_numpy():
    gate, input = tensors((2, 9, 3), (2, 9, 3), dtype="complex128")
    state = linear_scan(gate.requires_grad_(), input)
    w = torch.ones_like(state)
    state.backward(w)
    want = scanrec.linear_scan_vjp(gate.detach().numpy(), state.detach().numpy(), w.numpy())
    assert np.array_equal(gate.grad.numpy(), want.gate)

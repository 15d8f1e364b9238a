# SPDX-License-Identifier: BSD-3-Clause
"""Tests of scanrec.torch.selective_scan and selective_state_update: mamba_ssm's grid of cases
against a loop, derivatives, compiled programs, single steps and invalid input."""

from __future__ import annotations

import itertools
import warnings

import pytest
from conftest import Random

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch import func
from torch.autograd import forward_ad, gradcheck, gradgradcheck

import scanrec.torch

selective_scan = scanrec.torch.selective_scan
state_update = scanrec.torch.selective_state_update
warnings.filterwarnings("ignore", category=FutureWarning)

NAMES = ("u", "delta", "A", "B", "C", "D", "z", "delta_bias", "intervals", "initial_state")


def of_channels(mixing, channels):
    """Return B or C as (batch or 1, D, N, L or 1)."""
    if mixing.dim() == 2:
        return mixing[None, :, :, None]
    if mixing.dim() == 3:
        mixing = mixing.unsqueeze(1)
    return mixing.repeat_interleave(channels // mixing.shape[1], 1)


def by_loop(
    u, delta, A, B, C, D=None, z=None, delta_bias=None, delta_softplus=False,
    *, initial_state=None, resets=None, intervals=None, reverse=False,
):  # fmt: skip
    """Compute outputs and last state step by step in float64. Complex time-varying B and C may be
    interleaved real and imaginary parts."""
    wide = lambda x: None if x is None else x.cdouble() if x.is_complex() else x.double()
    if A.is_complex():
        B, C = (
            m if m.is_complex() else torch.view_as_complex(m.double().unflatten(-1, (-1, 2)))
            for m in (B, C)
        )
    u, delta, A, B, C, D, z, bias = map(wide, (u, delta, A, B, C, D, z, delta_bias))
    batch, channels, steps = u.shape
    B, C = of_channels(B, channels), of_channels(C, channels)
    if bias is not None:
        delta = delta + bias[:, None]
    if delta_softplus:
        delta = torch.logaddexp(delta, torch.zeros_like(delta))
    if intervals is not None:
        delta = delta * intervals.double()[:, None]
    state = A.new_zeros(batch, channels, A.shape[1])
    if initial_state is not None:
        state = state + wide(initial_state)
    # unbind() avoids a full-length gradient for each slice.
    delta_u, delta, B, C = ((delta * u).unbind(-1), delta.unbind(-1), B.unbind(-1), C.unbind(-1))
    out = {}
    for t in reversed(range(steps)) if reverse else range(steps):
        mark = t + 1 if reverse else t
        if resets is not None and mark < resets.shape[-1]:
            reset = resets[:, None, mark] if resets.dim() == 2 else resets[:, :, mark]
            state = torch.where(reset[..., None], torch.zeros_like(state), state)
        b, c = (m[t] if len(m) == steps else m[0] for m in (B, C))
        state = torch.exp(delta[t].unsqueeze(-1) * A) * state + delta_u[t].unsqueeze(-1) * b
        out[t] = 2 * (state * c).sum(-1).real if A.is_complex() else (state * c).sum(-1)
    y = torch.stack([out[t] for t in range(steps)], -1) if steps else torch.zeros_like(u)
    if D is not None:
        y = y + D[:, None] * u
    if z is not None:
        y = y * z * torch.sigmoid(z)
    return y, state


def problem(
    *, batch=2, channels=4, states=8, steps=20, groups=0, constant=(), leave=("intervals",),
    itype="float64", wtype="float64", seed=0,
):  # fmt: skip
    """Return arguments by name, except those that `leave` names. B and C are time-invariant where
    `constant` names them. Otherwise they are time-varying, with an axis of groups unless `groups`
    is 0. Complex time-varying ones are interleaved real and imaginary parts."""
    random = Random(seed)
    parts = 2 if wtype.startswith("complex") else 1
    real = {"complex64": "float32", "complex128": "float64"}.get(wtype, wtype)
    make = lambda *shape, of=real, **more: torch.from_numpy(random(*shape, **more)).to(
        getattr(torch, of)
    )
    weight = lambda *shape: (
        torch.complex(make(*shape), make(*shape)) if parts == 2 else make(*shape)
    )
    mixing = lambda name: (
        weight(channels, states)
        if name in constant
        else make(*((batch, groups) if groups else (batch,)), states, parts * steps, of=itype)
    )
    a_values = -0.5 * (1.01 + make(channels, states))
    x = dict(
        u=make(batch, channels, steps, of=itype, scale=2.0),
        delta=make(batch, channels, steps, of=itype, scale=0.5),
        A=torch.complex(a_values, 2 * make(channels, states)) if parts == 2 else a_values,
        B=mixing("B"),
        C=mixing("C"),
        D=make(channels),
        z=make(batch, channels, steps, of=itype, scale=2.0),
        delta_bias=make(channels, scale=0.5),
        intervals=make(batch, steps).abs() + 0.2,
        initial_state=weight(batch, channels, states),
    )
    return {name: v for name, v in x.items() if name not in leave}


def close(got, want, rtol, atol):
    wide = lambda x: x.cdouble() if x.is_complex() else x.double()
    torch.testing.assert_close(wide(got), wide(want), rtol=rtol, atol=atol)


def gradients(call, x, cotangents):
    """Return the results of a call on clones of x, and the gradients of x for the cotangents."""
    x = {name: v.detach().clone().requires_grad_() for name, v in x.items()}
    out = call(**x)
    loss = sum((torch.view_as_real(a) if a.is_complex() else a.double()).mul(b).sum()
               for a, b in zip(out, cotangents))  # fmt: skip
    return out, dict(zip(x, torch.autograd.grad(loss, list(x.values()))))


# ---- values and gradients ------------------------------------------------------------------------

LENGTHS = (1, 64, 128, 256, 372, 512, 1024, 1134, 2048, 4096)
TOLERANCES = {"float32": (6e-4, 2e-3), "float16": (3e-3, 5e-3), "bfloat16": (3e-2, 5e-2)}


def grid():
    """Yield mamba_ssm's cases: every set of options at 128 steps in float32, every kind of B and C
    at 372 steps, every length and dtype with all optional arrays, and complex weights."""
    whole = dict(D=True, z=True, bias=True, softplus=True, last=True)
    for variable_B, variable_C, groups in itertools.product((True, False), (True, False), (1, 2)):
        if groups == 2 and not (variable_B or variable_C):
            continue
        yield dict(B=variable_B, C=variable_C, groups=groups, **whole, steps=372, itype="float32")
    for flags in itertools.product((True, False), repeat=5):
        yield dict(B=True, C=True, groups=1, **dict(zip(whole, flags)), steps=128, itype="float32")
    for steps, itype in itertools.product(LENGTHS, TOLERANCES):
        groups = 1 + (steps in (128, 1134))
        flags = {**whole, "last": steps % 256 == 0}
        yield dict(B=True, C=True, groups=groups, **flags, steps=steps, itype=itype)
    for variable_B, variable_C in itertools.product((True, False), repeat=2):
        for steps, itype in ((372, "float32"), (1134, "bfloat16")):
            yield dict(
                B=variable_B, C=variable_C, groups=1, **whole, steps=steps, itype=itype,
                wtype="complex64",
            )  # fmt: skip


def name_of(case):
    return "-".join(f"{name}{int(v) if isinstance(v, bool) else v}" for name, v in case.items())


@pytest.mark.parametrize("case", list(grid()), ids=name_of)
def test_values_and_gradients_equal_the_loop(case):
    constant = [name for name in ("B", "C") if not case[name]]
    leave = [
        name for name, flag in (("D", "D"), ("z", "z"), ("delta_bias", "bias")) if not case[flag]
    ] + ["initial_state", "intervals"]
    itype, wtype, steps = case["itype"], case.get("wtype", "float32"), case["steps"]
    x = problem(
        steps=steps, groups=case["groups"], constant=constant, leave=leave, itype=itype,
        wtype=wtype,
    )  # fmt: skip
    rtol, atol = TOLERANCES[itype]
    softplus = case["softplus"]
    if not softplus:  # the state would grow with negative step sizes
        x["delta"] = x["delta"].abs()
        if case["bias"]:
            x["delta_bias"] = x["delta_bias"].abs()
    random = Random(5)
    # Autograd rounds the cotangent of y to the dtype of u. Round it here too, for the loop.
    of_state = (8, 2) if wtype == "complex64" else (8,)
    w = [torch.from_numpy(random(2, 4, *n)) for n in ((steps,), of_state)]
    w[0] = w[0].to(getattr(torch, itype)).double()

    def ours(**x):
        out = selective_scan(**x, delta_softplus=softplus, return_last_state=case["last"])
        return out if case["last"] else (out,)

    def theirs(**x):
        return by_loop(**x, delta_softplus=softplus)[: 1 + case["last"]]

    got, grads = gradients(ours, x, w)
    want, wanted = gradients(theirs, x, w)
    assert got[0].dtype == x["u"].dtype and got[0].shape == x["u"].shape
    close(got[0], want[0], rtol, atol)
    if case["last"]:
        assert got[1].dtype == x["A"].dtype and got[1].shape == (2, 4, 8)
        close(got[1], want[1], rtol, atol)
    for name, g in grads.items():
        assert g.dtype == x[name].dtype and g.shape == x[name].shape
        weight = name in ("A", "D", "delta_bias") or name in constant
        close(g, wanted[name], max(rtol * 2, 1e-3), 1e-3 if weight else atol * 2)


KINDS = {
    "time-varying": {},
    "groups": {"groups": 2},
    "time-invariant": {"constant": ("B", "C")},
    "required arguments": {"leave": ("D", "z", "delta_bias", "intervals", "initial_state")},
    "intervals": {"leave": ()},
    "complex": {"wtype": "complex128", "leave": ()},
    "complex, time-invariant": {"wtype": "complex128", "constant": ("B", "C")},
    "two checkpoint intervals": {"steps": 131, "batch": 1, "channels": 2, "states": 2, "groups": 1},
}


def small(**more):
    return problem(**{"steps": 5, "channels": 4, "states": 3, **more})


def both(**options):
    """Return a function from names to the call with arguments in the order of these names."""
    return lambda names: (
        lambda *x: selective_scan(**dict(zip(names, x)), return_last_state=True, **options)
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reverse", [False, True])
def test_gradients_of_all_and_single_operands_pass_gradcheck(kind, reverse):
    x = small(**KINDS[kind])
    mask_steps = Random(3).booleans(x["u"].shape[0], 1, x["u"].shape[2] + 1)
    of = both(delta_softplus=True, reverse=reverse, resets=torch.from_numpy(mask_steps))(x)
    moved = [v.requires_grad_() for v in x.values()]
    assert gradcheck(of, moved, fast_mode=kind == "two checkpoint intervals")
    # Check each operand alone, for each result alone.
    for i, name in enumerate(x):
        fixed = [v.detach() for v in moved]
        for k in (0, 1):
            one = lambda v, i=i, k=k, fixed=fixed: of(*fixed[:i], v, *fixed[i + 1 :])[k]
            assert gradcheck(one, moved[i], fast_mode=True), name


@pytest.mark.parametrize(
    "kind", ["time-varying", "time-invariant", "required arguments", "complex"]
)
def test_higher_order_forward_and_batched_derivatives_pass_gradcheck(kind):
    x = small(**KINDS[kind], batch=1, channels=2) | {}
    of = both(delta_softplus=True)(x)
    moved = [v.requires_grad_() for v in x.values()]
    assert gradgradcheck(of, moved, fast_mode=True)
    assert gradcheck(of, moved, fast_mode=True, check_forward_ad=True, check_batched_grad=True)


@pytest.mark.parametrize("moves", [(True, False), (False, True)])
def test_second_derivatives_for_one_cotangent_pass_gradgradcheck(moves):
    """Only one of the two cotangents requires a gradient."""
    x = small(batch=1, channels=2)
    of = both(delta_softplus=True)(x)
    given = [v.requires_grad_() for v in x.values()]
    w = [torch.ones_like(y).requires_grad_(m) for y, m in zip(of(*given), moves)]
    assert gradgradcheck(of, given, w, fast_mode=True)


def test_torch_func_transforms_equal_those_of_the_loop():
    x = small(steps=6)
    values = list(x.values())
    ours = lambda *v: both(delta_softplus=True)(x)(*v)[0]
    loop = lambda *v: by_loop(**dict(zip(x, v)), delta_softplus=True)[0]
    every = tuple(range(len(values)))
    square = lambda f: lambda *v: f(*v).square().sum()
    pairs = [
        (func.grad(square(f), every), func.jacrev(f, (1, 2)), func.jacfwd(f, (1, 2, 3)))
        for f in (ours, loop)
    ]
    for f, g in zip(*pairs):
        for a, b in zip(f(*values), g(*values), strict=True):
            close(a, b, 1e-9, 1e-9)
    close(
        func.hessian(square(ours), 2)(*values), func.hessian(square(loop), 2)(*values), 1e-9, 1e-9
    )
    # Batch all operands, then only some of them.
    for dims in (
        (0,) * 9,
        (0, None, None, 0, None, None, 0, None, None),
        (*(None,) * 2, 0, *(None,) * 6),
    ):
        many = [
            v if d is None else torch.stack([v, 0.7 * v, -v.abs()]) for v, d in zip(values, dims)
        ]
        got = func.vmap(ours, dims)(*many)
        for i in range(3):
            close(
                got[i], ours(*(v if d is None else v[i] for v, d in zip(many, dims))), 1e-12, 1e-12
            )
    with forward_ad.dual_level():
        dual = [forward_ad.make_dual(v, torch.ones_like(v)) for v in values]
        tangent = forward_ad.unpack_dual(ours(*dual)).tangent
    ones = tuple(torch.ones_like(v) for v in values)
    close(tangent, func.jvp(loop, tuple(values), ones)[1], 1e-9, 1e-9)


# ---- properties ----------------------------------------------------------------------------------


def reset(x, steps, names=("u", "delta", "B", "C", "z")):
    return {k: v[..., steps] if k in names else v for k, v in x.items()}


@pytest.mark.parametrize("reverse", [False, True])
def test_two_chunks_equal_the_whole_sequence(reverse):
    x = problem(steps=300, itype="float32", wtype="float32")
    run = lambda x: selective_scan(
        **x, delta_softplus=True, return_last_state=True, reverse=reverse
    )
    whole, last = run(x)
    parts = slice(0, 137), slice(137, None)
    first, second = reversed(parts) if reverse else parts
    a, state = run(reset(x, first))
    b, end = run(reset(x, second) | {"initial_state": state})
    close(torch.cat([b, a] if reverse else [a, b], -1), whole, 1e-6, 1e-6)
    close(end, last, 1e-6, 1e-6)


def test_resets_give_the_bits_of_separate_sequences():
    lengths = [0, 5, 130, 131, 300]
    x = problem(batch=1, channels=20, steps=300, itype="float32", wtype="float32")
    reset_mask = scanrec.torch.resets_from_cu_seqlens(torch.tensor(lengths), 300)
    assert reset_mask.nonzero()[:, 1].tolist() == [0, 5, 130, 131]
    whole, last = selective_scan(
        **x, resets=reset_mask, delta_softplus=True, return_last_state=True
    )
    x.pop("initial_state")
    for begin, end in zip(lengths, lengths[1:]):
        part = reset(x, slice(begin, end))
        out, state = selective_scan(**part, delta_softplus=True, return_last_state=True)
        assert torch.equal(out, whole[..., begin:end])
    assert torch.equal(state, last)
    # NaN before a reset has no effect after it, for every shape of resets.
    x["u"][..., :5] = float("nan")
    for resets in (
        reset_mask,
        reset_mask[:, None],
        reset_mask[:, None].expand(1, 20, 300),
        reset_mask[0],
    ):
        out = selective_scan(**x, resets=resets, delta_softplus=True)
        assert torch.equal(out[..., 5:], whole[..., 5:])


@pytest.mark.parametrize(
    "kind", ["time-varying", "groups", "time-invariant", "intervals", "complex"]
)
@pytest.mark.parametrize("reverse", [False, True])
def test_cu_seqlens_give_the_bits_of_separate_sequences(kind, reverse):
    """Gradients have equal bits too, unless they are summed over sequences."""
    bounds = [0, 5, 5, 130, 131, 300]
    x = problem(**{**KINDS[kind], "batch": 1, "steps": 300})
    x.pop("initial_state", None)
    firsts = problem(**{**KINDS[kind], "batch": 5, "steps": 1, "leave": ()})["initial_state"]
    cu = torch.tensor(bounds, dtype=torch.int32)
    options = dict(delta_softplus=True, reverse=reverse, return_last_state=True)
    parts = [slice(*ends) for ends in zip(bounds, bounds[1:])]
    numbers = 2 if kind == "complex" else 1

    def together(initial_state=None, **x):
        return selective_scan(**x, cu_seqlens=cu, initial_state=initial_state, **options)

    def each(initial_state=None, **x):
        outs = []
        for i, part in enumerate(parts):
            begin, end = part.start, part.stop
            mixed = slice(numbers * begin, numbers * end)
            names = ("u", "delta", "z", "intervals")
            mine = reset(reset(x, part, names), mixed, [k for k in ("B", "C") if x[k].dim() > 2])
            first = None if initial_state is None else initial_state[i : i + 1]
            outs.append(selective_scan(**mine, initial_state=first, **options))
        out, last = zip(*outs)
        return torch.cat(out, -1), torch.cat(last)

    w = [torch.ones(1, 4, 300), torch.ones(*firsts.shape, *([2] if numbers == 2 else []))]
    for states in ({}, {"initial_state": firsts}):
        (got, grads), (want, wanted) = (gradients(f, x | states, w) for f in (together, each))
        assert all(torch.equal(a, b) for a, b in zip(got, want))
        assert got[1].shape == firsts.shape
        for name, g in grads.items():
            weight = name in ("A", "D", "delta_bias") or name in KINDS[kind].get("constant", ())
            assert weight or torch.equal(g, wanted[name]), name
            close(g, wanted[name], 1e-12, 1e-12)  # sums over sequences round differently
    # One call with an initial state that all sequences share, and one with absent initial states.
    one = together(**x, initial_state=firsts[:1])
    assert torch.equal(one[0], each(**x, initial_state=firsts[:1].expand(5, 4, -1))[0])
    out = selective_scan(**x, cu_seqlens=cu, delta_softplus=True, reverse=reverse)
    assert torch.equal(out, each(**x)[0])


def test_resets_per_channel_and_after_the_last_step_equal_the_loop():
    x = problem(steps=140)
    for reverse, more in itertools.product((False, True), (0, 1)):
        reset_mask = torch.from_numpy(Random(4).booleans(2, 4, 140 + more))
        got = selective_scan(**x, resets=reset_mask, reverse=reverse, return_last_state=True)
        for a, b in zip(got, by_loop(**x, resets=reset_mask, reverse=reverse), strict=True):
            close(a, b, 1e-9, 1e-9)


def test_reverse_equals_the_flipped_sequence():
    x = problem(steps=150, groups=2, itype="float32", wtype="float32")
    flipped = {k: v.flip(-1) if k in ("u", "delta", "B", "C", "z") else v for k, v in x.items()}
    got, last = selective_scan(**x, delta_softplus=True, reverse=True, return_last_state=True)
    want, end = selective_scan(**flipped, delta_softplus=True, return_last_state=True)
    assert torch.equal(got, want.flip(-1)) and torch.equal(last, end)


def test_any_strides_give_equal_bits():
    """Views are read in place. If u is transposed, outputs have its strides."""
    x = problem(steps=70, channels=6, groups=2, itype="bfloat16", wtype="float32")
    views = {
        "time first": lambda v: v.movedim(-1, 0).contiguous().movedim(0, -1),
        "transposed": lambda v: v.transpose(-1, -2).contiguous().transpose(-1, -2),
        "gaps": lambda v: torch.stack([v, -v], -1).flatten(-2)[..., ::2],
        "of another": lambda v: torch.cat([v, v], 0).flip(-1).contiguous().flip(-1)[: v.shape[0]],
    }
    w = [torch.ones(2, 6, 70, dtype=torch.float64), torch.ones(2, 6, 8, dtype=torch.float64)]
    run = lambda **x: selective_scan(**x, delta_softplus=True, return_last_state=True)
    want, grads = gradients(run, x, w)
    for name, view in views.items():
        seen = {k: view(v) if v.dim() > 1 else v for k, v in x.items()}
        moved = {k: v.detach().requires_grad_() for k, v in seen.items()}
        got = run(**moved)
        assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True)), name
        if name == "transposed":
            assert got[0].stride() == seen["u"].stride()
        loss = sum((a.double() * b).sum() for a, b in zip(got, w))
        found = torch.autograd.grad(loss, list(moved.values()))
        assert all(torch.equal(g, grads[k]) for k, g in zip(moved, found, strict=True)), name
    shared = x | {
        "delta": x["delta"][:, :1].expand(2, 6, 70),
        "z": x["z"][:1, :, :1].expand(2, 6, 70),
    }
    alone = {k: v.contiguous() for k, v in shared.items()}
    assert torch.equal(run(**shared)[0], run(**alone)[0])


def test_bits_do_not_depend_on_threads():
    x = problem(batch=2, channels=70, states=16, steps=700, itype="float32", wtype="float32")
    w = [torch.ones(2, 70, 700), torch.ones(2, 70, 16)]
    run = lambda **x: selective_scan(**x, delta_softplus=True, return_last_state=True)
    threads, found = torch.get_num_threads(), []
    try:
        for count in (1, 2, 2):
            torch.set_num_threads(count)
            out, grads = gradients(run, x, w)
            found.append([*out, *grads.values()])
    finally:
        torch.set_num_threads(threads)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


@pytest.mark.parametrize("shape", [(0, 4, 5), (2, 4, 0), (2, 4, 1)])
def test_zero_batch_zero_steps_and_one_step_equal_the_loop(shape):
    batch, channels, steps = shape
    x = small(batch=batch, channels=channels, steps=steps)
    w = [torch.ones(shape), torch.ones(batch, channels, 3)]
    run = lambda **x: selective_scan(**x, return_last_state=True)
    got, grads = gradients(run, x, w)
    want, wanted = (
        gradients(lambda **x: by_loop(**x), x, w) if steps else ((x["u"], x["initial_state"]), {})
    )
    for a, b in [*zip(got, want, strict=True), *((grads[k], g) for k, g in wanted.items())]:
        close(a, b, 1e-9, 1e-9)
    if not steps:
        assert torch.equal(grads["initial_state"], torch.ones(batch, channels, 3).double())
        assert not grads["A"].any()


def test_autograd_saves_checkpoints_instead_of_states():
    x = problem(batch=1, channels=16, states=16, steps=1024, itype="float32", wtype="float32")
    kept = []
    pack = lambda t: kept.append(t) or t
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        selective_scan(**{k: v.requires_grad_() for k, v in x.items()})
    given = {v.data_ptr() for v in x.values()}
    more = [t for t in kept if t is not None and t.data_ptr() not in given]
    assert sum(t.numel() for t in more) == 7 * 16 * 16


def test_autocast_changes_no_bits():
    x = problem(steps=30, itype="bfloat16", wtype="float32")
    want = selective_scan(**x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(selective_scan(**x), want)


# ---- programs ------------------------------------------------------------------------------------


def test_operators_pass_opcheck():
    x = small(steps=131, groups=2)
    order = (*(x.get(name) for name in NAMES), torch.from_numpy(Random(1).booleans(2, 1, 131)))
    ops = torch.ops.scanrec
    torch.library.opcheck(ops._selective_scan.default, (*order, True, False, True))
    checkpoints = ops._selective_scan(*order, True, False, True)[2]
    torch.library.opcheck(
        ops._selective_scan_vjp.default,
        (*order, checkpoints, x["u"], None, True, False, [True, False, *[True] * 6, False, True]),
    )
    step = [x["u"][..., 0], x["delta"][..., 0], x["A"], x["B"][..., 0], x["C"][..., 0], x["D"]]
    for rows in (None, torch.tensor([1, 0])):
        more = (x["z"][..., 0], x["delta_bias"], rows, True)
        torch.library.opcheck(
            ops._selective_state_update.default, (x["initial_state"].clone(), *step, *more)
        )


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_values_and_gradients_equal_eager(backend):
    x = problem(steps=150, itype="float32", wtype="float32")
    w = [torch.ones(2, 4, 150), torch.ones(2, 4, 8)]
    run = lambda **x: [
        2 * y for y in selective_scan(**x, delta_softplus=True, return_last_state=True)
    ]
    want, grads = gradients(run, x, w)
    got, found = gradients(torch.compile(run, fullgraph=True, backend=backend), x, w)
    for a, b in [*zip(got, want, strict=True), *((found[k], grads[k]) for k in grads)]:
        close(a, b, 1e-5, 1e-5)
    with torch.no_grad():
        dynamic = torch.compile(run, fullgraph=True, backend=backend, dynamic=True)
        for steps in (150, 77):
            part = reset(x, slice(0, steps))
            assert torch.equal(dynamic(**part)[0], run(**part)[0])


def test_exported_program_runs_any_length():
    class Scan(torch.nn.Module):
        def forward(self, u, delta, A, B, C, D, z, delta_bias, initial_state):
            return selective_scan(
                u, delta, A, B, C, D, z, delta_bias, True, initial_state=initial_state
            )

    long = {k: v.requires_grad_() for k, v in problem(steps=300).items()}
    steps = torch.export.Dim("steps")
    sizes = {k: {v.dim() - 1: steps} if v.shape[-1] == 300 else {} for k, v in long.items()}
    for made in (9, 300):
        x = {k: v.contiguous() for k, v in reset(long, slice(0, made)).items()}
        program = torch.export.export(Scan(), (), x, dynamic_shapes=sizes).module()
        for length in (1, 2, 9, 129, 300):
            part = reset(long, slice(0, length))
            assert torch.equal(program(**part), Scan()(**part))


# ---- one step ------------------------------------------------------------------------------------


@pytest.mark.parametrize("groups", [0, 2])
@pytest.mark.parametrize("itype", ["float32", "bfloat16"])
def test_single_steps_equal_the_scan(groups, itype):
    x = problem(steps=20, groups=groups, itype=itype, wtype="float32")
    want, last = selective_scan(**x, delta_softplus=True, return_last_state=True)
    alone, pool = x["initial_state"].clone(), torch.full((5, 4, 8), 7.0)
    rows = torch.tensor([3, 1], dtype=torch.int32)
    pool[rows.long()] = alone
    for t in range(20):
        now = {k: v[..., t] for k, v in x.items() if k in ("u", "delta", "B", "C", "z")}
        step = (
            now["u"],
            now["delta"],
            x["A"],
            now["B"],
            now["C"],
            x["D"],
            now["z"],
            x["delta_bias"],
        )
        version = alone._version
        out = state_update(alone, *step, dt_softplus=True)
        assert alone._version > version
        again = state_update(pool, *step, dt_softplus=True, state_batch_indices=rows)
        assert out.dtype == x["u"].dtype and torch.equal(out, again)
        close(out, want[..., t], *((1e-6, 1e-6) if itype == "float32" else (1e-2, 1e-2)))
    close(alone, last, 1e-6, 1e-6)
    assert torch.equal(pool[rows.long()], alone) and bool((pool[[0, 2, 4]] == 7).all())
    # Compare a 16-bit state with a float32 state whose rows are not adjacent.
    narrow = x["initial_state"].to(torch.bfloat16)
    wide = torch.stack([narrow.float(), narrow.float()], 1)[:, 0]
    a, b = state_update(narrow, *step), state_update(wide, *step)
    assert torch.equal(a, b) and torch.equal(narrow, wide.to(torch.bfloat16))


@pytest.mark.parametrize("is_waited_for", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex64"])
@pytest.mark.parametrize("rows", [[3, -1, 0, -1], [-1, 4, 9, -7], [4, 0, 2, 1], [-1, 9, 3, 4]])
def test_padding_rows_start_from_zero_and_write_no_state(rows, dtype, is_waited_for, monkeypatch):
    """Rows out of range are padding. Also check the GPU path, which reads no rows on the host."""
    if not is_waited_for:
        monkeypatch.setattr(scanrec._op.selective.torch_step, "has_padding", lambda *_: True)
    wtype = dtype.replace("bfloat16", "float32")
    x = problem(batch=4, steps=1, itype="float32", wtype=wtype)
    mixing = [x[name][..., 0] if wtype == "float32" else x[name] for name in ("B", "C")]
    step = (x["u"][..., 0], x["delta"][..., 0], x["A"], *mixing, x["D"], x["z"][..., 0])
    pool = torch.randn(5, 4, 8, dtype=getattr(torch, dtype))
    there = [i for i, row in enumerate(rows) if 0 <= row < 5]
    kept = [rows[i] for i in there]
    alone = torch.zeros(4, 4, 8, dtype=pool.dtype)
    alone[there] = pool[kept]
    want, moved = state_update(alone, *step, x["delta_bias"], True), pool.clone()
    moved[kept] = alone[there]
    for of in (torch.int32, torch.int64):
        for run in (
            state_update,
            torch.compile(state_update, fullgraph=True, backend="aot_eager"),
        ):
            state = pool.clone()
            at = torch.tensor(rows, dtype=of)
            out = run(state, *step, x["delta_bias"], True, state_batch_indices=at)
            assert torch.equal(out, want) and torch.equal(state, moved)


def test_padding_rows_equal_those_of_jax():
    jax = pytest.importorskip("jax")
    import scanrec.jax

    x = problem(batch=4, steps=1, itype="float32", wtype="float32")
    step = [x[name][..., 0] for name in ("u", "delta", "B", "C", "z")]
    u, delta, b, c, z = step
    pool, rows = torch.randn(5, 4, 8), torch.tensor([3, -1, 7, 0])
    arrays = [v.numpy() for v in (pool, u, delta, x["A"], b, c, x["D"], z, x["delta_bias"])]
    with jax.default_device(jax.devices("cpu")[0]):
        want, moved = scanrec.jax.selective_state_update(
            *arrays, dt_softplus=True, state_batch_indices=rows.numpy()
        )
    out = state_update(pool, u, delta, x["A"], b, c, x["D"], z, x["delta_bias"], True, rows)
    close(out, torch.tensor(want.tolist()), 1e-6, 1e-6)
    close(pool, torch.tensor(moved.tolist()), 1e-6, 1e-6)
    assert torch.equal(pool[[1, 2, 4]], torch.tensor(moved.tolist())[[1, 2, 4]])


def test_complex_b_and_c_equal_interleaved_parts():
    """B and C may have any layout. A single step takes complex B and C."""
    x = problem(steps=150, wtype="complex64", itype="float32", leave=())
    whole = {name: torch.view_as_complex(x[name].unflatten(-1, (-1, 2))) for name in ("B", "C")}
    run = lambda **more: selective_scan(**(x | more), delta_softplus=True, return_last_state=True)
    want = run()
    for other in (
        whole,
        {name: v.mT.contiguous().mT for name, v in whole.items()},
        {name: v.conj().resolve_conj().conj() for name, v in whole.items()},
        {name: x[name].mT.contiguous().mT for name in whole},
    ):
        assert all(torch.equal(a, b) for a, b in zip(run(**other), want, strict=True))
    state = x["initial_state"].clone()
    for t in range(4):
        now = [v[..., t] for v in (x["u"], x["delta"], whole["B"], whole["C"], x["z"])]
        u, delta, b, c, z = now
        out = state_update(state, u, delta, x["A"], b, c, x["D"], z, x["delta_bias"], True)
    want = selective_scan(
        **reset({k: v for k, v in (x | whole).items() if k != "intervals"}, slice(0, 4)),
        delta_softplus=True,
        return_last_state=True,
    )
    close(out, want[0][..., 3], 1e-6, 1e-6)
    close(state, want[1], 1e-6, 1e-6)


def test_cached_step_plans_serve_one_layout_only():
    """Results and errors do not depend on earlier steps."""
    x = problem(steps=1, itype="float32", wtype="float32")
    step = {k: x[name][..., 0] for k, name in dict(x="u", dt="delta", B="B", C="C", z="z").items()}
    step |= dict(A=x["A"], D=x["D"], dt_bias=x["delta_bias"])
    strided = lambda x: x.T.contiguous().T
    calls = [
        {}, {"x": strided(step["x"])}, {"A": strided(x["A"])}, {"z": None}, {"D": None},
        {"D": x["D"].bfloat16()}, {"dt": step["dt"].bfloat16()}, {"B": step["B"].unsqueeze(1)},
        {"dt_softplus": True},
    ]  # fmt: skip
    for _ in range(2):
        for other in [*calls, {"state": x["initial_state"].bfloat16()}]:
            step_of = {"state": x["initial_state"], **step, **other}
            state, again = step_of["state"].clone(), step_of.pop("state").clone()
            out = state_update(state, **step_of)
            want = state_update(again, **step_of, state_batch_indices=torch.arange(2))
            assert torch.equal(out, want) and torch.equal(state, again)
            assert out.stride() == want.stride()
        state = x["initial_state"].clone()
        for error, other in (
            (NotImplementedError, {"A": x["A"].clone().requires_grad_()}),
            (TypeError, {"x": step["x"].double()}),
            (TypeError, {"dt_softplus": "yes"}),
            (ValueError, {"dt": step["dt"][:, :1]}),
        ):
            with pytest.raises(error, match="selective_state_update: argument"):
                state_update(state, **step | other)
            assert torch.equal(state, x["initial_state"])


def test_compiled_step_equals_eager():
    x = problem(steps=1, itype="float32", wtype="float32")
    step = (x["u"][..., 0], x["delta"][..., 0], x["A"], x["B"][..., 0], x["C"][..., 0])
    state, again = x["initial_state"].clone(), x["initial_state"].clone()
    run = lambda state, *step: state_update(state, *step) + state.sum()
    want = run(state, *step)
    close(torch.compile(run, fullgraph=True, backend="aot_eager")(again, *step), want, 1e-6, 1e-6)
    assert torch.equal(state, again)


# ---- bad input -----------------------------------------------------------------------------------


def test_invalid_input_raises():
    x = problem(steps=9, itype="float32", wtype="float32")

    def refused(error, words, **other):
        with pytest.raises(error, match=f"selective_scan: argument {words}"):
            selective_scan(**{**x, **other})

    z = torch.zeros
    refused(TypeError, "'u': expected a tensor, got float", u=0.5)
    refused(ValueError, r"'u': expected a tensor \(B, D, L\), got shape \(4, 9\)", u=z(4, 9))
    refused(ValueError, r"'delta': expected shape \(2, 4, 9\), got \(2, 4, 8\)", delta=z(2, 4, 8))
    refused(TypeError, "'delta': expected a tensor, got NoneType", delta=None)
    refused(TypeError, "'initial_state': .* got torch.complex64", initial_state=z(2, 4, 8) * 1j)
    refused(ValueError, r"'intervals': expected shape \(2, 9\)", intervals=z(2, 4, 9))
    complexes = {"A": z(4, 8) + 1j}
    refused(TypeError, "'u': .* with 'A' in complex64", u=z(2, 4, 9) * 1j, **complexes)
    refused(ValueError, r"'B': expected shape \(4, 8\), \(2, 8, 18\)", **complexes)
    refused(
        ValueError, r"'B': expected shape \(4, 8\), \(2, 8, 9\)", B=z(2, 8, 3) * 1j, **complexes
    )
    refused(TypeError, "'A': expected float32, float64, complex64", A=z(4, 8, dtype=torch.bfloat16))
    refused(ValueError, r"'A': expected shape \(4, N\)", A=z(5, 8))
    refused(ValueError, r"'A': expected shape \(4, N\)", A=z(4, 0))
    refused(TypeError, "'u': expected float64 with 'A' in float64", A=z(4, 8).double())
    refused(TypeError, "'B': expected float32 or bfloat16", B=z(4, 8, dtype=torch.complex64))
    refused(
        ValueError, r"'B': expected shape \(4, 8\), \(2, 8, 9\) or \(2, G, 8, 9\)", B=z(2, 9, 8)
    )
    refused(ValueError, "'C': .* where G divides 4 channels", C=z(2, 3, 8, 9))
    refused(ValueError, "'C': expected 1 groups, like 'B', got 2", C=z(2, 2, 8, 9))
    refused(ValueError, r"'D': expected shape \(4,\)", D=z(4, 1))
    refused(TypeError, "'D': expected float32 or bfloat16", D=z(4, dtype=torch.int32))
    refused(ValueError, r"'z': expected shape \(2, 4, 9\)", z=z(2, 4, 1))
    refused(ValueError, r"'delta_bias': expected shape \(4,\)", delta_bias=z(9))
    refused(ValueError, r"'initial_state': .* broadcasts to \(2, 4, 8\)", initial_state=z(3, 4, 8))
    refused(TypeError, "'resets': expected a tensor of booleans", resets=z(2, 9))
    one = {name: v[:1] if name in ("u", "delta", "B", "C", "z") else v for name, v in x.items()}
    one.pop("initial_state")
    ends, state = torch.tensor([0, 4, 9]), {"initial_state": z(2, 4, 8)}
    refused(ValueError, "'u': expected a batch of 1 with 'cu_seqlens'", cu_seqlens=ends)

    def refused_of_one(error, words, ends, **other):
        with pytest.raises(error, match=f"selective_scan: argument {words}"):
            selective_scan(**{**one, **other}, cu_seqlens=ends)

    refused_of_one(ValueError, "'resets': expected None", ends, resets=z(1, 9) > 0)
    refused_of_one(TypeError, "'cu_seqlens': expected a tensor, got list", [0, 9])
    refused_of_one(TypeError, "'cu_seqlens': expected int32 or int64", z(2))
    refused_of_one(ValueError, "'cu_seqlens': expected at least 2 numbers", ends[:1])
    wrong = "'cu_seqlens': expected numbers from 0 to 9 that never decrease, got"
    for bad in ([0, 4], [0, 10], [1, 9], [0, 5, 4, 9]):
        for more in (state, {}, {"return_last_state": True}):
            more = more if len(bad) == 3 or more is not state else {"initial_state": z(1, 4, 8)}
            refused_of_one(ValueError, wrong, torch.tensor(bad), **more)
    falls = torch.tensor([0, 1, 2, 3, 5, 4, 6, 7, 8, 8, 9])
    refused_of_one(ValueError, f"{wrong} 11 numbers from 0 to 9, 5 before 4", falls)
    words = r"'initial_state': expected a shape that broadcasts to \(2, 4, 8\)"
    refused_of_one(ValueError, words, ends, initial_state=z(3, 4, 8))
    apart = torch.frombuffer(bytearray(129), dtype=torch.float32, offset=1).view(4, 8)
    refused(ValueError, "'A': expected a pointer aligned to 4 bytes", A=apart)
    refused(ValueError, "'resets': .* with all 9 steps", resets=z(2, 4, dtype=torch.bool))


def test_invalid_steps_raise_and_leave_the_state_unchanged():
    state, rows = torch.ones(3, 4, 8), torch.tensor([0, 2])
    good = dict(
        state=state, x=torch.ones(2, 4), dt=torch.ones(2, 4), A=-torch.ones(4, 8),
        B=torch.ones(2, 8), C=torch.ones(2, 8), state_batch_indices=rows,
    )  # fmt: skip

    def refused(error, words, **other):
        with pytest.raises(error, match=f"selective_state_update: argument {words}"):
            state_update(**{**good, **other})

    refused(ValueError, r"'state': expected shape \(2, 4, 8\)", state_batch_indices=None)
    refused(ValueError, r"'state': expected shape \(3, 4, 8\)", state=torch.ones(3, 4, 7))
    overlapping = state[:1].expand(3, 4, 8)
    refused(ValueError, "'state': expected a tensor whose elements do not", state=overlapping)
    refused(ValueError, r"'x': expected a tensor \(B, D\)", x=torch.ones(2, 4, 1))
    refused(ValueError, r"'B': expected shape \(2, 8\) or \(2, G, 8\)", B=torch.ones(4, 8))
    refused(
        TypeError, "'state_batch_indices': expected a tensor of int32", state_batch_indices=[0, 1]
    )
    refused(
        ValueError,
        "'state_batch_indices': expected distinct rows of 'state'",
        state_batch_indices=torch.tensor([1, 1]),
    )
    refused(ValueError, "'state': expected at least 1 row, got 0", state=torch.ones(0, 4, 8))
    whole = dict(state=state[:2], state_batch_indices=None)
    refused(ValueError, "'state': expected memory apart from 'B'", B=state[:2, 0], **whole)
    refused(ValueError, "'state': expected memory apart from 'dt'", dt=state[:2, :, 0], **whole)
    refused(NotImplementedError, "'x': expected no gradients", x=torch.ones(2, 4).requires_grad_())
    assert torch.equal(state, torch.ones(3, 4, 8))
    with torch.no_grad():
        state_update(**{**good, "x": torch.ones(2, 4).requires_grad_()})
    assert not torch.equal(state, torch.ones(3, 4, 8))


def test_one_compiled_resets_from_cu_seqlens_serves_any_length():
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    reset_mask = lambda x, cu: scanrec.torch.resets_from_cu_seqlens(cu, x.shape[-1])
    compiled = torch.compile(reset_mask, fullgraph=True, backend="aot_eager", dynamic=True)
    for steps in (7, 5, 2):
        x, cu = torch.zeros(2, steps), torch.tensor([0, 1])
        assert torch.equal(compiled(x, cu), reset_mask(x, cu))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_invalid_cu_seqlens_and_length_raise():
    reset_mask = scanrec.torch.resets_from_cu_seqlens
    for bad in ([1, 5], [0, 6], [0, 4, 3]):
        with pytest.raises(
            ValueError, match="'cu_seqlens': expected numbers from 0 to at most 5 that never"
        ):
            reset_mask(torch.tensor(bad), 5)
    with pytest.raises(TypeError, match="'cu_seqlens': expected int32 or int64"):
        reset_mask(torch.tensor([0.0]), 5)
    for bad in (6.0, None, "5", True, -1):
        with pytest.raises(
            (TypeError, ValueError), match="'length': expected an integer of 0 or more, got"
        ):
            reset_mask(torch.tensor([0]), bad)
    assert reset_mask(torch.tensor([0, 3], device="meta"), 5).shape == (1, 5)
    assert reset_mask(torch.tensor([0, 3, 3]), 5).tolist() == [[True, False, False, True, False]]

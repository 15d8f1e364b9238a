# SPDX-License-Identifier: BSD-3-Clause
"""Tests of scanrec.jax.linear_scan: values, derivatives, batching, programs and devices.

Tests of derivatives compare values, because a missing rule often gives zeros instead of an error.
"""

from __future__ import annotations

import re
import threading
from functools import partial

import numpy as np
import pytest
from conftest import SLOW_SUMS, Random, SlowDecay, check_slow_sum, derivative, loop

jax = pytest.importorskip("jax", reason="JAX is not installed")
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_num_cpu_devices", 8)

import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec
from jax_derivatives import check_derivatives, jacobian

import scanrec.jax

linear_scan = scanrec.jax.linear_scan
DTYPES = ["float32", "float64", "complex64", "complex128", "float16", "bfloat16"]


def by_lax_scan(gate, input, initial_state=None, *, reverse=False, resets=None):
    """Compute states and final state by jax.lax.scan, which JAX differentiates."""
    shape = input.shape
    steps = shape[-2]
    if resets is None:
        reset = jnp.zeros(shape, bool)
    else:  # a reset at t stops the carry from t - 1; one may follow the last step
        more = resets.shape[-2] > steps
        reset = jnp.broadcast_to(resets, (*shape[:-2], steps + more, shape[-1]))
        if reverse:
            last = reset[..., steps:, :] if more else jnp.zeros_like(reset[..., :1, :])
            reset = jnp.concatenate([reset[..., 1:steps, :], last], -2)
        reset = reset[..., :steps, :]
    first = jnp.zeros((), input.dtype) if initial_state is None else initial_state

    def step(state, now):
        gate, input, reset = now
        state = jnp.where(reset, 0, gate * state) + input
        return state, state

    final, state = jax.lax.scan(
        step,
        jnp.broadcast_to(first, (*shape[:-2], shape[-1])),
        tuple(jnp.moveaxis(jnp.broadcast_to(x, shape), -2, 0) for x in (gate, input, reset)),
        reverse=reverse,
    )
    return jnp.moveaxis(state, 0, -2), final


def same(got, want, **tolerance):
    got, want = jax.tree.leaves(got), jax.tree.leaves(want)
    assert len(got) == len(want)
    for x, y in zip(got, want):
        assert x.shape == y.shape and x.dtype == y.dtype
        np.testing.assert_allclose(x, y, **{"rtol": 1e-9, "atol": 1e-9, **tolerance})


# ---- values --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_element_type_has_accurate_values_and_gradients_of_its_type(random, dtype):
    dtype = jnp.dtype(dtype)
    wide = np.complex128 if dtype.kind == "c" else np.float64
    gate, input = (jnp.asarray(random(2, 33, 5, dtype=wide, scale=0.6), dtype) for _ in range(2))
    got, final = linear_scan(gate, input, return_final=True)
    want, _ = loop(np.asarray(gate, wide), np.asarray(input, wide))
    eps = float(jnp.finfo(dtype).eps)
    assert got.dtype == dtype and final.dtype == ("float32" if dtype.itemsize == 2 else dtype)
    assert np.max(np.abs(np.asarray(got, wide) - want)) < 4 * eps * np.max(np.abs(want))
    # Each gradient has the type of its operand.
    first = jnp.zeros((2, 5), final.dtype)
    loss = lambda *x: jnp.sum(jnp.abs(linear_scan(*x)).astype("float32") ** 2)
    given = gate, input, first
    for gradient, of in zip(jax.grad(loss, (0, 1, 2))(*given), given, strict=True):
        assert gradient.dtype == of.dtype and gradient.shape == of.shape
        assert bool(jnp.any(gradient != 0))


@pytest.mark.parametrize("shape, axis", [((0, 5, 3), 1), ((2, 0, 3), 1), ((2, 1, 3), 1), ((7,), 0)])
def test_short_and_empty_sequences_have_exact_values_and_finite_derivatives(random, shape, axis):
    gate, input = random(*shape), random(*shape)
    state_shape = np.delete(shape, axis)
    first = random(*state_shape)
    got = linear_scan(gate, input, first, axis=axis, return_final=True)
    want = loop(gate, input, first, axis=axis)
    same(got, [jnp.asarray(x, "float64") for x in want])
    gradient = jax.grad(lambda g: jnp.sum(linear_scan(g, input, first, axis=axis) ** 2))
    for x in jax.jit(lambda g: (gradient(g), jax.jacfwd(gradient)(g)))(gate):
        assert np.all(np.isfinite(x))


def test_states_equal_an_associative_scan(random):
    gate, input = jnp.asarray(random(4, 300, 3)), jnp.asarray(random(4, 300, 3))

    def combine(earlier, later):
        return later[0] * earlier[0], later[0] * earlier[1] + later[1]

    # Without jit, JAX would compile each of hundreds of slices separately.
    scan = jax.jit(lambda *x: jax.lax.associative_scan(combine, x, axis=1)[1])
    same(linear_scan(gate, input), scan(gate, input))


def test_every_axis_and_gate_shape_equals_the_loop(random):
    input = jnp.asarray(random(3, 4, 20, 5))
    for axis in range(4):
        for gate_shape in [(), (5,), (20, 1), (4, 1, 5), (3, 1, 20, 1), (3, 4, 20, 5)]:
            gate = jnp.asarray(random(*gate_shape))
            want, final = loop(gate, input, axis=axis)
            got = linear_scan(gate, input, axis=axis, return_final=True)
            same(got, [jnp.asarray(want, "float64"), jnp.asarray(final, "float64")])


def test_result_types_are_promoted():
    input = jnp.ones((4, 3), "bfloat16")
    assert linear_scan(0.5, input).dtype == "bfloat16"
    assert linear_scan(0.5, input, jnp.ones(3, "float32")).dtype == "bfloat16"
    assert linear_scan(jnp.ones(3, "float32"), input).dtype == "float32"
    single = input.astype("float32")
    assert linear_scan(jnp.ones(3, "complex64"), single).dtype == "complex64"
    assert linear_scan(0.5, single, 1j).dtype == "complex64"
    assert linear_scan(0.5, single, jnp.asarray(0.5)).dtype == "float32"  # weakly typed
    assert linear_scan(0.5, input, np.ones(3)).dtype == "float64"


# ---- derivatives ---------------------------------------------------------------------------------

# (type, shape of the gate, reverse, length of the reset mask or 0 if it is absent)
CASES = [
    ("float64", (2, 9, 3), False, 10),
    ("float64", (2, 9, 3), True, 10),
    ("complex128", (3,), True, 10),
    ("float64", (2, 9, 3), False, 9),
    ("float64", (2, 9, 3), True, 9),
    ("float64", (3,), False, 0),
    ("float64", (9, 1), True, 0),
    ("complex128", (2, 9, 3), False, 0),
    ("complex128", (2, 1, 3), True, 9),
]


@pytest.fixture(params=CASES, ids=lambda c: f"{c[0]}-{'x'.join(map(str, c[1]))}-{c[2]}-{c[3]}")
def problem(request):
    """Return our function, the loop in NumPy, and their arguments."""
    dtype, gate_shape, reverse, mask_steps = request.param
    random = Random(1)
    arrays = tuple(
        jnp.asarray(random(*s, dtype=dtype, scale=0.8)) for s in (gate_shape, (2, 9, 3), (3,))
    )
    resets = random.booleans(2, mask_steps, 1)
    resets[0, 9:] = True
    options = {"reverse": reverse, "resets": resets if mask_steps else None}
    return (
        partial(linear_scan, return_final=True, **options),
        partial(loop, **options),
        arrays,
    )


def losses(f):
    """Return losses of the states, of the final state, and of both."""
    return {
        "states": lambda *x: (f(*x)[0] ** 3).sum(),
        "final": lambda *x: (f(*x)[1] ** 3).sum(),
        "both": lambda *x: (f(*x)[0] * f(*x)[1][:, None]).sum(),
    }


def transforms_of(dtype):
    holomorphic = {"holomorphic": True} if dtype.kind == "c" else {}
    every = {"argnums": (0, 1, 2), **holomorphic}
    return {
        "grad": partial(jax.grad, **every),
        "jacfwd": partial(jax.jacfwd, **every),
        "fwd of rev": lambda f: jax.jacfwd(jax.grad(f, **every), **every),
        "rev of rev": lambda f: jax.jacrev(jax.grad(f, **every), **every),
        "fwd of fwd": lambda f: jax.jacfwd(jax.jacfwd(f, **every), **every),
        "rev of fwd": lambda f: jax.jacrev(jax.jacfwd(f, **every), **every),
    }


def check_transforms(ours, theirs, arrays, names):
    """Compare first and second derivatives with differences, for every nesting of transformations.

    The reference of a gradient is made of differences of the loss, and that of a Hessian of
    differences of the gradient. Second derivatives are compared only for the loss named "both".
    """
    every = transforms_of(arrays[1].dtype)
    of = [(t, loss) for t in every for loss in (["both"] if " of " in t else names)]
    programs = {(t, loss): every[t](losses(ours)[loss]) for t, loss in of}
    got = jax.jit(lambda *x: {k: g(*x) for k, g in programs.items()})(*arrays)
    want = {name: jacobian(losses(theirs)[name], arrays) for name in names}
    hessian = jacobian(jax.jit(programs["grad", "both"]), arrays)
    for (transform, name), x in got.items():
        same(x, hessian if " of " in transform else want[name])
    assert len(got) == 2 * len(names) + 4


def test_first_and_second_derivatives_equal_differences(problem):
    ours, theirs, arrays = problem
    for got, want in zip(ours(*arrays), theirs(*arrays), strict=True):
        same(got, want.astype(got.dtype))
    check_transforms(ours, theirs, arrays, ["states", "final", "both"])


@pytest.mark.parametrize("gate_shape", [(2, 9, 3), (3,)])
@pytest.mark.parametrize("log_gate, log_input", [(True, True), (True, False), (False, True)])
def test_logarithms_run_in_kernels_and_derivatives_equal_differences(
    random, gate_shape, log_gate, log_input
):
    arrays = tuple(jnp.asarray(random(*shape)) for shape in (gate_shape, (2, 9, 3), (2, 3)))
    logs = {"log_gate": log_gate, "log_input": log_input, "return_final": True}
    ours = partial(linear_scan, **logs)

    def theirs(gate, input, first):
        gate, input = (np.asarray(x, np.longdouble) for x in (gate, input))
        gate = np.exp(gate) if log_gate else gate
        return loop(gate, np.exp(input) if log_input else input, first)

    check_transforms(ours, theirs, arrays, ["both"])
    got = jax.grad(losses(ours)["both"], (0, 1))
    stacked = (arrays[0], jnp.stack([arrays[1], -arrays[1]]), arrays[2])
    each = [jax.jit(got)(*arrays), jax.jit(got)(arrays[0], -arrays[1], arrays[2])]
    batch = jax.jit(jax.vmap(got, (None, 0, None)))(*stacked)
    same(batch, jax.tree.map(lambda *x: jnp.stack(x), *each))
    text = jax.jit(jax.grad(losses(ours)["states"])).lower(*arrays).as_text()
    assert re.findall(r"scanrec_(\w+)_v1", text) == ["linear_scan", "linear_scan_vjp"]
    assert "exponential" not in text


@pytest.mark.parametrize("reverse", [False, True])
def test_slow_decays_are_accurate(reverse):
    slow = SlowDecay(reverse)
    gate, input = jnp.asarray(slow.gate), jnp.asarray(slow.input)
    scan = jax.jit(partial(linear_scan, log_gate=True, reverse=reverse))
    assert slow.close(scan(gate, input), "state")
    loss = lambda gate, input: jnp.vdot(scan(gate, input), slow.grad)
    of_gate, of_input = jax.grad(loss, (0, 1))(gate, input)
    assert slow.close(of_input, "input_grad") and slow.close(of_gate, "gate_grad")
    ones, tangent = jnp.ones_like(gate), lambda *x: jax.jvp(scan, (gate, input), x)[1]
    assert slow.close(tangent(0 * ones, input), "state")
    assert slow.close(tangent(ones, 0 * ones), "tangent")


@pytest.mark.parametrize("reverse", [False, True])
def test_slow_decays_of_many_channels_are_accurate(reverse):
    slow = SlowDecay(reverse, steps=20_000)
    gate, input, grad = map(jnp.asarray, slow.of_channels())
    state, vjp = jax.vjp(partial(linear_scan, log_gate=True, reverse=reverse), gate, input)
    of_gate, of_input = vjp(grad)
    assert slow.close(state, "state")
    assert slow.close(of_input, "input_grad") and slow.close(of_gate, "gate_grad")


@pytest.mark.parametrize("shape", SLOW_SUMS, ids=str)
def test_final_states_of_slow_decays_are_within_the_bound(shape):
    check_slow_sum(
        lambda *x: linear_scan(*map(jnp.asarray, x[:2]), axis=x[2], log_gate=True), shape
    )


@pytest.mark.parametrize("reverse", [False, True])
def test_slow_constant_decays_are_accurate(reverse):
    """Gradients of input and initial state keep no states. Their derivatives are also accurate."""
    slow = SlowDecay(reverse)
    input, first, grad = jnp.asarray(slow.input), jnp.ones(1, jnp.float32), jnp.asarray(slow.grad)
    scan = partial(linear_scan, jnp.float32(-1e-4), log_gate=True, reverse=reverse)
    state, vjp = jax.vjp(scan, input, first)
    kept = [x for x in jax.tree.leaves(vjp) if hasattr(x, "size")]
    assert all(x.size == 1 for x in kept)
    of_input, of_first = vjp(grad)
    assert slow.close(of_input, "input_grad") and slow.close(of_first, "initial_grad")
    # The vjp is linear in the cotangent, so its jvp applies it to the tangent. Its transpose is the
    # scan.
    pulled = lambda grad: jax.vjp(scan, input)[1](grad)[0]
    value, moves = jax.jvp(pulled, (jnp.zeros_like(grad),), (grad,))
    assert not value.any() and slow.close(moves, "input_grad")
    assert slow.close(jax.vjp(pulled, grad)[1](input)[0], "state")
    tangent = lambda x: jax.jvp(scan, (input,), (x,))[1]
    assert slow.close(jax.jvp(tangent, (grad,), (input,))[1], "state")


@pytest.mark.parametrize("reverse", [False, True])
def test_derivatives_through_chunks_equal_those_of_the_whole_sequence(random, reverse):
    """Every chunk starts from the last state of the previous one, and some start with a reset."""
    gate, input = (jnp.asarray(random(2, 9, 3)) for _ in range(2))
    first, weight = jnp.asarray(random(2, 3)), jnp.asarray(random(2, 9, 3))
    resets = random.booleans(2, 9, 3)
    resets[0, [1, 4, 5]] = True
    chunks = [(0, 1), (1, 4), (4, 5), (5, 9)][:: -1 if reverse else 1]

    def loss(chunks):
        def of(gate, input, first):
            total, state = 0.0, first
            for a, b in chunks:
                here, state = linear_scan(
                    gate[:, a:b], input[:, a:b], state, reverse=reverse,
                    resets=resets[:, a : b + 1], return_final=True,
                )  # fmt: skip
                total += jnp.sum(weight[:, a:b] * here**2)
            return total + jnp.sum(state**3)

        return of

    for transform in (jax.value_and_grad, jax.hessian):
        got, want = (
            jax.jit(transform(loss(c), (0, 1, 2)))(gate, input, first) for c in (chunks, [(0, 9)])
        )
        jax.tree.map(same, got, want)


def test_third_derivatives_equal_differences(random):
    arrays = tuple(jnp.asarray(random(*s)) for s in ((3, 2), (3, 2), (2,)))
    f = partial(linear_scan, return_final=True)
    check_derivatives(f, arrays, random, order=3)


def test_linearize_and_transpose_equal_differences(problem):
    ours, theirs, arrays = problem
    tangents = tuple(x * 0.3 + 1 for x in arrays)
    value, linear = jax.linearize(ours, *arrays)
    in_type = lambda values: tuple(np.asarray(x).astype(arrays[1].dtype) for x in values)
    same(value, in_type(theirs(*arrays)))
    along = [
        derivative(lambda h, i=i: theirs(*(x + h * v for x, v in zip(arrays, tangents)))[i], 1e-3)
        for i in range(2)
    ]
    same(linear(*tangents), in_type(along))
    gate = arrays[0]
    cotangents = ours(*arrays)
    got = jax.linear_transpose(lambda *x: ours(gate, *x), *arrays[1:])(cotangents)
    product = lambda *x: sum(
        (y * g).sum() for y, g in zip(theirs(gate, *x), map(np.asarray, cotangents))
    )
    same(got, jacobian(product, arrays[1:]))
    with pytest.raises(NotImplementedError, match="not linear in its gate"):
        jax.linear_transpose(lambda g: ours(g, *arrays[1:]), gate)(cotangents)


@pytest.mark.parametrize(
    "axes",
    [(0, None, None), (None, 0, None), (None, None, 0), (0, 0, 0), (1, None, 1), (None, 2, 0)],
)
def test_vmap_equals_vmap_of_lax_scan(random, axes):
    """vmap batches one or several operands, inside and outside derivatives."""
    shapes = [(5, 3), (5, 3), (3,)]

    def batched(shape, axis):
        return jnp.asarray(random(*(shape if axis is None else np.insert(shape, axis, 4))))

    arrays = [batched(s, a) for s, a in zip(shapes, axes)]

    def loss(f):
        return lambda *x: sum(jnp.sum(y**3) for y in f(*x))

    ours, theirs = partial(linear_scan, return_final=True), by_lax_scan

    def batches(f):
        return (
            jax.vmap(f, axes),
            jax.vmap(jax.grad(loss(f), (0, 1, 2)), axes),
            jax.grad(lambda *x: jnp.sum(jax.vmap(loss(f), axes)(*x)), (0, 1, 2)),
            jax.vmap(jax.hessian(loss(f)), axes),
        )

    same(*(jax.jit(lambda *x, f=f: [of(*x) for of in batches(f)])(*arrays) for f in (ours, theirs)))


def test_jacobians_compute_unbatched_gradients_once(random):
    """The result is linear in the states of each scan, so no cotangent depends on the batch of x.

    States depend on the batch, but only gradients of gates read states.
    """
    gates, inputs = jnp.asarray(random(2, 3)), jnp.asarray(random(4, 9, 3))

    def final(f):
        def run(gates, x):
            for gate in gates:
                x = f(gate, x)
            return x[-1]

        return jax.vmap(jax.jacrev(run), (None, 0))

    same(final(linear_scan)(gates, inputs), final(lambda *x: by_lax_scan(*x)[0])(gates, inputs))
    calls = calls_in(final(linear_scan), gates, inputs)
    assert [results for name, _, results in calls if name == "linear_scan_vjp"] == [
        0b010,
        0b001,
        0b001,
    ]


def test_vmap_of_vmap_equals_that_of_lax_scan(random):
    gates, input = jnp.asarray(random(4, 3)), jnp.asarray(random(2, 9, 3))
    f = jax.vmap(jax.vmap(linear_scan, (0, None)), (None, 0))
    g = jax.vmap(jax.vmap(lambda *x: by_lax_scan(*x)[0], (0, None)), (None, 0))
    loss = lambda f: lambda *x: jnp.sum(f(*x) ** 3)
    both = lambda f: jax.jit(lambda *x: (f(*x), jax.grad(loss(f), (0, 1))(*x)))(gates, input)
    same(both(f), both(g))


@pytest.mark.parametrize("seed", range(5))
def test_broadcast_gates_under_vmap_equal_lax_scan(seed):
    """Gates broadcast along random axes and may lack leading axes. One or two vmaps batch operands.

    The test compares gradients and products of the Hessian with a vector.
    """
    random = Random(seed)
    choose = lambda *options: options[random.generator.integers(len(options))]
    shape = (2, 3, 5, 4)
    gate_shape = tuple(choose(1, n) for n in shape)[choose(0, 0, 1, 3) :]
    shapes = [gate_shape, shape, choose((3, 1), (2, 3, 4), (4,))]
    reset_mask = jnp.asarray(random.booleans(3, choose(5, 6), 1))
    options = {"resets": reset_mask, "reverse": choose(False, True)}
    axes_of_maps = []
    for size in (3, 2)[: choose(1, 2)]:
        axes = [choose(None, 0, len(s)) for s in shapes]
        if axes == [None] * 3:
            axes[0] = 0
        axes_of_maps.append(axes)
        shapes = [s if a is None else tuple(np.insert(s, a, size)) for s, a in zip(shapes, axes)]
    arrays = [jnp.asarray(random(*s)) for s in shapes]

    def loss(f):
        def of_one(gate, input, first):
            first = jnp.broadcast_to(first, (2, 3, 4))
            return sum(jnp.sum(y**3) for y in f(gate, input, first, **options))

        of_all = of_one
        for axes in axes_of_maps:
            of_all = jax.vmap(of_all, axes)
        return lambda *x: jnp.sum(of_all(*x) ** 2)

    def derivatives(f):
        gradient = jax.grad(loss(f), (0, 1, 2))
        return jax.jit(lambda *x: (gradient(*x), jax.jvp(gradient, x, x)[1]))(*arrays)

    same(derivatives(partial(linear_scan, return_final=True)), derivatives(by_lax_scan))


# ---- programs ------------------------------------------------------------------------------------


def calls_in(f, *arrays):
    """List the custom calls of a program: (name, mask of operands, mask of results)."""
    text = jax.jit(f).lower(*arrays).as_text()
    found = re.findall(
        r"custom_call @scanrec_(\w+)_v1\(.*?operands = (\d+).*?results = (\d+)", text
    )
    return [(name, int(operands), int(results)) for name, operands, results in found]


def test_derivatives_run_one_call_forward_and_one_back():
    gate = input = jnp.ones((2, 9, 3))
    names = lambda *x: [name for name, _, _ in calls_in(*x)]
    loss = lambda gate, input: jnp.sum(linear_scan(gate, input) ** 2)
    assert names(jax.grad(loss, (0, 1)), gate, input) == ["linear_scan", "linear_scan_vjp"]
    assert names(lambda *x: jax.jvp(loss, x, x), gate, input) == ["linear_scan", "linear_scan_jvp"]
    # A gradient that needs no states runs no forward scan.
    linear = lambda gate, input: jnp.sum(linear_scan(gate, input))
    assert names(jax.grad(linear, 1), gate, input) == ["linear_scan_vjp"]


def test_calls_omit_unused_operands_and_results():
    gate = input = jnp.ones((2, 9, 3))

    def final(gate, input):
        return jnp.sum(linear_scan(gate, input, return_final=True)[1])

    assert calls_in(final, gate, input) == [("linear_scan", 0b0011, 0b10)]
    # The adjoint reads gate, states and the gradient of the final state, and writes one gradient.
    assert calls_in(jax.grad(final), gate, input)[1] == ("linear_scan_vjp", 0b1010001, 0b001)
    assert calls_in(jax.grad(final, 1), gate, input) == [("linear_scan_vjp", 0b1000001, 0b010)]


def test_a_broadcast_gate_is_not_materialised():
    text = jax.jit(jax.grad(lambda g, x: jnp.sum(linear_scan(g, x) ** 2))).lower(
        jnp.ones(3), jnp.ones((2, 9, 3))
    )
    call = next(line for line in text.as_text().splitlines() if "linear_scan_vjp" in line)
    assert call.rstrip().endswith("-> tensor<1x1x3xf64>")


def test_gradients_are_equal_under_jit_checkpoint_and_lax_scan(random):
    gate, input = jnp.asarray(random(2, 9, 3)), jnp.asarray(random(2, 9, 3))
    loss = lambda *x: jnp.sum(linear_scan(*x) ** 3)
    want = jax.grad(loss, (0, 1))(gate, input)
    same(jax.jit(jax.grad(loss, (0, 1)))(gate, input), want, rtol=0, atol=0)
    same(jax.grad(jax.checkpoint(loss), (0, 1))(gate, input), want, rtol=0, atol=0)

    def stack(f):
        def run(gates, x):
            return jnp.sum(jax.lax.scan(lambda x, g: (f(g, x), None), x, gates)[0] ** 3)

        return run

    with jax.disable_jit():
        same(jax.grad(loss, (0, 1))(gate, input), want)

    gates = jnp.asarray(random(4, 3))
    got = jax.grad(stack(linear_scan), (0, 1))(gates, input)
    same(got, jax.grad(stack(lambda *x: by_lax_scan(*x)[0]), (0, 1))(gates, input))


def test_concurrent_calls_have_the_same_bits(random):
    gate, input = jnp.asarray(random(4, 3000, 64, scale=0.9)), jnp.asarray(random(4, 3000, 64))
    f = jax.jit(jax.grad(lambda *x: jnp.sum(linear_scan(*x) ** 2), (0, 1)))
    want, failures = f(gate, input), []

    def work():
        try:
            for _ in range(10):
                same(f(gate, input), want, rtol=0, atol=0)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_errors_in_handlers_raise_in_python(random):
    call = jax.ffi.ffi_call("scanrec_linear_scan_v1", jax.ShapeDtypeStruct((3,), np.float64))
    masks = {"stack": np.int64(-1), "operands": np.int64(3), "results": np.int64(1)}
    masks |= {"logarithms": np.int64(0), "forget_bias": np.float64(0)}
    x = jnp.ones(3)
    with pytest.raises(Exception, match="linear_scan: argument 'axis'"):
        call(
            x, x, axis=np.int64(5), reverse=False, shape=np.array([3]), **masks
        ).block_until_ready()
    assert linear_scan(1.0, jnp.ones(3), axis=0)[-1] == 3


ONES = np.ones((2, 9, 3))


@pytest.mark.parametrize(
    "error, words, call",
    [
        (ValueError, "'gate': expected a shape that broadcasts to (2, 9, 3), got (4,)",
         lambda x: linear_scan(np.ones(4), x)),
        (TypeError, "'input': expected one of float32", lambda x: linear_scan(0.5, x.astype(int))),
        (TypeError, "'gate': expected an array of numbers, got NoneType",
         lambda x: linear_scan(None, x)),
        (TypeError, "'gate': expected an array of numbers, got dict",
         lambda x: linear_scan({"gate": x}, x)),
        (TypeError, "'axis': expected an integer, got None", lambda x: linear_scan(0.5, x, axis=None)),
        (ValueError, "'axis': expected an axis of an input of shape (2, 9, 3), got -4",
         lambda x: linear_scan(0.5, x, axis=-4)),
        (ValueError, "'initial_state': expected a shape that broadcasts to (2, 3)",
         lambda x: linear_scan(0.5, x, x)),
        (TypeError, "'resets': expected booleans", lambda x: linear_scan(0.5, x, resets=x)),
        (ValueError, "'resets': expected", lambda x: linear_scan(0.5, x, resets=x[0, 0] > 0)),
        (TypeError, "'gate': expected a real type, got complex128",
         lambda x: linear_scan(0.5j, x, log_gate=True)),
        (TypeError, "'return_final': expected True or False, got 'y'",
         lambda x: linear_scan(0.5, x, return_final="y")),
    ],
)  # fmt: skip
def test_invalid_arguments_raise_when_traced(error, words, call):
    for run in (call, jax.jit(call)):
        with pytest.raises(error) as raised:
            run(ONES)
        assert words in str(raised.value)


def test_traced_options_and_numpy_calls_on_tracers_raise():
    reversed = lambda x, reverse: linear_scan(0.5, x, reverse=reverse)
    with pytest.raises(
        TypeError, match="'reverse': expected True or False, known when .*static_argnames"
    ):
        jax.jit(reversed)(ONES, True)
    jax.jit(reversed, static_argnames="reverse")(ONES, reverse=True)
    with pytest.raises(TypeError, match="'axis': expected an integer, known .*static_argnames"):
        jax.jit(lambda x, axis: linear_scan(0.5, x, axis=axis))(ONES, 0)
    with pytest.raises(
        TypeError, match=r"'input': expected an array of .*\(for traced or differentiated"
    ):
        jax.jit(lambda x: scanrec.linear_scan(0.5, x))(ONES)


# ---- several devices -----------------------------------------------------------------------------

shard_map = getattr(jax, "shard_map", None)
if shard_map is None:
    from jax.experimental.shard_map import shard_map

P = PartitionSpec


def collectives(f, *arrays):
    text = jax.jit(f).lower(*arrays).compile().as_text()
    return {name for name in ("all-gather", "all-reduce", "all-to-all", "permute") if name in text}


@pytest.mark.parametrize(
    "gate_shape, of_gate, of_input, expected",
    [
        ((4, 9, 6), P("d"), P("d"), set()),
        ((4, 9, 6), P(None, None, "d"), P(None, None, "d"), set()),
        ((6,), P(), P("d"), {"all-reduce"}),  # sums the gradient of the gate
    ],
)
def test_shard_map_equals_one_device(random, gate_shape, of_gate, of_input, expected):
    types = getattr(jax.sharding, "AxisType", None)
    mesh = jax.make_mesh((2,), ("d",), **({"axis_types": (types.Auto,)} if types else {}))
    arrays = jnp.asarray(random(*gate_shape)), jnp.asarray(random(4, 9, 6))
    parted = shard_map(linear_scan, mesh=mesh, in_specs=(of_gate, of_input), out_specs=of_input)
    gradient = lambda f: jax.grad(lambda *x: jnp.sum(f(*x) ** 3), (0, 1))
    same(jax.jit(gradient(parted))(*arrays), gradient(linear_scan)(*arrays))
    assert collectives(parted, *arrays) == set()
    assert collectives(gradient(parted), *arrays) == expected


@pytest.mark.skipif(not hasattr(jax, "set_mesh"), reason="needs JAX 0.7")
@pytest.mark.parametrize(
    "gate_shape, of_gate, of_input, expected",
    [
        ((4, 9, 6), P("d"), P("d"), set()),
        ((4, 9, 6), P(None, None, "d"), P(None, None, "d"), set()),
        ((6,), P(), P("d"), {"all-reduce"}),
        ((6,), P(), P(None, None, "d"), {"all-gather"}),  # gathers the gate gradient
    ],
)
def test_explicit_sharding_equals_one_device(random, gate_shape, of_gate, of_input, expected):
    mesh = jax.make_mesh((2,), ("d",), axis_types=(jax.sharding.AxisType.Explicit,))
    plain = random(*gate_shape), random(4, 9, 6)
    want = jax.grad(lambda *x: jnp.sum(linear_scan(*x) ** 3), (0, 1))(*plain)
    with jax.set_mesh(mesh):
        gate = jax.device_put(plain[0], NamedSharding(mesh, of_gate))
        input = jax.device_put(plain[1], NamedSharding(mesh, of_input))
        assert jax.typeof(linear_scan(gate, input)).sharding.spec == jax.typeof(input).sharding.spec
        gradient = jax.grad(lambda *x: jnp.sum(linear_scan(*x) ** 3), (0, 1))
        same(jax.jit(gradient)(gate, input), want)
        assert collectives(linear_scan, gate, input) == set()
        assert collectives(gradient, gate, input) <= expected
        second = lambda *x: jax.jvp(lambda *y: gradient(*y)[1], x, x)[1]
        # The mask includes the reset after the last step.
        first, reset_mask = np.ones(6), random.booleans(4, 10, 1)
        options = {"initial_state": first, "reverse": True, "resets": reset_mask}
        with_all = lambda *x: jax.grad(lambda *y: jnp.sum(linear_scan(*y, **options) ** 3), (0, 1))(
            *x
        )
        hessian = lambda *x: jax.jvp(with_all, x, x)[1]
        got = jax.jit(second)(gate, input), jax.jit(hessian)(gate, input)
    # Outside the mesh context, the arrays determine the mesh.
    same(linear_scan(gate, input), linear_scan(*map(jnp.asarray, plain)))
    same(jax.jit(gradient)(gate, input), want)
    same(got, (second(*map(jnp.asarray, plain)), hessian(*map(jnp.asarray, plain))))


@pytest.mark.skipif(not hasattr(jax, "shard_map"), reason="needs JAX 0.7")
@pytest.mark.parametrize("logs", [{}, {"log_gate": True, "log_input": True}], ids=["", "log"])
@pytest.mark.parametrize(
    "gate_shape, of_gate, of_input, expected",
    [
        ((4, 9, 6), P("d"), P("d"), set()),
        ((4, 9, 6), P("d", None, "e"), P("d", None, "e"), set()),
        ((6,), P("e"), P("d", None, "e"), {"all-reduce"}),  # sums the gradient of the gate
        ((6,), P(), P("d"), {"all-reduce"}),
    ],
)
def test_automatic_sharding_gathers_nothing(random, logs, gate_shape, of_gate, of_input, expected):
    mesh = jax.make_mesh((2, 3), ("d", "e"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    plain = -np.abs(random(*gate_shape)), random(4, 9, 6)
    reset_mask = random.booleans(4, 10, 1)  # an entry per step, and one after the last
    call = partial(linear_scan, resets=reset_mask, reverse=True, return_final=True, **logs)
    arrays = [jax.device_put(x, NamedSharding(mesh, s)) for x, s in zip(plain, (of_gate, of_input))]
    gradient = jax.grad(lambda *x: sum(jnp.sum(y**3) for y in call(*x)), (0, 1))
    tangent = lambda *x: jax.jvp(call, x, x)[1]
    for f, wanted in ((call, set()), (tangent, set()), (gradient, expected)):
        out = jax.jit(f)(*arrays)
        same(out, jax.jit(f)(*map(jnp.asarray, plain)))
        assert collectives(f, *arrays) == wanted
    assert [x.sharding.spec for x in out] == [of_gate, of_input]  # out has the gradients
    same(linear_scan(*arrays), linear_scan(*map(jnp.asarray, plain)))
    second = lambda *x: jax.jvp(gradient, x, x)[1]
    same(jax.jit(second)(*arrays), jax.jit(second)(*map(jnp.asarray, plain)))


@pytest.mark.skipif(not hasattr(jax, "shard_map"), reason="needs JAX 0.7")
def test_automatic_sharding_along_time_equals_one_device(random):
    """Steps are gathered, and so are sequences that do not split evenly over devices."""
    mesh = jax.make_mesh((2, 3), ("d", "e"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    gate, input = random(6), random(4, 8, 6)
    for spec in (P(None, "d", "e"), P("d", None, "e")):
        put = jax.device_put(input, NamedSharding(mesh, spec))
        for more in (0, 1):
            longer = lambda x: linear_scan(gate, jnp.concatenate([x, x[:more]]))  # noqa: B023
            same(jax.jit(longer)(put), longer(jnp.asarray(input)))


@pytest.mark.skipif(not hasattr(jax, "shard_map"), reason="needs JAX 0.7")
def test_shard_map_may_use_a_second_mesh(random):
    """XLA splits a program over one mesh, but shard_map brings its own mesh."""
    auto = jax.sharding.AxisType.Auto
    one = jax.make_mesh((2, 2), ("d", "e"), axis_types=(auto,) * 2)
    other = jax.make_mesh((4,), ("f",), axis_types=(auto,))
    input = random(4, 9, 6)
    parted = jax.shard_map(partial(linear_scan, 0.5), mesh=other, in_specs=P("f"), out_specs=P("f"))

    def call(x):
        return parted(jax.lax.with_sharding_constraint(x, NamedSharding(other, P("f"))))

    x = jax.device_put(input, NamedSharding(one, P("d")))
    same(jax.jit(call)(x), linear_scan(0.5, input))


@pytest.mark.skipif(not hasattr(jax, "set_mesh"), reason="needs JAX 0.7")
def test_tangents_split_along_time_raise(random):
    """Without the error, a device would scan its part of the steps as a whole sequence."""
    mesh = jax.make_mesh((2,), ("d",), axis_types=(jax.sharding.AxisType.Explicit,))
    with jax.set_mesh(mesh):
        whole = [jnp.asarray(random(2, 8, 3)) for _ in range(2)]
        parts = [jax.device_put(x, NamedSharding(mesh, P(None, "d"))) for x in whole]
        with pytest.raises(ValueError, match="an array that is not split along time, got"):
            jax.jvp(linear_scan, whole, parts)

# SPDX-License-Identifier: BSD-3-Clause
"""Tests of scanrec.jax.qrnn_pool, s5 and lru: values, derivatives, sharding and errors."""

from __future__ import annotations

import re

import numpy as np
import pytest
from conftest import Random, pooled

jax = pytest.importorskip("jax", reason="JAX is not installed")
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_num_cpu_devices", 8)

import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec
from jax_derivatives import check_derivatives

import scanrec.jax
from scanrec.jax import linear_scan, lru, qrnn_pool, s5

POOLS = {"f": 2, "fo": 3, "ifo": 4}


def same(got, want, **tolerance):
    got, want = jax.tree.leaves(got), jax.tree.leaves(want)
    assert len(got) == len(want)
    for x, y in zip(got, want):
        assert x.shape == y.shape
        np.testing.assert_allclose(x, y, **{"rtol": 1e-9, "atol": 1e-9, **tolerance})


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
    """Compute pooling with a linear scan and with functions that JAX differentiates."""
    if not isinstance(pre, (tuple, list)):
        pre = jnp.split(pre, POOLS[pool], -1)
    z, f, *others = pre
    gate = jnp.broadcast_to(jax.nn.sigmoid(f + forget_bias), z.shape)
    input = (jax.nn.sigmoid(others[1]) if len(others) > 1 else 1 - gate) * jnp.tanh(z)
    if zoneout is not None:
        gate, input = jnp.where(zoneout, 1, gate), jnp.where(zoneout, 0, input)
    state, final = linear_scan(
        gate, input, first, reverse=reverse, resets=resets, return_final=True
    )
    return (jax.nn.sigmoid(others[0]) if others else 1) * state, final


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("pool", POOLS)
def test_every_element_type_of_pooling_is_accurate(pool, dtype):
    dtype = jnp.dtype(dtype)
    pre = jnp.asarray(Random()(2, 33, 5 * POOLS[pool], scale=2.0), dtype)
    output, final = qrnn_pool(pre, pool=pool, return_final=True)
    want, _, last = pooled(np.split(np.asarray(pre, np.float64), POOLS[pool], -1))
    assert output.dtype == dtype and final.dtype == (dtype if dtype.itemsize > 2 else jnp.float32)
    rounding = {2: 2e-2, 4: 1e-6, 8: 1e-14}[dtype.itemsize]
    np.testing.assert_allclose(np.asarray(output, float), want.astype(float), atol=rounding)
    np.testing.assert_allclose(np.asarray(final, float), last.astype(float), atol=rounding)


@pytest.fixture(params=[(p, k, r) for p in POOLS for k, r in (("packed", False), ("apart", True))])
def problem(request):
    """Return qrnn_pool, `composed`, a function that makes a loss of either, operands, tangents."""
    pool, kind, reverse = request.param
    random = Random(3)
    parts = [jnp.asarray(random(2, 9, 4)) for _ in range(POOLS[pool])]
    options = {
        "pool": pool,
        "reverse": reverse,
        "resets": jnp.asarray(random.booleans(2, 9 + (pool != "f"), 1)),
        "zoneout": jnp.asarray(random.booleans(2, 9, 4)),
    }
    if kind == "apart":
        options |= {"forget_bias": 0.5, "memory": "recompute"}
    pre = jnp.concatenate(parts, -1) if kind == "packed" else parts
    weights = jnp.asarray(random(2, 9, 4)), jnp.asarray(random(2, 4))

    def loss_of(f):
        return lambda *x: sum(jnp.sum(w * jnp.sin(y)) for w, y in zip(weights, f(*x)))

    arrays = pre, jnp.asarray(random(2, 4))
    moves = jax.tree.map(lambda x: jnp.asarray(random(*x.shape)), arrays)
    ours = lambda *x: qrnn_pool(*x, return_final=True, **options)
    return ours, lambda *x: composed(*x, **options), loss_of, arrays, moves


def test_derivatives_of_pooling_equal_the_composition(problem):
    ours, theirs, loss_of, arrays, moves = problem

    def all_of(f):
        loss = loss_of(f)
        gradient = jax.grad(loss, (0, 1))
        dot = lambda x, y: sum(jnp.vdot(*p) for p in zip(jax.tree.leaves(x), jax.tree.leaves(y)))
        return {
            "value": f(*arrays),
            "reverse": gradient(*arrays),
            "final state alone": jax.grad(lambda *x: jnp.sum(f(*x)[1] ** 2), (0, 1))(*arrays),
            "forward": jax.jvp(f, arrays, moves)[1],
            "forward of reverse": jax.jvp(gradient, arrays, moves)[1],
            "reverse of reverse": jax.grad(lambda *x: dot(gradient(*x), moves), (0, 1))(*arrays),
            "reverse of forward": jax.grad(lambda *x: jax.jvp(loss, x, moves)[1], (0, 1))(*arrays),
            "one operand": jax.vmap(jax.grad(loss, 1), (None, 0))(
                arrays[0], jnp.stack([arrays[1], moves[1]])
            ),
            "batch": jax.vmap(gradient, (0, None))(
                jax.tree.map(lambda *x: jnp.stack(x), arrays[0], moves[0]), arrays[1]
            ),
        }

    got, want = jax.jit(lambda: all_of(ours))(), jax.jit(lambda: all_of(theirs))()
    for name in want:
        same(got[name], want[name])
        # The final state does not depend on the output gate.
        some = any if name == "final state alone" else all
        assert some(np.any(x) for x in jax.tree.leaves(got[name])), name


def test_gradient_of_pooling_runs_two_kernels():
    pre = jnp.ones((2, 9, 12))
    loss = lambda pre: jnp.sum(qrnn_pool(pre) ** 2)
    text = jax.jit(jax.grad(loss)).lower(pre).as_text()
    assert re.findall(r"scanrec_(\w+)_v1", text) == ["gated_scan", "gated_scan_vjp"]
    assert "concatenate" not in text and "slice" not in text  # packed arrays are not split
    assert "xf64>, tensor<2x9x4xf64>)" not in jax.jit(qrnn_pool).lower(pre).as_text()


@pytest.mark.parametrize("memory", ["store", "recompute"])
@pytest.mark.parametrize("pool", POOLS)
def test_compiled_final_state_alone_writes_no_outputs(random, pool, memory):
    """The gradient keeps states or checkpoints, but no other outputs."""
    pre = jnp.asarray(random(2, 9, 4 * POOLS[pool]))
    call = lambda pre: qrnn_pool(pre, pool=pool, memory=memory, return_final=True)[1]
    loss = lambda pre: jnp.sum(call(pre) ** 2)
    for f in (call, jax.grad(loss)):
        same(jax.jit(f)(pre), f(pre), rtol=0, atol=0)
    kernels = re.findall(r"scanrec_gated_scan_v1.*-> (.*)", jax.jit(call).lower(pre).as_text())
    assert kernels == ["tensor<2x1x4xf64>"]


@pytest.mark.parametrize("pool", POOLS)
def test_recompute_has_the_same_gradients_with_less_memory(random, pool):
    pre = jnp.asarray(random(2, 300, 8 * POOLS[pool]))
    loss = lambda memory: lambda pre: jnp.sum(jnp.sin(qrnn_pool(pre, pool=pool, memory=memory)))
    lean = jax.jit(jax.grad(loss("recompute")))
    assert jnp.array_equal(lean(pre), jax.jit(jax.grad(loss("store")))(pre))
    text = lean.lower(pre).as_text()
    assert "tensor<2x2x8xf64>" in text and ("tensor<2x300x8xf64>, tensor<2x300x8" not in text)

    def more(memory):
        twice = jax.grad(lambda x: jnp.sum(jax.grad(loss(memory))(x) ** 2))
        return jax.jit(lambda x: (twice(x), jax.jvp(loss(memory), (x,), (x,))))(pre)

    same(more("recompute"), more("store"))


def test_gradients_of_a_constant_gate_are_sums_over_time(random):
    z, f = jnp.asarray(random(2, 9, 4)), jnp.asarray(random(4))

    def derivatives(loss):
        return jax.jit(lambda f: [order(loss)(f) for order in (jax.grad, jax.hessian)])(f)

    got = derivatives(lambda f: jnp.sum(qrnn_pool((z, f), pool="f") ** 2))
    same(got, derivatives(lambda f: jnp.sum(composed((z, f), pool="f")[0] ** 2)))


def test_gradients_with_six_axes_equal_the_composition(random):
    """The library loops over outer axes and sums gradients over them. `pre` is packed."""
    pre, first = jnp.asarray(random(3, 2, 3, 2, 4, 12)), jnp.asarray(random(3, 1, 3, 1, 4))
    loss = lambda f: lambda *x: sum(jnp.sum(y**3) for y in f(*x))
    gradient = lambda f: jax.jit(jax.grad(loss(f), (0, 1)))(pre, first)
    same(gradient(lambda *x: qrnn_pool(*x, return_final=True)), gradient(composed))


def test_nan_in_zoned_out_steps_does_not_reach_values_or_derivatives(random):
    pre, zoneout = random(2, 9, 12), random.booleans(2, 9, 4)
    hidden = np.where(np.concatenate([zoneout, zoneout, np.zeros_like(zoneout)], -1), np.nan, pre)
    loss = lambda pre: jnp.sum(qrnn_pool(pre, zoneout=zoneout) ** 2)
    twice = jax.grad(lambda x: jnp.sum(jax.grad(loss)(x) ** 2))
    every_order = jax.jit(lambda x: (loss(x), jax.grad(loss)(x), twice(x)))
    same(every_order(hidden), every_order(pre))


@pytest.mark.skipif(not hasattr(jax, "set_mesh"), reason="needs JAX 0.7")
@pytest.mark.parametrize("packed", [True, False])
def test_explicit_sharding_of_pooling_equals_one_device(random, packed):
    plain = [random(4, 9, 6) for _ in range(3)]
    plain = np.stack(plain, -2).reshape(4, 9, 18) if packed else tuple(plain)
    loss = lambda pre: jnp.sum(qrnn_pool(pre) ** 3)
    second = lambda pre: jax.jvp(jax.grad(loss), (pre,), (pre,))[1]
    want, want_second = jax.jit(lambda pre: (jax.grad(loss)(pre), second(pre)))(plain)
    mesh = jax.make_mesh((2,), ("d",), axis_types=(jax.sharding.AxisType.Explicit,))
    with jax.set_mesh(mesh):
        pre = jax.tree.map(
            lambda x: jax.device_put(x, NamedSharding(mesh, PartitionSpec("d"))), plain
        )
        got = jax.jit(jax.grad(loss))(pre)
        text = jax.jit(jax.grad(loss)).lower(pre).compile().as_text()
        assert not {n for n in ("all-gather", "all-reduce", "all-to-all") if n in text}
        got_second = jax.jit(second)(pre)
    same(jax.jit(jax.grad(loss))(pre), want)  # outside the mesh context
    same(got, want)
    same(got_second, want_second)


@pytest.mark.skipif(not hasattr(jax, "set_mesh"), reason="needs JAX 0.7")
def test_results_of_a_lower_rank_have_a_sharding_of_their_rank(random):
    """Types of arrays that are not split contain the mesh, too."""
    pre, first = jnp.asarray(random(4, 9, 18)), jnp.asarray(random(4, 6))
    pool = lambda pre, first: qrnn_pool(pre, first, axis=1, return_final=True)
    mesh = jax.make_mesh((2,), ("d",), axis_types=(jax.sharding.AxisType.Explicit,))
    with jax.set_mesh(mesh):
        got = pool(pre, first)
        compiled = jax.jit(pool)(pre, first)
    same(got, pool(pre, first))
    same(compiled, got)


@pytest.mark.skipif(not hasattr(jax, "shard_map"), reason="needs JAX 0.7")
@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("memory", ["store", "recompute"])
def test_automatic_sharding_gathers_nothing(random, memory, packed):
    mesh = jax.make_mesh((2,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    split = NamedSharding(mesh, PartitionSpec("d"))
    pre = tuple(jnp.asarray(random(4, 140, 6)) for _ in range(3))
    pre = jnp.concatenate(pre, -1) if packed else pre
    parts = jax.tree.map(lambda x: jax.device_put(x, split), pre)
    call = lambda pre: qrnn_pool(pre, memory=memory)
    gradient = jax.grad(lambda pre: jnp.sum(call(pre) ** 3))
    tangent = lambda pre: jax.jvp(call, (pre,), (pre,))[1]
    for f in (call, gradient, tangent):
        got = jax.jit(f)(parts)
        same(got, jax.jit(f)(pre))
        assert all(x.sharding.is_equivalent_to(split, 3) for x in jax.tree.leaves(got))
        assert "all-" not in jax.jit(f).lower(parts).compile().as_text()


@pytest.mark.parametrize("packed", [True, False])
def test_shard_map_of_pooling_equals_one_device(random, packed):
    """If `pre` is not packed, devices share a forget gate. Its derivatives are summed."""
    shard_map = getattr(jax, "shard_map", None)
    if shard_map is None:
        from jax.experimental.shard_map import shard_map
    types = getattr(jax.sharding, "AxisType", None)
    mesh = jax.make_mesh((2,), ("d",), **({"axis_types": (types.Auto,)} if types else {}))
    split, whole = PartitionSpec("d"), PartitionSpec()
    if packed:
        pre, specs = jnp.asarray(random(4, 9, 18)), split
    else:
        pre = [jnp.asarray(random(*shape)) for shape in ((4, 9, 6), (6,), (4, 9, 6))]
        specs = [split, whole, split]
    parted = shard_map(qrnn_pool, mesh=mesh, in_specs=(specs,), out_specs=split)
    gradient = lambda f: jax.grad(lambda pre: jnp.sum(f(pre) ** 3))
    second = lambda f: lambda pre: jax.jvp(gradient(f), (pre,), (pre,))[1]
    again = lambda f: jax.grad(
        lambda pre: sum(jnp.sum(g**2) for g in jax.tree.leaves(gradient(f)(pre)))
    )
    for of in (gradient, second, again):
        same(jax.jit(of(parted))(pre), jax.jit(of(qrnn_pool))(pre))


# ---- state spaces --------------------------------------------------------------------------------


def system(random, both_ways=False):
    complex_of = lambda *s: random(*s, dtype=np.complex128)
    lambda_ = -np.abs(random(4)) + 3j * random(4)
    c = complex_of(3, 8 if both_ways else 4)
    return lambda_, complex_of(4, 3), c


def stepwise(u, gate, drive, c, twice, first):
    """Run a system one step at a time."""
    state, out = first, []
    for t in range(u.shape[1]):
        state = gate[t] * state + drive[:, t]
        out.append(twice * (state @ c.T).real)
    return np.stack(out, 1), state


@pytest.mark.parametrize("method", ["zero_order_hold", "bilinear"])
@pytest.mark.parametrize("irregular", [False, True])
def test_s5_equals_the_loop(random, method, irregular):
    lambda_, b, c = system(random)
    u, d, log_step = random(2, 11, 3), random(3), random(4) - 2
    first, times = random(2, 4, dtype=np.complex128), np.abs(random(11)) if irregular else None
    step = np.exp(log_step) * (np.ones(11) if times is None else times)[:, None]
    z = lambda_ * step
    if method == "bilinear":
        gate, scale = (1 + z / 2) / (1 - z / 2), step / (1 - z / 2)
    else:
        gate, scale = np.exp(z), (np.exp(z) - 1) / lambda_
    want, final = stepwise(u, gate, scale * (u @ b.T), c, 2, first)
    got = s5(u, lambda_, b, c, d, log_step, first, discretisation=method,
             intervals=times, return_final=True)  # fmt: skip
    same(got, (want + d * u, final))


def test_bidirectional_s5_equals_the_sum_of_two_scans(random):
    lambda_, b, c = system(random, both_ways=True)
    u = random(2, 11, 3)
    ahead = s5(u, lambda_, b, c[:, :4], conjugate_symmetry=False)
    back = s5(u[:, ::-1], lambda_, b, c[:, 4:], conjugate_symmetry=False)[:, ::-1]
    same(s5(u, lambda_, b, c, conjugate_symmetry=False), ahead + back)
    resets = random.booleans(2, 12)  # a reset after the last step has no effect
    resets[0, 11] = True
    got, want = (s5(u, lambda_, b, c, resets=reset_mask) for reset_mask in (resets, resets[:, :11]))
    same(got, want, rtol=0, atol=0)


def test_lru_equals_the_loop(random):
    _, b, c = system(random)
    u, nu, theta = random(2, 11, 3), random(4), random(4)
    gate = np.exp(-np.exp(nu) + 1j * np.exp(theta))
    drive = np.sqrt(1 - np.abs(gate) ** 2) * (u @ b.T)
    want, _ = stepwise(u, np.broadcast_to(gate, (11, 4)), drive, c, 1, np.zeros((2, 4)))
    same(lru(u, nu, theta, b, c), want)


@pytest.mark.parametrize("call", [s5, lru])
def test_reverse_state_spaces_equal_the_mirrored_sequence(random, call):
    """Derivatives are compared, too. A reset after the last step clears the initial state."""
    lambda_, b, c = system(random)
    diagonal = (lambda_,) if call is s5 else (random(4), random(4))
    u, first = jnp.asarray(random(2, 5, 3)), jnp.asarray(random(2, 4, dtype=np.complex128))
    reset_mask = np.array([[0, 0, 1, 0, 0, 1], [1, 0, 0, 0, 1, 0]], bool)
    options = {"return_final": True}
    mirrored = {"resets": reset_mask[:, :0:-1]}
    if call is s5:
        times = np.abs(random(5)) + 0.2
        options["intervals"], mirrored["intervals"] = times, times[::-1]

    def ours(u, first, reset_mask=reset_mask):
        return call(
            u, *diagonal, b, c, initial_state=first, reverse=True, resets=reset_mask, **options
        )

    def theirs(u, first):
        kept = {**options, **mirrored}
        y, final = call(u[:, ::-1], *diagonal, b, c, initial_state=first, **kept)
        return y[:, ::-1], final

    loss = lambda f: (
        lambda u, real: sum(
            jnp.sum(jnp.sin(y.real) + y.imag**2) for y in f(u, jax.lax.complex(real, first.imag))
        )
    )
    at = u, first.real
    gradient = lambda f: jax.grad(loss(f), (0, 1))
    second = lambda f: jax.jvp(gradient(f), at, at)[1]

    def all_of(f):
        many = jax.vmap(f)(jnp.stack([u, 2 * u]), jnp.stack([first, -first]))
        return f(u, first), gradient(f)(*at), second(f), many

    same(*(jax.jit(lambda f=f: all_of(f))() for f in (ours, theirs)))
    assert not np.allclose(ours(u, first)[1], ours(u, 2 * first, None)[1])
    same(
        ours(u, first, reset_mask[:, :5])[0][1], ours(u, first)[0][1]
    )  # sequence 1 has no reset after the last step


def test_derivatives_of_state_spaces_equal_differences(random):
    lambda_, b, c = system(random)
    u, log_step, times = random(2, 7, 3), random(4) - 2, np.abs(random(7)) + 0.2

    def of_s5(u, real, imag, log_step, times):
        lambda_ = jax.lax.complex(real, imag)
        return jnp.sin(s5(u, lambda_, b, c, None, log_step, intervals=times))

    of_lru = lambda u, nu, theta: jnp.sin(lru(u, nu, theta, b, c))
    check_derivatives(of_s5, (u, lambda_.real, lambda_.imag, log_step, times), random)
    check_derivatives(of_lru, (u, random(4), random(4)), random)


@pytest.mark.parametrize("nu", [-np.inf, -90.0, 100.0, np.inf])
def test_gates_that_round_to_0_or_1_have_zero_gradients(nu):
    """The first gate rounds to 0 or 1 and has zero gradients. The second has nonzero gradients."""
    real = lambda *x: jnp.asarray(x, "float32")
    u, b = jnp.ones((5, 1), "float32"), jnp.ones((2, 1), "complex64")
    loss = lambda nu, theta: jnp.sum(jnp.sin(lru(u, nu, theta, b[: nu.size], b[: nu.size].T)))
    gradient = jax.jit(jax.grad(loss, (0, 1)))
    at, moves = (real(nu, 0.5), real(0.3, -0.2)), (real(1, 1), real(1, 1))
    second = jax.jit(lambda *x: jax.jvp(jax.grad(loss), x, moves)[1])
    for found in (*gradient(*at), second(*at)):
        assert np.all(np.isfinite(found)) and found[0] == 0 != found[1]


def test_discretisation_near_zero_equals_its_series():
    """A discretisation by (exp(z) - 1) / z would lose digits by cancellation."""
    from scanrec._op.state_space.jax import _System

    for z in (0.0, 1e-9 + 1e-9j, 1e-3j, 0.4 + 0.3j, 0.49, 0.51):
        want = sum(complex(z) ** k / np.prod(np.arange(1.0, k + 2)) for k in range(25))
        np.testing.assert_allclose(_System.phi(jnp.asarray(complex(z))), want, rtol=1e-14)


# ---- errors --------------------------------------------------------------------------------------

X, Z = np.ones((2, 9, 6)), np.ones((4, 6), complex)


@pytest.mark.parametrize(
    "error, words, call",
    [
        (ValueError, "'pool': expected one of 'f', 'fo', 'ifo', got 'fifo'", lambda: qrnn_pool(X, pool="fifo")),
        (ValueError, "'pre': expected a multiple of 4 channels", lambda: qrnn_pool(X, pool="ifo")),
        (ValueError, "'pre': expected 3 arrays for pool 'fo', got 2", lambda: qrnn_pool((X, X))),
        (ValueError, "'forget_gate': expected a shape", lambda: qrnn_pool((X, X[:, :5]), pool="f")),
        (ValueError, "'pre': expected a time axis and a channel axis", lambda: qrnn_pool(X[0, 0], axis=-1)),
        (TypeError, "'pre': expected a real type", lambda: qrnn_pool(X * 1j)),
        (TypeError, "'zoneout': expected booleans", lambda: qrnn_pool(X, zoneout=X)),
        (ValueError, "'c': expected shape (Q, 4), or (Q, 8)", lambda: s5(X, Z[:, 0], Z, Z)),
        (TypeError, "s5: argument 'c': expected an array, got None", lambda: s5(X, Z[:, 0], Z, None)),
        (TypeError, "lru: argument 'u': expected an array", lambda: lru(None, None, None, Z, Z.T)),
        (TypeError, "lru: argument 'nu': expected an array", lambda: lru(X, None, None, Z, Z.T)),
        (TypeError, "'initial_state': expected an array of numbers", lambda: s5(X, Z[:, 0], Z, Z.T, initial_state="a")),
        (TypeError, "'u': expected an array of numbers, got", lambda: lru("a", X[0, :4, 0], X[0, :4, 0], Z, Z.T)),
        (TypeError, "'lambda_': expected complex64", lambda: s5(X, X[0, :4, 0], Z, Z.T)),
        (ValueError, "'discretisation': expected", lambda: s5(X, Z[:, 0], Z, Z.T, discretisation="?")),
        (ValueError, "'b': expected shape (4, 6)", lambda: lru(X, X[0, :4, 0], X[0, :4, 0], Z[:3], Z.T)),
        (ValueError, "'reverse': expected False for a bidirectional system", lambda: s5(X, Z[:, 0], Z, np.ones((6, 8), complex), reverse=True)),
    ],
)  # fmt: skip
def test_invalid_arguments_raise(error, words, call):
    with pytest.raises(error) as raised:
        call()
    assert words in str(raised.value)


def test_module_exports_only_its_operations():
    assert set(scanrec.jax.__all__) == {
        *("causal_conv1d", "causal_conv1d_update", "linear_scan", "lru", "qrnn_pool", "s5"),
        *("selective_scan", "selective_state_update"),
    }

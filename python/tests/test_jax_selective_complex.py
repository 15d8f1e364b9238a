# SPDX-License-Identifier: BSD-3-Clause
"""Tests of scanrec.jax.selective_scan with complex states.

Further tests, in test_jax_selective_scan.py, compare such scans and their derivatives with a loop.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed")

import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax_derivatives import check_derivatives
from test_jax_selective_scan import (
    OF_STATES,
    OF_STEPS,
    SEQUENCES,
    arrays_of,
    as_function,
    bits,
    calls_in,
    collectives,
    loss_of,
    ours,
    random_like,
    same,
    shard_map,
    split_over,
    theirs,
)

from scanrec.jax import selective_scan, selective_state_update

arrays_of = partial(arrays_of, is_complex=True)


def on_device(given):
    return {name: jnp.asarray(x) for name, x in given.items()}


def weights_of(random, given):
    """Return weights of a loss, for outputs and final states."""
    final = jnp.zeros((given["u"].shape[0], *given["A"].shape), given["A"].dtype)
    return random(*given["u"].shape), random_like(random, final)


def parts_of(x):
    """Return real and imaginary parts, alternating along the last axis."""
    return jnp.stack([x.real, x.imag], -1).reshape(*x.shape[:-1], 2 * x.shape[-1])


def whole_of(x):
    return jax.lax.complex(x[..., ::2], x[..., 1::2])


def squares(x):
    return jnp.sum(x.real**2 + x.imag**2)


@pytest.mark.parametrize("groups, steps", [(None, 9), (2, 150)])
def test_b_and_c_as_real_parts_equal_complex_numbers(random, groups, steps):
    """Gradients of parts are real, so no convention of conjugation applies."""
    given = on_device(arrays_of(random, steps=steps, groups=groups))
    of_parts = {n: parts_of(x) if n in ("B", "C") else x for n, x in given.items()}
    whole = lambda x: ours(**{n: whole_of(v) if n in ("B", "C") else v for n, v in x.items()})
    bits(ours(**of_parts), ours(**given))
    weights = weights_of(random, given)
    loss = lambda f: lambda x: loss_of(f, weights)(x)
    got = lambda x: ours(**x)
    gradient = lambda f: jax.grad(loss(f))
    bits(*(jax.jit(gradient(f))(of_parts) for f in (got, whole)))
    move = lambda f: lambda x: jax.jvp(f, (x,), (x,))[1]
    same(*(jax.jit(move(f))(of_parts) for f in (got, whole)))
    if steps < 100:
        same(*(jax.jit(move(gradient(f)))(of_parts) for f in (got, whole)), rtol=1e-9, atol=1e-10)
    with_one = {**given, "C": of_parts["C"]}  # only C is in parts
    bits(ours(**with_one), ours(**given))
    many = jax.vmap(lambda b: ours(**{**of_parts, "B": b}))(
        jnp.stack([of_parts["B"], 2 * of_parts["B"]])
    )
    same([x[0] for x in many], list(ours(**given)))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_element_types_of_16_and_32_bits_are_accurate(random, dtype):
    """u, delta, z and B have the type `dtype`. Other arrays are float32 or complex64.

    Outputs are within one epsilon of `dtype` of results in complex128 for the same numbers.
    """
    given = on_device(arrays_of(random, steps=200))
    given = {n: x.astype(np.complex64 if n in OF_STATES else np.float32) for n, x in given.items()}
    given["B"] = parts_of(given["B"])
    given |= {n: given[n].astype(dtype) for n in (*SEQUENCES, "B")}
    widened = lambda x: x.astype(np.complex128 if jnp.iscomplexobj(x) else np.float64)
    wide = {n: widened(x) for n, x in given.items()}
    plain = lambda **x: theirs(**{**x, "B": whole_of(x["B"])})
    out, final = ours(**given)
    assert out.dtype == dtype and final.dtype == np.complex64
    want, last = plain(**wide)
    unit = float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(np.asarray(out, float), want, rtol=unit, atol=6e-6)
    np.testing.assert_allclose(final, last, rtol=1e-5, atol=6e-6)
    weights = weights_of(random, given)
    loss = lambda f: lambda x: sum(jnp.sum(w * widened(y)).real for w, y in zip(weights, f(**x)))
    got, want = jax.jit(jax.grad(loss(ours)))(given), jax.jit(jax.grad(loss(plain)))(wide)
    for name in given:
        assert got[name].dtype == given[name].dtype
        # Cotangents are rounded to the type of the outputs.
        scale = np.max(np.abs(want[name]))
        error = np.max(np.abs(widened(got[name]) - want[name]))
        assert error < (3 * unit + 1e-5) * scale, name


def test_real_states_and_weights_become_complex(random):
    given = on_device(arrays_of(random, of="channel channel"))
    given |= {name: given[name].real for name in ("B", "C", "initial_state")}
    wide = {n: x.astype(given["A"].dtype) if n in OF_STATES else x for n, x in given.items()}
    bits(ours(**given), ours(**wide))
    weights = weights_of(random, given)
    gradient = lambda x: jax.grad(lambda x: loss_of(lambda x: ours(**x), weights)(x))(x)
    got, want = gradient(given), gradient(wide)
    for name in given:
        assert got[name].dtype == given[name].dtype
        same(got[name], want[name].real if name in ("B", "C", "initial_state") else want[name])


def test_derivatives_equal_differences(random):
    given = arrays_of(random, 1, 4, 2, 2)
    resets = np.zeros((1, 4, 1), bool)
    resets[0, 2] = True
    f = as_function(
        selective_scan, tuple(given), delta_softplus=True, return_final=True, resets=resets
    )
    arrays = tuple(map(jnp.asarray, given.values()))
    check_derivatives(f, arrays, random, order=1)


def test_jacobians_equal_the_loop(random):
    """The final state is holomorphic in A, B and the initial state.

    Outputs are real functions of the real and imaginary parts of A.
    """
    given = on_device(arrays_of(random, 1, 5, 2, 2))
    names = ("A", "B", "initial_state")
    every = tuple(given[name] for name in names)
    final = lambda f: lambda *x: f(**{**given, **dict(zip(names, x))})[1]
    of_parts = lambda f: lambda re, im: f(**{**given, "A": jax.lax.complex(re, im)})[0]
    A = given["A"].real, given["A"].imag
    analytic = lambda f, of: jax.jit(of(final(f), (0, 1, 2), holomorphic=True))(*every)
    real = lambda f, of: jax.jit(of(of_parts(f), (0, 1)))(*A)
    for of in (jax.jacrev, jax.jacfwd):
        same(analytic(ours, of), analytic(theirs, of))
        same(real(ours, of), real(theirs, of))
    hessian = lambda f: jax.jit(jax.hessian(lambda *x: jnp.sum(of_parts(f)(*x) ** 2), (0, 1)))(*A)
    same(hessian(ours), hessian(theirs), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("names, of", [(("u", "B", "initial_state"), "steps steps"),
                                       (("A", "C"), "steps channel")])  # fmt: skip
def test_vmap_equals_a_loop_over_the_batch(random, names, of):
    """Batches become more sequences, or more channels if weights are batched."""
    given = on_device(arrays_of(random, 2, 5, 4, 2, None, of))
    if "A" in names:
        given.pop("intervals")
    many = {n: jnp.stack([x, 0.5 * x, -x if n != "A" else x.conj()])
            for n, x in given.items() if n in names}  # fmt: skip
    weights = weights_of(random, given)
    value = lambda x: ours(**{**given, **x})
    gradient = jax.grad(lambda x: loss_of(value, weights)(x))
    for f in (value, gradient):
        each = [jax.jit(f)({n: x[i] for n, x in many.items()}) for i in range(3)]
        same(jax.jit(jax.vmap(f))(many), jax.tree.map(lambda *x: jnp.stack(x), *each))


def test_gradients_run_two_calls_with_the_same_bits_in_every_program(random):
    given = on_device(arrays_of(random, steps=150))
    loss = lambda x: sum(squares(y) for y in ours(**x))
    gradient = jax.grad(loss)
    calls = calls_in(gradient, given)
    assert [name for name, *_ in calls] == ["selective_scan", "selective_scan_vjp"]
    want = gradient(given)
    bits(jax.jit(gradient)(given), want)
    bits(jax.grad(jax.checkpoint(loss))(given), want)
    with jax.disable_jit():
        same(gradient(given), want)


def test_exported_programs_have_the_same_bits(random):
    given = on_device(arrays_of(random))
    gradient = jax.jit(jax.grad(lambda x: sum(squares(y) for y in ours(**x))))
    export = pytest.importorskip("jax.export", reason="jax.export needs absl here")
    names = (name for name, *_ in calls_in(gradient, given))
    allowed = [export.DisabledSafetyCheck.custom_call(f"scanrec_{name}_v1") for name in names]
    exported = export.export(gradient, disabled_checks=allowed)(given)
    bits(exported.call(given), gradient(given))


def test_chunks_and_single_steps_have_the_bits_of_the_whole_sequence(random):
    given = on_device(arrays_of(random, steps=131, groups=2))
    given.pop("intervals")
    want, last = ours(**given)
    state, outs = given.pop("initial_state"), []
    for part in (slice(0, 129), slice(129, 130)):
        chunk = {n: x[:, part] if n in OF_STEPS else x for n, x in given.items()}
        out, state = ours(**chunk, initial_state=state)
        outs.append(out)
    names = {"u": "x", "delta": "dt", "delta_bias": "dt_bias"}
    now = {names.get(n, n): x[:, 130] if n in OF_STEPS else x for n, x in given.items()}
    step = partial(selective_state_update, state, dt_softplus=True)
    out, state = step(**now)
    bits((jnp.concatenate([*outs, out[:, None]], 1), state), (want, last))
    bits(step(**{**now, "B": parts_of(now["B"])}), (out, state))


@pytest.mark.parametrize("batch, steps", [(0, 5), (2, 0)])
def test_derivatives_of_empty_problems_equal_the_loop(random, batch, steps):
    given = on_device(arrays_of(random, batch, steps))
    given["B"] = parts_of(given["B"])
    plain = lambda **x: theirs(**{**x, "B": whole_of(x["B"])})
    total = lambda f: lambda x: sum(squares(y) for y in f(**x))
    same(*(jax.jit(jax.grad(total(f)))(given) for f in (ours, plain)))
    push = lambda f: jax.jit(lambda x: jax.jvp(lambda x: f(**x), (x,), (x,))[1])(given)
    same(push(ours), push(plain))


@pytest.mark.skipif(not hasattr(jax, "set_mesh"), reason="needs JAX 0.7")
@pytest.mark.parametrize("kind", ["Auto", "Explicit"])
def test_several_devices_equal_one(random, kind):
    """Arrays are split by sequences and channels. Gradients of shared arrays are summed."""
    types = (getattr(jax.sharding.AxisType, kind),) * 2
    mesh = jax.make_mesh((2, 4), ("d", "e"), axis_types=types)
    plain = on_device(arrays_of(random, 4, 5, 8, 2))
    weights = weights_of(random, plain)
    specs = {n: spec for n, spec in split_over("d", "e").items() if n in plain}
    f = lambda x: ours(**x)
    gradient = lambda f: jax.jit(jax.grad(lambda x: loss_of(f, weights)(x)))
    push = lambda x: jax.jvp(jax.grad(lambda x: loss_of(f, weights)(x)), (x,), (x,))[1]
    value, want, second = f(plain), gradient(f)(plain), jax.jit(push)(plain)
    with jax.set_mesh(mesh):
        given = {n: jax.device_put(x, NamedSharding(mesh, specs[n])) for n, x in plain.items()}
        if kind == "Auto":
            out_specs = specs["u"], specs["initial_state"]
            f = shard_map(f, mesh=mesh, in_specs=(specs,), out_specs=out_specs)
        assert collectives(f, given) == set()
        bits(jax.jit(f)(given), value)
        got = gradient(f)(given)
        same(got, want)
        if kind == "Explicit":
            for name, g in got.items():
                assert jax.typeof(g).sharding.spec == jax.typeof(given[name]).sharding.spec
            same(jax.jit(push)(given), second, rtol=1e-9, atol=1e-10)

# SPDX-License-Identifier: BSD-3-Clause
"""Tests of scanrec.compat against recorded results of the packages that it replaces.

They cover values, gradients, errors and intended differences.
"""

from __future__ import annotations

import enum
import importlib
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from compat_calls import Affine, Resettable, called, framework, ours
from compat_cases import CASES, jax_results, torch_results
from conftest import SlowDecay

KEPT = np.load(Path(__file__).parent / "data" / "compat.npz")
INDEX = json.loads(KEPT["index"].tobytes())


def kept():
    """Return the recorded results by case name, in the order of the file."""
    results, at = {}, 0
    for name, made in INDEX.items():
        results[name] = []
        for shape, dtype in made:
            pairs = 2 if dtype.startswith("complex") else 1
            count = pairs * int(np.prod(shape))
            x = KEPT["numbers"][at : at + count]
            x = x.view(complex) if pairs == 2 else x
            results[name].append(x.reshape(shape).astype(dtype))
            at += count
    assert at == len(KEPT["numbers"])
    return results


WANTED = kept()


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_values_and_gradients_equal_the_recorded_ones(case):
    """The tolerance covers a few roundings in each of 9 steps, relative to the largest number."""
    call, arguments = called(case)
    results = {"torch": torch_results, "jax": jax_results}[case.framework]
    got = results(call, arguments)
    assert [[list(x.shape), x.dtype.name] for x in got] == INDEX[case.name]
    for x, y in zip(got, WANTED[case.name], strict=True):
        assert np.abs(x ^ y if x.dtype == bool else x - y).max() <= 1e-13 * (1 + np.abs(y).max())


def test_every_case_has_recorded_results():
    assert list(INDEX) == [case.name for case in CASES]


def imports(modules):
    """Return which of JAX and PyTorch a new process loads for these modules of scanrec.compat."""
    names = ", ".join(f"scanrec.compat.{module}" for module in modules)
    code = f"import sys, {names}; print(*sorted(sys.modules.keys() & {{'jax', 'torch'}}))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", code]
    ran = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return ran.stdout.split()


def test_importing_s5_imports_no_framework():
    assert imports(["s5"]) == []


@pytest.mark.parametrize("kind", ["torch", "jax"])
def test_a_module_imports_only_its_own_framework(kind):
    framework(kind)
    modules = {case.ours.partition(".")[0] for case in CASES if case.framework == kind} - {"s5"}
    assert imports(modules) == [kind]


def test_accelerated_scan_exports_the_scan_of_warp():
    framework("torch")
    from scanrec.compat.accelerated_scan import scan, warp

    assert scan is warp.scan


def refused(call, error, words, *arguments, **options):
    with pytest.raises(error, match=words):
        call(*arguments, **options)


def test_invalid_arguments_raise_in_torch():
    torch = framework("torch")
    x, c = torch.zeros(2, 3, 4), torch.zeros(2, 3, 4, dtype=torch.complex64)
    scan = ours("accelerated_scan.warp.scan")
    refused(scan, ValueError, r"scan: argument 'gates': expected shape \(2, 3, 4\)", x[:1], x)
    refused(scan, ValueError, r"'tokens': expected shape \(B, C, T\), got \(2, 3\)", x, x[..., 0])
    refused(scan, TypeError, "'gates': expected a dense tensor", x.to_sparse(), x)
    refused(scan, TypeError, "'gates': expected a tensor, got list", [1], x)
    refused(scan, TypeError, "'tokens': expected one of float32.*got int64", x, x.long())
    scan = ours("accelerated_scan.ref.scan")
    refused(scan, ValueError, "'mul': expected torch.mul", x, x, mul=torch.matmul)
    refused(ours("accelerated_scan.complex.scan"), TypeError, "'forget': .*complex", x, x)
    logarithms = ours("minGRU_pytorch.heinsen_associative_scan_log")
    refused(logarithms, TypeError, "'log_values': expected a real type", x, x + 0j)
    pscan = ours("mambapy.pscan")
    refused(pscan, ValueError, "'A': expected a shape that broadcasts", x[:, None, :2], x[:, None])
    selective_scan = ours("mambapy.selective_scan")
    a, d = x[0], x[0, :, 0]
    refused(selective_scan, TypeError, "'C': expected a real", x, x, a.T, x[..., :3], c[..., :3], d)
    apply_ssm = ours("s5.s5_model.apply_ssm")
    given = {"Lambda_bars": c[0, :, 0], "B_bars": c[0], "D": x[0, 0], "input_sequence": x[0]}
    state = {"C_tilde": c[0, :2].reshape(4, 2).repeat(1, 3), "state": c[0, :, 0], "bidir": True}
    refused(apply_ssm, ValueError, "'state': expected None with 'bidir'", **given, **state)
    lpc = ours("torchlpc.sample_wise_lpc")
    refused(lpc, TypeError, "'return_zf': expected True", x[..., 0], x[..., :1], None, "yes")
    refused(lpc, ValueError, r"'a': expected shape \(2, 3, 1\), got \(2, 3, 4\)", x[..., 0], x)
    apply = ours("torchlpc.Recurrence.apply")
    refused(apply, ValueError, r"^Recurrence.apply: argument 'decay': .* \(3, 4\)", x, a, a[:, 0])
    refused(apply, TypeError, "'initial_state': expected a tensor", a, a, None)
    gae = ours("torchrl.generalized_advantage_estimate")
    refused(gae, TypeError, "'done': expected a tensor of booleans", 0.9, 0.9, x, x, x, x)
    refused(gae, ValueError, "'reward': expected shape", 0.9, 0.9, x, x, x[:1], x > 0)
    refused(gae, ValueError, "'time_dim'", 0.9, 0.9, x, x, x, x > 0, time_dim=3)
    refused(gae, TypeError, "'gamma': expected a number or a tensor", None, 0.9, x, x, x, x > 0)
    refused(gae, TypeError, "'lmbda': .* of a real type", 0.9, c, x, x, x, x > 0)
    given = 0.9, 0.9, x, x, x, x > 0
    refused(gae, TypeError, "'terminated': expected a tensor of booleans", *given, x)
    refused(gae, ValueError, "'terminated': expected shape", *given, x[0] > 0)
    td_lambda = ours("torchrl.td_lambda_return_estimate")
    refused(td_lambda, ValueError, "'rolling_gamma'", 0.9, 0.9, x, x, x > 0, rolling_gamma=False)


VECTORISED = ("generalized", "td1_return", "td1", "td_lambda_return", "td_lambda")


@pytest.mark.parametrize("function", [*VECTORISED, *(f"vec_{name}" for name in VECTORISED)])
def test_errors_name_the_called_function(function):
    torch = framework("torch")
    name = f"{function}_estimate" if "return" in function else f"{function}_advantage_estimate"
    call = ours(f"torchrl.{name}")
    x, done = torch.zeros(5, 1), torch.zeros(5, 1, dtype=torch.bool)
    factors = [0.9] * (1 + ("td1" not in name))
    values = [x[1:], x] if "advantage" in name else [x[1:]]
    refused(call, ValueError, f"^{name}: argument", *factors, *values, x, done)


def test_invalid_arguments_raise_in_philtorch():
    torch = framework("torch")
    x, c = torch.zeros(2, 9), torch.zeros(3, dtype=torch.complex64)
    a, eye = torch.zeros(2), torch.eye(3)
    lti = lambda name: ours(f"philtorch.lti.{name}")
    recurrence = lti("linear_recurrence")
    refused(recurrence, ValueError, "'unroll_factor'", a, a, x, unroll_factor=0)
    wide = x.unsqueeze(-1).expand(2, 9, 3)
    refused(
        ours("philtorch.recurrence"), ValueError, r"'x': expected shape \(B, T, 1\)", eye, x, wide
    )
    for module, lead in (("philtorch.lti", ()), ("philtorch.lpv", (9,))):
        call = ours(f"{module}.state_space_recursion")
        matrices = eye.expand(*lead, 3, 3)
        refused(call, ValueError, "'A': .*diag_state_space with L", matrices, x[:, :3], wide)
        one = matrices[..., :1, :1]
        refused(call, ValueError, r"'zi': expected shape \(2, 1\)", one, x, x)
        refused(
            call,
            ValueError,
            "'out_idx': expected the index of one of 1",
            one,
            x[:, :1],
            x,
            out_idx=1,
        )
        refused(call, ValueError, r"'A': expected shape \(", one.expand(4, 9, 1, 1), x[:, :1], x)
    refused(lti("state_space"), ValueError, "'A': .*diag_state_space with L", eye, x)
    varying = ours("philtorch.lpv.state_space")
    one = eye[:1, :1].expand(9, 1, 1)
    refused(varying, ValueError, r"'B': expected one of the shapes \(M\), .*\(B, N, M\)", one, x, c)
    refused(varying, ValueError, "'D': expected a matrix for outputs", one, x, D=c)
    diagonal = lti("diag_state_space")
    refused(diagonal, ValueError, "'L': .*got neither", x)
    refused(diagonal, ValueError, r"'V': expected shape \(3, 3\)", x, c, eye[:2])
    refused(diagonal, ValueError, r"'A': expected shape \(2, 3, 3\)", x, A=eye.expand(4, 3, 3))
    refused(diagonal, ValueError, r"'B': expected shape \(3,\) or \(2, 3\)", x, c, B=eye)
    refused(diagonal, ValueError, r"'C': expected one of .*\(P, 3\)", x, c, C=a)
    refused(diagonal, ValueError, "'D': expected a matrix for outputs", x, c, D=a)
    refused(diagonal, ValueError, "'out_idx': expected None with 'C'", x, c, C=c, out_idx=0)
    refused(diagonal, ValueError, r"'zi': expected shape \(2, 3\)", x, c, zi=x)
    refused(diagonal, torch.linalg.LinAlgError, "singular", x, A=eye)
    lfilter = lti("lfilter")
    refused(lfilter, ValueError, "'a': expected one coefficient", c, c, x)
    refused(lfilter, ValueError, "'zi': expected None with a form", a, a[:1], x, a[:1], "df1")
    refused(lfilter, ValueError, "'form': expected one of 'df2', 'tdf2', got", a, a[:1], x,
            form="tdf1", backend="diag_ssm")  # fmt: skip
    refused(lfilter, ValueError, "'unroll': expected no argument besides", a, a[:1], x, unroll=2)
    comb = lti("comb_filter")
    refused(comb, ValueError, "'delay': expected an integer of 1 or more", a, 0, x)
    refused(comb, ValueError, r"'zi': expected shape \(3,\)", a, 3, x, a)


#: Numbers of sequences, steps, states, inputs and outputs.
SIZES = {"b": 2, "n": 6, "m": 3, "f": 4, "p": 5}


def test_diag_state_space_takes_arguments_that_the_original_rejects():
    """Check A = diag(...), an L of each sequence, and a complex L with real inputs.

    Eigenvalues may repeat where no eigenvectors are computed.
    """
    torch = framework("torch")
    call = ours("philtorch.lti.diag_state_space")
    r = np.random.default_rng(8)
    x = torch.from_numpy(r.normal(size=(2, 9, 3)))
    values = torch.tensor([0.5, -0.25, 0.75], dtype=torch.float64)
    states = call(x, values)
    close = lambda got, want: torch.testing.assert_close(got, want, rtol=0, atol=1e-13)
    close(call(x, A=torch.diag(values)).real, states)
    close(call(x, torch.stack((values, values))), states)
    close(call(x, values + 0j), states + 0j)
    close(call(x, values[:1].expand(3)), call(x, torch.full((3,), 0.5, dtype=torch.float64)))


def test_diag_state_space_equals_an_explicit_sum_for_every_shape_of_b_c_and_d():
    torch = framework("torch")
    call = ours("philtorch.lti.diag_state_space")
    r = np.random.default_rng(9)
    draw = lambda shape: torch.from_numpy(r.normal(size=[SIZES[axis] for axis in shape]))
    values = draw("m") / 4
    for inputs in ("m", "bm", "mf", "bmf"):
        wide = inputs.endswith("f")
        x, b = draw("bnf" if wide else "bn"), draw(inputs)
        h = call(torch.einsum(f"bn{'f' if wide else ''},{inputs}->bnm", x, b), values)
        for outputs in ("m", "bm", "pm", "bpm"):
            lead = "p" if "p" in outputs else ""
            c = draw(outputs)
            for through in (lead, f"b{lead}") if not wide else (f"{lead}f", f"b{lead}f"):
                d = draw(through)
                want = torch.einsum(f"bnm,{outputs}->bn{lead}", h, c)
                want = want + torch.einsum(f"bn{'f' * wide},{through}->bn{lead}", x, d)
                got = call(x, values, B=b, C=c, D=d)
                torch.testing.assert_close(got, want, rtol=0, atol=1e-13)
    x, d = draw("bnm"), draw("")
    for one in (d, d.reshape(1)):
        want = call(x, values) + d * x
        torch.testing.assert_close(call(x, values, D=one), want, rtol=0, atol=1e-13)


def test_mambapy_classes_call_the_selective_scan_of_scanrec(monkeypatch):
    """A stand-in replaces mambapy, which need not be installed."""
    framework("torch")
    module = importlib.import_module("scanrec.compat.mambapy")
    assert not hasattr(module, "other")
    block = type("MambaBlock", (), {})
    layers = lambda self, config: setattr(self, "layers", [SimpleNamespace(mixer=block())] * config)
    model = type("Mamba", (), {"__init__": layers})
    stand_in = SimpleNamespace(MambaBlock=block, Mamba=model, MambaConfig=int)
    monkeypatch.setitem(sys.modules, "mambapy", SimpleNamespace(mamba=stand_in))
    monkeypatch.setitem(sys.modules, "mambapy.mamba", stand_in)
    kept = ("Mamba", "MambaBlock")
    for name in kept:
        module.__dict__.pop(name, None)
    made = module.Mamba(module.MambaConfig(2))
    assert isinstance(made, model) and issubclass(module.MambaBlock, block)
    for layer in made.layers:
        assert isinstance(layer.mixer, module.MambaBlock)
        assert layer.mixer.selective_scan is module.selective_scan
    for name in kept:
        del module.__dict__[name]


def test_invalid_arguments_raise_in_jax():
    jnp = framework("jax").numpy
    x = jnp.zeros((2, 3, 4))
    scan = ours("recurrentgemma.linear_scan")
    refused(scan, ValueError, "'sharding_spec': expected None", x, x, sharding_spec=())
    refused(scan, ValueError, "'scan_type': .* ASSOCIATIVE_NATIVE", x, x, scan_type="AUTO")
    refused(scan, ValueError, "'unroll': expected an integer of 1", x, x, unroll=0)
    refused(scan, TypeError, "'pallas_pad_last_dim_to_128'", x, x, pallas_pad_last_dim_to_128="no")
    refused(scan, ValueError, r"'a': expected shape \(2, 3, 4\), got \(1, 3, 4\)", x, x[:1])
    refused(scan, ValueError, r"'h0': expected shape \(2, 4\)", x, x, x[:, 0, :3])
    refused(scan, TypeError, "'a': expected an array of numbers, got NoneType", x, None)
    assert scan(x.tolist(), x)[0].shape == x.shape
    lambda_returns = ours("rlax.lambda_returns")
    steps = 3 * [x[0, 0]]
    refused(lambda_returns, TypeError, "'lambda_': expected an array of numbers", *steps, None)
    refused(lambda_returns, TypeError, "'stop_target_gradients'", *steps, 1.0, None)
    refused(lambda_returns, ValueError, r"'v_t': expected shape \(3,\)", *x[0, :, :2].T, x[0, 0])
    refused(lambda_returns, TypeError, "'r_t': expected one of", [1, 2], [1, 2], [1, 2])
    refused(lambda_returns, ValueError, r"'lambda_': expected shape \(4,\)", *steps, x[0, 0, :3])
    corrected = ours("rlax.importance_corrected_td_errors")
    refused(corrected, ValueError, r"'values': expected shape \(5,\)", *5 * [x[0, 0]])
    vtrace = ours("rlax.vtrace")
    refused(vtrace, TypeError, "'sample_mask': .*booleans", *5 * [x[0, 0]], sample_mask=x[0, 0])
    refused(vtrace, TypeError, "'clip_rho_threshold'", *5 * [x[0, 0]], clip_rho_threshold=None)
    semigroup_scan = ours("memax.semigroup_scan")
    refused(semigroup_scan, ValueError, "'input': expected at least one array", Affine(), (), ())
    refused(semigroup_scan, ValueError, "'state': expected the structure", Affine(), x, (x, x))
    apply_ssm = ours("s5.ssm.apply_ssm")
    c = x + 0j
    refused(
        apply_ssm, ValueError, r"'C_tilde': expected shape \(4, 6\)", c[0, :, 0], c[0], c[0].T, x[0],
        True, True,
    )  # fmt: skip


def test_nan_stays_within_its_trajectory():
    """The end of a trajectory must not multiply by a discount of 0, which would propagate NaN."""
    torch = framework("torch")
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(8, 1)))
    done = torch.zeros(8, 1, dtype=torch.bool)
    done[3] = True
    value, reward = x.clone(), x.clone()
    value[5] = reward[6] = float("nan")
    for function in ("td1_return_estimate", "td_lambda_return_estimate"):
        given = (0.9, 0.5)[: 1 + function.startswith("td_l")]
        whole = ours(f"torchrl.{function}")(*given, value, reward, done)
        begin = ours(f"torchrl.{function}")(*given, x[:4], x[:4], done[:4])
        assert torch.equal(whole[:4], begin) and whole[4:7].isnan().all()
    advantage, _ = ours("torchrl.generalized_advantage_estimate")(0.9, 0.5, x, x, reward, done)
    assert not advantage[:4].isnan().any() and advantage[4:7].isnan().all()


def test_batched_liquid_scan_in_two_chunks_equals_the_whole_sequence():
    torch = framework("torch")
    scan = ours("s5.s5_model.apply_ssm_liquid")
    r = np.random.default_rng(1)
    real = lambda *n: torch.from_numpy(r.uniform(-0.5, 0.5, n))
    number = lambda *n: torch.complex(real(*n), real(*n))
    given = (number(3), number(3, 2), number(2, 3), real(2))
    u = real(4, 10, 2)
    batch = torch.vmap(lambda u, state: scan(*given, u, state))
    first = torch.zeros(4, 3, dtype=torch.complex128)
    whole, last = batch(u, first)
    begin, state = batch(u[:, :4], first)
    end, final = batch(u[:, 4:], state)
    torch.testing.assert_close(torch.cat((begin, end), 1), whole, rtol=0, atol=1e-14)
    torch.testing.assert_close(final, last, rtol=0, atol=1e-14)


def test_long_products_of_log_coefficients_keep_float32_accuracy():
    """The logarithms add up to -30000. In float32, sums of this size are multiples of 0.002."""
    torch = framework("torch")
    scan = ours("minGRU_pytorch.heinsen_associative_scan_log")
    r = np.random.default_rng(2)
    coeffs, values = (
        torch.from_numpy(x) for x in (-6 * r.random((1, 9999, 2)), r.random((1, 9999, 2)))
    )
    values[:, 7] = -torch.inf
    coeffs, values = coeffs.float(), values.float()
    got, exact = scan(coeffs, values), scan(coeffs.double(), values.double())
    assert got.dtype == torch.float32 and ((got - exact).abs() <= 1e-6 * exact).all()
    # Results for bfloat16 are computed in float32 and rounded once.
    low = [x.bfloat16() for x in (coeffs, values)]
    assert torch.equal(scan(*low), scan(*(x.float() for x in low)).bfloat16())


def test_slow_decays_are_accurate_in_states_and_gradients():
    torch = framework("torch")
    slow = SlowDecay()
    coeffs, values = torch.from_numpy(slow.gate), torch.from_numpy(slow.input).log()
    coeffs.requires_grad_(), values.requires_grad_()
    scan = ours("minGRU_pytorch.heinsen_associative_scan_log")
    state = scan(coeffs[None], values[None])[0]
    state.backward(torch.from_numpy(slow.grad))
    assert slow.close(state.detach(), "state") and slow.close(coeffs.grad, "gate_grad")
    want = slow.input * slow.input_grad  # the gradient of a log input
    assert np.max(np.abs(values.grad.numpy() - want)) <= slow.tolerance * np.max(np.abs(want))


def test_kernel_options_of_recurrentgemma_do_not_change_results():
    x = framework("jax").numpy.full((1, 3, 2), 0.5)
    scan = ours("recurrentgemma.linear_scan")
    kinds = enum.Enum("ScanType", "AUTO LINEAR_NATIVE ASSOCIATIVE_NATIVE LINEAR_PALLAS")
    for kind in kinds:
        y, last = scan(x, x, scan_type=kind, unroll=4, pallas_pad_last_dim_to_128=True)
        assert (y == scan(x, x)[0]).all() and (last == y[:, -1]).all()


def test_time_dim_may_be_positional():
    torch = framework("torch")
    values = ours("torchrl.vec_td1_return_estimate")
    x, done = torch.rand(4, 5, 3), torch.zeros(4, 5, 3, dtype=torch.bool)
    want = values(0.9, x.mT, x.mT, done.mT, done.mT).mT
    assert (values(0.9, x, x, done, done, None, -1) == want).all()


def test_result_types_of_recurrentgemma():
    """States have the type of x, and the final state has that of the accumulator.

    If x and a are objects of real and imaginary parts, the results are objects of the same class.
    """
    jax = framework("jax")
    jnp = jax.numpy
    scan = ours("recurrentgemma.linear_scan")
    r = np.random.default_rng(4)
    draw = lambda *n, dtype=jnp.float32: jnp.asarray(r.uniform(-0.5, 0.5, n), dtype)
    x, a = draw(2, 5, 3, dtype=jnp.bfloat16), draw(2, 5, 3, dtype=jnp.bfloat16)
    y, last = scan(x, a)
    assert (y.dtype, last.dtype) == (jnp.bfloat16, jnp.float32)
    assert (y[:, -1] == last.astype(jnp.bfloat16)).all()
    y64, last64 = scan(x, a, acc_float_dtype=jnp.float64)
    assert (y64.dtype, last64.dtype) == (jnp.bfloat16, jnp.float64)
    assert not (last == last64).all() and jnp.abs(last - last64).max() < 1e-6

    class Complex:
        def __init__(self, real, imag):
            self.real, self.imag, self.dtype = real, imag, real.dtype

    parts = [draw(2, 5, 3) for _ in range(4)]
    got, last = scan(Complex(*parts[:2]), Complex(*parts[2:]), reverse=True)
    want, final = scan(parts[0] + 1j * parts[1], parts[2] + 1j * parts[3], reverse=True)
    assert type(got) is type(last) is Complex
    assert (want == got.real + 1j * got.imag).all() and (final == last.real + 1j * last.imag).all()
    assert final.dtype == jnp.complex64


def test_memax_scans_any_associative_operator():
    """Operators that are not affine run in jax.lax.associative_scan. A reset stops a NaN."""
    jax = framework("jax")
    jnp = jax.numpy
    scan = ours("memax.semigroup_scan")
    r = np.random.default_rng(5)
    x, first = r.normal(size=(9, 2)), r.normal(size=2)
    assert (scan(jnp.maximum, first, x) == np.maximum(np.maximum.accumulate(x), first)).all()
    added = scan(lambda i, j: i + j, first, x)
    assert np.abs(added - (np.cumsum(x, 0) + first)).max() < 1e-14
    swapped = lambda i, j: (j[0] * i[0], i[0] * j[1] + i[1])  # Affine with i and j exchanged
    gates = r.uniform(size=(9, 2))
    _, got = scan(swapped, (np.ones(2), np.zeros(2)), (gates, x))
    before = np.concatenate((np.ones((1, 2)), np.cumprod(gates, 0)[:-1]))
    assert np.abs(got - np.cumsum(before * x, 0)).max() < 1e-14
    starts = np.arange(9) == 4
    x[2] = np.nan
    state = ((np.ones(2), np.zeros(2)), np.asarray(False))
    (_, got), flags = jax.jit(lambda v: scan(Resettable(), state, v))(((gates, x), starts))
    assert np.isnan(got[2:4]).all() and not np.isnan(got[4:]).any()
    assert (flags == (np.arange(9) >= 4)).all()
    assert scan(Resettable(), (state[0], np.asarray(True)), ((gates, x), starts))[1].all()


def test_complex_numbers_in_returns_raise_type_error():
    framework("jax")
    steps = np.ones(3, np.float32)
    for value in (1j, [1j] * 3, np.full(3, 1j, np.complex64)):
        with pytest.raises(TypeError, match="lambda_returns: argument 'lambda_': expected a real"):
            ours("rlax.lambda_returns")(steps, steps, steps, value)
        with pytest.raises(TypeError, match="discounted_returns: argument 'v_t': expected a real"):
            ours("rlax.discounted_returns")(steps, steps, value)


def test_vmap_of_vtrace_equals_single_calls():
    jax = framework("jax")
    vtrace = ours("rlax.vtrace")
    given = np.random.default_rng(6).uniform(size=(5, 7, 3))
    got = jax.jit(jax.vmap(vtrace, in_axes=1, out_axes=1))(*given)
    assert (got[:, 1] == vtrace(*given[..., 1])).all()


def test_functions_with_a_shared_body_check_their_own_signatures():
    torch = framework("torch")
    values, wide = ours("torchrl.td1_return_estimate"), ours("torchrl.vec_td1_return_estimate")
    x, done = torch.zeros(5, 1), torch.zeros(5, 1, dtype=torch.bool)
    given = 0.9, x, x, done, None, None
    assert torch.equal(values(*given, time_dim=0), wide(*given, 0))
    refused(values, TypeError, "^td1_return_estimate: too many positional", *given, 0)
    refused(values, TypeError, "state_value", *given, state_value=x)
    refused(values, TypeError, "^td1_return_estimate: missing .*'done'", *given[:3])
    refused(values, TypeError, "multiple values .*'gamma'", *given, gamma=0.5)
    advantages = ours("torchrl.td1_advantage_estimate")
    refused(advantages, TypeError, "'state_value': expected a tensor", 0.9, None, x, x, done)
    for function in (values, ours("s5.s5_model.apply_ssm")):
        assert pickle.loads(pickle.dumps(function)) is function

# SPDX-License-Identifier: BSD-3-Clause
"""Tests of scanrec.compat with every pair of argument forms, at several sequence lengths.

A form is one shape, dtype or value that an argument may have (see compat_forms.py).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from compat_calls import framework, ours
from compat_cases import functions, jax_parts, torch_parts, weights
from compat_forms import FORMS, arguments_of, rows


def test_every_function_has_forms():
    import scanrec.compat

    assert sorted(FORMS) == sorted(functions(Path(scanrec.compat.__file__).parent))


def arrays(values):
    """List the arrays in nested tuples."""
    if isinstance(values, tuple):
        return [x for value in values for x in arrays(value)]
    return [np.asarray(values)]


def loss(values):
    """Sum all numbers with distinct weights."""
    return sum((weights(x.shape) * x.real).sum() for x in values if x.dtype != bool)


def moved(arguments, directions, length):
    """Return the arguments, with each real or complex array moved along the next direction."""
    if isinstance(arguments, tuple):
        return tuple(moved(x, directions, length) for x in arguments)
    if isinstance(arguments, np.ndarray) and arguments.dtype.kind in "fc":
        return arguments + length * next(directions)
    return arguments


def slope(forms, arguments, directions):
    """Return the derivative of the loop's loss along the directions, by differences."""
    at = lambda length: {
        k: moved(x, steps, length) for steps in [iter(directions)] for k, x in arguments.items()
    }
    h = 1e-5
    ahead, behind = (loss(arrays(forms.loop(**at(x)))) for x in (h, -h))
    return (ahead - behind) / (2 * h)


def torch_values(call, arguments):
    """Return values, and gradients of their loss."""
    torch = framework("torch")
    function, given = torch_parts(call, arguments)
    leaves = [x.requires_grad_() for x in given]
    values = function(*leaves)
    total = sum((torch.from_numpy(weights(x.shape)) * x.real).sum() for x in values)
    gradients = torch.autograd.grad(total, leaves, materialize_grads=True)
    return [x.detach().numpy() for x in values], [
        x.conj().resolve_conj().numpy() for x in gradients
    ]


def jax_values(call, several):
    """Return values and gradients for several sets of arguments, from one program of JAX."""
    jax = framework("jax")
    parts = [jax_parts(call, arguments) for arguments in several]

    def of_one(function, given):
        def numbers(*given):
            values = function(*given)
            return tuple(y for y in values if y.dtype != bool), values

        values, vjp, every = jax.vjp(numbers, *given, has_aux=True)
        return every, vjp(tuple(weights(x.shape).astype(x.dtype) for x in values))

    functions = [function for function, _ in parts]
    every = jax.jit(lambda given: list(map(of_one, functions, given)))
    return jax.tree.map(np.asarray, every([given for _, given in parts]))


VALUES = {
    "torch": lambda call, several: [torch_values(call, arguments) for arguments in several],
    "jax": jax_values,
}


@pytest.mark.parametrize("name", FORMS)
def test_every_pair_of_forms_equals_the_loop(name):
    """Compare values and gradients with the reference loop.

    Arguments are float64, or float32 multiples of 1/16, whose products are exact. The reference
    gradients are finite differences of the loop, so their tolerance is 1e-7 or, in float32, 1e-5.
    """
    forms = FORMS[name]
    framework(forms.framework)
    call = ours(name)
    draw = np.random.default_rng(7)
    taken, run = set(), []
    for row, allowed in rows(forms):
        if allowed:
            run.append(row)
            continue
        with pytest.raises(ValueError, match="argument '"):
            VALUES[forms.framework](call, [arguments_of(name, row)])
    several = [arguments_of(name, row) for row in run]
    found = VALUES[forms.framework](call, several)
    for row, arguments, (got, gradients) in zip(run, several, found, strict=True):
        taken |= set(row.items())
        wanted = arrays(forms.loop(**arguments))
        narrow = any("single" in form for form in row.values())
        assert len(got) == len(wanted), row
        for x, y in zip(got, wanted):
            assert x.shape == y.shape, row
            bound = (1e-6 if narrow else 1e-13) * (1 + np.abs(y).max(initial=0))
            assert np.abs(x ^ y if x.dtype == bool else x - y).max(initial=0) <= bound, row
        if not forms.differentiable(row):
            continue
        directions = [draw.uniform(-1, 1, x.shape) for x in gradients]
        directions = [
            d + 1j * draw.uniform(-1, 1, d.shape) if np.iscomplexobj(x) else d
            for x, d in zip(gradients, directions)
        ]
        along = sum((g * d).real.sum() for g, d in zip(gradients, directions))
        exact = slope(forms, arguments, directions)
        assert abs(along - exact) <= (1e-5 if narrow else 1e-7) * (1 + abs(exact)), row
    assert taken == {(name, form) for name, given in forms.forms.items() for form in given}


#: One choice of forms for each kind of preprocessing before a scan in the PyTorch functions.
#: Arguments that are not listed have their first form.
COMPILED = [
    ("minGRU_pytorch.heinsen_associative_scan_log", {"_x": "btc"}),
    ("mambapy.selective_scan", {}),
    ("s5.s5_model.apply_ssm_liquid", {"_both": "True"}),
    ("torchlpc.sample_wise_lpc", {"return_zf": "True"}),
    ("philtorch.lti.diag_state_space", {"_kind": "one A", "zi": "bm", "_outputs": "pm"}),
    ("philtorch.lpv.state_space", {"zi": "m", "_driven": "t", "_outputs": "tpm", "_through": "t"}),
    ("philtorch.lti.comb_filter", {"zi": "bw"}),
    ("philtorch.lti.lfilter", {"zi": "so", "form": "tdf2"}),
    ("philtorch.lti.lfilter", {"zi": "so", "_k": "40"}),
    (
        "torchrl.td_lambda_return_estimate",
        {"gamma": "whole", "rolling_gamma": "False"},
    ),
    ("torchrl.vtrace_advantage_estimate", {}),
    ("rl_games.discount_values_masks", {}),
]


@pytest.mark.parametrize("name, chosen", COMPILED, ids=lambda x: str(x).rpartition(".")[2])
def test_all_lengths_share_a_compiled_program(name, chosen):
    """Values and gradients of the compiled program equal those of eager calls.

    The test uses torch.compile's default backend, which may specialise on a length even if tracing
    did not. Functions with `self` (an agent of rl_games) read the length from a Python number.
    torch.compile makes this number dynamic at its first change, which takes a second program.
    """
    torch = framework("torch")
    call = ours(name)
    row = {k: next(iter(forms)) for k, forms in FORMS[name].forms.items()} | chosen
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()

    @torch.compile(fullgraph=True)
    def compiled(arguments):
        return call(**arguments)

    for steps in range(41, 51):
        both = []
        for function in (compiled, lambda arguments: call(**arguments)):
            arguments = arguments_of(name, row, steps)
            tensors = {k: torch.from_numpy(x) for k, x in arguments.items() if hasattr(x, "dtype")}
            for x in () if "self" in arguments else tensors.values():
                for axis in (i for i, n in enumerate(x.shape) if n == steps):
                    torch._dynamo.mark_dynamic(x, axis)
            leaves = [x.requires_grad_() for x in tensors.values() if x.dtype != torch.bool]
            values = function(arguments | tensors)
            values = values if isinstance(values, tuple) else (values,)
            total = sum(x.real.sum() for x in values)
            both.append([*values, *torch.autograd.grad(total, leaves, materialize_grads=True)])
        torch.testing.assert_close(*both, rtol=1e-12, atol=1e-12)
    programs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    assert programs == (2 if "self" in row else 1)


#: Arguments that determine gates or multiply states. The test of constant gates does not
#: differentiate them.
CONSTANT = {
    *("A", "C", "Lambda_bars", "L", "C_tilde", "a", "b", "coeffs", "decay", "delta", "fdones"),
    *("forget", "gamma", "gates", "lmbda", "log_coeffs", "log_mu", "log_pi"),
    *("mb_fdones", "mb_masks"),
}

#: The number of arrays with a time axis that some functions keep although their gates are constant.
KEPT = {
    "torchlpc.sample_wise_lpc": 1,  # the gate, -a
    "torchrl.vtrace_advantage_estimate": 2,  # rho, and the gate
    "rl_games.discount_values": 2,  # 1 - dones, and the gate
    "rl_games.discount_values_masks": 2,
}


def kept(name, row, constant, steps=500):
    """Count the arrays with a time axis kept for gradients, except arguments and booleans."""
    torch = framework("torch")
    call = ours(name)
    arguments = arguments_of(name, row, steps)
    tensors = {k: torch.from_numpy(x) for k, x in arguments.items() if hasattr(x, "dtype")}
    for k, x in tensors.items():
        x.requires_grad_(x.dtype != torch.bool and k not in constant)
    address = lambda x: x.untyped_storage().data_ptr()
    given, found = {address(x) for x in tensors.values()}, {}

    def pack(x):
        # A view keeps its whole base array.
        if x.dtype != torch.bool and x.untyped_storage().nbytes() >= 8 * steps:
            found[address(x)] = x
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        call(**(arguments | tensors))
    return len(found.keys() - given)


#: The functions for PyTorch whose gates do not depend on inputs.
OF_GATES = [k for k, forms in FORMS.items() if forms.framework == "torch" and "liquid" not in k]


@pytest.mark.parametrize("name", OF_GATES)
def test_constant_gates_keep_no_states(name):
    """Gradients of inputs and initial states read no states."""
    row = {k: next(iter(forms)) for k, forms in FORMS[name].forms.items()}
    assert kept(name, row, CONSTANT) == KEPT.get(name, 0)


def test_the_gradient_of_a_discount_keeps_two_arrays():
    """The two arrays are the states and the sum that the discount multiplies.

    The gradient also reads the last value of each sequence from a copy. A view would keep all values.
    """
    name = "torchrl.td_lambda_return_estimate"
    row = {k: next(iter(forms)) for k, forms in FORMS[name].forms.items()} | {"gamma": "0-d"}
    assert kept(name, row, ()) == 2

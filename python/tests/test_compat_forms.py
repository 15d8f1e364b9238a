# SPDX-License-Identifier: BSD-3-Clause
"""scanrec.compat: every form of one argument with every form of another, at every length of
time."""

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
    """The arrays within tuples."""
    if isinstance(values, tuple):
        return [x for value in values for x in arrays(value)]
    return [np.asarray(values)]


def loss(values):
    """A sum of all numbers, no two of them counted alike."""
    return sum((weights(x.shape) * x.real).sum() for x in values if x.dtype != bool)


def moved(arguments, directions, length):
    """The arguments with real and complex arrays moved along directions, as long as there are
    any."""
    if isinstance(arguments, tuple):
        return tuple(moved(x, directions, length) for x in arguments)
    if isinstance(arguments, np.ndarray) and arguments.dtype.kind in "fc":
        return arguments + length * next(directions)
    return arguments


def slope(forms, arguments, directions):
    """The derivative of the loop's loss along the directions, by differences."""
    at = lambda length: {
        k: moved(x, steps, length) for steps in [iter(directions)] for k, x in arguments.items()
    }
    h = 1e-5
    ahead, behind = (loss(arrays(forms.loop(**at(x)))) for x in (h, -h))
    return (ahead - behind) / (2 * h)


def torch_values(call, arguments):
    """Values, and gradients of their loss."""
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
    """The same of several arguments in JAX, in one program."""
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
def test_pairs_of_forms(name):
    """Values and gradients are those of a loop over steps, computed in float64 or on numbers whose
    products are exact in float32; gradients of it are differences, which 1e-7 is enough for."""
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


#: A row for each way in which functions of PyTorch prepare scans; other forms are the first ones.
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
def test_lengths_share_a_program(name, chosen):
    """The default backend may fix a length where tracers do not. Values and gradients are those of
    the call that is not compiled. Agents have the length as a number, which becomes dynamic when it
    changes, in a second program."""
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


#: Arguments that gates are made of, and that outputs multiply states by. They get no gradients.
CONSTANT = {
    *("A", "C", "Lambda_bars", "L", "C_tilde", "a", "b", "coeffs", "decay", "delta", "fdones"),
    *("forget", "gamma", "gates", "lmbda", "log_coeffs", "log_mu", "log_pi"),
    *("mb_fdones", "mb_masks"),
}

#: How many arrays over time are kept all the same, where any are.
KEPT = {
    "torchlpc.sample_wise_lpc": 1,  # the gate, -a
    "torchrl.vtrace_advantage_estimate": 2,  # rho, and the gate
    "rl_games.discount_values": 2,  # 1 - dones, and the gate
    "rl_games.discount_values_masks": 2,
}


def kept(name, row, constant, steps=500):
    """How many arrays over time, other than arguments and booleans, a call keeps for its
    gradients."""
    torch = framework("torch")
    call = ours(name)
    arguments = arguments_of(name, row, steps)
    tensors = {k: torch.from_numpy(x) for k, x in arguments.items() if hasattr(x, "dtype")}
    for k, x in tensors.items():
        x.requires_grad_(x.dtype != torch.bool and k not in constant)
    address = lambda x: x.untyped_storage().data_ptr()
    given, found = {address(x) for x in tensors.values()}, {}

    def pack(x):
        # A view keeps all that it is a view of.
        if x.dtype != torch.bool and x.untyped_storage().nbytes() >= 8 * steps:
            found[address(x)] = x
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        call(**(arguments | tensors))
    return len(found.keys() - given)


#: Functions of PyTorch whose gates are not made of inputs.
OF_GATES = [k for k, forms in FORMS.items() if forms.framework == "torch" and "liquid" not in k]


@pytest.mark.parametrize("name", OF_GATES)
def test_constant_gates_keep_no_states(name):
    """Gradients of inputs and initial states read no states."""
    row = {k: next(iter(forms)) for k, forms in FORMS[name].forms.items()}
    assert kept(name, row, CONSTANT) == KEPT.get(name, 0)


def test_last_values_keep_no_array():
    """A discount's gradient reads the states and the sum that it multiplies, and the value that the
    scan starts from: one of each sequence, which is no view of the others."""
    name = "torchrl.td_lambda_return_estimate"
    row = {k: next(iter(forms)) for k, forms in FORMS[name].forms.items()} | {"gamma": "0-d"}
    assert kept(name, row, ()) == 2

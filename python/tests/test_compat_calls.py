# SPDX-License-Identifier: BSD-3-Clause
"""Tests of signatures in scanrec.compat, and of calls under transformations of the frameworks."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import numpy as np
import pytest
from compat_calls import called, framework, ours
from compat_cases import CASES, functions, jax_parts, shown, torch_parts, weights

SIGNATURES = json.loads((Path(__file__).parent / "data/compat_signatures.json").read_text())


def test_every_function_has_a_recorded_signature():
    import scanrec.compat

    assert list(SIGNATURES) == list(functions(Path(scanrec.compat.__file__).parent))


#: Intended differences by function: (original default, our default). None means ScanType.AUTO.
OTHER_DEFAULTS = {"recurrentgemma.linear_scan": ("scan_type=<ScanType.AUTO: 1>", "scan_type=None")}


@pytest.mark.parametrize("kind", ["torch", "jax"])
def test_signatures_equal_the_original_ones(kind):
    """Compare names, kinds and defaults, or the number of parameters if they are positional-only."""
    framework(kind)
    parent = lambda name: name.rpartition(".")[0]
    frameworks = {parent(case.ours): case.framework for case in CASES}
    frameworks["accelerated_scan"] = "torch"
    for name, theirs in SIGNATURES.items():
        if frameworks[parent(name)] != kind or theirs is None:
            continue
        call = ours(name)
        assert call.__name__ == name.rpartition(".")[2] and call.__doc__, name
        parameters = list(inspect.signature(call).parameters.values())
        parameters = parameters[parameters[0].name == "self" :]
        if "/" in theirs:
            assert len(parameters) == theirs.count(",") and "=" not in theirs, name
        else:
            assert shown(parameters) == theirs.replace(*OTHER_DEFAULTS.get(name, ("", ""))), name


def inner(x, y):
    """Return the inner product of two lists of tensors. Complex numbers count as pairs of reals."""
    number = lambda a, b: (a * b.conj()).real.sum() if "complex" in str(b.dtype) else (a * b).sum()
    return sum(number(a, b) for a, b in zip(x, y, strict=True))


def named(kind, but=()):
    cases = [case for case in CASES if case.framework == kind and not case.name.endswith(but)]
    return pytest.mark.parametrize("case", cases, ids=[case.name for case in cases])


@named("torch")
def test_derivatives_and_vmap_in_torch(case):
    """Compare second derivatives with differences, tangents with gradients, and vmap with a loop."""
    torch = framework("torch")
    function, given = torch_parts(*called(case))
    draw = torch.Generator().manual_seed(7)
    directions = [torch.randn(x.shape, dtype=x.dtype, generator=draw) for x in given]
    leaves = [x.clone().requires_grad_() for x in given]
    assert torch.autograd.gradgradcheck(function, leaves, fast_mode=True)
    values, tangents = torch.func.jvp(function, tuple(given), tuple(directions))
    seeds = [torch.from_numpy(weights(x.shape)).to(x.dtype) for x in values]
    gradients = torch.autograd.grad(function(*leaves), leaves, seeds, materialize_grads=True)
    want = inner(gradients, directions)
    assert (inner(seeds, tangents) - want).abs() <= 1e-12 * (1 + inner(gradients, gradients))
    pairs = [torch.stack((x, x / 2)) for x in given]
    halves = function(*(x / 2 for x in given))
    for got, *parts in zip(torch.func.vmap(function)(*pairs), values, halves, strict=True):
        torch.testing.assert_close(got, torch.stack(parts), rtol=1e-13, atol=1e-13)


#: One case per implementation, because compilation takes half a second.
COMPILED = (
    "mambapy.selective_scan",
    "minGRU_pytorch.heinsen_associative_scan_log",
    "torchlpc.sample_wise_lpc",
    "philtorch.lti.diag_state_space.A",
    "philtorch.lti.lfilter.tdf2",
    "s5.s5_model.apply_ssm_liquid",
    "torchrl.td_lambda_return_estimate.own",
    "torchrl.vtrace_advantage_estimate",
)


@pytest.mark.parametrize("name", COMPILED)
def test_fullgraph_compilation_keeps_values_and_gradients(name):
    torch = framework("torch")
    (case,) = (case for case in CASES if case.name == name)
    function, given = torch_parts(*called(case))
    leaves = [x.requires_grad_() for x in given]
    torch.compiler.reset()
    both = []
    for call in (torch.compile(function, backend="aot_eager", fullgraph=True), function):
        values = call(*leaves)
        seeds = [torch.ones_like(x) for x in values]
        both.append([*values, *torch.autograd.grad(values, leaves, seeds, materialize_grads=True)])
    torch.testing.assert_close(*both, rtol=1e-13, atol=1e-13)


#: Last parts of the names of cases that share an implementation with another case.
ALIKE = ("stopped", "forward", "leaky_vtrace", "discounted_returns")


@named("jax", but=ALIKE)
def test_derivatives_and_vmap_in_jax(case):
    """Compare tangents with gradients, forward over reverse with reverse over reverse, and vmap
    with a loop.

    One program computes all results.
    """
    jax = framework("jax")
    call, arguments = called(case)
    # Stopped gradients are 0, so comparing them would test nothing.
    if "stop_target_gradients" in inspect.signature(call).parameters:
        arguments["stop_target_gradients"] = False
    whole, given = jax_parts(call, arguments)
    function = lambda *x: tuple(y for y in whole(*x) if y.dtype != bool)
    draw = np.random.default_rng(7)
    directions = [draw.normal(size=x.shape).astype(x.dtype) for x in given]
    seeds = [weights(x.shape).astype(x.dtype) for x in jax.eval_shape(function, *given)]
    number = lambda x, y: sum((a * b).sum().real for a, b in zip(x, y, strict=True))

    def all_of_it(given):
        tangent = lambda f: jax.jvp(f, (given,), (directions,))[1]
        loss = lambda given: number(function(*given), seeds)
        gradient = jax.grad(loss)
        along = lambda given: number(gradient(given), directions)
        pairs = jax.tree.map(lambda x: jax.numpy.stack((x, x / 2)), given)
        halves = function(*jax.tree.map(lambda x: x / 2, given))
        return (
            (tangent(loss), along(given)),
            (tangent(gradient), jax.grad(along)(given)),
            (
                jax.vmap(function)(*pairs),
                jax.tree.map(lambda *x: jax.numpy.stack(x), function(*given), halves),
            ),
        )

    for got, want in jax.jit(all_of_it)(given):
        for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            assert abs(x - y).max() <= 1e-11 * (1 + abs(y).max())

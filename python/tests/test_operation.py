# SPDX-License-Identifier: BSD-3-Clause
"""Tests of a toy operation, made of a description, kernels and a composed value.

The composed value computes the results by other operations of a framework, for the derivatives that
have no kernel. The toy is a running mean along the first axis,
state[t] = state[t-1] + rate[t] * (input[t] - state[t-1]). Its kernels call the linear scan of NumPy
arrays. CONTRIBUTING.md explains this file.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from conftest import Random

import scanrec
from scanrec._op.spec import Operation

MEAN = Operation(
    "toy_mean", operands=("rate", "input"), results=("state", "final_state"), residuals=("state",)
)


def test_description_determines_the_arrays_of_every_call():
    assert MEAN.value.arrays == ("rate", "input", "state", "final_state")
    assert MEAN.vjp.reads == ("rate", "input", "state", "state_grad", "final_grad")
    assert MEAN.vjp.writes == ("rate_grad", "input_grad")
    assert MEAN.jvp.writes == ("state_tangent", "final_tangent")


def value(rate, input):
    return scanrec.linear_scan(1 - rate, rate * input, axis=0, return_final=True)


def adjoint(rate, input, state, state_grad, final_grad):
    gate, into, _ = scanrec.linear_scan_vjp(1 - rate, state, state_grad, final_grad, axis=0)
    return into * input - gate, into * rate


# ---- PyTorch -------------------------------------------------------------------------------------


class Problem(NamedTuple):
    """Options of the toy."""

    reverse: bool = False


@pytest.fixture(scope="module")
def mean():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from scanrec._op.linear.torch_rules import scan
    from scanrec._torch.fused import Fused

    class Mean(Fused):
        operation, problem, required = MEAN, Problem, MEAN.operands

        def new(self, problem, tensors, name):
            rate, input = tensors["rate"], tensors["input"]
            like = {"rate_grad": rate, "final_state": input[0]}.get(name, input)
            return torch.empty_like(like)

        def kernel(self, call, problem, arrays):
            numbers = [None if (x := arrays[name]) is None else x.numpy() for name in call.reads]
            found = (value if call is MEAN.value else adjoint)(*numbers)
            for name, x in zip(call.writes, map(torch.from_numpy, found)):
                if arrays[name] is not None:
                    arrays[name].copy_(x)

        def composed(self, problem, rate, input):
            state, final = scan(1 - rate, rate * input, None, None, 0, problem.reverse)
            return state, final[0]

    toy = Mean()
    # torch.compile must not trace the derivatives.
    return torch.compiler.allow_in_graph(lambda rate, input: toy.run(Problem(), rate, input))


def test_derivatives_vmap_and_compilation_of_the_toy_in_pytorch(mean):
    import torch

    random = Random(1)
    rate, input = (torch.from_numpy(random(5, 3)).abs().requires_grad_() for _ in range(2))
    state = torch.zeros(3, dtype=torch.float64)
    for t, found in enumerate(mean(rate, input)[0]):
        state = state + rate[t] * (input[t] - state)
        torch.testing.assert_close(found, state)
    assert torch.autograd.gradcheck(mean, (rate, input), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(mean, (rate, input))
    loss = lambda rate, input: mean(rate, input)[0].sin().sum()
    of_batch = torch.func.vmap(torch.func.grad(loss), (None, 0))(rate, torch.stack([input] * 2))
    torch.testing.assert_close(of_batch[1], torch.func.grad(loss)(rate, input))
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(rate, input), loss(rate, input))


# ---- JAX -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mean_in_jax():
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    from scanrec._jax.fused import Fused
    from scanrec.jax import linear_scan

    class Mean(Fused):
        operation, user_call = MEAN, "toy_mean"
        layout = {
            **dict.fromkeys(("rate", "input", "state"), "time channel"),
            "final_state": "channel",
        }

        def composed(self, problem, arrays):
            rate, input = arrays["rate"], arrays["input"]
            state, final = linear_scan(1 - rate, rate * input, axis=0, return_final=True)
            return {"state": state, "final_state": final}

        def run(self, params, *args):
            if params.kind == "jvp":
                return super().run(params, *args)
            arrays = dict.fromkeys(self.reads[params.kind]) | params.named(args)
            present = [x for x in arrays.values() if x is not None]
            shapes = [jax.ShapeDtypeStruct(shape, args[0].dtype) for _, shape in params.results]

            def kernel(*given):
                rest = iter(given)
                numbers = [None if x is None else np.asarray(next(rest)) for x in arrays.values()]
                found = (value if params.kind == "value" else adjoint)(*numbers)
                found = dict(zip(self.calls[params.kind].writes, found))
                return [found[name] for name in params.shapes]

            return jax.pure_callback(kernel, shapes, *present)

    toy = Mean()
    return lambda rate, input: toy.value(
        Problem(), {"rate": rate, "input": input}, {"state": input.shape}
    )["state"]


def test_derivatives_and_vmap_of_the_toy_in_jax(mean_in_jax):
    import jax
    from jax.test_util import check_grads

    random = Random(1)
    rate, input = (np.abs(random(5, 3)).astype(np.float32) for _ in range(2))
    want, _ = value(rate, input)
    np.testing.assert_array_equal(mean_in_jax(rate, input), want)
    check_grads(mean_in_jax, (rate, input), 2, rtol=2e-2, atol=2e-2, eps=1e-2)
    loss = lambda rate, input: (mean_in_jax(rate, input) ** 2).sum()
    of_batch = jax.vmap(jax.grad(loss), (None, 0))(rate, np.stack([input] * 2))
    np.testing.assert_allclose(of_batch[1], jax.jit(jax.grad(loss))(rate, input), rtol=1e-5)


# ---- the kernels ---------------------------------------------------------------------------------


def test_final_state_of_the_numpy_kernels_is_the_last_state():
    rate, input = np.abs(Random(2)(6, 2)), Random(3)(6, 2)
    state, final = value(rate, input)
    assert np.array_equal(state[-1], final)

# SPDX-License-Identifier: BSD-3-Clause
"""Breaks of the Python package: calls on NumPy, JAX and PyTorch, how they differentiate, layers."""

from mutation import mutation

FOLDER = "python/src/scanrec"
PACKAGE = "build/python/newest/lib/python3*/site-packages/scanrec"
TEST = "test_numpy.py"
FIRST_AND_SECOND = "first_and_second"
DERIVATIVES = "numerical_derivatives or transforms"


def jax(file, old, new, why, cases, test="test_jax.py"):
    return mutation(f"jax/{file}.py", old, new, why, test=test, cases=cases)


def torch(file, old, new, why, cases, test="test_torch.py"):
    return mutation(f"torch/{file}.py", old, new, why, test=test, cases=cases)


MUTATIONS = (
    # NumPy.
    mutation(
        "_numpy.py",
        "reverse, not conjugate, cell, wrt, ",
        "reverse, cell, wrt, ",
        "a plan serves both conventions of gradients",
        cases="complex_conventions",
    ),
    mutation(
        "_numpy.py",
        "p.plain = not conjugate",
        "p.plain = conjugate",
        "the conventions of gradients are swapped",
        cases="complex_conventions",
    ),
    mutation(
        "_numpy.py",
        "native.LOG_GATE * log_gate + native.LOG_INPUT * log_input",
        "native.LOG_GATE * log_input + native.LOG_INPUT * log_gate",
        "takes the logarithms of one array for those of the other",
        cases="test_logarithms",
    ),
    mutation(
        "_plans.py",
        "value.dtype, value.shape, value.strides, value.flags.aligned",
        "value.dtype, value.shape, value.flags.aligned",
        "a plan serves arrays of any strides",
        cases="one_layout",
    ),
    mutation(
        "_plans.py",
        "strides.insert(self.axis, 0)",
        "strides.insert(0, 0)",
        "states at edges have strides of other axes",
        cases="states_and_gradients",
    ),
    mutation(
        "_plans.py",
        "self.more_resets = shape != self.shape",
        "self.more_resets = False",
        "ignores the mark behind the last step",
        cases="reset_at_the_edge",
    ),
    mutation(
        "_plans.py",
        "array if array.flags.aligned and whole else array.copy()",
        "array",
        "reads elements that are not aligned",
        cases="odd_memory",
    ),
    mutation("_plans.py", "_plans.clear()", "pass", "plans are kept for ever", cases="bounded"),
    mutation(
        "_plans.py",
        "if of in native.EDGES and found ==",
        "if found ==",
        "float32 beside 16 bits does not count",
        cases="promotion",
    ),
    mutation(
        "_arguments.py",
        "    if not fits:",
        "    if False:",
        "takes arrays of any shape",
        cases="bad_input",
    ),
    mutation(
        "_arguments.py",
        "got[place] in (steps, steps + 1)\n    wanted",
        "True\n    wanted",
        "takes marks of any number of steps",
        cases="bad_input",
    ),
    mutation(
        "_arguments.py",
        "(2 if axis == len(shape) - 1 else 1)",
        "1",
        "stacks pre-activations along time",
        test="test_torch_layers.py",
        cases="any_strides",
    ),
    # JAX.
    jax(
        "_rules",
        "into = _shifted(met, None, problem.axis, back=not problem.reverse)",
        "into = _shifted(met, None, problem.axis, back=problem.reverse)",
        "tangents of cotangents meet the neighbour on the wrong side",
        FIRST_AND_SECOND,
    ),
    jax(
        "_rules",
        "at = problem.steps - 1 if problem.reverse else 0",
        "at = 0",
        "the initial state of a reverse scan gets what is due at its end",
        FIRST_AND_SECOND,
    ),
    jax(
        "_rules",
        'come = _linked(arrays["gate_tangent"].astype(dtype) * before, arrays, problem)',
        'come = arrays["gate_tangent"].astype(dtype) * before',
        "second tangents cross a reset",
        FIRST_AND_SECOND,
    ),
    jax(
        "_rules",
        "first = 1 if problem.reverse else 0",
        "first = 0",
        "second derivatives of reverse scans are cut one step away",
        FIRST_AND_SECOND,
    ),
    jax(
        "_rules",
        'out["initial_grad"] = out["initial_grad"] + first',
        "pass",
        "the gradient of the initial state lacks what the gate moves",
        FIRST_AND_SECOND,
    ),
    jax(
        "_gated_rules",
        'arrays["pre"].shape[problem.stack] > 2',
        "False",
        "takes outputs of a stack for its states",
        "test_derivatives",
        "test_jax_layers.py",
    ),
    jax(
        "_gated_rules",
        'if "zoneout" in arrays:  # whatever',
        "if False:  # whatever",
        "gradients of zoned out steps are NaN",
        "zoned_out",
        "test_jax_layers.py",
    ),
    jax(
        "_gated_rules",
        "moves = moves + output_t * state",
        "pass",
        "the tangent of the output gate is missing",
        "test_derivatives",
        "test_jax_layers.py",
    ),
    jax(
        "_gated_rules",
        '"initial_state": arrays.get("initial_tangent"),',
        '"initial_state": None,',
        "the tangent of the initial state is missing",
        "test_logarithms",
    ),
    jax(
        "_gated_rules",
        "problem = problem._replace(recompute=False)\n        arrays = without",
        "arrays = without",
        "asks for checkpoints that nobody kept",
        "residuals or some_operands",
        "test_jax_residuals.py",
    ),
    jax(
        "_selective_rules",
        "y = 2 * y.real",
        "y = y.real",
        "the factor 2 of conjugate pairs is missing in tangents",
        "numerical_derivatives",
        "test_jax_selective_complex.py",
    ),
    jax(
        "_selective_rules",
        'step = step * arrays["intervals"][..., None]',
        "pass",
        "tangents do not see the intervals",
        "second_order",
        "test_jax_selective_scan.py",
    ),
    jax(
        "_primitives",
        "axis=self.axis + 1, stack=stack)",
        "axis=self.axis, stack=stack)",
        "batches are scanned along another axis",
        "test_vmap",
    ),
    jax(
        "_primitives",
        '"input" in operands or "gate_tangent" in operands or',
        '"input" in operands or',
        "drops the states that tangents of the gate meet",
        FIRST_AND_SECOND,
    ),
    jax(
        "_sharding",
        "return jax.lax.psum(x, flat) if flat else x",
        "return x",
        "devices do not add up their sums",
        "explicit_sharding",
    ),
    jax(
        "nn/_window",
        "begins = [k if reverse else more - k for k in range(count)]",
        "begins = [k for k in range(count)]",
        "the window is seen backwards",
        "step_by_step",
        "test_jax_nn.py",
    ),
    jax(
        "nn/_window",
        "left = jnp.where(sequence[..., steps:, :] == sequence[..., -1:, :], left, 0)",
        "pass",
        "the next chunk sees steps of another sequence",
        "chunks_and_steps or packed",
        "test_jax_nn.py",
    ),
    jax(
        "nn/_s5",
        'jax.lax.complex(-jnp.exp(params["log_decay"])',
        'jax.lax.complex(jnp.exp(params["log_decay"])',
        "states grow",
        "step_by_step and S5",
        "test_jax_nn.py",
    ),
    # PyTorch.
    torch(
        "_functions",
        "of_gate = _linked(pulled * before.conj(), resets, problem)",
        "of_gate = _linked(pulled * before, resets, problem)",
        "second gradients of complex gates are not conjugated",
        DERIVATIVES,
    ),
    torch(
        "_functions",
        "gate_d.to(dtype).conj() * pulled",
        "gate_d.to(dtype) * pulled",
        "tangents of complex gradients are not conjugated",
        DERIVATIVES,
    ),
    torch(
        "_functions",
        "at_edge = at_edge + first",
        "pass",
        "the gradient of the initial state lacks what the gate moves",
        DERIVATIVES,
    ),
    torch(
        "_functions",
        "problem.steps - 1 if problem.reverse else 0, 1)",
        "0, 1)",
        "the initial state of a reverse scan gets what is due at its end",
        DERIVATIVES,
    ),
    torch(
        "_functions",
        "narrow(problem.axis, 1 if problem.reverse else 0, problem.steps)",
        "narrow(problem.axis, 0, problem.steps)",
        "second derivatives of reverse scans are cut one step away",
        DERIVATIVES,
    ),
    torch(
        "_functions",
        "of_gate = (output[0], initial) if ctx.needs_input_grad[0] else "
        "(None, None)\n        ctx.save_for_backward(gate, *of_gate, resets)",
        "of_gate = (output[0], initial)\n        ctx.save_for_backward(gate, *of_gate, resets)",
        "keeps states that no gradient reads",
        "exactly",
        "test_torch_saved_tensors.py",
    ),
    torch(
        "_functions",
        "problem.axis + 1, problem.reverse)",
        "problem.axis, problem.reverse)",
        "batches are scanned along another axis",
        "test_vmap",
    ),
    torch(
        "_gated_functions",
        "if needs[-1]:\n            tensors[1] =",
        "if False:\n            tensors[1] =",
        "gradients of a shared state are added over the batch",
        "derivatives_of_functions",
        "test_torch_layers.py",
    ),
)

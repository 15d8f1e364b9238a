# SPDX-License-Identifier: BSD-3-Clause
"""Calls that scanrec.compat and the packages it stands in for are given alike, and what is kept of their
results: values, and gradients of a weighted sum of them."""

from __future__ import annotations

import zlib
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

__all__ = ["CASES", "Case", "jax_results", "torch_results"]


class Case(NamedTuple):
    """A call: `module` and `function` as of the package, arguments by name and in order. Where the
    package computes on GPUs alone, or has a class around it, `original` is what computed the results,
    given the arguments in order."""

    name: str
    framework: str
    module: str
    function: str
    arguments: dict[str, Any]
    original: tuple[str, str] | None = None


class Draw:
    """Numbers of a stream that NumPy keeps as it is for good."""

    def __init__(self, name: str) -> None:
        self.stream = np.random.RandomState(zlib.crc32(name.encode()) % 2**31)

    def number(self, *shape: int) -> np.ndarray:
        return self.stream.uniform(-1, 1, shape)

    def share(self, *shape: int) -> np.ndarray:
        return self.stream.uniform(0, 1, shape)

    def pair(self, *shape: int) -> np.ndarray:
        return self.number(*shape) + 1j * self.number(*shape)

    def marks(self, *shape: int) -> np.ndarray:
        return self.stream.uniform(0, 1, shape) < 0.3


CASES: list[Case] = []


def add(framework, module, function, name="", original=None, **makers):
    """A case whose arguments are constants, or functions of what they are drawn from."""
    full = ".".join([module, function, *filter(None, [name])])
    draw = Draw(full)
    made = {k: make(draw) if callable(make) else make for k, make in makers.items()}
    CASES.append(Case(full, framework, module, function, made, original))


def linear_scans():
    pair = {"gates": lambda d: d.share(2, 2, 9), "tokens": lambda d: d.number(2, 2, 9)}
    ref = ("accelerated_scan.ref", "scan")
    add("torch", "accelerated_scan.warp", "scan", original=ref, **pair)
    add("torch", "accelerated_scan.ref", "scan", "reverse", **pair, reverse=True)
    forget = {"forget": pair["gates"], "inputs": pair["tokens"]}
    add("torch", "accelerated_scan.scalar", "scan", original=ref, **forget)
    forget["forget"] = lambda d: d.pair(2, 2, 9) / 2
    add("torch", "accelerated_scan.complex", "scan", original=ref, **forget)
    ref = ("linrec.impl.python.ops", "linrec_ref")
    pair = {"inputs": pair["tokens"], "coeffs": pair["gates"]}
    add("torch", "linrec", "linrec", original=ref, **pair)
    add("torch", "linrec", "linrec", "reverse", original=ref, **pair, reverse=True)
    pscan = {"A": lambda d: d.share(2, 9, 2, 3), "X": lambda d: d.number(2, 9, 2, 3)}
    add("torch", "mambapy.pscan", "pscan", original=("mambapy.pscan", "pscan"), **pscan)
    logs = {"log_coeffs": lambda d: -d.share(2, 9, 3), "log_values": lambda d: d.number(2, 9, 3)}
    add("torch", "minGRU_pytorch.minGRU", "heinsen_associative_scan_log", **logs)

    ref = ("torchlpc.recurrence", "Recurrence.apply")
    shape = lambda *n: lambda d: d.number(*n)
    pairs = lambda *n: lambda d: d.pair(*n)
    for name, of in (("real", shape), ("complex", pairs)):
        lr = {"a": of(2, 9), "x": of(2, 9), "zi": of(2)}
        add("torch", "torchlpc", "linear_recurrence", name, original=ref, **lr)
    lpc = {"x": shape(2, 9), "a": shape(2, 9, 1), "zi": shape(2, 1)}
    add("torch", "torchlpc", "sample_wise_lpc", **lpc, return_zf=True)
    add("torch", "philtorch.lti", "linear_recurrence", a=shape(2), init=shape(1), x=shape(2, 9))
    add("torch", "philtorch.lpv", "linear_recurrence", a=shape(9), init=shape(2), x=shape(2, 9))
    both = {"zi": shape(2, 1), "x": shape(2, 9, 1)}
    add("torch", "philtorch._recur", "recurrence", A=shape(1, 9, 1, 1), **both)

    scan = {"x": shape(2, 9, 2), "a": lambda d: d.share(2, 9, 2)}
    wide = {"acc_float_dtype": np.dtype("float64")}
    module = "recurrentgemma.jax.scan"
    add("jax", module, "linear_scan", **scan, h0=shape(2, 2), reverse=True, **wide)
    add("jax", module, "linear_scan", "one_step", x=shape(2, 1, 2), a=shape(2, 1, 2), **wide)


def state_spaces():
    ssm = {
        "x": lambda d: d.number(2, 9, 3),
        "delta": lambda d: d.share(2, 9, 3),
        "A": lambda d: -d.share(3, 4),
        "B": lambda d: d.number(2, 9, 4),
        "C": lambda d: d.number(2, 9, 4),
        "D": lambda d: d.number(3),
    }
    block = ("mambapy.mamba", "MambaBlock.selective_scan")
    add("torch", "mambapy.mamba", "selective_scan", original=block, **ssm)
    for function in ("apply_ssm", "apply_ssm_liquid"):
        for name, both in (("", False), ("bidir", True)):
            s5 = {
                "Lambda_bars": lambda d: d.pair(3) / 2,
                "B_bars": lambda d: d.pair(3, 2) / 2,
                "C_tilde": lambda d, both=both: d.pair(2, 6 if both else 3),
                "D": lambda d: d.number(2),
                "input_sequence": lambda d: d.number(9, 2),
            }
            add("torch", "s5.s5_model", function, name, **s5, bidir=both)
    s5["C_tilde"] = lambda d: d.pair(2, 3)
    s5 |= {"Lambda_bars": lambda d: d.pair(9, 3) / 2, "B_bars": lambda d: d.pair(9, 3, 2) / 2}
    add("torch", "s5.s5_model", "apply_ssm", "varying", **s5, state=lambda d: d.pair(3))
    for both in (False, True):
        s5 = {
            "Lambda_bar": lambda d: d.pair(3) / 2,
            "B_bar": lambda d: d.pair(3, 2),
            "C_tilde": lambda d, both=both: d.pair(2, 6 if both else 3),
            "input_sequence": lambda d: d.number(9, 2),
        }
        name = "bidirectional" if both else "forward"
        add("jax", "s5.ssm", "apply_ssm", name, **s5, conj_sym=not both, bidirectional=both)
    first = lambda d: (d.number(2), d.number(2))
    steps = lambda d: (d.share(9, 2), d.number(9, 2))
    module = ("memax.equinox.scans", "semigroup_scan")
    add("jax", *module, semigroup_op="affine", state=first, input=steps)
    flagged = {
        "state": lambda d: (first(d), np.asarray(False)),
        "input": lambda d: (steps(d), d.marks(9)),
    }
    add("jax", *module, "resettable", semigroup_op="resettable", **flagged)


def returns():
    steps = lambda d: d.number(9)
    share = lambda d: d.share(9)
    n_step = {"r_t": steps, "discount_t": share}
    add("jax", "rlax", "lambda_returns", **n_step, v_t=steps, lambda_=0.75)
    add("jax", "rlax", "discounted_returns", **n_step, v_t=steps)
    gae = {**n_step, "lambda_": share, "values": lambda d: d.number(10)}
    add("jax", "rlax", "truncated_generalized_advantage_estimation", **gae)
    q_and_v = {"q_t": lambda d: d.number(8), "v_t": steps, **n_step, "c_t": lambda d: d.share(8)}
    add("jax", "rlax", "general_off_policy_returns_from_q_and_v", **q_and_v)
    actions = {"a_t": np.arange(9) * 7 % 3, "pi_t": lambda d: d.share(9, 3), "c_t": share}
    q_values = {"q_t": lambda d: d.number(9, 3), **n_step, **actions}
    add("jax", "rlax", "general_off_policy_returns_from_action_values", **q_values)
    trace = {"v_tm1": steps, "v_t": steps, **n_step, "rho_tm1": lambda d: 3 * d.share(9)}
    mask = {"sample_mask": lambda d: ~d.marks(9), "stop_target_gradients": False}
    add("jax", "rlax", "vtrace", **trace, **mask, clip_rho_threshold=0.9)
    add("jax", "rlax", "leaky_vtrace", **trace, alpha_=0.25, lambda_=share)
    add("jax", "rlax", "vtrace_td_error_and_advantage", **trace, clip_pg_rho_threshold=0.8)
    leaky = {"alpha": 0.25, "lambda_": 0.75, **mask}
    add("jax", "rlax", "leaky_vtrace_td_error_and_advantage", **trace, **leaky)

    steps = lambda d: d.number(2, 9, 2)
    share = lambda d: d.share(2, 9, 2)
    mark = lambda d: d.marks(2, 9, 2)
    after = {"next_state_value": steps, "reward": steps, "done": mark}
    module = "torchrl.objectives.value.functional"
    # Numbers that float32 has: the original rounds discounts to it.
    one = {"gamma": 0.875, "lmbda": 0.75}
    ended = {"terminated": mark}
    own = {"gamma": share, **after, **ended, "rolling_gamma": False}
    gae = {"state_value": steps, **after}
    add("torch", module, "generalized_advantage_estimate", **one, **gae, **ended)
    axis = {"gamma": share, "lmbda": 0.75, "time_dim": 0}
    add("torch", module, "generalized_advantage_estimate", "time_dim", **gae, **axis)
    add("torch", module, "vec_generalized_advantage_estimate", **one, **gae)
    add("torch", module, "td1_return_estimate", gamma=share, **after, **ended)
    add("torch", module, "td1_return_estimate", "own", **own)
    add("torch", module, "td1_advantage_estimate", gamma=0.875, **gae)
    add("torch", module, "td_lambda_return_estimate", gamma=share, lmbda=0.75, **after, **ended)
    add("torch", module, "td_lambda_return_estimate", "own", **own, lmbda=share)
    add("torch", module, "vec_td_lambda_advantage_estimate", **one, **gae)
    logs = {"log_pi": steps, "log_mu": steps, "c_thresh": 0.75}
    add("torch", module, "vtrace_advantage_estimate", gamma=0.875, **logs, **gae, **ended)
    add("torch", module, "reward2go", reward=steps, done=mark, gamma=0.875)

    agent = SimpleNamespace(gamma=0.97, tau=0.9, horizon_length=9)
    games = {
        "self": agent,
        "fdones": lambda d: 1.0 * d.marks(3),
        "last_extrinsic_values": lambda d: d.number(3, 1),
        "mb_fdones": lambda d: 1.0 * d.marks(9, 3),
        "mb_extrinsic_values": lambda d: d.number(9, 3, 1),
        "mb_rewards": lambda d: d.number(9, 3, 1),
    }
    module = "rl_games.common.a2c_common"
    add("torch", module, "discount_values", original=(module, "A2CBase.discount_values"), **games)
    masks = {**games, "mb_masks": lambda d: 1.0 * d.marks(9, 3)}
    masked = "discount_values_masks"
    add("torch", module, masked, original=(module, f"A2CBase.{masked}"), **masks)


linear_scans()
state_spaces()
returns()


def weights(shape):
    """Of the sum that is differentiated: no two alike."""
    return np.cos(np.arange(np.prod(shape, dtype=int))).reshape(shape)


def torch_results(call, arguments: dict[str, Any]) -> list[np.ndarray]:
    """Values of call(**arguments), then gradients with respect to all numbers among them."""
    import torch

    tensors = {}
    for name, x in arguments.items():
        if isinstance(x, np.ndarray):
            x = torch.from_numpy(x.copy())
            x.requires_grad_(x.is_floating_point() or x.is_complex())
        tensors[name] = x
    values = call(**tensors)
    values = values if isinstance(values, tuple) else (values,)
    loss = sum(
        (torch.from_numpy(weights(x.shape)) * (x.real if x.is_complex() else x)).sum()
        for x in values
    )
    leaves = [x for x in tensors.values() if isinstance(x, torch.Tensor) and x.requires_grad]
    gradients = torch.autograd.grad(loss, leaves, materialize_grads=True)
    return [x.detach().numpy() for x in (*values, *gradients)]


def jax_results(call, arguments: dict[str, Any]) -> list[np.ndarray]:
    """The same in JAX, values and gradients."""
    import jax
    import jax.numpy as jnp

    numbers = lambda x: isinstance(x, np.ndarray) and x.dtype.kind in "fc"
    leaves, tree = jax.tree.flatten(arguments)
    at = [i for i, x in enumerate(leaves) if numbers(x)]

    def loss(given):
        filled = list(leaves)
        for i, x in zip(at, given):
            filled[i] = x
        values = jax.tree.leaves(call(**jax.tree.unflatten(tree, filled)))
        summed = [jnp.sum(weights(x.shape) * x.real) for x in values if x.dtype != bool]
        return sum(summed), values

    given = [jnp.asarray(leaves[i]) for i in at]
    (_, values), gradients = jax.value_and_grad(loss, has_aux=True)(given)
    return [np.asarray(x) for x in (*values, *gradients)]

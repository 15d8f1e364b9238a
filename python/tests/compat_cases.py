# SPDX-License-Identifier: BSD-3-Clause
"""Test calls that run both in scanrec.compat and in the packages that it replaces.

The recorded results of a call are its values, and the gradients of a weighted sum of them.
"""

from __future__ import annotations

import ast
import inspect
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "CASES",
    "Case",
    "functions",
    "jax_parts",
    "jax_results",
    "shown",
    "torch_parts",
    "torch_results",
    "weights",
]


class Case(NamedTuple):
    """A call to compare: `ours` in scanrec.compat replaces `function` in a package's `module`.

    `arguments` maps names to values, in the package's order. `original` is the (module, function)
    that computed the recorded results. It is None if `function`, called with named arguments,
    computed them. PyTorch originals get the arguments by position.
    """

    name: str
    framework: str
    ours: str
    module: str
    function: str
    arguments: dict[str, Any]
    original: tuple[str, str] | None = None


#: Modules that are namespaces in scanrec.compat. Functions of other modules are directly in
#: scanrec.compat.<package>.
NAMESPACES = {
    *(f"accelerated_scan.{name}" for name in ("complex", "ref", "scalar", "warp")),
    *("philtorch.lpv", "philtorch.lti", "s5.s5_model", "s5.ssm"),
}


def name_here(module: str, function: str) -> str:
    """Return the name in scanrec.compat of a package's function."""
    return f"{module if module in NAMESPACES else module.split('.')[0]}.{function}"


def functions(root: Path) -> Iterator[str]:
    """Yield the names of all functions in the ``__all__`` of a folder's modules.

    Functions in namespaces are included.
    """
    for path in sorted(root.glob("[!_]*.py")):
        body = ast.parse(path.read_text()).body
        assigned = [line for line in body if isinstance(line, ast.Assign)]
        (names,) = (x.value for x in assigned if ast.unparse(x.targets[0]) == "__all__")
        classes = {line.name: line for line in body if isinstance(line, ast.ClassDef)}
        for name in ast.literal_eval(names):
            for member in members(classes[name], classes) if name in classes else [name]:
                yield f"{path.stem}.{member}"


def members(namespace: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> list[str]:
    """List the functions of a namespace and of its base classes."""
    found = [line.name for line in namespace.body if isinstance(line, ast.FunctionDef)]
    found += [line.target.id for line in namespace.body if isinstance(line, ast.AnnAssign)]
    names = [f"{namespace.name}.{name}" for name in found if not name.startswith("_")]
    for base in (classes[base.id] for base in namespace.bases):
        names += [f"{namespace.name}.{name.split('.')[1]}" for name in members(base, classes)]
    return sorted(names)


def shown(parameters: list[inspect.Parameter]) -> str:
    """Format a signature without annotations. A default with a ``__name__`` appears as this name."""

    def alike(parameter):
        default = parameter.default
        if hasattr(default, "__name__") and default is not parameter.empty:
            default = type("Default", (), {"__repr__": lambda self, x=default: x.__name__})()
        return parameter.replace(default=default, annotation=parameter.empty)

    return str(inspect.Signature([alike(p) for p in parameters]))


class Draw:
    """Random numbers from a stream that NumPy does not change between versions."""

    def __init__(self, name: str) -> None:
        self.stream = np.random.RandomState(zlib.crc32(name.encode()) % 2**31)

    def number(self, *shape: int) -> np.ndarray:
        return self.stream.uniform(-1, 1, shape)

    def share(self, *shape: int) -> np.ndarray:
        return self.stream.uniform(0, 1, shape)

    def pair(self, *shape: int) -> np.ndarray:
        return self.number(*shape) + 1j * self.number(*shape)

    def booleans(self, *shape: int) -> np.ndarray:
        return self.stream.uniform(0, 1, shape) < 0.3


CASES: list[Case] = []


def add(framework, module, function, name="", original=None, **makers):
    """Add a case. Arguments are constants, or functions of a Draw.

    The package's names seed the draw, so renaming a function of scanrec.compat has no effect on it.
    """
    draw = Draw(".".join([module, function, *filter(None, [name])]))
    made = {k: make(draw) if callable(make) else make for k, make in makers.items()}
    here = name_here(module, function)
    full = ".".join([here, *filter(None, [name])])
    CASES.append(Case(full, framework, here, module, function, made, original))


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
    lr = {"decay": shape(2, 9), "impulse": shape(2, 9), "initial_state": shape(2)}
    add("torch", "torchlpc.recurrence", "Recurrence.apply", original=ref, **lr)

    scan = {"x": shape(2, 9, 2), "a": lambda d: d.share(2, 9, 2)}
    wide = {"acc_float_dtype": np.dtype("float64")}
    module = "recurrentgemma.jax.scan"
    add("jax", module, "linear_scan", **scan, h0=shape(2, 2), reverse=True, **wide)
    add("jax", module, "linear_scan", "one_step", x=shape(2, 1, 2), a=shape(2, 1, 2), **wide)


def philtorch():
    shape = lambda *n: lambda d: d.number(*n)
    half = lambda *n: lambda d: d.pair(*n) / 2
    lti, lpv = "philtorch.lti", "philtorch.lpv"
    add("torch", lti, "linear_recurrence", a=shape(2), init=shape(1), x=shape(2, 9))
    add("torch", lpv, "linear_recurrence", a=shape(9), init=shape(2), x=shape(2, 9))
    both = {"zi": shape(2, 1), "x": shape(2, 9, 1)}
    add("torch", "philtorch._recur", "recurrence", A=shape(1, 9, 1, 1), **both)
    add("torch", lti, "state_space_recursion", A=shape(2, 1, 1), **both)
    both["x"] = shape(2, 9)
    add("torch", lpv, "state_space_recursion", A=shape(9, 1, 1), **both, out_idx=0)

    x, wide = {"x": shape(2, 9)}, {"x": shape(2, 9, 4)}
    own = {"B": shape(2, 9, 1, 4), "C": shape(9, 3, 1), "D": shape(2, 9, 3, 4), "zi": shape(1)}
    add("torch", lpv, "state_space", A=shape(2, 9, 1, 1), **wide, **own)
    add("torch", lpv, "state_space", "shared", A=shape(9, 1, 1), **x, B=shape(9, 1), D=shape(9, 1))
    add("torch", lti, "state_space", A=shape(1, 1), **wide, B=shape(1, 4), C=shape(3, 1))
    one = {"A": shape(2, 1, 1), "C": shape(2, 1), "D": shape(2), "zi": shape(1)}
    add("torch", lti, "state_space", "zi", **one, **x)
    diagonal = lambda name, **given: add("torch", lti, "diag_state_space", name, **given)
    # The eigenvalues are well separated.
    matrix = lambda *n: lambda d: 0.2 * d.number(*n, 3, 3) + np.diag([-0.5, 0.1, 0.6])
    diagonal("L", L=shape(3), **x, B=shape(3), C=shape(2, 5, 3), D=shape(5), zi=shape(2, 3))
    diagonal("states", L=shape(3), x=shape(2, 9, 3))
    vectors = {"L": half(3), "V": half(3, 3)}
    diagonal("V", **vectors, **wide, B=shape(3, 4), C=shape(3), D=shape(4), zi=shape(3))
    diagonal("both", L=shape(3), V=shape(3, 3), Vinv=shape(3, 3), **x, out_idx=-1)
    vectors = {"L": half(2, 3), "Vinv": half(2, 3, 3)}
    diagonal("batched", **vectors, **wide, B=shape(2, 3, 4), D=shape(2, 3, 4), zi=shape(2, 3))
    diagonal("A", A=matrix(), **wide, B=shape(3, 4), C=shape(2, 3), D=shape(2, 4))
    diagonal("batched_A", A=matrix(2), **x, zi=shape(2, 3), out_idx=1)
    values = np.array([0.6, -0.5, 0.1])
    basis = np.array([[1, 0.5, -0.25], [0.25, 1, 0.5], [-0.5, 0.25, 1]])
    known = basis @ np.diag(values[::-1]) @ np.linalg.inv(basis)
    diagonal("L_and_A", L=values, A=known, **x, C=shape(3))

    for form in ("df2", "tdf2"):
        taps = {"b": shape(2, 4), "a": shape(1), **x, "zi": shape(2, 3), "form": form}
        add("torch", lti, "lfilter", form, **taps)
    add("torch", lti, "lfilter", "bare", b=shape(1), a=shape(1), x=shape(9), backend="diag_ssm")
    comb = {"a": shape(2), "delay": 4, **x}
    add("torch", lti, "comb_filter", **comb)
    add("torch", lti, "comb_filter", "zi", **comb, zi=shape(4))


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
        "input": lambda d: (steps(d), d.booleans(9)),
    }
    add("jax", *module, "resettable", semigroup_op="resettable", **flagged)


def returns():
    steps = lambda d: d.number(9)
    share = lambda d: d.share(9)
    first = {"r_t": steps, "discount_t": share}
    add("jax", "rlax", "lambda_returns", **first, v_t=steps, lambda_=0.75)
    add("jax", "rlax", "discounted_returns", **first, v_t=steps)
    gae = {**first, "lambda_": share, "values": lambda d: d.number(10)}
    add("jax", "rlax", "truncated_generalized_advantage_estimation", **gae)
    q_and_v = {"q_t": lambda d: d.number(8), "v_t": steps, **first, "c_t": lambda d: d.share(8)}
    add("jax", "rlax", "general_off_policy_returns_from_q_and_v", **q_and_v)
    actions = {"a_t": np.arange(9) * 7 % 3, "pi_t": lambda d: d.share(9, 3), "c_t": share}
    q_values = {"q_t": lambda d: d.number(9, 3), **first, **actions}
    add("jax", "rlax", "general_off_policy_returns_from_action_values", **q_values)
    errors = {"r_t": steps, "discount_t": share, "rho_tm1": lambda d: 2 * d.share(9)}
    errors |= {"lambda_": share, "values": lambda d: d.number(10)}
    corrected = "importance_corrected_td_errors"  # not exported by the package
    for name, stop in (("", False), ("stopped", True)):
        given = {**errors, "stop_target_gradients": stop}
        add("jax", "rlax", corrected, name, ("rlax._src.multistep", corrected), **given)
    trace = {"v_tm1": steps, "v_t": steps, **first, "rho_tm1": lambda d: 3 * d.share(9)}
    mask = {"sample_mask": lambda d: ~d.booleans(9), "stop_target_gradients": False}
    add("jax", "rlax", "vtrace", **trace, **mask, clip_rho_threshold=0.9)
    add("jax", "rlax", "leaky_vtrace", **trace, alpha_=0.25, lambda_=share)
    add("jax", "rlax", "vtrace_td_error_and_advantage", **trace, clip_pg_rho_threshold=0.8)
    leaky = {"alpha": 0.25, "lambda_": 0.75, **mask}
    add("jax", "rlax", "leaky_vtrace_td_error_and_advantage", **trace, **leaky)

    steps = lambda d: d.number(2, 9, 2)
    share = lambda d: d.share(2, 9, 2)
    mark = lambda d: d.booleans(2, 9, 2)
    after = {"next_state_value": steps, "reward": steps, "done": mark}
    module = "torchrl.objectives.value.functional"
    # The original rounds discounts to float32, so gamma and lmbda are exact in float32.
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
        "fdones": lambda d: 1.0 * d.booleans(3),
        "last_extrinsic_values": lambda d: d.number(3, 1),
        "mb_fdones": lambda d: 1.0 * d.booleans(9, 3),
        "mb_extrinsic_values": lambda d: d.number(9, 3, 1),
        "mb_rewards": lambda d: d.number(9, 3, 1),
    }
    module = "rl_games.common.a2c_common"
    add("torch", module, "discount_values", original=(module, "A2CBase.discount_values"), **games)
    masks = {**games, "mb_masks": lambda d: 1.0 * d.booleans(9, 3)}
    masked = "discount_values_masks"
    add("torch", module, masked, original=(module, f"A2CBase.{masked}"), **masks)


linear_scans()
philtorch()
state_spaces()
returns()


def weights(shape):
    """Return distinct weights for the sum that is differentiated."""
    return np.cos(np.arange(np.prod(shape, dtype=int))).reshape(shape)


def torch_parts(call, arguments: dict[str, Any]):
    """Return the call as a function of its real and complex arrays, and these arrays.

    The function returns a tuple.
    """
    import torch

    tensor = lambda x: torch.from_numpy(x.copy()) if isinstance(x, np.ndarray) else x
    names = [k for k, x in arguments.items() if isinstance(x, np.ndarray) and x.dtype.kind in "fc"]
    every = {name: tensor(x) for name, x in arguments.items()}

    def function(*given):
        values = call(**every | dict(zip(names, given)))
        return values if isinstance(values, tuple) else (values,)

    return function, [every[name] for name in names]


def jax_parts(call, arguments: dict[str, Any]):
    """Return the result of torch_parts for a call in JAX."""
    import jax
    import jax.numpy as jnp

    leaves, tree = jax.tree.flatten(arguments)
    at = [i for i, x in enumerate(leaves) if isinstance(x, np.ndarray) and x.dtype.kind in "fc"]

    def function(*given):
        filled = list(leaves)
        for i, x in zip(at, given):
            filled[i] = x
        return tuple(jax.tree.leaves(call(**jax.tree.unflatten(tree, filled))))

    return function, [jnp.asarray(leaves[i]) for i in at]


def torch_results(call, arguments: dict[str, Any]) -> list[np.ndarray]:
    """Return the values of call(**arguments), then the gradients of its real and complex arrays."""
    import torch

    function, given = torch_parts(call, arguments)
    leaves = [x.requires_grad_() for x in given]
    values = function(*leaves)
    loss = sum(
        (torch.from_numpy(weights(x.shape)) * (x.real if x.is_complex() else x)).sum()
        for x in values
    )
    gradients = torch.autograd.grad(loss, leaves, materialize_grads=True)
    return [x.detach().numpy() for x in (*values, *gradients)]


def jax_results(call, arguments: dict[str, Any]) -> list[np.ndarray]:
    """Return the results of torch_results for a call in JAX."""
    import jax
    import jax.numpy as jnp

    function, given = jax_parts(call, arguments)

    def loss(given):
        values = function(*given)
        summed = [jnp.sum(weights(x.shape) * x.real) for x in values if x.dtype != bool]
        return sum(summed), values

    (_, values), gradients = jax.value_and_grad(loss, has_aux=True)(given)
    return [np.asarray(x) for x in (*values, *gradients)]

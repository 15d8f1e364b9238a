#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Record results and signatures of the packages that scanrec.compat replaces.

The script writes compat.npz and compat_signatures.json into its folder. It needs the packages that
the folder's README.md lists, and clones of S5 and linrec, which are in no package index.
Usage, with the folders of the clones: make_compat.py S5 LINREC
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import json
import sys
from functools import partial
from importlib.metadata import version
from inspect import Parameter
from pathlib import Path

import jax
import numpy as np
import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from compat_cases import CASES, functions, jax_results, shown, torch_results

PACKAGES = {
    "accelerated_scan": "accelerated-scan",
    "mambapy": "mambapy",
    "s5": "s5-pytorch",
    "minGRU_pytorch": "minGRU-pytorch",
    "recurrentgemma": "recurrentgemma",
    "memax": "memax",
    "torchlpc": "torchlpc",
    "philtorch": "philtorch",
    "rlax": "rlax",
    "torchrl": "torchrl",
    "rl_games": "rl_games",
}


def imported(module: str, clones: dict[str, str]):
    """Import a module from an installed package or from a clone.

    Two packages are called s5, so modules from clones do not stay in sys.modules.
    """
    top = module.split(".")[0]
    for clone, path in clones.items():
        if module.startswith(clone):
            _forget(top)
            sys.path.insert(0, path)
            try:
                return importlib.import_module(module)
            finally:
                sys.path.remove(path)
                _forget(top)
    return importlib.import_module(module)


def _forget(top: str) -> None:
    for name in [n for n in sys.modules if n.split(".")[0] == top]:
        del sys.modules[name]


def operator(name: str):
    """Return a semigroup of memax."""
    from memax.equinox.groups import Resettable
    from memax.equinox.semigroups.s6 import S6Semigroup

    return Resettable(S6Semigroup(2)) if name == "resettable" else S6Semigroup(2)


# The (module, function) with the recorded signature, for functions of scanrec.compat that have no
# case, or whose case names another original. None: only a later version has the function.
ELSEWHERE = {
    "accelerated_scan.scan": ("accelerated_scan.warp", "scan"),
    "mambapy.pscan": ("mambapy.pscan", "PScan.forward"),
    "torchlpc.Recurrence.apply": ("torchlpc.recurrence", "Recurrence.forward"),
    "torchlpc.linear_recurrence": None,
}
for _name in ("td1_advantage_estimate", "td1_return_estimate", "td_lambda_return_estimate"):
    ELSEWHERE[f"torchrl.vec_{_name}"] = ("torchrl.objectives.value.functional", f"vec_{_name}")
_name = "td_lambda_advantage_estimate"
ELSEWHERE[f"torchrl.{_name}"] = ("torchrl.objectives.value.functional", _name)


def signatures(clones) -> dict[str, str | None]:
    """Return each function's parameters, except `self` and `ctx`, by its name in scanrec.compat."""
    positions = {}
    for case in CASES:
        own = (case.module, case.function)
        warped = case.module.startswith("accelerated_scan")
        positions[case.ours] = own if warped else case.original or own
    positions |= ELSEWHERE
    names = functions(HERE.parents[1] / "src/scanrec/compat")
    return {name: positions[name] and parameters(*positions[name], clones) for name in names}


def parameters(module: str, function: str, clones) -> str:
    if module == "accelerated_scan.warp":  # cannot be imported without a GPU
        source = Path(importlib.util.find_spec(module).origin).read_text()
        body = [f for f in ast.parse(source).body if isinstance(f, ast.FunctionDef)]
        (found,) = (f.args for f in body if f.name == function)
        assert not found.defaults and not found.kwonlyargs
        names = [x.arg for x in found.args]
        return shown([Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names])
    call = imported(module, clones)
    for name in function.split("."):
        call = getattr(call, name)
    made = list(inspect.signature(call).parameters.values())
    if made[0].name in ("self", "ctx"):
        del made[0]
    if function.endswith(".forward"):  # called by `apply`, which takes no keywords
        made = [p.replace(kind=Parameter.POSITIONAL_ONLY) for p in made]
    return shown(made)


def results(case, clones) -> list[np.ndarray]:
    module, function = case.original or (case.module, case.function)
    call = imported(module, clones)
    for name in function.split("."):
        call = getattr(call, name)
    if function.startswith("MambaBlock."):  # a method that does not use `self`
        call = partial(call, None)
    arguments = dict(case.arguments)
    if "semigroup_op" in arguments:
        arguments["semigroup_op"] = operator(arguments["semigroup_op"])
    ordered = lambda **given: call(*given.values())
    # Originals in PyTorch may have other argument names, so they get arguments by position. JAX
    # sorts the dict of arguments by name, so functions in JAX get arguments by name.
    given = ordered if case.original and case.framework == "torch" else call
    return {"torch": torch_results, "jax": jax_results}[case.framework](given, arguments)


def main() -> None:
    clones = dict(zip(("s5.ssm", "linrec"), sys.argv[1:], strict=True))
    jax.config.update("jax_enable_x64", True)
    # A dependency of rlax needs this attribute, which JAX has moved.
    import jax.interpreters.xla as xla

    if not hasattr(xla, "pytype_aval_mappings"):
        xla.pytype_aval_mappings = jax.core.pytype_aval_mappings
    numbers, index = [], {}
    for case in CASES:
        made = results(case, clones)
        index[case.name] = [(x.shape, x.dtype.name) for x in made]
        numbers += [x.astype(np.result_type(x, float)).ravel().view(float) for x in made]
    versions = {name: version(package) for name, package in PACKAGES.items()}
    versions |= {"torch": torch.__version__, "jax": jax.__version__}
    print(json.dumps(versions, indent=1))
    np.savez_compressed(
        HERE / "compat.npz",
        numbers=np.concatenate(numbers),
        index=np.frombuffer(json.dumps(index).encode(), np.uint8),
    )

    lines = (f"{json.dumps(name)}: {json.dumps(x)}" for name, x in signatures(clones).items())
    (HERE / "compat_signatures.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes compat.npz beside it: results of the packages that scanrec.compat stands in for.

Needs the packages of README.md; run it only to make them anew. Clones of S5 and linrec, which are on
no index, are given: make_compat.py S5 LINREC
"""

from __future__ import annotations

import importlib
import json
import sys
from functools import partial
from importlib.metadata import version
from pathlib import Path

import jax
import numpy as np
import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from compat_cases import CASES, jax_results, torch_results

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
    """A module of a package that is installed, or of a clone: two packages are called s5."""
    for clone, path in clones.items():
        if module.startswith(clone):
            for name in [n for n in sys.modules if n.split(".")[0] == module.split(".")[0]]:
                del sys.modules[name]
            sys.path.insert(0, path)
            try:
                return importlib.import_module(module)
            finally:
                sys.path.remove(path)
    return importlib.import_module(module)


def operator(name: str):
    """Semigroups of memax."""
    from memax.equinox.groups import Resettable
    from memax.equinox.semigroups.s6 import S6Semigroup

    return Resettable(S6Semigroup(2)) if name == "resettable" else S6Semigroup(2)


def results(case, clones) -> list[np.ndarray]:
    module, function = case.original or (case.module, case.function)
    call = imported(module, clones)
    for name in function.split("."):
        call = getattr(call, name)
    if function.startswith("MambaBlock."):  # a method that does not look at its block
        call = partial(call, None)
    arguments = dict(case.arguments)
    if "semigroup_op" in arguments:
        arguments["semigroup_op"] = operator(arguments["semigroup_op"])
    ordered = lambda **given: call(*given.values())
    given = ordered if case.original else call
    return {"torch": torch_results, "jax": jax_results}[case.framework](given, arguments)


def main() -> None:
    clones = dict(zip(("s5.ssm", "linrec"), sys.argv[1:], strict=True))
    jax.config.update("jax_enable_x64", True)
    # What a dependency of rlax looks for where JAX no longer has it.
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


if __name__ == "__main__":
    main()

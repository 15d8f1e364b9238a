# SPDX-License-Identifier: BSD-3-Clause
"""Tests of type hints: checkers accept the package and code that calls it, and signatures written
twice (overloads, Flax modules) agree."""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import shutil
import subprocess
import sys
import typing
from pathlib import Path

import pytest

# Files of user code, and the packages that they need.
CODE = {"types_numpy.py": (), "types_jax.py": ("jax", "flax"), "types_torch.py": ("torch",)}
FRAMEWORKS = ("jax", "flax", "torch")


def is_there(*names):
    return all(importlib.util.find_spec(name) is not None for name in names)


def run(checker, *arguments, at):
    """Run a type checker in the environment of this test. Skip the test if it is not installed."""
    if not is_there(checker):
        pytest.skip(f"{checker} is not installed")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = [sys.executable, "-m", checker, *map(str, arguments)]
    environment = {**os.environ, "PATH": path}
    return subprocess.run(command, cwd=at, env=environment, capture_output=True, text=True)


@pytest.fixture
def code(tmp_path):
    """Copy the user code whose packages are installed, and return the names of the files."""
    names = [name for name, needed in CODE.items() if is_there(*needed)]
    for name in names:
        shutil.copy(Path(__file__).with_name(name), tmp_path)
    return names


# The settings are strict: a "type: ignore" that hides no error is an error.
def test_mypy_accepts_the_package_and_code_that_calls_it(code, tmp_path):
    project = Path(__file__).parents[1]
    package = [project / "src" / "scanrec"] if is_there(*FRAMEWORKS) else []
    settings = ("--config-file", project / "pyproject.toml", "--cache-dir", os.devnull)
    ran = run("mypy", *settings, *package, *code, at=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_pyright_accepts_code_that_calls_the_package(code, tmp_path):
    options = {"typeCheckingMode": "standard", "reportUnnecessaryTypeIgnoreComment": "error"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(options))
    ran = run("basedpyright", *code, at=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_public_names_have_types(tmp_path):
    for name in FRAMEWORKS:
        pytest.importorskip(name, reason=f"{name} is not installed")
    options = ("--verifytypes", "scanrec", "--ignoreexternal", "--outputjson")
    found = json.loads(run("basedpyright", *options, at=tmp_path).stdout)["typeCompleteness"]
    unknown = [symbol["name"] for symbol in found["symbols"] if not symbol["isTypeKnown"]]
    assert not unknown, unknown
    assert len(found["symbols"]) > 100


def calls():
    """Yield the public functions with their names."""
    for part in ("scanrec", "scanrec.jax", "scanrec.torch"):
        if is_there(*part.split(".")[1:]):
            module = importlib.import_module(part)
            for name in module.__all__:
                if inspect.isfunction(getattr(module, name)):
                    yield pytest.param(getattr(module, name), id=f"{part}.{name}")


def parameters(call):
    return inspect.signature(call).parameters


#: Options that select the type of the result.
SWITCH = {"return_final", "return_last_state"}


@pytest.mark.parametrize("call", list(calls()))
def test_every_parameter_has_a_resolvable_type_hint(call):
    hints = typing.get_type_hints(call)
    assert hints.keys() - {"return"} == parameters(call).keys()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="get_overloads needs Python 3.11")
@pytest.mark.parametrize("call", [x for x in calls() if SWITCH & parameters(x.values[0]).keys()])
def test_overloads_have_the_defaults_of_the_call(call):
    whole, overloads = parameters(call), typing.get_overloads(call)
    assert len(overloads) >= 3
    for overload in overloads:
        for name, parameter in parameters(overload).items():
            same = whole[name].replace(kind=parameter.kind)
            if name in SWITCH or parameter.default is parameter.empty:
                same = same.replace(default=parameter.default, annotation=parameter.annotation)
            assert parameter == same
        assert parameters(overload).keys() == whole.keys()


@pytest.mark.parametrize("name", ["LRU", "Mamba", "MinGRU", "QRNN", "RGLRU", "S5"])
def test_flax_modules_have_the_options_of_the_layers(name):
    pytest.importorskip("flax", reason="Flax is not installed")
    from scanrec.jax import nn, nnx

    module = dict(inspect.signature(getattr(nnx, name)).parameters)
    assert module.pop("rngs").kind == module.pop("dtype").kind == inspect.Parameter.KEYWORD_ONLY
    assert module == dict(inspect.signature(getattr(nn, name)).parameters)


def test_dir_lists_only_public_names():
    parts = {
        "jax": ("scanrec.jax", "scanrec.jax.nn"),
        "flax": ("scanrec.jax.nnx",),
        "torch": ("scanrec.torch", "scanrec.torch.nn", "scanrec.torch.integrations"),
    }
    for framework, names in parts.items():
        for name in names if is_there(framework) else ():
            module = importlib.import_module(name)
            parts_of_it = {x for x in dir(module) if inspect.ismodule(getattr(module, x))}
            listed = {x for x in dir(module) if not x.startswith("_")} - parts_of_it
            assert listed == set(module.__all__) - parts_of_it

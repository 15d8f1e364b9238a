# SPDX-License-Identifier: BSD-3-Clause
"""Tests of the docstrings of public calls, at run time and as the documentation site shows them."""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from pathlib import Path

import pytest

from scanrec._op import doc

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "python" / "src" / "scanrec"
MODULES = ("scanrec", "scanrec.jax", "scanrec.torch")

sys.path.insert(0, str(ROOT / "docs" / "site"))
import python_reference


def public_calls():
    for module, found in python_reference.exports(PACKAGE):
        for name, node in found if module.name in MODULES else ():
            if isinstance(node, ast.FunctionDef):
                yield pytest.param(module.name, node, id=f"{module.name}.{name}")


def parameters(function):
    given = function.args
    return [x.arg for x in (*given.posonlyargs, *given.args, *given.kwonlyargs)]


def entry_names(text, section="Parameters"):
    return [names for names, _ in doc.entries(doc.sections(text).get(section, ""))]


def bindings():
    """Yield the functions with the decorator `documented`, and the names of their shared texts."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            for decorator in getattr(node, "decorator_list", ()):
                if ast.unparse(decorator).startswith("documented("):
                    yield node, [ast.unparse(x) for x in decorator.args]


def shared_texts():
    for path in sorted((PACKAGE / "_op").rglob("spec.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            name = ast.unparse(node.targets[0]) if isinstance(node, ast.Assign) else ""
            if name.endswith("_DOC"):
                yield pytest.param(name, ast.literal_eval(node.value), id=name)


@pytest.mark.parametrize("module, function", list(public_calls()))
def test_each_parameter_is_documented_once_in_the_order_of_the_signature(module, function):
    order, documented = parameters(function), entry_names(ast.get_docstring(function))
    assert sorted(n for names in documented for n in names) == sorted(order)
    assert all(names == sorted(names, key=order.index) for names in documented)
    firsts = [names[0] for names in documented]
    assert firsts == sorted(firsts, key=order.index)


@pytest.mark.parametrize("module, function", list(public_calls()))
def test_calls_with_parameters_have_all_sections(module, function):
    sections = doc.sections(ast.get_docstring(function))
    assert sections[""]
    if parameters(function):
        assert sections.keys() >= {"Parameters", "Returns", "Raises"}
        assert ["ValueError", "TypeError"] in entry_names(ast.get_docstring(function), "Raises")


@pytest.mark.parametrize("module, function", list(public_calls()))
def test_docstrings_at_run_time_equal_those_of_the_site(module, function):
    if module != "scanrec":
        pytest.importorskip(module.partition(".")[2])
    call = getattr(importlib.import_module(module), function.name)
    assert inspect.getdoc(call) == ast.get_docstring(function)


@pytest.mark.parametrize("name, text", list(shared_texts()))
def test_each_shared_entry_is_used_by_a_binding(name, text):
    used = set()
    for function, texts in bindings():
        if name in texts:
            own = {n for names in entry_names(ast.get_docstring(function) or "") for n in names}
            used |= set(parameters(function)) - own
    assert {n for names in entry_names(text) for n in names} <= used


def test_each_entry_of_a_binding_is_a_parameter():
    functions = [function for function, _ in bindings()]
    assert len(functions) >= 9
    for function in functions:
        own = {n for names in entry_names(ast.get_docstring(function) or "") for n in names}
        assert own <= set(parameters(function)), function.name


def test_entries_are_replaced_and_other_text_is_appended():
    shared = """
    Scan.

    Parameters
    ----------
    a, b:
        Shared.
    absent:
        Not in the signature.

    Notes
    -----
    Shared notes.
    """
    own = """
    Differentiable.

    Parameters
    ----------
    c:
        Own.
    b:
        Replaced.

    Notes
    -----
    Own notes.
    """
    expected = """
    Scan.

    Differentiable.

    Parameters
    ----------
    a:
        Shared.
    b:
        Replaced.
    c:
        Own.

    Notes
    -----
    Shared notes.

    Own notes.
    """
    composed = doc.compose(["a", "b", "c"], shared, own)
    before, _, after = composed.partition("Raises\n")
    _, _, after = after.partition("Notes\n")
    assert f"{before}Notes\n{after}" == inspect.cleandoc(expected)

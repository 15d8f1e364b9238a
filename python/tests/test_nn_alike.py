# SPDX-License-Identifier: BSD-3-Clause
"""Tests that the PyTorch and JAX layers agree in outputs, states, options and errors."""

from __future__ import annotations

import inspect
from dataclasses import fields

import numpy as np
import pytest
from conftest import Random

jax = pytest.importorskip("jax", reason="JAX is not installed")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")
torch_nn = pytest.importorskip("scanrec.torch.nn", reason="scanrec.torch.nn is not available")
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_num_cpu_devices", 8)

from test_jax_nn import LAYERS, state_of, weights_of

from scanrec.jax import nn as jax_nn


@pytest.mark.parametrize("name", LAYERS)
def test_equal_weights_give_equal_outputs_and_states(name):
    layer, random = LAYERS[name], Random(1)
    options = {field.name: getattr(layer, field.name) for field in fields(layer)}
    module = getattr(torch_nn, type(layer).__name__)(**options, batch_first=True)
    module = module.double().eval()
    weights = {
        f"{name}_l{i}{'_reverse' if way == 'reverse' else ''}": torch.from_numpy(np.array(x))
        for i, ways in enumerate(weights_of(layer).values())
        for way, names in ways.items()
        for name, x in names.items()
    }
    module.load_state_dict(weights)  # strict: names and shapes must match
    u, apply = random(2, 9, layer.input_size), jax.jit(layer.apply)
    # Each framework's own tests cover a state without resets and resets without a state.
    for state, reset_mask in ((None, None), (state_of(layer, random, 2), random.booleans(2, 10))):
        given = jax.tree.map(lambda x: torch.from_numpy(np.array(x)), state)
        if isinstance(given, tuple):
            given = type(given)(*given)
        want, final = apply(weights_of(layer), u, state, resets=reset_mask)
        with torch.no_grad():
            resets = None if reset_mask is None else torch.from_numpy(reset_mask)
            got, last = module(torch.from_numpy(u), given, resets)
        last = [last] if isinstance(last, torch.Tensor) else last
        for x, y in zip([got, *last], jax.tree.leaves((want, final)), strict=True):
            assert tuple(x.shape) == y.shape
            np.testing.assert_allclose(x.numpy(), y, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["LRU", "Mamba", "MinGRU", "QRNN", "RGLRU", "S5"])
def test_layers_have_the_same_options_and_documentation(name):
    kinds, docs = (getattr(torch_nn, name), getattr(jax_nn, name)), []
    of_torch, of_jax = (dict(inspect.signature(kind).parameters) for kind in kinds)
    assert of_torch.keys() - of_jax.keys() == {"batch_first", "device", "dtype"}
    for option, parameter in of_jax.items():
        assert parameter.replace(kind=of_torch[option].kind) == of_torch[option]
    for kind in kinds:
        own, _, description = inspect.getdoc(kind).partition("\n\nA step computes")
        assert own and all(option in description for option in list(of_jax)[6:])
        docs.append(description)
    assert docs[0] and docs[0] == docs[1]


REFUSED = [
    *(("MinGRU", "input_size", 0), ("MinGRU", "num_layers", 1.5), ("MinGRU", "bias", "no")),
    *(("MinGRU", "dropout", 2), ("MinGRU", "dropout", "x"), ("MinGRU", "candidate", "tanh")),
    *(("QRNN", "kernel_size", 3), ("QRNN", "kernel_size", True), ("QRNN", "pool", "of")),
    *(("QRNN", "zoneout", 1), ("QRNN", "zoneout", -0.1), ("QRNN", "memory", "none")),
    *(
        ("LRU", "r_min", 0.999),
        ("LRU", "r_min", -1),
        ("LRU", "r_max", 1.1),
        ("LRU", "max_phase", 0),
    ),
    *(("LRU", "max_phase", 7), ("S5", "state_size", 7), ("S5", "discretisation", "euler")),
    *(("S5", "dt_min", 0), ("S5", "dt_min", 1.0), ("S5", "dt_max", float("inf"))),
    *(("RGLRU", "heads", 3), ("RGLRU", "c", 0), ("RGLRU", "c", float("inf")), ("RGLRU", "c", "x")),
    *(("Mamba", "dt_rank", "all"), ("Mamba", "dt_rank", 0), ("Mamba", "conv", 0)),
]


@pytest.mark.parametrize(("name", "option", "value"), REFUSED)
def test_invalid_options_raise_the_same_errors(name, option, value):
    errors = []
    for package in (torch_nn, jax_nn):
        with pytest.raises((ValueError, TypeError)) as raised:
            getattr(package, name)(**{"input_size": 3, "hidden_size": 4, option: value})
        errors.append((raised.type, str(raised.value)))
    assert errors[0] == errors[1]
    assert errors[0][1].startswith(f"{name}: argument '{option}': expected ")

# SPDX-License-Identifier: BSD-3-Clause
"""Layers of PyTorch and of JAX: with the same weights the same outputs and states."""

from __future__ import annotations

import inspect
from dataclasses import fields

import numpy as np
import pytest
from conftest import Random

jax = pytest.importorskip("jax", reason="JAX is not installed")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")
torch_nn = pytest.importorskip("scanrec.torch.nn", reason="there are no layers for PyTorch")
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_num_cpu_devices", 8)

from test_jax_nn import LAYERS, state_of, weights_of


@pytest.mark.parametrize("name", LAYERS)
def test_alike(name):
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
    module.load_state_dict(weights)  # all there are, of the same shapes
    u, apply = random(2, 9, layer.input_size), jax.jit(layer.apply)
    for state in (None, state_of(layer, random, 2)):
        given = jax.tree.map(lambda x: torch.from_numpy(np.array(x)), state)
        if isinstance(given, tuple):
            given = type(given)(*given)
        for marks in (None, random.marks(2, 10)):
            want, final = apply(weights_of(layer), u, state, resets=marks)
            with torch.no_grad():
                resets = None if marks is None else torch.from_numpy(marks)
                got, last = module(torch.from_numpy(u), given, resets)
            last = [last] if isinstance(last, torch.Tensor) else last
            for x, y in zip([got, *last], jax.tree.leaves((want, final)), strict=True):
                assert tuple(x.shape) == y.shape
                np.testing.assert_allclose(x.numpy(), y, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["LRU", "Mamba", "MinGRU", "QRNN", "RGLRU", "S5"])
def test_layers_have_the_same_options_and_documentation(name):
    kinds = (
        getattr(torch_nn, name),
        type(next(x for x in LAYERS.values() if type(x).__name__ == name)),
    )
    (of_torch, of_jax), docs = map(dict, (inspect.signature(x).parameters for x in kinds)), []
    assert of_torch.keys() - of_jax.keys() == {"batch_first", "device", "dtype"}
    for option, parameter in of_jax.items():
        assert (of_torch[option].default, of_torch[option].annotation) == (
            parameter.default,
            parameter.annotation,
        )
    for kind in kinds:
        own, _, description = inspect.getdoc(kind).partition("\n\nA step computes")
        assert own and all(f"{option}" in description for option in list(of_jax)[6:])
        docs.append(description)
    assert docs[0] and docs[0] == docs[1]

# SPDX-License-Identifier: BSD-3-Clause
"""Train a layer of scanrec.jax.nn, as an Equinox module, to repeat its input two steps later.

pip install './python[jax]' equinox optax && python python/examples/equinox_layer.py
"""

import argparse

import equinox
import jax
import jax.numpy as jnp
import optax

from scanrec.jax import nn


class Recurrent(equinox.Module):
    """Wrap any layer. Its configuration is static, its parameters are leaves."""

    layer: nn.Layer = equinox.field(static=True)
    params: dict

    def __init__(self, layer, *, key):
        self.layer, self.params = layer, layer.init(key)

    def __call__(self, input, state=None, resets=None, *, key=None):
        return self.layer.apply(self.params, input, state, resets=resets, key=key)

    def step(self, input, state=None):
        return self.layer.step(self.params, input, state)


@equinox.filter_value_and_grad
def loss(model, heard):
    said, _ = model(heard)
    return jnp.mean((said[:, 2:] - heard[:, :-2]) ** 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--iterations", type=int, default=1000)
    keys = jax.random.split(jax.random.key(0), parser.parse_args().iterations)
    model = Recurrent(nn.Mamba(1, 1, expand=32), key=jax.random.key(1))
    optimiser = optax.adam(optax.cosine_decay_schedule(2e-2, len(keys)))
    moments = optimiser.init(model)

    @equinox.filter_jit
    def learn(model, moments, key):
        error, gradient = loss(model, jax.random.normal(key, (8, 64, 1)))
        change, moments = optimiser.update(gradient, moments)
        return equinox.apply_updates(model, change), moments, error

    for i, key in enumerate(keys):
        model, moments, error = learn(model, moments, key)
        if i in (0, len(keys) - 1):
            print(f"iteration {i}: mean square error {error:.4f}")


if __name__ == "__main__":
    main()

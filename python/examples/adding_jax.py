# SPDX-License-Identifier: BSD-3-Clause
"""A recurrent model learns to add the two marked numbers of a sequence, in JAX.

    input[t] = (value[t], marker[t])        answer = sum of marker[t] * value[t]

This is the adding problem (Hochreiter and Schmidhuber, Long Short-Term Memory, 1997, experiment 4).
docs/tutorial_jax.md explains the program.

    pip install './python[jax]' optax && python python/examples/adding_jax.py
"""

# [adding_jax_model]
import jax
import jax.numpy as jnp
import optax

import scanrec.jax
from scanrec.jax import nn

layer = nn.MinGRU(2, 32, num_layers=2)  # 2 inputs, 32 channels


def init(key):
    layer_key, weight_key = jax.random.split(key)
    weight = jax.random.normal(weight_key, (32,)) / 32**0.5
    return {"layer": layer.init(layer_key), "weight": weight, "bias": jnp.ones(())}


def answer(params, sequence):
    """(..., T, 2) to (...): a linear function of the last step's output."""
    output, _ = layer.apply(params["layer"], sequence)
    return output[..., -1, :] @ params["weight"] + params["bias"]


# [/adding_jax_model]


# [adding_jax_data]
def examples(key, size, steps):
    """Sequences (size, steps, 2) with a marker in each half, and the answers (size,)."""
    value_key, first_key, second_key = jax.random.split(key, 3)
    value = jax.random.uniform(value_key, (size, steps))
    first = jax.random.randint(first_key, (size, 1), 0, steps // 2)
    second = jax.random.randint(second_key, (size, 1), steps // 2, steps)
    step = jnp.arange(steps)
    marker = (step == first) | (step == second)
    return jnp.stack([value, marker], -1), jnp.sum(value * marker, -1)


# [/adding_jax_data]


# [adding_jax_learn]
def loss(params, sequences, answers):
    return jnp.mean((answer(params, sequences) - answers) ** 2)


optimiser = optax.adam(optax.cosine_decay_schedule(3e-2, 1000))


@jax.jit
def learn(params, moments, key):
    gradient = jax.grad(loss)(params, *examples(key, 32, 200))
    change, moments = optimiser.update(gradient, moments)
    return optax.apply_updates(params, change), moments


# [/adding_jax_learn]


def main():
    # [adding_jax_train]
    params = init(jax.random.key(0))
    moments = optimiser.init(params)
    held_out = examples(jax.random.key(1), 500, 200)
    for iteration in range(1001):
        if iteration % 250 == 0:
            print(f"iteration {iteration}: mean squared error {loss(params, *held_out):.4f}")
        params, moments = learn(params, moments, jax.random.key(2 + iteration))
    # [/adding_jax_train]

    # [adding_jax_longer]
    for steps in (200, 400, 800):
        error = loss(params, *examples(jax.random.key(3), 100, steps))
        print(f"{steps} steps: mean squared error {error:.4f}")
    # [/adding_jax_longer]

    # [adding_jax_inside]
    sequences = held_out[0]
    weights = params["layer"]["layer_0"]["forward"]
    value, update = jnp.split(sequences @ weights["weight"].T + weights["bias"], 2, -1)
    update = jax.nn.sigmoid(update)
    states = scanrec.jax.linear_scan(1 - update, update * value)  # (500, 200, 32)

    first_layer = nn.MinGRU(2, 32)
    output, last = first_layer.apply({"layer_0": params["layer"]["layer_0"]}, sequences)
    print("equal to the layer:", bool(jnp.allclose(states, output, atol=1e-5)))
    # [/adding_jax_inside]


if __name__ == "__main__":
    main()

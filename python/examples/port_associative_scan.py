# SPDX-License-Identifier: BSD-3-Clause
"""A layer of complex decays, ported from jax.lax.associative_scan to scanrec.jax.linear_scan.

    state[t] = gate * state[t-1] + input[t] @ b        output[t] = real part of state[t] @ c

The program compares results, gradients and memory of the two calls.
docs/tutorial_porting.md explains it.

    pip install './python[jax]' && python python/examples/port_associative_scan.py
"""

import functools

import jax
import jax.numpy as jnp

import scanrec.jax


def gate_of(params):
    """Gates (N,) within the unit circle."""
    return jnp.exp(jax.lax.complex(-jnp.exp(params["log_decay"]), params["angle"]))


# [porting_before]
def combine(left, right):
    gate_left, state_left = left
    gate_right, state_right = right
    return gate_right * gate_left, gate_right * state_left + state_right


def layer_before(params, inputs):
    """Map one sequence, (T, H)."""
    projected = inputs @ params["b"]
    gates = jnp.broadcast_to(gate_of(params), projected.shape)
    _, states = jax.lax.associative_scan(combine, (gates, projected))
    return (states @ params["c"]).real


batched_before = jax.jit(jax.vmap(layer_before, (None, 0)))
# [/porting_before]


# [porting_after]
def layer_after(params, inputs):
    """Map any number of sequences, (..., T, H)."""
    states = scanrec.jax.linear_scan(gate_of(params), inputs @ params["b"])
    return (states @ params["c"]).real


# [/porting_after]


def largest_difference(found, expected):
    """The largest difference over all leaves, relative to the largest magnitude in each leaf."""
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected))
    return max(float(jnp.max(jnp.abs(x - y)) / jnp.max(jnp.abs(y))) for x, y in pairs)


@functools.partial(jax.jit, static_argnames="reverse")
def scan_before(gates, inputs, reverse=False):
    return jax.lax.associative_scan(combine, (gates, inputs), reverse=reverse)[1]


def compare_options(key):
    # [porting_options]
    keys = jax.random.split(key, 4)
    gates = jax.random.uniform(keys[0], (1000, 8), minval=0.5)  # (T, N)
    inputs = jax.random.normal(keys[1], (1000, 8))
    first = jax.random.normal(keys[2], (8,))
    starts = jax.random.bernoulli(keys[3], 0.01, (1000, 1))  # True: a sequence begins here
    ends = jnp.roll(starts, -1, 0).at[-1].set(False)  # True: the next step begins a sequence

    expected = {
        "initial state": scan_before(gates, inputs.at[0].add(gates[0] * first)),
        "resets": scan_before(jnp.where(starts, 0, gates), inputs),
        "reverse": scan_before(gates, inputs, reverse=True),
        "reverse, resets": scan_before(jnp.where(ends, 0, gates), inputs, reverse=True),
    }
    scan = functools.partial(scanrec.jax.linear_scan, gates, inputs)
    found = {
        "initial state": scan(first),
        "resets": scan(resets=starts),
        "reverse": scan(reverse=True),
        "reverse, resets": scan(reverse=True, resets=starts),
    }
    for name in expected:
        print(f"{name}: difference {largest_difference(found[name], expected[name]):.0e}")
    # [/porting_options]


def main():
    keys = jax.random.split(jax.random.key(0), 6)
    params = {
        "log_decay": jax.random.uniform(keys[0], (64,), minval=-5, maxval=0),
        "angle": jax.random.uniform(keys[1], (64,), maxval=3),
        "b": jax.random.normal(keys[2], (16, 64), jnp.complex64) / 4,
        "c": jax.random.normal(keys[3], (64, 16), jnp.complex64) / 8,
    }
    inputs = jax.random.normal(keys[4], (8, 4096, 16))
    # [porting_compare]
    outputs = layer_after(params, inputs)
    expected = batched_before(params, inputs)
    print(f"outputs: difference {largest_difference(outputs, expected):.0e}")

    def loss(params, inputs, layer):
        return jnp.mean(layer(params, inputs) ** 2)

    gradients = []
    for name, layer in (("associative_scan", batched_before), ("linear_scan", layer_after)):
        gradient = jax.jit(jax.grad(loss), static_argnums=2).lower(params, inputs, layer).compile()
        gradients.append(gradient(params, inputs))
        memory = gradient.memory_analysis().temp_size_in_bytes
        print(f"gradient with {name}: {memory / 2**20:.0f} MiB of temporary memory")
    print(f"gradients: difference {largest_difference(*gradients):.0e}")
    # [/porting_compare]
    compare_options(keys[5])


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: BSD-3-Clause
"""Classify handwritten digits pixel by pixel, as sequential_digits.py does, in JAX.

Each model uses one kind of layer: a layer of scanrec.jax.nn, or an LSTM by lax.scan. An epoch is one
compiled program; the reported seconds exclude its compilation.

    pip install './python[jax]' optax tqdm
    python python/examples/sequential_digits_jax.py
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import optax
from digits_data import LAYERS, parser_of, print_table, read_digits
from tqdm import trange

from scanrec.jax import nn


@dataclass(frozen=True)
class LSTM:
    """An LSTM like torch.nn.LSTM, with init and apply like the layers of scanrec.jax.nn."""

    input_size: int
    hidden_size: int

    def init(self, key):
        size, most = self.hidden_size, self.hidden_size**-0.5
        shapes = {
            "weight": (4 * size, self.input_size),
            "past": (4 * size, size),
            "bias": (4 * size,),
        }
        draw = lambda key, shape: jax.random.uniform(key, shape, minval=-most, maxval=most)
        return dict(zip(shapes, map(draw, jax.random.split(key, 3), shapes.values())))

    def apply(self, params, x):
        def step(carry, pre):
            h, c = carry
            i, f, g, o = jnp.split(pre + h @ params["past"].T, 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zeros = jnp.zeros((len(x), self.hidden_size))
        pre = x @ params["weight"].T + params["bias"]
        state, h = jax.lax.scan(step, (zeros, zeros), jnp.swapaxes(pre, 0, 1))
        return jnp.swapaxes(h, 0, 1), state


def linear(key, inputs, outputs):
    """Weight and bias of a linear layer, initialised like torch.nn.Linear."""
    draw = lambda key, *shape: jax.random.uniform(key, shape, minval=-1, maxval=1) * inputs**-0.5
    keys = jax.random.split(key)
    return {"weight": draw(keys[0], inputs, outputs), "bias": draw(keys[1], outputs)}


def normed(x):
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


@dataclass(frozen=True)
class Reader:
    """Blocks of one kind of layer, and a classifier of the mean over time."""

    layer: nn.Layer | LSTM
    blocks: int

    def init(self, key):
        size, keys = self.layer.hidden_size, jax.random.split(key, 2 * self.blocks + 2)
        blocks = [
            {
                "norm": {"weight": jnp.ones(size), "bias": jnp.zeros(size)},
                "layer": self.layer.init(keys[2 * i]),
                "mixing": linear(keys[2 * i + 1], size, size),
            }
            for i in range(self.blocks)
        ]
        ends = linear(keys[-2], 1, size), linear(keys[-1], size, 10)
        return {"input": ends[0], "blocks": blocks, "output": ends[1]}

    def apply(self, params, pixels):
        product = lambda p, x: x @ p["weight"] + p["bias"]
        x = product(params["input"], pixels[..., None])
        for p in params["blocks"]:
            y, _ = self.layer.apply(p["layer"], normed(x) * p["norm"]["weight"] + p["norm"]["bias"])
            x = x + product(p["mixing"], jax.nn.gelu(y))
        return product(params["output"], x.mean(-2))


def learn(model, images, digits, args, name):
    """Train a model. Return its parameters, and the seconds that this took."""
    batches = len(digits) // args.batch
    rate = optax.cosine_onecycle_schedule(batches * args.epochs, args.rate, pct_start=0.1)
    optimiser = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(rate, weight_decay=0.01))

    def loss(params, batch):
        said = model.apply(params, images[batch])
        return optax.softmax_cross_entropy_with_integer_labels(said, digits[batch]).mean()

    def step(carry, batch):
        params, moments = carry
        error, gradient = jax.value_and_grad(loss)(params, batch)
        change, moments = optimiser.update(gradient, moments, params)
        return (optax.apply_updates(params, change), moments), error

    @jax.jit
    def epoch(carry, key):
        order = jax.random.permutation(key, len(digits))[: batches * args.batch]
        carry, errors = jax.lax.scan(step, carry, order.reshape(batches, -1))
        return carry, errors.mean()

    key, *keys = jax.random.split(jax.random.key(args.seed), args.epochs + 1)
    params = jax.jit(model.init)(key)
    carry = params, optimiser.init(params)
    epoch = epoch.lower(carry, keys[0]).compile()
    begin = time.perf_counter()
    for i in (bar := trange(args.epochs, desc=name, unit="epoch")):
        carry, error = epoch(carry, keys[i])
        bar.set_postfix(loss=f"{error:.4f}")
    return carry[0], time.perf_counter() - begin


def main():
    args = parser_of(__doc__).parse_args()
    learned, (images, digits) = ([jnp.asarray(x) for x in part] for part in read_digits())
    found = []
    for name in args.layers:
        kind = LSTM if name == "LSTM" else getattr(nn, name)
        model = Reader(kind(args.channels, args.channels, **LAYERS[name]), args.blocks)
        params, seconds = learn(model, *learned, args, name)
        right = int((jax.jit(model.apply)(params, images).argmax(-1) == digits).sum())
        size = sum(x.size for x in jax.tree.leaves(params))
        found.append((name, size, len(digits), right, seconds / args.epochs))
    print_table(found)


if __name__ == "__main__":
    main()

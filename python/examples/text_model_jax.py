# SPDX-License-Identifier: BSD-3-Clause
"""A character language model of QRNN layers in JAX, trained through scanrec.jax.qrnn_pool.

The model has an embedding, layers with a window of two steps, and a softmax over the next character, as
in examples/qrnn_text.cpp. States carry over from chunk to chunk, gradients do not. The program draws the
learning curve, and times the same model with lax.associative_scan.

    pip install './python[jax]' optax tqdm matplotlib
    python python/examples/text_model_jax.py --out build/text
"""

from __future__ import annotations

import pathlib
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from text_data import Chunks, draw_curve, parser_of
from tqdm import trange

import scanrec.jax


def stock_pool(pre, first, return_final):
    """fo-pooling by lax.associative_scan."""
    candidate, forget, output = jnp.split(pre, 3, -1)
    gate = jax.nn.sigmoid(forget)
    input = (1 - gate) * jnp.tanh(candidate)
    input = input.at[:, 0].add(gate[:, 0] * first)
    combine = lambda i, j: (j[0] * i[0], j[0] * i[1] + j[1])
    state = jax.lax.associative_scan(combine, (gate, input), axis=1)[1]
    return jax.nn.sigmoid(output) * state, state[:, -1]


def new_parameters(key, characters, embedding, channels, layers):
    keys = iter(jax.random.split(key, layers + 2))
    draw = lambda *s: jax.random.normal(next(keys), s) / np.sqrt(s[0] if len(s) == 2 else 2 * s[1])
    sizes = [embedding] + [channels] * (layers - 1)
    remember = lambda: jnp.repeat(jnp.array([0.0, 1.0, 0.0]), channels)  # begin with a long memory
    return {
        "embedding": draw(characters, embedding) * np.sqrt(characters),
        "layers": [{"taps": draw(2, n, 3 * channels), "bias": remember()} for n in sizes],
        "output": draw(channels, characters),
    }


def loss(parameters, carried, now, after, pool):
    """Nats per character, and the carry for the next chunk."""
    x, left = parameters["embedding"][now], []
    for layer, (state, past) in zip(parameters["layers"], carried):
        before = jnp.concatenate([past, x[:, :-1]], 1)
        pre = x @ layer["taps"][0] + before @ layer["taps"][1] + layer["bias"]
        past = x[:, -1:]
        x, state = pool(pre, state, return_final=True)
        left.append((state, past))
    nats = optax.softmax_cross_entropy_with_integer_labels(x @ parameters["output"], after)
    return jnp.mean(nats), jax.lax.stop_gradient(left)


def train(args, text, pool, chunks):
    """Train a model. Return the bits per character of every chunk, and characters per second."""
    key = jax.random.key(args.seed)
    parameters = new_parameters(key, len(text.alphabet), 48, args.channels, args.layers)
    optimiser = optax.chain(
        optax.clip_by_global_norm(1.0), optax.adam(optax.cosine_decay_schedule(4e-3, chunks))
    )
    moments = optimiser.init(parameters)
    sizes = [48] + [args.channels] * (args.layers - 1)
    fresh = [(jnp.zeros((args.batch, args.channels)), jnp.zeros((args.batch, 1, n))) for n in sizes]

    @partial(jax.jit, donate_argnums=(0, 1))
    def update(parameters, moments, carried, now, after):
        slope = jax.value_and_grad(loss, has_aux=True)
        (nats, carried), gradient = slope(parameters, carried, now, after, pool)
        change, moments = optimiser.update(gradient, moments)
        return optax.apply_updates(parameters, change), moments, carried, nats

    bits, carried = [], fresh
    for i in (bar := trange(chunks, unit="chunk")):
        now, after, begins = text.chunk(i)
        carried = fresh if begins else carried
        parameters, moments, carried, nats = update(parameters, moments, carried, now, after)
        bits.append(float(nats) / np.log(2))
        if i == min(2, chunks - 1):
            begin, first = time.perf_counter(), i
        bar.set_postfix(bits=f"{np.mean(bits[-50:]):.3f}")
    rate = (chunks - 1 - first) * text.size / max(time.perf_counter() - begin, 1e-9)
    return bits, rate


def main():
    args = parser_of(__doc__).parse_args()
    text = Chunks(args.text, args.batch, args.steps)
    bits, rate = train(args, text, scanrec.jax.qrnn_pool, args.chunks)
    _, stock = train(args, text, stock_pool, max(args.chunks // 10, 8))
    print(f"{np.mean(bits[-50:]):.3f} bits per character, {rate:.0f} characters per second; "
          f"with lax.associative_scan {stock:.0f}")  # fmt: skip
    draw_curve(pathlib.Path(args.out) / "text_model_jax.png", bits, text.size)


if __name__ == "__main__":
    main()

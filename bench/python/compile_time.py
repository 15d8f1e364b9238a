# SPDX-License-Identifier: BSD-3-Clause
"""Milliseconds to trace and compile, by the number of steps and by depth.

Compiles a scan and its gradient over 2^8..2^18 steps by scanrec, lax.scan and lax.associative_scan. Also
compiles the gradient of a stack of 1 to 64 QRNN layers of scanrec, written as a lax.scan over the layers.
    python bench/python/compile_time.py --out build/bench
"""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp
from measure import associative, parser_of, record, stepwise

import scanrec.jax

WAYS = {"scanrec": scanrec.jax.linear_scan, "lax.scan": stepwise, "associative_scan": associative}


def milliseconds_to_compile(f, *shapes, rounds=3):
    """The fastest of several compilations. The caches are cleared before each."""
    times = []
    for _ in range(rounds):
        jax.clear_caches()
        begin = time.perf_counter()
        jax.jit(lambda *x: f(*x)).lower(*shapes).compile()
        times.append(time.perf_counter() - begin)
    return min(times) * 1e3


def against_steps(rows, steps):
    for way, scan in WAYS.items():
        for n in steps:
            x = jax.ShapeDtypeStruct((1, n, 64), jnp.float32)
            gradient = jax.grad(lambda a, b, scan=scan: jnp.sum(scan(a, b) ** 2), (0, 1))
            for what, f in (("forward", scan), ("gradient", gradient)):
                ms = milliseconds_to_compile(f, x, x)
                rows.append({"way": way, "what": what, "steps": n, "milliseconds": ms})
                print(f"{way:17} {what:9} {n:7} steps {ms:9.1f} ms", flush=True)


def against_depth(rows, depths, channels=64):
    def loss(weights, x):
        layer = lambda x, matrix: (scanrec.jax.qrnn_pool(x @ matrix), None)
        return jnp.sum(jax.lax.scan(layer, x, weights)[0] ** 2)

    for depth in depths:
        weights = jax.ShapeDtypeStruct((depth, channels, 3 * channels), jnp.float32)
        x = jax.ShapeDtypeStruct((8, 1024, channels), jnp.float32)
        ms = milliseconds_to_compile(jax.grad(loss), weights, x)
        rows.append({"way": "scanrec", "what": "QRNN stack", "layers": depth, "milliseconds": ms})
        print(f"QRNN stack, gradient, {depth:3} layers {ms:9.1f} ms", flush=True)


def main():
    parser = parser_of(__doc__)
    parser.add_argument(
        "--steps", type=int, nargs="+", default=[2**k for k in (8, 10, 12, 14, 16, 18)]
    )
    parser.add_argument("--layers", type=int, nargs="+", default=[1, 4, 16, 64])
    args = parser.parse_args()
    rows = []
    against_steps(rows, args.steps)
    against_depth(rows, args.layers)
    record(args, "compile_time", rows)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: BSD-3-Clause
"""The QRNN recurrence by log2(T) shifted multiply-adds, as in the Olmax code base, against scanrec.

Reimplements the algorithm of https://github.com/HomebrewNLP/Olmax: after k shifts, every state holds the
contributions of the last 2^k steps. Times forward and gradient in float32 on (1, T, 256), by default for
T = 2^14, 2^16 and 2^18; larger T need too much memory.
    python bench/python/log_step_qrnn.py --out build/bench
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from measure import milliseconds, parser_of, record

import scanrec.jax


def log_step(gate, input):
    """States along the second to last axis."""
    shift = 1
    while shift < input.shape[-2]:
        earlier = lambda x, fill, by=shift: jnp.pad(
            x[..., :-by, :], ((0, 0),) * (x.ndim - 2) + ((by, 0), (0, 0)), constant_values=fill
        )
        input = input + gate * earlier(input, 0)
        gate = gate * earlier(gate, 1)
        shift *= 2
    return input


WAYS = {"scanrec": scanrec.jax.linear_scan, "log steps": log_step}


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--steps", type=int, nargs="+", default=[2**14, 2**16, 2**18])
    args = parser.parse_args()
    rows = []
    for steps in args.steps:
        rng = np.random.default_rng(0)
        gate = jnp.asarray(rng.uniform(0.5, 1, (1, steps, 256)), jnp.float32)
        input = jnp.asarray(rng.uniform(-1, 1, gate.shape), jnp.float32)
        for way, scan in WAYS.items():
            loss = lambda *x, scan=scan: jnp.sum(scan(*x) ** 2)
            for what, f in (("forward", scan), ("gradient", jax.grad(loss, (0, 1)))):
                ms = milliseconds(jax.jit(f), gate, input, rounds=3)
                rows.append({"way": way, "what": what, "steps": steps, "milliseconds": ms})
                print(f"{steps:8} steps, {way:9} {what:9} {ms:10.1f} ms", flush=True)
    record(args, "log_step_qrnn", rows)


if __name__ == "__main__":
    main()

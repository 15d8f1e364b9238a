# SPDX-License-Identifier: BSD-3-Clause
"""Peak memory of one gradient of a scan; each kind of scan runs in a separate process.

The figure is how far the call raises the peak memory of the process. Before the call, gate and input exist
and the gradient is compiled. The figure is reported in bytes, and as a multiple of one array of states. By
default this array is (1, 2^20, 32) float32.
    python bench/python/peak_memory.py --out build/bench
"""

from __future__ import annotations

import resource
import subprocess
import sys

import jax
import jax.numpy as jnp
from measure import associative, parser_of, record, stepwise

import scanrec.jax

WAYS = {"scanrec": scanrec.jax.linear_scan, "lax.scan": stepwise, "associative_scan": associative}


def peak_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure_alone(way, steps, channels):
    """Print how many bytes the call adds to the peak memory, and the size of one array in bytes."""
    gate, input = (jnp.full((1, steps, channels), x, jnp.float32) for x in (0.9, 1.0))
    loss = lambda *x: jnp.vdot(WAYS[way](*x), input)
    gradient = jax.jit(jax.grad(loss, (0, 1))).lower(gate, input).compile()
    jax.block_until_ready((gate, input))
    before = peak_bytes()
    jax.block_until_ready(gradient(gate, input))
    print(peak_bytes() - before, input.nbytes)


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--steps", type=int, default=2**20)
    parser.add_argument("--channels", type=int, default=32)
    parser.add_argument("--alone", choices=WAYS, help="measure only this scan, in this process")
    args = parser.parse_args()
    if args.alone:
        return measure_alone(args.alone, args.steps, args.channels)
    rows = []
    for way in WAYS:
        sizes = ["--steps", str(args.steps), "--channels", str(args.channels)]
        ran = subprocess.run([sys.executable, __file__, "--alone", way, *sizes],
                             check=True, capture_output=True, text=True)  # fmt: skip
        beyond, one = map(int, ran.stdout.split())
        rows.append({"way": way, "steps": args.steps, "bytes": beyond, "arrays": beyond / one})
        print(f"{way:17} {beyond / 2**20:8.0f} MiB, {beyond / one:5.1f} arrays", flush=True)
    record(args, "peak_memory", rows)


if __name__ == "__main__":
    main()

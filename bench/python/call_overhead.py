# SPDX-License-Identifier: BSD-3-Clause
"""Microseconds per small call on (1, 16, 64) float32, where the kernel itself takes about 1 us.

Measures the scan against the framework's `gate * input + input`: in NumPy and eager PyTorch, where the
gradient is also measured, and compiled in JAX. Also measures a filter with one coefficient, on these arrays
and on a single sequence of 64 steps, against SciPy's lfilter if SciPy is installed. Calls are repeated on
arrays of the same layout, whose plan the package caches. Only the rows "new layout" never find their plan
in the cache.
    python bench/python/call_overhead.py --out build/bench
"""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from measure import microseconds, parser_of, record

import scanrec
import scanrec.jax

SHAPE = (1, 16, 64)


def problem():
    rng = np.random.default_rng(0)
    return tuple(rng.uniform(-1, 1, SHAPE).astype(np.float32) for _ in range(3))


def over_new_layouts(scan, gate, input):
    """Return a function that cycles through more layouts than the package caches, one per call."""
    shapes = [(length, width) for length in range(1, 17) for width in range(1, 65)]
    pairs = itertools.cycle([(gate[:, :n, :m], input[:, :n, :m]) for n, m in shapes])
    return lambda: scan(*next(pairs))


def measure_numpy(rows):
    gate, input, cotangent = problem()
    first, wide = np.zeros((1, 64), np.float32), gate.astype(np.float64)
    scan, vjp = scanrec.linear_scan, scanrec.linear_scan_vjp
    state = scan(gate, input)
    add(rows, "NumPy", "gate * input + input", lambda: gate * input + input)
    add(rows, "NumPy", "linear_scan", lambda: scan(gate, input))
    add(
        rows,
        "NumPy",
        "between states",
        lambda: scan(gate, input, first, return_final=True),
    )
    add(rows, "NumPy", "float64 gate", lambda: scan(wide, input))
    add(rows, "NumPy", "new layout", over_new_layouts(scan, gate, input))
    add(rows, "NumPy", "linear_scan_vjp", lambda: vjp(gate, state, cotangent))
    decay, short = np.float32(0.9), np.ascontiguousarray(input[0, 0])
    add(rows, "NumPy", "one coefficient", lambda: scan(decay, input))
    add(rows, "NumPy", "64 steps", lambda: scan(decay, short, axis=0))
    try:
        from scipy.signal import lfilter
    except ImportError:
        return
    b, a = np.ones(1, np.float32), np.array([1, -decay])
    add(rows, "SciPy", "one coefficient", lambda: lfilter(b, a, input, axis=1))
    add(rows, "SciPy", "64 steps", lambda: lfilter(b, a, short))


def measure_torch(rows):
    try:
        import torch

        import scanrec.torch
    except ImportError:
        return
    gate, input, cotangent = (torch.from_numpy(x) for x in problem())
    first, wide = torch.zeros(1, 64), gate.double()
    leaves = [x.clone().requires_grad_() for x in (gate, input)]
    scan = scanrec.torch.linear_scan

    def gradient(f):
        return lambda: torch.autograd.grad(f(*leaves), leaves, cotangent)

    add(rows, "PyTorch", "gate * input + input", lambda: gate * input + input)
    add(rows, "PyTorch", "linear_scan", lambda: scan(gate, input))
    add(
        rows,
        "PyTorch",
        "between states",
        lambda: scan(gate, input, first, return_final=True),
    )
    add(rows, "PyTorch", "float64 gate", lambda: scan(wide, input))
    add(rows, "PyTorch", "new layout", over_new_layouts(scan, gate, input))
    add(rows, "PyTorch", "gradient", gradient(scan))
    add(rows, "PyTorch", "gradient of the product", gradient(lambda a, b: a * b + b))


def measure_jax(rows):
    gate, input, _ = (jnp.asarray(x) for x in problem())
    for name, f in (
        ("gate * input + input", lambda a, b: a * b + b),
        ("linear_scan", scanrec.jax.linear_scan),
    ):
        jitted = jax.jit(f)
        add(
            rows,
            "JAX",
            name,
            lambda jitted=jitted: jitted(gate, input).block_until_ready(),
        )


def add(rows, framework, call, f):
    us = microseconds(f)
    rows.append({"framework": framework, "call": call, "microseconds": us})
    print(f"{framework:8} {call:24} {us:8.2f} us", flush=True)


def main():
    args = parser_of(__doc__).parse_args()
    rows = []
    measure_numpy(rows)
    measure_torch(rows)
    measure_jax(rows)
    record(args, "call_overhead", rows)


if __name__ == "__main__":
    main()

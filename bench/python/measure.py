# SPDX-License-Identifier: BSD-3-Clause
"""Shared parts of the Python benchmarks: timing, scans in plain JAX, and records with versions."""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp
import records
from records import parser_of as parser_of

import scanrec


def milliseconds(f, *arrays, rounds=7):
    """The fastest of several warm calls, each timed until all its results are ready."""
    jax.block_until_ready(f(*arrays))
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        jax.block_until_ready(f(*arrays))
        times.append(time.perf_counter() - begin)
    return min(times) * 1e3


def microseconds(f, *, batch=20, rounds=1000):
    """Microseconds of a small call, from the fastest of many short batches. Even while the machine
    runs other processes, some batches have a core to themselves."""
    for _ in range(batch):
        f()
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(batch):
            f()
        times.append(time.perf_counter() - begin)
    return min(times) / batch * 1e6


def associative(gate, input):
    """States along the second to last axis, by composition of affine maps."""

    def combine(earlier, later):
        return later[0] * earlier[0], later[0] * earlier[1] + later[1]

    gate = jnp.broadcast_to(gate, input.shape)
    return jax.lax.associative_scan(combine, (gate, input), axis=input.ndim - 2)[1]


def stepwise(gate, input):
    """The states that `associative` returns, by lax.scan, one step at a time."""

    def step(state, now):
        state = now[0] * state + now[1]
        return state, state

    first = jnp.zeros((*input.shape[:-2], input.shape[-1]), input.dtype)
    steps = (jnp.moveaxis(jnp.broadcast_to(x, input.shape), -2, 0) for x in (gate, input))
    return jnp.moveaxis(jax.lax.scan(step, first, tuple(steps))[1], 0, -2)


def record(args, name, rows, **more):
    """Write rows, and the machine and versions they were measured with, to args.out/name.json. Does
    nothing without args.out."""
    versions = {
        "jax": jax.__version__,
        "scanrec": scanrec.__version__,
        "instruction set": scanrec._native.instruction_set(),
        "threads": scanrec._native.threads(),
    }
    records.write(args, name, rows, {**versions, **more})

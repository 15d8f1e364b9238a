# SPDX-License-Identifier: BSD-3-Clause
"""Shared parts of the Python benchmarks: timing, scans in plain JAX, and records of results."""

from __future__ import annotations

import argparse
import json
import pathlib
import platform
import subprocess
import time

import jax
import jax.numpy as jnp

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


def parser_of(doc):
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, help="folder for results")
    parser.add_argument(
        "--machine", default=platform.machine(), help="name of the machine in the record"
    )
    return parser


def commit():
    """The commit of the repository, or "unknown" outside of a repository."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    try:
        said = subprocess.check_output(command, cwd=pathlib.Path(__file__).parent, text=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return said.strip()


def record(args, name, rows, **more):
    """Write rows, and the machine and versions they were measured with, to args.out/name.json. Does
    nothing without args.out."""
    if args.out is None:
        return
    args.out.mkdir(parents=True, exist_ok=True)
    machine = {
        "machine": args.machine,
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit(),
        "jax": jax.__version__,
        "scanrec": scanrec.__version__,
        "instruction set": scanrec._native.instruction_set(),
        "threads": scanrec._native.threads(),
        **more,
    }
    (args.out / f"{name}.json").write_text(json.dumps({**machine, "rows": rows}, indent=1) + "\n")

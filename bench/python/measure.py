# SPDX-License-Identifier: BSD-3-Clause
"""What the benchmarks of the Python package share: the clock, stock ways of scanning, the
record."""

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
    """The fastest of some calls, warm, all results waited for."""
    jax.block_until_ready(f(*arrays))
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        jax.block_until_ready(f(*arrays))
        times.append(time.perf_counter() - begin)
    return min(times) * 1e3


def microseconds(f, *, batch=20, rounds=1000):
    """What a small call takes, from the fastest of many batches: these are short, so that some of
    them have the core to themselves on a machine that does other things, too."""
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
    """States along the axis before the last, by the composition of affine maps."""

    def combine(earlier, later):
        return later[0] * earlier[0], later[0] * earlier[1] + later[1]

    gate = jnp.broadcast_to(gate, input.shape)
    return jax.lax.associative_scan(combine, (gate, input), axis=input.ndim - 2)[1]


def stepwise(gate, input):
    """The same by lax.scan, one step at a time."""

    def step(state, now):
        state = now[0] * state + now[1]
        return state, state

    first = jnp.zeros((*input.shape[:-2], input.shape[-1]), input.dtype)
    steps = (jnp.moveaxis(jnp.broadcast_to(x, input.shape), -2, 0) for x in (gate, input))
    return jnp.moveaxis(jax.lax.scan(step, first, tuple(steps))[1], 0, -2)


def parser_of(doc):
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, help="folder for what is written")
    parser.add_argument(
        "--machine", default=platform.machine(), help="what the record says it is of"
    )
    return parser


def commit():
    """That of the repository, "unknown" where there is none."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    try:
        said = subprocess.check_output(command, cwd=pathlib.Path(__file__).parent, text=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return said.strip()


def record(args, name, rows, **more):
    """Writes rows, and what they were measured on, to name.json in the folder that was asked
    for."""
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

# SPDX-License-Identifier: BSD-3-Clause
"""Train a linear recurrent unit on one sequence whose time is split over processes.

The input is noise. The target is this noise filtered by three resonators, which the model does not know.
Every process makes its part of the sequence and keeps its part of the states. XLA's collectives exchange
a few numbers per state and process. Then a single process trains on the whole sequence. The losses of
the two runs are equal except for rounding.

    pip install './python[jax]' optax && python python/examples/split_lru.py --processes 4
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import scanrec.jax

OVER_TIME = P("time")


def noise(begin, end):
    """The input of steps begin to end - 1: shape (end - begin, 1), values in [-1, 1).

    They depend only on the index of the step, so every process can compute any of them.
    """
    bits = np.arange(begin, end, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    bits ^= bits >> np.uint64(29)
    return ((bits >> np.uint64(40)).astype(np.float32) / 2**23 - 1)[:, None]


def start(states):
    """Random parameters: poles with radii from 0.9 to 0.999, and angles from 0.1 to 3."""
    random = np.random.default_rng(0)
    real = lambda *shape: random.normal(0, 1, shape).astype(np.float32)
    return {
        "nu": np.log(-np.log(random.uniform(0.9, 0.999, states))).astype(np.float32),
        "theta": np.log(random.uniform(0.1, 3, states)).astype(np.float32),
        "b": (real(states, 1) + 1j * real(states, 1)).astype(np.complex64),
        "c": ((real(1, states) + 1j * real(1, states)) / states).astype(np.complex64),
        "d": np.zeros(1, np.float32),
    }


def unknown(u):
    """This process's part of the resonators' output, from its part of the input."""
    poles = np.array([0.995, 0.98, 0.9]) * np.exp(1j * np.array([0.2, 0.7, 1.9]))
    inputs = (0.1 * u).astype(np.complex64) * np.ones(3, np.complex64)
    states = scanrec.jax.linear_scan(poles.astype(np.complex64), inputs, axis_name="time")
    return states.real.sum(-1, keepdims=True)


def train(steps, states, iterations):
    """Return the losses, and the seconds of the fastest iteration."""
    devices = jax.devices()
    kinds = {"axis_types": (jax.sharding.AxisType.Auto,)}
    mesh = jax.make_mesh((len(devices),), ("time",), devices=devices, **kinds)
    on_each = lambda call, inputs, outputs: jax.jit(
        jax.shard_map(call, mesh=mesh, in_specs=inputs, out_specs=outputs)
    )
    u = jax.make_array_from_callback(
        (steps, 1),
        NamedSharding(mesh, OVER_TIME),
        lambda at: noise(*at[0].indices(steps)[:2]),
    )
    target = on_each(unknown, (OVER_TIME,), OVER_TIME)(u)

    def loss(parameters, u, target):
        y = scanrec.jax.lru(u, **parameters, axis_name="time")
        return jax.lax.psum(jnp.sum((y - target) ** 2), "time") / steps

    whole_loss = on_each(loss, (P(), OVER_TIME, OVER_TIME), P())
    optimiser = optax.adam(3e-2)

    @jax.jit
    def step(parameters, moments, u, target):
        value, gradient = jax.value_and_grad(whole_loss)(parameters, u, target)
        gradient = jax.tree.map(
            jnp.conj, gradient
        )  # JAX does not conjugate complex gradients; descent needs the conjugates
        moves, moments = optimiser.update(gradient, moments)
        return optax.apply_updates(parameters, moves), moments, value

    parameters = start(states)
    moments, losses, seconds = optimiser.init(parameters), [], []
    for _ in range(iterations):
        began = time.perf_counter()
        parameters, moments, value = step(parameters, moments, u, target)
        losses.append(float(value))
        seconds.append(time.perf_counter() - began)
    return losses, min(seconds)


def run(rank, arguments):
    """Run the process with this rank. Rank 0 prints the losses and the seconds."""
    if arguments.processes > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(
            f"localhost:{arguments.port}", num_processes=arguments.processes, process_id=rank
        )
    losses, seconds = train(arguments.steps, arguments.states, arguments.iterations)
    if rank == 0:
        print(f"{losses[0]:.9f} {losses[-1]:.9f} {seconds:.3f}")


def losses_of(processes, arguments):
    """First loss, last loss and seconds of the fastest iteration, with this number of processes."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    numbers = {**vars(arguments), "processes": processes, "port": port}
    options = [f"--{name}={value}" for name, value in numbers.items() if name != "rank"]
    started = [
        subprocess.Popen(
            [sys.executable, __file__, *options, f"--rank={rank}"],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "XLA_FLAGS": ""},
        )
        for rank in range(processes)
    ]
    outputs = [one.communicate()[0] for one in started]
    if any(one.returncode for one in started):
        sys.exit("a process failed")
    return [float(number) for number in outputs[0].splitlines()[-1].split()]  # gloo also prints


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--steps", type=int, default=1 << 20, help="samples of the sequence")
    parser.add_argument("--states", type=int, default=16)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--rank", type=int, default=-1, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank >= 0:
        run(arguments.rank, arguments)
        return
    split = losses_of(arguments.processes, arguments)
    whole = losses_of(1, arguments)
    for processes, (first, last, seconds) in ((arguments.processes, split), (1, whole)):
        print(
            f"{processes} processes: loss {first:.6f} to {last:.6f}, "
            f"fastest iteration {seconds * 1e3:.0f} ms"
        )
    apart = max(abs(a - b) / b for a, b in zip(split[:2], whole[:2]))
    print(f"losses apart by {apart:.1e}: {'equal' if apart < 1e-4 else 'not equal'}")
    sys.exit(0 if apart < 1e-4 else 1)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Time scans of PyTorch and JAX on the workloads of linear_scan.cu and selective_scan.cu.

Writes rows in the format of those programs. Each peer runs in a separate process. If a peer is absent
or fails, its rows hold the error instead of figures.

PyTorch calls are timed by CUDA events with an empty L2 cache. JAX calls are timed by the host's clock
until block_until_ready returns. A copy of one array is timed in the same way. vjp is the backward pass
alone, with the gradients of all arrays."""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys

import selective_peers as selective
from frameworks import Absent, Jax, Torch, import_or_absent, short

# Shape (batch, time, channel), and whether arrays are stored as (batch, channel, time), so that
# steps are contiguous.
WORKLOADS = {
    "channels_last": ((32, 4096, 1024), False),
    "time_contiguous": ((8, 65536, 1536), True),
    "two_million_steps": ((1, 1 << 21, 256), False),
    "complex_lambda": ((64, 4096, 256), True),
}
# How many arrays with a time and a channel axis a call reads and writes in total: for a linear scan, and
# for a selective scan.
ARRAYS = {"forward": (3, 4), "vjp": (5, 7)}
CALLS = tuple(ARRAYS)
# Seconds. A call on 2^20 steps or more is left out if it is expected to take longer.
LONGEST_CALL = 3.0
CHECKED_STEPS = 64


# ---- peers: each takes gates, inputs and state gradients, and returns a function per call --------


def by_autograd(torch, scan, gates, inputs, grads):
    leaves = [x.detach().requires_grad_() for x in (gates, inputs)]
    states = []

    def forward():
        with torch.no_grad():
            return scan(gates, inputs)

    def vjp():
        if not states:
            states.append(scan(*leaves))
        return torch.autograd.grad(states[0], leaves, grads, retain_graph=True)

    return {"forward": forward, "vjp": vjp}


def accelerated_scan(*names):
    """One variant of accelerated-scan. Versions of the package give its module different names."""

    def make(torch, gates, inputs, grads, _):
        module = import_or_absent(*(f"accelerated_scan.{name}" for name in names))
        if not hasattr(module, "warpscan_forward"):
            return by_autograd(torch, module.scan, gates, inputs, grads)
        # Call the kernels directly, as the package's own benchmark does.
        states, gates_grad, inputs_grad = (torch.empty_like(inputs) for _ in range(3))

        def forward():
            module.warpscan_forward(gates, inputs, states, False)
            return states

        def vjp():
            module.warpscan_backward(gates, states, grads, gates_grad, inputs_grad)

        return {"forward": forward, "vjp": vjp}

    return make


def torch_associative_scan(torch, gates, inputs, grads, axis):
    module = import_or_absent("torch._higher_order_ops.associative_scan")

    def combine(x, y):
        return y[0] * x[0], y[0] * x[1] + y[1]

    def scan(a, u):
        return module.associative_scan(combine, (a, u), dim=axis, combine_mode="pointwise")[1]

    return by_autograd(torch, torch.compile(scan, dynamic=False), gates, inputs, grads)


def hgrn(name):
    """HGRN of flash-linear-attention, which takes the logarithms of gates."""

    def make(torch, gates, inputs, grads, _):
        scan = getattr(import_or_absent("fla.ops.hgrn"), name)
        return by_autograd(torch, lambda g, x: scan(x, g)[0], gates.log(), inputs, grads)

    return make


def mamba(torch, gates, inputs, grads, _):
    """The selective scan with one state per channel: exp(-step size) is the gate."""
    module = import_or_absent("mamba_ssm.ops.selective_scan_interface")
    steps = -gates.log()
    ones = torch.ones(gates.shape[1], 1, device=gates.device)

    def scan(step, u):
        return module.selective_scan_fn(u, step, -ones, ones, ones)

    return by_autograd(torch, scan, steps, inputs / steps, grads)


def by_jax(jax, scan, gates, inputs, grads):
    forward = jax.jit(scan)
    prepare = jax.jit(lambda a, u: jax.vjp(scan, a, u)[1])
    transpose = jax.jit(lambda backward, g: backward(g))
    kept = []

    def vjp():
        if not kept:
            kept.append(prepare(gates, inputs))
        return transpose(kept[0], grads)

    return {"forward": lambda: forward(gates, inputs), "vjp": vjp}


def lax_associative_scan(jax, gates, inputs, grads, axis):
    def combine(x, y):
        return y[0] * x[0], y[0] * x[1] + y[1]

    return by_jax(
        jax,
        lambda a, u: jax.lax.associative_scan(combine, (a, u), axis=axis)[1],
        gates,
        inputs,
        grads,
    )


def lax_scan(jax, gates, inputs, grads, axis):
    def scan(a, u):
        def step(x, now):
            x = now[0] * x + now[1]
            return x, x

        steps = tuple(jax.numpy.moveaxis(x, axis, 0) for x in (a, u))
        return jax.numpy.moveaxis(
            jax.lax.scan(step, jax.numpy.zeros_like(steps[1][0]), steps)[1], 0, axis
        )

    return by_jax(jax, scan, gates, inputs, grads)


ROWS, STEPS = ("time_contiguous",), ("channels_last", "two_million_steps")
ALL = ("channels_last", "time_contiguous", "two_million_steps")
# For each peer: the framework, the workloads on which it is measured, and a function that makes its calls.
PEERS = {
    "accelerated_scan.warp": ("torch", ROWS, accelerated_scan("warp")),
    "accelerated_scan.triton": ("torch", ROWS, accelerated_scan("scalar", "triton")),
    "accelerated_scan.ref": ("torch", ROWS, accelerated_scan("ref")),
    "accelerated_scan.complex": ("torch", ("complex_lambda",), accelerated_scan("complex")),
    "torch.associative_scan": ("torch", ALL, torch_associative_scan),
    "fla.chunk_hgrn": ("torch", STEPS, hgrn("chunk_hgrn")),
    "fla.fused_recurrent_hgrn": ("torch", STEPS, hgrn("fused_recurrent_hgrn")),
    "mamba_ssm.one_state": ("torch", ROWS, mamba),
    "mamba_ssm.selective_scan": ("torch", tuple(selective.WORKLOADS), selective.mamba_ssm),
    "lax.associative_scan": ("jax", ALL, lax_associative_scan),
    "lax.scan": ("jax", ALL, lax_scan),
}


# ---- one peer ------------------------------------------------------------------------------------


def check(states, gates, inputs, axis):
    """Compare the first steps with a loop."""
    if axis == 2:
        gates, inputs, states = (x.swapaxes(1, 2) for x in (gates, inputs, states))
    x = 0 * inputs[:, 0]
    for t in range(CHECKED_STEPS):
        x = gates[:, t] * x + inputs[:, t]
        if not float(abs(states[:, t] - x).max()) < 1e-3:
            raise RuntimeError(f"wrong from step {t} on")


def prepare(framework, make, name, quick):
    """Check the forward call of a peer. Return its calls; its calls on a 256th of the steps, or {}
    if there are fewer than 2^20 steps; a call that copies an array; and how many steps, elements
    and bytes an array has."""
    if name in selective.WORKLOADS:
        (batch, steps, channels), narrow = selective.WORKLOADS[name]
        steps = 512 if quick else steps
        given, grads = selective.arguments(framework, (batch, steps, channels), narrow)
        calls = make(framework.module, given, grads)
        selective.check(framework.module, calls["forward"](), given, CHECKED_STEPS)
        return (
            calls,
            {},
            framework.copy(given["u"]),
            steps,
            batch * steps * channels,
            given["u"].nbytes,
        )
    (batch, steps, channels), time_last = WORKLOADS[name]
    if quick:
        steps = max(steps // 64, 1024)
    axis = 2 if time_last else 1
    shape = (batch, channels, steps) if time_last else (batch, steps, channels)
    bounds = ((0.5, 0.999), (-1, 1), (-1, 1))
    arrays = [framework.uniform(shape, *b, name == "complex_lambda") for b in bounds]
    calls = make(framework.module, *arrays, axis)
    check(calls["forward"](), *arrays[:2], axis)
    short_calls = {}
    if steps >= 1 << 20:
        part = (slice(None),) * axis + (slice(steps // 256),)
        short_calls = make(framework.module, *(x[part] for x in arrays), axis)
    copy = framework.copy(arrays[0])
    return calls, short_calls, copy, steps, batch * steps * channels, arrays[0].nbytes


def measure(framework, make, name, quick):
    """Yield each call with its figures, or with the text of an error."""
    calls, short_calls, copy, steps, elements, size = prepare(framework, make, name, quick)
    for _ in range(2):
        framework.seconds(copy)
    copy_speed = 2 * size / statistics.median(framework.seconds(copy) for _ in range(5))
    for call in CALLS:
        try:
            if short_calls:
                framework.seconds(short_calls[call])
                expected = 256 * framework.seconds(short_calls[call])
                if expected > LONGEST_CALL:
                    raise Absent(
                        f"left out: about {expected:.1f} s a call, judged by a 256th of the steps"
                    )
            for _ in range(2):
                once = framework.seconds(calls[call])
            samples = (5 if quick else 20) if once < 0.1 else 3
            seconds = statistics.median(framework.seconds(calls[call]) for _ in range(samples))
            speed = ARRAYS[call][name in selective.WORKLOADS] * size / seconds
            yield (
                call,
                {
                    "time_unit": "ms",
                    "real_time": 1e3 * seconds,
                    "samples": samples,
                    "steps": steps,
                    "elements": elements,
                    "GB/s": 1e-9 * speed,
                    "copy_GB/s": 1e-9 * copy_speed,
                    "fraction_of_copy": speed / copy_speed,
                },
            )
        except Exception as error:
            yield call, short(error)


def run_peer(peer, quick):
    """Print a line of JSON for every result of one peer."""

    def say(**what):
        print(json.dumps(what), flush=True)

    kind, names, make = PEERS[peer]
    framework = Torch() if kind == "torch" else Jax()
    say(version=[kind, framework.module.__version__])
    for name in names:
        try:
            for call, result in measure(framework, make, name, quick):
                say(workload=name, call=call, result=result)
        except Exception as error:
            for call in CALLS:
                say(workload=name, call=call, result=short(error))


def row(peer, workload, call, result):
    named = {"name": f"{workload}/{peer}/{call}", "run_type": "iteration"}
    if isinstance(result, str):
        return {**named, "error_occurred": True, "error_message": result}
    return {**named, **result}


def rows_of(peer, quick, limit):
    """The rows of a peer, measured in a separate process."""
    command = [sys.executable, __file__, "--peer", peer] + ["--quick"] * quick
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit)
        output, complaints = done.stdout, done.stderr.strip().splitlines()
        why = complaints[-1][:200] if complaints else f"ended with status {done.returncode}"
    except subprocess.TimeoutExpired as late:
        output, why = late.stdout or "", f"took longer than {limit} s"
        if isinstance(output, bytes):
            output = output.decode()
    said = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    results = {(s["workload"], s["call"]): s["result"] for s in said if "workload" in s}
    versions = dict(s["version"] for s in said if "version" in s)
    return versions, [
        row(peer, name, call, results.get((name, call), why))
        for name in PEERS[peer][1]
        for call in CALLS
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, help="the JSON file; required without --peer")
    parser.add_argument("--quick", action="store_true", help="shorter sequences, fewer samples")
    parser.add_argument("--limit", type=int, default=120, help="seconds for each peer")
    parser.add_argument("--only", default="", metavar="PATTERN", help="run peers whose names match")
    parser.add_argument(
        "--peer", choices=PEERS, help="run only this peer, in this process, and print JSON"
    )
    arguments = parser.parse_args()
    if arguments.peer:
        try:
            run_peer(arguments.peer, arguments.quick)
        except Absent as absent:
            sys.exit(str(absent))
        return
    if not arguments.out:
        parser.error("--out is needed")
    context, rows = {"quick": "yes" if arguments.quick else "no"}, []
    for peer in (name for name in PEERS if re.search(arguments.only, name)):
        versions, some = rows_of(peer, arguments.quick, arguments.limit)
        context.update(versions)
        rows += some
        for one in some:
            print(
                f"{one['name']:50s} "
                + (
                    one["error_message"]
                    if "error_message" in one
                    else f"{one['real_time']:10.4f} ms {one['GB/s']:7.0f} GB/s "
                    f"{one['fraction_of_copy']:6.3f} of a copy"
                ),
                flush=True,
            )
        arguments.out.write_text(json.dumps({"context": context, "benchmarks": rows}, indent=1))


if __name__ == "__main__":
    main()

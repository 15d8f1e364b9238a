# SPDX-License-Identifier: BSD-3-Clause
"""Selective scans in PyTorch on CPUs: scanrec against the alternatives.

Measures scanrec's fused call; a loop over steps, as in Mamba's reference function; the same loop compiled; a
parallel scan of all gates and inputs by mambapy (pip install mambapy); and a composition of PyTorch calls
with scanrec.torch.linear_scan. Times the value, and the value with all gradients, in float32. The default
is one layer of the smallest published Mamba, with 128 and with 1024 tokens.
    python bench/python/selective_scan.py --out build/bench
"""

from __future__ import annotations

import time

import torch
import torch.nn.functional as F
from measure import parser_of, record

import scanrec.torch


def gates_and_inputs(u, delta, A, B):
    """Gates and inputs, each (batch, time, channel, state). The fused call never writes them to memory."""
    step = F.softplus(delta).transpose(1, 2)
    gate = torch.exp(step.unsqueeze(-1) * A)
    return gate, (step * u.transpose(1, 2)).unsqueeze(-1) * B.transpose(1, 2).unsqueeze(2)


def out_of(states, C, z):
    y = (states * C.transpose(1, 2).unsqueeze(2)).sum(-1).transpose(1, 2)
    return y * F.silu(z)


def loop(u, delta, A, B, C, z):
    gate, input = gates_and_inputs(u, delta, A, B)
    state, states = torch.zeros_like(gate[:, 0]), []
    for t in range(u.shape[2]):
        state = gate[:, t] * state + input[:, t]
        states.append(state)
    return out_of(torch.stack(states, 1), C, z)


def composed(u, delta, A, B, C, z):
    gate, input = (x.flatten(2) for x in gates_and_inputs(u, delta, A, B))
    states = scanrec.torch.linear_scan(gate, input)
    return out_of(states.unflatten(2, A.shape), C, z)


def fused(u, delta, A, B, C, z):
    return scanrec.torch.selective_scan(u, delta, A, B, C, z=z, delta_softplus=True)


def ways(compiled):
    yield "scanrec", fused, 1 << 62
    yield "loop", loop, 1 << 62
    yield "compiled loop", torch.compile(loop), compiled
    try:
        from mambapy.pscan import pscan
    except ImportError:
        print("mambapy is not installed")
    else:

        def parallel(u, delta, A, B, C, z):
            return out_of(pscan(*gates_and_inputs(u, delta, A, B)), C, z)

        yield "mambapy", parallel, 1 << 62
    yield "composed", composed, 1 << 62


def milliseconds(f, rounds):
    f()
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        f()
        times.append(time.perf_counter() - begin)
    return min(times) * 1e3


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--steps", type=int, nargs="+", default=[128, 1024])
    parser.add_argument("--channels", type=int, default=1536)
    parser.add_argument("--states", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--compiled",
        type=int,
        default=128,
        help="most steps of the compiled loop, and of the loop's gradient, which writes O(steps^2) numbers",
    )
    args = parser.parse_args()
    rows = []
    for steps in args.steps:
        torch.manual_seed(0)
        u, delta, z = (torch.randn(1, args.channels, steps) for _ in range(3))
        A = -torch.arange(1.0, args.states + 1).repeat(args.channels, 1)
        B, C = (torch.randn(1, args.states, steps) for _ in range(2))
        given = [x.requires_grad_() for x in (u, delta, A, B, C, z)]
        fastest = {}
        for way, f, most in ways(args.compiled):
            if steps > most:
                continue

            def value(f=f, given=given):
                with torch.no_grad():
                    return f(*given)

            def gradient(f=f, given=given):
                torch.autograd.grad(f(*given).square().sum(), given)

            for what, run in (("value", value), ("gradient", gradient)):
                if way == "loop" and what == "gradient" and steps > args.compiled:
                    continue
                ms = milliseconds(run, args.rounds)
                times = ms / fastest.setdefault(what, ms)
                rows.append({"way": way, "what": what, "steps": steps, "milliseconds": ms})
                print(f"{steps:6} steps, {way:13} {what:8} {ms:9.1f} ms, {times:6.1f}", flush=True)
    record(args, "selective_scan", rows, torch=torch.__version__)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: BSD-3-Clause
"""Causal depthwise convolutions with SiLU in PyTorch: scanrec against conv1d and silu.

conv1d and silu are called as the package transformers calls them on CPUs. All calls use one thread,
float32, four taps, and the channels of the smallest published Mamba.
    python bench/python/causal_conv1d.py --out build/bench
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from measure import microseconds, parser_of, record

import scanrec.torch

TAPS = 4


def theirs(x, weight, bias):
    padded = F.conv1d(x, weight.unsqueeze(1), bias, padding=TAPS - 1, groups=len(weight))
    return F.silu(padded[..., : x.shape[-1]])


def ours(x, weight, bias):
    return scanrec.torch.causal_conv1d(x, weight, bias, activation="silu")


def their_step(x, state, weight, bias):
    moved = torch.cat([state, x.unsqueeze(-1)], -1)
    state.copy_(moved[..., 1:])
    return F.silu(F.conv1d(moved[..., 1:], weight.unsqueeze(1), bias, groups=len(weight)))


def our_step(x, state, weight, bias):
    return scanrec.torch.causal_conv1d_update(x, state, weight, bias, "silu")


def in_turn(calls, rounds):
    """Microseconds of each call: the fastest of several rounds, each of which runs every call."""
    fastest = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for way, call in calls.items():
            fastest[way] = min(fastest[way], microseconds(call, batch=5, rounds=1))
    return fastest


def value_and_gradient(steps, channels, contiguous):
    shape = (1, channels, steps) if contiguous == "time" else (1, steps, channels)
    x = torch.randn(shape)
    x = (x if contiguous == "time" else x.mT).requires_grad_()
    weight, bias = torch.randn(channels, TAPS, requires_grad=True), torch.randn(channels)
    grad = torch.randn_like(x)

    def value(f):
        with torch.no_grad():
            return f(x, weight, bias)

    def gradient(f):
        return torch.autograd.grad(f(x, weight, bias), (x, weight), grad)

    torch.testing.assert_close(value(ours), value(theirs), rtol=1e-4, atol=1e-5)
    for what, run in (("value", value), ("gradient", gradient)):
        ways = {"scanrec": lambda run=run: run(ours), "PyTorch": lambda run=run: run(theirs)}
        yield f"{what}, {contiguous} contiguous", ways


def one_step(batch, channels):
    x, state = torch.randn(batch, channels), torch.randn(batch, channels, TAPS)
    weight, bias = torch.randn(channels, TAPS), torch.randn(channels)
    copies = state.clone(), state.clone()
    with torch.no_grad():
        got, want = our_step(x, copies[0], weight, bias), their_step(x, copies[1], weight, bias)
    torch.testing.assert_close(got, want.squeeze(-1), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(*copies, rtol=0, atol=0)
    return {
        "scanrec": lambda: our_step(x, copies[0], weight, bias),
        "PyTorch": lambda: their_step(x, copies[1], weight, bias),
    }


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--steps", type=int, default=1024)
    parser.add_argument("--channels", type=int, default=1536)
    parser.add_argument("--rounds", type=int, default=25)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    cases = []
    for contiguous in ("channels", "time"):
        for what, ways in value_and_gradient(args.steps, args.channels, contiguous):
            cases.append((what, args.steps, 1, ways))
    for batch in (1, 32):
        cases.append(("step", 1, batch, one_step(batch, args.channels)))
    rows = []
    for what, steps, batch, ways in cases:
        best = in_turn(ways, args.rounds)
        for way, us in best.items():
            rows.append(
                {"what": what, "batch": batch, "steps": steps, "way": way, "milliseconds": us / 1e3}
            )
        ratio = best["PyTorch"] / best["scanrec"]
        print(f"{what:30} batch {batch:2} {best['scanrec']:9.1f} us, {ratio:5.1f} times as fast")
    record(args, "causal_conv1d", rows, torch=torch.__version__, **{"torch threads": 1})


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: BSD-3-Clause
"""Generalised advantage estimation over many environments as one reverse scan with resets.

    advantage[t] = delta[t] + discount * trace * advantage[t+1]
    delta[t]     = reward[t] + discount * value[t+1] - value[t]

(Schulman et al., High-Dimensional Continuous Control Using Generalized Advantage Estimation, 2016.)
Each environment has episodes of different lengths, one after the other. The scan runs backwards in time, and a
reset at each start keeps rewards of the next episode out of the previous one. The program prints
the largest difference between the scan and a loop over steps, and the times of both.

    pip install ./python && python python/examples/gae.py
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import scanrec


def advantages(reward, value, starts, last_value, discount=0.99, trace=0.95):
    """Advantages of shape (environments, steps), like reward and value. `starts` marks steps that begin
    an episode; last_value, (environments,), is the value of the state after the last step."""
    after = np.concatenate([value[:, 1:], last_value[:, None]], 1)
    ends = np.concatenate([starts[:, 1:], np.zeros((len(starts), 1), bool)], 1)
    delta = reward + discount * np.where(ends, 0, after) - value
    return scanrec.linear_scan(discount * trace, delta, axis=1, reverse=True, resets=starts)


def by_loop(reward, value, starts, last_value, discount=0.99, trace=0.95):
    """Compute the advantages by a loop over steps, as most code bases do."""
    steps = reward.shape[1]
    out, carried = np.empty_like(reward), np.zeros(len(reward), reward.dtype)
    for t in reversed(range(steps)):
        last = t + 1 == steps
        lives = 1.0 if last else 1.0 - starts[:, t + 1]
        after = last_value if last else value[:, t + 1]
        delta = reward[:, t] + discount * after * lives - value[:, t]
        carried = out[:, t] = delta + discount * trace * lives * carried
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--environments", type=int, default=64)
    parser.add_argument("--steps", type=int, default=16384)
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    shape = args.environments, args.steps
    rollout = (
        rng.normal(size=shape),
        rng.normal(size=shape),
        rng.random(shape) < 0.01,
        rng.normal(size=shape[0]),
    )

    took = {}
    for name, f in (("loop", by_loop), ("scanrec", advantages)):
        f(*rollout)
        begin = time.perf_counter()
        took[name] = f(*rollout), time.perf_counter() - begin
    off = np.max(np.abs(took["loop"][0] - took["scanrec"][0]))
    print(f"{shape[0]} environments, {shape[1]} steps, episodes of 100 steps on average")
    print(f"loop {took['loop'][1] * 1e3:.1f} ms, scanrec {took['scanrec'][1] * 1e3:.1f} ms")
    print(f"largest difference {off:.1e}")
    assert off < 1e-10


if __name__ == "__main__":
    main()

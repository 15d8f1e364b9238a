# SPDX-License-Identifier: BSD-3-Clause
"""Jacobians of the final state of a linear recurrent network, with respect to each of its arrays.

https://github.com/jax-ml/jax/issues/19498 asks why the Jacobian with respect to lambda, the gate, is so
much slower than with respect to the weights. This measures one or two layers of
`state[t] = lambda * state[t-1] + W x[t]`, batch 16, 64 states, T = 32..512, in forward and reverse mode.
lax.associative_scan, lax.scan and scanrec are timed in one run, after warm-up, with fresh outputs. With
--out, the program writes a JSON file and a picture.
    python bench/python/gate_jacobian.py --out build/bench
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from measure import milliseconds, parser_of, record
from plot_jacobian import draw

import scanrec.jax

BATCH, STATE = 16, 64
OF = ("initial state", "weights", "lambda", "inputs")
#: Arrays with at least 32 times as many elements as the final state of one sequence. Forward mode
#: carries one tangent per element, which takes many gigabytes, so it is not measured for them.
WIDE = ("weights", "inputs")


def associative(decay, inputs, initial):
    """All states and the last one, by composition of affine maps. The initial state is prepended to
    the inputs."""
    elements = jnp.concatenate([initial[None], inputs])

    def combine(earlier, later):
        return later[0] * earlier[0], later[0] * earlier[1] + later[1]

    gates = jnp.broadcast_to(decay, elements.shape)
    states = jax.lax.associative_scan(combine, (gates, elements))[1][1:]
    return states, states[-1]


def stepwise(decay, inputs, initial):
    def step(state, now):
        state = decay * state + now
        return state, state

    final, states = jax.lax.scan(step, initial, inputs)
    return states, final


#: Each function returns (states, final state) of one layer.
WAYS = {
    "associative_scan": associative,
    "lax.scan": stepwise,
    "scanrec": partial(scanrec.jax.linear_scan, return_final=True),
}


def final_state(scan, initial, weights, decay, inputs):
    """The final state of the last layer. `initial`, `weights` and `decay` have the layer as first axis."""
    x = inputs
    for start, matrix, gate in zip(initial, weights, decay):
        x, final = scan(gate, x @ matrix, start)
    return final


def measure(lengths, layers, rounds):
    rng = np.random.default_rng(0)
    rows = []
    for depth in layers:
        for steps in lengths:
            initial = jnp.asarray(rng.normal(size=(depth, STATE)), jnp.float32)
            weights = rng.normal(size=(depth, STATE, STATE)) / np.sqrt(STATE)
            weights = jnp.asarray(weights, jnp.float32)
            decay = jnp.asarray(rng.uniform(0.9, 1.0, (depth, STATE)), jnp.float32)
            inputs = jnp.asarray(rng.normal(size=(BATCH, steps, STATE)), jnp.float32)
            for mode, jacobian in (("reverse", jax.jacrev), ("forward", jax.jacfwd)):
                for at, of in enumerate(OF):
                    if mode == "forward" and of in WIDE:
                        continue
                    values = {}
                    for way, scan in WAYS.items():
                        f = jacobian(lambda *x, scan=scan: final_state(scan, *x), at)
                        f = jax.jit(jax.vmap(f, (None, None, None, 0)))
                        arrays = (initial, weights, decay, inputs)
                        values[way] = np.asarray(f(*arrays))
                        took = milliseconds(f, *arrays, rounds=rounds)
                        rows.append(
                            {"layers": depth, "steps": steps, "mode": mode, "of": of, "way": way,
                             "milliseconds": took}
                        )  # fmt: skip
                        print(f"{depth} layers, T {steps:4}, {mode}, in {of:13} {way:17} {took:9.3f} ms",
                              flush=True)  # fmt: skip
                    size = np.max(np.abs(values["lax.scan"]))
                    for way, value in values.items():
                        off = np.max(np.abs(value - values["lax.scan"])) / size
                        assert off < 1e-4, f"{way} is off by {off:.1e} of the largest value"
    return rows


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--lengths", type=int, nargs="+", default=[32, 64, 128, 256, 512])
    parser.add_argument("--layers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=7, help="number of runs; the fastest counts")
    args = parser.parse_args()
    rows = measure(args.lengths, args.layers, args.rounds)
    record(args, "gate_jacobian", rows)
    if args.out:
        draw(rows, args.out / "gate_jacobian.png")


if __name__ == "__main__":
    main()

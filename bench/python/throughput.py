# SPDX-License-Identifier: BSD-3-Clause
"""Milliseconds per forward call and per gradient (with the forward call), for scanrec and its peers in one run.

Measures `state[t] = gate[t] * state[t-1] + input[t]`
- in JAX by scanrec, lax.associative_scan and lax.scan, with fresh outputs (new pages in every call) and
  with donated ones;
- in PyTorch, if installed, by scanrec and torch.associative_scan, which is not compiled;
- by the kernels alone, into existing arrays ("library": calls of the C++ library through ctypes, which add
  10 to 20 us).

Also measures fo-pooling and S5 in JAX, with fresh outputs, against plain JAX; and a filter with one
coefficient against scipy.signal.lfilter and torchlpc, if installed.

    python bench/python/throughput.py --out build/bench

--ours leaves out the peers; scripts/compare uses it.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from measure import associative, milliseconds, parser_of, record, stepwise

import scanrec
import scanrec.jax
from scanrec import _native

CASES = {
    "one sequence": ((1, 65536, 64), np.float32),
    "batch": ((8, 4096, 256), np.float32),
    "long": ((1, 2**21, 32), np.float32),
    "complex": ((4, 512, 64), np.complex64),
}


def problem(shape, dtype):
    rng = np.random.default_rng(0)
    draw = lambda low, high: rng.uniform(low, high, shape)
    gate, input, cotangent = draw(0.5, 1.0), draw(-1, 1), draw(-1, 1)
    if np.dtype(dtype).kind == "c":
        gate = gate * np.exp(1j * draw(-3, 3))
        input, cotangent = input + 1j * draw(-1, 1), cotangent + 1j * draw(-1, 1)
    return tuple(x.astype(dtype) for x in (gate, input, cotangent))


# ---- JAX -----------------------------------------------------------------------------------------


def gradient_of(scan):
    """A function that returns the states, and the gradients of gate and input for given cotangents."""

    def forward_and_back(gate, input, cotangent):
        state, vjp = jax.vjp(scan, gate, input)
        return state, *vjp(cotangent)

    return forward_and_back


def donated(f, arrays, count):
    """A call of f that writes into the result arrays of the previous call."""
    given = len(arrays)
    jitted = jax.jit(
        lambda *x: f(*x[:given]),
        donate_argnums=tuple(range(given, given + count)),
        keep_unused=True,
    )
    results = [jnp.zeros_like(arrays[0]) for _ in range(count)]

    def call():
        nonlocal results
        out = jitted(*arrays, *results)
        results = list(out) if isinstance(out, tuple) else [out]
        return results

    return call


def chosen(ways, ours):
    """All of the ways, or with `ours` only those of scanrec."""
    return {n: f for n, f in ways.items() if not ours or n.startswith("scanrec")}


def measure_jax(name, arrays, rows, ours):
    arrays = tuple(jnp.asarray(x) for x in arrays)
    ways = {
        "scanrec": scanrec.jax.linear_scan,
        "lax.scan": stepwise,
        "associative_scan": associative,
    }
    ways = chosen(ways, ours)
    for way, scan in ways.items():
        both = gradient_of(scan)
        for what, f, given, count in (
            ("forward", scan, arrays[:2], 1),
            ("gradient", both, arrays, 3),
        ):
            took = {
                "fresh": milliseconds(jax.jit(f), *given),
                "donated": milliseconds(donated(f, given, count)),
            }
            for outputs, ms in took.items():
                add(rows, name, f"JAX {way}", what, outputs, ms)


# ---- the kernels alone ---------------------------------------------------------------------------


def array_of(x):
    return _native.Array(x.ctypes.data, [s // x.itemsize for s in x.strides])


def measure_library(name, arrays, rows):
    gate, input, cotangent = arrays
    state, gate_grad, input_grad = (np.zeros_like(input) for _ in range(3))
    about = {"dtype": input.dtype.name, "shape": input.shape, "axis": 1, "reverse": False}

    def forward():
        named = {"gate": gate, "input": input, "state": state}
        _native.call("linear_scan", {n: array_of(x) for n, x in named.items()}, **about)

    def both():
        forward()
        named = {
            "gate": gate, "state": state, "state_grad": cotangent,
            "gate_grad": gate_grad, "input_grad": input_grad,
        }  # fmt: skip
        _native.call("linear_scan_vjp", {n: array_of(x) for n, x in named.items()}, **about)

    add(rows, name, "library", "forward", "kept", milliseconds(forward))
    add(rows, name, "library", "gradient", "kept", milliseconds(both))


# ---- PyTorch -------------------------------------------------------------------------------------


def measure_torch(name, arrays, rows, ours):
    try:
        import torch
        from torch._higher_order_ops.associative_scan import associative_scan

        import scanrec.torch
    except ImportError:
        return
    gate, input, cotangent = (torch.from_numpy(x) for x in arrays)

    def by_composition(gate, input):
        def combine(earlier, later):
            return later[0] * earlier[0], later[0] * earlier[1] + later[1]

        return associative_scan(combine, (gate, input), 1, combine_mode="generic")[1]

    ways = {"scanrec": scanrec.torch.linear_scan, "associative_scan": by_composition}
    for way, scan in chosen(ways, ours).items():

        def both(scan=scan):
            leaves = [x.requires_grad_() for x in (gate.detach(), input.detach())]
            return torch.autograd.grad(scan(*leaves), leaves, cotangent)

        def forward(scan=scan):
            with torch.no_grad():
                return scan(gate, input)

        add(rows, name, f"PyTorch {way}", "forward", "fresh", milliseconds(forward))
        add(rows, name, f"PyTorch {way}", "gradient", "fresh", milliseconds(both))


# ---- layers --------------------------------------------------------------------------------------


def pooled_by(scan):
    """fo-pooling of packed pre-activations by JAX's activations and the given scan."""

    def pool(pre):
        candidate, forget, output = jnp.split(pre, 3, -1)
        gate = jax.nn.sigmoid(forget)
        return jax.nn.sigmoid(output) * scan(gate, (1 - gate) * jnp.tanh(candidate))

    return pool


def measure_layers(rows, ours):
    rng = np.random.default_rng(0)
    normal = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)
    ways = {
        "scanrec": scanrec.jax.qrnn_pool,
        "scanrec linear_scan": pooled_by(scanrec.jax.linear_scan),
        "lax.scan": pooled_by(stepwise),
    }
    measure_layer("fo-pooling", chosen(ways, ours), normal(8, 4096, 3 * 256), rows)

    states = 64
    lambda_ = jnp.asarray(-0.5 + 1j * np.arange(states), jnp.complex64)
    b, c = (jax.lax.complex(normal(states, states), normal(states, states)) / 8 for _ in range(2))
    log_step = jnp.full(states, -3.0)

    def by_associative_scan(u):
        z = lambda_ * jnp.exp(log_step)
        x = u @ (((jnp.exp(z) - 1) / lambda_)[:, None] * b).T
        return 2 * (associative(jnp.exp(z), x) @ c.T).real

    by_s5 = lambda u: scanrec.jax.s5(u, lambda_, b, c, None, log_step)
    ways = {"scanrec": by_s5, "associative_scan": by_associative_scan}
    measure_layer("S5", chosen(ways, ours), normal(8, 4096, states), rows)


def measure_layer(name, ways, x, rows):
    for way, f in ways.items():
        gradient = jax.grad(lambda x, f=f: jnp.sum(f(x) ** 2))
        add(rows, name, f"JAX {way}", "forward", "fresh", milliseconds(jax.jit(f), x))
        add(rows, name, f"JAX {way}", "gradient", "fresh", milliseconds(jax.jit(gradient), x))


# ---- one coefficient -----------------------------------------------------------------------------


def measure_filters(rows, ours):
    """An exponential moving average of 8 sequences of 2^18 steps."""
    x = np.random.default_rng(0).uniform(-1, 1, (8, 2**18)).astype(np.float32)
    name, gate = "one coefficient", np.float32(0.99)
    on_jax = jax.jit(lambda x: scanrec.jax.linear_scan(gate, x, axis=-1))
    add(rows, name, "JAX scanrec", "forward", "fresh", milliseconds(on_jax, jnp.asarray(x)))
    on_numpy = lambda: scanrec.linear_scan(gate, x, axis=-1)
    add(rows, name, "NumPy scanrec", "forward", "fresh", milliseconds(on_numpy))
    if ours:
        return
    try:
        from scipy.signal import lfilter

        by_lfilter = lambda: lfilter(np.ones(1, np.float32), np.array([1, -gate], np.float32), x)
        add(rows, name, "SciPy lfilter", "forward", "fresh", milliseconds(by_lfilter))
    except ImportError:
        pass
    try:
        import torch
        import torchlpc

        given = torch.from_numpy(x), torch.full((*x.shape, 1), -float(gate))
        by_lpc = lambda: torchlpc.sample_wise_lpc(*given)
        add(rows, name, "torchlpc", "forward", "fresh", milliseconds(by_lpc))
    except ImportError:
        pass


def add(rows, case, way, what, outputs, ms):
    rows.append({"case": case, "way": way, "what": what, "outputs": outputs, "milliseconds": ms})
    print(f"{case:16} {way:26} {what:9} {outputs:8} {ms:10.3f} ms", flush=True)


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--cases", nargs="*", choices=CASES, default=list(CASES))
    parser.add_argument("--ours", action="store_true", help="leave out the peers")
    args = parser.parse_args()
    rows = []
    for name in args.cases:
        arrays = problem(*CASES[name])
        measure_library(name, arrays, rows)
        measure_jax(name, arrays, rows, args.ours)
        measure_torch(name, arrays, rows, args.ours)
    measure_layers(rows, args.ours)
    measure_filters(rows, args.ours)
    record(args, "throughput", rows)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: BSD-3-Clause
"""Reference loops for the layers of scanrec.jax.nn, in NumPy and long double."""

from __future__ import annotations

import jax
import numpy as np
from conftest import derivative

from scanrec.jax import nn

WIDE = {"f": np.longdouble, "c": np.clongdouble, "b": bool}


def wide(tree):
    """Convert the arrays of a tree to NumPy arrays in long double."""
    return jax.tree.map(lambda x: np.asarray(x).astype(WIDE[np.asarray(x).dtype.kind]), tree)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def softplus(x):
    return np.logaddexp(x, 0)


def block_diagonal(blocks):
    """Return the matrix with square blocks (N, M, M) along its diagonal."""
    number, size = blocks.shape[:2]
    eye = np.eye(number, dtype=blocks.dtype)
    return np.einsum("nij,nm->nimj", blocks, eye).reshape((number * size,) * 2)


def advance(layer, p, carry, begins, u):
    """Run one step of one direction and return (carry, output).

    Where `begins`, (B, 1), is True, the carry is set to 0 first.
    """
    zero = lambda x: np.where(begins.reshape(begins.shape[:1] + (1,) * (x.ndim - 1)), 0, x)
    (h, *more), bias = map(zero, carry), p.get("bias", 0)
    if isinstance(layer, nn.QRNN):
        pre = u @ p["weight"].T + bias + (more[0] if more else 0)
        z, f, *others = np.split(pre, {"f": 2, "fo": 3, "ifo": 4}[layer.pool], -1)
        moved = sigmoid(f) * h + (sigmoid(others[1]) if others[1:] else sigmoid(-f)) * np.tanh(z)
        h = layer.zoneout * h + (1 - layer.zoneout) * moved
        y = sigmoid(others[0]) * h if others else h
        return (h, *([u @ p["weight_before"].T] if more else [])), y
    if isinstance(layer, nn.MinGRU):
        v, z = np.split(u @ p["weight"].T + bias, 2, -1)
        if layer.candidate == "positive":
            v = np.where(v >= 0, v + 0.5, sigmoid(v))
        h = (1 - sigmoid(z)) * h + sigmoid(z) * v
        return (h,), h
    if isinstance(layer, nn.RGLRU):
        x = u @ p["weight_in"].T + p.get("bias_in", 0) if "weight_in" in p else u
        r = sigmoid(x @ block_diagonal(p["weight_recurrence"]) + p.get("bias_recurrence", 0))
        i = sigmoid(x @ block_diagonal(p["weight_gate"]) + p.get("bias_gate", 0))
        a = np.exp(-layer.c * softplus(p["decay"]) * r)
        h = a * h + np.where(begins, 1, np.sqrt(1 - a**2)) * i * x
        return (h,), h
    if isinstance(layer, (nn.LRU, nn.S5)):
        b, c = (p[name][..., 0] + 1j * p[name][..., 1] for name in "bc")
        if isinstance(layer, nn.LRU):
            gate = np.exp(-np.exp(p["nu"]) + 1j * np.exp(p["theta"]))
            scale = np.sqrt(1 - np.abs(gate) ** 2)
        else:
            c, step = 2 * c, np.exp(p["log_step"])
            pole = -np.exp(p["log_decay"]) + 1j * p["frequency"]
            gate, scale = np.exp(pole * step), (np.exp(pole * step) - 1) / pole
            if layer.discretisation == "bilinear":
                half = pole * step / 2
                gate, scale = (1 + half) / (1 - half), step / (1 - half)
        h = gate * h + scale * (u @ b.T)
        through = u * p["d"] if p["d"].ndim == 1 else u @ p["d"].T
        return (h,), (h @ c.T).real + through + bias
    u, z = np.split(u @ p["weight_in"].T, 2, -1)
    seen = np.concatenate([more[0], u[..., None]], -1)  # (B, E, conv)
    v = silu(np.sum(seen * p["weight_conv"], -1) + p.get("bias_conv", 0))
    n, r = layer.state_size, p["weight_delta"].shape[1]
    low, b, c = np.split(v @ p["weight_projection"].T, [r, r + n], -1)
    step = softplus(low @ p["weight_delta"].T + p["bias_delta"])[..., None]
    h = np.exp(-step * np.exp(p["log_decay"])) * h + step * b[:, None] * v[..., None]
    y = (np.sum(h * c[:, None], -1) + p["d"] * v) * silu(z)
    return (h, seen[..., 1:]), y @ p["weight_out"].T


def stepwise(layer, params, x, state=None, reset_mask=None):
    """Compute layer.apply by a loop over `advance`.

    Parameters, inputs and states must be results of `wide`. The reset mask is (B, T + 1).
    """
    first = wide(layer.initial_state(x.shape[:1])) if state is None else state
    arrays, finals = first if isinstance(first, tuple) else (first,), []
    resets = (
        np.zeros((len(x), x.shape[1] + 1), bool) if reset_mask is None else np.asarray(reset_mask)
    )
    resets = [resets[:, :-1].copy(), resets[:, :0:-1].copy()]
    if state is None:
        for reset in resets:
            reset[:, 0] = True
    for i in range(layer.num_layers):
        outputs = []
        for d, way in enumerate(params[f"layer_{i}"]):
            p, u = params[f"layer_{i}"][way], x[:, ::-1] if d else x
            turns = d == 1 and isinstance(layer, nn.Mamba)
            mirror = lambda s, turns=turns: s[..., ::-1] if turns else s
            h, *more = (a[layer.num_directions * i + d] for a in arrays)
            carry, steps = (h, *map(mirror, more)), []
            for t in range(u.shape[1]):
                carry, y = advance(layer, p, carry, resets[d][:, t, None], u[:, t])
                steps.append(y)
            h, *more = carry
            finals.append((h, *map(mirror, more)))
            outputs.append(np.stack(steps, 1)[:, :: -1 if d else 1])
        x = np.concatenate(outputs, -1)
    finals = [np.stack(s) for s in zip(*finals)]
    return x, type(first)(*finals) if isinstance(first, tuple) else finals[0]


#: The step of the finite differences.
STEP = 1e-4


def check_gradients(function, at, gradients, random, tolerance=1e-10):
    """Compare each array's gradient with the derivative along one random direction.

    This derivative is a sum over all elements. The tolerance is relative to the sum of the
    magnitudes of its terms, plus the function's rounding error divided by the step of differences.
    """
    leaves, tree = jax.tree.flatten(at)
    found = jax.tree.leaves(gradients)
    assert len(found) == len(leaves)
    rounding = 4 * np.finfo(np.longdouble).eps / STEP * abs(function(at))
    for i, (x, gradient) in enumerate(zip(leaves, map(np.asarray, found))):
        assert gradient.shape == x.shape and gradient.dtype.kind == x.dtype.kind
        parts = [random(*x.shape) for _ in range(2 if x.dtype.kind == "c" else 1)]
        # Elements of the direction have either sign, and none is close to 0.
        along = sum(unit * (np.sign(part) + part) for unit, part in zip((1, 1j), parts))
        change = lambda step, i=i, x=x, along=along: function(
            tree.unflatten([*leaves[:i], x + step * along, *leaves[i + 1 :]])
        )
        terms = (gradient * along).real  # JAX does not conjugate gradients of complex arrays
        error = abs(np.sum(terms) - derivative(change, STEP))
        assert error <= tolerance * np.sum(np.abs(terms)) + rounding, (i, error)

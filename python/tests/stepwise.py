# SPDX-License-Identifier: BSD-3-Clause
"""The layers of scanrec.jax.nn step by step, in what JAX has itself: what tests compare with."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from scanrec.jax import nn

sigmoid, silu = jax.nn.sigmoid, jax.nn.silu


def advance(layer, p, carry, begins, u):
    """One step of one direction: (state, output). `begins`, (B, 1): the carried state is 0."""
    zero = lambda x: jnp.where(begins.reshape(begins.shape[:1] + (1,) * (x.ndim - 1)), 0, x)
    (h, *more), bias = map(zero, carry), p.get("bias", 0)
    if isinstance(layer, nn.QRNN):
        pre = u @ p["weight"].T + bias + (more[0] if more else 0)
        z, f, *others = jnp.split(pre, {"f": 2, "fo": 3, "ifo": 4}[layer.pool], -1)
        moved = sigmoid(f) * h + (sigmoid(others[1]) if others[1:] else sigmoid(-f)) * jnp.tanh(z)
        h = layer.zoneout * h + (1 - layer.zoneout) * moved
        y = sigmoid(others[0]) * h if others else h
        return (h, *([u @ p["weight_before"].T] if more else [])), y
    if isinstance(layer, nn.MinGRU):
        v, z = jnp.split(u @ p["weight"].T + bias, 2, -1)
        if layer.candidate == "positive":
            v = jnp.where(v >= 0, v + 0.5, sigmoid(v))
        h = (1 - sigmoid(z)) * h + sigmoid(z) * v
        return (h,), h
    if isinstance(layer, nn.RGLRU):
        x = u @ p["weight_in"].T + p.get("bias_in", 0) if "weight_in" in p else u
        whole = lambda w: jax.scipy.linalg.block_diag(*w)
        r = sigmoid(x @ whole(p["weight_recurrence"]) + p.get("bias_recurrence", 0))
        i = sigmoid(x @ whole(p["weight_gate"]) + p.get("bias_gate", 0))
        a = jnp.exp(-layer.c * jax.nn.softplus(p["decay"]) * r)
        h = a * h + jnp.where(begins, 1, jnp.sqrt(1 - a**2)) * i * x
        return (h,), h
    if isinstance(layer, (nn.LRU, nn.S5)):
        b, c = (p[name][..., 0] + 1j * p[name][..., 1] for name in "bc")
        if isinstance(layer, nn.LRU):
            gate = jnp.exp(-jnp.exp(p["nu"]) + 1j * jnp.exp(p["theta"]))
            scale = jnp.sqrt(1 - jnp.abs(gate) ** 2)
        else:
            c, step = 2 * c, jnp.exp(p["log_step"])
            pole = -jnp.exp(p["log_decay"]) + 1j * p["frequency"]
            gate, scale = jnp.exp(pole * step), (jnp.exp(pole * step) - 1) / pole
            if layer.discretisation == "bilinear":
                half = pole * step / 2
                gate, scale = (1 + half) / (1 - half), step / (1 - half)
        h = gate * h + scale * (u @ b.T)
        through = u * p["d"] if p["d"].ndim == 1 else u @ p["d"].T
        return (h,), (h @ c.T).real + through + bias
    u, z = jnp.split(u @ p["weight_in"].T, 2, -1)
    seen = jnp.concatenate([more[0], u[..., None]], -1)  # (B, E, conv)
    v = silu(jnp.sum(seen * p["weight_conv"], -1) + p.get("bias_conv", 0))
    n, r = layer.state_size, p["weight_delta"].shape[1]
    low, b, c = jnp.split(v @ p["weight_mixing"].T, [r, r + n], -1)
    step = jax.nn.softplus(low @ p["weight_delta"].T + p["bias_delta"])[..., None]
    h = jnp.exp(-step * jnp.exp(p["log_decay"])) * h + step * b[:, None] * v[..., None]
    y = (jnp.sum(h * c[:, None], -1) + p["skip"] * v) * silu(z)
    return (h, seen[..., 1:]), y @ p["weight_out"].T


def stepwise(layer, params, x, state=None, marks=None):
    """What layer.apply is, by lax.scan over `advance`; marks: (B, T + 1)."""
    first = layer.initial_state(x.shape[:1], x.dtype) if state is None else state
    arrays, finals = first if isinstance(first, tuple) else (first,), []
    cuts = jnp.zeros((len(x), x.shape[1] + 1), bool) if marks is None else marks
    cuts = [cuts[:, :-1], cuts[:, :0:-1]]
    if state is None:
        cuts = [cut.at[:, 0].set(True) for cut in cuts]
    for i in range(layer.num_layers):
        outputs = []
        for d, way in enumerate(params[f"layer_{i}"]):
            p, u = params[f"layer_{i}"][way], x[:, ::-1] if d else x
            turns = d == 1 and isinstance(layer, nn.Mamba)
            mirror = lambda s, turns=turns: s[..., ::-1] if turns else s
            h, *more = (a[layer.num_directions * i + d] for a in arrays)
            over = jnp.swapaxes(u, 0, 1), cuts[d].T[..., None]
            body = lambda carry, now, p=p: advance(layer, p, carry, now[1], now[0])
            (h, *more), y = jax.lax.scan(body, (h, *map(mirror, more)), over)
            finals.append((h, *map(mirror, more)))
            outputs.append(jnp.swapaxes(y, 0, 1)[:, :: -1 if d else 1])
        x = jnp.concatenate(outputs, -1)
    finals = [jnp.stack(s) for s in zip(*finals)]
    return x, type(first)(*finals) if isinstance(first, tuple) else finals[0]

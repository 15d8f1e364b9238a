# SPDX-License-Identifier: BSD-3-Clause
"""Reference loops over time for the layers of scanrec.torch.nn."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.nn import functional

from scanrec.torch import nn

SIGMOID = torch.sigmoid


def leaves(state):
    """Return the tensors of a state."""
    return state if isinstance(state, tuple) else (state,)


# ---- step functions: (layer, weights, u, state, first, reverse) -> (output, state) ---------------
# `first`, (B, 1), is true where sequences start. Only RG-LRU reads it. Only Mamba reads `reverse`.


def qrnn_step(layer, w, u, state, first, reverse):
    pre = functional.linear(u, w["weight"], w.get("bias"))
    if layer.kernel_size == 2:
        pre = pre + state[1]
    z, f, *others = pre.chunk({"f": 2, "fo": 3, "ifo": 4}[layer.pool], -1)
    keep, into = SIGMOID(f), SIGMOID(others[1] if layer.pool == "ifo" else -f)
    if layer.zoneout:  # outside of training, take the expectation
        keep, into = keep + layer.zoneout * (1 - keep), (1 - layer.zoneout) * into
    h = keep * state[0] + into * torch.tanh(z)
    after = () if layer.kernel_size == 1 else (functional.linear(u, w["weight_before"]),)
    return (SIGMOID(others[0]) * h if others else h), (h, *after)


def min_gru_step(layer, w, u, state, first, reverse):
    v, z = functional.linear(u, w["weight"], w.get("bias")).chunk(2, -1)
    if layer.candidate == "positive":
        v = torch.where(v >= 0, v + 0.5, SIGMOID(v))
    h = (1 - SIGMOID(z)) * state[0] + SIGMOID(z) * v
    return h, (h,)


def state_space_step(layer, w, u, state, first, reverse):
    b, c = torch.view_as_complex(w["b"]), torch.view_as_complex(w["c"])
    if "nu" in w:
        gate, twice = torch.exp(torch.complex(-w["nu"].exp(), w["theta"].exp())), 1
        scale = torch.sqrt(1 - gate.abs() ** 2)
    else:
        rate, step = torch.complex(-w["log_decay"].exp(), w["frequency"]), w["log_step"].exp()
        z, twice = rate * step, 2
        if layer.discretisation == "bilinear":
            gate, scale = (1 + z / 2) / (1 - z / 2), step / (1 - z / 2)
        else:
            gate, scale = torch.exp(z), (torch.exp(z) - 1) / rate
    x = gate * state[0] + scale * (u.to(b.dtype) @ b.T)
    direct = u * w["d"] if w["d"].dim() == 1 else u @ w["d"].T
    return twice * (x @ c.T).real + direct + w.get("bias", 0), (x,)


def rg_lru_step(layer, w, u, state, first, reverse):
    x = functional.linear(u, w["weight_in"], w.get("bias_in")) if "weight_in" in w else u
    of = lambda name: SIGMOID(x @ torch.block_diag(*w[f"weight_{name}"]) + w.get(f"bias_{name}", 0))
    a = torch.exp(-layer.c * functional.softplus(w["decay"]) * of("recurrence"))
    h = a * state[0] + torch.where(first, 1, torch.sqrt(1 - a**2)) * of("gate") * x
    return h, (h,)


def mamba_step(layer, w, u, state, first, reverse):
    u, z = (u @ w["weight_in"].T).chunk(2, -1)
    seen = torch.cat([u[..., None], state[1]] if reverse else [state[1], u[..., None]], -1)
    taps = w["weight_conv"].flip(-1) if reverse else w["weight_conv"]
    v = functional.silu((seen * taps).sum(-1) + w.get("bias_conv", 0))
    n = layer.state_size
    low, b, c = (v @ w["weight_projection"].T).split([len(w["weight_delta"].T), n, n], -1)
    step = functional.softplus(low @ w["weight_delta"].T + w["bias_delta"])[..., None]
    x = torch.exp(-step * w["log_decay"].exp()) * state[0] + step * b[:, None] * v[..., None]
    out = ((x * c[:, None]).sum(-1) + w["d"] * v) * functional.silu(z)
    return out @ w["weight_out"].T, (x, seen[..., :-1] if reverse else seen[..., 1:])


#: (class, options, step function). A name without a space is the main case of its class.
LAYERS = {
    "QRNN": (nn.QRNN, {}, qrnn_step),
    "QRNN f": (nn.QRNN, {"pool": "f", "bias": False, "zoneout": 0.3}, qrnn_step),
    "QRNN ifo": (
        nn.QRNN,
        {"pool": "ifo", "kernel_size": 2, "zoneout": 0.3, "memory": "recompute"},
        qrnn_step,
    ),
    "MinGRU": (nn.MinGRU, {}, min_gru_step),
    "MinGRU positive": (nn.MinGRU, {"candidate": "positive", "bias": False}, min_gru_step),
    "LRU": (nn.LRU, {"state_size": 5}, state_space_step),
    "S5": (nn.S5, {"state_size": 8, "blocks": 2}, state_space_step),
    "S5 bilinear": (
        nn.S5,
        {"state_size": 4, "discretisation": "bilinear", "bias": False},
        state_space_step,
    ),
    "RGLRU": (nn.RGLRU, {"heads": 2}, rg_lru_step),
    "RGLRU c": (nn.RGLRU, {"c": 3.0, "bias": False}, rg_lru_step),
    "Mamba": (nn.Mamba, {"state_size": 3}, mamba_step),
    "Mamba sizes": (
        nn.Mamba,
        {"state_size": 2, "conv": 1, "expand": 3, "dt_rank": 2, "bias": False},
        mamba_step,
    ),
}


def loop(layer, step, x, state, reset_mask=None):
    """Run all layers and directions step by step. `reset_mask`, (T + 1, B), starts sequences."""
    zeros = [torch.zeros_like(s) for s in leaves(layer(x)[1])]
    given, finals, sides = zeros if state is None else leaves(state), [], []
    directions = 2 if layer.bidirectional else 1
    for position in range(layer.num_layers * directions):
        suffix = f"_l{position // directions}" + ("_reverse" if position % directions else "")
        w = {
            name.removesuffix(suffix): weight
            for name, weight in layer.named_parameters()
            if name.endswith(suffix)
        }
        now, outputs, reverse = tuple(s[position] for s in given), {}, bool(position % directions)
        for i, t in enumerate(reversed(range(len(x))) if reverse else range(len(x))):
            first = torch.full((x.shape[1], 1), state is None and i == 0)
            if reset_mask is not None:
                reset = reset_mask[t + 1 if reverse else t]
                first = first | reset[:, None]
                now = [s.masked_fill(reset.reshape(-1, *[1] * (s.dim() - 1)), 0) for s in now]
            outputs[t], now = step(layer, w, x[t], now, first, reverse)
        finals.append(now)
        sides.append(torch.stack([outputs[t] for t in range(len(x))]))
        if len(sides) == directions:
            x, sides = torch.cat(sides, -1), []
    return x, tuple(torch.stack(s) for s in zip(*finals))

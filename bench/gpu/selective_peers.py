# SPDX-License-Identifier: BSD-3-Clause
"""The selective scan of mamba_ssm (PyTorch) on the workloads of selective_scan.cu, for peers.py."""

from frameworks import import_or_absent

STATES = 16
# Shape (batch, time, channel), and whether arrays with a time axis have 16-bit elements.
WORKLOADS = {
    "selective_few": ((2, 4096, 1536), False),
    "selective_few_bfloat16": ((2, 4096, 1536), True),
    "selective_many": ((8, 2048, 2048), False),
    "selective_many_bfloat16": ((8, 2048, 2048), True),
}


def arguments(framework, shape, narrow):
    """Return the arguments of mamba_ssm's scan by name, with its axis order, and the output gradient."""
    batch, steps, channels = shape
    torch = framework.module

    def of_steps(*extents):
        x = framework.uniform((batch, *extents, steps), -1, 1, False)
        return x.to(torch.bfloat16) if narrow else x

    def of_channels(low, high, *extents):
        return framework.uniform((channels, *extents), low, high, False)

    named = {
        "u": of_steps(channels),
        "delta": of_steps(channels),
        "A": of_channels(-16, -1, STATES),
        "B": of_steps(STATES),
        "C": of_steps(STATES),
        "D": of_channels(0.5, 1.5),
        "z": of_steps(channels),
        "delta_bias": of_channels(-5, -4),
    }
    return named, of_steps(channels)


def mamba_ssm(torch, given, grads):
    scan = import_or_absent("mamba_ssm.ops.selective_scan_interface").selective_scan_fn
    leaves = {name: x.detach().requires_grad_() for name, x in given.items()}
    outputs = []

    def forward():
        with torch.no_grad():
            return scan(**given, delta_softplus=True)

    def vjp():
        if not outputs:
            outputs.append(scan(**leaves, delta_softplus=True))
        return torch.autograd.grad(outputs[0], list(leaves.values()), grads, retain_graph=True)

    return {"forward": forward, "vjp": vjp}


def check(torch, out, given, steps):
    """Compare the first steps with a loop."""
    x = {name: value.float() for name, value in given.items()}
    delta = torch.nn.functional.softplus(x["delta"] + x["delta_bias"][:, None])
    state = 0 * delta[:, :, :1] * x["A"]
    for t in range(steps):
        step = delta[:, :, t, None]
        state = (
            torch.exp(step * x["A"]) * state + step * x["u"][:, :, t, None] * x["B"][:, None, :, t]
        )
        y = (state * x["C"][:, None, :, t]).sum(-1) + x["D"] * x["u"][:, :, t]
        y = y * torch.nn.functional.silu(x["z"][:, :, t])
        if not float((out[:, :, t].float() - y).abs().max()) < (
            0.1 if out.dtype != y.dtype else 1e-3
        ):
            raise RuntimeError(f"wrong from step {t} on")

# SPDX-License-Identifier: BSD-3-Clause
"""The Python blocks of the documents run, each after what it takes for granted."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FRAMEWORKS = ("jax", "flax", "torch")
# The first words of a block: what must be there before it runs.
BEFORE = {
    "import numpy as np, scanrec\n": "",
    "import numpy as np\nimport scanrec\n": "",
    "import torch\nfrom scanrec.torch import nn": "",
    "import jax, jax.numpy as jnp\nfrom scanrec.jax import nn": "",
    "from flax import nnx": "import jax.numpy as jnp\nx = jnp.ones((8, 500, 48))\nstate = resets = None\n",
    "rnn = scanrec.jax.nnx.RNN": """\
import jax.numpy as jnp, scanrec.jax.nnx
from flax import nnx
x = jnp.ones((8, 500, 48))
""",
    "import jax, jax.numpy as jnp\nimport scanrec.jax\n": "",
    "output = scanrec.jax.qrnn_pool": """\
import jax.numpy as jnp, scanrec.jax
pre, u, lambda_ = jnp.ones((2, 9, 12)), jnp.ones((2, 9, 5)), jnp.full(3, -0.5 + 1j)
b, c, d, log_step = jnp.ones((3, 5)) + 0j, jnp.ones((5, 3)) + 0j, jnp.ones(5), jnp.zeros(3)
nu, theta = jnp.zeros(3), jnp.zeros(3)
""",
    "out, last = scanrec.torch.selective_scan": """\
import torch, scanrec.torch
u, delta, z = torch.rand(3, 2, 6, 9)
A, B, C, D, delta_bias, dt_bias = -torch.rand(6, 4), *torch.rand(2, 2, 4, 9), *torch.rand(3, 6)
cu_seqlens, L = torch.tensor([0, 4, 9]), 9
state, x, dt, z_t = torch.rand(2, 6, 4), *torch.rand(3, 2, 6)
B_t, C_t = torch.rand(2, 2, 4)
""",
    "out, final = scanrec.jax.selective_scan": """\
import jax.numpy as jnp, scanrec.jax
u = delta = z = jnp.ones((2, 9, 6))
A, B, C, D = -jnp.ones((6, 4)), jnp.ones((2, 9, 4)), jnp.ones((2, 9, 4)), jnp.ones(6)
x = dt = z_t = jnp.ones((2, 6))
state, B_t, C_t, delta_bias, dt_bias = jnp.ones((2, 6, 4)), jnp.ones((2, 4)), jnp.ones((2, 4)), D, D
""",
    "out = scanrec.torch.causal_conv1d": """\
import torch, scanrec.torch
x, weight, bias, states = torch.rand(2, 6, 9), torch.rand(6, 4), torch.rand(6), torch.rand(2, 6, 3)
x_t, conv_state = torch.rand(2, 6), torch.zeros(2, 6, 4)
""",
    "out, state = scanrec.jax.causal_conv1d": """\
import jax.numpy as jnp, scanrec.jax
x, weight, bias, state = jnp.ones((2, 9, 6)), jnp.ones((6, 4)), jnp.ones(6), jnp.ones((2, 3, 6))
marks, x_t, conv_state = jnp.zeros((2, 9), bool), jnp.ones((2, 6)), jnp.zeros((2, 4, 6))
""",
    "def on_each(gate, input):": """\
import jax, jax.numpy as jnp, scanrec.jax
from jax.sharding import PartitionSpec as P
mesh = jax.sharding.Mesh(jax.devices()[:1], ("time",))
gate, input = jnp.full(3, 0.5), jnp.ones((2, 8, 3))
""",
    "state, final = scanrec.torch.linear_scan": """\
import torch, scanrec.torch
dist = torch.distributed
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
cleanup.callback(dist.destroy_process_group)
mesh = dist.device_mesh.init_device_mesh("cpu", (1,), mesh_dim_names=("time",))
gate, input = torch.rand(2, 8, 3), torch.rand(2, 8, 3)
""",
    "from scanrec.compat.accelerated_scan import": "class A2CBase: pass\n",
}


def blocks():
    documents = [ROOT / "README.md", ROOT / "python/README.md", *sorted(ROOT.glob("docs/*.md"))]
    for document in documents:
        text = document.read_text()
        for found in re.finditer(r"```python\n(.*?)```", text, re.S):
            line = text[: found.start()].count("\n") + 1
            yield pytest.param(found[1], id=f"{document.relative_to(ROOT)}:{line}")


BLOCKS = list(blocks())


@pytest.mark.parametrize("block", BLOCKS)
def test_blocks_run(block):
    (before,) = [code for start, code in BEFORE.items() if block.startswith(start)]
    for name in FRAMEWORKS:
        if re.search(rf"(import|from) {name}\b", before + block):
            pytest.importorskip(name, reason=f"{name} is not installed")
    with contextlib.ExitStack() as cleanup:
        # Models of transformers have tests of their own.
        exec(before + re.sub(r".*\.apply_to\(.*\n", "", block), {"cleanup": cleanup})


def test_nothing_is_prepared_for_blocks_that_are_no_more():
    texts = [block.values[0] for block in BLOCKS]
    assert [start for start in BEFORE if not any(x.startswith(start) for x in texts)] == []

# SPDX-License-Identifier: BSD-3-Clause
"""Tests that run the Python blocks of the documents, each after the definitions that it needs.

Blocks that are parts of example programs (tests/docs_check.py) run in test_examples.py instead.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FRAMEWORKS = ("jax", "flax", "torch")
# The first words of a block, and the definitions that it needs. All other blocks begin with an
# import and need none.
BEFORE = {
    "from flax import nnx": "import jax.numpy as jnp\nx = jnp.ones((8, 500, 48))\nstate = resets = None\n",
    "rnn = scanrec.jax.nnx.RNN": """\
import jax.numpy as jnp, scanrec.jax.nnx
from flax import nnx
x = jnp.ones((8, 500, 48))
""",
    "import os\nimport torch\nfrom torch.distributed": """\
import os, unittest.mock
import torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
cleanup.callback(dist.destroy_process_group)
cleanup.enter_context(unittest.mock.patch.dict(os.environ, WORLD_SIZE="1"))
""",
}


def blocks():
    documents = [ROOT / "README.md", ROOT / "python/README.md", *sorted(ROOT.glob("docs/*.md"))]
    for document in documents:
        text = document.read_text()
        for found in re.finditer(r"(?<! -->\n)```python\n(.*?)```", text, re.S):
            line = text[: found.start()].count("\n") + 1
            yield pytest.param(found[1], id=f"{document.relative_to(ROOT)}:{line}")


BLOCKS = list(blocks())


@pytest.mark.parametrize("block", BLOCKS)
def test_python_blocks_of_documents_run(block):
    found = [code for start, code in BEFORE.items() if block.startswith(start)]
    assert found or block.startswith("import ")
    before = found[0] if found else ""
    for name in FRAMEWORKS:
        if re.search(rf"(import|from) {name}\b", before + block):
            pytest.importorskip(name, reason=f"{name} is not installed")
    with contextlib.ExitStack() as cleanup:
        # Calls on transformers models are left out: they have separate tests.
        exec(before + re.sub(r".*\.apply_to\(.*\n", "", block), {"cleanup": cleanup})


def test_definitions_belong_to_existing_blocks():
    texts = [block.values[0] for block in BLOCKS]
    assert [start for start in BEFORE if not any(x.startswith(start) for x in texts)] == []

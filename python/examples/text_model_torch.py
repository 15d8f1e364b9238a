# SPDX-License-Identifier: BSD-3-Clause
"""A character language model of QRNN layers in PyTorch, trained through scanrec.torch.qrnn_pool.

The model is that of text_model_jax.py. The program draws the learning curve, and times the same model with
PyTorch's associative_scan.

    pip install './python[torch]' tqdm matplotlib
    python python/examples/text_model_torch.py --out build/text
"""

from __future__ import annotations

import pathlib
import time

import numpy as np
import torch
from text_data import Chunks, draw_curve, parser_of
from torch import nn
from torch._higher_order_ops.associative_scan import associative_scan
from tqdm import trange

import scanrec.torch


def stock_pool(pre, first, return_final):
    """fo-pooling by PyTorch's associative_scan."""
    candidate, forget, output = pre.chunk(3, -1)
    gate = torch.sigmoid(forget)
    input = (1 - gate) * torch.tanh(candidate)
    input = torch.cat([input[:, :1] + gate[:, :1] * first[:, None], input[:, 1:]], 1)
    combine = lambda i, j: (j[0] * i[0], j[0] * i[1] + j[1])
    state = associative_scan(combine, (gate, input), 1, combine_mode="generic")[1]
    return torch.sigmoid(output) * state, state[:, -1]


class QrnnLayer(nn.Module):
    def __init__(self, inputs, channels, pool):
        super().__init__()
        self.now = nn.Linear(inputs, 3 * channels)
        self.before = nn.Linear(inputs, 3 * channels, bias=False)
        nn.init.ones_(self.now.bias[channels : 2 * channels])  # begin with a long memory
        self.pool, self.channels = pool, channels

    def forward(self, x, carried=None):
        first, past = carried or (x.new_zeros(len(x), self.channels), torch.zeros_like(x[:, :1]))
        pre = self.now(x) + self.before(torch.cat([past, x[:, :-1]], 1))
        out, final = self.pool(pre, first, return_final=True)
        return out, (final.detach(), x[:, -1:].detach())


class TextModel(nn.Module):
    def __init__(self, characters, channels, layers, pool, embedding=48):
        super().__init__()
        self.embedding = nn.Embedding(characters, embedding)
        sizes = [embedding] + [channels] * (layers - 1)
        self.layers = nn.ModuleList(QrnnLayer(n, channels, pool) for n in sizes)
        self.output = nn.Linear(channels, characters)

    def forward(self, characters, carried):
        x, left = self.embedding(characters), []
        for layer, from_before in zip(self.layers, carried):
            x, carry = layer(x, from_before)
            left.append(carry)
        return self.output(x), left


def train(args, text, pool, chunks):
    """Train a model. Return the bits per character of every chunk, and characters per second."""
    torch.manual_seed(args.seed)
    model = TextModel(len(text.alphabet), args.channels, args.layers, pool)
    optimiser = torch.optim.Adam(model.parameters(), 4e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, chunks)
    bits, fresh = [], [None] * args.layers
    carried = fresh
    for i in (bar := trange(chunks, unit="chunk")):
        now, after, begins = text.chunk(i)
        logits, carried = model(torch.from_numpy(now), fresh if begins else carried)
        nats = nn.functional.cross_entropy(logits.mT, torch.from_numpy(after).long())
        optimiser.zero_grad()
        nats.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        bits.append(nats.item() / np.log(2))
        if i == min(2, chunks - 1):
            begin, first = time.perf_counter(), i
        bar.set_postfix(bits=f"{np.mean(bits[-50:]):.3f}")
    rate = (chunks - 1 - first) * text.size / max(time.perf_counter() - begin, 1e-9)
    return bits, rate


def main():
    args = parser_of(__doc__).parse_args()
    text = Chunks(args.text, args.batch, args.steps)
    bits, rate = train(args, text, scanrec.torch.qrnn_pool, args.chunks)
    _, stock = train(args, text, stock_pool, max(args.chunks // 10, 8))
    print(f"{np.mean(bits[-50:]):.3f} bits per character, {rate:.0f} characters per second; "
          f"with PyTorch's associative_scan {stock:.0f}")  # fmt: skip
    draw_curve(pathlib.Path(args.out) / "text_model_torch.png", bits, text.size)


if __name__ == "__main__":
    main()

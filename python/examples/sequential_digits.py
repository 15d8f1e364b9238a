# SPDX-License-Identifier: BSD-3-Clause
"""Classify handwritten digits pixel by pixel, as sequences of 64 numbers.

Each model has residual blocks around one kind of layer: torch.nn.LSTM or a layer of scanrec.torch.nn.
The last fifth of data/digits.csv is held out. The rows of the file are ordered by its 13 writers, so most
held-out digits are from writers that the model has not seen.

    pip install './python[torch]' tqdm
    python python/examples/sequential_digits.py
"""

from __future__ import annotations

import time

import torch
from digits_data import LAYERS, parser_of, print_table, read_digits
from torch import nn
from tqdm import trange

from scanrec.torch import nn as recurrent


class Reader(nn.Module):
    """Blocks of one kind of layer, and a classifier of the mean over time."""

    def __init__(self, name, channels, layers):
        super().__init__()
        kind = nn.LSTM if name == "LSTM" else getattr(recurrent, name)
        self.input = nn.Linear(1, channels)
        self.norms = nn.ModuleList(nn.LayerNorm(channels) for _ in range(layers))
        self.layers = nn.ModuleList(
            kind(channels, channels, batch_first=True, **LAYERS[name]) for _ in range(layers)
        )
        self.mixing = nn.ModuleList(nn.Linear(channels, channels) for _ in range(layers))
        self.output = nn.Linear(channels, 10)

    def forward(self, pixels):
        x = self.input(pixels[..., None])
        for norm, layer, mixing in zip(self.norms, self.layers, self.mixing):
            x = x + mixing(nn.functional.gelu(layer(norm(x))[0]))
        return self.output(x.mean(1))


def learn(model, images, digits, args, name):
    """Train a model. Return the seconds that this took."""
    optimiser = torch.optim.AdamW(model.parameters(), args.rate)
    steps = -(-len(digits) // args.batch) * args.epochs
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, args.rate, total_steps=steps, pct_start=0.1
    )
    begin = time.perf_counter()
    for _ in (bar := trange(args.epochs, desc=name, unit="epoch")):
        total = 0.0
        for batch in torch.randperm(len(digits)).split(args.batch):
            loss = nn.functional.cross_entropy(model(images[batch]), digits[batch])
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            total += loss.item() * len(batch)
        bar.set_postfix(loss=f"{total / len(digits):.4f}")
    return time.perf_counter() - begin


def main():
    parser = parser_of(__doc__)
    # Batches are small, so several threads would mostly wait for each other.
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    learned, held = ([torch.from_numpy(x) for x in part] for part in read_digits())
    found = []
    for name in args.layers:
        torch.manual_seed(args.seed)
        model = Reader(name, args.channels, args.blocks)
        seconds = learn(model, *learned, args, name)
        with torch.no_grad():
            right = (model.eval()(held[0]).argmax(1) == held[1]).sum().item()
        size = sum(p.numel() for p in model.parameters())
        found.append((name, size, len(held[1]), right, seconds / args.epochs))
    print_table(found)


if __name__ == "__main__":
    main()

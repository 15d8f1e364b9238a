# SPDX-License-Identifier: BSD-3-Clause
"""Handwritten digits read pixel by pixel: images are sequences of 64 numbers, classified by residual
blocks around each layer of scanrec.torch.nn in turn.

The last fifth of data/digits.csv is held out. Its rows are in the order in which 13 people wrote
them, so that most of these hands are new.

    pip install './python[torch]' tqdm
    python python/examples/sequential_digits.py
"""

from __future__ import annotations

import argparse
import pathlib
import time

import numpy as np
import torch
from torch import nn
from tqdm import trange

from scanrec.torch import nn as recurrent

DATA = pathlib.Path(__file__).resolve().parents[2] / "data" / "digits.csv"
LAYERS = {
    "QRNN": (recurrent.QRNN, {"kernel_size": 2}),
    "MinGRU": (recurrent.MinGRU, {}),
    "LRU": (recurrent.LRU, {}),
    "S5": (recurrent.S5, {}),
    "RGLRU": (recurrent.RGLRU, {"heads": 4}),
    "Mamba": (recurrent.Mamba, {"expand": 1}),
}


class Reader(nn.Module):
    """Blocks of one kind of layer, and a classifier of the mean over time."""

    def __init__(self, layer, options, channels, layers):
        super().__init__()
        self.input = nn.Linear(1, channels)
        self.norms = nn.ModuleList(nn.LayerNorm(channels) for _ in range(layers))
        self.layers = nn.ModuleList(
            layer(channels, channels, batch_first=True, **options) for _ in range(layers)
        )
        self.output = nn.Linear(channels, 10)

    def forward(self, pixels):
        x = self.input(pixels[..., None])
        for norm, layer in zip(self.norms, self.layers):
            x = x + nn.functional.gelu(layer(norm(x))[0])
        return self.output(x.mean(1))


def learn(model, images, labels, args, name):
    """Trains a model, and returns the seconds that takes."""
    optimiser = torch.optim.AdamW(model.parameters(), args.rate)
    batches = -(-len(labels) // args.batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, args.rate, total_steps=batches * args.epochs
    )
    begin = time.perf_counter()
    for _ in (bar := trange(args.epochs, desc=name, unit="epoch")):
        total = 0.0
        for batch in torch.randperm(len(labels)).split(args.batch):
            loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            total += loss.item() * len(batch)
        bar.set_postfix(loss=f"{total / len(labels):.4f}")
    return time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", nargs="+", choices=LAYERS, default=list(LAYERS))
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--channels", type=int, default=64)
    parser.add_argument("--blocks", type=int, default=3)
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--rate", type=float, default=4e-3)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rows = np.loadtxt(DATA, delimiter=",", dtype=np.float32)
    images = torch.from_numpy(rows[:, :-1] / 8 - 1)
    labels = torch.from_numpy(rows[:, -1]).long()
    learned = len(rows) * 4 // 5
    for name in args.layers:
        torch.manual_seed(args.seed)
        model = Reader(*LAYERS[name], args.channels, args.blocks)
        seconds = learn(model, images[:learned], labels[:learned], args, name)
        with torch.no_grad():
            found = model.eval()(images[learned:]).argmax(1)
        right = (found == labels[learned:]).sum().item()
        size, held = sum(p.numel() for p in model.parameters()), len(rows) - learned
        print(
            f"{name}: {right} of {held} held out right, {100 * right / held:.1f} %; "
            f"{size} parameters, {seconds:.0f} s"
        )


if __name__ == "__main__":
    main()

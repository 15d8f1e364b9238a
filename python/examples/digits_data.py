# SPDX-License-Identifier: BSD-3-Clause
"""Shared parts of the examples that classify digits pixel by pixel: the images as sequences, the command
line, and the table of results."""

from __future__ import annotations

import argparse
import pathlib

import numpy as np

DATA = pathlib.Path(__file__).resolve().parents[2] / "data" / "digits.csv"

#: Options of the layers, in addition to their sizes.
LAYERS = {
    "LSTM": {},
    "QRNN": {"kernel_size": 2},
    "MinGRU": {},
    "LRU": {},
    "S5": {},
    "RGLRU": {},
    "Mamba": {"expand": 1},
}


def read_digits():
    """Return ((images, digits) for training, (images, digits) held out). An image is 64 numbers
    from -1 to 1."""
    rows = np.loadtxt(DATA, delimiter=",", dtype=np.float32)
    images, digits, learned = rows[:, :-1] / 8 - 1, rows[:, -1].astype(np.int64), len(rows) * 4 // 5
    return (images[:learned], digits[:learned]), (images[learned:], digits[learned:])


def parser_of(doc):
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--layers", nargs="+", choices=LAYERS, default=list(LAYERS))
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--channels", type=int, default=64)
    parser.add_argument("--blocks", type=int, default=3)
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument(
        "--rate", type=float, default=1e-2, help="peak learning rate, after a tenth of the steps"
    )
    parser.add_argument("--seed", type=int, default=1)
    return parser


def print_table(found):
    """Print rows of (layer, parameters, number of held-out digits, number of these classified
    correctly, seconds per epoch)."""
    print("\n| layer | parameters | held out, right | seconds per epoch |\n|---|---|---|---|")
    for name, size, held, right, seconds in found:
        print(
            f"| {name} | {size} | {right} of {held}, {100 * right / held:.1f} % | {seconds:.2f} |"
        )

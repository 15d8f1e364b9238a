# SPDX-License-Identifier: BSD-3-Clause
"""Shared parts of the text models: a text in chunks, the command line, and learning curves."""

from __future__ import annotations

import argparse
import pathlib
import pydoc_data.topics

import numpy as np


class Chunks:
    """A text, cut into `batch` equal rows. A chunk has `steps` characters of every row."""

    def __init__(self, path, batch, steps):
        source = pathlib.Path(path or pydoc_data.topics.__file__)
        text = source.read_text(encoding="utf-8", errors="replace")
        self.alphabet = sorted(set(text))
        number = {c: i for i, c in enumerate(self.alphabet)}
        rows = len(text) // batch
        if rows <= steps:
            raise SystemExit(f"{source}: {len(text)} characters are too few for one chunk")
        numbers = np.array([number[c] for c in text[: rows * batch]], np.int32)
        self.rows = numbers.reshape(batch, rows)
        self.steps, self.per_pass = steps, (rows - 1) // steps
        self.size = batch * steps  #: characters of a chunk

    def chunk(self, i):
        """Return chunk i modulo `per_pass`, the character after each of its characters, and
        whether it is the first chunk."""
        at = i % self.per_pass * self.steps
        now, after = (self.rows[:, at + k : at + k + self.steps] for k in (0, 1))
        return now, after, at == 0


def parser_of(doc):
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--text", help="path of a text; default: the topics of Python's help()")
    parser.add_argument("--out", default=".", help="folder for the picture")
    parser.add_argument("--chunks", type=int, default=600, help="number of chunks to train on")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=256, help="characters per chunk and row")
    parser.add_argument("--channels", type=int, default=256)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    return parser


def smoothed(bits):
    """Return the moving average over a window of chunks, and the size of the window."""
    width = min(25, len(bits))
    return np.convolve(bits, np.full(width, 1 / width), "valid"), width


def draw_curves(path, xlabel, curves):
    """Draw learning curves. `curves` has one (x, bits, style) per line."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(6, 4))
    for x, bits, style in curves:
        axis.plot(x, bits, **style)
    axis.set(xlabel=xlabel, ylabel="bits per character")
    axis.legend()
    axis.grid(alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    print(f"drew {path}")


def draw_curve(path, bits, size):
    characters = size * np.arange(1, len(bits) + 1)
    smooth, width = smoothed(bits)
    chunks = (characters, bits, {"color": "lightgray", "label": "each chunk"})
    mean = (characters[width - 1 :], smooth, {"label": f"mean of {width}"})
    draw_curves(path, "characters read", [chunks, mean])

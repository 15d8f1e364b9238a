#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Draw what examples/qrnn_text.cpp wrote: the learning curves, and the bits per character of the held-out
text for each model and compressor."""

import argparse
import csv
import pathlib

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    folder = parser.parse_args().folder
    with open(folder / "held_out.csv") as file:
        held_out = {key: float(value) for key, value in next(csv.DictReader(file)).items()}
    figure, axes = plt.subplots(figsize=(8, 4.8))
    lowest, seconds = min(held_out.values()), 0
    for name, suffix, colour, label in (
        ("qrnn", "", "#1f6fb4", "QRNN"),
        ("mamba", "_mamba", "#2a9d6f", "Mamba"),
    ):
        if name not in held_out:
            continue
        with open(folder / f"curve{suffix}.csv") as file:
            rows = [
                {key: float(value) for key, value in row.items()} for row in csv.DictReader(file)
            ]
        axes.plot(
            [r["characters"] / 1e6 for r in rows],
            [r["bits"] for r in rows],
            color=colour,
            lw=1.8,
            label=f"{label}, while it learns",
        )
        lowest = min(lowest, *(r["bits"] for r in rows))
        seconds = rows[-1]["seconds"]
    for name, colour, label in (
        ("gzip", "#8a8f98", "gzip -9"),
        ("xz", "#222222", "xz -9"),
        ("qrnn", "#d1495b", "QRNN"),
        ("mamba", "#8e44ad", "Mamba"),
    ):
        if name in held_out:
            axes.axhline(
                held_out[name],
                color=colour,
                lw=1.2,
                ls="--",
                label=f"{label}, held-out text: {held_out[name]:.2f}",
            )
    axes.set_xlabel("million characters read")
    axes.set_ylabel("bits per character")
    axes.set_ylim(0.95 * lowest, 4.2)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(
        f"A character language model, {seconds:.0f} seconds of training",
        loc="left",
        fontweight="bold",
    )
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(folder / "learning_curve.png", dpi=130)
    print(folder / "learning_curve.png")


if __name__ == "__main__":
    main()

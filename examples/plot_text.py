#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Draws the learning curve that examples/qrnn_text.cpp wrote, beside what compressors make of the
held-out text."""
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
    with open(folder / "curve.csv") as file:
        rows = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]
    with open(folder / "held_out.csv") as file:
        held_out = {key: float(value) for key, value in next(csv.DictReader(file)).items()}
    figure, axes = plt.subplots(figsize=(8, 4.8))
    axes.plot([r["characters"] / 1e6 for r in rows], [r["bits"] for r in rows], color="#1f6fb4",
              lw=1.8, label="QRNN, while it learns")
    for name, colour, label in (("gzip", "#8a8f98", "gzip -9"), ("xz", "#222222", "xz -9"),
                                ("qrnn", "#d1495b", "QRNN")):
        axes.axhline(held_out[name], color=colour, lw=1.2, ls="--",
                     label=f"{label}, held-out text: {held_out[name]:.2f}")
    axes.set_xlabel("million characters read")
    axes.set_ylabel("bits per character")
    axes.set_ylim(0.95 * min(*held_out.values(), *(r["bits"] for r in rows)), 4.2)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(f"A character language model, {rows[-1]['seconds']:.0f} seconds of training",
                   loc="left", fontweight="bold")
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(folder / "learning_curve.png", dpi=130)
    print(folder / "learning_curve.png")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Draw the confusion matrix that examples/s5_digits.cpp wrote."""

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
    with open(folder / "confusion.csv") as file:
        table = [[int(value) for value in row] for row in csv.reader(file)]
    right = sum(table[i][i] for i in range(10))
    total = sum(map(sum, table))
    figure, axes = plt.subplots(figsize=(5.4, 5.6))
    axes.imshow([[value**0.5 for value in row] for row in table], cmap="Blues")
    for i, row in enumerate(table):
        for j, value in enumerate(row):
            if value:
                axes.text(
                    j, i, value, ha="center", va="center", color="white" if i == j else "#d1495b"
                )
    axes.set_xticks(range(10))
    axes.set_yticks(range(10))
    axes.set_xlabel("taken for")
    axes.set_ylabel("digit")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_title(
        f"S5 on digits read pixel by pixel: {right} of {total} right",
        loc="left",
        fontweight="bold",
        fontsize=11,
    )
    figure.tight_layout()
    figure.savefig(folder / "confusion.png", dpi=130)
    print(folder / "confusion.png")


if __name__ == "__main__":
    main()

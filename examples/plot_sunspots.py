#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Draw the results of sunspot_biquads: held-out forecasts, and their errors by years ahead."""

import argparse
import csv
import math
import pathlib

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

INK, GREY, BLUE, RED = "#222222", "#8a8f98", "#1f6fb4", "#d1495b"
METHODS = {
    "persistence": ("persistence", GREY, "--"),
    "autoregression": ("before: autoregression of order 2, fitted one year ahead", BLUE, "-"),
    "learned": ("after: biquads learned through time", RED, "-"),
}
HELD_OUT_FROM, SHOWN = 1925, 5  # a year, and the years ahead of the forecasts drawn over time


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out_dir", type=pathlib.Path, help="output folder of sunspot_biquads")
    out_dir = parser.parse_args().out_dir
    with open(out_dir / "forecast.csv", newline="") as file:
        rows = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
    rows = [row for row in rows if row["year"] >= HELD_OUT_FROM]
    shown = [row for row in rows if row["years_ahead"] == SHOWN]

    plt.rcParams.update(
        {
            "font.size": 10,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.edgecolor": GREY,
            "text.color": INK,
            "axes.labelcolor": INK,
        }
    )
    figure, (series, errors) = plt.subplots(2, 1, figsize=(10, 8), constrained_layout=True)
    years = [row["year"] for row in shown]
    series.plot(
        years,
        [row["number"] for row in shown],
        ".-",
        color=INK,
        lw=0.6,
        ms=5,
        label="sunspot number",
    )
    for method in ("autoregression", "learned"):
        label, colour, style = METHODS[method]
        series.plot(years, [row[method] for row in shown], style, color=colour, lw=1.6, label=label)
    series.set_title(
        f"Held-out years and their forecasts, made {SHOWN} years earlier",
        loc="left",
        fontweight="bold",
    )
    series.set_ylabel("yearly mean")
    series.legend(frameon=False, loc="upper left", fontsize=9)
    series.set_ylim(top=1.35 * max(row["number"] for row in shown))

    ahead = sorted({int(row["years_ahead"]) for row in rows})
    for method, (label, colour, style) in METHODS.items():
        rmse = [
            math.sqrt(
                sum((row[method] - row["number"]) ** 2 for row in rows if row["years_ahead"] == k)
                / len(years)
            )
            for k in ahead
        ]
        errors.plot(ahead, rmse, style, marker="o", color=colour, lw=1.8, ms=5, label=label)
    errors.set_title("Held-out RMSE", loc="left", fontweight="bold")
    errors.set_xlabel("years ahead")
    errors.set_ylim(bottom=0)
    errors.legend(frameon=False, loc="lower right", fontsize=9)
    for axes in (series, errors):
        axes.margins(x=0.01)
        axes.grid(axis="y", color=GREY, alpha=0.25, lw=0.6)
    figure.savefig(out_dir / "sunspot_biquads.png", dpi=130)
    print(out_dir / "sunspot_biquads.png")


if __name__ == "__main__":
    main()

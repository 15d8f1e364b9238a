#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Draw the results of co2_smoothers: the record, its smoothing and the held-out forecast."""

import argparse
import csv
import datetime
import pathlib

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

INK, GREY, BLUE, RED = "#222222", "#8a8f98", "#1f6fb4", "#d1495b"


def read_forecast(path):
    """Read the columns of forecast.csv. Missing values become nan."""
    columns = {"date": [], "ppm": [], "smoothed": [], "forecast": [], "split": []}
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            columns["date"].append(datetime.date.fromisoformat(row["date"]))
            columns["split"].append(row["split"])
            for name in ("ppm", "smoothed", "forecast"):
                columns[name].append(float(row[name]) if row[name] else float("nan"))
    return columns


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out_dir", type=pathlib.Path, help="output folder of co2_smoothers")
    out_dir = parser.parse_args().out_dir

    data = read_forecast(out_dir / "forecast.csv")
    with open(out_dir / "summary.csv", newline="") as file:
        summary = list(csv.DictReader(file))
    ahead = int(summary[0]["weeks_ahead"])
    rmse = {row["method"]: float(row["held_out_rmse_ppm"]) for row in summary}
    learned = summary[-1]["method"]
    first = data["split"].index("held_out")
    split = data["date"][first]

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
    figure, (whole, zoom, error) = plt.subplots(
        3,
        1,
        figsize=(10, 10),
        constrained_layout=True,
        gridspec_kw={"height_ratios": [1, 1.25, 0.75]},
    )

    whole.plot(data["date"], data["ppm"], color=GREY, lw=0.9, label="weekly average")
    whole.plot(
        data["date"], data["smoothed"], color=BLUE, lw=1.2, label="the fastest learned smoother"
    )
    whole.axvspan(split, data["date"][-1], color=RED, alpha=0.07, lw=0)
    whole.text(
        split, 0.03, "  held out", color=RED, va="bottom", transform=whole.get_xaxis_transform()
    )
    whole.set_title("CO$_2$ at Mauna Loa", loc="left", fontweight="bold")
    whole.legend(frameon=False, loc="upper left")

    date = data["date"][first:]
    ppm, forecast = data["ppm"][first:], data["forecast"][first:]
    persistence = data["ppm"][first - ahead : len(data["ppm"]) - ahead]
    zoom.plot(
        date,
        persistence,
        color=GREY,
        lw=1.0,
        ls="--",
        label=f"persistence, RMSE {rmse['persistence']:.2f} ppm",
    )
    zoom.plot(date, ppm, ".", color=INK, ms=3, label="weekly average")
    zoom.plot(date, forecast, color=RED, lw=1.4, label=f"{learned}, RMSE {rmse[learned]:.2f} ppm")
    zoom.set_title(
        f"Held-out weeks and their forecasts, made {ahead} weeks earlier",
        loc="left",
        fontweight="bold",
    )
    zoom.legend(frameon=False, loc="upper left")

    bars = [(name, value) for name, value in rmse.items()][::-1]
    drawn = error.barh(
        [name.replace(" with ", "\nwith ") for name, _ in bars],
        [value for _, value in bars],
        height=0.6,
        color=[RED if name == learned else GREY for name, _ in bars],
    )
    error.bar_label(drawn, fmt="%.2f", padding=4)
    error.set_title("Held-out RMSE, ppm", loc="left", fontweight="bold")
    error.tick_params(axis="y", length=0)

    for axes in (whole, zoom):
        axes.set_ylabel("ppm")
        axes.margins(x=0.01)
        axes.grid(axis="y", color=GREY, alpha=0.25, lw=0.6)
    figure.savefig(out_dir / "co2_smoothers.png", dpi=130)
    print(out_dir / "co2_smoothers.png")


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: BSD-3-Clause
"""Draw the results of gate_jacobian.py in reverse mode.

The times of the Jacobian in lambda are drawn against the number of steps. The times of all Jacobians are
drawn for the largest number of steps. Run in bench/results:
    python3 ../python/plot_jacobian.py python/gate_jacobian.tsv gate_jacobian.png
"""

from __future__ import annotations

import argparse
import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
import table

INK, PALE = "#222222", "#dddddd"
WAYS = {"associative_scan": "#d1495b", "lax.scan": "#8a8f98", "scanrec": "#1f6fb4"}
OF = {
    "lambda": "lambda, the gate",
    "weights": "weights",
    "inputs": "inputs",
    "initial state": "initial state",
}


def number(milliseconds):
    return f"{milliseconds:.0f}" if milliseconds >= 10 else f"{milliseconds:.2g}"


def plain(axis):
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


def draw_growth(axis, rows, depth):
    """Draw the Jacobian in lambda against steps: a line per kind of scan, labelled with its last time."""
    ends = {}
    for way, colour in WAYS.items():
        line = [r for r in rows if (r["layers"], r["of"], r["way"]) == (depth, "lambda", way)]
        steps, values = [r["steps"] for r in line], [r["milliseconds"] for r in line]
        axis.plot(
            steps,
            values,
            color=colour,
            marker="o",
            markersize=4,
            linewidth=2.5 if way == "scanrec" else 1.8,
        )
        ends[way] = values[-1]
    for way, value in ends.items():
        # Move labels apart where lines meet.
        near = [v for w, v in ends.items() if w != way and max(v, value) / min(v, value) < 2.2]
        shift = 0 if not near else 7 if value > near[0] else -7
        axis.annotate(
            f"{number(value)} ms",
            (steps[-1], value),
            (9, shift),
            textcoords="offset points",
            va="center",
            color=WAYS[way],
            fontweight="bold",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
        )
    axis.set(xscale="log", yscale="log", xlabel="steps", ylim=(0.15, 900))
    axis.xaxis.set_major_locator(FixedLocator(steps))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:.0f}"))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    axis.set_xlim(steps[0] * 0.85, steps[-1] * 3.4)
    axis.spines["bottom"].set_bounds(steps[0] * 0.85, steps[-1] * 1.2)
    axis.grid(axis="y", color=PALE, linewidth=0.8)
    plain(axis)


def draw_all(axis, rows, depth):
    """Draw bars of all Jacobians at the largest number of steps."""
    most = max(r["steps"] for r in rows)
    height = 0.26
    for at, of in enumerate(OF):
        for k, (way, colour) in enumerate(WAYS.items()):
            value = next(
                r["milliseconds"]
                for r in rows
                if (r["layers"], r["steps"], r["of"], r["way"]) == (depth, most, of, way)
            )
            y = at + (k - 1) * height
            axis.barh(y, value, height * 0.9, color=colour)
            axis.annotate(
                number(value),
                (value, y),
                (4, 0),
                textcoords="offset points",
                va="center",
                fontsize=9,
                color=INK,
            )
    axis.set(
        xscale="log",
        xlim=(0.05, 900),
        yticks=range(len(OF)),
        yticklabels=OF.values(),
        xlabel="milliseconds",
    )
    axis.invert_yaxis()
    axis.tick_params(axis="y", length=0)
    axis.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    plain(axis)


def draw(rows, path):
    rows = [r for r in rows if r["mode"] == "reverse"]
    layers, most = sorted({r["layers"] for r in rows}), max(r["steps"] for r in rows)
    figure, axes = plt.subplots(
        1, len(layers) + 1, figsize=(13, 4.6), width_ratios=[1] * len(layers) + [1.1]
    )
    for axis, depth in zip(axes, layers):
        draw_growth(axis, rows, depth)
        axis.set_title(
            f"in lambda, {depth} layer{'s' if depth > 1 else ''}",
            loc="left",
            fontweight="bold",
            fontsize=11,
        )
    axes[0].set_ylabel("milliseconds")
    draw_all(axes[-1], rows, layers[0])
    axes[-1].set_title(
        f"in everything, {layers[0]} layer, {most} steps",
        loc="left",
        fontweight="bold",
        fontsize=11,
    )
    at = {
        r["way"]: r["milliseconds"]
        for r in rows
        if (r["layers"], r["steps"], r["of"]) == (layers[0], most, "lambda")
    }
    figure.suptitle(
        "Jacobian of the final state, reverse mode: in lambda scanrec is "
        f"{at['associative_scan'] / at['scanrec']:.0f} times as fast as associative_scan",
        x=0.01,
        ha="left",
        fontsize=13,
        fontweight="bold",
    )
    names = [plt.Rectangle((0, 0), 1, 1, color=colour) for colour in WAYS.values()]
    figure.legend(
        names,
        WAYS,
        ncols=len(WAYS),
        loc="upper left",
        bbox_to_anchor=(0.003, 0.945),
        frameon=False,
        fontsize=11,
        handlelength=1,
        handleheight=1,
    )
    figure.tight_layout(rect=(0, 0, 1, 0.9), w_pad=2)
    figure.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("record", type=pathlib.Path)
    parser.add_argument("picture", type=pathlib.Path)
    args = parser.parse_args()
    draw(table.read(args.record)[1], args.picture)


if __name__ == "__main__":
    main()

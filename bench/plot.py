#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Print and draw a table of bench/results, or a JSON file that a benchmark wrote."""

import argparse
import pathlib

import matplotlib
from table import read

matplotlib.use("Agg")
import matplotlib.pyplot as plt

INK, GREY = "#222222", "#8a8f98"
COLOURS = {
    "forward": "#1f6fb4",
    "vjp": "#d1495b",
    "lambda_grad": "#e0a030",
    "input_grad": "#e0a030",
    "inference": "#5a9367",
    "forward_store": "#1f6fb4",
    "forward_recompute": "#7fb2dd",
    "vjp_store": "#d1495b",
    "vjp_recompute": "#e89aa4",
}
# The title and the prefix of picture names of each benchmark.
SUBJECTS = {
    "bench_gated_scan": ("QRNN fo-pooling", "gated_"),
    "bench_s5": ("The scan of S5", "s5_"),
}
TO_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
CALLS = ("forward", "vjp", "jvp")
VARIANT_COLOURS = {
    "tiled": "#1f6fb4",
    "sequential": "#8a8f98",
    "hillis_steele": "#d1495b",
    "blelloch": "#e0a030",
    "triangular_matmul": "#5a9367",
    "plain_loop": "#222222",
    "std_inclusive_scan": "#8e5ea2",
    "tbb_parallel_scan": "#c17f9b",
}
COUNTERS = ("GB/s", "baseline_GB/s", "memcpy_GB/s", "fraction_of_baseline")


def read_rows(path):
    """Read the context and the rows that have a fraction_of_baseline, and split the rows' names."""
    context, rows = read(path)
    rows = [row for row in rows if "fraction_of_baseline" in row]
    for row in rows:
        parts = row["name"].split("/")
        row["seconds"] = row["time"] * TO_SECONDS[row["unit"]]
        row["sweep"] = parts[0] == "sweep"
        row["call"] = parts[-1]
        # Names are "workload/call" or "sweep/T=2^k/channel=n". In scan_variants they are
        # "workload/variant/call" or "sweep/T=2^k/variant/call".
        row["variant"] = parts[-2] if len(parts) == (4 if row["sweep"] else 3) else None
        row["workload"] = " ".join(parts[:2]) if row["sweep"] else parts[0]
    return context, rows


def print_table(rows):
    rows = [{**r, "call": f"{r['variant']} {r['call']}"} if r["variant"] else r for r in rows]
    heads = ["workload", "call", "GB/s", "baseline GB/s", "memcpy GB/s", "fraction of baseline"]
    lines = [
        [
            r["workload"],
            r["call"],
            *(f"{r[c]:.1f}" for c in COUNTERS[:3]),
            f"{r['fraction_of_baseline']:.2f}",
        ]
        for r in rows
    ]
    widths = [max(len(line[i]) for line in [heads, *lines]) for i in range(len(heads))]
    for line in [heads, ["-" * w for w in widths], *lines]:
        print(
            "  ".join(
                cell.ljust(w) if i < 2 else cell.rjust(w)
                for i, (cell, w) in enumerate(zip(line, widths))
            )
        )


def caption(context):
    parts = [f"{context[key]} threads" for key in ("scanrec_threads",) if key in context]
    parts += [f"{key} {context[key]}" for key in ("commit", "compiler") if key in context]
    return ", ".join(parts)


def finish(figure, axes, context, path):
    axes.spines[["top", "right"]].set_visible(False)
    figure.text(0.995, 0.004, caption(context), ha="right", va="bottom", fontsize=8, color=GREY)
    figure.savefig(path, dpi=130)
    plt.close(figure)
    print(path)


def draw_fractions(rows, context, subject, path):
    table = [r for r in rows if not r["sweep"]]
    workloads = list(dict.fromkeys(r["workload"] for r in table))
    table.sort(key=lambda r: workloads.index(r["workload"]))
    # One bar per call, with a gap between workloads; the first workload is at the top.
    positions, ticks, at = [], {}, 0.0
    for i, row in enumerate(table):
        if i > 0:
            at -= 1.0 if row["workload"] == table[i - 1]["workload"] else 1.6
        positions.append(at)
        ticks.setdefault(row["workload"], []).append(at)
    figure, axes = plt.subplots(figsize=(9, 2.0 + 0.27 * -at))
    figure.subplots_adjust(
        left=0.2,
        right=0.97,
        top=1 - 0.75 / figure.get_figheight(),
        bottom=0.75 / figure.get_figheight(),
    )
    drawn = axes.barh(
        positions,
        [r["fraction_of_baseline"] for r in table],
        height=0.86,
        color=[COLOURS.get(r["call"], GREY) for r in table],
    )
    axes.bar_label(drawn, fmt="%.2f", padding=-26, fontsize=8, color="white")
    axes.axvline(1.0, color=INK, lw=1.2)
    axes.set_yticks(
        [sum(at) / len(at) for at in ticks.values()], [name.replace("_", " ") for name in ticks]
    )
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(0, 1.1 * max(1.0, *(r["fraction_of_baseline"] for r in table)))
    axes.set_ylim(at - 0.8, 0.8)
    axes.set_xlabel(
        "fraction of the copy baseline's speed (1: as fast as reading and writing the same arrays)"
    )
    calls = list(dict.fromkeys(r["call"] for r in table))
    axes.legend(
        [plt.Rectangle((0, 0), 1, 1, color=COLOURS.get(call, GREY)) for call in calls],
        [call.replace("_", " ") for call in calls],
        frameon=False,
        ncol=len(calls),
        loc="lower left",
        bbox_to_anchor=(0, 1),
        borderaxespad=0,
        borderpad=0.3,
        handlelength=1.2,
        columnspacing=1.4,
    )
    axes.set_title(f"{subject} against its copy baseline", loc="left", fontweight="bold", pad=26)
    finish(figure, axes, context, path)


def draw_times(rows, context, path):
    lines = {}
    for row in rows:
        if row["sweep"]:
            lines.setdefault(int(row["call"].split("=")[1]), []).append(
                (row["steps"], row["seconds"] * 1e6)
            )
    figure, axes = plt.subplots(figsize=(8, 5.2))
    figure.subplots_adjust(left=0.1, right=0.97, top=0.92, bottom=0.14)
    for (channels, points), colour in zip(
        sorted(lines.items()), ["#1f6fb4", "#d1495b", "#e0a030", "#5a9367"]
    ):
        steps, times = zip(*sorted(points))
        name = "1 channel" if channels == 1 else f"{channels} channels"
        axes.loglog(steps, times, "o-", color=colour, lw=1.8, ms=5, label=name)
        # A line proportional to T through the last point.
        axes.loglog(
            steps,
            [times[-1] * t / steps[-1] for t in steps],
            ":",
            color=colour,
            lw=1.2,
            label=f"{name}, proportional to T",
        )
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted({steps for points in lines.values() for steps, _ in points}))
    axes.set_xlabel("steps T")
    axes.set_ylabel("time per call, microseconds")
    axes.grid(color=GREY, alpha=0.25, lw=0.6)
    axes.legend(frameon=False)
    axes.set_title("Time of one forward call", loc="left", fontweight="bold")
    finish(figure, axes, context, path)


def draw_variant_fractions(rows, context, path):
    """Draw a panel per workload, with a group of bars per call and a bar per variant."""
    table = [r for r in rows if not r["sweep"]]
    workloads = list(dict.fromkeys(r["workload"] for r in table))
    variants = [v for v in VARIANT_COLOURS if any(r["variant"] == v for r in table)]
    columns = 2
    figure, panels = plt.subplots(
        -(-len(workloads) // columns),
        columns,
        sharey=True,
        squeeze=False,
        figsize=(10, 1.2 + 2.1 * -(-len(workloads) // columns)),
    )
    for panel in panels.flat[len(workloads) :]:
        panel.set_visible(False)
    width = 0.85 / len(variants)
    for workload, panel in zip(workloads, panels.flat):
        for i, variant in enumerate(variants):
            bars = [
                (
                    CALLS.index(r["call"]) + (i - (len(variants) - 1) / 2) * width,
                    r["fraction_of_baseline"],
                )
                for r in table
                if r["workload"] == workload and r["variant"] == variant
            ]
            panel.bar(
                [x for x, _ in bars],
                [y for _, y in bars],
                width=0.92 * width,
                color=VARIANT_COLOURS[variant],
                label=variant,
            )
        panel.axhline(1.0, color=INK, lw=0.8)
        panel.set_yscale("log")
        panel.set_ylim(
            0.7 * min(r["fraction_of_baseline"] for r in table),
            1.6 * max(1.0, *(r["fraction_of_baseline"] for r in table)),
        )
        panel.set_xticks(range(len(CALLS)), CALLS)
        panel.tick_params(axis="x", length=0)
        panel.set_title(workload.replace("_", " "), loc="left", fontsize=10)
        panel.spines[["top", "right"]].set_visible(False)
    figure.legend(
        *panels[0][0].get_legend_handles_labels(),
        frameon=False,
        ncol=len(variants),
        loc="lower left",
        bbox_to_anchor=(0.06, 0.01),
    )
    figure.suptitle(
        "The backends as fractions of the copy baseline", x=0.065, ha="left", fontweight="bold"
    )
    figure.subplots_adjust(
        left=0.07,
        right=0.98,
        hspace=0.45,
        wspace=0.06,
        top=1 - 0.75 / figure.get_figheight(),
        bottom=0.95 / figure.get_figheight(),
    )
    finish(figure, panels[0][0], context, path)


def draw_variant_times(rows, context, path):
    sweep = [r for r in rows if r["sweep"]]
    figure, axes = plt.subplots(figsize=(9, 5.4))
    figure.subplots_adjust(left=0.09, right=0.78, top=0.92, bottom=0.14)
    for variant, colour in VARIANT_COLOURS.items():
        points = sorted((r["steps"], r["ns/element"]) for r in sweep if r["variant"] == variant)
        if not points:
            continue
        steps, times = zip(*points)
        axes.loglog(steps, times, "o-", color=colour, lw=1.8, ms=4.5, label=variant)
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted({r["steps"] for r in sweep}))
    axes.set_xlabel("steps T of one sequence of floats")
    axes.set_ylabel("time per element, ns")
    axes.grid(color=GREY, alpha=0.25, lw=0.6)
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    axes.set_title("Time per element of one forward call", loc="left", fontweight="bold")
    finish(figure, axes, context, path)


def draw_grid(context, rows, path):
    """Draw the efficiency that scaling.cpp predicts, over batch and channels."""
    panels = list(dict.fromkeys((row["layout"], row["call"]) for row in rows))
    figure, (all_axes,) = plt.subplots(
        1, len(panels), figsize=(12, 3.4), sharey=True, squeeze=False, layout="constrained"
    )
    for axes, panel in zip(all_axes, panels):
        cells = {(r["channel"], r["batch"]): r["efficiency"] for r in rows
                 if (r["layout"], r["call"]) == panel}  # fmt: skip
        channels, batches = (sorted(set(values)) for values in zip(*cells))
        drawn = axes.imshow(
            [[cells.get((c, b), float("nan")) for c in channels] for b in batches],
            vmin=0, vmax=1, cmap="viridis", origin="lower", aspect="auto",
        )  # fmt: skip
        axes.set_title(" ".join(panel).replace("_", " "), fontsize=9)
        axes.set_xticks(range(0, len(channels), 3), channels[::3])
        axes.set_yticks(range(0, len(batches), 3), batches[::3])
        axes.set_xlabel("channels")
    all_axes[0].set_ylabel("batch")
    figure.colorbar(drawn, ax=list(all_axes), label=f"efficiency on {context['threads']} threads")
    figure.savefig(path, dpi=130)
    plt.close(figure)
    least = min(rows, key=lambda row: row["efficiency"])
    print(f"{path}: {len(rows)} plans, the least efficient: {least}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("out_dir", type=pathlib.Path)
    arguments = parser.parse_args()

    context, rows = read(arguments.results)
    if rows and "efficiency" in rows[0]:
        arguments.out_dir.mkdir(parents=True, exist_ok=True)
        return draw_grid(context, rows, arguments.out_dir / "scaling.png")
    context, rows = read_rows(arguments.results)
    if not rows:
        parser.exit(1, f"{arguments.results}: no run with a fraction_of_baseline\n")
    print_table(rows)
    arguments.out_dir.mkdir(parents=True, exist_ok=True)
    plt.rcParams.update(
        {"font.size": 10, "axes.edgecolor": GREY, "text.color": INK, "axes.labelcolor": INK}
    )
    if any(r["variant"] for r in rows):
        draw_variant_fractions(rows, context, arguments.out_dir / "variants.png")
        draw_variant_times(rows, context, arguments.out_dir / "variants_against_steps.png")
        return
    if any(not r["sweep"] for r in rows):
        subject, prefix = SUBJECTS.get(
            pathlib.Path(context.get("executable", "")).name, ("linear_scan", "")
        )
        draw_fractions(
            rows, context, subject, arguments.out_dir / f"{prefix}fraction_of_baseline.png"
        )
    if any(r["sweep"] for r in rows):
        draw_times(rows, context, arguments.out_dir / "time_against_steps.png")


if __name__ == "__main__":
    main()

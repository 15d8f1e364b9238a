# SPDX-License-Identifier: BSD-3-Clause
"""Draw the pictures of a report, in the style of bench/plot.py."""

from results import DEFAULT, FRACTIONS, ROOFS, variants_of, workloads_of  # isort: skip
import plot  # in bench/, which results.py adds to sys.path
from matplotlib.ticker import LogLocator

plt = plot.plt


def colours_of(rows):
    """Choose a colour per variant. Variants that plot.py also draws have its colours."""
    colours = {
        **plot.VARIANT_COLOURS,
        DEFAULT: plot.VARIANT_COLOURS["tiled"],
        "lanes": "#7fb2dd",
        "look_back": "#0b3c5d",
    }
    spare = iter([*plt.get_cmap("Dark2").colors, *plt.get_cmap("Set2").colors] * 9)
    for _, variant, _ in rows:
        if variant not in colours and variant not in ROOFS:
            colours[variant] = next(spare)
    return colours


def label(panel, workload, values, positions):
    """Set the title of a panel and the ticks of its logarithmic axis of values."""
    values.set_major_locator(LogLocator(subs=(1, 2, 5)))
    values.set_major_formatter("{x:g}")
    values.set_minor_locator(LogLocator(subs=()))
    panel.tick_params(axis=positions, length=0)
    panel.set_title(workload.replace("_", " "), loc="left", fontsize=10)
    panel.spines[["top", "right"]].set_visible(False)


def draw_fractions(context, rows, path):
    """Draw a panel per workload, with a group of bars per call and a bar per variant."""
    table = {
        key: row["fraction_of_baseline"]
        for key, row in rows.items()
        if "fraction_of_baseline" in row and key[1] not in ROOFS
    }
    names, colours = workloads_of(table), colours_of(table)
    figure, panels = plt.subplots(
        -(-len(names) // 2),
        2,
        sharey=True,
        squeeze=False,
        figsize=(11, 1.9 + 2.1 * -(-len(names) // 2)),
    )
    for panel in panels.flat[len(names) :]:
        panel.set_visible(False)
    handles = {}
    for workload, panel in zip(names, panels.flat):
        calls = list(dict.fromkeys(c for w, _, c in table if w == workload))
        variants = variants_of(table, workload)
        width = 0.85 / len(variants)
        for i, variant in enumerate(variants):
            bars = [
                (calls.index(c) + (i - (len(variants) - 1) / 2) * width, fraction)
                for (w, v, c), fraction in table.items()
                if (w, v) == (workload, variant)
            ]
            handles[variant] = panel.bar(*zip(*bars), width=0.92 * width, color=colours[variant])
        for call, target in FRACTIONS.get(workload, {}).items():
            if call in calls:
                panel.hlines(
                    target,
                    calls.index(call) - 0.45,
                    calls.index(call) + 0.45,
                    colors=plot.INK,
                    linestyles=":",
                    lw=1,
                )
        panel.axhline(1.0, color=plot.INK, lw=0.8)
        panel.set_yscale("log")
        panel.set_ylim(0.7 * min(table.values()), 1.6 * max(1.0, *table.values()))
        panel.set_xticks(range(len(calls)), [c.replace("_", " ") for c in calls])
        label(panel, workload, panel.yaxis, "x")
    figure.legend(
        handles.values(),
        handles.keys(),
        frameon=False,
        ncol=5,
        loc="lower left",
        bbox_to_anchor=(0.05, 0.02),
        fontsize=9,
    )
    figure.suptitle(
        f"Fractions of the copy baseline, {context.get('gpu', 'GPU')} "
        "(dotted: targets, set for an H200)",
        x=0.065,
        ha="left",
        fontweight="bold",
    )
    height = figure.get_figheight()
    figure.subplots_adjust(
        left=0.07,
        right=0.98,
        hspace=0.45,
        wspace=0.06,
        top=1 - 0.75 / height,
        bottom=(0.7 + 0.25 * -(-len(handles) // 5)) / height,
    )
    plot.finish(figure, panels[0][0], context, path)


def draw_times(context, rows, path):
    """Draw forward times: a bar per variant and a line for the copy baseline.

    There is a panel for each workload with more than two variants.
    """
    table = {key: row["ms"] for key, row in rows.items() if "ms" in row and key[2] == "forward"}
    names = [w for w in workloads_of(table) if len(variants_of(table, w)) > 2]
    if not names:
        return
    counts = [len(variants_of(table, w)) for w in names]
    figure, panels = plt.subplots(
        len(names),
        1,
        squeeze=False,
        height_ratios=counts,
        figsize=(9, 1.2 + 0.27 * sum(counts) + 0.7 * len(names)),
    )
    colours = {**dict.fromkeys(ROOFS, plot.GREY), **colours_of(table)}
    for workload, panel in zip(names, panels.flat):
        variants = variants_of(table, workload)
        times = [table[workload, v, "forward"] for v in variants]
        bars = panel.barh(variants, times, color=[colours[v] for v in variants], height=0.8)
        panel.bar_label(bars, fmt=" %.3g ms", fontsize=8)
        if (workload, "copy_baseline", "forward") in table:
            panel.axvline(table[workload, "copy_baseline", "forward"], color=plot.INK, lw=0.8)
        panel.set_xscale("log")
        panel.set_xlim(0.5 * min(times), 3 * max(times))
        panel.invert_yaxis()
        label(panel, workload, panel.xaxis, "y")
    figure.suptitle(
        f"Forward calls, milliseconds, {context.get('gpu', 'GPU')} (line: the baseline)",
        x=0.02,
        ha="left",
        fontweight="bold",
    )
    height = figure.get_figheight()
    figure.subplots_adjust(
        left=0.25, right=0.96, hspace=0.6, top=1 - 0.8 / height, bottom=0.6 / height
    )
    plot.finish(figure, panels[0][0], context, path)


def draw_all(context, rows, folder):
    plt.rcParams.update(
        {
            "font.size": 10,
            "axes.edgecolor": plot.GREY,
            "text.color": plot.INK,
            "axes.labelcolor": plot.INK,
        }
    )
    if any("fraction_of_baseline" in row for key, row in rows.items() if key[1] not in ROOFS):
        draw_fractions(context, rows, folder / "fraction_of_baseline.png")
        draw_times(context, rows, folder / "forward_times.png")

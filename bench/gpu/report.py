#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Print, write and draw the report of a run.

The argument `results` is a table of bench/results/gpu, or a folder. The folder contains the JSON files
of a run, or the archives that stages.py writes. --save first writes the results of a folder as a table."""

import argparse
import pathlib
import sys

from results import (
    DEFAULT,
    FRACTIONS,
    NODES,
    SPEEDUPS,
    file_name_of,
    read_results,
    save_table,
    variants_of,
    workloads_of,
)

try:
    import draw
except ImportError as error:
    draw, WITHOUT_PICTURES = None, str(error)

SAVED = pathlib.Path(__file__).resolve().parents[1] / "results" / "gpu"


def verdict(met, context):
    return "not judged: quick" if context.get("quick") == "yes" else "met" if met else "missed"


def judged(rows, context):
    """A line per target: workload, call, target, measured value, verdict."""

    def value(workload, call, key):
        return rows.get((workload, DEFAULT, call), {}).get(key)

    def line(workload, call, asked, measured, text, least=None, most=None):
        if measured is None:
            return [workload, call, asked, "-", "not measured"]
        met = (least is None or measured >= least) and (most is None or measured <= most)
        return [workload, call, asked, text.format(measured), verdict(met, context)]

    lines = []
    for workload, calls in FRACTIONS.items():
        for call, target in calls.items():
            lines.append(
                line(
                    workload,
                    call,
                    f"{target:.2f} of the baseline",
                    value(workload, call, "fraction_of_baseline"),
                    "{:.3f}",
                    target,
                )
            )
    for (workload, call, peer), target in SPEEDUPS.items():
        own = value(workload, call, "ms")
        others = [
            row["ms"]
            for (w, v, c), row in rows.items()
            if (w, c) == (workload, call) and v.startswith(peer) and "ms" in row
        ]
        lines.append(
            line(
                workload,
                call,
                f"{target:g}x {peer}",
                min(others) / own if own and others else None,
                "{:.2f}x",
                target,
            )
        )
    for (workload, call), target in NODES.items():
        lines.append(
            line(
                workload,
                call,
                f"{target} kernel, no memset",
                value(workload, call, "nodes"),
                "{:.0f}",
                most=target,
            )
        )
    return lines


def table_of(rows, context, workload):
    lines = []
    for variant in variants_of(rows, workload):
        for (w, v, call), row in rows.items():
            if (w, v) != (workload, variant):
                continue
            if "ms" not in row:
                lines.append([variant, call] + [""] * 7 + [row["error_message"]])
                continue

            def number(key, text, row=row):
                return text.format(row[key]) if key in row else ""

            target = FRACTIONS.get(workload, {}).get(call) if variant == DEFAULT else None
            notes = (
                [f"{target:.2f}: " + verdict(row["fraction_of_baseline"] >= target, context)]
                if target and "fraction_of_baseline" in row
                else []
            )
            notes += [
                f"{name} {row[key]:.2f} us a call"
                for name, key in (("queued", "queued_us"), ("in a graph", "graph_us"))
                if key in row
            ]
            notes += [row["label"]] if variant == "copy_baseline" and row.get("label") else []
            lines.append(
                [
                    variant,
                    call,
                    f"{row['ms']:.4f}",
                    number("GB/s", "{:.0f}"),
                    number("fraction_of_copy", "{:.3f}"),
                    number("fraction_of_baseline", "{:.3f}"),
                    number("spread", "{:.1%}"),
                    number("nodes", "{:.0f}"),
                    number("largest_difference", "{:.1e}"),
                    "; ".join(notes),
                ]
            )
    return lines


def markdown(heads, lines, left):
    widths = [max(len(line[i]) for line in [heads, *lines]) for i in range(len(heads))]
    rule = ["-" * w if i in left else "-" * (w - 1) + ":" for i, w in enumerate(widths)]
    return "".join(
        "| "
        + " | ".join(
            cell.ljust(w) if i in left else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(line, widths))
        )
        + " |\n"
        for line in [heads, rule, *lines]
    )


def report_of(context, rows):
    facts = [
        f"{key} {context[key]}"
        for key in ("gpu", "driver", "driver_cuda", "compiler", "commit", "torch", "jax", "date")
        if key in context
    ]
    text = "# Scans on a GPU\n\n" + "; ".join(facts) + "\n"
    text += (
        f"\n## Targets\n\nThe targets were set for an H200; here they are applied to "
        f"{context.get('gpu', 'an unknown GPU')}. Fractions refer to the copy baseline of this run.\n\n"
    )
    text += markdown(
        ["workload", "call", "target", "measured", "verdict"], judged(rows, context), (0, 1, 2, 4)
    )
    for workload in workloads_of(rows):
        lines = table_of(rows, context, workload)
        heads = [
            "variant",
            "call",
            "ms",
            "GB/s",
            "of copy",
            "of baseline",
            "spread",
            "nodes",
            "difference",
            "notes",
        ]
        text += f"\n## {workload}\n\n" + markdown(heads, lines, (0, 1, len(heads) - 1))
    return text


def measured(path):
    """Read results. Raise ValueError if no row was measured."""
    context, rows = read_results(path)
    if not any("ms" in row for row in rows.values()):
        raise ValueError(f"{path}: no row was measured")
    return context, rows


def write_report(path, where=None):
    """Print the report of a folder or of a table, and write it and its pictures to `where`."""
    context, rows = measured(path)
    where = where or (path.parent / path.stem if path.is_file() else path)
    where.mkdir(parents=True, exist_ok=True)
    text = report_of(context, rows)
    (where / "report.md").write_text(text)
    print(text, end="")
    if draw:
        draw.draw_all(context, rows, where)
    else:
        print(f"no pictures: {WITHOUT_PICTURES}")


def save(folder, where=SAVED):
    """Write the results of a run as a table. Return its path."""
    if folder.is_file():
        raise ValueError(f"--save: expected a folder with the results of a run, got {folder}")
    context, rows = measured(folder)
    path = where / file_name_of(context)
    save_table(path, context, rows)
    return path


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=pathlib.Path, help="a folder or a saved table")
    parser.add_argument(
        "--save",
        action="store_true",
        help="first write the results of the folder to bench/results/gpu/<card>-<date>.tsv",
    )
    arguments = parser.parse_args()
    try:
        if arguments.save:
            saved = save(arguments.results)
            write_report(saved)
            print(f"saved: {saved}")
        else:
            write_report(arguments.results)
    except (OSError, ValueError) as error:
        sys.exit(f"report.py: {error}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Merges the JSON files of a folder of results, prints a table per workload and the targets, writes
both as report.md, and draws the fractions of the twin and the times of forward calls."""
import argparse
import contextlib
import io
import json
import pathlib
import sys
import tempfile

from results import (DEFAULT, FRACTIONS, NODES, SPEEDUPS, read_results, variants_of, workloads_of)

try:
    import draw
except ImportError as error:
    draw, WITHOUT_PICTURES = None, str(error)


def verdict(met, context):
    return "not judged: quick" if context.get("quick") == "yes" else "met" if met else "missed"


def judged(rows, context):
    """Target by target: workload, call, what is asked for, what was measured, the verdict."""
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
            lines.append(line(workload, call, f"{target:.2f} of the twin",
                              value(workload, call, "fraction_of_twin"), "{:.3f}", target))
    for (workload, call, peer), target in SPEEDUPS.items():
        own = value(workload, call, "ms")
        others = [row["ms"] for (w, v, c), row in rows.items()
                  if (w, c) == (workload, call) and v.startswith(peer) and "ms" in row]
        lines.append(line(workload, call, f"{target:g}x {peer}",
                          min(others) / own if own and others else None, "{:.2f}x", target))
    for (workload, call), target in NODES.items():
        lines.append(line(workload, call, f"{target} kernel, no memset",
                          value(workload, call, "nodes"), "{:.0f}", most=target))
    return lines


def table_of(rows, context, workload):
    lines = []
    for variant in variants_of(rows, workload):
        for (w, v, call), row in rows.items():
            if (w, v) != (workload, variant):
                continue
            if "ms" not in row:
                lines.append([variant, call] + [""] * 6 + [row["error_message"]])
                continue

            def number(key, text, row=row):
                return text.format(row[key]) if key in row else ""
            target = FRACTIONS.get(workload, {}).get(call) if variant == DEFAULT else None
            notes = [f"{target:.2f}: " + verdict(row["fraction_of_twin"] >= target, context)
                     ] if target else []
            notes += [f"{name} {row[key]:.2f} us a call" for name, key in
                      (("queued", "queued_us"), ("in a graph", "graph_us")) if key in row]
            notes += [row["label"]] if variant == "streaming_twin" else []
            lines.append([variant, call, f"{row['ms']:.4f}", number("GB/s", "{:.0f}"),
                          number("fraction_of_twin", "{:.3f}"), number("spread", "{:.1%}"),
                          number("nodes", "{:.0f}"), number("largest_difference", "{:.1e}"),
                          "; ".join(notes)])
    return lines


def markdown(heads, lines, left):
    widths = [max(len(line[i]) for line in [heads, *lines]) for i in range(len(heads))]
    rule = ["-" * w if i in left else "-" * (w - 1) + ":" for i, w in enumerate(widths)]
    return "".join("| " + " | ".join(cell.ljust(w) if i in left else cell.rjust(w)
                                     for i, (cell, w) in enumerate(zip(line, widths))) + " |\n"
                   for line in [heads, rule, *lines])


def report_of(context, rows):
    facts = [f"{key} {context[key]}" for key in ("gpu", "driver_cuda", "compiler", "commit", "torch",
                                                 "jax", "date") if key in context]
    text = "# Scans on a GPU\n\n" + "; ".join(facts) + "\n"
    text += "\n## Targets\n\n" + markdown(
        ["workload", "call", "target", "measured", "verdict"], judged(rows, context), (0, 1, 2, 4))
    for workload in workloads_of(rows):
        text += f"\n## {workload}\n\n" + markdown(
            ["variant", "call", "ms", "GB/s", "of twin", "spread", "nodes", "difference", "notes"],
            table_of(rows, context, workload), (0, 1, 8))
    return text


def write_report(folder):
    context, rows = read_results(folder)
    if not any("ms" in row for row in rows.values()):
        print(f"{folder}: no row was measured", file=sys.stderr)
    text = report_of(context, rows)
    (folder / "report.md").write_text(text)
    print(text, end="")
    if draw:
        draw.draw_all(context, rows, folder)
    else:
        print(f"no pictures: {WITHOUT_PICTURES}")


def check_self():
    """The report of made-up rows says what it should."""
    def row(name, ms, **more):
        return {"name": f"{name}/iterations:1/manual_time", "run_type": "iteration",
                "real_time": ms, "time_unit": "ms", "elements": 8.0, "label": "twin 2R+1W", **more}
    absent = {"error_occurred": True, "error_message": "torch does not import"}
    ours = [row("channels_last/device_copy/copy", 1.0, fraction_of_twin=1.0),
            row("channels_last/streaming_twin/forward", 1.5, fraction_of_twin=1.0),
            row("channels_last/automatic/forward", 1.6, fraction_of_twin=0.94, spread=0.01),
            row("channels_last/automatic/vjp", 3.0, fraction_of_twin=0.85, nodes=1.0),
            row("small/automatic/forward", 0.01, fraction_of_twin=0.5, nodes=1.0, graph_us=2.5),
            row("one_sequence/automatic/forward", 1.0, fraction_of_twin=0.9),
            row("one_sequence/cub_pairs/forward", 1.9, fraction_of_twin=0.47)]
    peers = [row("channels_last/torch.associative_scan/forward", 15.0),
             {"name": "channels_last/lax.scan/forward", **absent}]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for file, rows in (("linear_scan.json", ours), ("peers.json", peers)):
            (folder / file).write_text(json.dumps(
                {"context": {"gpu": "a GPU", "quick": "no"}, "benchmarks": rows}))
        with contextlib.redirect_stdout(io.StringIO()):
            write_report(folder)
        context, rows = read_results(folder)
        verdicts = {(w, call, asked.split()[-1]): said
                    for w, call, asked, _, said in judged(rows, context)}
        for key, said in ((("channels_last", "forward", "twin"), "met"),
                          (("channels_last", "vjp", "twin"), "missed"),
                          (("small", "forward", "memset"), "met"),
                          (("small", "vjp", "memset"), "not measured"),
                          (("one_sequence", "forward", "cub_pairs"), "missed")):
            assert verdicts[key] == said, (key, verdicts[key])
        assert abs(rows["channels_last", "torch.associative_scan", "forward"]["fraction_of_twin"]
                   - 0.1) < 1e-9
        text = (folder / "report.md").read_text()
        assert "torch does not import" in text and "in a graph 2.50 us" in text
        pictures = sorted(path.name for path in folder.glob("*.png"))
        assert pictures == (["forward_times.png", "fraction_of_twin.png"] if draw else []), pictures
    print("the report of made-up rows is right" +
          ("" if draw else f", without pictures: {WITHOUT_PICTURES}"))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("folder", type=pathlib.Path, nargs="?")
    what.add_argument("--self-check", action="store_true", help="reports made-up rows instead")
    arguments = parser.parse_args()
    check_self() if arguments.self_check else write_report(arguments.folder)


if __name__ == "__main__":
    main()

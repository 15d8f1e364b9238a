# SPDX-License-Identifier: BSD-3-Clause
"""The rows that benchmarks and peers wrote, by workload, variant and call; and the targets."""
import json
import sys

# Of the default backend: the fraction of the twin, by workload and call.
DEFAULT = "automatic"
FRACTIONS = {"channels_last": {"forward": 0.92, "vjp": 0.90},
             "time_contiguous": {"forward": 0.92, "vjp": 0.90},
             "two_million_steps": {"forward": 0.90, "vjp": 0.88},
             "one_sequence": {"forward": 0.85, "vjp": 0.80},
             "bfloat16": {"forward": 0.90, "vjp": 0.88},
             "complex_lambda": {"forward": 0.90},
             "qrnn_packed": {"forward_store": 0.85, "vjp_store": 0.80}}
# How many times as fast as the fastest of the peers whose names begin so.
SPEEDUPS = {("time_contiguous", "forward", "accelerated_scan"): 1.0,
            ("time_contiguous", "vjp", "accelerated_scan"): 1.0,
            ("one_sequence", "forward", "cub_pairs"): 2.0,
            ("one_sequence", "vjp", "cub_pairs"): 2.0}
# What a call may queue.
NODES = {("small", "forward"): 1, ("small", "vjp"): 1}
ROOFS = ("device_copy", "streaming_twin")
TO_MS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}


def read_results(folder):
    """The contexts together, and a row per workload, variant and call."""
    context, rows = {}, {}
    for path in sorted(folder.glob("*.json")):
        try:
            report = json.loads(path.read_text())
        except json.JSONDecodeError as error:  # of a run that broke off
            print(f"{path} is left out: {error}", file=sys.stderr)
            continue
        quick = "yes" in (context.get("quick"), report["context"].get("quick"))
        context.update(report["context"], quick="yes" if quick else "no")
        for run in report["benchmarks"]:
            parts = [p for p in run["name"].split("/") if ":" not in p and p != "manual_time"]
            row = dict(run, workload=parts[0], variant=parts[1], call=parts[2])
            if not run.get("error_occurred"):
                row["ms"] = run["real_time"] * TO_MS[run["time_unit"]]
            rows[tuple(parts)] = row
    for row in rows.values():  # peers know nothing of the twin
        twin = rows.get((row["workload"], "streaming_twin", row["call"]), {})
        if "ms" in row and "ms" in twin and row["elements"] == twin["elements"]:
            row.setdefault("fraction_of_twin", twin["ms"] / row["ms"])
    return context, rows


def workloads_of(rows):
    found = dict.fromkeys(workload for workload, _, _ in rows)
    return [w for w in FRACTIONS if w in found] + [w for w in found if w not in FRACTIONS]


def variants_of(rows, workload):
    """Roofs first, then in the order of the results, which has backends before peers."""
    found = dict.fromkeys(variant for w, variant, _ in rows if w == workload)
    return [v for v in ROOFS if v in found] + [v for v in found if v not in ROOFS]

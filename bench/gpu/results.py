# SPDX-License-Identifier: BSD-3-Clause
"""Read and save the rows of benchmarks and peers, and define the targets of the default backend."""

import contextlib
import json
import math
import pathlib
import re
import sys
import tarfile
import zlib

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
import table

# Targets of the default backend, as fractions of the copy baseline's speed. They were set for an H200.
DEFAULT = "automatic"
FRACTIONS = {
    "channels_last": {"forward": 0.92, "vjp": 0.90},
    "time_contiguous": {"forward": 0.92, "vjp": 0.90},
    "two_million_steps": {"forward": 0.90, "vjp": 0.88},
    "one_sequence": {"forward": 0.85, "vjp": 0.80},
    "bfloat16": {"forward": 0.90, "vjp": 0.88},
    "complex_lambda": {"forward": 0.90},
    "qrnn_packed": {"forward_store": 0.85, "vjp_store": 0.80},
}
# For a workload, a call and a prefix: the required speedup over the fastest peer whose name has the prefix.
SPEEDUPS = {
    ("time_contiguous", "forward", "accelerated_scan"): 1.0,
    ("time_contiguous", "vjp", "accelerated_scan"): 1.0,
    ("one_sequence", "forward", "cub_pairs"): 2.0,
    ("one_sequence", "vjp", "cub_pairs"): 2.0,
}
# How many kernels and memsets a call may queue.
NODES = {("small", "forward"): 1, ("small", "vjp"): 1}
ROOFS = ("device_copy", "copy_baseline")
TO_MS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}


# Values of a row that a table keeps.
COUNTERS = (
    "ms",
    "GB/s",
    "fraction_of_copy",
    "fraction_of_baseline",
    "spread",
    "nodes",
    "samples",
    "largest_difference",
    "queued_us",
    "graph_us",
    "copy_GB/s",
    "baseline_GB/s",
)
CONTEXT = ("gpu", "driver", "driver_cuda", "compiler", "torch", "jax", "date", "commit", "quick")


@contextlib.contextmanager
def skipped_if_bad(name):
    """Report a damaged input, and continue without it."""
    try:
        yield
    except (
        OSError,
        EOFError,
        zlib.error,
        tarfile.TarError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
    ) as error:
        print(f"{name} is skipped: {error!r}", file=sys.stderr)


def members_of(archive, pattern):
    """Return (name, text) of an archive's matching files, or of those before the first damage."""
    found = []
    with skipped_if_bad(f"the rest of {archive.name}"), tarfile.open(archive) as packed:
        for member in packed:
            if re.fullmatch(pattern, member.name):
                text = packed.extractfile(member).read().decode(errors="replace")
                found.append((member.name, text))
    return found


def texts_of(path):
    """Yield (name, text) of result files."""
    for archive in sorted(path.glob("*.tar.gz")):
        yield from members_of(archive, r"rows/.*\.json")
    for file in sorted(path.glob("*.json")):
        yield file.name, file.read_text(errors="replace")


def parsed(name, text):
    """Parse the JSON of a benchmark, and repair it if it ends after or inside a row. Return None if
    it is other JSON, or if no row is complete."""
    for repaired in (text, text.rstrip().rstrip(",") + "]}", text[: text.rfind("},") + 1] + "]}"):
        with contextlib.suppress(json.JSONDecodeError):
            report = json.loads(repaired)
            return report if isinstance(report, dict) and "benchmarks" in report else None
    print(f"{name} is skipped: no complete row", file=sys.stderr)
    return None


def row_of(run):
    """Return the (workload, variant, call) of a row, and its values. Raise ValueError, KeyError or
    TypeError if a value is absent or wrong."""
    parts = [p for p in run["name"].split("/") if ":" not in p and p != "manual_time"]
    workload, variant, call = parts
    row = dict(run, workload=workload, variant=variant, call=call)
    if run.get("error_occurred") or "error_message" in run:
        row["error_message"] = str(run["error_message"])
        return (workload, variant, call), row
    if "ms" not in run:
        row["ms"] = run["real_time"] * TO_MS[run["time_unit"]]
    for counter in COUNTERS:
        if counter in row and not math.isfinite(row[counter]):
            raise ValueError(f"{counter}: expected a finite number, got {row[counter]}")
    if row["ms"] <= 0:
        raise ValueError(f"ms: expected a positive number, got {row['ms']}")
    return (workload, variant, call), row


def rows_of(name, runs):
    """Return the rows of a file. Rows with an absent or wrong value are reported and skipped."""
    rows = {}
    for run in runs:
        with skipped_if_bad(f"{name}: row {str(run)[:60]}"):
            parts, row = row_of(run)
            rows[parts] = row
    return rows


def merged(context, other):
    """Merge the contexts of one run. Raise ValueError if they come from two cards."""
    cards = {c["gpu"] for c in (context, other) if "gpu" in c}
    if len(cards) > 1:
        raise ValueError(
            f"read_results: expected rows of one card, got {' and '.join(cards)}: "
            "keep the results of each card in a separate folder"
        )
    commits = dict.fromkeys(
        c for one in (context, other) if "commit" in one for c in one["commit"].split(", ")
    )
    both = {**context, **other}
    if commits:
        both["commit"] = ", ".join(commits)
    both["quick"] = "yes" if "yes" in (context.get("quick"), other.get("quick")) else "no"
    return both


def read_results(path):
    """Return the merged context and the rows of a folder, or of a table that `save_table` wrote."""
    if path.is_file():
        if path.suffix != ".tsv":
            raise ValueError(f"{path}: expected a table that report.py saved")
        context, rows = table.read(path)
        return context, rows_of(path.name, rows)
    context, rows = driver_of(path), {}
    for name, text in texts_of(path):
        report = parsed(name, text)
        if not report:
            continue
        context = merged(context, report.get("context", {}))
        rows.update(rows_of(name, report["benchmarks"]))
    # Peers do not time the copy baseline, so their rows use the time that the benchmark measured.
    for row in rows.values():
        baseline = rows.get((row["workload"], "copy_baseline", row["call"]), {})
        if "ms" in row and "ms" in baseline and row.get("elements") == baseline.get("elements"):
            row.setdefault("fraction_of_baseline", baseline["ms"] / row["ms"])
    return context, rows


def driver_of(folder):
    """Return a context with the version of the driver, or {} if the folder has no log of it."""
    for archive in sorted(folder.glob("*.tar.gz")):
        for _, text in members_of(archive, "logs/facts_gpu.log"):
            if found := re.search(r"^NVIDIA[^,]*, ([\d.]+),", text, re.MULTILINE):
                return {"driver": found[1]}
    return {}


def save_table(path, context, rows):
    """Write the table of a run."""
    kept = []
    for parts, row in rows.items():
        one = {"name": "/".join(parts), **{k: row[k] for k in COUNTERS if k in row}}
        if "ms" not in row:
            one["error_message"] = row["error_message"]
        if row["variant"] == "copy_baseline" and row.get("label"):
            one["label"] = row["label"]
        kept.append(one)
    table.write(path, {k: context[k] for k in CONTEXT if k in context}, kept)


def file_name_of(context):
    """The name of the table: <card>-<date>.tsv."""
    card = re.sub(r"[^a-z0-9]+", "-", context.get("gpu", "gpu").lower()).strip("-")
    return f"{card}-{context.get('date', 'undated')[:10]}.tsv"


def workloads_of(rows):
    found = dict.fromkeys(workload for workload, _, _ in rows)
    return [w for w in FRACTIONS if w in found] + [w for w in found if w not in FRACTIONS]


def variants_of(rows, workload):
    """The variants of a workload: the baselines, then the others in the order of the results."""
    found = dict.fromkeys(variant for w, variant, _ in rows if w == workload)
    return [v for v in ROOFS if v in found] + [v for v in found if v not in ROOFS]

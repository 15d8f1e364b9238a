# SPDX-License-Identifier: BSD-3-Clause
"""The rows of benchmarks and peers, by workload, variant and call; targets and predictions."""
import contextlib
import json
import pathlib
import re
import sys
import tarfile

from items import STAGES

# Targets of the default backend, as fractions of the twin's speed. They were set for an H200.
DEFAULT = "automatic"
FRACTIONS = {"channels_last": {"forward": 0.92, "vjp": 0.90},
             "time_contiguous": {"forward": 0.92, "vjp": 0.90},
             "two_million_steps": {"forward": 0.90, "vjp": 0.88},
             "one_sequence": {"forward": 0.85, "vjp": 0.80},
             "bfloat16": {"forward": 0.90, "vjp": 0.88},
             "complex_lambda": {"forward": 0.90},
             "qrnn_packed": {"forward_store": 0.85, "vjp_store": 0.80}}
# Speed as a multiple of that of the fastest peer whose name begins so.
SPEEDUPS = {("time_contiguous", "forward", "accelerated_scan"): 1.0,
            ("time_contiguous", "vjp", "accelerated_scan"): 1.0,
            ("one_sequence", "forward", "cub_pairs"): 2.0,
            ("one_sequence", "vjp", "cub_pairs"): 2.0}
# Kernels and memsets that a call may queue.
NODES = {("small", "forward"): 1, ("small", "vjp"): 1}
ROOFS = ("device_copy", "streaming_twin")
TO_MS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}


# Values of a row that a saved file keeps.
COUNTERS = ("ms", "GB/s", "fraction_of_copy", "fraction_of_twin", "spread", "nodes", "samples",
            "largest_difference", "queued_us", "graph_us", "copy_GB/s", "twin_GB/s")
CONTEXT = ("gpu", "driver", "driver_cuda", "compiler", "torch", "jax", "date", "commit", "quick")
PREDICTIONS = pathlib.Path(__file__).with_name("predictions.json")


def texts_of(path):
    """(name, text) of the JSON files in a folder, and in rows/ of the archives of stages."""
    for archive in sorted(path.glob("*.tar.gz")):
        with tarfile.open(archive) as packed:
            for member in packed.getmembers():
                if member.name.startswith("rows/") and member.name.endswith(".json"):
                    yield member.name, packed.extractfile(member).read().decode()
    for file in sorted(path.glob("*.json")):
        yield file.name, file.read_text()


def parsed(name, text):
    """A report of rows, or None. One that broke off has all rows up to there."""
    for end in ("", "]}", "}]}"):
        try:
            report = json.loads(text.rstrip().rstrip(",") + end if end else text)
            return report if "benchmarks" in report else None
        except json.JSONDecodeError as error:
            why = error
    print(f"{name} is left out: {why}", file=sys.stderr)
    return None


def merged(context, other):
    """Two contexts of one run. Raises ValueError if they are of two cards."""
    cards = {c["gpu"] for c in (context, other) if "gpu" in c}
    if len(cards) > 1:
        raise ValueError(f"read_results: expected rows of one card, got {' and '.join(cards)}")
    commits = dict.fromkeys(c for one in (context, other) if "commit" in one
                            for c in one["commit"].split(", "))
    both = {**context, **other}
    if commits:
        both["commit"] = ", ".join(commits)
    both["quick"] = "yes" if "yes" in (context.get("quick"), other.get("quick")) else "no"
    return both


def read_results(path):
    """The merged contexts, and a row per workload, variant and call, of a folder or of a file that
    `compact` made."""
    if path.is_file():
        report = json.loads(path.read_text())
        return report["context"], {tuple(row["name"].split("/")): dict(zip(
            ("workload", "variant", "call"), row["name"].split("/")), **row)
            for row in report["rows"]}
    context, rows = driver_of(path), {}
    for name, text in texts_of(path):
        report = parsed(name, text)
        if not report:
            continue
        context = merged(context, report["context"])
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


def driver_of(folder):
    """The version of the driver, by the facts of a stage."""
    for archive in sorted(folder.glob("*.tar.gz")):
        with tarfile.open(archive) as packed, contextlib.suppress(KeyError):
            text = packed.extractfile("logs/facts_gpu.log").read().decode()
            if found := re.search(r"^NVIDIA[^,]*, ([\d.]+),", text, re.MULTILINE):
                return {"driver": found[1]}
    return {}


def verdicts_of(folder):
    """The verdict of each item of each stage; of repeated items the last one."""
    verdicts = {}
    for path in (folder / f"{stage}.json" for stage in STAGES):
        items = {}
        for result in json.loads(path.read_text())["results"] if path.exists() else ():
            items.setdefault(result["item"], []).append(result["verdict"])
        for item, of_tests in items.items():
            verdicts[item] = next((v for v in ("FAIL", "NOT RUN") if v in of_tests), "PASS")
    return verdicts


def compact(context, rows, verdicts):
    """All that is kept of a run, as JSON."""
    def rounded(value):
        return float(f"{value:.4g}") if isinstance(value, float) else value
    kept = []
    for parts, row in rows.items():
        one = {"name": "/".join(parts), **{k: rounded(row[k]) for k in COUNTERS if k in row}}
        if "ms" not in row:
            one["error_message"] = row["error_message"]
        if row["variant"] == "streaming_twin" and row.get("label"):
            one["label"] = row["label"]
        kept.append(one)
    lines = [json.dumps(one) for one in kept]
    return ('{"context": ' + json.dumps({k: context[k] for k in CONTEXT if k in context}) +
            ',\n "verdicts": ' + json.dumps(verdicts) +
            ',\n "rows": [\n  ' + ",\n  ".join(lines) + "]}\n")


def file_name_of(context):
    """<card>-<date>.json."""
    card = re.sub(r"[^a-z0-9]+", "-", context.get("gpu", "gpu").lower()).strip("-")
    return f"{card}-{context.get('date', 'undated')[:10]}.json"


def predicted_for(card):
    """The predicted fractions of the twin for a card, by "workload/call"."""
    known = json.loads(PREDICTIONS.read_text()) if PREDICTIONS.exists() else {}
    return next((fractions for key, fractions in known.items() if key in card), {})


def workloads_of(rows):
    found = dict.fromkeys(workload for workload, _, _ in rows)
    return [w for w in FRACTIONS if w in found] + [w for w in found if w not in FRACTIONS]


def variants_of(rows, workload):
    """The variants of a workload: the baselines first, then in the order of the results."""
    found = dict.fromkeys(variant for w, variant, _ in rows if w == workload)
    return [v for v in ROOFS if v in found] + [v for v in found if v not in ROOFS]

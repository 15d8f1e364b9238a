#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Read and write the tables of bench/results, and make them from the JSON of benchmarks.

python3 bench/table.py SOURCE.json TARGET.tsv [KEY=VALUE...]

A table has lines `# key: value` about the run, then the names of its columns, then a line per row.
Cells are separated by tabs; an empty cell is an absent value. A column `WAY ms` has the milliseconds of one
way to compute, such as a library. Each of its cells is read as a separate row with the keys `way` and
`milliseconds`. The JSON of the Python benchmarks has such rows.
"""

import json
import pathlib
import statistics
import sys

#: Fields that Google Benchmark writes about its own build and about the host. Tables leave them out.
DROPPED = {"host_name", "load_avg", "num_cpus", "mhz_per_cpu", "cpu_scaling_enabled", "caches",
           "library_build_type", "library_version", "json_schema_version", "aslr_enabled"}  # fmt: skip
#: Numeric fields of a run of Google Benchmark that are not counters.
NOT_COUNTED = {"family_index", "per_family_instance_index", "repetitions", "repetition_index",
               "threads", "iterations", "real_time", "cpu_time"}  # fmt: skip


def of_google_benchmark(runs):
    """Yield a row per name, with medians of its time and counters over the repetitions."""
    same = {}
    for run in runs:
        if run.get("run_type", "iteration") == "iteration" and not run.get("error_occurred"):
            # Google Benchmark adds parts like "iterations:9" and "manual_time" to names.
            parts = [p for p in run["name"].split("/") if ":" not in p and p != "manual_time"]
            same.setdefault("/".join(parts), []).append(run)
    for name, runs in same.items():
        counters = [
            key
            for key, value in runs[0].items()
            if isinstance(value, (int, float)) and key not in NOT_COUNTED
        ]
        yield {
            "name": name,
            "time": statistics.median(run["real_time"] for run in runs),
            "unit": runs[0]["time_unit"],
            **{key: statistics.median(run[key] for run in runs) for key in counters},
        }


def of_distributed(report):
    """Yield the rows of calls over processes, then those of folds: one per number of lanes and scheme."""
    for phase in report["phases"]:
        seconds = phase.pop("seconds")
        yield {**phase, **seconds}
    for fold in report["fold"]:
        common = {key: value for key, value in fold.items() if not isinstance(value, dict)}
        for way in ("one_level", "two_levels", "doubling"):
            yield {"name": "fold", "call": way, **common, **fold[way]}


def of_report(report):
    """Context and rows of the JSON that a benchmark wrote."""
    context = report.get("context") or {k: v for k, v in report.items() if k != "rows"}
    context = {key: value for key, value in context.items() if key not in DROPPED}
    if "executable" in context:
        context["executable"] = pathlib.Path(context["executable"]).name
    if "benchmarks" in report:
        return context, list(of_google_benchmark(report["benchmarks"]))
    if "phases" in report:
        return context, list(of_distributed(report))
    return context, report["rows"]


def number(cell):
    for of in (int, float):
        try:
            return of(cell)
        except ValueError:
            pass
    return cell


def text(value):
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else f"{value:.7g}"
    return " ".join(str(value).split())


def read(path):
    """Context and rows of a table, or of a benchmark's JSON. Absent values have no key."""
    content = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        return of_report(json.loads(content))
    lines, context = content.splitlines(), {}
    while lines[0].startswith("# "):
        key, value = lines.pop(0)[2:].split(": ", 1)
        context[key] = value
    columns = lines[0].split("\t")
    rows = [dict(zip(columns, line.split("\t"))) for line in lines[1:]]
    rows = [{k: number(cell) for k, cell in row.items() if cell} for row in rows]
    return context, [one for row in rows for one in long(row)]


def long(row):
    """The rows of a line: one per cell of a column `WAY ms`, or the line itself without such cells."""
    shared = {key: value for key, value in row.items() if not key.endswith(" ms")}
    if shared == row:
        return [row]
    ways = {key.removesuffix(" ms"): value for key, value in row.items() if key not in shared}
    return [{**shared, "way": way, "milliseconds": value} for way, value in ways.items()]


def wide(rows):
    """Merge the rows that differ only in `way` and `milliseconds`: the inverse of long."""
    found = {}
    for row in rows:
        shared = {key: row[key] for key in row if key not in ("way", "milliseconds")}
        one = found.setdefault(tuple(shared.items()), shared)
        column = f"{row['way']} ms"
        if column in one:
            raise ValueError(f"expected one row per way in each line, got a second: {row}")
        one[column] = row["milliseconds"]
    return list(found.values())


def write(path, context, rows):
    """Write a table whose columns are the keys of its rows. Numbers with a fraction keep seven digits."""
    if all({"way", "milliseconds"} <= row.keys() for row in rows):
        rows = wide(rows)
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = [f"# {key}: {text(value)}" for key, value in context.items()]
    lines += ["\t".join(columns)]
    lines += ["\t".join(text(row.get(c, "")) for c in columns).rstrip("\t") for row in rows]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main():
    source, target, *more = sys.argv[1:]
    context, rows = read(pathlib.Path(source))
    write(pathlib.Path(target), {**context, **dict(one.split("=", 1) for one in more)}, rows)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A smoke test of stages.py and results.py, with shell scripts in place of the programs."""

import contextlib
import io
import pathlib
import tarfile
import tempfile

import programs
import results
import stages
from items import ITEMS, Item
from summary import FAIL, NOT_RUN, PASS

BATTERY = """#!/bin/sh
case "$1" in
  --list-test*) printf 'kind: passes\\nkind: fails, loudly\\nkind: hangs\\n' ;;
  *fails*) echo "what went wrong"; exit 3 ;;
  *hangs*) exec sleep 60 ;;
esac
"""
ROWS = """#!/bin/sh
for argument; do
  case "$argument" in
    --benchmark_list_tests) echo "small/lanes/forward"; exit ;;
    --benchmark_out=*) cat >"${argument#*=}" <<'JSON'
{"context": {"gpu": "A GPU", "date": "2030-01-02"}, "benchmarks": [
  {"name": "small/lanes/forward/iterations:1/manual_time", "real_time": 2.0, "time_unit": "ms"}]}
JSON
  esac
done
echo "small/lanes/forward        2.0000 ms    2800 GB/s  0.931 of a copy  0.942 of the copy baseline"
"""
TESTS = {"program": "linear_scan_test"}
CHOSEN = [
    Item("first", "tests", "battery float", 1, 0, **TESTS),
    Item("first", "tests", "battery double", 40, 1000, **TESTS),
    Item("first", "bench", "rows small", 5, 0, program="bench_gpu_linear_scan", chosen="^small/"),
    Item("first", "facts", "absent", 5, 0, words=("no-such-tool",)),
]


def run(machine, out, chosen):
    """Run a stage with a budget of 60 s. Return the verdict and the reason by item and test."""
    stage = stages.Stage("first", machine, out, 60, 4, quick=False)
    with contextlib.redirect_stdout(io.StringIO()):
        stage.run(chosen)
    stage.close()
    return {(r.item.name, r.test): (r.verdict, r.why) for r in stage.results.values()}


def main():
    assert len({programs.file_name(item.name) for item in ITEMS}) == len(ITEMS)
    with tempfile.TemporaryDirectory() as name:
        out, folder = pathlib.Path(name) / "out", pathlib.Path(name) / "programs"
        out.mkdir()
        folder.mkdir()
        for program, text in (("linear_scan_test", BATTERY), ("bench_gpu_linear_scan", ROWS)):
            (folder / program).write_text(text)
        machine = programs.Machine(folder)
        expected = {
            ("battery float", "kind: passes"): (PASS, ""),
            ("battery float", "kind: fails, loudly"): (FAIL, "status 3"),
            ("battery float", "kind: hangs"): (FAIL, "timed out after 1 s"),
            ("battery double", None): (NOT_RUN, stages.NO_TIME),
            ("rows small", None): (PASS, ""),
            ("absent", None): (NOT_RUN, "absent: no-such-tool"),
        }
        assert run(machine, out, CHOSEN) == expected
        summary = (out / "first.txt").read_text()
        for text in ("1 PASS, 1 FAIL, 2 NOT RUN", "| what went wrong", "forward 2.0000 ms 0.93"):
            assert text in summary, (text, summary)
        with tarfile.open(out / "first.tar.gz") as packed:
            assert "logs/battery_float_hangs.log" in packed.getnames()
        # Failures are repeated first, then items that had no time.
        again = stages.failed_before(out / "first.json")
        assert [(item.name, item.tests) for item in again] == [
            ("battery float", ("kind: fails, loudly", "kind: hangs")),
            ("battery double", ()),
        ]
        # read_results finds the rows in the archive, and save_table keeps them as a table.
        context, rows = results.read_results(out)
        results.save_table(out / "saved.tsv", context, rows)
        key = ("small", "lanes", "forward")
        assert results.read_results(out / "saved.tsv")[1][key]["ms"] == rows[key]["ms"] == 2.0
        assert context["gpu"] == "A GPU"
    print("passed")


if __name__ == "__main__":
    main()

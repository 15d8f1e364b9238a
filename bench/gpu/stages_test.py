#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests of stages.py with shell scripts in the place of programs, and of items.py against the
sources: every filter selects something."""
import contextlib
import io
import json
import pathlib
import tarfile
import tempfile
import time

import stages
from items import ITEMS, PARTS, STAGES, Item

BATTERY = """#!/bin/sh
case "$1" in
  --list-test*)
    case "$2" in
      "[none]") echo "No test cases matched" >/dev/null ;;
      "") printf 'kind: passes\\nkind: fails, loudly\\nkind: hangs\\nkind: passes, too\\n' ;;
      *) printf 'Matching test cases:\\n  %s\\n1 matching test case\\n' "$2" ;;
    esac
    exit 4 ;;
  *fails*) echo "what went wrong"; exit 3 ;;
  *hangs*) echo "before it hung"; sleep 60 ;;
  *) echo "asked for: $1" ;;
esac
"""
ROWS = """#!/bin/sh
for argument; do
  case "$argument" in
    --benchmark_list_tests) list=yes ;;
    --benchmark_filter=^nothing/) none=yes ;;
    --benchmark_out=*) echo '{"context": {}, "benchmarks": []}' >"${argument#*=}" ;;
  esac
done
if [ "$none" ]; then echo "Failed to match any benchmarks against regex"; exit 0; fi
if [ "$list" ]; then echo "small/lanes/forward"; fi
"""


def said(result_of):
    """What a call returns, and what it prints."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
        result = result_of()
    return result, out.getvalue()


def folder_of_programs(parent):
    folder = parent / "programs"
    for name, text in (("tests/linear_scan_battery", BATTERY), ("bench_gpu_linear_scan", ROWS)):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    (folder / "contents.json").write_text(json.dumps({"types": ["float"]}))
    return folder


def test(name="tests", **more):
    given = {"limit": 1, "likely": 0, "program": "linear_scan_battery", **more}
    return Item("first", "tests", name, **given)


def row(name="rows", **more):
    given = {"limit": 5, "likely": 0, "program": "bench_gpu_linear_scan", "chosen": "^small/"}
    return Item("first", "bench", name, **{**given, **more})


def check_a_stage(machine, out):
    """Every item runs whatever became of those before, and all that they said is kept."""
    items = [test(), row(), row("none", chosen="^nothing/"), row("long", likely=1000),
             test("other type", wants="float double"),
             test("other program", program="numerics_test"),
             Item("first", "facts", "command", 5, 0, words=("echo", "{out}")),
             Item("first", "facts", "silent", 5, 0, words=("echo", "no"), says="yes"),
             Item("first", "facts", "module", 5, 0, words=("echo",), modules="no_such_module"),
             Item("first", "facts", "tool", 5, 0, words=("no-such-tool-here",))]
    stage = stages.Stage("first", machine, out, time.monotonic() + 100, 4, quick=False)
    begun = time.monotonic()
    (well, printed) = said(lambda: stage.run(items))
    assert not well and time.monotonic() - begun < 30
    stage.close(out)
    results = {result.name: result for result in stage.results}
    what = {name: result.what for name, result in results.items()}
    assert what == {"tests: passes": "passed", "tests: fails, loudly": "failed",
                    "tests: hangs": "timed out", "tests: passes, too": "passed", "rows": "passed",
                    "none": "failed", "long": "left out", "other type": "absent",
                    "other program": "absent", "command": "passed", "silent": "failed",
                    "module": "absent", "tool": "absent"}, what
    assert results["tests: fails, loudly"].why == "status 3"
    assert results["none"].why == "nothing is selected by ^nothing/"
    assert 0.9 < results["tests: hangs"].seconds < 10
    summary = (out / "first.txt").read_text()
    assert printed in summary and "what went wrong" in summary and "before it hung" in summary
    assert "first: 4 passed, 3 failed, 1 timed out, 1 left out, 4 absent" in summary, summary
    with tarfile.open(out / "first.tar.gz") as packed:
        names = packed.getnames()
        assert "rows/rows.json" in names and "logs/tests_passes_too.log" in names, names
        log = packed.extractfile("logs/tests_passes_too.log").read().decode()
        assert log.endswith("asked for: kind: passes\\, too\n"), log
    assert (out / "rows.json").exists()


def check_time(machine, out):
    """An item gets no more than what is left of its stage."""
    stage = stages.Stage("more", machine, out, time.monotonic() + stages.LEAST + 1, 1, quick=False)
    sleep = Item("more", "facts", "sleep", 300, 0, words=("sleep", "2"))
    well, _ = said(lambda: stage.run([sleep, sleep, test("late")]))
    stage.close()
    assert well and [result.what for result in stage.results] == [
        "passed", "left out", *["left out"] * 4], [result.what for result in stage.results]


def check_logs(machine, out):
    """Of a long log the ends are kept."""
    stage = stages.Stage("others", machine, out, None, 1, quick=False)
    with (stage.work / "logs/long.log").open("wb") as log:
        log.write(b"begin" + bytes(3 * stages.LONGEST_LOG) + b"end")
    stage.pack()
    stage.close()
    with tarfile.open(out / "others.tar.gz") as packed:
        log = packed.extractfile("logs/long.log").read()
    assert log.startswith(b"begin") and log.endswith(b"end")
    assert len(log) < 2 * stages.LONGEST_LOG + 100


def check_dry_runs(machine, nowhere):
    well, text = said(lambda: stages.dry_run(machine, [test(), row()], False))
    assert well and "4 tests, each in a process of its own" in text, text
    well, text = said(lambda: stages.dry_run(machine, [row(chosen="^nothing/")], False))
    assert not well and "nothing is selected by ^nothing/" in text, text
    # By the sources, all that there is.
    well, text = said(lambda: stages.dry_run(nowhere, ITEMS, False))
    assert well, text
    for item in (test(chosen="[float][no_such_tag]"), row(chosen="^small/no_such_backend/")):
        well, text = said(lambda: stages.dry_run(nowhere, [item], False))
        assert not well, text


def check_items():
    names = [item.name for item in ITEMS]
    assert len(set(names)) == len(names)
    assert len({stages.file_name(name) for name in names}) == len(names)
    assert {item.stage for item in ITEMS} == set(STAGES)
    assert {item.part for item in ITEMS} == set(PARTS)
    for item in ITEMS:
        assert bool(item.program) != bool(item.words) and item.likely <= item.limit, item


def main():
    check_items()
    with tempfile.TemporaryDirectory() as name:
        parent = pathlib.Path(name)
        out = parent / "out"
        out.mkdir()
        machine = stages.Machine(folder_of_programs(parent))
        check_a_stage(machine, out)
        check_time(machine, out)
        check_logs(machine, out)
        check_dry_runs(machine, stages.Machine(parent / "nowhere"))
    print("stages run as they should")


if __name__ == "__main__":
    main()

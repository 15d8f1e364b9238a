#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests of stages.py with shell scripts for programs, and of items.py against the sources."""

import contextlib
import io
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

import programs
import report
import sources
import stages
from items import ITEMS, PARTS, STAGES, Item
from stages import NO_TIME, NOT_REACHED, STOPPED
from summary import FAIL, LONGEST_LOG, LONGEST_SUMMARY, NOT_RUN, PASS, Result, summary_of

BATTERY = """#!/bin/sh
case "$1" in
  --list-test*)
    case "$1 $2" in
      *"[none]" | *"[double]"*) echo "No test cases matched" >/dev/null ;;
      "--list-test-names-only "*)
        printf 'kind: passes\\nkind: fails, loudly\\nkind: hangs\\nkind: passes, too\\n' ;;
      *) printf 'Matching test cases:\\n  %s\\n1 matching test case\\n' "$2" ;;
    esac
    exit 4 ;;
  *fails*) echo "what went wrong"; exit 3 ;;
  *hangs*) echo "before it hung"; exec sleep 60 ;;
  *) echo "asked for: $1, $SCANREC_TEST_BACKENDS" ;;
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
if [ "$list" ]; then echo "small/lanes/forward"; exit 0; fi
echo "small/lanes/forward        0.0123 ms    2800 GB/s  0.931 of a copy  0.942 of the twin"
echo "small/cub/vjp              left out: forward only"
"""


def said(result_of):
    """The result of a call, and the text that it prints."""
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
    return folder


def test(name="tests", **more):
    given = {"limit": 1, "likely": 0, "program": "linear_scan_battery", **more}
    return Item("first", "tests", name, **given)


def row(name="rows", **more):
    given = {"limit": 5, "likely": 0, "program": "bench_gpu_linear_scan", "chosen": "^small/"}
    return Item("first", "bench", name, **{**given, **more})


def command(name, *words, **more):
    return Item("first", "facts", name, 5, 0, words=words, **more)


def check_a_stage(machine, out):
    """Every item runs whatever happened before it, and all logs are kept."""
    items = [
        test(),
        row("rows small"),
        row("none", chosen="^nothing/"),
        row("long", likely=1000),
        test("other type", chosen="[double]", wants="double"),
        test("other program", program="numerics_test"),
        command("echo", "echo", "{out}"),
        command("silent", "echo", "no", says=("no", "yes")),
        command("both", "echo", "no, yes", says=("no", "yes")),
        command("module", "echo", modules="json no_such_module"),
        command("tool", "no-such-tool-here"),
    ]
    stage = stages.Stage("first", machine, out, 100, 4, quick=False)
    begun = time.monotonic()
    (found, printed) = said(lambda: stage.run(items))
    assert found == {PASS, FAIL, NOT_RUN} and time.monotonic() - begun < 30
    stage.close(out)
    results = {result.name: result for result in stage.results.values()}
    verdicts = {name: (result.verdict, result.why) for name, result in results.items()}
    assert verdicts == {
        "tests: passes": (PASS, ""),
        "tests: passes, too": (PASS, ""),
        "tests: fails, loudly": (FAIL, "status 3"),
        "tests: hangs": (FAIL, "timed out after 1 s"),
        "rows small": (PASS, ""),
        "none": (FAIL, "filter ^nothing/ matches no test"),
        "long": (NOT_RUN, NO_TIME),
        "other type": (NOT_RUN, "not built for double"),
        "other program": (NOT_RUN, "numerics_test was not built"),
        "echo": (PASS, ""),
        "silent": (FAIL, "output does not match yes"),
        "both": (PASS, ""),
        "module": (NOT_RUN, "absent: no_such_module"),
        "tool": (NOT_RUN, "absent: no-such-tool-here"),
    }, verdicts
    summary = (out / "first.txt").read_text()
    assert "first: 3 PASS, 3 FAIL, 5 NOT RUN" in summary and summary.splitlines()[3] in printed
    for line in (
        "FAIL     tests ",
        "2 of 4 tests",
        "FAIL fails, loudly: status 3",
        "| what went wrong",
        "| before it hung",
        "PASS     rows small ",
        "NOT RUN  long ",
        "lanes: forward 0.0123 ms 0.93; cub: vjp left out",
    ):
        assert line in summary, (line, summary)
    with tarfile.open(out / "first.tar.gz") as packed:
        names = packed.getnames()
        assert "rows/rows_small.json" in names and "logs/tests_passes_too.log" in names, names
        log = packed.extractfile("logs/tests_passes_too.log").read().decode()
        assert "asked for: kind: passes\\, too" in log, log
    assert (out / "rows_small.json").exists()


def check_failed_before(machine, out):
    """The second stage begins with the failures of the first, then with its NOT RUN for lack of
    time."""

    def result(item, verdict, test=None, why=""):
        return {"item": item, "test": test, "verdict": verdict, "why": why}

    path = out / "before.json"
    path.write_text(
        json.dumps(
            {
                "results": [
                    result("memcheck smallest kernels", NOT_RUN, why=NO_TIME),
                    result("battery float", PASS, "kind: passes"),
                    result("battery float", FAIL, "kind: hangs"),
                    result("battery float", NOT_RUN, "kind: passes, too", NOT_REACHED),
                    result("battery uint32", PASS),
                    result("facts nvcc", NOT_RUN, why="absent: nvcc"),
                    result("look_back stress", FAIL),
                    result("of another commit", FAIL),
                ]
            }
        )
    )
    again, printed = said(lambda: stages.failed_before(path))
    assert "unknown items: of another commit" in printed, printed
    assert [(item.name, item.tests) for item in again] == [
        ("battery float", ("kind: hangs", "kind: passes, too")),
        ("look_back stress", ()),
        ("memcheck smallest kernels", ()),
    ], again
    assert {item.stage for item in again} == {"second"}
    # A test that was renamed since then is reported; the others run.
    stage = stages.Stage("second", machine, out, 100, 1, quick=False)
    said(lambda: stage.run([test(tests=("kind: old name", "kind: passes, too"))]))
    stage.close()
    assert [(r.test, r.verdict, r.why) for r in stage.results.values()] == [
        ("kind: old name", NOT_RUN, "test no longer exists"),
        ("kind: passes, too", PASS, ""),
    ]


def check_time(machine, out):
    """An item gets no more time than its stage has left, or than its own part of the stage."""
    stage = stages.Stage(
        "second", machine, out, stages.CLOSING + stages.LEAST + 0.3, 1, quick=False
    )
    sleep = command("sleep", "sleep", "0.5")
    said(lambda: stage.run([sleep, command("again", "sleep", "2"), test("late")]))
    stage.close()
    assert [(r.verdict, r.why) for r in stage.results.values()] == [
        (PASS, ""),
        *[(NOT_RUN, NO_TIME)] * 2,
    ], stage.results
    stage = stages.Stage("second", machine, out, 100, 1, quick=False)
    assert stage.left(command("early", "true", until=20)) < 20 < stage.left(sleep)
    stage.close()


def program_of(folder, name, text):
    path = folder / "tests" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return programs.Machine(folder)


def run_items(machine, out, *items, budget=100):
    """Run items one at a time. Return their verdicts and reasons, and the seconds."""
    stage, begun = stages.Stage("second", machine, out, budget, 1, quick=False), time.monotonic()
    said(lambda: stage.run(items))
    stage.close()
    return [(r.verdict, r.why) for r in stage.results.values()], time.monotonic() - begun


def check_listing(parent, out):
    """A program that hangs while listing its tests costs its limit once; SIGTERM ends the wait."""
    machine = program_of(parent / "listing", "numerics_test", "exec sleep 60\n")
    hanging = [test(f"hanging {i}", program="numerics_test") for i in range(3)]
    verdicts, seconds = run_items(
        machine, out, *hanging, budget=stages.CLOSING + stages.LEAST - 0.1
    )
    assert verdicts == [(NOT_RUN, NO_TIME)] * 3 and seconds < 1, (verdicts, seconds)
    most, stages.MOST_SECONDS = stages.MOST_SECONDS, 0.3
    verdicts, seconds = run_items(machine, out, *hanging)
    stages.MOST_SECONDS = most
    assert {verdict for verdict, _ in verdicts} == {FAIL} and seconds < 1, (verdicts, seconds)
    assert verdicts[2][1] == "listing its tests: numerics_test: timed out after 0 s", verdicts
    machine = programs.Machine(machine.folder)
    threading.Timer(0.2, machine.stop).start()
    verdicts, seconds = run_items(machine, out, *hanging)
    assert verdicts == [(NOT_RUN, STOPPED)] * 3 and seconds < 1, (verdicts, seconds)
    # Warnings of the loader are no tests.
    machine = program_of(
        parent / "listing",
        "numerics_test",
        """
case "$1" in
  --list-test*) echo "libx.so: no version information available" >&2; echo "one test" ;;
esac
""",
    )
    assert programs.names_of(machine, test(program="numerics_test")) == ["one test"]


def check_processes(parent, out):
    """A noisy process is killed, its log is cut, and no descendant survives its item."""
    most, programs.MOST_OUTPUT = programs.MOST_OUTPUT, 1 << 20
    stage = stages.Stage("second", programs.Machine(parent), out, 100, 1, quick=False)
    # The child ignores SIGTERM and outlives its parent.
    survivor = f"(trap '' TERM; echo $BASHPID >{parent}/pid; exec sleep 60) & sleep 0.1"
    said(
        lambda: stage.run(
            [
                command("noisy", "yes"),
                command("parent", "bash", "-c", survivor),
                command("crash", "bash", "-c", "kill -SEGV $$"),
            ]
        )
    )
    programs.MOST_OUTPUT = most
    size = (stage.work / "logs/noisy.log").stat().st_size
    stage.close()
    assert [(r.verdict, r.why) for r in stage.results.values()] == [
        (FAIL, "wrote more than 1 MiB"),
        (PASS, ""),
        (FAIL, "killed by SIGSEGV"),
    ], stage.results
    assert size < 3 * LONGEST_LOG, size
    pid = int((parent / "pid").read_text())
    state = pathlib.Path(f"/proc/{pid}/stat")
    time.sleep(0.05)
    assert not state.exists() or state.read_text().split()[2] == "Z"


def check_summary():
    """A summary of many long failures fits, and has a verdict for each item."""
    with tempfile.TemporaryDirectory() as name:
        log = pathlib.Path(name) / "log"
        log.write_text(
            "command\n"
            + "what went wrong, at length " * 40
            + "\n" * 2
            + "a line of its own\n" * 1000
        )
        items = [
            test(f"battery {i} with a name that is longer than any in the list", limit=1 + i)
            for i in range(60)
        ]
        outcomes = [
            (
                item,
                [
                    Result(
                        item,
                        f"kind: test {i} " + "x" * 200,
                        FAIL,
                        "does not say " + "y" * 300,
                        0,
                        1,
                        log,
                    )
                    for i in range(14)
                ],
            )
            for item in items
        ]
        text = summary_of(["stage first"], outcomes)
        assert len(text) <= LONGEST_SUMMARY < 12_000, len(text)
        assert sum(line.startswith("FAIL ") for line in text.splitlines()) == 60, text
        # With fewer failures there is room for their logs, and for rows.
        rows = pathlib.Path(name) / "rows"
        rows.write_text(
            "command\n"
            + "".join(
                f"small/backend_{i}/{call} 0.0123 ms 2800 GB/s 0.931 of a copy 0.942 of the twin\n"
                for call in ("forward", "vjp")
                for i in range(6)
            )
        )
        some = [
            (item, [Result(item, None, PASS, "", 0, 1, rows)])
            for item in (row(f"rows small {i}") for i in range(20))
        ]
        text = summary_of(["stage first"], [*outcomes[:2], *some])
        assert len(text) <= LONGEST_SUMMARY and "a line of its own" in text, text
        assert text.count("0.0123 ms 0.93") == 20 * 12, text


def check_logs(machine, out):
    """The archive keeps the beginning and the end of a long log."""
    stage = stages.Stage("second", machine, out, 0, 1, quick=False)
    with (stage.work / "logs/long.log").open("wb") as log:
        log.write(b"begin" + bytes(3 * LONGEST_LOG) + b"end")
    stage.pack()
    stage.close()
    with tarfile.open(out / "second.tar.gz") as packed:
        log = packed.extractfile("logs/long.log").read()
    assert log.startswith(b"begin") and log.endswith(b"end")
    assert len(log) < 2 * LONGEST_LOG + 100
    # Many long logs are compressed once: a later archive takes much less time than the first.
    stage = stages.Stage("second", machine, out, 0, 1, quick=False)
    for i in range(90):
        (stage.work / f"logs/{i}.log").write_bytes(os.urandom(2 * LONGEST_LOG))
    stage.pack()
    begun = time.monotonic()
    stage.pack()
    assert time.monotonic() - begun < 0.5
    with tarfile.open(out / "second.tar.gz") as packed:
        assert len(packed.getnames()) == 90
    stage.close()


def check_lost_output(machine, out):
    """A stage goes on if its files cannot be written, keeps its logs, and prints the summary."""
    lost = out / "lost"
    lost.mkdir()
    stage = stages.Stage("first", machine, lost, 100, 1, quick=False)
    _, printed = said(
        lambda: stage.run(
            [
                command("remove", "rmdir", str(lost)),
                command("colour", "printf", "\\033[31mred\\007\\n"),
                command("bad", "bash", "-c", "printf 'x\\033y\\n'; exit 3"),
            ]
        )
    )
    _, closed = said(stage.close)
    assert "first: 2 PASS, 1 FAIL, 0 NOT RUN" in printed, printed
    assert printed.count("cannot write to") == 1 and "| x?y" in printed, printed
    assert str(stage.work) in closed and (stage.work / "logs/colour.log").exists()
    shutil.rmtree(stage.work)


def check_closed_output(folder, out):
    """A stage goes on if its standard output is closed."""
    arguments = [
        sys.executable,
        stages.__file__,
        "--programs",
        folder,
        "--out",
        out / "closed",
        "first",
        "--only",
        "facts (cpu|libc|python)",
    ]
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.run(
        arguments,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    os.close(writer)
    assert process.returncode == 0 and not process.stderr, process
    assert "3 PASS" in (out / "closed/first.txt").read_text()


def check_arguments(folder, out):
    """Wrong arguments and runs of nothing exit with status 2 and a message."""

    def run(*arguments, programs=folder, to=out):
        old, sys.argv = (
            sys.argv,
            ["stages.py", "--programs", str(programs), "--out", str(to), *map(str, arguments)],
        )
        try:
            return said(lambda: exit_of(stages.main))
        finally:
            sys.argv = old
            signal.signal(signal.SIGINT, signal.default_int_handler)

    damaged = out / "damaged"
    damaged.mkdir()
    for name in ("contents.json", "first.json"):
        (damaged / name).write_text('{"results": [')
    a_file = damaged / "contents.json"
    for (status, printed), expected in (
        (run("--only", "nothing"), "no item has"),
        (run("--only", "("), "argument --only"),
        (run("--jobs", 0), "--jobs"),
        (run("--budget", -1), "--budget"),
        (run("first", to=a_file), "cannot write to"),
        (run("first", programs=out), "argument --programs"),
        (run("first", programs=damaged), "contents.json is damaged"),
        (run("second", "--only", "^numerics$", programs=out / "none"), "argument --programs"),
        (run("--only", "battery double"), "0 PASS, 0 FAIL, 1 NOT RUN"),
    ):
        assert status == 2 and expected in printed and "Traceback" not in printed, (printed, status)
    for failed in (damaged / "first.json", damaged / "absent.json"):
        status, printed = run("--failed", failed, "--only", "facts libc")
        assert status == 0 and "is ignored" in printed and "1 PASS" in printed, printed


def exit_of(function):
    try:
        return function()
    except SystemExit as end:
        return end.code


def check_long_lines():
    """Regular expressions see the first characters of a line only."""
    with tempfile.TemporaryDirectory() as name:
        log = pathlib.Path(name) / "log"
        log.write_text("command\n" + "1" * 60_000 + "\n")
        begun = time.monotonic()
        for part in PARTS:
            item = Item("first", part, "rows small", 1, 0)
            assert not Result(item, None, FAIL, "", 0, 1, log).figures
        assert time.monotonic() - begun < 0.5


def check_kill(folder, out):
    """While a test hangs, the files have all results so far; SIGTERM ends the stage in order."""
    process = subprocess.Popen(
        [
            sys.executable,
            stages.__file__,
            "--programs",
            folder,
            "--out",
            out,
            "first",
            "--only",
            "battery float",
            "--jobs",
            "4",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        end = time.monotonic() + 20
        verdicts = []
        while verdicts.count(NOT_REACHED) != 1 and time.monotonic() < end:
            time.sleep(0.1)
            with contextlib.suppress(FileNotFoundError):
                verdicts = [
                    r["why"] for r in json.loads((out / "first.json").read_text())["results"]
                ]
        assert sorted(verdicts) == ["", "", NOT_REACHED, "status 3"], verdicts
        assert "what went wrong" in (out / "first.txt").read_text()
        with tarfile.open(out / "first.tar.gz") as packed:
            assert packed.getnames()
        process.send_signal(signal.SIGTERM)
        printed, _ = process.communicate(timeout=10)
    finally:
        process.kill()
    assert process.returncode == 1 and "FAIL hangs: stopped" in printed, printed
    with tarfile.open(out / "first.tar.gz") as packed:
        log = packed.extractfile("logs/battery_float_hangs.log").read().decode()
        assert "before it hung" in log
        log = packed.extractfile("logs/battery_float_passes.log").read().decode()
        assert "asked for: kind: passes, cuda" in log, log


def check_environment(machine):
    """Each item has its own variables; folders of the caller stay in the lists."""
    before = dict(os.environ)
    os.environ["PYTHONPATH"], os.environ["LD_LIBRARY_PATH"] = "theirs", "theirs"
    try:
        of = {item.name: machine.environment(item) for item in ITEMS}
    finally:
        os.environ.clear()
        os.environ.update(before)
    package, site = f"{machine.folder}/python", f"{machine.folder}/site"
    assert of["battery float"]["PYTHONPATH"] == f"{package}:theirs"
    assert of["peer accelerated_scan.triton"]["PYTHONPATH"] == f"{site}:{package}:theirs"
    for name, environment in of.items():
        cublas = name == "graphs and state spaces" and machine.places["cublas"]
        assert environment["LD_LIBRARY_PATH"] == (f"{cublas}:theirs" if cublas else "theirs"), name
        kind = name.split()[0]
        assert (environment.get("SCANREC_TEST_BACKENDS") == "cuda") == (kind == "battery"), name
        assert ("XLA_PYTHON_CLIENT_PREALLOCATE" in environment) == (kind in ("python", "peer")), (
            name
        )


def check_dry_runs(machine, nowhere):
    well, text = said(lambda: stages.dry_run(machine, [test(), row()], False))
    assert well and "4 tests, each in a process of its own" in text, text
    well, text = said(lambda: stages.dry_run(machine, [row(chosen="^nothing/")], False))
    assert not well and "filter ^nothing/ matches no test" in text, text
    # Both stages, by the sources.
    well, text = said(lambda: stages.dry_run(nowhere, ITEMS, False))
    assert well and all(f"{stage}: " in text for stage in STAGES), text
    for item in (test(chosen="[float][no_such_tag]"), row(chosen="^small/no_such_backend/")):
        well, text = said(lambda: stages.dry_run(nowhere, [item], False))  # noqa: B023 (called at once)
        assert not well, text


def check_items():
    names = [item.name for item in ITEMS]
    assert len(set(names)) == len(names)
    assert len({programs.file_name(name) for name in names}) == len(names)
    assert list(dict.fromkeys(item.stage for item in ITEMS)) == list(STAGES)
    assert {item.part for item in ITEMS} == set(PARTS)
    for item in ITEMS:
        assert bool(item.program) != bool(item.words) and item.likely <= item.limit, item
        assert item.until < STAGES[item.stage], item
    # The tests that the Python items require are in the sources.
    required = [
        (item.words[-1].removeprefix("{package}"), pattern.removesuffix(" PASSED"))
        for item in ITEMS
        if item.part == "python"
        for pattern in item.says
    ]
    assert len(required) == 4
    for file, name in required:
        assert f"def {name}():" in (sources.ROOT / f"python{file}").read_text(), (file, name)


def main():
    check_items()
    check_summary()
    check_long_lines()
    report.check_self()
    with tempfile.TemporaryDirectory() as name:
        parent = pathlib.Path(name)
        out = parent / "out"
        out.mkdir()
        folder = folder_of_programs(parent)
        machine = programs.Machine(folder)
        check_environment(machine)
        check_a_stage(machine, out)
        check_failed_before(machine, out)
        check_time(machine, out)
        check_listing(parent, out)
        check_processes(parent, out)
        check_logs(machine, out)
        check_lost_output(machine, out)
        check_closed_output(folder, out)
        check_arguments(folder, out)
        check_kill(folder, out)
        check_dry_runs(machine, programs.Machine(parent / "nowhere"))
    print("stages run as they should")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Run the tests and benchmarks (items) listed in items.py.

The programs are in the folder of a build, or in a pack that pack.sh made. Every item has a time limit,
and starts only if at least its expected time is left. If an item fails, the others still run. Each stage
keeps three files up to date: <stage>.txt is the summary, <stage>.json has the verdicts, and
<stage>.tar.gz has all logs and rows. The summary is printed at the end.

The exit status is 1 after a failure or an interruption, 2 if an argument is wrong or every item was
skipped, and 0 otherwise."""

import argparse
import concurrent.futures
import contextlib
import io
import json
import os
import pathlib
import re
import shutil
import signal
import sys
import tarfile
import tempfile
import time
from dataclasses import replace

if sys.version_info < (3, 10):  # noqa: UP036 (an old Python gets this far)
    sys.exit("stages.py: expected Python 3.10 or newer, got " + sys.version.split()[0])

from items import ITEMS, PARTS, STAGES
from programs import (
    MOST_SECONDS,
    Machine,
    command_of,
    ended_by,
    file_name,
    names_of,
    unbuilt,
)
from summary import FAIL, NOT_RUN, PASS, Result, clean, ends_of, lines_of, summary_of, verdict_of

LEAST = 5  # an item does not start with fewer seconds left
CLOSING = 5  # seconds reserved for the final summary
RERUN_UNTIL = 80  # seconds into the second stage; repeated items end by then
NO_TIME, NOT_REACHED, STOPPED = "no time", "not reached", "stopped"


class Stage:
    """A list of items and their results. `budget` is in seconds; 0 means no limit."""

    def __init__(self, name, machine, out, budget, jobs, quick):
        self.name, self.machine, self.out, self.jobs, self.quick = name, machine, out, jobs, quick
        self.begun, self.budget = time.monotonic(), budget
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="stage_"))
        for folder in ("logs", "rows"):
            (self.work / folder).mkdir()
        self.items, self.tests, self.results = [], {}, {}
        self.logs = {}  # (item, test) by name of the log
        self.packed_at = 0.0
        self.unsaved = False  # whether the last attempt to write results failed

    def left(self, item):
        """Return the seconds left for an item."""
        if not self.budget:
            return float("inf")
        end = min(self.budget - CLOSING, item.until or self.budget)
        return self.begun + end - time.monotonic()

    def tests_of(self, item):
        """Return the tests of an item, [None] if it runs as a whole, or a Result if it cannot
        run."""

        def instead(verdict, why):
            return Result(item, None, verdict, why)

        if self.machine.stopped:
            return instead(NOT_RUN, STOPPED)
        if not item.program:
            return [None]
        left = self.left(item)
        if left < max(item.likely, LEAST):
            return instead(NOT_RUN, NO_TIME)
        try:
            if why := unbuilt(self.machine, item, min(MOST_SECONDS, left)):
                return instead(NOT_RUN, why)
            names = names_of(self.machine, item, min(MOST_SECONDS, left))
        except OSError as error:
            return instead(*((NOT_RUN, STOPPED) if self.machine.stopped else (FAIL, str(error))))
        if not names:
            return instead(FAIL, f"filter {item.chosen} matches nothing")
        return list(item.tests) or names if item.separately else [None]

    def run_test(self, item, test):
        """Run an item, or one of its tests."""
        result = Result(item, test, NOT_RUN, begun=time.monotonic())
        command = command_of(self.machine, item, self.work, self.quick, test)
        if self.machine.stopped:
            return replace(result, why=STOPPED)
        if absent := self.machine.absent(command, item):
            return replace(result, why=f"absent: {absent}")
        left = self.left(item)
        if left < max(item.likely, LEAST):
            return replace(result, why=NO_TIME)
        log = file_name(result.name)
        while self.logs.setdefault(log, (item, test)) != (item, test):  # another test's log
            log += "_"
        result.log = self.work / "logs" / f"{log}.log"
        limit = min(item.limit, left)
        environment = self.machine.environment(item)
        if not item.alone:  # other items use the same cores
            environment["OMP_NUM_THREADS"] = str(max(2, (os.cpu_count() or 1) // self.jobs))
        with result.log.open("wb") as output:
            output.write((" ".join(command) + "\n").encode(errors="replace"))
            output.flush()
            status = self.machine.run(command, environment, limit, output)
        result.verdict, result.seconds = FAIL, time.monotonic() - result.begun
        kept = ends_of(result.log)
        if len(kept) < result.log.stat().st_size:
            result.log.write_bytes(kept)
        said = "\n".join(lines_of(result.log))
        unsaid = [pattern for pattern in item.says if not re.search(pattern, said)]
        if self.machine.stopped:
            result.why = STOPPED
        elif status:
            result.why = ended_by(status)
            if str(status).startswith("timed out") and limit < item.limit:
                result.why += ", the end of its time in this stage"
        elif unsaid:
            result.why = f"output does not match {' or '.join(unsaid)}"
        else:
            result.verdict = PASS
        return result

    def outcomes(self):
        """Pair each item with its results."""
        return [
            (
                item,
                [
                    self.results.get((item, test)) or Result(item, test, NOT_RUN, NOT_REACHED)
                    for test in self.tests.get(item, [None])
                ],
            )
            for item in self.items
        ]

    def summary(self):
        outcomes = self.outcomes()
        verdicts = [verdict_of(results) for _, results in outcomes]
        counts = ", ".join(f"{verdicts.count(v)} {v}" for v in (PASS, FAIL, NOT_RUN))
        spent = time.monotonic() - self.begun
        head = [
            f"stage {self.name}: {counts}; {spent:.0f} s"
            + (f" of {self.budget:.0f}" if self.budget else "")
            + f"; commit {self.machine.contents.get('commit', 'unknown')}",
            "Each row: milliseconds, then GB/s as a fraction of a device copy's GB/s in the same run.",
        ]
        return summary_of(head, outcomes)

    def note(self, result):
        """Keep a result, and update the files in `out`; the archive at most every 5 seconds."""
        result.why = clean(result.why)
        self.results[result.item, result.test] = result
        say(
            f"{result.verdict:7s}  {result.name[:70]:70s} {result.seconds:6.1f} s  "
            f"{result.why[:60]}".rstrip()
        )
        self.save(packing=time.monotonic() - self.packed_at > 5)

    def save(self, packing=True):
        """Bring the files in `out` up to date. A failure is reported once, and does not end the run."""
        try:
            write(self.out / f"{self.name}.txt", self.summary().encode())
            write(
                self.out / f"{self.name}.json",
                json.dumps(
                    {
                        "stage": self.name,
                        "results": [
                            {
                                "item": r.item.name,
                                "test": r.test,
                                "verdict": r.verdict,
                                "why": r.why,
                                "seconds": round(r.seconds, 1),
                            }
                            for _, results in self.outcomes()
                            for r in results
                        ],
                    },
                    indent=1,
                ).encode(),
            )
            if packing:
                self.pack()
                self.unsaved = False
        except OSError as error:
            if not self.unsaved:
                say(f"cannot write to {self.out}: {error}")
            self.unsaved = True

    def pack(self):
        """Write all logs and rows, including those of running items, into one file."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=5) as archive:
            for file in sorted(self.work.glob("*/*")):
                data = ends_of(file) if file.suffix == ".log" else file.read_bytes()
                about = tarfile.TarInfo(f"{file.parent.name}/{file.name}")
                about.size, about.mtime = len(data), int(file.stat().st_mtime)
                archive.addfile(about, io.BytesIO(data))
        write(self.out / f"{self.name}.tar.gz", packed.getvalue())
        self.packed_at = time.monotonic()

    def run(self, items):
        self.items = list(items)
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            running = {}

            def wait_for_all():
                for future in concurrent.futures.as_completed(running):
                    try:
                        result = future.result()
                    except OSError as error:
                        result = Result(
                            *running[future], FAIL, STOPPED if self.machine.stopped else str(error)
                        )
                    except Exception as error:  # A bug in this script must not end the stage.
                        result = Result(*running[future], FAIL, repr(error))
                    self.note(result)
                running.clear()

            for item in items:
                if item.alone:
                    wait_for_all()
                tests = self.tests_of(item)
                if isinstance(tests, Result):
                    self.note(tests)
                    continue
                self.tests[item] = tests
                for test in tests:
                    running[pool.submit(self.run_test, item, test)] = item, test
                    if item.alone:
                        wait_for_all()
            wait_for_all()
        self.save()
        say("\n" + self.summary().rstrip())
        return {result.verdict for result in self.results.values()}

    def close(self, rows=None):
        """Copy the rows to the folder `rows`, if given. Delete the working folder if all files are saved."""
        try:
            for file in (self.work / "rows").glob("*.json") if rows else ():
                shutil.copy(file, rows)
        except OSError as error:
            say(f"cannot write to {rows}: {error}")
            self.unsaved = True
        if self.unsaved:
            say(f"logs and rows are in {self.work}")
        else:
            shutil.rmtree(self.work, ignore_errors=True)


def say(text):
    """Print a text. Continue if standard output is closed."""
    try:
        print(text, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def write(path, data):
    """Replace a file atomically."""
    part = path.with_name(path.name + ".part")
    try:
        part.write_bytes(data)
        os.replace(part, path)
    except OSError:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


def failed_before(path):
    """Return the items of an earlier run to repeat: failed ones, then those that had no time, or
    were stopped or not reached. If an item has several tests, only such tests are repeated."""
    again = {}
    known = {item.name: item for item in ITEMS}
    for result in json.loads(path.read_text())["results"]:
        if result["verdict"] == FAIL or result["why"] in (NO_TIME, NOT_REACHED, STOPPED):
            again.setdefault(result["item"], []).append(result)
    if unknown := [name for name in again if name not in known]:
        print(f"{path}: unknown items: {', '.join(unknown)}", file=sys.stderr)

    def repeated(item, results):
        tests = [result["test"] for result in results]
        return replace(
            item, stage="second", until=RERUN_UNTIL, tests=() if None in tests else tuple(tests)
        )

    order = sorted(again, key=lambda name: all(r["verdict"] != FAIL for r in again[name]))
    return [repeated(known[name], again[name]) for name in order if name in known]


def dry_run(machine, items, quick):
    """Print every command, and how many tests or rows it selects if the program was built. Return
    False if a built program cannot list them, or selects none."""
    wrong = []
    for item in items:
        command = command_of(machine, item, pathlib.Path("OUT"), quick)
        say(
            f"{item.stage} / {item.part} / {item.name}, {item.likely} to {item.limit} s\n"
            f"    {' '.join(command)}"
        )
        if not item.program:
            continue
        try:
            why = unbuilt(machine, item)
            names = [] if why else names_of(machine, item)
        except OSError as error:
            wrong.append(f"{item.name}: {error}")
            continue
        say(f"    {why or f'selects {len(names)}'}")
        if not why and not names:
            wrong.append(f"{item.name}: filter {item.chosen} matches nothing")
    for stage in dict.fromkeys(item.stage for item in items):
        say(f"{stage}: {sum(item.stage == stage for item in items)} items")
    for line in wrong:
        print(line, file=sys.stderr)
    return not wrong


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "stages", nargs="*", metavar="stage", help=f"{' or '.join(STAGES)}; default: both"
    )
    parser.add_argument(
        "--programs", type=pathlib.Path, required=True, help="folder of a build or a pack"
    )
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/gpu/out"))
    parser.add_argument(
        "--failed",
        type=pathlib.Path,
        metavar="JSON",
        help="verdicts of an earlier run; `second` first repeats its failed and unfinished items",
    )
    parser.add_argument("--rows", type=pathlib.Path, help="a second folder for the rows")
    parser.add_argument("--part", choices=PARTS, action="append", help="only items of these parts")
    parser.add_argument(
        "--only", default="", metavar="PATTERN", help="only items whose names match"
    )
    parser.add_argument(
        "--budget", type=float, help=f"seconds per stage, 0: no limit; default: {STAGES}"
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=max(1, min(10, (os.cpu_count() or 1) - 2)),
        help="how many tests run at the same time; default: %(default)s",
    )
    parser.add_argument("--quick", action="store_true", help="shorter sequences, fewer samples")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="print the commands and what they select; needs no GPU",
    )
    if isinstance(sys.stdout, io.TextIOWrapper):  # not if it is closed
        sys.stdout.reconfigure(errors="replace")
    arguments = parser.parse_args()
    if unknown := set(arguments.stages) - set(STAGES):
        parser.error(f"argument stage: expected {' or '.join(STAGES)}, got {', '.join(unknown)}")
    if arguments.jobs < 1:
        parser.error(f"argument --jobs: expected a positive number, got {arguments.jobs}")
    if (arguments.budget or 0) < 0:
        parser.error(f"argument --budget: expected 0 or more seconds, got {arguments.budget:g}")
    try:
        only = re.compile(arguments.only)
        machine = Machine(arguments.programs.resolve())
    except re.error as error:
        parser.error(f"argument --only: expected a regular expression: {error}")
    except (OSError, ValueError) as error:
        parser.error(f"argument --programs: contents.json is damaged: {error}")
    again = []
    try:
        again = failed_before(arguments.failed) if arguments.failed else []
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(
            f"--failed {arguments.failed} is ignored, because it holds no verdicts: {error!r}",
            file=sys.stderr,
        )
    repeated = {item.name for item in again}
    chosen = [
        item
        for item in [
            *again,
            *(item for item in ITEMS if item.stage == "first" or item.name not in repeated),
        ]
        if (not arguments.stages or item.stage in arguments.stages)
        and (not arguments.part or item.part in arguments.part)
        and only.search(item.name)
    ]
    if not chosen:
        parser.error("no item has the given stages, parts and name")
    if arguments.dry_run:
        sys.exit(0 if dry_run(machine, chosen, arguments.quick) else 1)
    needed = {item.program for item in chosen if item.program}
    if needed and not any(map(machine.program, needed)):
        parser.error(
            f"argument --programs: {machine.folder} has none of {', '.join(sorted(needed))}"
        )
    for folder in filter(None, (arguments.out, arguments.rows)):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            parser.error(f"cannot write to {folder}: {error}")
    verdicts = set()
    for name in STAGES:
        items = [item for item in chosen if item.stage == name]
        if not items:
            continue
        budget = STAGES[name] if arguments.budget is None else arguments.budget
        stage = Stage(name, machine, arguments.out, budget, arguments.jobs, arguments.quick)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: machine.stop())
        try:
            verdicts |= stage.run(items)
        finally:
            stage.close(arguments.rows)
        if machine.stopped:
            break
    sys.exit(1 if FAIL in verdicts or machine.stopped else 0 if PASS in verdicts else 2)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs the items of items.py with what was built: each under a time limit of its own, whatever
became of those before it, and none that would not be done when time is over.

A stage leaves <stage>.txt, a line per item and the end of what failed, and <stage>.tar.gz with all
that was said (logs/) and the rows (rows/, cpu/). Ends with status 1 if an item failed."""
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
import subprocess
import sys
import tarfile
import tempfile
import time

import sources
from items import ITEMS, PARTS, QUOTED, STAGES

HERE = pathlib.Path(__file__).resolve().parent
BUDGET = 530           # seconds of all stages, where a command may take ten minutes
LEAST = 10             # seconds that an item gets at least
LONGEST_LOG = 1 << 20  # of a log, as many bytes of its begin and of its end are kept
MOST_TOLD = 20         # of a stage's failures, whose first and last lines are in its summary
MOST_FAILURES = 5      # of a test, which ends then
IDLE = re.compile(r"^Filters:|Catch\d? v.* host application|^Run with -\? for options")
SANITIZERS = ("memcheck", "racecheck", "synccheck", "initcheck")
# Sections rather than metrics, whose names differ between GPUs; clocks are left as they are found.
PROFILER = ("ncu", "--clock-control", "none", "--kernel-name-base", "demangled", "--page", "raw",
            *(word for section in ("SpeedOfLight", "SchedulerStats", "WarpStateStats", "Occupancy",
                                   "MemoryWorkloadAnalysis", "LaunchStats")
              for word in ("--section", section)))
PASSED, FAILED, LATE, LEFT_OUT, ABSENT = "passed", "failed", "timed out", "left out", "absent"


class Machine:
    """Where programs and tools are."""

    def __init__(self, folder, scripts=HERE, package=None):
        self.folder, self.scripts = folder, scripts
        self.package = package or folder / "python"
        contents = folder / "contents.json"
        self.contents = json.loads(contents.read_text()) if contents.exists() else {}
        self.environment = dict(os.environ, OMP_WAIT_POLICY="passive", PYTHONUNBUFFERED="1")
        tools = [*pathlib.Path("/usr/local").glob("cuda/bin"),
                 *sorted(pathlib.Path("/opt/nvidia/nsight-compute").glob("*"), reverse=True)]
        self.environment["PATH"] += "".join(f":{tool}" for tool in tools)
        self.environment["PYTHONPATH"] = str(self.package)
        # cuBLAS, which no pack has: of the toolkit, or of a framework.
        libraries = [*pathlib.Path("/usr/local/cuda").glob("lib64/libcublas.so.*"),
                     *(path for place in sys.path if place
                       for path in pathlib.Path(place).glob("nvidia/*/lib/libcublas.so.*"))]
        if libraries:
            known = self.environment.get("LD_LIBRARY_PATH", "").split(":")
            self.environment["LD_LIBRARY_PATH"] = ":".join(
                dict.fromkeys([*filter(None, known), *(str(path.parent) for path in libraries)]))

    def program(self, name):
        for place in ("", "bin", "bench/gpu", "bench", "tests"):
            path = self.folder / place / name
            if path.is_file():
                if not os.access(path, os.X_OK):  # what copies folders may forget that
                    path.chmod(0o755)
                return str(path)
        return None

    def module(self, name):
        find = "import importlib.util, sys; sys.exit(not importlib.util.find_spec(sys.argv[1]))"
        return subprocess.run([sys.executable, "-c", find, name], env=self.environment,
                              check=False).returncode == 0

    def tool(self, name):
        return shutil.which(name, path=self.environment["PATH"])


def said_by(machine, command, limit=60):
    return subprocess.run(command, env=machine.environment, text=True, check=False, timeout=limit,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout


def escaped(name):
    """A name as a filter of Catch2."""
    return re.sub(r"([\\,\[\]*\"~])", r"\\\1", name)


def names_of(machine, item):
    """The tests or the rows that an item selects."""
    path = machine.program(item.program)
    if item.benchmark:
        quick = ["--quick"] if "--quick" in item.more else []
        listed = said_by(machine, [path, "--benchmark_list_tests",
                                   f"--benchmark_filter={item.chosen or '.'}", *quick])
        if "Failed to match" in listed:
            return []
    else:
        chosen = [item.chosen] if item.chosen else []
        listed = said_by(machine, [path, "--list-test-names-only", *chosen])  # of version 2
        if "nrecognised token" in listed:
            listed = said_by(machine, [path, "--list-tests", "--verbosity", "quiet", *chosen])
    if "error while loading" in listed:
        raise OSError(listed.strip())
    return [line.strip() for line in listed.splitlines() if line.strip()]


class Task:
    """An item, or one of its tests, as a command."""

    def __init__(self, machine, item, out, quick=False, test=None):
        self.item = item
        self.name = item.name if test is None else f"{item.name}: {test.split(': ', 1)[-1]}"
        self.missing = None
        if item.words:
            places = {"programs": machine.folder, "scripts": machine.scripts, "out": out,
                      "package": machine.package, "python": sys.executable}
            self.command = [word.format(**places) for word in item.words]
            if quick and item.part == "peers":
                self.command.append("--quick")
            absent = [name for name in [self.command[0]] if not machine.tool(name)]
            absent += [name for name in item.modules.split() if not machine.module(name)]
            self.missing = ", ".join(absent)
            return
        self.command = [machine.program(item.program) or item.program]
        own = () if item.under == "ncu" else item.more
        if item.benchmark:
            if item.chosen:
                self.command.append(f"--benchmark_filter={item.chosen}")
            self.command += own
            if quick and "--quick" not in own:
                self.command.append("--quick")
            if item.part in ("bench", "cpu"):
                folder = "rows" if item.part == "bench" else "cpu"
                self.command += ["--benchmark_out_format=json",
                                 f"--benchmark_out={out}/{folder}/{file_name(item.name)}.json"]
        else:
            chosen = item.chosen if test is None else escaped(test)
            self.command += [*filter(None, [chosen]), "--warn", "NoTests", "--abortx",
                             str(MOST_FAILURES)]
        if item.under:
            tool = "compute-sanitizer" if item.under in SANITIZERS else item.under
            self.missing = None if machine.tool(tool) else tool
            front = (["compute-sanitizer", "--tool", item.under, "--error-exitcode", "9"]
                     if item.under in SANITIZERS else [*PROFILER, *item.more])
            self.command = front + self.command


def file_name(text):
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", text)[:80].strip("_")


class Result:
    def __init__(self, name, what, seconds=0.0, why="", log=None):
        self.name, self.what, self.seconds, self.why, self.log = name, what, seconds, why, log

    def line(self):
        said = f"{self.what}: {self.why}" if self.why else self.what
        return f"{self.name[:84]:84s} {self.seconds:7.1f} s  {said}"

    @property
    def bad(self):
        return self.what in (FAILED, LATE)


def finish(process, limit):
    """Its status, or None where it took too long and was killed."""
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        for how, patience in ((signal.SIGTERM, 5), (signal.SIGKILL, 10)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, how)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(patience)
                break
        return None


class Stage:
    """Those items of it that are asked for; `end` on the monotonic clock, or None."""

    def __init__(self, name, machine, out, end, jobs, quick):
        self.name, self.machine, self.out, self.jobs, self.quick = name, machine, out, jobs, quick
        self.end = end
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="stage_"))
        for folder in ("logs", "rows", "cpu"):
            (self.work / folder).mkdir()
        self.results, self.told, self.packed_at = [], 0, 0.0
        self.summary = (out / f"{name}.txt").open("w")

    def left(self):
        return self.end - time.monotonic() if self.end else float("inf")

    def tasks_of(self, item):
        """Tasks, or the reason why there are none as a result."""
        if item.program and not self.machine.program(item.program):
            return [Result(item.name, ABSENT, why=f"{item.program} was not built")]
        known = self.machine.contents.get("types")
        if known is not None and not set(item.wants.split()) <= set(known):
            return [Result(item.name, ABSENT, why=f"not built for {item.wants}")]
        tests = [None]
        if item.program:
            try:
                names = names_of(self.machine, item)
            except (OSError, subprocess.TimeoutExpired) as error:
                return [Result(item.name, FAILED, why=str(error)[-200:])]
            if not names:
                return [Result(item.name, FAILED, why=f"nothing is selected by {item.chosen}")]
            tests = names if item.separately else tests
        return [Task(self.machine, item, self.work, self.quick, test) for test in tests]

    def run_task(self, task):
        if isinstance(task, Result):
            return task
        if task.missing:
            return Result(task.name, ABSENT, why=task.missing)
        left = self.left()
        if left < max(task.item.likely, LEAST):
            return Result(task.name, LEFT_OUT, why="no time")
        log = self.work / "logs" / f"{file_name(task.name)}.log"
        begun = time.monotonic()
        limit = min(task.item.limit, left)
        environment = dict(self.machine.environment)
        threads = task.item.threads
        if not task.item.alone:  # a share of the cores
            threads = max(2, (os.cpu_count() or 1) // self.jobs)
        if threads:
            environment["OMP_NUM_THREADS"] = str(threads)
        with log.open("wb") as output:
            output.write((" ".join(task.command) + "\n").encode())
            output.flush()
            try:
                process = subprocess.Popen(task.command, stdout=output, stderr=subprocess.STDOUT,
                                           stdin=subprocess.DEVNULL, start_new_session=True,
                                           env=environment)
            except OSError as error:
                return Result(task.name, FAILED, why=str(error))
            status = finish(process, limit)
        seconds = time.monotonic() - begun
        if status is None:
            return Result(task.name, LATE, seconds, f"{limit:.0f} s", log)
        if status != 0:
            return Result(task.name, FAILED, seconds, f"status {status}", log)
        if not re.search(task.item.says, log.read_text(errors="replace")):
            return Result(task.name, FAILED, seconds, f"does not say {task.item.says}", log)
        return Result(task.name, PASSED, seconds, log=log)

    def say(self, line):
        print(line, flush=True)
        print(line, file=self.summary, flush=True)

    def note(self, result, item):
        self.results.append(result)
        lines = [result.line()]
        if result.log:
            text = [" ".join(line.split())[:200] for line in
                    result.log.read_text(errors="replace").splitlines()[1:]  # behind the command
                    if re.search(r"\w", line) and not IDLE.search(line)]
            quoted = [line for line in text if re.search(QUOTED[item.part], line)]
            if result.bad:
                self.told += 1
                quoted = text if len(text) <= 14 else [*text[:8], "[...]", *text[-6:]]
                if self.told > MOST_TOLD:
                    quoted = []
            lines += ["    | " + line for line in quoted[:60]]
        for line in lines:
            self.say(line)
        if time.monotonic() - self.packed_at > 20:
            self.pack()

    def pack(self):
        """All logs and rows in one file, as far as there are any: a stage may be cut off."""
        path = self.out / f"{self.name}.tar.gz"
        with tarfile.open(f"{path}.part", "w:gz") as packed:
            for file in sorted(self.work.glob("*/*")):
                data = file.read_bytes()
                if len(data) > 2 * LONGEST_LOG and file.suffix == ".log":
                    data = data[:LONGEST_LOG] + b"\n[...]\n" + data[-LONGEST_LOG:]
                about = tarfile.TarInfo(f"{file.parent.name}/{file.name}")
                about.size, about.mtime = len(data), int(file.stat().st_mtime)
                packed.addfile(about, io.BytesIO(data))
        os.replace(f"{path}.part", path)
        self.packed_at = time.monotonic()

    def run(self, items):
        print(f"stage {self.name}: {self.jobs} tests side by side", file=self.summary, flush=True)
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            running = {}

            def wait_for_all():
                for future in concurrent.futures.as_completed(running):
                    self.note(future.result(), running[future])
                running.clear()
            for item in items:
                if item.alone:
                    wait_for_all()
                for task in self.tasks_of(item):
                    running[pool.submit(self.run_task, task)] = item
                    if item.alone:
                        wait_for_all()
            wait_for_all()
        counts = {what: sum(r.what == what for r in self.results)
                  for what in (PASSED, FAILED, LATE, LEFT_OUT, ABSENT)}
        for line in [*(result.line() for result in self.results if result.bad),
                     f"{self.name}: " + ", ".join(f"{n} {what}" for what, n in counts.items() if n)]:
            self.say(line)
        self.pack()
        return not any(result.bad for result in self.results)

    def close(self, rows=None):
        if rows:
            for file in (self.work / "rows").glob("*.json"):
                shutil.copy(file, rows)
        self.summary.close()
        shutil.rmtree(self.work, ignore_errors=True)


def dry_run(machine, items, quick):
    """Shows every command; what selects nothing is an error, by the program's own list where it is
    built, else by the sources."""
    wrong = []
    for item in items:
        known = machine.contents.get("types")
        built = bool(item.program and machine.program(item.program) and
                     (known is None or set(item.wants.split()) <= set(known)))
        task = Task(machine, item, pathlib.Path("OUT"), quick)
        print(f"{item.stage} / {item.part} / {item.name}, {item.likely} to {item.limit} s"
              f"{'' if built or item.words else ', not built'}\n    {' '.join(task.command)}")
        if not item.program:
            continue
        names = names_of(machine, item) if built else sources.names_of(item)
        if names is None:
            print("    neither built nor in the sources")
            continue
        print(f"    {len(names)} {'rows' if item.benchmark else 'tests'}"
              f"{', each in a process of its own' if item.separately else ''}")
        if not names:
            wrong.append(f"{item.name}: nothing is selected by {item.chosen}")
        if built and item.separately:
            for test in names:
                found = said_by(machine, [machine.program(item.program), "--list-tests",
                                          escaped(test)])
                if not re.search(r"^1 (matching )?test case", found, re.MULTILINE):
                    wrong.append(f"{item.name}: not one test by {escaped(test)}")
    for stage in dict.fromkeys(item.stage for item in items):
        print(f"{stage}: {sum(item.stage == stage for item in items)} items")
    for line in wrong:
        print(line, file=sys.stderr)
    return not wrong


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="stages: " + "; ".join(f"{name}: {what}" for name, what in STAGES.items()))
    parser.add_argument("stages", nargs="*", metavar="stage", help="default: all")
    parser.add_argument("--programs", type=pathlib.Path, required=True, help="what was built")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/gpu/out"))
    parser.add_argument("--rows", type=pathlib.Path, help="rows are copied to this folder, too")
    parser.add_argument("--part", choices=PARTS, action="append", help="these parts of the stages")
    parser.add_argument("--only", default="", help="items whose names match this")
    parser.add_argument("--budget", type=float, default=BUDGET,
                        help="seconds in all; 0: as long as it takes")
    parser.add_argument("--jobs", type=int, default=max(1, min(6, (os.cpu_count() or 1) // 2)),
                        help="tests at the same time")
    parser.add_argument("--quick", action="store_true", help="shorter sequences, fewer samples")
    parser.add_argument("--dry-run", action="store_true",
                        help="shows the commands and what they select; needs no GPU")
    arguments = parser.parse_args()
    unknown = set(arguments.stages) - set(STAGES)
    if unknown:
        parser.error(f"no such stage: {', '.join(unknown)}; there are {', '.join(STAGES)}")
    chosen = [item for item in ITEMS
              if (not arguments.stages or item.stage in arguments.stages)
              and (not arguments.part or item.part in arguments.part)
              and re.search(arguments.only, item.name)]
    machine = Machine(arguments.programs.resolve())
    if arguments.dry_run:
        sys.exit(0 if dry_run(machine, chosen, arguments.quick) else 1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.rows:
        arguments.rows.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + arguments.budget if arguments.budget else None
    well = True
    for name in dict.fromkeys(item.stage for item in chosen):
        stage = Stage(name, machine, arguments.out, end, arguments.jobs, arguments.quick)
        try:
            well &= stage.run([item for item in chosen if item.stage == name])
        finally:
            stage.close(arguments.rows)
    sys.exit(0 if well else 1)


if __name__ == "__main__":
    main()

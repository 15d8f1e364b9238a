# SPDX-License-Identifier: BSD-3-Clause
"""Find the programs and tools of this machine, and run the commands of items (items.py)."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace

HERE = pathlib.Path(__file__).resolve().parent
MOST_FAILURES = 5  # assertion failures after which a test ends
MOST_SECONDS = 15  # for a program to list its tests
MOST_OUTPUT = 64 << 20  # bytes that a process may write to its log
SANITIZERS = ("memcheck", "racecheck")
# Request sections, because the names of metrics differ between GPUs. Do not lock the clocks.
PROFILER = (
    "ncu",
    "--clock-control",
    "none",
    "--kernel-name-base",
    "demangled",
    "--page",
    "raw",
    *(
        word
        for section in (
            "SpeedOfLight",
            "SchedulerStats",
            "WarpStateStats",
            "Occupancy",
            "MemoryWorkloadAnalysis",
            "LaunchStats",
        )
        for word in ("--section", section)
    ),
)


class Machine:
    """The programs, scripts and tools of this machine."""

    def __init__(self, folder, scripts=HERE):
        self.folder, self.scripts = folder, scripts
        self.processes, self.stopped = set(), False
        self.unlisted = {}  # programs that failed to list their tests, with the reason
        contents = folder / "contents.json"
        self.contents = json.loads(contents.read_text()) if contents.exists() else {}
        tools = [
            *pathlib.Path("/usr/local").glob("cuda/bin"),
            *sorted(pathlib.Path("/opt/nvidia/nsight-compute").glob("*"), reverse=True),
        ]
        self.path = ":".join([os.environ["PATH"], *map(str, tools)])
        # Prefer cuBLAS from a Python wheel: the frameworks depend on such a wheel.
        libraries = [
            *(
                path
                for folder in sys.path
                if folder
                for path in pathlib.Path(folder).glob("nvidia/*/lib/libcublas.so.*")
            ),
            *pathlib.Path("/usr/local/cuda").glob("lib64/libcublas.so.*"),
        ]
        self.folders = {
            "programs": folder,
            "scripts": scripts,
            "package": folder / "python",
            "site": folder / "site",
            "python": sys.executable,
            "cublas": ":".join(dict.fromkeys(str(path.parent) for path in libraries)),
        }

    def environment(self, item):
        """The environment of an item's processes."""
        known = dict(os.environ, PATH=self.path, OMP_WAIT_POLICY="passive", PYTHONUNBUFFERED="1")
        for name, value in (("PYTHONPATH", "{package}"), *item.environment):
            value = value.format(**self.folders)
            if name.endswith("PATH"):
                value = ":".join(filter(None, [value, known.get(name)]))
            known[name] = value
        return known

    def program(self, name):
        for folder in ("", "bin", "bench/gpu", "tests"):
            path = self.folder / folder / name
            if path.is_file():
                if not os.access(path, os.X_OK):  # copying may lose the permission
                    with contextlib.suppress(OSError):
                        path.chmod(0o755)
                return str(path)
        return None

    def run(self, command, environment, limit, output, errors=None):
        """Run a command in its own process group. Return its exit status, or why it was killed.
        Processes of the group that outlive the command are killed. Standard error goes to `output`
        unless `errors` is a file."""
        end = time.monotonic() + limit
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors or subprocess.STDOUT,
            start_new_session=True,
            env=environment,
        )
        self.processes.add(process)
        try:
            if self.stopped:  # stop() was called meanwhile.
                kill(process, signal.SIGKILL)
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return process.wait(max(0, min(0.1, end - time.monotonic())))
                if any(
                    os.fstat(file.fileno()).st_size > MOST_OUTPUT
                    for file in (output, errors)
                    if file
                ):
                    return f"wrote more than {MOST_OUTPUT >> 20} MiB"
                if time.monotonic() >= end:
                    kill(process, signal.SIGTERM)
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(2)
                    return f"timed out after {limit:.0f} s"
        finally:
            kill(process, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):  # A driver may block the kill.
                process.wait(2)
            self.processes.discard(process)

    def stop(self):
        """Kill all processes, and start no more."""
        self.stopped = True
        for process in list(self.processes):
            kill(process, signal.SIGKILL)

    def absent(self, command, item):
        """Return missing tools and modules."""
        find = (
            "import importlib.util, sys\n"
            "print(*(n for n in sys.argv[1:] if not importlib.util.find_spec(n)))"
        )
        absent = [] if shutil.which(command[0], path=self.path) else [command[0]]
        if item.modules:
            said, _ = said_by(self, item, [sys.executable, "-c", find, *item.modules.split()])
            absent += said.split()
        return ", ".join(absent)


def kill(process, how):
    with contextlib.suppress(OSError):
        os.killpg(process.pid, how)


def said_by(machine, item, command, limit=MOST_SECONDS):
    """Return standard output and standard error of a command. Raise OSError if it was killed."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        status = machine.run(command, machine.environment(item), limit, output, errors)
        if isinstance(status, str) or status < 0:
            raise OSError(f"{pathlib.Path(command[0]).name}: {ended_by(status)}")
        for file in (output, errors):
            file.seek(0)
        return tuple(file.read(MOST_OUTPUT).decode(errors="replace") for file in (output, errors))


def ended_by(status):
    """Describe the end of a process that failed."""
    if isinstance(status, str):
        return status
    with contextlib.suppress(ValueError):
        return f"killed by {signal.Signals(-status).name}"
    return f"status {status}"


def escaped(name):
    """The Catch2 filter that selects the test of this name."""
    return re.sub(r"([\\,\[\]*\"~])", r"\\\1", name)


def names_of(machine, item, limit=MOST_SECONDS):
    """Return the tests or the rows that an item selects, listed by its program. Raise OSError if
    the program cannot list them. A program that failed once is not run again."""
    if item.program in machine.unlisted:
        raise OSError(machine.unlisted[item.program])
    path = machine.program(item.program)
    try:
        if item.benchmark:
            quick = ["--quick"] if "--quick" in item.more else []
            listed, errors = said_by(
                machine,
                item,
                [
                    path,
                    "--benchmark_list_tests",
                    f"--benchmark_filter={item.chosen or '.'}",
                    *quick,
                ],
                limit,
            )
            if "Failed to match" in listed + errors:
                return []
        else:
            chosen = [item.chosen] if item.chosen else []
            listed, errors = said_by(  # Catch2 v2
                machine, item, [path, "--list-test-names-only", *chosen], limit
            )
            if "nrecognised token" in listed + errors:
                listed, errors = said_by(
                    machine, item, [path, "--list-tests", "--verbosity", "quiet", *chosen], limit
                )
        if "error while loading" in errors:
            raise OSError(f"cannot load {errors.rpartition(' libraries: ')[2].strip()}")
    except OSError as error:
        reason = f"listing its tests: {error}"
        if not machine.stopped:
            machine.unlisted[item.program] = reason
        raise OSError(reason) from error
    return [line.strip() for line in listed.splitlines() if line.strip()]


def unbuilt(machine, item, limit=MOST_SECONDS):
    """Return why the program of an item cannot run, or ''."""
    if not item.program:
        return ""
    if not machine.program(item.program):
        return f"{item.program} was not built"
    wanted, known = set(item.wants.split()), machine.contents.get("types")
    if known is not None:
        lacks = not wanted <= set(known)
    else:
        # Without contents.json, look for tests with the type's tag if only one type is wanted.
        lacks = len(wanted) == 1 and not names_of(
            machine, replace(item, chosen=f"[{item.wants}]"), limit
        )
    return f"not built for {item.wants}" if lacks else ""


def command_of(machine, item, out, quick=False, test=None):
    """The command of an item, or of one of its tests."""
    if item.words:
        command = [word.format(out=out, **machine.folders) for word in item.words]
        return command + ["--quick"] * (quick and item.part == "peers")
    command = [machine.program(item.program) or item.program]
    if item.benchmark:
        arguments = list(() if item.under == "ncu" else item.more)
        if (quick or item.under == "ncu") and "--quick" not in arguments:
            arguments.append("--quick")
        command += [f"--benchmark_filter={item.chosen}", *arguments]
        if item.part == "bench":
            command += [
                "--benchmark_out_format=json",
                f"--benchmark_out={out}/rows/{file_name(item.name)}.json",
            ]
    else:
        chosen = item.chosen if test is None else escaped(test)
        command += [*filter(None, [chosen]), "--warn", "NoTests", "--abortx", str(MOST_FAILURES)]
    if item.under in SANITIZERS:
        return ["compute-sanitizer", "--tool", item.under, "--error-exitcode", "9", *command]
    return [*PROFILER, *item.more, *command] if item.under else command


def file_name(text):
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", text)[:120].strip("_")

# SPDX-License-Identifier: BSD-3-Clause
"""The programs and tools of a machine, and the commands that run an item with them."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
from dataclasses import replace

HERE = pathlib.Path(__file__).resolve().parent
MOST_FAILURES = 5  # assertions of a test, which then ends
SANITIZERS = ("memcheck", "racecheck")
# Sections, because the names of metrics differ between GPUs. The clocks stay as they are.
PROFILER = ("ncu", "--clock-control", "none", "--kernel-name-base", "demangled", "--page", "raw",
            *(word for section in ("SpeedOfLight", "SchedulerStats", "WarpStateStats", "Occupancy",
                                   "MemoryWorkloadAnalysis", "LaunchStats")
              for word in ("--section", section)))


class Machine:
    """The programs, scripts and tools of this machine."""

    def __init__(self, folder, scripts=HERE):
        self.folder, self.scripts = folder, scripts
        contents = folder / "contents.json"
        self.contents = json.loads(contents.read_text()) if contents.exists() else {}
        tools = [*pathlib.Path("/usr/local").glob("cuda/bin"),
                 *sorted(pathlib.Path("/opt/nvidia/nsight-compute").glob("*"), reverse=True)]
        self.path = ":".join([os.environ["PATH"], *map(str, tools)])
        # cuBLAS of a framework's wheel before the toolkit's: the frameworks need their own.
        libraries = [*(path for place in sys.path if place
                       for path in pathlib.Path(place).glob("nvidia/*/lib/libcublas.so.*")),
                     *pathlib.Path("/usr/local/cuda").glob("lib64/libcublas.so.*")]
        self.places = {"programs": folder, "scripts": scripts, "package": folder / "python",
                       "site": folder / "site", "python": sys.executable,
                       "cublas": ":".join(dict.fromkeys(str(path.parent) for path in libraries))}

    def environment(self, item):
        """The environment of an item's processes."""
        known = dict(os.environ, PATH=self.path, OMP_WAIT_POLICY="passive", PYTHONUNBUFFERED="1")
        for name, value in (("PYTHONPATH", "{package}"), *item.environment):
            value = value.format(**self.places)
            if name.endswith("PATH"):
                value = ":".join(filter(None, [value, known.get(name)]))
            known[name] = value
        return known

    def program(self, name):
        for place in ("", "bin", "bench/gpu", "tests"):
            path = self.folder / place / name
            if path.is_file():
                if not os.access(path, os.X_OK):  # copying may lose the permission
                    path.chmod(0o755)
                return str(path)
        return None

    def absent(self, command, item):
        """The tool or the Python modules that a command needs and this machine lacks."""
        find = ("import importlib.util, sys\n"
                "print(*(n for n in sys.argv[1:] if not importlib.util.find_spec(n)))")
        absent = [] if shutil.which(command[0], path=self.path) else [command[0]]
        if item.modules:
            absent += said_by(self, item, [sys.executable, "-c", find, *item.modules.split()]).split()
        return ", ".join(absent)


def said_by(machine, item, command, limit=60):
    return subprocess.run(command, env=machine.environment(item), check=False, timeout=limit,
                          text=True, errors="replace", stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT).stdout


def escaped(name):
    """The Catch2 filter that selects the test of this name."""
    return re.sub(r"([\\,\[\]*\"~])", r"\\\1", name)


def names_of(machine, item):
    """The tests or the rows that an item selects, by its program's own list."""
    path = machine.program(item.program)
    if item.benchmark:
        quick = ["--quick"] if "--quick" in item.more else []
        listed = said_by(machine, item, [path, "--benchmark_list_tests",
                                         f"--benchmark_filter={item.chosen or '.'}", *quick])
        if "Failed to match" in listed:
            return []
    else:
        chosen = [item.chosen] if item.chosen else []
        listed = said_by(machine, item, [path, "--list-test-names-only", *chosen])  # Catch2 v2
        if "nrecognised token" in listed:
            listed = said_by(machine, item, [path, "--list-tests", "--verbosity", "quiet", *chosen])
    if "error while loading" in listed:
        raise OSError(listed.strip())
    names = [line.strip() for line in listed.splitlines() if line.strip()]
    return [name for name in names if name in item.tests] if item.tests else names


def unbuilt(machine, item):
    """Why the program of an item cannot run; empty if it can."""
    if not item.program:
        return ""
    if not machine.program(item.program):
        return f"{item.program} was not built"
    wanted, known = set(item.wants.split()), machine.contents.get("types")
    if known is not None:
        lacks = not wanted <= set(known)
    else:  # a build: a battery has a tag for each of its types
        lacks = len(wanted) == 1 and not names_of(
            machine, replace(item, chosen=f"[{item.wants}]", tests=()))
    return f"not built for {item.wants}" if lacks else ""


def command_of(machine, item, out, quick=False, test=None):
    """The command of an item, or of one of its tests."""
    if item.words:
        command = [word.format(out=out, **machine.places) for word in item.words]
        return command + ["--quick"] * (quick and item.part == "peers")
    command = [machine.program(item.program) or item.program]
    if item.benchmark:
        arguments = list(() if item.under == "ncu" else item.more)
        if (quick or item.under == "ncu") and "--quick" not in arguments:
            arguments.append("--quick")
        command += [f"--benchmark_filter={item.chosen}", *arguments]
        if item.part == "bench":
            command += ["--benchmark_out_format=json",
                        f"--benchmark_out={out}/rows/{file_name(item.name)}.json"]
    else:
        chosen = item.chosen if test is None else escaped(test)
        command += [*filter(None, [chosen]), "--warn", "NoTests", "--abortx", str(MOST_FAILURES)]
    if item.under in SANITIZERS:
        return ["compute-sanitizer", "--tool", item.under, "--error-exitcode", "9", *command]
    return [*PROFILER, *item.more, *command] if item.under else command


def file_name(text):
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", text)[:120].strip("_")

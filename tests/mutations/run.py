#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Mutate the sources in one place at a time, and report which mutations the tests detect.

A test detects a mutation by a fault, by wrong values, or by running into the time limit. The lists
are gpu_kernels.py, cpu_kernels.py and bindings.py in this folder; all of them run by default.
Mutations are applied to a copy of the sources in a temporary folder. The script fails if a mutation
without a reason in `unseen` (mutation.py) is missed, or if one with a reason is detected. --check
only verifies that every mutation applies: the replaced text must occur exactly once in its file.
"""

import argparse
import importlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
LISTS = ("gpu_kernels", "cpu_kernels", "bindings")


def check(name, listed):
    """Return whether every mutation of a list applies. Print those that do not."""
    wrong = 0
    for m in listed.MUTATIONS:
        text = (ROOT / listed.FOLDER / m.file).read_text()
        for old, _ in m.edits:
            if text.count(old) != 1:
                wrong += 1
                print(f"{m.file}: found {text.count(old)} times: {old!r} ({m.why})")
    print(f"{name}: {len(listed.MUTATIONS)} mutations, {wrong} of which do not apply")
    return wrong == 0


class Compiled:
    """Tests of a copy of the C++ sources, built by CMake."""

    def __init__(self, listed, folder, options):
        self.options, self.build = options, folder / "build"
        source = folder / "scanrec"
        shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns("build", ".git", "__pycache__"))
        self.sources = source / listed.FOLDER
        # Precompiled headers are off: they would be compiled again for every mutation.
        subprocess.run(
            [
                "cmake",
                "-S",
                source,
                "-B",
                self.build,
                "-G",
                "Ninja",
                "-DCMAKE_BUILD_TYPE=Release",
                "-DSCANREC_BUILD_BENCH=OFF",
                "-DSCANREC_BUILD_EXAMPLES=OFF",
                "-DSCANREC_CUDA=OFF",
                "-DSCANREC_INSTALL=OFF",
                "-DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON",
                *listed.CMAKE,
            ],
            check=True,
            stdout=subprocess.DEVNULL,
        )

    def outcome(self, test, cases):
        """Run a test and return a description of its failure, or "" if it passes."""
        made = subprocess.run(
            ["ninja", "-C", self.build, f"-j{self.options.jobs}", test],
            capture_output=True,
            text=True,
        )
        if made.returncode != 0:
            print(made.stdout)
            sys.exit(f"{test} does not compile, with a mutation or without")
        how, ran = ended(
            [self.build / "tests" / test, "--abort", *([cases] if cases else [])],
            self.options.seconds,
            OMP_WAIT_POLICY="passive",
        )
        said = re.search(r"exception with message:\s+(.*)|(SIG\w+)", ran)
        return how and (said[1] or said[2] if said else how)[:70]


class Interpreted:
    """Tests of a copy of the Python package, with the libraries of an installed package."""

    def __init__(self, listed, folder, options):
        self.options, self.sources = options, folder / "scanrec"
        shutil.copytree(
            ROOT / listed.FOLDER,
            self.sources,
            ignore=shutil.ignore_patterns("*.so*", "__pycache__"),
        )
        package = options.package or next(ROOT.glob(listed.PACKAGE), None)
        if package is None:
            sys.exit(f"there is no {listed.PACKAGE}: run scripts/test, or name a --package")
        for library in package.glob("*.so*"):
            (self.sources / library.name).symlink_to(library.resolve())
        # The package is lib/python3*/site-packages/scanrec of an environment.
        self.python = package.absolute().parents[3] / "bin/python"

    def outcome(self, test, cases):
        """Run a test and return a description of its failure, or "" if it passes."""
        how, ran = ended(
            [
                self.python,
                "-m",
                "pytest",
                "-q",
                "-x",
                "-p",
                "no:cacheprovider",
                "--tb=line",
                ROOT / "python/tests" / test,
                *(["-k", cases] if cases else []),
            ],
            self.options.seconds,
            PYTHONPATH=str(self.sources.parent),
            OMP_WAIT_POLICY="passive",
            PYTHONDONTWRITEBYTECODE="1",
            # The optimisations of XLA are not under test, and the tests are faster without them.
            XLA_FLAGS="--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true",
        )
        said = re.search(r"^(?:FAILED|ERROR) \S*?(?:::(\S+).*)?$", ran, re.MULTILINE)
        return how and (said[1] if said and said[1] else how)


def ended(command, seconds, **environment):
    """Run a command. Return its failure ("" if it passes) and its output."""
    try:
        # The output of a broken test may be invalid text.
        ran = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            env={**os.environ, **environment},
            cwd=tempfile.gettempdir(),
        )
    except subprocess.TimeoutExpired:
        return "does not end", ""
    return "wrong values" if ran.returncode != 0 else "", ran.stdout


def run(listed, chosen, options):
    """Run the chosen mutations, print a line for each, and return whether all are as expected."""
    right = True
    with tempfile.TemporaryDirectory() as folder:
        kind = Compiled if hasattr(listed, "CMAKE") else Interpreted
        tests = kind(listed, pathlib.Path(folder), options)
        passed = set()
        for m in chosen:
            test = m.test or listed.TEST, m.cases
            if test not in passed:
                how = tests.outcome(*test)
                if how:
                    sys.exit(f"{' '.join(test)} fails without mutations: {how}")
                passed.add(test)
            file = tests.sources / m.file
            text = broken = file.read_text()
            for old, new in m.edits:
                broken = broken.replace(old, new)
            file.write_text(broken)
            how = tests.outcome(*test)
            file.write_text(text)
            right = right and bool(how) != bool(m.unseen)
            verdict = "noticed  " if how else "unseen   " if m.unseen else "UNNOTICED"
            print(f"{verdict} {m.file:14} {m.why}: {how or m.unseen}", flush=True)
    return right


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("lists", nargs="*", metavar="LIST", help=", ".join(LISTS))
    parser.add_argument("--check", action="store_true", help="only check that all mutations apply")
    parser.add_argument(
        "--only",
        default="",
        metavar="TEXT",
        help="run only mutations whose file or description contains TEXT",
    )
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=120, help="time limit of a test")
    parser.add_argument(
        "--package",
        type=pathlib.Path,
        metavar="FOLDER",
        help="installed Python package with the libraries; default: the one of scripts/test",
    )
    options = parser.parse_args()
    for name in options.lists:
        if name not in LISTS:
            parser.error(f"LIST: expected one of {', '.join(LISTS)}, got {name}")
    lists = {name: importlib.import_module(name) for name in options.lists or LISTS}
    right = all([check(name, listed) for name, listed in lists.items()])
    if options.check or not right:
        return 0 if right else 1
    for listed in lists.values():
        chosen = [m for m in listed.MUTATIONS if options.only in m.file or options.only in m.why]
        right = (not chosen or run(listed, chosen, options)) and right
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())

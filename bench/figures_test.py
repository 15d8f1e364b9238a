#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests of figures.py and scripts/figures on a repository of a few files."""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import figures

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = "python/src/scanrec"
FILES = {
    "bench/s5.cpp": '#include <vector>\n#include <scanrec/s5.hpp>\n#include "measure.hpp"\n',
    "bench/main.cpp": "",
    "bench/measure.hpp": "#pragma once\n",
    "include/scanrec/s5.hpp": "// Comment.\n#include <scanrec/detail/kernel.hpp>\nint s5(int x);\n",
    "include/scanrec/detail/kernel.hpp": (
        'const char* url = "http://x";  // y\nint f(int x) { return x; }\n'
    ),
    "include/scanrec/other.hpp": "int other();\n",
    "bench/python/compile_time.py": "from measure import time\nimport scanrec.jax\n",
    "bench/python/measure.py": "time = 1\n",
    f"{PACKAGE}/__init__.py": (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from . import torch\n"
    ),
    f"{PACKAGE}/torch.py": "x = 1\n",
    f"{PACKAGE}/jax/__init__.py": '"""Calls."""\nfrom ._calls import call\n',
    f"{PACKAGE}/jax/_calls.py": 'def call(x):\n    """Call."""\n    return x\n',
}
# Of the commands of scripts/lib.sh those that do anything are replaced; the build is a benchmark.
LIB = """cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=PYTHON
say() { :; }; need() { :; }; configure() { :; }
build() { mkdir -p build/figures/bench; cp bench_s5 build/figures/bench; }
"""
BENCHMARK = """#!/bin/sh
cat >"${1#--benchmark_out=}" <<'JSON'
{"context": {"date": "2026-01-02T03:04:05+00:00", "host_name": "private",
 "executable": "/private/bench_s5", "commit": "older-dirty"}, "benchmarks": []}
JSON
"""


class Repository:
    def __init__(self, folder):
        self.root = pathlib.Path(folder)
        self.git("init", "--quiet")
        for name, text in FILES.items():
            self.write(name, text)
        self.first = self.commit()
        self.record("s5-machine.json", {"context": {"commit": self.first, "date": "2026-01-02"}})
        self.record("python/compile_time.json", {"commit": self.first, "date": "2026-01-02"})

    def git(self, *arguments):
        identity = ("-c", "user.name=test", "-c", "user.email=test@example.org")
        return subprocess.run(
            ["git", "-C", self.root, *identity, *arguments],
            check=True,
            text=True,
            stdout=subprocess.PIPE,
        ).stdout.strip()

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def replace(self, name, old, new):
        text = (self.root / name).read_text(encoding="utf-8")
        assert old in text
        self.write(name, text.replace(old, new))

    def record(self, name, context):
        self.write(f"bench/results/{name}", json.dumps(context))

    def commit(self):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", "change")
        return self.git("rev-parse", "--short", "HEAD")

    def figures(self, *arguments):
        """Status and output of figures.py."""
        done = subprocess.run(
            [sys.executable, figures.__file__, "--root", self.root, *arguments],
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        return done.returncode, done.stdout

    def stale(self):
        """The files that --check names, with the reasons."""
        status, output = self.figures("--check")
        *lines, last = output.splitlines()
        assert status == bool(lines), output
        assert last == f"{len(lines)} of 2 figures are older than the code they measure", output
        return dict(line.split(": ", 1) for line in lines)


def in_repository(test):
    def run():
        with tempfile.TemporaryDirectory() as folder:
            test(Repository(folder))

    run.__name__ = test.__name__
    return run


@in_repository
def figures_are_listed_with_commit_and_age(repository):
    status, output = repository.figures()
    assert status == 0 and len(output.splitlines()) == 2
    assert "s5-machine.json" in output and repository.first in output and " d  " in output


@in_repository
def figures_of_unchanged_code_are_not_stale(repository):
    repository.commit()
    assert repository.stale() == {}


@in_repository
def comments_docstrings_and_line_breaks_do_not_count(repository):
    repository.replace("include/scanrec/s5.hpp", "// Comment.", "/* Another\n comment. */")
    repository.replace("include/scanrec/detail/kernel.hpp", "{ return x; }", "{\n  return x;\n}")
    repository.replace(f"{PACKAGE}/jax/_calls.py", '"""Call."""', '"""A call."""  # comment')
    assert repository.stale() == {}


@in_repository
def a_change_of_an_included_header_counts(repository):
    repository.replace("include/scanrec/detail/kernel.hpp", "return x", "return x + 1")
    repository.commit()
    repository.replace("bench/measure.hpp", "once\n", "once\nint y;\n")
    stale = repository.stale()
    assert list(stale) == ["s5-machine.json"]
    assert (
        "2 files changed, 2 insertions(+), 1 deletion(-) in 1 commits since"
        in stale["s5-machine.json"]
    )
    assert "docs/s5.md" in stale["s5-machine.json"]


@in_repository
def a_change_within_a_string_counts(repository):
    repository.replace("include/scanrec/detail/kernel.hpp", "http://x", "http://z")
    assert list(repository.stale()) == ["s5-machine.json"]


@in_repository
def a_change_of_an_imported_module_counts(repository):
    repository.replace(f"{PACKAGE}/jax/_calls.py", "return x", "return -x")
    assert list(repository.stale()) == ["python/compile_time.json"]


@in_repository
def a_new_header_counts(repository):
    repository.write("include/scanrec/new.hpp", "int y;\n")
    repository.replace("include/scanrec/s5.hpp", "#include", "#include <scanrec/new.hpp>\n#include")
    repository.commit()
    assert list(repository.stale()) == ["s5-machine.json"]


@in_repository
def changes_elsewhere_do_not_count(repository):
    repository.replace("include/scanrec/other.hpp", "other", "another")
    repository.replace(f"{PACKAGE}/torch.py", "1", "2")  # imported for type checkers alone
    assert repository.stale() == {}


@in_repository
def commits_that_say_nothing_count_as_stale(repository):
    for commit, reason in (
        ("0123456", "unknown commit 0123456"),
        ("", "records no commit"),
        (repository.first + "-dirty", "changes that were not committed"),
        (f"{repository.first}, 0123456", "unknown commit 0123456"),
    ):
        repository.record("s5-machine.json", {"context": {"commit": commit}})
        stale = repository.stale()
        assert list(stale) == ["s5-machine.json"] and reason in stale["s5-machine.json"], stale


@in_repository
def results_without_a_figure_are_refused(repository):
    repository.record("s6-machine.json", {})
    status, output = repository.figures("--check")
    assert status == 1 and "bench/results/s6-machine.json: expected" in output


@in_repository
def measuring_records_commit_and_machine(repository):
    repository.write("scripts/lib.sh", LIB.replace("PYTHON", sys.executable))
    repository.write("bench_s5", BENCHMARK)
    repository.write(".gitignore", "build\n__pycache__\n")
    (repository.root / "bench_s5").chmod(0o755)
    shutil.copy(ROOT / "scripts" / "figures", repository.root / "scripts")
    shutil.copy(figures.__file__, repository.root / "bench")
    repository.replace("include/scanrec/detail/kernel.hpp", "return x", "return 2 * x")
    command = [
        repository.root / "scripts" / "figures",
        "--measure",
        "--machine",
        "machine",
        "One, 2 cores",
        "s5",
    ]
    refused = subprocess.run(command, text=True, stderr=subprocess.PIPE, check=False)
    assert refused.returncode == 1 and "without changes" in refused.stderr
    commit = repository.commit()
    assert list(repository.stale()) == ["s5-machine.json"]
    repository.record(
        "python/compile_time.json", {"commit": commit}
    )  # not committed, as results of this sitting
    subprocess.run(command, check=True)
    assert repository.stale() == {}
    context = json.loads(
        (repository.root / "bench/results/s5-machine.json").read_text(encoding="utf-8")
    )["context"]
    assert context == {
        "date": "2026-01-02T03:04:05+00:00",
        "executable": "bench_s5",
        "commit": commit,
        "machine": "One, 2 cores",
    }
    unknown = subprocess.run([*command, "s6"], text=True, stderr=subprocess.PIPE, check=False)
    assert unknown.returncode == 2 and "got 's6'" in unknown.stderr


def machines_are_described():
    def cpuinfo(vendor, family, model, flags):
        core = f"processor : 0\nvendor_id : {vendor}\ncpu family : {family}\n"
        return 2 * (core + f"model name : {model}\nflags : {flags}\n")

    for fields, expected in (
        (
            ("AuthenticAMD", 25, "AMD EPYC 9354 32-Core Processor", "avx2 avx512f hypervisor"),
            ("amd-zen4-2-cores", "AMD EPYC 9354 (Zen 4, AVX-512), 2 cores of a virtual machine"),
        ),
        (
            ("GenuineIntel", 6, "Intel(R) Xeon(R) Processor @ 2.10GHz", "avx2 avx512f"),
            ("intel-xeon-2-cores", "Intel Xeon (AVX-512), 2 cores"),
        ),
        (("Other", 1, "", ""), None),
    ):
        name, description = figures.machine(cpuinfo(*fields))
        assert name.endswith("-2-cores") and not name.startswith("-")
        assert expected is None or (name, description.rsplit(", ", 1)[0]) == expected, (
            name,
            description,
        )


def the_table_names_files_of_this_repository():
    for sources, documents in figures.FIGURES.values():
        assert all((ROOT / name).is_file() for name in documents)
        assert set(sources) <= set(figures.closure(ROOT, sources))
    assert "include/scanrec/detail/cpu/tile_policy.hpp" in figures.closure(
        ROOT, figures.FIGURES["linear_scan"][0]
    )
    assert f"{PACKAGE}/jax/_rules.py" in figures.closure(
        ROOT, figures.FIGURES["python/throughput"][0]
    )
    names = {figure.name for figure in figures.figures(ROOT)}
    assert names >= {"linear_scan", "python/selective_scan"}


if __name__ == "__main__":
    if not shutil.which("git") or not shutil.which("bash"):
        sys.exit(77)
    tests = [
        figures_are_listed_with_commit_and_age,
        figures_of_unchanged_code_are_not_stale,
        comments_docstrings_and_line_breaks_do_not_count,
        a_change_of_an_included_header_counts,
        a_change_within_a_string_counts,
        a_change_of_an_imported_module_counts,
        a_new_header_counts,
        changes_elsewhere_do_not_count,
        commits_that_say_nothing_count_as_stale,
        results_without_a_figure_are_refused,
        measuring_records_commit_and_machine,
        machines_are_described,
        the_table_names_files_of_this_repository,
    ]
    for test in tests:
        print(test.__name__)
        test()
    print(f"{len(tests)} tests passed")

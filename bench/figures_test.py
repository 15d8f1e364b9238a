#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests of table.py, and of figures.py on a repository of a few files."""

import pathlib
import shutil
import subprocess
import sys
import tempfile

import figures
import table

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = "python/src/scanrec"
FILES = {
    "bench/s5.cpp": '#include <vector>\n#include <scanrec/s5.hpp>\n#include "measure.hpp"\n',
    "bench/main.cpp": "",
    "bench/measure.hpp": "#pragma once\n",
    "include/scanrec/s5.hpp": '#include <scanrec/kernel.hpp>\nconst char* s = "http://x";  // y\n',
    "include/scanrec/kernel.hpp": "int f(int x) { return x; }\n",
    "include/scanrec/other.hpp": "int other();\n",
    "bench/python/compile_time.py": "import plot_jacobian\nimport scanrec.jax\n",
    f"bench/python/{figures.DRAWING}": "x = 1\n",
    f"{PACKAGE}/__init__.py": "if TYPE_CHECKING:\n    from . import torch\n",
    f"{PACKAGE}/torch.py": "x = 1\n",
    f"{PACKAGE}/jax/__init__.py": "from ._calls import call\n",
    f"{PACKAGE}/jax/_calls.py": 'def call(x):\n    """Call."""\n    return x\n',
}
CPP, PYTHON = ["s5-machine.tsv"], ["python/compile_time.tsv"]
#: A file, its change (old and new text), and the files of results that become stale.
CHANGES = (
    ("include/scanrec/s5.hpp", "// y", "/* another\n comment */", []),
    ("include/scanrec/kernel.hpp", "{ return x; }", "{\n  return x;\n}", []),
    ("include/scanrec/other.hpp", "other", "another", []),
    (f"{PACKAGE}/jax/_calls.py", '"""Call."""', '"""A call."""  # comment', []),
    (f"{PACKAGE}/torch.py", "1", "2", []),  # imported only for type checkers
    (f"bench/python/{figures.DRAWING}", "1", "2", []),
    ("bench/measure.hpp", "once\n", "once\nint y;\n", CPP),
    ("include/scanrec/kernel.hpp", "return x", "return x + 1", CPP),
    ("include/scanrec/s5.hpp", "http://x", "http://z", CPP),
    ("include/scanrec/s5.hpp", "#include", "#include <scanrec/new.hpp>\n#include", CPP),
    (f"{PACKAGE}/jax/_calls.py", "return x", "return -x", PYTHON),
)


def commit(root):
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.org")
    for arguments in (["add", "--all"], ["commit", "--quiet", "--message", "change"]):
        subprocess.run(["git", "-C", root, *identity, *arguments], check=True)
    return figures.git(root, "rev-parse", "--short", "HEAD").stdout.strip()


def check(root):
    command = [sys.executable, figures.__file__, "--root", root, "--check"]
    done = subprocess.run(command, text=True, capture_output=True, check=False)
    return done.returncode, done.stdout + done.stderr


def stale(root):
    status, output = check(root)
    *lines, last = output.splitlines()
    assert status == bool(lines) and last.startswith(f"{len(lines)} of 2 figures"), output
    return [line.split(": ")[0] for line in lines], output


def test_only_changed_code_makes_figures_stale(root):
    def record(name, recorded):
        table.write(root / "bench/results" / name, {"commit": recorded}, [{"name": "row"}])

    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    figures.git(root, "init", "--quiet")
    first = commit(root)
    (root / "include/scanrec/new.hpp").write_text("int y;\n")
    commit(root)
    for name in (*CPP, *PYTHON):
        record(name, first)
    for name, old, new, expected in CHANGES:
        assert old in FILES[name], name
        (root / name).write_text(FILES[name].replace(old, new))
        assert stale(root)[0] == expected, (name, new)
        (root / name).write_text(FILES[name])
    for recorded, reason in (
        ("0123456", "unknown commit 0123456"),
        ("", "records no commit"),
        (f"{first}-dirty", "changes that were not committed"),
        (f"{first}, 0123456", "unknown commit 0123456"),
    ):
        record(CPP[0], recorded)
        names, output = stale(root)
        assert names == CPP and reason in output and "docs/s5.md" in output, output
    record("s6-machine.tsv", first)
    assert "bench/results/s6-machine.tsv: expected" in check(root)[1]


def test_tables_keep_rows(folder):
    for rows in (
        [{"name": "a b", "time": 0.25, "steps": 2**40}, {"name": "c", "unit": "ms"}],
        [{"of": "x", "way": way, "milliseconds": 1.5} for way in ("scanrec", "lax.scan")],
    ):
        table.write(folder / "x.tsv", {"commit": "12345678"}, rows)
        assert table.read(folder / "x.tsv") == ({"commit": "12345678"}, rows)


def test_every_figure_of_this_repository_has_its_sources_and_documents():
    for sources, documents in figures.FIGURES.values():
        assert all((ROOT / name).is_file() for name in documents)
        assert set(sources) <= set(figures.closure(ROOT, sources))
    for name, file in (
        ("linear_scan", "include/scanrec/detail/cpu/tile_policy.hpp"),
        ("python/throughput", f"{PACKAGE}/_jax/fused.py"),
    ):
        assert file in figures.closure(ROOT, figures.FIGURES[name][0])
    assert {figure.name for figure in figures.figures(ROOT)} <= set(figures.FIGURES)


if __name__ == "__main__":
    if not shutil.which("git"):
        sys.exit(77)
    for test in (test_only_changed_code_makes_figures_stale, test_tables_keep_rows):
        with tempfile.TemporaryDirectory() as folder:
            test(pathlib.Path(folder))
    test_every_figure_of_this_repository_has_its_sources_and_documents()

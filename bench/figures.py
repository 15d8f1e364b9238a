#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""List the figures of bench/results, or with --check those that are older than the code they measure.

A figure is a file of results. It is stale if its code changed since the commit that the file records. Its code
consists of its sources in FIGURES, and of every file of this repository that they include or import. Comments,
docstrings and line breaks do not count. With --check, prints only the stale figures and exits with status 1 if
there are any.
"""

import argparse
import ast
import dataclasses
import datetime
import functools
import pathlib
import platform
import re
import subprocess
import sys

import table


def native(*names):
    return tuple(f"python/native/{name}.cpp" for name in names)


LINEAR = native("element_calls", "axes", "thread_pool", "xla")
GATED = native("gated_calls")
SELECTIVE = native("selective_calls", "axes", "thread_pool")
CONV1D = native("conv1d_calls", "axes", "thread_pool")
PYTHON = ("docs/python_linear_scan.md",)
#: For each kind of figure: the sources where the search for includes and imports begins, and the
#: documents that quote it in addition to bench/results/README.md. A file has the name of its kind,
#: optionally followed by a dash and a machine, or lies in a folder of that name.
FIGURES = {
    "linear_scan": (
        ("bench/linear_scan.cpp", "bench/main.cpp"),
        ("README.md", "docs/questions.md", "docs/tuning.md"),
    ),
    "gated_scan": (("bench/gated_scan.cpp", "bench/main.cpp"), ("docs/qrnn.md",)),
    "selective_scan": (("bench/selective_scan.cpp", "bench/main.cpp"), ("docs/selective_scan.md",)),
    "causal_conv1d": (("bench/causal_conv1d.cpp", "bench/main.cpp"), ("docs/causal_conv1d.md",)),
    "linear_attention": (
        ("bench/linear_attention.cpp", "bench/main.cpp"),
        ("docs/linear_attention.md",),
    ),
    "s5": (("bench/s5.cpp", "bench/main.cpp"), ("docs/s5.md",)),
    "text_model": (("bench/text_model.cpp", "bench/main.cpp"), ()),
    "scan_variants": (("bench/scan_variants.cpp", "bench/variants.cpp"), ("docs/scan.md",)),
    "distributed": (
        ("bench/distributed/phases.cpp", "bench/distributed/fold.cpp", "bench/distributed/run.sh"),
        ("docs/distributed.md",),
    ),
    "gpu": (
        tuple(
            f"bench/gpu/{name}"
            for name in (
                *("linear_scan.cu", "gated_scan.cu", "selective_scan.cu"),
                *("variants.cu", "peers.cu", "peers.py"),
            )
        ),
        ("README.md", "docs/cuda.md"),
    ),
    "python/throughput": (
        ("bench/python/throughput.py", *LINEAR, *GATED),
        ("README.md", *PYTHON, "docs/python_gated_scan.md"),
    ),
    "python/call_overhead": (
        ("bench/python/call_overhead.py", *LINEAR, "python/native/library.cpp"),
        PYTHON,
    ),
    "python/compile_time": (
        ("bench/python/compile_time.py",),
        (*PYTHON, "docs/python_gated_scan.md"),
    ),
    "python/peak_memory": (("bench/python/peak_memory.py", *LINEAR), PYTHON),
    "python/log_step_qrnn": (("bench/python/log_step_qrnn.py", *LINEAR), PYTHON),
    "python/gate_jacobian": (("bench/python/gate_jacobian.py", *LINEAR), PYTHON),
    "python/selective_scan": (
        ("bench/python/selective_scan.py", *SELECTIVE),
        ("README.md", "docs/selective_scan.md"),
    ),
    "python/causal_conv1d": (
        ("bench/python/causal_conv1d.py", *CONV1D),
        ("docs/causal_conv1d.md",),
    ),
    "python/linear_attention": (
        ("bench/python/linear_attention.py", "bench/linear_attention_calls.cpp"),
        ("docs/linear_attention.md",),
    ),
    "python/transformers_mamba": (
        ("bench/python/transformers_mamba.py", *SELECTIVE, *CONV1D),
        ("docs/selective_scan.md", "docs/causal_conv1d.md", "docs/questions.md"),
    ),
}
#: A file that draws a benchmark's results. The benchmark imports it, but the figures do not depend on it.
DRAWING = "plot_jacobian.py"
CODE_OR_COMMENT = re.compile(
    r'(R"([^(\s]*)\(.*?\)\2"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\')|//[^\n]*|/\*.*?\*/|\s+',
    re.S,
)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"].*$', re.M)


def included(root, path, text):
    """The files of the repository that a C++ source includes."""
    for name in INCLUDE.findall(text):
        for folder in (path.parent, root / "include"):
            if (folder / name).is_file():
                yield (folder / name).resolve()
                break


def imported(root, path, text):
    """The files of the repository that a Python source imports, without imports for type checkers."""

    def visit(node):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            return
        if isinstance(node, ast.Import):
            yield from ((alias.name, 0) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            yield module, node.level
            yield from ((f"{module}.{alias.name}".strip("."), node.level) for alias in node.names)
        for child in ast.iter_child_nodes(node):
            yield from visit(child)

    for name, level in visit(ast.parse(text)):
        folders = [path.parents[level - 1]] if level else [path.parent, root / "python" / "src"]
        parts = name.split(".") if name else []
        for folder in folders:
            # A module and its parent packages, whose __init__ runs first.
            for i in range(len(parts) + 1):
                package = folder.joinpath(*parts[:i])
                for file in (package / "__init__.py", package.with_suffix(".py")):
                    if file.is_file() and (i or level):
                        yield file.resolve()


def closure(root, sources):
    """The sources, and all files of the repository that they include or import, directly or indirectly."""
    found, waiting = set(), [(root / source).resolve() for source in sources]
    while waiting:
        path = waiting.pop()
        if path not in found and path.name != DRAWING:
            found.add(path)
            text = path.read_text(encoding="utf-8")
            follow = (
                imported if path.suffix == ".py" else included if path.suffix != ".sh" else None
            )
            waiting += follow(root, path, text) if follow else ()
    return sorted(path.relative_to(root).as_posix() for path in found)


def essence(name, text):
    """The part of a source that a compiler or interpreter sees. Only changes of this part count."""
    if name.endswith(".py"):
        tree = ast.parse(text)
        for node in ast.walk(tree):
            if (
                isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
                and ast.get_docstring(node, clean=False) is not None
            ):
                del node.body[0]
        return ast.dump(tree)
    if name.endswith(".sh"):
        return re.sub(r"^\s*#.*\n", "", text, flags=re.M)
    # Lines with #include are dropped, because the included files are compared separately.
    return CODE_OR_COMMENT.sub(lambda match: match[1] or "", INCLUDE.sub("", text))


def git(root, *arguments):
    return subprocess.run(
        ["git", "-C", root, *arguments],
        text=True,
        encoding="utf-8",
        capture_output=True,
        check=False,
    )


@dataclasses.dataclass
class Figure:
    file: str  # relative to bench/results
    name: str
    context: dict

    @property
    def commits(self):
        """The commit of the file; if it was joined from several files, their commits."""
        return [one for one in str(self.context.get("commit", "")).split(", ") if one]

    @property
    def date(self):
        return str(self.context.get("date", ""))[:10]

    def age(self):
        """The days since the figure was measured."""
        try:
            days = (datetime.date.today() - datetime.date.fromisoformat(self.date)).days
        except ValueError:
            return "?"
        return f"{days} d"


def figures(root):
    results = root / "bench" / "results"
    for path in sorted(results.rglob("*.tsv")):
        file = path.relative_to(results).as_posix()
        name = next((name for name in FIGURES if re.match(rf"{name}(-.*|/.*)?\.tsv$", file)), None)
        if name is None:
            raise SystemExit(
                f"bench/results/{file}: expected a file named after a kind of figure in bench/figures.py"
            )
        yield Figure(file, name, table.read(path)[0])


@functools.cache
def changed(root, commit, name):
    """Whether the code of a file has changed since a commit."""
    before = git(root, "show", f"{commit}:{name}")
    return bool(before.returncode) or essence(name, before.stdout) != essence(
        name, (root / name).read_text("utf-8")
    )


def why_stale(root, figure, paths):
    """The reason why a figure is stale, or None."""
    if not figure.commits:
        return "records no commit"
    for commit in figure.commits:
        if commit.endswith("-dirty"):
            return f"was measured with changes that were not committed ({commit})"
        if git(root, "cat-file", "-e", f"{commit}^{{commit}}").returncode:
            return f"unknown commit {commit}"
        differing = git(
            root, "diff", "--no-renames", "--name-only", commit, "--", *paths
        ).stdout.split()
        names = [name for name in differing if changed(root, commit, name)]
        if names:
            commits = git(
                root, "rev-list", "--count", f"{commit}..HEAD", "--", *names
            ).stdout.strip()
            lines = git(
                root, "diff", "--no-renames", "--shortstat", commit, "--", *names
            ).stdout.strip()
            return f"{lines} in {commits} commits since {commit}"
    return None


def machine(cpuinfo):
    """Name and description of this machine, from the text of /proc/cpuinfo."""

    def field(key):
        found = re.search(rf"^{key}\s*: (.*)$", cpuinfo, re.M)
        return found[1].strip() if found else ""

    cores = len(re.findall(r"^processor\s*:", cpuinfo, re.M))
    flags = field("flags").split()
    level = "AVX-512" if "avx512f" in flags else "AVX2" if "avx2" in flags else ""
    what, parts = (
        re.sub(r"\(R\)|\(TM\)|\bCPU\b|\bProcessor\b|@.*|\d+-Core", "", field("model name")).split(),
        [level],
    )
    if field("vendor_id") == "AuthenticAMD":
        zen = {"23": "2", "25": "4" if level == "AVX-512" else "3", "26": "5"}.get(
            field("cpu family")
        )
        parts = [f"Zen {zen}", level] if zen else parts
        name = f"amd-zen{zen}" if zen else ""
    elif field("vendor_id") == "GenuineIntel":
        name = "-".join(what[:2]).lower()
    else:
        name = ""
    name = name or re.sub(r"\W+", "-", " ".join(what) or platform.machine()).strip("-").lower()
    of = "cores of a virtual machine" if "hypervisor" in flags else "cores"
    details = ", ".join(part for part in parts if part)
    return (
        f"{name}-{cores}-cores",
        " ".join(what or [platform.machine()])
        + (f" ({details})" if details else "")
        + f", {cores} {of}, {platform.system()}",
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--check", action="store_true", help="list stale figures, and fail if there are any"
    )
    parser.add_argument("--names", action="store_true", help="list the names of all figures")
    parser.add_argument(
        "--machine", action="store_true", help="print name and description of this machine"
    )
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).parents[1])
    arguments = parser.parse_args()
    root = arguments.root.resolve()
    if arguments.names:
        print(*FIGURES, sep="\n")
        return 0
    if arguments.machine:
        print(*machine(pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")), sep="\n")
        return 0
    closures, stale, count = {}, 0, 0
    for figure in figures(root):
        count += 1
        sources, documents = FIGURES[figure.name]
        if not arguments.check:
            commits = ", ".join(figure.commits) or "-"
            machine_name = figure.context.get("machine", "-")
            print(f"{figure.file:45} {figure.date} {figure.age():>6}  {commits:8}  {machine_name}")
            continue
        if figure.name not in closures:
            closures[figure.name] = closure(root, sources)
        why = why_stale(root, figure, closures[figure.name])
        if why:
            stale += 1
            quoted = ", ".join(["bench/results/README.md", *documents])
            print(f"{figure.file}: {why}; quoted in {quoted}")
    if arguments.check:
        print(f"{stale} of {count} figures are older than the code they measure")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())

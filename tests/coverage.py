#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Check docs/coverage.md against the calls that the tests recorded (tests/executed.hpp).

Fails if a backend was never called with one of its options, or if docs/coverage.md differs from the
records. --write writes that file.
"""

import argparse
import pathlib
import sys

CPU = ("sequential", "tiled", "hillis_steele", "blelloch", "triangular_matmul")
GPU = (
    "cuda::lanes",
    "cuda::look_back",
    "cuda::hillis_steele",
    "cuda::blelloch",
    "cuda::triangular_matmul",
)
BACKENDS = CPU + GPU
# (call, option, backend): options that a backend lacks, and how it responds to them.
EXEMPT = {
    ("gated_scan_vjp", "`memory::recompute`", name): "refuses it"
    for name in ("cuda::hillis_steele", "cuda::blelloch", "cuda::triangular_matmul")
}


def read(folder):
    """Return ({test case: backends}, {call: {option: {backend: calls}}}) of a folder's records."""
    tests, calls = {}, {}
    for path in sorted(folder.glob("*.tsv")):
        for line in path.read_text().splitlines():
            kind, *fields = line.split("\t")
            if kind == "test":
                test, backend = fields
                # A test case for several element types or cells counts as one.
                tests.setdefault(test.split(": ", 1)[-1], set()).add(backend)
            else:
                backend, count, call, *option = fields
                row = calls.setdefault(call, {}).setdefault(option[0] if option else "", {})
                row[backend] = row.get(backend, 0) + int(count)
    return tests, calls


def names(backends):
    """Describe a set of backends briefly."""
    parts = []
    for group, all_of in ((CPU, "all on CPUs"), (GPU, "all on GPUs")):
        found = [name for name in group if name in backends]
        parts += [all_of] if len(found) == len(group) else [f"`{name}`" for name in found]
    return ", ".join(parts)


def page(tests, calls):
    lines = [
        "# What the tests cover",
        "",
        "Written by `tests/coverage.py --write` from the calls that the tests made. Kernels for",
        "GPUs ran on an emulator. Backends: " + ", ".join(f"`{name}`" for name in BACKENDS) + ".",
        "",
        "## Calls and their options",
        "",
        "Tests called every backend with every option below, except where noted.",
    ]
    missing = []
    for call, options in sorted(calls.items()):
        lines += ["", f"- `{call}`: " + "; ".join(option for option in sorted(options) if option)]
        for option, ran in sorted(options.items()):
            for backend in BACKENDS:
                if ran.get(backend, 0) > 0:
                    continue
                if (call, option, backend) in EXEMPT:
                    why = EXEMPT[call, option, backend]
                    lines.append(f"  - except {option} on `{backend}`, which {why}")
                else:
                    missing.append(f"{backend}: no test calls {call} with {option or 'any option'}")
    lines += ["", "## Test cases and the backends that they called", ""]
    lines += [
        f"- {test}: {names(backends)}"
        for test, backends in sorted(tests.items())
        if names(backends)
    ]
    return "\n".join(lines) + "\n", missing


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("executed", type=pathlib.Path, help="folder of the records, *.tsv")
    parser.add_argument("--write", action="store_true", help="write docs/coverage.md")
    arguments = parser.parse_args()
    tests, calls = read(arguments.executed)
    if not calls:
        print(f"{arguments.executed}: expected records of calls, found none", file=sys.stderr)
        return 1
    text, problems = page(tests, calls)
    path = pathlib.Path(__file__).resolve().parent.parent / "docs" / "coverage.md"
    if arguments.write:
        path.write_text(text)
    elif not path.exists() or path.read_text() != text:
        problems.append(
            "docs/coverage.md differs from the records: "
            f"run tests/coverage.py --write {arguments.executed}"
        )
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Print the registers, stack and spills of the kernels in CUDA sources, as nvcc reports them.

Fails if a kernel of everyday calls spills registers to memory: a kernel for assume::plain
(position.hpp) or for pairs of sequences (lane_pairs.cuh). Kernels in which a block runs several
tiles may spill a few values that are the same for all tiles and are reloaded once per tile.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

ENTRY = re.compile(r"Compiling entry function '(\w+)'")
STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
MOST_PER_TILE = 64  # bytes
REGISTERS = re.compile(r"Used (\d+) registers")


def report(compiler, includes, architecture, source):
    """Compile a source and return the messages of nvcc."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            compiler,
            "-std=c++20",
            "-O3",
            "--expt-relaxed-constexpr",
            "--resource-usage",
            "-cubin",
            f"-arch={architecture}",
            "-o",
            f"{folder}/out.cubin",
            *(f"-I{include}" for include in includes),
            str(source),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def readable(symbol):
    name = subprocess.run(["c++filt", symbol], capture_output=True, text=True, check=False).stdout
    name = re.sub(r"scanrec::|v\d\w+::|cuda::sm_\w+::|detail::|recurrence::|activation::", "", name)
    for written, meant in (
        ("(assume)0", "nothing"),
        ("(assume)4", "plain"),
        ("(tile_order)0", "by_ticket"),
        ("(tile_order)1", "in_turn"),
    ):
        name = name.replace(written, meant)
    inner = re.match(r"void run<(.*)>\(", name.strip())
    return inner[1].strip() if inner else name.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compiler", default="nvcc")
    parser.add_argument("--include", nargs="+", default=["include"])
    parser.add_argument("--architecture", default="sm_90")
    parser.add_argument("sources", nargs="+", type=pathlib.Path)
    given = parser.parse_args()
    kernels = {}
    for source in given.sources:
        name = None
        for line in report(given.compiler, given.include, given.architecture, source).splitlines():
            if entry := ENTRY.search(line):
                name = entry[1]
                kernels[name] = [0, 0, 0]
            elif stack := STACK.search(line):
                kernels[name][1:] = int(stack[1]), int(stack[2]) + int(stack[3])
            elif registers := REGISTERS.search(line):
                kernels[name][0] = int(registers[1])
    rows = sorted((readable(name), *counts) for name, counts in kernels.items())
    print(f"{given.architecture}: registers, bytes of stack, bytes of spill stores and loads")
    for name, registers, stack, spilled in rows:
        print(f"{registers:5d} {stack:5d} {spilled:5d}  {name}")
    if not rows:
        sys.exit("no kernel found: this check tests nothing")
    return int(
        any(
            spilled > (MOST_PER_TILE if "in_turn" in name else 0)
            for name, *_, spilled in rows
            if "plain" in name or "run_pairs" in name
        )
    )


if __name__ == "__main__":
    sys.exit(main())

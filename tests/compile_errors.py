#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Calls with typical mistakes do not compile, and the first lines that a compiler writes say which
argument is wrong, what was expected and what came.

Use: compile_errors.py COMPILER INCLUDE_DIRECTORIES...
"""
import re
import subprocess
import sys

BEFORE = """
#include <complex>
#include <vector>
#include <scanrec/variants.hpp>
#include <scanrec/linear_scan.hpp>
#include <scanrec/gated_scan.hpp>
#include <scanrec/cells/qrnn.hpp>
using namespace scanrec;
std::vector<float> a(60), u(60), x(60);
const std::vector<float> constant(60);
std::vector<double> wide(60);
std::vector<int> whole(60);
std::vector<std::complex<float>> turning(60);
const extents shape{.time = 20, .channel = 3};
void call() {
"""
A, U, X = (f"sequence_view({name}, 3)" for name in "aux")
# Lines of a compiler that may come before the words: what includes what, and who calls.
LINES = 3
CASES = [
    (f"linear_scan(a, {U}, {X});", "linear_scan: argument 'gate': .* got a container"),
    (f"linear_scan({A}, u.data(), {X});", "linear_scan: argument 'input': .* got a pointer"),
    (f"linear_scan(0.5f, {U}, {X});", "linear_scan: argument 'gate': .* got a number"),
    (f"linear_scan({A}, {U}, sequence_view(constant, 3));",
     "linear_scan: argument 'state': expected elements that can be written"),
    (f"linear_scan({A}, {U}, sequence_view(whole, 3));",
     "linear_scan: argument 'state': expected elements of float, .* got a view of others"),
    (f"linear_scan({A}, sequence_view(wide, 3), {X});",
     "linear_scan: argument 'input': expected the compute type of the first array"),
    (f"linear_scan(sequence_view(turning, 3), {U}, sequence_view(turning, 3));",
     "linear_scan: argument 'input': expected the compute type of the first array"),
    (f"linear_scan(tiled{{}}, {A}, {X});", "linear_scan: expected gate, input, state"),
    (f"linear_scan({A}, {U}, {X}, scan_options<double>{{}});",
     "linear_scan: argument 'options': expected"),
    (f"linear_scan_vjp({A}, {X}, {U}, {A});", "linear_scan_vjp: argument 'gradients': expected"),
    (f"linear_scan_jvp({A}, {X}, {U}, {X});", "linear_scan_jvp: .*none for an array that is not there"),
    (f"gated_scan(sequential{{}}, fo_pooling<>{{}}, packed<fo_pooling<>>({A}), x);",
     "gated_scan: argument 'output': .* got a container"),
    (f"gated_scan({A}, {U}, {X});", "gated_scan: argument 'cell': expected one of cells/"),
]  # fmt: skip


def main():
    compiler, *directories = sys.argv[1:]
    command = [compiler, "-std=c++20", "-fsyntax-only", "-x", "c++", "-"]
    command += [f"-I{d}" for d in directories if d and not d.endswith("NOTFOUND")]
    failed = 0
    for code, words in CASES:
        done = subprocess.run(command, input=BEFORE + code + "}\n", capture_output=True, text=True)
        said = [line for line in done.stderr.splitlines()
                if not re.match(r"In file included|\s+from ", line)]
        if done.returncode == 0 or not re.search(words, "\n".join(said[:LINES])):
            failed += 1
            print(f"{code}\nexpected in the first {LINES} lines: {words}\n" + "\n".join(said[:8]))
    good = subprocess.run(
        command, input=f"{BEFORE}linear_scan({A}, {U}, {X}, {{.order = direction::reverse}});}}\n",
        text=True)
    if good.returncode != 0:
        sys.exit("what is right does not compile")
    if failed:
        sys.exit(f"{failed} of {len(CASES)} mistakes are not told well")
    print(f"{len(CASES)} mistakes are told in the first {LINES} lines")


if __name__ == "__main__":
    main()

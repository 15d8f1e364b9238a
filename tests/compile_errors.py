#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Check that calls with typical mistakes do not compile, and that the first error names the
expected argument. The compiler shows the call in lines before that error or in a note after it.

Use: compile_errors.py COMPILER INCLUDE_DIRECTORIES...
"""

import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile

BEFORE = """#pragma once
#include <complex>
#include <vector>
#include <scanrec/variants.hpp>
#include <scanrec/linear_scan.hpp>
#include <scanrec/gated_scan.hpp>
#include <scanrec/inclusive_scan.hpp>
#include <scanrec/planned.hpp>
#include <scanrec/selective_scan.hpp>
#include <scanrec/cells/qrnn.hpp>
#if defined(WITH_EIGEN)
#include <scanrec/eigen.hpp>
#include <scanrec/s5.hpp>
scanrec::s5_system<float> system_;
Eigen::MatrixXf matrix(20, 3);
#endif
using namespace scanrec;
std::vector<float> a(60), u(60), x(60), h(3);
const std::vector<float> constant(60);
std::vector<double> wide(60);
std::vector<int> whole(60);
std::vector<bool> marks(20);
std::vector<std::complex<float>> turning(60);
const extents shape{.time = 20, .channel = 3};
const selective_arrays<float> arrays;
inline std::vector<float> made() { return std::vector<float>(60); }
"""
A, U, X = (f"sequence_view({name}, 3)" for name in "aux")
Z = "sequence_view(turning, 3)"
CONST = "sequence_view(constant, 3)"
WIDE = "sequence_view(wide, 3)"
STATE = "state_view(h, shape)"
CELL = "fo_pooling<>"
PRE = f"packed<{CELL}>({A})"
STORE = f"memory::store{{{X}}}"
CASES = [
    # Arrays.
    (f"linear_scan(a, {U}, {X});", "linear_scan: argument 'gate': expected a sequence_view"),
    (f"linear_scan(a, {U}, {X}, {{.order = direction::reverse}});",
     "linear_scan: argument 'gate': expected a sequence_view"),
    (f"linear_scan(tiled{{}}, {A}, u.data(), {X});",
     "linear_scan: argument 'input': expected a sequence_view"),
    (f"linear_scan(0.5f, {U}, {X});", "linear_scan: argument 'gate': expected a sequence_view"),
    (f"linear_scan({A}, {U}, {CONST});", "linear_scan: argument 'state': .* that can be written"),
    (f"linear_scan({A}, {U}, sequence_view(whole, 3));",
     "linear_scan: argument 'state': expected a sequence_view of float"),
    (f"linear_scan({A}, {WIDE}, {X});",
     "linear_scan: argument 'input': expected the compute type of 'gate'"),
    (f"linear_scan(tiled{{}}, {A}, {X});", "linear_scan: expected backend, gate, input, state"),
    (f"linear_scan_vjp({A}, x, {U}, {{.gate_grad = {A}}});",
     "linear_scan_vjp: argument 'state': expected .* or none"),
    (f"linear_scan_jvp({A}, {X}, 0, {U}, {X});",
     "linear_scan_jvp: argument 'gate_tangent': expected .* or none"),
    (f"(void)plan_linear_scan({A}, u, {X});", "linear_scan: argument 'input': expected"),
    (f"(void)linear_scan_problem({A}, {U}, x);", "linear_scan: argument 'state': expected"),
    # Options and gradients.
    (f"linear_scan({A}, {U}, {X}, {{.initial_state = h}});", "expected a state_view"),
    (f"linear_scan({A}, {U}, {X}, {{.initial_state = 0.0f}});", "expected a state_view"),
    (f"linear_scan({A}, {U}, {X}, {{.initial_state = {X}}});", "expected a state_view"),
    (f"linear_scan({A}, {U}, {X}, {{.initial_state = none}});", "expected a state_view"),
    (f"linear_scan({A}, {U}, {X}, {{.initial_state = state_view(wide, shape)}});",
     "expected a state_view.* compute type"),
    (f"linear_scan({A}, {U}, {X}, {{.final_state = state_view(constant, shape)}});",
     "expected a state_view.* non-const elements if the call writes it"),
    (f"linear_scan({A}, {U}, {X}, {{.resets = marks}});", "expected a sequence_view"),
    (f"linear_scan_vjp({A}, {X}, {U}, {{.gate_grad = a}});", "expected a sequence_view"),
    (f"linear_scan_vjp(tiled{{}}, {A}, {X}, {U}, {{.input_grad = {A}}}, {{.final_grad = h}});",
     "expected a state_view"),
    # Views.
    ("auto v = sequence_view(made(), 3);", "outlives the view, got a temporary"),
    ("state_view<const float> v(made(), shape, {.channel = 1});", "got a temporary"),
    ("sequence_view<float> v(constant, shape);", "expected elements that can be written"),
    ("auto v = sequence_view(marks, 1);", "not of bool"),
    ("auto v = sequence_view(x, 20, 3);", "expected extents .* or plain numbers"),
    ("auto v = sequence_view(x.data(), 3);", "expected extents .* or plain numbers"),
    ("auto v = state_view(h);", "expected extents .* got none"),
    # The other calls.
    (f"gated_scan(sequential{{}}, {CELL}{{}}, {PRE}, x);",
     "gated_scan: argument 'output': expected a sequence_view"),
    (f"gated_scan({A}, {U}, {X});", "gated_scan: argument 'cell': expected a cell such as"),
    (f"gated_scan({CELL}{{}}, {A}, {X});", "gated_scan: argument 'arrays': expected"),
    (f"gated_scan_vjp({CELL}{{}}, {PRE}, none, {X}, {{}});",
     "gated_scan_vjp: argument 'kept': expected memory::store"),
    (f"inclusive_scan({A}, {X}, op::sum{{}});", "argument 'op': expected an associative"),
    (f"exclusive_scan(op::sum{{}}, {A}, {X}, {{.initial = 0.0f}});", "expected a state_view"),
    ("selective_scan(arrays, x);", "expected a sequence_view"),
]  # fmt: skip
EIGEN_CASES = [
    (f"linear_scan(matrix, {U}, {X});", "linear_scan: argument 'gate': .*as_sequence"),
    ("auto v = as_sequence(matrix * 2);", "as_sequence: argument 'matrix': .* got an expression"),
    (f"s5(system_, {U}, {X}, {X});", "expected a sequence_view.* element type of View"),
]  # fmt: skip
# Correct calls, which must compile.
GOOD = f"""
void call() {{
  linear_scan({A}, {U}, {X}, {{.order = direction::reverse, .initial_state = {STATE}}});
  linear_scan(tiled{{}}, {A}, {U}, none, {{.final_state = {STATE}}});
  linear_scan_vjp({A}, {X}, {U}, {{.gate_grad = {A}}}, {{}});
  linear_scan_jvp({A}, {X}, none, {U}, {X}, {{.initial_tangent = {STATE}}});
  gated_scan({CELL}{{}}, {PRE}, {X}, {{}});
  gated_scan({CELL}{{}}, {PRE}, {X}, {STORE}, {{.final_state = {STATE}}});
  gated_scan_vjp({CELL}{{}}, {PRE}, {STORE}, {X}, {{.arrays = {PRE}}}, {{}});
  inclusive_scan(op::sum{{}}, {A}, {X}, {{.initial = {STATE}}});
  selective_scan(arrays, {X}, {{.final_state = {STATE}}});
  selective_scan_vjp(sequential{{}}, arrays, {{}}, {{.u = {X}}}, {{}});
  sequence_view<const float> of_span(std::span<const float>(x), 3), of_write({A});
  extents e = shape;
  auto pointed = sequence_view(x.data(), e);
}}
"""


def said_by(command, code):
    done = subprocess.run(command, input=code, capture_output=True, text=True)
    return done.returncode, done.stderr.splitlines()


def prepared(command, folder, define=""):
    """Precompile BEFORE as a header, which GCC and Clang find by its name.

    Return the command that compiles code after it, or None if BEFORE does not compile."""
    header = os.path.join(folder, f"before{len(define)}.hpp")
    with open(header, "w") as file:
        file.write(define + BEFORE)
    done = subprocess.run(
        [*command, "-x", "c++-header", header, "-o", header + ".gch"],
        capture_output=True,
        text=True,
    )
    behind = [*command, "-fsyntax-only", "-include", header, "-x", "c++", "-"]
    return behind if done.returncode == 0 else None


def main():
    compiler, *directories = sys.argv[1:]
    command = [compiler, "-std=c++20", "-w"]
    command += [f"-I{d}" for d in directories if d and not d.endswith("NOTFOUND")]
    with tempfile.TemporaryDirectory() as folder:
        plain = prepared(command, folder)
        eigen = prepared(command, folder, "#define WITH_EIGEN\n")
        code, lines = said_by(plain, GOOD)
        if code != 0:
            sys.exit("correct calls do not compile\n" + "\n".join(lines[:8]))
        runs = [(plain, *case) for case in CASES]
        if eigen is not None:
            runs += [(eigen, *case) for case in EIGEN_CASES]
        failed = 0
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            answers = pool.map(lambda run: said_by(run[0], "void call() {" + run[1] + "}\n"), runs)
            for (_, code, words), (status, said) in zip(runs, answers):
                first = next((line for line in said if "error:" in line), "")
                if status == 0 or not re.search(words, first):
                    failed += 1
                    print(f"{code}\nexpected as the first error: {words}\n" + "\n".join(said[:8]))
    if failed:
        sys.exit(f"{failed} of {len(runs)} mistakes do not give the expected first error")
    print(f"{len(runs)} mistakes give the expected first error")


if __name__ == "__main__":
    main()

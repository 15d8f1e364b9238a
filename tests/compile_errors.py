#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Calls with typical mistakes do not compile, and the first lines that a compiler writes say which
argument is wrong, what was expected and what came.

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
# Lines of a compiler that may come before the words: what includes what, and who calls.
LINES = 3
CASES = [
    (f"linear_scan(a, {U}, {X});", "linear_scan: argument 'gate': .* got a container"),
    (f"linear_scan(a, {U}, {X}, {{.order = direction::reverse}});",
     "linear_scan: argument 'gate': .* got a container"),
    (f"linear_scan({A}, u.data(), {X});", "linear_scan: argument 'input': .* got a pointer"),
    (f"linear_scan(0.5f, {U}, {X});", "linear_scan: argument 'gate': .* got a number"),
    (f"linear_scan({STATE}, {U}, {X});", "linear_scan: argument 'gate': .* got a state_view"),
    (f"linear_scan({A}, {U}, {CONST});",
     "linear_scan: argument 'state': expected elements that can be written"),
    (f"linear_scan({A}, {U}, sequence_view(whole, 3));",
     "linear_scan: argument 'state': expected elements of float, .* got a view of others"),
    (f"linear_scan({A}, {WIDE}, {X});",
     "linear_scan: argument 'input': expected the compute type of the first array"),
    (f"linear_scan({Z}, {U}, {Z});",
     "linear_scan: argument 'input': expected the compute type of the first array"),
    (f"linear_scan(tiled{{}}, {A}, {X});", "linear_scan: expected gate, input, state"),
    (f"linear_scan({A}, {U}, {X}, scan_options<double>{{}});",
     "linear_scan: argument 'options': expected"),
    (f"linear_scan({A}, {U}, {X}, direction::reverse);",
     "linear_scan: argument 'options': expected them in braces"),
    (f"linear_scan_vjp({A}, {X}, {U}, {A});", "linear_scan_vjp: argument 'gradients': expected"),
    (f"linear_scan_jvp({A}, {X}, {U}, {X});",
     "linear_scan_jvp: .*none for an array that is not there"),
    # Members of options and gradients in braces.
    (f"linear_scan({A}, {U}, {X}, {{.initial_state = h}});",
     "option 'initial_state': expected a state_view.* got a container"),
    (f"linear_scan(sequential{{}}, {A}, {U}, {X}, {{.initial_state = 0.0f}});",
     "option 'initial_state': .* got a number"),
    (f"linear_scan({A}, {U}, {X}, {{.initial_state = {X}}});",
     "option 'initial_state': .* got a sequence_view"),
    (f"linear_scan({A}, {U}, {X}, {{.initial_state = none}});",
     "option 'initial_state': .* left out .* got none"),
    (f"linear_scan({A}, {U}, {X}, {{.initial_state = state_view(wide, shape)}});",
     "option 'initial_state': expected .* compute type .* other elements"),
    (f"linear_scan({A}, {U}, {X}, {{.final_state = state_view(constant, shape)}});",
     "option 'final_state': expected elements that can be written"),
    (f"linear_scan({A}, {U}, {X}, {{.resets = marks}});", "option 'resets': .* got a container"),
    (f"linear_scan({A}, {U}, {X}, {{.reverse = true}});", "option 'order': .* got .reverse"),
    (f"linear_scan({A}, {U}, {X}, {{.order = true}});",
     "option 'order': expected direction::forward"),
    (f"linear_scan_vjp({A}, {X}, {U}, {{.gate_grad = a}});",
     "option 'gate_grad': expected a sequence_view.* got a container"),
    (f"linear_scan_vjp(tiled{{}}, {A}, {X}, {U}, {{.input_grad = {A}}}, {{.final_grad = h}});",
     "option 'final_grad': .* got a container"),
    (f"linear_scan_jvp({A}, {X}, {U}, {U}, {X}, {{.final_tangent = h}});",
     "option 'final_tangent': .* got a container"),
    # Views.
    ("auto v = sequence_view(made(), 3);", "sequence_view: argument 'data': .* got a temporary"),
    ("sequence_view<const float> v(made(), shape);",
     "sequence_view: argument 'data': .* got a temporary"),
    ("state_view<const float> v(made(), shape, {.channel = 1});",
     "state_view: argument 'data': .* got a temporary"),
    ("sequence_view<float> v(constant, shape);",
     "sequence_view: argument 'data': expected elements that can be written"),
    ("sequence_view<float> v(wide, {.time = 20, .channel = 3});",
     "sequence_view: argument 'data': expected elements of the type"),
    ("auto v = sequence_view(marks, 1);", "sequence_view: argument 'data': .*not of bool"),
    ("auto v = sequence_view(x, 20, 3);", "sequence_view: argument 'shape': .* got numbers"),
    ("auto v = sequence_view(x.data(), 3);", "sequence_view: argument 'shape': expected extents"),
    ("auto v = sequence_view(x, shape, shape);",
     "sequence_view: argument 'strides': .* got extents"),
    ("state_view<float> v(h);", "state_view: argument 'shape': .* got none"),
    # The other calls.
    (f"gated_scan(sequential{{}}, {CELL}{{}}, {PRE}, x);",
     "gated_scan: argument 'output': .* got a container"),
    (f"gated_scan({A}, {U}, {X});", "gated_scan: argument 'cell': expected one of cells/"),
    (f"gated_scan({CELL}{{}}, {A}, {X});", "gated_scan: argument 'arrays': expected"),
    (f"gated_scan({CELL}{{}}, {{{A}, {A}, {A}}}, {X});",
     "gated_scan: argument 'arrays': .* got braces"),
    (f"gated_scan({CELL}{{}}, {PRE}, {WIDE});",
     "gated_scan: argument 'output': expected the compute"),
    (f"gated_scan({CELL}{{}}, {PRE}, {X}, {U});", "gated_scan: argument 'kept' .*memory::store"),
    (f"gated_scan({CELL}{{}}, {PRE}, {X}, {{.order = direction::reverse}});",
     "gated_scan: argument 'kept': expected none, .* before the options"),
    (f"gated_scan({CELL}{{}}, {PRE}, {X}, none, {{.zoneout = marks}});",
     "option 'zoneout': .* container"),
    (f"gated_scan({CELL}{{}}, {PRE}, {X}, memory::store{{x}});",
     "memory::store: argument 'states'"),
    (f"gated_scan({CELL}{{}}, packed<{CELL}>(a), {X});", "packed: argument 'all': .* container"),
    (f"gated_scan_vjp({CELL}{{}}, {PRE}, none, {X}, {{}});",
     "gated_scan_vjp: argument 'kept': expected"),
    (f"gated_scan_vjp({CELL}{{}}, {PRE}, {STORE}, {X}, {{.initial_grad = h}});",
     "option 'initial_grad': .* container"),
    (f"(void)plan_linear_scan(sequential{{}}, {A}, {U}, {X});",
     "plan_linear_scan: argument 'backend'"),
    (f"inclusive_scan({A}, {X}, op::sum{{}});", "inclusive_scan: argument 'op': expected an assoc"),
    (f"inclusive_scan(op::sum{{}}, {A}, {CONST});",
     "inclusive_scan: argument 'results': expected elements that can be written"),
    (f"exclusive_scan(op::sum{{}}, {A}, {X}, {{.initial = 0.0f}});",
     "option 'initial': .* a number"),
    ("selective_scan(arrays, x);", "selective_scan: argument 'out': .* got a container"),
    (f"selective_scan({U}, {X});", "selective_scan: argument 'arrays': expected selective_arrays"),
    (f"selective_scan(arrays, {X}, {{.initial_state = h}});",
     "option 'initial_state': .* container"),
    (f"selective_scan_vjp(arrays, {X}, {{.u = x}});", "option 'u': .* container"),
]  # fmt: skip
EIGEN_CASES = [
    (f"linear_scan(matrix, {U}, {X});",
     "linear_scan: argument 'gate': .*as_sequence.* got a matrix"),
    ("auto v = as_sequence(matrix * 2);", "as_sequence: argument 'matrix': .* got an expression"),
    ("auto v = as_state(Eigen::MatrixXf(matrix));", "as_state: argument 'matrix': .* a temporary"),
    (f"s5(system_, {U}, {X}, {X});", "s5: argument 'states': expected a view of complex numbers"),
    (f"s5(system_, {U}, {Z}, {X}, {{.initial_state = {STATE}}});",
     "option 'initial_state': expected"),
]  # fmt: skip
# What is right compiles, and is the call itself: an explanation never does.
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
    lines = [
        line
        for line in done.stderr.splitlines()
        if not re.match(r"In file included|\s+from ", line)
    ]
    return done.returncode, lines


def prepared(command, folder, define=""):
    """The command for what stands behind BEFORE, which is compiled once: both compilers find a
    precompiled header beside it. None where it does not compile."""
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
            sys.exit("what is right does not compile\n" + "\n".join(lines[:8]))
        runs = [(plain, *case) for case in CASES]
        if eigen is not None:
            runs += [(eigen, *case) for case in EIGEN_CASES]
        failed = 0
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            answers = pool.map(lambda run: said_by(run[0], "void call() {" + run[1] + "}\n"), runs)
            for (_, code, words), (status, said) in zip(runs, answers):
                if status == 0 or not re.search(words, "\n".join(said[:LINES])):
                    failed += 1
                    print(
                        f"{code}\nexpected in the first {LINES} lines: {words}\n"
                        + "\n".join(said[:8])
                    )
    if failed:
        sys.exit(f"{failed} of {len(runs)} mistakes are not told well")
    print(f"{len(runs)} mistakes are told in the first {LINES} lines")


if __name__ == "__main__":
    main()

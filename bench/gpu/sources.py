# SPDX-License-Identifier: BSD-3-Clause
"""List tests and rows from the sources, for programs not built."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Of each program the files with its tests, and for a battery the list of its types.
TESTS = {
    "linear_scan_battery": (
        ("linear_scan_battery.hpp", "SCANREC_TEST_TYPES"),
        ("numerics_test.cpp", None),
    ),
    "gated_scan_battery_gpu": (("gated_scan_battery.hpp", "SCANREC_TEST_GATED"),),
    "look_back_stress_gpu": (("cuda_on_gpu/look_back_stress_test.cu", None),),
    "device_test_gpu": (("cuda_on_gpu/graph_test.cu", None),),
}
CASE = re.compile(r'(?:TYPED|TEST)_CASE\(\s*"((?:[^"\\]|\\.)*)",\s*((?:"[^"]*"\s*)+)\)')


def tests_of(program):
    """(name, tags) of every test; a battery has each of its tests once per type."""
    cmake, tests = (ROOT / "tests/CMakeLists.txt").read_text(), []
    for file, types in TESTS[program]:
        cases = [
            (name, set(re.findall(r"\[(\w+)\]", tags)))
            for name, tags in CASE.findall((ROOT / "tests" / file).read_text())
        ]
        if types:
            kinds = re.search(rf'set\({types} "([^"]*)"', cmake)[1].split(";")
            cases = [(f"{kind}: {name}", tags | {kind}) for kind in kinds for name, tags in cases]
        tests += cases
    return tests


def selected(chosen, name, tags):
    """Return whether a filter (alternatives of tags, or a name) selects a test."""
    return not chosen or any(
        set(re.findall(r"\[(\w+)\]", part)) <= tags if part.startswith("[") else part == name
        for part in chosen.split(",")
    )


def rows_of(program):
    here = ROOT / "bench/gpu"
    if program == "bench_gpu_selective_scan":
        workloads = re.findall(r'"(selective_\w+)"', (here / "selective_scan.cu").read_text())
        return [
            f"{w}/{v}/{call}/iterations:1/manual_time"
            for w in workloads
            for v in ("device_copy", "streaming_twin", "automatic")
            for call in (["copy"] if v == "device_copy" else ["forward", "checkpoints", "vjp"])
        ]
    backends = re.findall(r'named<cuda::[\w<>]+>\{"(\w+)"', (here / "variants.cuh").read_text())
    if program == "bench_gpu_gated_scan":
        workloads, more = ["qrnn_packed"], []
        calls = ["inference", "forward_store", "vjp_store"]
    else:
        workloads = re.findall(r'\bof\("(\w+)"', (here / "linear_scan.cu").read_text())
        more = re.findall(r'\{"(\w+)", (?:pair_bytes|\[\])', (here / "peers.cu").read_text())
        calls = ["forward", "vjp"]
    variants = ["device_copy", "streaming_twin", *backends, "plain_loop", *more]
    return [
        f"{w}/{v}/{call}/iterations:1/manual_time"
        for w in workloads
        for v in variants
        for call in (["copy"] if v == "device_copy" else calls)
    ]


def names_of(item):
    """The tests or rows that an item selects; None without the sources."""
    if not (ROOT / "tests/CMakeLists.txt").exists():
        return None
    if item.program in TESTS:
        return [name for name, tags in tests_of(item.program) if selected(item.chosen, name, tags)]
    return [row for row in rows_of(item.program) if re.search(item.chosen, row)]

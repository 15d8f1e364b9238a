#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Check that every public header has a test with its stem, or the test that ELSEWHERE names.

The test of cells/qrnn.hpp is tests/cells/qrnn_test.cpp.
Tests of headers in cuda are in tests/cuda_on_host. Headers that declare nothing need no test.
"""

import pathlib
import re
import sys

TESTS = pathlib.Path(__file__).resolve().parent
INCLUDE = TESTS.parent / "include/scanrec"
#: Headers without a test of the same stem, and the file that tests them.
ELSEWHERE = {
    "backends.hpp": "linear_scan_test.cpp",
    "causal_conv1d_arrays.hpp": "causal_conv1d_test.cpp",
    "compiled.hpp": "install/compiled.cpp",
    "cuda/cub.cuh": "cuda/cub_kernels.cu",
    "cuda/error.cuh": "cuda/launch_test.cpp",
    "layers/mamba_parameters.hpp": "layers/mamba_test.cpp",
    "linear_attention_arrays.hpp": "linear_attention_test.cpp",
    "s5_system.hpp": "s5_test.cpp",
    "selective_arrays.hpp": "selective_scan_test.cpp",
    "stored_sequence.hpp": "causal_conv1d_test.cpp",
    "triangular_matmul.hpp": "linear_scan_test.cpp",
    "variants.hpp": "linear_scan_test.cpp",
}


def declares(path):
    """Return whether a header has more than comments and preprocessor directives."""
    text = path.read_text().replace("\\\n", "")
    return bool(re.sub(r"^\s*#.*|//.*", "", text, flags=re.MULTILINE).strip())


def main():
    paths = [p for p in INCLUDE.rglob("*.*") if p.suffix in (".hpp", ".cuh")]
    headers = {str(p.relative_to(INCLUDE)): p for p in paths}
    wrong = [f"{name}: no such header" for name in ELSEWHERE if name not in headers]
    for name, path in headers.items():
        if name.startswith("detail/") or not declares(path):
            continue
        own = re.sub("^cuda/", "cuda_on_host/", name).rsplit(".", 1)[0] + "_test.cpp"
        if name in ELSEWHERE and (TESTS / own).exists():
            wrong.append(f"{name}: has the test {own}, so ELSEWHERE must not list it")
        elif not (TESTS / ELSEWHERE.get(name, own)).exists():
            wrong.append(f"{name}: expected a test in tests/{ELSEWHERE.get(name, own)}")
    print(*sorted(wrong), f"{len(headers)} headers, {len(wrong)} problems", sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())

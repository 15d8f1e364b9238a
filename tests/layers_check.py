#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Check that no header includes a header of a layer above its own."""

import pathlib
import re
import sys

INCLUDE = pathlib.Path(__file__).resolve().parents[1] / "include/scanrec"
#: From bottom to top. A layer lists headers and folders; a folder stands for all its headers.
LAYERS = (
    "version detail/config detail/text error executor extents element matrix"
    " detail/view_checks detail/view_data views memory mdspan eigen"
    " problem concepts detail/view_parameter options",
    "detail/simd",
    "affine discretise detail/maps operators",
    "cells",
    "detail/recurrence stored_sequence selective_arrays causal_conv1d_arrays linear_attention_arrays"
    " linear_attention_stream s5_system",
    "detail/problem",
    "detail/cpu detail/cuda backends variants triangular_matmul cuda/cub cuda/error",
    "linear_scan gated_scan inclusive_scan selective_scan causal_conv1d linear_attention sensitivity"
    " planned compiled scan extend cuda",
    "s5 s5_init split_time detail/split_time detail/cuda/s5_on_device detail/cuda/s5_calls cuda/s5",
    "layers mpi detail/mpi",
)


def layer_of(header):
    """Return the layer of the longest listed name that is a prefix of the header's path."""
    parts = header.rsplit(".", 1)[0].split("/")
    for length in range(len(parts), 0, -1):
        for number, names in enumerate(LAYERS):
            if "/".join(parts[:length]) in names.split():
                return number
    sys.exit(f"{header}: expected an entry in LAYERS of {__file__}")


def main():
    wrong = []
    headers = [p for p in INCLUDE.rglob("*") if p.suffix in (".hpp", ".cuh")]
    for path in headers:
        header = str(path.relative_to(INCLUDE))
        for included in re.findall(r"#include <scanrec/([^>]+)>", path.read_text()):
            if layer_of(included) > layer_of(header):
                wrong.append(f"{header} includes {included} of a higher layer")
    print(*sorted(wrong), f"{len(headers)} headers, {len(wrong)} includes upwards", sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())

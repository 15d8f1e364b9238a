#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Checks that two source files can launch the same kernel with more than 48 KiB of shared memory. They
# are compiled at every pair of optimisation levels and linked with a fake CUDA runtime that checks
# shared memory limits, so no GPU is needed. Since CUDA 12.8 every object has its own copy of a kernel,
# while the linker merges the functions that launch it.
# Use: launch.sh CUDA_COMPILER INCLUDE_DIRECTORIES...
set -euo pipefail

compiler=$1
shift
include=("${@/#/-I}")
source=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

compile() { "$compiler" -std=c++20 --expt-relaxed-constexpr -cudart none "${include[@]}" "$@"; }

compile -c "$source/launch_test.cpp" -o "$work/test.o"
for level in 0 1 2; do
  for unit in first second; do
    compile "-O$level" "-DUNIT=$unit" -c "$source/launch_unit.cu" -o "$work/$unit$level.o"
  done
done
failed=0
for one in 0 1 2; do
  for other in 0 1 2; do
    compile "$work/first$one.o" "$work/second$other.o" "$work/test.o" -o "$work/test"
    if ! "$work/test"; then
      echo "failed with objects at -O$one and -O$other"
      failed=1
    fi
  done
done
exit $failed

#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# What a unit that calls linear_scan and linear_scan_vjp costs to compile, as a multiple of one that
# includes xsimd alone: CPU seconds, best of three. With --check it fails above the budget.
# Use: bench/compile_time.sh [--check], with CXX and CXXFLAGS from the environment.
set -euo pipefail
export LC_ALL=C

budget=3.0
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

echo '#include <xsimd/xsimd.hpp>' >"$work/xsimd.cpp"
cat >"$work/scanrec.cpp" <<'CPP'
#include <scanrec/scan.hpp>
using view = scanrec::sequence_view<float>;
void run(float* const* p, const scanrec::extents& shape) {
  const view gate(p[0], shape), input(p[1], shape), state(p[2], shape), grad(p[3], shape);
  scanrec::linear_scan(gate, input, state);
  scanrec::linear_scan_vjp(gate, state, grad, {.gate_grad = grad, .input_grad = input});
}
CPP

TIMEFORMAT='%U %S'
seconds() {
  for _ in 1 2 3; do
    # shellcheck disable=SC2086
    { time "${CXX:-g++}" -O2 -std=c++20 ${CXXFLAGS:-} -I "$root/include" -c "$1" -o "$work/o"; } 2>&1
  done | awk '{t = $1 + $2; if (NR == 1 || t < best) best = t} END {printf "%.2f", best}'
}
alone=$(seconds "$work/xsimd.cpp")
ours=$(seconds "$work/scanrec.cpp")
ratio=$(awk "BEGIN {printf \"%.2f\", $ours / $alone}")
echo "scanrec: $ours s, xsimd alone: $alone s, ratio $ratio (budget $budget)"
if [[ ${1:-} == --check ]]; then
  awk "BEGIN {exit !($ratio <= $budget)}"
fi

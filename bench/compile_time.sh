#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Print the compile time of translation units in CPU seconds (best of three), the ratio to a unit that
# includes only xsimd, and the bytes of code. One unit includes scan.hpp, one calls linear_scan and
# linear_scan_vjp on floats, and one does the same with SCANREC_COMPILED.
# Use: bench/compile_time.sh [INCLUDE_DIRECTORY], with CXX and CXXFLAGS from the environment.
set -euo pipefail
export LC_ALL=C

include=${1:-$(cd "$(dirname "$0")/.." && pwd)/include}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

echo '#include <xsimd/xsimd.hpp>' >"$work/xsimd.cpp"
echo '#include <scanrec/scan.hpp>' >"$work/included.cpp"
cat >"$work/called.cpp" <<'CPP'
#include <scanrec/scan.hpp>
using view = scanrec::sequence_view<float>;
void run(float* const* p, const scanrec::extents& shape) {
  const view gate(p[0], shape), input(p[1], shape), state(p[2], shape), grad(p[3], shape);
  scanrec::linear_scan(gate, input, state);
  scanrec::linear_scan_vjp(gate, state, grad, {.gate_grad = grad, .input_grad = input});
}
CPP
{
  echo '#define SCANREC_COMPILED'
  cat "$work/called.cpp"
} >"$work/compiled.cpp"

TIMEFORMAT='%U %S'
seconds() {
  for _ in 1 2 3; do
    # shellcheck disable=SC2086
    { time "${CXX:-g++}" -O2 -std=c++20 ${CXXFLAGS:-} -I "$include" -c "$1" -o "$work/o"; } 2>&1
  done | awk '{t = $1 + $2; if (NR == 1 || t < best) best = t} END {printf "%.2f", best}'
}
alone=
printf '%-12s %8s %9s %10s\n' unit seconds 'x xsimd' 'code bytes'
for unit in xsimd included called compiled; do
  took=$(seconds "$work/$unit.cpp")
  alone=${alone:-$took}
  printf '%-12s %8s %9s %10s\n' "$unit" "$took" "$(awk "BEGIN {printf \"%.2f\", $took / $alone}")" \
    "$(size "$work/o" | awk 'NR == 2 {print $1}')"
done

#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Checks that each kernel for whole rows prefetches every array that it reads.
#
# Hardware prefetchers fail if rows have gaps, as in packed buffers, so the kernels use prefetch instructions.
# Compilers may drop these silently: a function that only prefetches counts as having no effect, and calls
# that are not inlined are removed. Gated scans once lost 40 % of their speed to this.
# Use: prefetches.sh COMPILER INCLUDE_DIRECTORIES...
set -euo pipefail
export LC_ALL=C

compiler=$1
shift
include=("${@/#/-I}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

level=-march=x86-64-v3
if ! echo 'int x;' | "$compiler" $level -x c++ -c - -o "$work/x.o" 2>/dev/null; then
  echo "skipped: the compiler does not support x86-64-v3"
  exit 77
fi

cat >"$work/unit.cpp" <<'CPP'
#include <scanrec/cells/qrnn.hpp>
#include <scanrec/gated_scan.hpp>
#include <scanrec/scan.hpp>
using view = scanrec::sequence_view<float>;
void scans(float* const* p, const scanrec::extents& shape) {
  const view gate(p[0], shape), input(p[1], shape), state(p[2], shape), grad(p[3], shape);
  const scanrec::tiled backend;
  scanrec::linear_scan(backend, gate, input, state);
  scanrec::linear_scan_vjp(backend, gate, state, grad, {.gate_grad = grad, .input_grad = input});
  using cell = scanrec::fo_pooling<>;
  const cell::arrays<view> pre{gate, input, grad};
  scanrec::gated_scan(backend, cell{}, pre, state);
  scanrec::gated_scan_vjp(backend, cell{}, pre, scanrec::memory::store{state}, grad, {.arrays = pre});
}
CPP
"$compiler" -std=c++20 -O2 $level "${include[@]}" -c "$work/unit.cpp" -o "$work/unit.o"

# Prints each recurrence and the number of prefetches in its row kernel for assume::plain (value 4; position.hpp),
# which has no boundary checks.
objdump --disassemble --no-show-raw-insn "$work/unit.o" | c++filt |
  awk '/^[0-9a-f]+ <.*>:$/ {
         inside = /run_rows<\(.*assume\)4, (decltype\(nullptr\)|std::nullptr_t)>/ && match($0, /recurrence::[a-z_]+/)
         name = substr($0, RSTART + 12, RLENGTH - 12)
         if (inside && !(name in found)) found[name] = 0
       }
       inside && /prefetch/ { ++found[name] }
       END { for (name in found) print name, found[name] }' | sort >"$work/found"
cat "$work/found"

failed=0
# expect RECURRENCE ARRAYS: fails if there are fewer prefetches than arrays that are read.
expect() {
  local count
  count=$(awk -v name="$1" '$1 == name {print $2}' "$work/found")
  if ((${count:-0} < $2)); then
    echo "$1: expected $2 prefetches or more, got ${count:-no kernel}"
    failed=1
  fi
}
expect forward 2
expect vjp 3
expect gated_forward 3
expect gated_vjp 5
exit $failed

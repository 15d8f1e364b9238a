#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Objects built with different flags must share no function of scanrec: the linker keeps one copy of
# a weak symbol, and it could keep one that this CPU, or this GPU, cannot run. Only argument_error and
# cuda::error are one type.
# Use: symbols.sh [--cuda CUDA_COMPILER] COMPILER INCLUDE_DIRECTORIES...
set -euo pipefail
export LC_ALL=C

cuda=
if [[ $1 == --cuda ]]; then
  cuda=$2
  shift 2
fi
compiler=$1
shift
include=("${@/#/-I}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if ! echo 'int x;' | "$compiler" -march=x86-64-v4 -x c++ -c - -o "$work/x.o" 2>/dev/null; then
  echo "no x86-64-v4 here: skipped"
  exit 77
fi

cat >"$work/unit.cpp" <<'CPP'
#include <span>

#include <scanrec/scan.hpp>
namespace {
using view = scanrec::sequence_view<float>;
}
void UNIT(float* const* p, const scanrec::extents& shape) {
  const view gate(p[0], shape), input(p[1], shape), state(p[2], shape), grad(p[3], shape);
  scanrec::linear_scan(gate, input, state);
  scanrec::linear_scan_vjp(gate, state, grad, {.gate_grad = grad, .input_grad = input});
  const view checked(std::span(p[0], 4), shape, scanrec::time_contiguous(shape));
  scanrec::linear_scan(scanrec::sequential{}, checked, input, scanrec::none,
                       {.final_state = {p[2], shape}});
}
CPP
cat >"$work/unit.cu" <<'CU'
#include <scanrec/cuda/scan.cuh>
void UNIT(scanrec::cuda::stream_ref stream, const scanrec::sequence_view<float>& x) {
  scanrec::linear_scan(scanrec::cuda::automatic{.stream = stream}, x, x, x);
}
CU

# Compiles the unit as object $1 with the flags that follow, and lists its weak symbols of scanrec.
compile() {
  local name=$1
  shift
  "$compiler" -std=c++20 -O0 "${include[@]}" "-DUNIT=$name" "$@" -c "$work/unit.cpp" \
    -o "$work/$name.o"
  list "$name"
}
# The same for GPUs.
compile_cuda() {
  local name=$1
  shift
  "$cuda" -std=c++20 -O1 --expt-relaxed-constexpr "${include[@]}" "-DUNIT=$name" "$@" \
    -c "$work/unit.cu" -o "$work/$name.o"
  list "$name"
}
list() {
  local name=$1
  nm --defined-only "$work/$name.o" | awk '$2 ~ /^[WVu]$/ {print $3}' | sort -u >"$work/all"
  # Any symbol that names scanrec, so instantiations of std templates over its types as well.
  c++filt <"$work/all" | paste "$work/all" - | grep 'scanrec::' | sort -u >"$work/$name" || true
  if [[ ! -s $work/$name ]]; then
    echo "object $name has no weak symbol of scanrec at all: this test has gone blind"
    exit 1
  fi
}

failed=0
# Objects $1 and $2 may share the members, the vtables and the typeinfo of the exceptions alone, and
# the object `none`, which is no code.
compare() {
  local shared
  shared=$(comm -12 "$work/$1" "$work/$2" | cut -f2- |
    grep -Ev '^((typeinfo|typeinfo name|vtable) for )?scanrec::(argument_error|cuda::error)(::[^:]*(\(.*)?)?$' |
    grep -vx 'scanrec::none' ||
    true)
  echo "$1 ($(wc -l <"$work/$1") weak symbols) and $2 ($(wc -l <"$work/$2"))" \
    "share $(grep -c . <<<"$shared" || true) that they must not"
  if [[ -n $shared ]]; then
    echo "$shared"
    failed=1
  fi
}

# Without optimisation, and so with what is inlined only by force: every function leaves its symbol.
compile v3 -march=x86-64-v3
compile v4 -march=x86-64-v4
compare v3 v4
if echo '#include <omp.h>' | "$compiler" -fopenmp -x c++ -c - -o "$work/x.o" 2>/dev/null; then
  compile v3_openmp -march=x86-64-v3 -fopenmp
  compare v3 v3_openmp
fi
if [[ -n $cuda ]]; then
  compile_cuda sm_80 -arch=sm_80
  compile_cuda sm_90 -arch=sm_90
  # What checks arguments on the host is the same in both, and may be shared; what launches is not.
  for name in sm_80 sm_90; do
    grep 'scanrec::cuda::' "$work/$name" >"$work/launching_$name"
  done
  compare launching_sm_80 launching_sm_90
  compare v3 sm_90
fi
exit $failed

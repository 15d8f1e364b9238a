#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Checks that objects built with different flags share no function. The linker keeps one copy of a weak
# symbol, and it could keep one that this CPU or GPU cannot run. Optimised objects for x86-64-v3 and v4 may
# share only the exception class and templates of Eigen. Without optimisation, inline functions of the
# standard library leave symbols too, so only symbols of scanrec are compared. Sealed objects, as in
# docs/design.md, are tested as well.
# Use: symbols.sh [--only-o3] [--cuda CUDA_COMPILER] COMPILER INCLUDE_DIRECTORIES...
# --only-o3 compares only objects at -O3, which takes half a minute and is left out otherwise.
set -euo pipefail
export LC_ALL=C

only_o3=0
if [[ $1 == --only-o3 ]]; then
  only_o3=1
  shift
fi
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
  echo "skipped: the compiler does not support x86-64-v4"
  exit 77
fi

cat >"$work/unit.cpp" <<'CPP'
#include <cstdio>
#include <span>

#include <scanrec/inclusive_scan.hpp>
#include <scanrec/cells/qrnn.hpp>
#include <scanrec/gated_scan.hpp>
#include <scanrec/scan.hpp>
namespace {
using view = scanrec::sequence_view<float>;
}
void UNIT(float* const* p, const scanrec::extents& shape) {
  const view gate(p[0], shape), input(p[1], shape), state(p[2], shape), grad(p[3], shape);
  scanrec::linear_scan(gate, input, state);
  scanrec::linear_scan_vjp(gate, state, grad, {.gate_grad = grad, .input_grad = input});
  const view checked(std::span(p[0], 4), shape, scanrec::time_contiguous(shape));
  const view part = checked.steps(1, 2).channels(0, 1).reversed();
  part.at(0, 0, 0) = 1;
  scanrec::linear_scan(scanrec::sequential{}, broadcast_to(part, shape), input, scanrec::none,
                       {.final_state = {p[2], shape}});
#if EVERYTHING
  scanrec::linear_scan_jvp(gate, state, grad, grad, input);
  scanrec::inclusive_scan(scanrec::op::max{}, input, state);
  using cell = scanrec::f_pooling<>;
  scanrec::gated_scan(cell{}, cell::arrays<view>{gate, input}, state);
  const auto plan = describe(scanrec::tiled{.threads = 2},
                             scanrec::linear_scan_problem(gate, input, state));
  std::puts(to_string(plan).c_str());
#endif
}
CPP
cat >"$work/s5.cpp" <<'CPP'
#include <scanrec/s5.hpp>
void UNIT(const scanrec::s5_system<float>& s, scanrec::s5_system<float>& grads,
          const scanrec::sequence_view<float>& u,
          const scanrec::sequence_view<std::complex<float>>& x) {
  const scanrec::sequence_view<const float> in(u.data, u.shape);
  scanrec::s5(s, in, x, u);
  scanrec::s5_vjp(s, in, {x.data, x.shape}, in, x, grads, u);
}
CPP
# The source of sealed objects: one function per level, and a program that calls those that the CPU can run.
cat >"$work/level.cpp" <<'CPP'
#include <scanrec/scan.hpp>
extern "C" float LEVEL(float* x, long steps) {
  const scanrec::sequence_view<float> all(x, {.time = steps});
  float last = 0;
  const scanrec::state_view<float> end(&last, {.time = 1});
  scanrec::linear_scan(all, all, scanrec::none, {.final_state = end});
  return last;
}
CPP
cat >"$work/main.cpp" <<'CPP'
#include <scanrec/error.hpp>
extern "C" float v3(float*, long);
extern "C" float v4(float*, long);
static int check(float (*level)(float*, long)) {
  float x[3] = {0.5f, 0.5f, 0.5f};
  if (level(x, 3) != 0.875f) return 1;
  try {
    level(nullptr, 3);
  } catch (const scanrec::argument_error& error) {
    return error.argument() == "gate" ? 0 : 2;
  }
  return 3;
}
int main() {
  int failed = 0;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) failed += check(v3);
  if (__builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) failed += check(v4);
  return failed;
}
CPP
cat >"$work/unit.cu" <<'CU'
#include <scanrec/cuda/scan.cuh>
void UNIT(scanrec::cuda::stream_ref stream, const scanrec::sequence_view<float>& x) {
  scanrec::linear_scan(scanrec::cuda::automatic{.stream = stream}, x, x, x);
}
CU

# Compiles the C++ source as object $1 with the given flags, and lists its weak symbols of scanrec.
compile() {
  local name=$1
  shift
  "$compiler" -std=c++20 -O0 "${include[@]}" "-DUNIT=$name" "$@" -c "$work/unit.cpp" \
    -o "$work/$name.o"
  list "$name"
}
# Compiles the CUDA source as object $1 with the given flags, and lists its weak symbols of scanrec.
compile_cuda() {
  local name=$1
  shift
  "$cuda" -std=c++20 -O1 --expt-relaxed-constexpr "${include[@]}" "-DUNIT=$name" "$@" \
    -c "$work/unit.cu" -o "$work/$name.o"
  list "$name"
}
weak_symbols() {
  nm --defined-only "$work/$1.o" | awk '$2 ~ /^[WVu]$/ {print $3}' | sort -u
}
list() {
  local name=$1
  weak_symbols "$name" >"$work/all"
  # Keeps every symbol that names scanrec, including instantiations of std templates with its types.
  c++filt <"$work/all" | paste "$work/all" - | grep 'scanrec::' | sort -u >"$work/$name" || true
  not_blind "$name"
}
not_blind() {
  if [[ ! -s $work/$1 ]]; then
    echo "object $1 has no weak symbols of scanrec: this test checks nothing"
    exit 1
  fi
}

failed=0
# Fails if objects $1 and $2 share more than members, vtables and typeinfo of the exceptions, and the object
# `none`, which has no code.
compare() {
  local shared
  shared=$(comm -12 "$work/$1" "$work/$2" | cut -f2- |
    grep -Ev '^((typeinfo|typeinfo name|vtable) for )?scanrec::(argument_error|cuda::error)(::[^:]*(\(.*)?)?$' |
    grep -vx 'scanrec::none' ||
    true)
  echo "$1 ($(wc -l <"$work/$1") weak symbols) and $2 ($(wc -l <"$work/$2"))" \
    "share $(grep -c . <<<"$shared" || true) forbidden symbols"
  if [[ -n $shared ]]; then
    echo "$shared"
    failed=1
  fi
}

# Without optimisation only functions marked always_inline are inlined. Every other function leaves a symbol.
if ((!only_o3)); then
  compile v3 -march=x86-64-v3
  compile v4 -march=x86-64-v4
  compare v3 v4
fi
if ((!only_o3)) && echo '#include <omp.h>' | "$compiler" -fopenmp -x c++ -c - -o "$work/x.o" 2>/dev/null; then
  compile v3_openmp -march=x86-64-v3 -fopenmp
  compare v3 v3_openmp
fi

# optimised SOURCE NAME ALLOWED FLAGS...: fails if the objects of v3 and v4 share symbols other than the
# allowed ones, or if the destructors of argument_error differ from those compiled for every x86-64 CPU.
cat >"$work/throw.cpp" <<'CPP'
#include <scanrec/error.hpp>
void refuse() { throw scanrec::argument_error("call", "argument", "this", "that"); }
CPP
exceptions='(typeinfo|typeinfo name|vtable) for scanrec::argument_error'
exceptions+='|scanrec::argument_error::~argument_error\(\)'
exceptions+='|DW\.ref\.__gxx_personality_v0'  # a pointer to a function of the standard library
exceptions+='|__clang_call_terminate'  # calls two functions of the standard library
exceptions+='|scanrec::none'  # no code
code_of_exceptions() {
  local symbol
  for symbol in D0 D1 D2; do
    objdump --disassemble=_ZN7scanrec14argument_error${symbol}Ev --no-show-raw-insn --no-addresses \
      "$work/$1.o" | sed -n 's/^\t//; s/[0-9a-f]* *<.*//; /^[a-z]/p' # without relocations
  done
}
optimised() {
  local source=$1 name=$2 allowed=$3 level shared
  shift 3
  for level in v3 v4; do
    "$compiler" -std=c++20 "${include[@]}" -DEVERYTHING=1 "-DUNIT=$level" "-march=x86-64-$level" "$@" \
      -c "$work/$source" -o "$work/$name.$level.o"
    weak_symbols "$name.$level" >"$work/$name.$level"
    not_blind "$name.$level"
  done
  shared=$(comm -12 "$work/$name.v3" "$work/$name.v4" | c++filt | grep -Evx "$allowed" || true)
  echo "$name: v3 and v4 share $(grep -c . <<<"$shared" || true) forbidden symbols of any kind"
  if [[ -n $shared ]]; then
    echo "$shared"
    failed=1
  fi
  "$compiler" -std=c++20 "${include[@]}" -march=x86-64 "$@" -c "$work/throw.cpp" -o "$work/throw.o"
  code_of_exceptions throw >"$work/throw.code"
  if [[ ! -s $work/throw.code ]]; then
    echo "found no code of argument_error: this test checks nothing"
    exit 1
  fi
  for level in v3 v4; do
    code_of_exceptions "$name.$level" >"$work/code"
    if ! diff "$work/throw.code" "$work/code"; then
      echo "$name: argument_error of $level differs from the code for every CPU"
      failed=1
    fi
  done
  echo "$name: the shared code of argument_error is code for every CPU ($(wc -l <"$work/throw.code") lines)"
}
if ((only_o3)); then
  optimised unit.cpp "-O3" "$exceptions" -O3
  exit $failed
fi
optimised unit.cpp "-O2" "$exceptions" -O2
# Templates of Eigen have the same names for every instruction set, so objects with s5 may share them as well.
for eigen in "${include[@]#-I}" /usr/include; do
  if [[ -e $eigen/eigen3/Eigen/Core ]]; then
    optimised s5.cpp "s5 -O2" "$exceptions|.*Eigen::.*" -O2 -isystem "$eigen/eigen3" -w
    break
  fi
done

# Sealed objects share nothing even without optimisation.
if [[ $("$compiler" --version) != *clang* ]]; then
  local_unique=(-fno-gnu-unique)
fi
for level in v3 v4; do
  "$compiler" -std=c++20 -O0 ${local_unique[@]+"${local_unique[@]}"} "${include[@]}" "-DLEVEL=$level" \
    "-march=x86-64-$level" -c "$work/level.cpp" -o "$work/level.o"
  ld -r --force-group-allocation -o "$work/$level.sealed.o" "$work/level.o"
  objcopy "--keep-global-symbol=$level" "$work/$level.sealed.o"
  shown=$(nm --defined-only --extern-only "$work/$level.sealed.o" | awk '{print $3}')
  if [[ $shown != "$level" ]]; then
    echo "the sealed object of $level exports more than it should:"
    echo "$shown"
    failed=1
  fi
done
"$compiler" -std=c++20 -O0 "${include[@]}" "$work/main.cpp" "$work/v3.sealed.o" "$work/v4.sealed.o" \
  -pthread -o "$work/main"
if "$work/main"; then
  echo "sealed objects of v3 and v4 run in one program"
else
  echo "the program of sealed objects failed"
  failed=1
fi

if [[ -n $cuda ]]; then
  compile_cuda sm_80 -arch=sm_80
  compile_cuda sm_90 -arch=sm_90
  # Host code that checks arguments is the same in both and may be shared. Code that launches kernels is not.
  for name in sm_80 sm_90; do
    grep 'scanrec::cuda::' "$work/$name" >"$work/launching_$name"
  done
  compare launching_sm_80 launching_sm_90
  compare v3 sm_90
fi
exit $failed

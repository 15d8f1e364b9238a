#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# No result may depend on whether the compiler contracts a product and a sum into one multiply-add,
# nor on which instruction set with multiply-adds it compiles for: compares what contraction.cpp
# prints with -ffp-contract=off and =fast, for x86-64-v3 and v4; or here and on another machine.
# Use: contraction.sh [--all] [--other COMPILER RUNNER] COMPILER INCLUDE_DIRECTORIES...
#      --all: every instantiation, for minutes. --other: that machine's compiler, and the command
#      that runs its programs, with its options, instead of v4.
set -euo pipefail
export LC_ALL=C

all=0
other=
while [[ $1 == --* ]]; do
  case $1 in
    --all)
      all=1
      shift
      ;;
    --other)
      other=$2
      runner=$3
      shift 3
      ;;
  esac
done
compiler=$1
include=(-I "$2")
shift 2
# What other machines have of their own comes first.
for directory in "$@"; do
  include+=(-idirafter "$directory")
done
source=$(dirname "$0")/contraction.cpp
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

level=()
case $(uname -m) in
  x86_64)
    if ! grep -qw fma /proc/cpuinfo; then
      echo "this CPU has no multiply-adds: skipped"
      exit 77
    fi
    level=(-march=x86-64-v3)
    ;;
  aarch64) ;;
  *)
    echo "not known to have multiply-adds: skipped"
    exit 77
    ;;
esac

# build NAME COMPILER FLAGS...: as the optimiser contracts from -O2 on, in half the time.
build() {
  local name=$1 by=$2 flags=(-O1)
  shift 2
  if [[ $("$by" --version) != *clang* ]]; then
    flags+=(-fexpensive-optimizations -Wno-psabi)
  fi
  "$by" -std=c++20 "${flags[@]}" "${include[@]}" -DCONTRACTION_ALL=$all "$@" "$source" \
    -o "$work/$name" -pthread
}
failed=0
# compare NAME COMMAND...: what the command prints with what `off` printed.
compare() {
  local name=$1
  shift
  "$@" >"$work/$name.bits"
  if diff "$work/off.bits" "$work/$name.bits" >"$work/different"; then
    echo "$name: the bits of -ffp-contract=off ($(wc -l <"$work/off.bits") results)"
  else
    echo "$name: other bits than with -ffp-contract=off"
    sed -n 's/^> //p' "$work/different"
    failed=1
  fi
}

build off "$compiler" "${level[@]}" -ffp-contract=off
"$work/off" >"$work/off.bits"
build fast "$compiler" "${level[@]}" -ffp-contract=fast
compare fast "$work/fast"
if [[ -n $other ]]; then
  build other "$other"
  # shellcheck disable=SC2086 # a command with its options
  compare other $runner "$work/other"
elif [[ ${level[*]} == *x86-64* ]]; then
  if grep -qw avx512vl /proc/cpuinfo && grep -qw avx512dq /proc/cpuinfo; then
    build v4 "$compiler" -march=x86-64-v4
    compare v4 "$work/v4"
  else
    echo "this CPU has no AVX-512: x86-64-v4 is left out"
  fi
fi
exit $failed

#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Builds, without a GPU, all that stages.py runs on a machine that has one: programs that want of it a
# driver, the C library and, for tests of state spaces, cuBLAS; besides python3. No compiler, no network.
# Use: bench/gpu/pack.sh [-jN] [--architectures LIST] [--types LIST] [--arch ARCH] [--no-tests]
#                        [--no-python] [DIR]
# DIR (build/pack) is written anew, with at most 60 MiB. Lists are separated by commas: of GPUs'
# architectures (90), of the battery's element types (all). --arch: the -march of code for CPUs
# (x86-64-v3).
set -euo pipefail
source "$(dirname "$0")/../../scripts/lib.sh"
source bench/gpu/build.sh

most_megabytes=60
built=build/gpu_packed # where CMake builds
pack=build/pack
architectures=90
types=
arch=x86-64-v3
with_tests=ON
with_python=yes
usage() {
  sed -n '5,6s/^# //p' bench/gpu/pack.sh >&2
  exit 2
}
while (($#)); do
  case $1 in
    -j[1-9]*) jobs=${1#-j} ;;
    --no-tests) with_tests=OFF ;;
    --no-python) with_python=no ;;
    --architectures | --types | --arch)
      if (($# < 2)); then
        usage
      fi
      printf -v "${1#--}" '%s' "${2//,/;}"
      shift
      ;;
    -*) usage ;;
    *) pack=$1 ;;
  esac
  shift
done
if [[ -e $pack && ! -e $pack/contents.json ]]; then
  echo "$pack is there, and was not written by this script" >&2
  exit 1
fi

need_build
if [[ $with_tests == ON ]]; then
  need_for_tests
fi
small=
if [[ $(nvcc --help) == *--compress-mode* ]]; then # 12.8 and newer: half the size
  small=--compress-mode=size
fi
architectures=${architectures//;/-real;}-real
say "configuring $built for $architectures"
configure "${built#build/}" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CUDA_ARCHITECTURES="$architectures" \
  -DSCANREC_TEST_ON_GPU=ON -DSCANREC_TEST_GPU_ARCHITECTURE="$architectures" \
  -DSCANREC_BUILD_TESTS="$with_tests" -DSCANREC_BUILD_EXAMPLES=OFF -DSCANREC_BUILD_GPU_BENCH=ON \
  -DSCANREC_ARCH="$arch" -DCMAKE_CUDA_FLAGS="$small" -DCMAKE_BUILD_RPATH="\$ORIGIN" \
  ${types:+-DSCANREC_TEST_TYPES="$types"}

# cached NAME: a list that CMake has kept.
cached() { sed -n "s/^$1:[A-Z]*=//p" "$built/CMakeCache.txt"; }
targets=("${benchmarks[@]}" bench_linear_scan)
contained=()
if [[ $with_tests == ON ]]; then
  IFS=';' read -ra contained <<<"$(cached SCANREC_TEST_TYPES);$(cached SCANREC_TEST_GATED)"
  for name in "${tests[@]}"; do
    # That of numerics is of four types together.
    if [[ $name != numerics_test || " ${contained[*]} " == *" double "*" complex_double "* ]]; then
      targets+=("$name")
    fi
  done
fi

rm -rf "$pack"
mkdir -p "$pack/bin" "$pack/scripts"
# What a pack has: without this file none is overwritten or run.
python3 - "$arch" "$architectures" "${contained[@]}" >"$pack/contents.json" <<'END'
import json, sys
print(json.dumps({"arch": sys.argv[1], "architectures": sys.argv[2], "types": sys.argv[3:]}))
END
for name in "${targets[@]}"; do
  say "building $name with $jobs jobs"
  build "${built#build/}" "$name"
  program=$(find "$built" -name "$name" -type f -perm -u+x)
  strip -o "$pack/bin/$name" "$program"
  # Libraries that another machine may lack, or have older ones of, lie beside the program.
  ldd "$program" | sed -n 's|.*=> \(/[^ ]*\) .*|\1|p' | while read -r library; do
    case ${library##*/} in
      libc.so* | libm.so* | libdl.so* | libpthread.so* | librt.so* | libcuda.so*) ;;
      libcublas*) ;; # larger than all the rest
      *) cp -Lu "$library" "$pack/bin" ;;
    esac
  done
done
if [[ $with_python == yes ]]; then
  say "building the Python package"
  python_package gpu_packed_python "$pack/python" -DSCANREC_LEVELS=native \
    -DCMAKE_CXX_FLAGS="-march=$arch" \
    -DCMAKE_CUDA_ARCHITECTURES="$architectures" -DCMAKE_CUDA_FLAGS="$small"
  strip "$pack"/python/scanrec/*.so
fi
for name in stages items sources report results draw peers selective_peers frameworks; do
  cp "bench/gpu/$name.py" "$pack/scripts"
done

size=$(du -sm "$pack" | cut -f1)
say "$pack: $size MiB"
if ((size > most_megabytes)); then
  echo "more than $most_megabytes MiB: --types leaves some out" >&2
  exit 1
fi
say "what would be run: $built/dry_run.txt"
bench/gpu/run.sh --packed "$pack" --dry-run >"$built/dry_run.txt"

#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Build, without a GPU, everything that stages.py runs on a machine with one. The machine with the GPU
# needs a driver and python3, and cuBLAS for the tests of state spaces, but no compiler and no network.
# Use: bench/gpu/pack.sh [-jN] [--architectures LIST] [--types LIST] [--arch ARCH] [--no-tests]
#                        [--no-python] [DIR]
# DIR (default: build/pack) is replaced. A pack over 48 MiB is an error. --architectures lists GPU
# architectures (default: 90), and --types the element types of the tests (default: all), separated by
# commas. --arch is the -march of code for CPUs (default: x86-64-v3).
set -euo pipefail
source "$(dirname "$0")/../../scripts/lib.sh"
source bench/gpu/build.sh

most_megabytes=48
accelerated_scan=0.3.1
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
  echo "$pack exists, and this script did not write it" >&2
  exit 1
fi

need_build
if [[ $with_tests == ON ]]; then
  need_for_tests
fi
small=
if [[ $(nvcc --help) == *--compress-mode* ]]; then # CUDA 12.8 and newer; halves the size
  small=--compress-mode=size
fi
architectures=${architectures//;/-real;}-real
say "configuring $built for $architectures"
configure "${built#build/}" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CUDA_ARCHITECTURES="$architectures" \
  -DSCANREC_TEST_ON_GPU=ON -DSCANREC_TEST_GPU_ARCHITECTURE="$architectures" \
  -DSCANREC_BUILD_TESTS="$with_tests" -DSCANREC_BUILD_EXAMPLES=OFF -DSCANREC_BUILD_GPU_BENCH=ON \
  -DSCANREC_TEST_OPTIMISATION=-Os -DSCANREC_ARCH="$arch" -DCMAKE_CUDA_FLAGS="$small" -DCMAKE_BUILD_RPATH="\$ORIGIN" \
  ${types:+-DSCANREC_TEST_TYPES="$types"}

# cached NAME: the value of a list in CMake's cache.
cached() { sed -n "s/^$1:[A-Z]*=//p" "$built/CMakeCache.txt"; }
targets=("${benchmarks[@]}")
contained=()
if [[ $with_tests == ON ]]; then
  IFS=';' read -ra contained <<<"$(cached SCANREC_TEST_TYPES);$(cached SCANREC_TEST_GATED)"
  targets+=("${tests[@]}")
fi

rm -rf "$pack"
mkdir -p "$pack/bin" "$pack/scripts"
# contents.json marks a pack. A folder without it is neither replaced nor run.
commit=$(git describe --always --dirty 2>/dev/null || echo unknown)
python3 - "$commit" "$arch" "$architectures" "${contained[@]}" >"$pack/contents.json" <<'END'
import json, sys
print(json.dumps(dict(zip(("commit", "arch", "architectures"), sys.argv[1:]), types=sys.argv[4:])))
END
for name in "${targets[@]}"; do
  say "building $name with $jobs jobs"
  if ! build "${built#build/}" "$name"; then
    echo "cannot build $name, which the pack needs" >&2
    exit 1
  fi
  program=$(find "$built" -name "$name" -type f -perm -u+x)
  strip -o "$pack/bin/$name" "$program"
  # Copy libraries that another machine may lack, or have in an older version, beside the program.
  ldd "$program" | sed -n 's|.*=> \(/[^ ]*\) .*|\1|p' | while read -r library; do
    case ${library##*/} in
      libc.so* | libm.so* | libdl.so* | libpthread.so* | librt.so* | libcuda.so*) ;;
      libcublas*) ;; # larger than everything else together
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
  say "downloading accelerated-scan $accelerated_scan, a peer"
  if ! "$python" -c "import ensurepip" 2>/dev/null; then
    need python3-venv
  fi
  if ! "$python" -m venv build/tools ||
    ! build/tools/bin/pip install --quiet --disable-pip-version-check --no-deps --no-compile \
      --target "$pack/site" "accelerated-scan==$accelerated_scan"; then
    echo "accelerated-scan cannot be downloaded, so this peer is not in the pack" >&2
  fi
fi
cp bench/gpu/{stages,items,programs,summary,report,results,draw,peers,selective_peers,frameworks}.py \
  bench/{plot,table}.py "$pack/scripts"

say "listing the items of the pack in $built/dry_run.txt"
python3 "$pack/scripts/stages.py" --programs "$pack" --dry-run >"$built/dry_run.txt"
size=$(du -sm "$pack" | cut -f1)
if ((size > most_megabytes)); then
  echo "$pack has $size MiB, more than $most_megabytes: leave types out with --types" >&2
  exit 1
fi
say "$pack has $size MiB"

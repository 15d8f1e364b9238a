#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Builds, tests, measures and reports on this machine's GPU, in build/gpu.
# Use: bench/gpu/run.sh [-jN] [--quick] [--no-tests] [build] [tests] [python] [sanitizers] [bench]
#                      [peers] [report]
#      bench/gpu/run.sh [-jN] --build-only
# Stages that are named run alone; default: all. Each goes on from what is in build/gpu, and builds
# what it needs. --quick: shorter sequences, fewer samples. --no-tests: without the tests, which take
# longest to build. --build-only: compiles the benchmarks for every architecture that they are meant
# for, and checks the report; needs no GPU.
set -euo pipefail
source "$(dirname "$0")/../../scripts/lib.sh"

all=(build tests python sanitizers bench peers report)
stages=()
quick=()
with_tests=ON
build_only=no
for argument in "$@"; do
  case $argument in
    -j[1-9]*) jobs=${argument#-j} ;;
    --quick) quick=(--quick) ;;
    --no-tests) with_tests=OFF ;;
    --build-only) build_only=yes ;;
    *)
      if [[ " ${all[*]} " != *" $argument "* ]]; then
        echo "use: bench/gpu/run.sh [-jN] [--quick] [--no-tests] [--build-only] [${all[*]}]" >&2
        exit 2
      fi
      stages+=("$argument")
      ;;
  esac
done
if ((${#stages[@]} == 0)); then
  stages=("${all[@]}")
fi
results=build/gpu/results${quick:+_quick}
benchmarks=(bench_gpu_linear_scan bench_gpu_gated_scan)
# Those that run the kernels on the GPU; the others run them on the emulator or not at all.
tests=(linear_scan_battery gated_scan_battery_gpu numerics_test device_test_gpu)

need_nvcc() {
  export PATH=$PATH:/usr/local/cuda/bin
  if ! command -v nvcc >/dev/null; then
    echo "no nvcc: neither in PATH nor in /usr/local/cuda/bin" >&2
    exit 1
  fi
}
need_gpu() {
  if ! nvidia-smi -L 2>/dev/null | grep '^GPU'; then
    echo "no GPU: nvidia-smi lists none; --build-only does what can be done without" >&2
    exit 1
  fi
}

# need_where_absent HEADER PACKAGES...: packages, where the compiler does not find the header. What
# was unpacked by hand is known to no package manager.
need_where_absent() {
  local header=$1
  shift
  if ! echo "#include <$header>" | c++ -std=c++20 -E -x c++ - >/dev/null 2>&1; then
    need "$@"
  fi
}
need_build() {
  need_nvcc
  local command
  for command in c++ cmake ninja; do
    if ! command -v "$command" >/dev/null; then
      need g++ cmake ninja-build
    fi
  done
  need_where_absent xsimd/config/xsimd_config.hpp libxsimd-dev
  need_where_absent benchmark/benchmark.h libbenchmark-dev
}
# make_report ARGUMENTS...: by a python that has matplotlib; without one there are no pictures.
make_report() {
  local one
  for one in python3 "$python"; do
    if "$one" -c 'import matplotlib' 2>/dev/null; then
      "$one" bench/gpu/report.py "$@"
      return
    fi
  done
  python3 bench/gpu/report.py "$@"
}

configured=no
configure_gpu() {
  if [[ $configured == yes ]]; then
    return
  fi
  need_build
  if [[ $with_tests == ON ]]; then
    if [[ ! -e /usr/include/catch2 && ! -e /usr/local/include/catch2 ]]; then
      need catch2
    fi
    need_where_absent eigen3/Eigen/Core libeigen3-dev
  fi
  say "configuring build/gpu"
  configure gpu -DCMAKE_BUILD_TYPE=Release -DCMAKE_CUDA_ARCHITECTURES=native \
    -DSCANREC_TEST_ON_GPU=ON -DSCANREC_BUILD_TESTS="$with_tests" -DSCANREC_BUILD_EXAMPLES=OFF \
    -DSCANREC_BUILD_GPU_BENCH=ON
  configured=yes
}

build_stage() {
  configure_gpu
  local targets=("${benchmarks[@]}")
  if [[ $with_tests == ON ]]; then
    targets+=("${tests[@]}")
  fi
  say "building ${targets[*]} with $jobs jobs"
  build gpu "${targets[@]}"
}

tests_stage() {
  if [[ $with_tests == OFF ]]; then
    say "tests: left out"
    return
  fi
  need_gpu
  configure_gpu
  build gpu "${tests[@]}"
  local names
  names=$(IFS='|' && echo "${tests[*]}")
  say "testing on the GPU"
  # One after the other: they share the GPU.
  ctest --test-dir build/gpu --output-on-failure -R "^($names)"
}

# The Python package, for the frameworks that are installed here: JAX and PyTorch on the GPU give what
# they give on the CPU.
python_stage() {
  if [[ $with_tests == OFF ]]; then
    say "python: left out"
    return
  fi
  need_gpu
  need_build
  local with package=build/gpu/python/package log=build/gpu/python/tests.log
  with=$(command -v python3 || echo "$python")
  if ! "$with" -c 'import numpy, pytest' 2>/dev/null; then
    say "python: $with has no numpy or no pytest, left out"
    return
  fi
  say "building the Python package for $with"
  source=python configure gpu/python -DCMAKE_BUILD_TYPE=Release -DCMAKE_CUDA_ARCHITECTURES=native \
    -DSCANREC_LEVELS=native -DPython3_EXECUTABLE="$with"
  build gpu/python
  if [[ ! -e build/gpu/python/libscanrec_cuda.so ]]; then
    echo "CMake found no CUDA compiler that works: build/gpu/python/configure.log" >&2
    return 1
  fi
  rm -rf "$package"
  mkdir "$package"
  cp -r python/src/scanrec "$package"
  cp build/gpu/python/libscanrec*.so "$package/scanrec"
  say "testing the Python package on the GPU"
  PYTHONPATH=$PWD/$package "$with" -m pytest -v -rs -p no:cacheprovider python/tests/test_cuda.py |
    tee "$log"
  if ! grep -qE 'test_(pytorch|jax)_on_a_gpu PASSED' "$log"; then
    echo "$with has no framework that sees the GPU: nothing was tested" >&2
    return 1
  fi
}

# sanitize TOOL NAME COMMAND...: fails if the tool finds anything, or the command fails.
sanitize() {
  local tool=$1 log=build/gpu/$1_$2.log
  say "compute-sanitizer $tool: $2"
  shift 2
  if ! timeout 240 compute-sanitizer --tool "$tool" --error-exitcode 9 "$@" >"$log" 2>&1; then
    tail -n 40 "$log"
    echo "compute-sanitizer $tool failed; all it says is in $log" >&2
    return 1
  fi
  grep 'SUMMARY' "$log" || true
}
sanitizers_stage() {
  need_gpu
  need_nvcc
  if ! command -v compute-sanitizer >/dev/null; then
    say "no compute-sanitizer: left out"
    return
  fi
  configure_gpu
  build gpu "${benchmarks[0]}"
  local tool
  for tool in memcheck racecheck; do
    sanitize "$tool" small build/gpu/bench/gpu/bench_gpu_linear_scan --quick \
      --benchmark_filter='^small/'
    if grep '^small/' "build/gpu/${tool}_small.log" | grep -v 'of the twin$'; then
      echo "not every backend gave its results: build/gpu/${tool}_small.log" >&2
      return 1
    fi
  done
  if [[ $with_tests == OFF ]]; then
    return
  fi
  build gpu linear_scan_battery
  # Every backend, every layout, few shapes.
  local some="float: in place,float: none stands for what is absent"
  for tool in memcheck racecheck; do
    sanitize "$tool" battery build/gpu/tests/linear_scan_battery "$some"
    if ! grep 'All tests passed' "build/gpu/${tool}_battery.log"; then
      echo "no test ran: build/gpu/${tool}_battery.log" >&2
      return 1
    fi
  done
}

bench_stage() {
  need_gpu
  configure_gpu
  build gpu "${benchmarks[@]}"
  mkdir -p "$results"
  local name
  for name in "${benchmarks[@]}"; do
    say "$name"
    "build/gpu/bench/gpu/$name" "${quick[@]}" --benchmark_out_format=json \
      --benchmark_out="$results/${name#bench_gpu_}.json"
  done
}

peers_stage() {
  need_gpu
  mkdir -p "$results"
  local with
  with=$(command -v python3 || echo "$python")
  say "peers in Python, by $with"
  "$with" bench/gpu/peers.py "${quick[@]}" --out "$results/peers.json"
}

report_stage() {
  say "report: $results"
  mkdir -p "$results"
  make_report "$results"
}

build_for_all() {
  need_build
  local known one architectures=()
  known=$(nvcc --list-gpu-arch)
  for one in 80 90 100; do
    if [[ $known == *compute_$one* ]]; then
      architectures+=("$one-real")
    fi
  done
  say "compiling for ${architectures[*]}"
  configure gpu_build_only -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_CUDA_ARCHITECTURES="$(IFS=';' && echo "${architectures[*]}")" \
    -DSCANREC_BUILD_TESTS=OFF -DSCANREC_BUILD_EXAMPLES=OFF -DSCANREC_BUILD_GPU_BENCH=ON
  build gpu_build_only "${benchmarks[@]}"
  make_report --self-check
}

if [[ $build_only == yes ]]; then
  build_for_all
  say "built; nothing was measured"
  exit
fi
for stage in "${stages[@]}"; do
  "${stage}_stage"
done
say "done: ${stages[*]}"

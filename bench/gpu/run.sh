#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Build, test, measure and report on this machine's GPU, in build/gpu; or build a pack for a machine with a
# GPU.
# Use: bench/gpu/run.sh [-jN] [--quick] [--no-tests] [build] [tests] [python] [sanitizers] [bench]
#                       [profiles] [peers] [report]
#      bench/gpu/run.sh [-jN] --build-only
#      bench/gpu/run.sh --pack [ARGUMENTS OF pack.sh]
# Runs the named steps; default: all. Each step builds what it needs in build/gpu.
# --quick: shorter sequences, fewer samples. --no-tests: leave out the tests, whose build takes longest.
# --build-only: compile the benchmarks for compute capabilities 8.0, 9.0 and 10.0, if nvcc knows them; needs
# no GPU.
# --pack: build a pack for a machine that has a GPU but no compiler.
set -euo pipefail
source "$(dirname "$0")/../../scripts/lib.sh"
source bench/gpu/build.sh

usage() {
  sed -n '5,8s/^# //p' bench/gpu/run.sh >&2
  exit 2
}

all=(build tests python sanitizers bench profiles peers report)
stages=()
quick=()
with_tests=ON
build_only=no
while (($#)); do
  case $1 in
    -j[1-9]*) jobs=${1#-j} ;;
    --quick) quick=(--quick) ;;
    --no-tests) with_tests=OFF ;;
    --build-only) build_only=yes ;;
    --pack)
      shift
      exec bench/gpu/pack.sh "-j$jobs" "$@"
      ;;
    *)
      if [[ " ${all[*]} " != *" $1 "* ]]; then
        usage
      fi
      stages+=("$1")
      ;;
  esac
  shift
done
if ((${#stages[@]} == 0)); then
  stages=("${all[@]}")
fi
results=build/gpu/results${quick:+_quick}
failed=()

need_gpu() {
  if ! nvidia-smi -L 2>/dev/null | grep '^GPU'; then
    echo "no GPU: nvidia-smi lists none; --build-only works without one" >&2
    exit 1
  fi
}

configured=no
configure_gpu() {
  if [[ $configured == yes ]]; then
    return
  fi
  need_build
  if [[ $with_tests == ON ]]; then
    need_for_tests
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

# items PART...: run the items of these parts, from both stages, without a limit on their total time.
items() {
  local part
  need_gpu
  for part in "$@"; do
    say "$part"
    if ! "$(with_python)" bench/gpu/stages.py --programs build/gpu --out "build/gpu/out/$part" \
      --rows "$results" --budget 0 --part "$part" "${quick[@]}"; then
      failed+=("$part")
    fi
  done
}
# A Python that may have PyTorch and JAX.
with_python() { command -v python3 || echo "$python"; }

tests_stage() {
  if [[ $with_tests == OFF ]]; then
    say "tests are left out (--no-tests)"
    return
  fi
  need_gpu
  configure_gpu
  build gpu "${benchmarks[0]}" "${tests[@]}"
  items facts tests
}

# Compare scanrec on the GPU and the CPU, in JAX and PyTorch. The tests fail unless both are installed.
python_stage() {
  if [[ $with_tests == OFF ]]; then
    say "tests of the Python package are left out (--no-tests)"
    return
  fi
  need_gpu
  need_build
  say "building the Python package for $(with_python)"
  python_package gpu_python build/gpu/python -DCMAKE_CUDA_ARCHITECTURES=native \
    -DSCANREC_LEVELS=native -DPython3_EXECUTABLE="$(with_python)"
  items python
}

sanitizers_stage() {
  need_gpu
  need_nvcc
  if ! command -v compute-sanitizer >/dev/null; then
    say "no compute-sanitizer: the sanitizers are left out"
    return
  fi
  configure_gpu
  build gpu "${benchmarks[0]}"
  if [[ $with_tests == ON ]]; then
    build gpu linear_scan_test
  fi
  items sanitizers
}

bench_stage() {
  need_gpu
  configure_gpu
  build gpu "${benchmarks[@]}"
  items bench
}

profiles_stage() {
  need_gpu
  need_nvcc
  if ! command -v ncu >/dev/null; then
    say "no ncu: the profiles are left out"
    return
  fi
  configure_gpu
  build gpu "${benchmarks[@]}"
  items profiles
}

# Run all installed peers; stages.py runs only the most important ones.
peers_stage() {
  need_gpu
  mkdir -p "$results"
  "$(with_python)" bench/gpu/peers.py "${quick[@]}" --out "$results/peers.json"
}

# Prefer a Python with matplotlib; without it the report has no pictures.
report_stage() {
  say "report: $results"
  mkdir -p "$results"
  local one=python3
  if "$python" -c 'import matplotlib' 2>/dev/null; then
    one=$python
  fi
  if ! "$one" bench/gpu/report.py "$results"; then
    failed+=(report)
  fi
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
}

if [[ $build_only == yes ]]; then
  build_for_all
  say "built; nothing was measured"
  exit
fi
for stage in "${stages[@]}"; do
  "${stage}_stage"
done
if ((${#failed[@]})); then
  echo "failed: ${failed[*]}; their logs are in build/gpu/out" >&2
  exit 1
fi
say "done: ${stages[*]}"

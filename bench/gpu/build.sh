# SPDX-License-Identifier: BSD-3-Clause
# What run.sh and pack.sh share: what is built, and what that takes. To be sourced after lib.sh.
# shellcheck shell=bash

# Read by those that source this.
# shellcheck disable=SC2034
benchmarks=(bench_gpu_linear_scan bench_gpu_gated_scan bench_gpu_selective_scan)
# Those that run the kernels on the GPU; the others run them on the emulator or not at all.
tests=(linear_scan_battery gated_scan_battery_gpu numerics_test device_test_gpu)

need_nvcc() {
  export PATH=$PATH:/usr/local/cuda/bin
  if ! command -v nvcc >/dev/null; then
    echo "no nvcc: neither in PATH nor in /usr/local/cuda/bin" >&2
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
need_for_tests() {
  if [[ ! -e /usr/include/catch2 && ! -e /usr/local/include/catch2 ]]; then
    need catch2
  fi
  need_where_absent eigen3/Eigen/Core libeigen3-dev
}

# python_package DIRECTORY TO CMAKE_ARGUMENTS...: the package with its tests in TO.
python_package() {
  local directory=$1 to=$2
  shift 2
  source=python configure "$directory" -DCMAKE_BUILD_TYPE=Release "$@"
  build "$directory"
  if [[ ! -e build/$directory/libscanrec_cuda.so ]]; then
    echo "CMake found no CUDA compiler that works: build/$directory/configure.log" >&2
    return 1
  fi
  rm -rf "$to"
  mkdir -p "$to/tests"
  cp -r python/src/scanrec "$to"
  cp "build/$directory"/libscanrec*.so "$to/scanrec"
  cp python/tests/{conftest,devices,test_cuda,test_cuda_selective}.py "$to/tests"
}

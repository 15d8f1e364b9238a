# SPDX-License-Identifier: BSD-3-Clause
# Shared by run.sh and pack.sh: the programs, their requirements, and the Python package.
# Source it after scripts/lib.sh.
# shellcheck shell=bash

# shellcheck disable=SC2034 # the scripts that source this file use these arrays
benchmarks=(bench_gpu_linear_scan bench_gpu_gated_scan bench_gpu_selective_scan)
# The test programs that run kernels on the GPU. All other C++ tests use the emulator or the CPU.
# shellcheck disable=SC2034
tests=(look_back_stress_gpu linear_scan_test gated_scan_typed_gpu device_test_gpu)

need_nvcc() {
  export PATH=$PATH:/usr/local/cuda/bin
  if ! command -v nvcc >/dev/null; then
    echo "no nvcc: neither in PATH nor in /usr/local/cuda/bin" >&2
    exit 1
  fi
}

# need_where_absent HEADER PACKAGES...: install packages unless the compiler finds the header. A header that
# was unpacked by hand counts as installed.
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

# need_symbol LIBRARY SYMBOL PART: fails unless the library exists and exports the symbol. PART tells what the
# package lacks in that case.
need_symbol() {
  if [[ ! -e $1 ]]; then
    echo "the Python package lacks $3: ${1##*/} was not built" >&2
    return 1
  fi
  if ! nm -D --defined-only "$1" | finds " $2\$"; then
    echo "the Python package lacks $3: ${1##*/} does not export $2" >&2
    return 1
  fi
}

# python_package DIRECTORY TO CMAKE_ARGUMENTS...: build the package in build/DIRECTORY, and put it with its
# tests for GPUs into TO. Fails if the part for JAX or for PyTorch is incomplete.
python_package() {
  local directory=$1 to=$2
  shift 2
  source=python configure "$directory" -DCMAKE_BUILD_TYPE=Release "$@"
  build "$directory"
  if [[ ! -e build/$directory/libscanrec_cuda.so ]]; then
    echo "CMake found no CUDA compiler that works; see build/$directory/configure.log" >&2
    return 1
  fi
  rm -rf "$to"
  mkdir -p "$to/tests"
  cp -r python/src/scanrec "$to"
  cp "build/$directory"/libscanrec*.so "$to/scanrec"
  cp python/tests/{conftest,devices,test_cuda,test_cuda_selective}.py "$to/tests"
  local call
  need_symbol "$to/scanrec/libscanrec_xla.so" scanrec_xla_linear_scan "scanrec.jax"
  for call in {linear,gated,selective}_scan{,_vjp}; do
    need_symbol "$to/scanrec/libscanrec.so" "scanrec_$call" "kernels for CPUs, which scanrec.torch needs"
    need_symbol "$to/scanrec/libscanrec_cuda.so" "scanrec_cuda_$call" "kernels for GPUs, which scanrec.torch needs"
    need_symbol "$to/scanrec/libscanrec_cuda.so" "scanrec_xla_cuda_$call" "handlers for GPUs, which scanrec.jax needs"
  done
  if [[ ! -e $to/scanrec/torch/__init__.py || ! -e $to/scanrec/jax/__init__.py ]]; then
    echo "the Python package lacks scanrec.torch or scanrec.jax" >&2
    return 1
  fi
}

# SPDX-License-Identifier: BSD-3-Clause
# Compiler flags for CUDA sources: C++20, which CMake before 3.25.2 cannot request from nvcc, and
# constexpr functions of the standard library in device code.
set(scanrec_cuda_flags
    "$<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>"
    "$<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:--expt-relaxed-constexpr>")

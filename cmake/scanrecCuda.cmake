# SPDX-License-Identifier: BSD-3-Clause
# What sources in CUDA need: C++20, which CMake before 3.25.2 cannot ask nvcc for, and constexpr
# functions of the standard library in device code.
set(scanrec_cuda_flags
    "$<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>"
    "$<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:--expt-relaxed-constexpr>")

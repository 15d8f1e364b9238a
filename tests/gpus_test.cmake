# SPDX-License-Identifier: BSD-3-Clause
# A test of the GPU architectures for which the Python package builds kernels. It runs
# python/cmake/gpus.cmake with stand-ins for nvidia-smi, nvcc and CMake's checks of a compiler.
# Use: cmake -D WORK=FOLDER -P gpus_test.cmake
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE ${WORK})
file(WRITE ${WORK}/modules/CheckLanguage.cmake "function(check_language)\nendfunction()\n")
set(CMAKE_MODULE_PATH ${WORK}/modules)
function(enable_language)
endfunction()

# program NAME WORDS...: creates a program that prints the words, one per line.
function(program name)
  list(JOIN ARGN "\\n" lines)
  file(WRITE ${WORK}/bin/${name} "#!/bin/sh\nprintf '${lines}\\n'\n")
  file(CHMOD ${WORK}/bin/${name} PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
endfunction()
set(ENV{PATH} "${WORK}/bin:$ENV{PATH}")
unset(ENV{CUDAARCHS})
program(nvcc compute_80 compute_90 compute_100)
set(CMAKE_CUDA_COMPILER ${WORK}/bin/nvcc)
set(CMAKE_CUDA_COMPILER_ID NVIDIA)
set(CMAKE_CUDA_COMPILER_VERSION 13.0)

# expect GPUS SETTING ARCHITECTURES MORE [ASKED]: on a machine with these GPUs and with SCANREC_CUDA=SETTING,
# kernels are built for ARCHITECTURES (a list or "none"), with additional machine code for MORE. ASKED sets
# CMAKE_CUDA_ARCHITECTURES.
function(expect gpus setting architectures more)
  program(nvidia-smi ${gpus})
  set(SCANREC_CUDA ${setting})
  set(CMAKE_CUDA_ARCHITECTURES ${ARGN})
  set(with_cuda OFF)
  include(${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../python/cmake/gpus.cmake)
  set(got none)
  if(with_cuda)
    set(got "${CMAKE_CUDA_ARCHITECTURES} and ${more_gpus}")
  endif()
  set(wanted "${architectures} and ${more}")
  if(architectures STREQUAL "none")
    set(wanted none)
  endif()
  if(NOT got STREQUAL wanted)
    message(SEND_ERROR "GPUs '${gpus}', SCANREC_CUDA=${setting} ${ARGN}: expected ${wanted}, got ${got}")
  endif()
endfunction()

expect("" AUTO none "")
expect("7.5" AUTO none "")
expect("9.0" AUTO "90" "")
expect("8.0;9.0;9.0;7.5" AUTO "80;90" "")
expect("12.0" AUTO "80" "sm_90;sm_100")  # unknown to this nvcc: PTX for 8.0, and machine code for GPUs that nvcc knows
expect("" ON "80" "sm_90;sm_100")
expect("9.0" ON "80" "sm_90;sm_100")
expect("9.0" AUTO "80-real" "" 80-real)
expect("" ON "90" "" 90)

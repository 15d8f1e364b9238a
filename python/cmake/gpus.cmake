# SPDX-License-Identifier: BSD-3-Clause
# Decides whether kernels for GPUs are built, and for which GPUs. Sets with_cuda, CMAKE_CUDA_ARCHITECTURES
# and more_gpus (GPUs for which machine code is added), and enables CUDA.

set(asked OFF)
if(CMAKE_CUDA_ARCHITECTURES OR DEFINED ENV{CUDAARCHS})
  set(asked ON)
endif()

# Compute capabilities of this machine's GPUs, from 8.0 on, in CMake's notation. With SCANREC_CUDA=ON the list
# stays empty, so that the contents of a wheel do not depend on the machine that builds it.
set(gpus)
if(SCANREC_CUDA STREQUAL "AUTO")
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
                  OUTPUT_VARIABLE found ERROR_QUIET)
  string(REGEX MATCHALL "[0-9]+\\.[0-9]+" found "${found}")
  string(REPLACE "." "" found "${found}")
  foreach(gpu IN LISTS found)
    if(gpu GREATER_EQUAL 80)
      list(APPEND gpus ${gpu})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES gpus)
endif()

if(SCANREC_CUDA STREQUAL "AUTO" AND NOT gpus AND NOT asked)
  message(STATUS "scanrec: no GPU of compute capability 8.0 or newer here, so no kernels for GPUs; "
                 "CMAKE_ARGS=-DSCANREC_CUDA=ON builds them anyway")
  return()
endif()

if(NOT CMAKE_CUDA_COMPILER)
  unset(CMAKE_CUDA_COMPILER CACHE)  # a compiler may have been installed since
endif()
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  find_program(SCANREC_NVCC nvcc)
  set(why "no nvcc is in PATH")
  if(SCANREC_NVCC)
    set(why "${SCANREC_NVCC} does not work with this C++ compiler")
  endif()
  if(SCANREC_CUDA STREQUAL "AUTO")
    message(WARNING "scanrec: no kernels for GPUs, since ${why}; CMAKE_ARGS=-DSCANREC_CUDA=OFF silences this warning")
    return()
  endif()
  message(FATAL_ERROR "scanrec: SCANREC_CUDA=${SCANREC_CUDA}, but ${why}")
endif()

# If no GPUs are requested or found, one PTX for compute capability 8.0 serves all GPUs: no kernel uses features
# of newer GPUs, and most of the build time is spent on PTX. The library contains machine code made from this
# PTX for the GPUs listed below, and the PTX itself for newer GPUs.
set(more_gpus)
execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --list-gpu-arch OUTPUT_VARIABLE known ERROR_QUIET)
if(NOT asked)
  foreach(gpu IN LISTS gpus)
    if(known MATCHES "compute_${gpu}\n")
      list(APPEND CMAKE_CUDA_ARCHITECTURES ${gpu})
    endif()
  endforeach()
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80)
    foreach(gpu IN ITEMS 90 100)
      if(known MATCHES "compute_${gpu}\n")
        list(APPEND more_gpus sm_${gpu})
      endif()
    endforeach()
  endif()
endif()
enable_language(CUDA)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.3 AND CMAKE_CUDA_COMPILER_ID STREQUAL "NVIDIA")
  if(NOT SCANREC_CUDA STREQUAL "AUTO")
    set(kind FATAL_ERROR)
  else()
    set(kind WARNING)
  endif()
  message(${kind} "scanrec: no kernels for GPUs, since nvcc ${CMAKE_CUDA_COMPILER_VERSION} is too old: "
                  "expected 12.3 or newer")
  return()
endif()
set(with_cuda ON)
message(STATUS "scanrec: kernels for GPUs ${CMAKE_CUDA_ARCHITECTURES} ${more_gpus}; compiling them takes minutes")

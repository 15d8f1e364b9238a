# SPDX-License-Identifier: BSD-3-Clause
# Whether kernels for GPUs are built, and for which: sets with_cuda, CMAKE_CUDA_ARCHITECTURES and
# more_gpus, machine code beside them; enables CUDA.

set(asked OFF)
if(CMAKE_CUDA_ARCHITECTURES OR DEFINED ENV{CUDAARCHS})
  set(asked ON)
endif()

# Compute capabilities of this machine's, as CMake writes them; 8.0 or newer will do. Who says ON means
# all machines: what a wheel holds does not depend on where it was built.
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
                 "CMAKE_ARGS=-DSCANREC_CUDA=ON builds them all the same")
  return()
endif()

if(NOT CMAKE_CUDA_COMPILER)
  unset(CMAKE_CUDA_COMPILER CACHE)  # it may be there by now
endif()
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  find_program(SCANREC_NVCC nvcc)
  set(why "no nvcc is in PATH")
  if(SCANREC_NVCC)
    set(why "${SCANREC_NVCC} compiles nothing with this compiler")
  endif()
  if(SCANREC_CUDA STREQUAL "AUTO")
    message(WARNING "scanrec: no kernels for GPUs, since ${why}; CMAKE_ARGS=-DSCANREC_CUDA=OFF does without")
    return()
  endif()
  message(FATAL_ERROR "scanrec: SCANREC_CUDA=${SCANREC_CUDA}, but ${why}")
endif()

# One PTX for all, since nothing in the kernels is for newer GPUs alone: to make it is most of the
# work. It is in the library as well, for GPUs newer than these.
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
                  "12.3 or newer will do")
  return()
endif()
set(with_cuda ON)
message(STATUS "scanrec: kernels for GPUs ${CMAKE_CUDA_ARCHITECTURES} ${more_gpus}; they take minutes")

# SPDX-License-Identifier: BSD-3-Clause
# scanrec::compiled: the kernels of linear_scan and its derivatives for common element types, compiled
# once. All targets of a project that link it instead of scanrec::scanrec share these kernels. They are
# built with the flags of the project, and only if a target links them. The names of kernels depend on
# -march and -fopenmp, so a translation unit that adds such a flag does not find these kernels.
set(SCANREC_COMPILED_TYPES float double complex_float complex_double bfloat16
    CACHE STRING "Element types for which scanrec::compiled has kernels")
set(scanrec_type_float float)
set(scanrec_type_double double)
set(scanrec_type_complex_float std::complex<float>)
set(scanrec_type_complex_double std::complex<double>)
set(scanrec_type_bfloat16 scanrec::bfloat16)

add_library(scanrec_compiled STATIC EXCLUDE_FROM_ALL)
add_library(scanrec::compiled ALIAS scanrec_compiled)
target_link_libraries(scanrec_compiled PUBLIC scanrec::scanrec)
foreach(scanrec_name IN LISTS SCANREC_COMPILED_TYPES)
  if(NOT DEFINED scanrec_type_${scanrec_name})
    message(FATAL_ERROR "SCANREC_COMPILED_TYPES: expected a list of float, double, complex_float, "
                        "complex_double and bfloat16, got ${scanrec_name}")
  endif()
  set(scanrec_unit ${CMAKE_CURRENT_BINARY_DIR}/scanrec_compiled/${scanrec_name}.cpp)
  file(CONFIGURE OUTPUT ${scanrec_unit} CONTENT
       "#include <scanrec/compiled.hpp>\nSCANREC_COMPILE(${scanrec_type_${scanrec_name}})\n")
  target_sources(scanrec_compiled PRIVATE ${scanrec_unit})
  string(TOUPPER ${scanrec_name} scanrec_name)
  target_compile_definitions(scanrec_compiled PUBLIC SCANREC_COMPILED_${scanrec_name}=1)
endforeach()

// SPDX-License-Identifier: BSD-3-Clause
// Explicit instantiations that a program compiles once: linear_scan, linear_scan_vjp and
// linear_scan_jvp on the default backend, for arrays of one element type.
//
// A source file that defines SCANREC_COMPILED_FLOAT, _DOUBLE, _COMPLEX_FLOAT, _COMPLEX_DOUBLE or
// _BFLOAT16 declares the calls for that type without instantiating them. SCANREC_COMPILED does so
// for all five types. For each such type, exactly one source file of the program must contain, for
// example for float:
//
//     #include <scanrec/compiled.hpp>
//     SCANREC_COMPILE(float)
//
// Compile that file with the flags of the other files, because the names of kernels depend on the
// instruction set. The CMake target scanrec::compiled does all of this. Other calls, such as
// those whose gates and inputs differ in type, are instantiated where they are used.
#pragma once

#include <array>
#include <complex>

#include <scanrec/detail/problem/build.hpp>
#include <scanrec/element.hpp>
#include <scanrec/linear_scan.hpp>

/// Explicitly instantiates the checks and kernels of a call. If `external` is `extern`, declares
/// the instantiations instead. `pairs` is the number of pairs of arrays that may alias.
#define SCANREC_CALL(external, pairs, ...)                                          \
  external template void                                                            \
  scanrec::detail::problem_builder::prepare<scanrec::recurrence::__VA_ARGS__>(      \
      scanrec::direction, const std::array<scanrec::detail::in_place_pair, pairs>&, \
      scanrec::update);                                                             \
  external template void scanrec::run_recurrence(                                   \
      const scanrec::tiled&, scanrec::recurrence::__VA_ARGS__, const scanrec::problem&);
/// Explicitly instantiates, or declares, the calls for one element type.
#define SCANREC_CALLS(external, T)              \
  SCANREC_CALL(external, 2, forward<T, T, T>)   \
  SCANREC_CALL(external, 2, vjp<T, T, T, T, T>) \
  SCANREC_CALL(external, 2, jvp<T, T, T, T, T>)
#define SCANREC_COMPILE(T) SCANREC_CALLS(, T)

#if defined(SCANREC_COMPILED) || defined(SCANREC_COMPILED_FLOAT)
SCANREC_CALLS(extern, float)
#endif
#if defined(SCANREC_COMPILED) || defined(SCANREC_COMPILED_DOUBLE)
SCANREC_CALLS(extern, double)
#endif
#if defined(SCANREC_COMPILED) || defined(SCANREC_COMPILED_COMPLEX_FLOAT)
SCANREC_CALLS(extern, std::complex<float>)
#endif
#if defined(SCANREC_COMPILED) || defined(SCANREC_COMPILED_COMPLEX_DOUBLE)
SCANREC_CALLS(extern, std::complex<double>)
#endif
#if defined(SCANREC_COMPILED) || defined(SCANREC_COMPILED_BFLOAT16)
SCANREC_CALLS(extern, scanrec::bfloat16)
#endif

// SPDX-License-Identifier: BSD-3-Clause
// Calls that are compiled once for a whole program, their checks and their kernels: linear_scan,
// linear_scan_vjp and linear_scan_jvp on the default backend, of arrays of one element type.
//
// Units that define SCANREC_COMPILED compile none of them where they call, or none of some types
// with SCANREC_COMPILED_FLOAT, _DOUBLE, _COMPLEX_FLOAT, _COMPLEX_DOUBLE, _BFLOAT16. For each of
// these one unit of the program has to have
//
//     #include <scanrec/compiled.hpp>
//     SCANREC_COMPILE(float)
//
// compiled with the flags of all others: kernels of another instruction set have other names. The
// CMake target scanrec::compiled does all that, installed or not. Everything else, such as gates of
// another type than the inputs, is compiled where it is called, as without it.
#pragma once

#include <array>
#include <complex>

#include <scanrec/detail/problem/build.hpp>
#include <scanrec/element.hpp>
#include <scanrec/linear_scan.hpp>

/// Explicit instantiations of the checks and kernels of a call, or with `extern` their
/// declarations. `pairs`: the number of pairs of arrays that may alias.
#define SCANREC_CALL(external, pairs, ...)                                          \
  external template void                                                            \
  scanrec::detail::problem_builder::prepare<scanrec::recurrence::__VA_ARGS__>(      \
      scanrec::direction, const std::array<scanrec::detail::in_place_pair, pairs>&, \
      scanrec::update);                                                             \
  external template void scanrec::run_recurrence(                                   \
      const scanrec::tiled&, scanrec::recurrence::__VA_ARGS__, const scanrec::problem&);
/// The calls of one element type.
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

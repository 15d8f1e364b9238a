// SPDX-License-Identifier: BSD-3-Clause
// Kernels that are compiled once for a whole program: those of linear_scan, linear_scan_vjp and
// linear_scan_jvp on the default backend, whose arrays all have one element type.
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

#include <complex>

#include <scanrec/element.hpp>
#include <scanrec/linear_scan.hpp>

/// The kernels of one element type, as explicit instantiations, or `extern` as their declarations.
#define SCANREC_KERNELS(external, T)                                                  \
  external template void run_recurrence(const tiled&, recurrence::forward<T, T, T>,   \
                                        const problem&);                              \
  external template void run_recurrence(const tiled&, recurrence::vjp<T, T, T, T, T>, \
                                        const problem&);                              \
  external template void run_recurrence(const tiled&, recurrence::jvp<T, T, T, T, T>, \
                                        const problem&);
#define SCANREC_COMPILE(T)                \
  namespace scanrec::inline SCANREC_ABI { \
  SCANREC_KERNELS(, T)                    \
  }

namespace scanrec::inline SCANREC_ABI {
#if defined(SCANREC_COMPILED) || defined(SCANREC_COMPILED_FLOAT)
SCANREC_KERNELS(extern, float)
#endif
#if defined(SCANREC_COMPILED) || defined(SCANREC_COMPILED_DOUBLE)
SCANREC_KERNELS(extern, double)
#endif
#if defined(SCANREC_COMPILED) || defined(SCANREC_COMPILED_COMPLEX_FLOAT)
SCANREC_KERNELS(extern, std::complex<float>)
#endif
#if defined(SCANREC_COMPILED) || defined(SCANREC_COMPILED_COMPLEX_DOUBLE)
SCANREC_KERNELS(extern, std::complex<double>)
#endif
#if defined(SCANREC_COMPILED) || defined(SCANREC_COMPILED_BFLOAT16)
SCANREC_KERNELS(extern, bfloat16)
#endif
}  // namespace scanrec::inline SCANREC_ABI

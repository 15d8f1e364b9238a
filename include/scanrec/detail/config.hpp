// SPDX-License-Identifier: BSD-3-Clause
// Compiler configuration: the inline namespace that separates differently compiled objects, and
// attributes.
//
// All code that computes is in `inline namespace SCANREC_ABI`, or in SCANREC_CUDA_ABI if it belongs
// to scanrec::cuda. The name SCANREC_ABI contains the library version, the instruction set of the
// lanes, whether multiply-adds fuse, which 16-bit conversions are in hardware, and the default
// executor. Objects that differ in any of these have differently named inline functions, so the
// linker cannot mix them. Other instruction-set extensions are not part of the name.
#pragma once

#include <scanrec/version.hpp>

#if !defined(__GNUC__)
#error "scanrec needs GCC (12 or newer) or Clang (14 or newer)."
#endif

#if defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ > 0
#error "scanrec tells NaN and infinity apart from numbers: do not compile it with -ffast-math."
#endif

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define SCANREC_ISA avx512
#elif defined(__AVX512F__)
#define SCANREC_ISA avx512f
#elif defined(__AVX2__)
#define SCANREC_ISA avx2
#elif defined(__AVX__)
#define SCANREC_ISA avx
#elif defined(__SSE4_2__)
#define SCANREC_ISA sse4
#elif defined(__SSE2__)
#define SCANREC_ISA sse2
#elif defined(__ARM_NEON)
#define SCANREC_ISA neon
#else
#define SCANREC_ISA portable
#endif

// Whether lanes are NEON registers of aarch64. Some functions then use NEON intrinsics.
#if defined(__ARM_NEON) && defined(__aarch64__) && !defined(__CUDACC__)
#define SCANREC_NEON 1
#else
#define SCANREC_NEON 0
#endif

// Whether a multiply-add rounds once. The bits of a scan depend on this, but on nothing else of the
// instruction set. A GPU always fuses. SCANREC_FUSED_TAG describes the host in both passes of a
// CUDA compiler.
#if defined(__FMA__) || defined(__AVX512F__) || defined(__ARM_FEATURE_FMA)
#define SCANREC_FUSED 1
#define SCANREC_FUSED_TAG fma
#else
#if defined(__CUDA_ARCH__)
#define SCANREC_FUSED 1
#else
#define SCANREC_FUSED 0
#endif
#define SCANREC_FUSED_TAG nofma
#endif

// The 16-bit types that the CPU converts in hardware: float16 and bfloat16, float16 only, or none.
#if defined(__AVX512BF16__)
#define SCANREC_HALF_TAG f16c_bf16
#elif defined(__F16C__)
#define SCANREC_HALF_TAG f16c
#else
#define SCANREC_HALF_TAG nof16c
#endif

#if defined(__CUDACC__)
#define SCANREC_THREADS_TAG cuda
#elif defined(_OPENMP)
#define SCANREC_THREADS_TAG openmp
#else
#define SCANREC_THREADS_TAG threads
#endif

#define SCANREC_JOIN_(a, b, c, d, e, f) v##a##_##b##_##c##_##d##_##e##_##f
#define SCANREC_JOIN(a, b, c, d, e, f) SCANREC_JOIN_(a, b, c, d, e, f)

/// The inline namespace described above, for example `v0_1_avx512_fma_f16c_openmp`.
#define SCANREC_ABI                                                                          \
  SCANREC_JOIN(SCANREC_VERSION_MAJOR, SCANREC_VERSION_MINOR, SCANREC_ISA, SCANREC_FUSED_TAG, \
               SCANREC_HALF_TAG, SCANREC_THREADS_TAG)

#if defined(__CUDACC__)
#define SCANREC_HD __host__ __device__
#else
#define SCANREC_HD
#endif

// For functions of a few instructions, such as those on lanes. A call would cost more than their
// body.
#define SCANREC_INLINE inline __attribute__((always_inline))
// The same attribute for a lambda; it stands after the lambda's parameters.
#define SCANREC_LAMBDA __attribute__((always_inline))
// Rare paths stay out of line on a CPU. They are inlined on a GPU, where a call would cost
// registers.
#if defined(__CUDA_ARCH__)
#define SCANREC_NOINLINE SCANREC_INLINE
#else
#define SCANREC_NOINLINE __attribute__((noinline))
#endif

// SPDX-License-Identifier: BSD-3-Clause
// pack<T, N>: N lanes of a real type, the same N on every instruction set.
//
// A pack is a register, or two halves that are packs. So one source serves SSE2 (four registers of
// four floats), AVX2 (two of eight) and AVX-512 (one of sixteen). A shuffle or a sum combines the
// same lanes everywhere. xsimd provides the registers of the instruction set. Arithmetic uses the
// compiler's vector operators, because function calls take several times as long to compile.
#pragma once

#include <type_traits>

#include <xsimd/xsimd.hpp>

#include <scanrec/detail/config.hpp>

namespace scanrec::inline SCANREC_ABI::simd {

/// Whether packs exist. CUDA compilers reject compiler vectors in device code, so they have scalars
/// only.
#if defined(__CUDACC__)
inline constexpr bool has_packs = false;
#else
inline constexpr bool has_packs = true;
#endif

/// The number of lanes in one register.
template <class T>
inline constexpr int leaf_lanes = static_cast<int>(xsimd::batch<T>::size);

/// A register as a compiler vector: arithmetic, shuffles and conversions are one operation each.
template <class T, int N = leaf_lanes<T>>
struct raw {
  typedef T type __attribute__((vector_size(N * sizeof(T))));  // NOLINT(modernize-use-using)
};

template <class T, int N>
struct pack {
  static_assert(N % 2 == 0 && N > leaf_lanes<T>,
                "scanrec: N must be a register's lanes times a power of 2");
  using value_type = T;
  static constexpr int lanes = N;
  pack<T, N / 2> lo, hi;

  pack() = default;
  SCANREC_INLINE explicit pack(T value) : lo(value), hi(value) {}
  SCANREC_INLINE pack(pack<T, N / 2> low, pack<T, N / 2> high) : lo(low), hi(high) {}
};

template <class T, int N>
requires(N == leaf_lanes<T>) struct pack<T, N> {
  using value_type = T;
  using vector = typename raw<T>::type;
  static constexpr int lanes = N;
  vector v;

  pack() = default;
  SCANREC_INLINE explicit pack(T value) : v(value - vector{}) {}
  SCANREC_INLINE explicit pack(vector value) : v(value) {}
};

template <class P>
inline constexpr bool is_pack = false;
template <class T, int N>
inline constexpr bool is_pack<pack<T, N>> = true;

template <class T, int N>
inline constexpr bool is_leaf = N == leaf_lanes<T>;

// ---- arithmetic -------------------------------------------------------------------------------

namespace detail {
// Rounds a product, so that compilers for x86-64 and AArch64 do not fuse it into a multiply-add,
// whatever -ffp-contract says. By default GCC fuses products and sums anywhere in a basic block,
// across inlined functions. Clang does so with -ffp-contract=fast.
//
// It exists for scalars only. On vectors, an empty asm takes registers and slows kernels by up to a
// quarter, and __builtin_assoc_barrier makes GCC 12 split vectors into elements. Instead, no kernel
// adds anything to the product of two packs except by fma. tests/golden checks this.
template <class V>
requires std::is_arithmetic_v<V> SCANREC_HD SCANREC_INLINE V uncontracted(V product) {
#if defined(__CUDA_ARCH__)
  return product;  // on GPUs, mul() already uses intrinsics that round
#elif defined(__GNUC__) && !defined(__clang__) && !defined(__CUDACC__)
  return __builtin_assoc_barrier(product);
#elif defined(__x86_64__)
  asm("" : "+v"(product));
  return product;
#elif defined(__aarch64__)
  asm("" : "+w"(product));
  return product;
#else
  return product;
#endif
}

// a * b + c. Floats are rounded once if the instruction set has fused multiply-adds, otherwise
// twice.
template <class T, class V>
SCANREC_INLINE V fma_raw(V a, V b, V c) {
  [[maybe_unused]] constexpr int bits = 8 * sizeof(V);
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<T, float> && bits == 512) return _mm512_fmadd_ps(a, b, c);
  if constexpr (std::is_same_v<T, double> && bits == 512) return _mm512_fmadd_pd(a, b, c);
#endif
#if defined(__FMA__)
  if constexpr (std::is_same_v<T, float> && bits == 256) return _mm256_fmadd_ps(a, b, c);
  if constexpr (std::is_same_v<T, double> && bits == 256) return _mm256_fmadd_pd(a, b, c);
#elif SCANREC_NEON
  if constexpr (std::is_same_v<T, float>) return vfmaq_f32(c, a, b);
  if constexpr (std::is_same_v<T, double>) return vfmaq_f64(c, a, b);
#endif
  if constexpr (std::is_integral_v<T> || !SCANREC_FUSED) return a * b + c;
  __builtin_unreachable();
}
}  // namespace detail

template <class T, int N>
SCANREC_INLINE pack<T, N> fma(pack<T, N> a, pack<T, N> b, pack<T, N> c) {
  if constexpr (is_leaf<T, N>)
    return pack<T, N>(detail::fma_raw<T>(a.v, b.v, c.v));
  else
    return {fma(a.lo, b.lo, c.lo), fma(a.hi, b.hi, c.hi)};
}

template <class T, int N>
SCANREC_INLINE pack<T, N> operator+(pack<T, N> a, pack<T, N> b) {
  if constexpr (is_leaf<T, N>)
    return pack<T, N>(a.v + b.v);
  else
    return {a.lo + b.lo, a.hi + b.hi};
}

template <class T, int N>
SCANREC_INLINE pack<T, N> operator-(pack<T, N> a, pack<T, N> b) {
  if constexpr (is_leaf<T, N>)
    return pack<T, N>(a.v - b.v);
  else
    return {a.lo - b.lo, a.hi - b.hi};
}

template <class T, int N>
SCANREC_INLINE pack<T, N> mul(pack<T, N> a, pack<T, N> b) {
  if constexpr (is_leaf<T, N>)
    return pack<T, N>(a.v * b.v);
  else
    return {mul(a.lo, b.lo), mul(a.hi, b.hi)};
}

template <class T, int N>
SCANREC_INLINE pack<T, N> negative(pack<T, N> x) {
  if constexpr (is_leaf<T, N>)
    return pack<T, N>(-x.v);
  else
    return {negative(x.lo), negative(x.hi)};
}

/// chosen ? yes : no, lane by lane. In `chosen`, 0 means no, and everything else, including NaN,
/// means yes.
template <class T, int N>
SCANREC_INLINE pack<T, N> select(pack<T, N> chosen, pack<T, N> yes, pack<T, N> no) {
  if constexpr (is_leaf<T, N>)
    return pack<T, N>(chosen.v == typename pack<T, N>::vector{} ? no.v : yes.v);
  else
    return {select(chosen.lo, yes.lo, no.lo), select(chosen.hi, yes.hi, no.hi)};
}

/// Whether every lane is exactly zero. A NaN is not.
template <class T, int N>
SCANREC_INLINE bool all_zero(pack<T, N> x) {
  if constexpr (is_leaf<T, N>)
    return xsimd::all(__builtin_bit_cast(xsimd::batch<T>, x.v) == xsimd::batch<T>(T(0)));
  else
    return all_zero(x.lo) && all_zero(x.hi);
}

/// The sum of the lanes. The upper half is added to the lower until one lane is left, in the same
/// order on every instruction set. On NEON, GCC 12 moves the last two lanes through general
/// registers unless an intrinsic adds them.
template <class T, int N>
SCANREC_INLINE T sum(pack<T, N> x) {
  if constexpr (!is_leaf<T, N>) {
    return sum(x.lo + x.hi);
#if SCANREC_NEON
  } else if constexpr (std::is_same_v<T, float>) {
    return vpadds_f32(vadd_f32(vget_low_f32(x.v), vget_high_f32(x.v)));
  } else if constexpr (std::is_same_v<T, double>) {
    return vpaddd_f64(x.v);
#endif
  } else {
    alignas(64) T lane[N];
    __builtin_memcpy(lane, &x.v, sizeof lane);
    for (int half = N / 2; half > 0; half /= 2)
      for (int i = 0; i < half; ++i) lane[i] = lane[i] + lane[i + half];
    return lane[0];
  }
}

}  // namespace scanrec::inline SCANREC_ABI::simd

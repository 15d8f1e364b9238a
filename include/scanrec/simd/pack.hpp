// SPDX-License-Identifier: BSD-3-Clause
// pack<T, N>: N lanes of a real type over xsimd registers, the same N on every instruction set.
//
// A pack is a register or two halves that are packs, so one source serves SSE2 (four registers of
// four floats), AVX2 (two of eight) and AVX-512 (one of sixteen), and the lanes that meet in a
// shuffle or a sum are the same everywhere.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include <xsimd/xsimd.hpp>

#include <scanrec/config.hpp>

namespace scanrec::inline SCANREC_ABI::simd {

template <class T>
using leaf = xsimd::batch<T>;
template <class T>
inline constexpr int leaf_lanes = static_cast<int>(leaf<T>::size);

template <class T, int N>
struct pack {
  static_assert(N % 2 == 0 && N > leaf_lanes<T>, "scanrec: a pack halves down to a register");
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
  static constexpr int lanes = N;
  leaf<T> v;

  pack() = default;
  SCANREC_INLINE explicit pack(T value) : v(value) {}
  SCANREC_INLINE explicit pack(leaf<T> value) : v(value) {}
};

template <class P>
inline constexpr bool is_pack = false;
template <class T, int N>
inline constexpr bool is_pack<pack<T, N>> = true;

template <class T, int N>
inline constexpr bool is_leaf = N == leaf_lanes<T>;

// The register as a compiler vector, on which shuffles and conversions are one builtin each.
template <class T, int N = leaf_lanes<T>>
struct raw {
  typedef T type __attribute__((vector_size(N * sizeof(T))));  // NOLINT(modernize-use-using)
};
template <class T>
SCANREC_INLINE typename raw<T>::type to_raw(leaf<T> x) {
  return __builtin_bit_cast(typename raw<T>::type, x);
}
template <class T>
SCANREC_INLINE leaf<T> from_raw(typename raw<T>::type x) {
  return __builtin_bit_cast(leaf<T>, x);
}

// ---- arithmetic -------------------------------------------------------------------------------

// Fused where the ISA has it. xsimd 8.1 spells fma as mul + add on AVX-512, hence the intrinsics.
template <class T>
SCANREC_INLINE leaf<T> fma(leaf<T> a, leaf<T> b, leaf<T> c) {
  [[maybe_unused]] constexpr int bits = 8 * sizeof(leaf<T>);
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<T, float> && bits == 512) return leaf<T>(_mm512_fmadd_ps(a, b, c));
  if constexpr (std::is_same_v<T, double> && bits == 512) return leaf<T>(_mm512_fmadd_pd(a, b, c));
#endif
#if defined(__FMA__)
  if constexpr (std::is_same_v<T, float> && bits == 256) return leaf<T>(_mm256_fmadd_ps(a, b, c));
  if constexpr (std::is_same_v<T, double> && bits == 256) return leaf<T>(_mm256_fmadd_pd(a, b, c));
#elif defined(__ARM_FEATURE_FMA) && defined(__aarch64__)
  if constexpr (std::is_same_v<T, float>) return leaf<T>(vfmaq_f32(c, a, b));
  if constexpr (std::is_same_v<T, double>) return leaf<T>(vfmaq_f64(c, a, b));
#endif
  if constexpr (std::is_integral_v<T> || !SCANREC_FUSED) return a * b + c;
  __builtin_unreachable();
}

template <class T, int N>
SCANREC_INLINE pack<T, N> fma(pack<T, N> a, pack<T, N> b, pack<T, N> c) {
  if constexpr (is_leaf<T, N>)
    return pack<T, N>(fma<T>(a.v, b.v, c.v));
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

/// -x by its sign bit, as the scalar minus (xsimd 8.1 subtracts from zero, which loses -0).
template <class T, int N>
SCANREC_INLINE pack<T, N> negative(pack<T, N> x) {
  if constexpr (is_leaf<T, N>)
    return pack<T, N>(from_raw<T>(-to_raw(x.v)));
  else
    return {negative(x.lo), negative(x.hi)};
}

/// chosen ? yes : no, lane by lane; `chosen` holds 0 (no) or anything else, NaN too (yes).
template <class T, int N>
SCANREC_INLINE pack<T, N> select(pack<T, N> chosen, pack<T, N> yes, pack<T, N> no) {
  if constexpr (is_leaf<T, N>)
    // By ==, since xsimd 8.1's != calls NaN equal to zero on AVX-512.
    return pack<T, N>(xsimd::select(chosen.v == leaf<T>(T(0)), no.v, yes.v));
  else
    return {select(chosen.lo, yes.lo, no.lo), select(chosen.hi, yes.hi, no.hi)};
}

/// Whether every lane is exactly zero (a NaN is not).
template <class T, int N>
SCANREC_INLINE bool all_zero(pack<T, N> x) {
  if constexpr (is_leaf<T, N>)
    return xsimd::all(x.v == leaf<T>(T(0)));
  else
    return all_zero(x.lo) && all_zero(x.hi);
}

// ---- moving lanes -----------------------------------------------------------------------------

namespace detail {
template <int K, class V, int... I>
SCANREC_INLINE V slide_raw(V before, V x, std::integer_sequence<int, I...>) {
  constexpr int n = sizeof...(I);
  return __builtin_shufflevector(before, x, (n - K + I)...);
}
template <class V, int... I>
SCANREC_INLINE V reverse_raw(V x, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(x, x, (static_cast<int>(sizeof...(I)) - 1 - I)...);
}
template <class V, int... I>
SCANREC_INLINE V splat_last_raw(V x, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(x, x, (static_cast<int>(sizeof...(I)) - 1 + 0 * I)...);
}
template <int Odd, class V, int... I>
SCANREC_INLINE V every_other_raw(V x, V y, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(x, y, (2 * I + Odd)...);
}
template <int Upper, class V, int... I>
SCANREC_INLINE V zip_raw(V x, V y, std::integer_sequence<int, I...>) {
  constexpr int n = sizeof...(I);
  return __builtin_shufflevector(x, y, (Upper * n / 2 + I / 2 + (I % 2) * n)...);
}
template <class T>
using leaf_indices = std::make_integer_sequence<int, leaf_lanes<T>>;
}  // namespace detail

/// x moved K lanes up: lane i is x[i - K], and the first K lanes are the last K of `before`.
template <int K, class T, int N>
SCANREC_INLINE pack<T, N> slide_in(pack<T, N> before, pack<T, N> x) {
  if constexpr (K == 0)
    return x;
  else if constexpr (is_leaf<T, N>)
    return pack<T, N>(from_raw<T>(
        detail::slide_raw<K>(to_raw(before.v), to_raw(x.v), detail::leaf_indices<T>{})));
  else if constexpr (K < N / 2)
    return {slide_in<K>(before.hi, x.lo), slide_in<K>(x.lo, x.hi)};
  else
    return {slide_in<K - N / 2>(before.lo, before.hi), slide_in<K - N / 2>(before.hi, x.lo)};
}

template <class T, int N>
SCANREC_INLINE pack<T, N> reverse(pack<T, N> x) {
  if constexpr (is_leaf<T, N>)
    return pack<T, N>(from_raw<T>(detail::reverse_raw(to_raw(x.v), detail::leaf_indices<T>{})));
  else
    return {reverse(x.hi), reverse(x.lo)};
}

/// The last lane in every lane.
template <class T, int N>
SCANREC_INLINE pack<T, N> splat_last(pack<T, N> x) {
  if constexpr (is_leaf<T, N>) {
    return pack<T, N>(from_raw<T>(detail::splat_last_raw(to_raw(x.v), detail::leaf_indices<T>{})));
  } else {
    const auto last = splat_last(x.hi);
    return {last, last};
  }
}

/// The last lane.
template <class T, int N>
SCANREC_INLINE T last(pack<T, N> x) {
  if constexpr (is_leaf<T, N>)
    return to_raw(x.v)[N - 1];
  else
    return last(x.hi);
}

/// Lanes Odd, Odd + 2, ... of x followed by y.
template <int Odd, class T, int N>
SCANREC_INLINE pack<T, N> every_other(pack<T, N> x, pack<T, N> y) {
  if constexpr (is_leaf<T, N>)
    return pack<T, N>(from_raw<T>(
        detail::every_other_raw<Odd>(to_raw(x.v), to_raw(y.v), detail::leaf_indices<T>{})));
  else
    return {every_other<Odd>(x.lo, x.hi), every_other<Odd>(y.lo, y.hi)};
}

/// x[0], y[0], x[1], y[1], ...: the lower (Upper = 0) or upper half of the interleaved lanes.
template <int Upper, class T, int N>
SCANREC_INLINE pack<T, N> zip(pack<T, N> x, pack<T, N> y) {
  if constexpr (is_leaf<T, N>)
    return pack<T, N>(
        from_raw<T>(detail::zip_raw<Upper>(to_raw(x.v), to_raw(y.v), detail::leaf_indices<T>{})));
  else if constexpr (Upper == 0)
    return {zip<0>(x.lo, y.lo), zip<1>(x.lo, y.lo)};
  else
    return {zip<0>(x.hi, y.hi), zip<1>(x.hi, y.hi)};
}

/// Sum over the lanes by halves, upper onto lower: the same tree on every instruction set.
template <class T, int N>
SCANREC_INLINE T sum(pack<T, N> x) {
  if constexpr (!is_leaf<T, N>) {
    return sum(x.lo + x.hi);
  } else {
    alignas(64) T lane[N];
    x.v.store_aligned(lane);
    for (int half = N / 2; half > 0; half /= 2)
      for (int i = 0; i < half; ++i) lane[i] = lane[i] + lane[i + half];
    return lane[0];
  }
}

// ---- float <-> double -------------------------------------------------------------------------

namespace detail {
template <class V, int... I>
SCANREC_INLINE auto half_raw(V x, std::integer_sequence<int, I...>, auto first) {
  return __builtin_shufflevector(x, x, (I + decltype(first)::value)...);
}
template <class V, int... I>
SCANREC_INLINE auto concat_raw(V x, V y, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(x, y, I...);
}
}  // namespace detail

template <int N>
SCANREC_INLINE pack<double, N> widen(pack<float, N> x) {
  if constexpr (is_leaf<float, N>) {
    constexpr int half = N / 2;
    using wide = typename raw<double, half>::type;
    using indices = std::make_integer_sequence<int, half>;
    const auto all = to_raw(x.v);
    const auto low = detail::half_raw(all, indices{}, std::integral_constant<int, 0>{});
    const auto high = detail::half_raw(all, indices{}, std::integral_constant<int, half>{});
    return {pack<double, half>(from_raw<double>(__builtin_convertvector(low, wide))),
            pack<double, half>(from_raw<double>(__builtin_convertvector(high, wide)))};
  } else {
    return {widen(x.lo), widen(x.hi)};
  }
}

template <int N>
SCANREC_INLINE pack<float, N> narrow(pack<double, N> x) {
  if constexpr (is_leaf<float, N>) {
    constexpr int half = N / 2;
    using part = typename raw<float, half>::type;
    const part low = __builtin_convertvector(to_raw(x.lo.v), part);
    const part high = __builtin_convertvector(to_raw(x.hi.v), part);
    return pack<float, N>(
        from_raw<float>(detail::concat_raw(low, high, detail::leaf_indices<float>{})));
  } else {
    return {narrow(x.lo), narrow(x.hi)};
  }
}

}  // namespace scanrec::inline SCANREC_ABI::simd

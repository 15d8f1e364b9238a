// SPDX-License-Identifier: BSD-3-Clause
// pack<T, N>: N lanes of a real type, the same N on every instruction set.
//
// A pack is a register or two halves that are packs, so one source serves SSE2 (four registers of
// four floats), AVX2 (two of eight) and AVX-512 (one of sixteen), and the lanes that meet in a
// shuffle or a sum are the same everywhere. xsimd knows the registers of the instruction set;
// within one the compiler's own vector operators do the arithmetic, which compiles several times
// faster than a call per operation.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include <xsimd/xsimd.hpp>

#include <scanrec/detail/config.hpp>

namespace scanrec::inline SCANREC_ABI::simd {

/// Whether there are packs: a CUDA compiler refuses the compiler's vectors in device code, and
/// knows scalars alone.
#if defined(__CUDACC__)
inline constexpr bool has_packs = false;
#else
inline constexpr bool has_packs = true;
#endif

/// Lanes of one register.
template <class T>
inline constexpr int leaf_lanes = static_cast<int>(xsimd::batch<T>::size);

/// A register as a compiler vector: arithmetic, shuffles and conversions are one operation each.
template <class T, int N = leaf_lanes<T>>
struct raw {
  typedef T type __attribute__((vector_size(N * sizeof(T))));  // NOLINT(modernize-use-using)
};

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
// A product as it is rounded: no compiler makes it part of a multiply-add, whatever -ffp-contract
// says. GCC contracts what meets in a block, across functions; Clang if it is told to.
//
// For scalars. Vectors go without: an empty asm costs kernels up to a quarter in registers (and
// __builtin_assoc_barrier takes GCC 12's vectors apart, element by element). So no kernel adds
// anything to the product of two packs but by fma, and tests/contraction.sh sees to it.
template <class V>
requires std::is_arithmetic_v<V> SCANREC_HD SCANREC_INLINE V uncontracted(V product) {
#if defined(__CUDA_ARCH__)
  return product;  // what a GPU computes with is multiplied by functions that round
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

// Rounded once where the instruction set can, twice elsewhere.
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

/// chosen ? yes : no, lane by lane; `chosen` holds 0 (no) or anything else, NaN too (yes).
template <class T, int N>
SCANREC_INLINE pack<T, N> select(pack<T, N> chosen, pack<T, N> yes, pack<T, N> no) {
  if constexpr (is_leaf<T, N>)
    return pack<T, N>(chosen.v == typename pack<T, N>::vector{} ? no.v : yes.v);
  else
    return {select(chosen.lo, yes.lo, no.lo), select(chosen.hi, yes.hi, no.hi)};
}

/// Whether every lane is exactly zero (a NaN is not).
template <class T, int N>
SCANREC_INLINE bool all_zero(pack<T, N> x) {
  if constexpr (is_leaf<T, N>)
    return xsimd::all(__builtin_bit_cast(xsimd::batch<T>, x.v) == xsimd::batch<T>(T(0)));
  else
    return all_zero(x.lo) && all_zero(x.hi);
}

// ---- moving lanes -----------------------------------------------------------------------------

namespace detail {
/// Lanes I of x, followed by y.
template <int... I, class V>
SCANREC_INLINE auto shuffle_raw(V x, V y) {
#if defined(__CUDACC__)  // whose front end does not print a pack in a builtin
  constexpr int n = static_cast<int>(sizeof(V) / sizeof(x[0]));
  typename raw<std::remove_cvref_t<decltype(x[0])>, sizeof...(I)>::type shuffled;
  int lane = 0;
  ((shuffled[lane++] = I < n ? x[I % n] : y[I % n]), ...);
  return shuffled;
#else
  return __builtin_shufflevector(x, y, I...);
#endif
}
template <int K, class V, int... I>
SCANREC_INLINE V slide_raw(V before, V x, std::integer_sequence<int, I...>) {
  constexpr int n = sizeof...(I);
  return shuffle_raw<(n - K + I)...>(before, x);
}
template <class V, int... I>
SCANREC_INLINE V reverse_raw(V x, std::integer_sequence<int, I...>) {
  return shuffle_raw<(static_cast<int>(sizeof...(I)) - 1 - I)...>(x, x);
}
template <class V, int... I>
SCANREC_INLINE V with_last_raw(V x, V last, std::integer_sequence<int, I...>) {
  constexpr int n = sizeof...(I);
  return shuffle_raw<(I + (I == n - 1 ? n : 0))...>(x, last);
}
template <int Odd, class V, int... I>
SCANREC_INLINE V every_other_raw(V x, V y, std::integer_sequence<int, I...>) {
  return shuffle_raw<(2 * I + Odd)...>(x, y);
}
template <int Upper, class V, int... I>
SCANREC_INLINE V zip_raw(V x, V y, std::integer_sequence<int, I...>) {
  constexpr int n = sizeof...(I);
  return shuffle_raw<(Upper * n / 2 + I / 2 + (I % 2) * n)...>(x, y);
}
// Lanes K, K + 3, ... of x, y and z one after the other; and lanes K n, K n + 1, ... of x[0], y[0],
// z[0], x[1], ... Of two registers first, then of these and the third.
template <int K, class V, int... I>
SCANREC_INLINE V every_third_raw(V x, V y, V z, std::integer_sequence<int, I...>) {
  constexpr int n = sizeof...(I);
  const V of_two = shuffle_raw<(3 * I + K < 2 * n ? 3 * I + K : 0)...>(x, y);
  return shuffle_raw<(3 * I + K < 2 * n ? I : 3 * I + K - n)...>(of_two, z);
}
template <int K, class V, int... I>
SCANREC_INLINE V zip_raw(V x, V y, V z, std::integer_sequence<int, I...>) {
  constexpr int n = sizeof...(I);
  const V of_two = shuffle_raw<((K * n + I) / 3 + ((K * n + I) % 3 == 1 ? n : 0))...>(x, y);
  return shuffle_raw<((K * n + I) % 3 == 2 ? n + (K * n + I) / 3 : I)...>(of_two, z);
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
    return pack<T, N>(detail::slide_raw<K>(before.v, x.v, detail::leaf_indices<T>{}));
  else if constexpr (K < N / 2)
    return {slide_in<K>(before.hi, x.lo), slide_in<K>(x.lo, x.hi)};
  else
    return {slide_in<K - N / 2>(before.lo, before.hi), slide_in<K - N / 2>(before.hi, x.lo)};
}

template <class T, int N>
SCANREC_INLINE pack<T, N> reverse(pack<T, N> x) {
  if constexpr (is_leaf<T, N>)
    return pack<T, N>(detail::reverse_raw(x.v, detail::leaf_indices<T>{}));
  else
    return {reverse(x.hi), reverse(x.lo)};
}

/// A register, reversed or not: a choice between vectors, which stay in registers, not between
/// packs.
template <class T, int N>
SCANREC_INLINE pack<T, N> reverse_if(bool reversed, pack<T, N> x) {
  auto v = x.v;
  if (reversed) v = reverse(x).v;
  return pack<T, N>(v);
}

/// The first lane.
template <class T, int N>
SCANREC_INLINE T first(pack<T, N> x) {
  if constexpr (is_leaf<T, N>)
    return x.v[0];
  else
    return first(x.lo);
}

/// The last lane.
template <class T, int N>
SCANREC_INLINE T last(pack<T, N> x) {
  if constexpr (is_leaf<T, N>)
    return x.v[N - 1];
  else
    return last(x.hi);
}

/// Lanes Odd, Odd + 2, ... of x followed by y.
template <int Odd, class T, int N>
SCANREC_INLINE pack<T, N> every_other(pack<T, N> x, pack<T, N> y) {
  if constexpr (is_leaf<T, N>)
    return pack<T, N>(detail::every_other_raw<Odd>(x.v, y.v, detail::leaf_indices<T>{}));
  else
    return {every_other<Odd>(x.lo, x.hi), every_other<Odd>(y.lo, y.hi)};
}

/// x[0], y[0], x[1], y[1], ...: the lower (Upper = 0) or upper half of the interleaved lanes.
template <int Upper, class T, int N>
SCANREC_INLINE pack<T, N> zip(pack<T, N> x, pack<T, N> y) {
  if constexpr (is_leaf<T, N>)
    return pack<T, N>((detail::zip_raw<Upper>(x.v, y.v, detail::leaf_indices<T>{})));
  else if constexpr (Upper == 0)
    return {zip<0>(x.lo, y.lo), zip<1>(x.lo, y.lo)};
  else
    return {zip<0>(x.hi, y.hi), zip<1>(x.hi, y.hi)};
}

/// Lanes Odd, Odd + 2, ... of a pack of more than one register.
template <int Odd, class T, int N>
SCANREC_INLINE pack<T, N / 2> every_other(pack<T, N> x) {
  return every_other<Odd>(x.lo, x.hi);
}
/// x followed by y.
template <class T, int N>
SCANREC_INLINE pack<T, 2 * N> join(pack<T, N> x, pack<T, N> y) {
  return {x, y};
}
/// x[0], y[0], x[1], y[1], ...
template <class T, int N>
SCANREC_INLINE pack<T, 2 * N> interleave(pack<T, N> x, pack<T, N> y) {
  return {zip<0>(x, y), zip<1>(x, y)};
}

namespace detail {
// f(0), f(1), ... f(N - 1), the numbers known at compile time: what arrays of packs are indexed by,
// so that they stay in registers.
template <int N, class F>
SCANREC_INLINE void unrolled(F f) {
  [&]<int... I>(std::integer_sequence<int, I...>) SCANREC_LAMBDA {
    (f(std::integral_constant<int, I>{}), ...);
  }
  (std::make_integer_sequence<int, N>{});
}
}  // namespace detail

/// Registers with elements of M numbers, one element after the other: register k becomes number k
/// of every element. By factors 2 and 3 of M.
template <int M, class T>
SCANREC_INLINE void deinterleave(pack<T, leaf_lanes<T>> (&x)[M]) {
  using P = pack<T, leaf_lanes<T>>;
  if constexpr (M % 2 == 0) {
    P even[M / 2], odd[M / 2];
    detail::unrolled<M / 2>([&](auto i) SCANREC_LAMBDA {
      even[i] = every_other<0>(x[2 * i], x[2 * i + 1]);
      odd[i] = every_other<1>(x[2 * i], x[2 * i + 1]);
    });
    deinterleave<M / 2, T>(even), deinterleave<M / 2, T>(odd);
    detail::unrolled<M / 2>([&](auto i)
                                SCANREC_LAMBDA { x[2 * i] = even[i], x[2 * i + 1] = odd[i]; });
  } else if constexpr (M > 1) {
    static_assert(M % 3 == 0, "scanrec: elements of 2^i 3^j numbers");
    P of_three[3][M / 3];
    detail::unrolled<M>([&](auto i) SCANREC_LAMBDA {
      constexpr int k = i % 3, j = i / 3;
      of_three[k][j] = P(detail::every_third_raw<k>(x[3 * j].v, x[3 * j + 1].v, x[3 * j + 2].v,
                                                    detail::leaf_indices<T>{}));
    });
    for (auto& of_one : of_three) deinterleave<M / 3, T>(of_one);
    detail::unrolled<M>([&](auto i) SCANREC_LAMBDA { x[i] = of_three[i % 3][i / 3]; });
  }
}
/// And back.
template <int M, class T>
SCANREC_INLINE void interleave(pack<T, leaf_lanes<T>> (&x)[M]) {
  using P = pack<T, leaf_lanes<T>>;
  if constexpr (M % 2 == 0) {
    P even[M / 2], odd[M / 2];
    detail::unrolled<M / 2>([&](auto i)
                                SCANREC_LAMBDA { even[i] = x[2 * i], odd[i] = x[2 * i + 1]; });
    interleave<M / 2, T>(even), interleave<M / 2, T>(odd);
    detail::unrolled<M / 2>([&](auto i) SCANREC_LAMBDA {
      x[2 * i] = zip<0>(even[i], odd[i]);
      x[2 * i + 1] = zip<1>(even[i], odd[i]);
    });
  } else if constexpr (M > 1) {
    P of_three[3][M / 3];
    detail::unrolled<M>([&](auto i) SCANREC_LAMBDA { of_three[i % 3][i / 3] = x[i]; });
    for (auto& of_one : of_three) interleave<M / 3, T>(of_one);
    detail::unrolled<M>([&](auto i) SCANREC_LAMBDA {
      constexpr int k = i % 3, j = i / 3;
      x[i] = P(detail::zip_raw<k>(of_three[0][j].v, of_three[1][j].v, of_three[2][j].v,
                                  detail::leaf_indices<T>{}));
    });
  }
}

/// Lane i of row k becomes lane k of row i.
template <class T, int N>
SCANREC_INLINE void transpose(pack<T, N> (&rows)[N]) {
  for (int round = 1; round < N; round *= 2) {
    pack<T, N> next[N];
    for (int i = 0; i < N / 2; ++i) {
      next[2 * i] = zip<0>(rows[i], rows[i + N / 2]);
      next[2 * i + 1] = zip<1>(rows[i], rows[i + N / 2]);
    }
    for (int i = 0; i < N; ++i) rows[i] = next[i];
  }
}

/// Sum over the lanes by halves, upper onto lower: the same tree on every instruction set. GCC 12
/// sends the last two lanes of NEON through general registers if they are not asked for by name.
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

/// x with its lanes moved K down, around the end.
template <int K, class T, int N>
SCANREC_INLINE pack<T, N> rotate(pack<T, N> x) {
  return pack<T, N>(detail::slide_raw<N - K>(x.v, x.v, detail::leaf_indices<T>{}));
}

/// x with another last lane.
template <class T, int N>
SCANREC_INLINE pack<T, N> with_last(pack<T, N> x, T last) {
  if constexpr (is_leaf<T, N>)
    return pack<T, N>(detail::with_last_raw(x.v, pack<T, N>(last).v, detail::leaf_indices<T>{}));
  else
    return {x.lo, with_last(x.hi, last)};
}

// ---- float <-> double -------------------------------------------------------------------------

namespace detail {
template <class V, int... I>
SCANREC_INLINE auto half_raw(V x, std::integer_sequence<int, I...>, auto first) {
  return shuffle_raw<(I + decltype(first)::value)...>(x, x);
}
template <class V, int... I>
SCANREC_INLINE auto concat_raw(V x, V y, std::integer_sequence<int, I...>) {
  return shuffle_raw<I...>(x, y);
}

// Half a register of floats as a register of doubles, and back. GCC 12 splits the builtin in two,
// and on aarch64 takes halves of registers apart.
template <int N, class V>
SCANREC_INLINE typename raw<double, N>::type to_doubles(V x) {
#if defined(__AVX512F__)
  if constexpr (N == 8) return _mm512_maskz_cvtps_pd(__mmask8(~0), x);
#endif
  return __builtin_convertvector(x, typename raw<double, N>::type);
}
template <int N, class V>
SCANREC_INLINE typename raw<float, N>::type to_floats(V x) {
#if defined(__AVX512F__)
  if constexpr (N == 8) return _mm512_maskz_cvtpd_ps(__mmask8(~0), x);
#endif
  return __builtin_convertvector(x, typename raw<float, N>::type);
}
}  // namespace detail

template <int N>
SCANREC_INLINE pack<double, N> widen(pack<float, N> x) {
  if constexpr (is_leaf<float, N>) {
#if SCANREC_NEON
    using doubles = typename raw<double>::type;
    return {pack<double, 2>((doubles)vcvt_f64_f32(vget_low_f32(x.v))),
            pack<double, 2>((doubles)vcvt_high_f64_f32(x.v))};
#else
    constexpr int half = N / 2;
    using indices = std::make_integer_sequence<int, half>;
    const auto low = detail::half_raw(x.v, indices{}, std::integral_constant<int, 0>{});
    const auto high = detail::half_raw(x.v, indices{}, std::integral_constant<int, half>{});
    return {pack<double, half>(detail::to_doubles<half>(low)),
            pack<double, half>(detail::to_doubles<half>(high))};
#endif
  } else {
    return {widen(x.lo), widen(x.hi)};
  }
}

template <int N>
SCANREC_INLINE pack<float, N> narrow(pack<double, N> x) {
  if constexpr (is_leaf<float, N>) {
#if SCANREC_NEON
    using floats = typename raw<float>::type;
    return pack<float, N>((floats)vcvt_high_f32_f64(vcvt_f32_f64(x.lo.v), x.hi.v));
#else
    constexpr int half = N / 2;
    return pack<float, N>(detail::concat_raw(detail::to_floats<half>(x.lo.v),
                                             detail::to_floats<half>(x.hi.v),
                                             detail::leaf_indices<float>{}));
#endif
  } else {
    return {narrow(x.lo), narrow(x.hi)};
  }
}

}  // namespace scanrec::inline SCANREC_ABI::simd

// SPDX-License-Identifier: BSD-3-Clause
// exp of any number, and expm1 of numbers that are not positive. A scalar and every lane of a pack
// run the same operations.
//
// Both use one reduction:
//
//     n = round(y s / ln 2),  r = y - n (ln 2) / s,  q = expm1(r) = r + r^2 P(r),
//     exp(y) = 2^(n/s) (1 + q)
//
// P is a polynomial. For y <= 0 nothing overflows. The power of two is assembled from the bits of
// n. Results below the smallest normal number need no test: they may become 0. s is 1, or 8 for
// floats with fused multiply-adds. With s = 8, a table contains 2^(j/8), j = n mod 8, and P is
// shorter by two or three terms. A pack reads the table with one shuffle if the CPU has it.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include <xsimd/xsimd.hpp>

#include <scanrec/detail/simd/lanes.hpp>

namespace scanrec::inline SCANREC_ABI::simd {

// ---- building blocks --------------------------------------------------------------------------

namespace detail {

// The bit layout of a float or double.
template <class R>
struct real_bits;
template <>
struct real_bits<float> {
  using type = std::uint32_t;
  static constexpr int mantissa = 23, exponent = 8;
  static constexpr type sign = 0x80000000u, one = 0x3f800000u;
};
template <>
struct real_bits<double> {
  using type = std::uint64_t;
  static constexpr int mantissa = 52, exponent = 11;
  static constexpr type sign = 0x8000000000000000u, one = 0x3ff0000000000000u;
};
// The number whose bits are f(bits of x, bits of y). The bits of a scalar are an integer, those of
// a pack are compiler vectors of integers.
template <class R, class F>
SCANREC_HD SCANREC_INLINE R on_bits(R x, R y, F f) {
  using bits = typename real_bits<R>::type;
  return std::bit_cast<R>(f(std::bit_cast<bits>(x), std::bit_cast<bits>(y)));
}
template <class T, int N, class F>
SCANREC_INLINE pack<T, N> on_bits(pack<T, N> x, pack<T, N> y, F f) {
  if constexpr (is_leaf<T, N>) {
    using bits = typename raw<typename real_bits<T>::type, N>::type;
    return pack<T, N>(__builtin_bit_cast(
        typename pack<T, N>::vector,
        static_cast<bits>(f(__builtin_bit_cast(bits, x.v), __builtin_bit_cast(bits, y.v)))));
  } else {
    return {on_bits(x.lo, y.lo, f), on_bits(x.hi, y.hi, f)};
  }
}

// On x86 this is one instruction, which treats NaNs like a > b ? a : b. GCC 12 compiles that
// expression to two.
template <class T, class V>
SCANREC_INLINE V larger_raw(V a, V b) {
#if defined(__SSE2__)
  return __builtin_bit_cast(V, xsimd::max(__builtin_bit_cast(xsimd::batch<T>, a),
                                          __builtin_bit_cast(xsimd::batch<T>, b)));
#else
  return a > b ? a : b;
#endif
}
template <class T, class V>
SCANREC_INLINE V smaller_raw(V a, V b) {
#if defined(__SSE2__)
  return __builtin_bit_cast(V, xsimd::min(__builtin_bit_cast(xsimd::batch<T>, a),
                                          __builtin_bit_cast(xsimd::batch<T>, b)));
#else
  return a < b ? a : b;
#endif
}

/// Eight floats, given by their bits.
struct eight_floats {
  std::uint32_t bits[8];
};
/// For each lane of `index`, the entry of the table that the lowest three bits of the lane select.
SCANREC_HD SCANREC_INLINE float look_up(const eight_floats& table, float index) {
  const auto i = std::bit_cast<std::uint32_t>(index);
#if defined(__CUDA_ARCH__)
  // Selects among constants, because indexing would move the table to memory.
  const auto pair = [&](int j) { return i & 1 ? table.bits[j + 1] : table.bits[j]; };
  const auto four = [&](int j) { return i & 2 ? pair(j + 2) : pair(j); };
  return std::bit_cast<float>(i & 4 ? four(4) : four(0));
#else
  return std::bit_cast<float>(table.bits[i & 7]);
#endif
}
template <int N>
SCANREC_INLINE pack<float, N> look_up(const eight_floats& table, pack<float, N> index) {
  if constexpr (is_leaf<float, N>) {
    using vector = typename pack<float, N>::vector;
#if defined(__AVX512F__)
    const __m512i twice = _mm512_broadcast_i64x4(__builtin_bit_cast(__m256i, table));
    return pack<float, N>(__builtin_bit_cast(
        vector, _mm512_permutexvar_epi32(__builtin_bit_cast(__m512i, index.v), twice)));
#elif defined(__AVX2__)
    return pack<float, N>(__builtin_bit_cast(
        vector, _mm256_permutevar8x32_epi32(__builtin_bit_cast(__m256i, table),
                                            __builtin_bit_cast(__m256i, index.v))));
#elif SCANREC_NEON
    // vqtbl2q takes two registers as a table of bytes. Lane i reads bytes 4 j to 4 j + 3, where
    // j is index[i] & 7.
    const uint32x4_t number = vandq_u32(vreinterpretq_u32_f32(index.v), vdupq_n_u32(7));
    const uint32x4_t bytes = vmlaq_n_u32(vdupq_n_u32(0x03020100), number, 0x04040404);
    uint8x16x2_t both;
    both.val[0] = vreinterpretq_u8_u32(vld1q_u32(table.bits));
    both.val[1] = vreinterpretq_u8_u32(vld1q_u32(table.bits + 4));
    return pack<float, N>(
        (vector)vreinterpretq_f32_u8(vqtbl2q_u8(both, vreinterpretq_u8_u32(bytes))));
#else
    vector found;
    for (int i = 0; i < N; ++i) found[i] = look_up(table, index.v[i]);
    return pack<float, N>(found);
#endif
  } else {
    return {look_up(table, index.lo), look_up(table, index.hi)};
  }
}

}  // namespace detail

/// a > b ? a : b. If either is a NaN, the result is b.
template <real_scalar R>
SCANREC_HD SCANREC_INLINE R larger(R a, R b) {
  return a > b ? a : b;
}
template <class T, int N>
SCANREC_INLINE pack<T, N> larger(pack<T, N> a, pack<T, N> b) {
  if constexpr (is_leaf<T, N>)
    return pack<T, N>(detail::larger_raw<T>(a.v, b.v));
  else
    return {larger(a.lo, b.lo), larger(a.hi, b.hi)};
}
/// a < b ? a : b. If either is a NaN, the result is b.
template <real_scalar R>
SCANREC_HD SCANREC_INLINE R smaller(R a, R b) {
  return a < b ? a : b;
}
template <class T, int N>
SCANREC_INLINE pack<T, N> smaller(pack<T, N> a, pack<T, N> b) {
  if constexpr (is_leaf<T, N>)
    return pack<T, N>(detail::smaller_raw<T>(a.v, b.v));
  else
    return {smaller(a.lo, b.lo), smaller(a.hi, b.hi)};
}

// ---- the reduction ----------------------------------------------------------------------------

namespace detail {

// The function that is computed. For expm1, q must be accurate near 0 and 2^(n/s) - 1 must be
// exact.
enum class exp_kind { exp, expm1 };

// ln 2 is split into two parts. The first has few bits, so that its product with n is exact. With
// `one_ln2`, a fused multiply-add does not round that product, and the float nearest to ln 2
// suffices: it is so close that it costs 2 ULP at most. Adding `round` leaves n in the lowest bits.
// For y = `lowest`, the bits of 2^(n/s) are those of 0. exp(highest) is infinite, but half of the
// power 2^(n/s) is finite there.
template <class R>
struct exp_numbers;
template <>
struct exp_numbers<float> {
  static constexpr bool table = SCANREC_FUSED, one_ln2 = SCANREC_FUSED;
  static constexpr int steps_log2 = table ? 3 : 0;
  static constexpr float log2e = 1.44269504f * (1 << steps_log2);
  static constexpr float ln2_high = (one_ln2 ? 0.693147182f : 0.693359375f) / (1 << steps_log2);
  static constexpr float ln2_low = -2.12194440e-4f;
  static constexpr float round = 12582912.0f;
  static constexpr float lowest = -88.0f, highest = 89.0f;
};
template <>
struct exp_numbers<double> {
  static constexpr bool table = false, one_ln2 = false;
  static constexpr int steps_log2 = 0;
  static constexpr double log2e = 1.4426950408889634;
  static constexpr double ln2_high = 6.93145751953125e-1, ln2_low = 1.42860682030941723212e-6;
  static constexpr double round = 6755399441055744.0;
  static constexpr double lowest = -709.0, highest = 710.0;
};

/// The coefficients of a polynomial, lowest first, in a type that device code can copy.
template <class R, int N>
struct coefficients {
  R of[N];
};

// P without a table, interpolated at Chebyshev nodes for |r| up to 1.004 (ln 2) / 2. The error of q
// relative to expm1(r) is below 2.6e-8 (float) and 4.3e-17 (double).
template <class R, exp_kind Kind, bool Table>
struct exp_polynomial;
template <exp_kind Kind>
struct exp_polynomial<float, Kind, false> {
  static constexpr coefficients<float, 5> p{
      {0.5f, 0.1666657558f, 0.04166655286f, 0.008363412672f, 0.001392647542f}};
};
template <exp_kind Kind>
struct exp_polynomial<double, Kind, false> {
  static constexpr coefficients<double, 10> p{
      {0.500000000000000106, 0.166666666666666675, 0.041666666666622782, 0.00833333333332995833,
       0.00138888889178833015, 0.000198412698635685379, 0.0000248015202595902141,
       2.75572676630201927e-6, 2.76205794813136257e-7, 2.51007631070101519e-8}};
};
// P with a table, for |r| up to 1.004 (ln 2) / 16. The error of 1 + q relative to exp(r) is below
// 2.7e-8. The table holds the bits of the floats nearest to 2^(j/8), minus j << 20, which is added
// when n is shifted to the exponent.
template <>
struct exp_polynomial<float, exp_kind::exp, true> {
  static constexpr coefficients<float, 2> p{{0.500065f, 0.16667f}};
  static constexpr eight_floats powers{0x3f800000, 0x3f7b95c2, 0x3f7837f0, 0x3f75fed7,
                                       0x3f7504f3, 0x3f75672a, 0x3f7744fd, 0x3f7ac0c7};
};
// For expm1, 2^(j/8) = T exp(l). T (in `powers`) has 9 bits, so that 2^k T - 1 is exact from k =
// -16 on. `rests` holds l. Adding l to r increases |r| to 1.004 (ln 2) / 16 + 0.0015 at most. The
// error of q relative to expm1(r) is below 6.3e-9.
template <>
struct exp_polynomial<float, exp_kind::expm1, true> {
  static constexpr coefficients<float, 3> p{{0.5f, 0.16668107f, 0.041669667f}};
  static constexpr eight_floats powers{0x3f800000, 0x3f7b8000, 0x3f780000, 0x3f760000,
                                       0x3f750000, 0x3f758000, 0x3f778000, 0x3f7b0000};
  static constexpr eight_floats rests{0x00000000, 0x3a1fa957, 0x3abc4a39, 0xb7e54670,
                                      0x38e00620, 0xba00ccc5, 0xba8c47f9, 0xba89d163};
};

/// exp(y) = power + power * q, expm1(y) = power * q + (power - 1).
template <class L>
struct exp_parts {
  L power, q;
};

/// Requires y <= highest, or NaN. For y > 0 the bits of the power may be those of an infinity or a
/// NaN; callers then subtract 1 from its exponent bits, which gives half the power.
template <exp_kind Kind, class L>
SCANREC_HD SCANREC_INLINE exp_parts<L> split_exp(L y) {
  using R = scalar_of<L>;
  using numbers = exp_numbers<R>;
  using polynomial = exp_polynomial<R, Kind, numbers::table>;
  using bits = real_bits<R>;
  const L lowest = splat<L>(numbers::lowest);
  y = larger(lowest, y);
  const L rounded = fma(y, splat<L>(numbers::log2e), splat<L>(numbers::round));
  const L n = rounded - splat<L>(numbers::round);
  L r = fma(n, splat<L>(-numbers::ln2_high), y), power;
  if constexpr (!numbers::one_ln2) r = fma(n, splat<L>(-numbers::ln2_low), r);
  if constexpr (numbers::table) {
    constexpr eight_floats powers = polynomial::powers;
    power = on_bits(rounded, look_up(powers, rounded), [](auto b, auto j) SCANREC_LAMBDA {
      return (b << (bits::mantissa - numbers::steps_log2)) + j;
    });
    if constexpr (Kind == exp_kind::expm1) {
      constexpr eight_floats rests = polynomial::rests;
      r = r + look_up(rests, rounded);
    }
  } else {
    power = on_bits(rounded, rounded,
                    [](auto b, auto) SCANREC_LAMBDA { return (b << bits::mantissa) + bits::one; });
  }
  constexpr auto terms = polynomial::p;
  constexpr int degree = static_cast<int>(sizeof(terms) / sizeof(R)) - 1;
  L p = splat<L>(terms.of[degree]);
  for (int i = degree - 1; i >= 0; --i) p = fma(p, r, splat<L>(terms.of[i]));
  return {power, fma(mul(r, r), p, r)};
}

}  // namespace detail

// ---- the functions ----------------------------------------------------------------------------

/// exp(y) for y <= 0. Error: 2 ULP for y >= -20, 5 ULP below. If the exact result is below the
/// smallest normal number, the result may be any value from 0 to that number.
template <class L>
SCANREC_HD SCANREC_INLINE L exp_of_negative(L y) {
  auto e = detail::split_exp<detail::exp_kind::exp>(y);
  return fma(e.power, e.q, e.power);
}
/// exp(y) for any y. Equals exp_of_negative(y) bit for bit if y <= 0. Error for y > 0: 2 ULP up to
/// y = 20, 5 ULP above. Infinite if exp(y) exceeds the largest number.
template <class L>
SCANREC_HD SCANREC_INLINE L exp_of_any(L y) {
  using R = scalar_of<L>;
  using bits = detail::real_bits<R>;
  auto e = detail::split_exp<detail::exp_kind::exp>(
      smaller(splat<L>(detail::exp_numbers<R>::highest), y));
  // If y > 0, halve the power and double the result: 2^(n/s) may overflow even if exp(y) does not.
  const L part = detail::on_bits(e.power, y, [](auto power, auto of) SCANREC_LAMBDA {
    return power - ((~of & bits::sign) >> bits::exponent);
  });
  const L times = detail::on_bits(y, y, [](auto of, auto) SCANREC_LAMBDA {
    return bits::one + ((~of & bits::sign) >> bits::exponent);
  });
  return mul(fma(part, e.q, part), times);
}
/// A number as the sum of its rounded value and the rest.
template <class L>
struct two_parts {
  L value, rest;
};
/// exp(y) for any y, as a sum value + rest = exp(y (1 + d)). |d| is below 3 units of roundoff if y
/// is not subnormal and exp(y) exceeds the smallest normal number by a factor of more than 1 /
/// epsilon. For smaller exp(y) the rest may be 0. The value is infinite where exp_of_any is.
template <class L>
SCANREC_HD SCANREC_INLINE two_parts<L> exp_in_two_parts(L y) {
  using R = scalar_of<L>;
  using bits = detail::real_bits<R>;
  auto e = detail::split_exp<detail::exp_kind::expm1>(
      smaller(splat<L>(detail::exp_numbers<R>::highest), y));
  const L part = detail::on_bits(e.power, y, [](auto power, auto of) SCANREC_LAMBDA {
    return power - ((~of & bits::sign) >> bits::exponent);
  });
  const L times = detail::on_bits(y, y, [](auto of, auto) SCANREC_LAMBDA {
    return bits::one + ((~of & bits::sign) >> bits::exponent);
  });
  // part - value is exact, so the rest is rounded only once.
  const L value = fma(part, e.q, part), rest = fma(part, e.q, part - value);
  return {mul(value, times), mul(rest, times)};
}
/// expm1(y) for y <= 0. Error: 1.5 ULP.
template <class L>
SCANREC_HD SCANREC_INLINE L expm1_of_negative(L y) {
  auto e = detail::split_exp<detail::exp_kind::expm1>(y);
  return fma(e.power, e.q, e.power - constant<L>(1));
}

}  // namespace scanrec::inline SCANREC_ABI::simd

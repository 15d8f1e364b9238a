// SPDX-License-Identifier: BSD-3-Clause
// exp, expm1, tanh and the logistic sigmoid, written once over the lane type: a scalar and every
// lane of a pack run the same operations, so tails and threads change no bit.
//
// All of them are made of one reduction, for y <= 0:
//
//     n = round(y / ln 2),  r = y - n ln 2,  q = expm1(r) = r + r^2 P(r),  exp(y) = 2^n (1 + q)
//
// where P is a polynomial and ln 2 is taken in two parts. Nothing overflows, the power of two is
// made of the bits of n, and what falls below the smallest normal number ends as 0 by itself.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include <xsimd/xsimd.hpp>

#include <scanrec/simd/lanes.hpp>

namespace scanrec::inline SCANREC_ABI::simd {

// ---- what the functions are made of -----------------------------------------------------------

template <real_scalar R>
SCANREC_HD SCANREC_INLINE R divide(R a, R b) {
  return a / b;
}
/// a > b ? a : b: of a NaN and a number the second.
template <real_scalar R>
SCANREC_HD SCANREC_INLINE R larger(R a, R b) {
  return a > b ? a : b;
}
/// a < b ? yes : no; a NaN is not less.
template <real_scalar R>
SCANREC_HD SCANREC_INLINE R select_less(R a, R b, R yes, R no) {
  return a < b ? yes : no;
}
SCANREC_HD SCANREC_INLINE float square_root(float x) { return __builtin_sqrtf(x); }
SCANREC_HD SCANREC_INLINE double square_root(double x) { return __builtin_sqrt(x); }

namespace detail {

// The bits of a float or double, and what the functions below need to know of them.
template <class R>
struct real_bits;
template <>
struct real_bits<float> {
  using type = std::uint32_t;
  static constexpr int mantissa = 23;
  static constexpr type sign = 0x80000000u, one = 0x3f800000u;
};
template <>
struct real_bits<double> {
  using type = std::uint64_t;
  static constexpr int mantissa = 52;
  static constexpr type sign = 0x8000000000000000u, one = 0x3ff0000000000000u;
};
// Bits are those of a number, or of each number of a compiler's vector.
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

// One instruction on x86, where its choice among NaNs is the one asked for; GCC 12 makes two of the
// operator.
template <class T, class V>
SCANREC_INLINE V larger_raw(V a, V b) {
#if defined(__SSE2__)
  return __builtin_bit_cast(V, xsimd::max(__builtin_bit_cast(xsimd::batch<T>, a),
                                          __builtin_bit_cast(xsimd::batch<T>, b)));
#else
  return a > b ? a : b;
#endif
}

}  // namespace detail

template <class T, int N>
SCANREC_INLINE pack<T, N> divide(pack<T, N> a, pack<T, N> b) {
  if constexpr (is_leaf<T, N>)
    return pack<T, N>(a.v / b.v);
  else
    return {divide(a.lo, b.lo), divide(a.hi, b.hi)};
}
template <class T, int N>
SCANREC_INLINE pack<T, N> select_less(pack<T, N> a, pack<T, N> b, pack<T, N> yes, pack<T, N> no) {
  if constexpr (is_leaf<T, N>)
    return pack<T, N>(a.v < b.v ? yes.v : no.v);
  else
    return {select_less(a.lo, b.lo, yes.lo, no.lo), select_less(a.hi, b.hi, yes.hi, no.hi)};
}
template <class T, int N>
SCANREC_INLINE pack<T, N> larger(pack<T, N> a, pack<T, N> b) {
  if constexpr (is_leaf<T, N>)
    return pack<T, N>(detail::larger_raw<T>(a.v, b.v));
  else
    return {larger(a.lo, b.lo), larger(a.hi, b.hi)};
}
template <class T, int N>
SCANREC_INLINE pack<T, N> square_root(pack<T, N> x) {
  if constexpr (is_leaf<T, N>)
    return pack<T, N>(__builtin_bit_cast(typename pack<T, N>::vector,
                                         xsimd::sqrt(__builtin_bit_cast(xsimd::batch<T>, x.v))));
  else
    return {square_root(x.lo), square_root(x.hi)};
}

/// -|x|.
template <class L>
SCANREC_HD SCANREC_INLINE L negative_size(L x) {
  using R = scalar_of<L>;
  return detail::on_bits(
      x, x, [](auto bits, auto) SCANREC_LAMBDA { return bits | detail::real_bits<R>::sign; });
}
/// |x| with the sign of y.
template <class L>
SCANREC_HD SCANREC_INLINE L with_sign_of(L y, L x) {
  using R = scalar_of<L>;
  return detail::on_bits(x, y, [](auto bits, auto other) SCANREC_LAMBDA {
    return (bits & ~detail::real_bits<R>::sign) | (other & detail::real_bits<R>::sign);
  });
}

// ---- the reduction ----------------------------------------------------------------------------

namespace detail {

// Coefficients of P by interpolation at Chebyshev nodes: what they leave of expm1(r) is below
// 2.5e-8 of it (float) and 4.1e-17 (double), for |r| up to 1.004 (ln 2) / 2. `ln2_high` has few
// bits, so that its product with n is exact; where products are not rounded, one float that happens
// to be close to ln 2 costs 2 ULP at most. Adding `round` leaves n in the lowest bits; from
// `lowest` on n is one less than the exponent of the smallest normal number, whose bits are those
// of 0.
template <class R>
struct exp_numbers;
template <>
struct exp_numbers<float> {
  static constexpr float log2e = 1.44269504f;
  static constexpr bool one_ln2 = SCANREC_FUSED;
  static constexpr float ln2_high = one_ln2 ? 0.693147182f : 0.693359375f;
  static constexpr float ln2_low = -2.12194440e-4f;
  static constexpr float round = 12582912.0f;
  static constexpr float lowest = -88.0f;
  static constexpr float p[] = {0.5f, 0.1666657558f, 0.04166655286f, 0.008363412672f,
                                0.001392647542f};
};
template <>
struct exp_numbers<double> {
  static constexpr double log2e = 1.4426950408889634;
  static constexpr bool one_ln2 = false;
  static constexpr double ln2_high = 6.93145751953125e-1, ln2_low = 1.42860682030941723212e-6;
  static constexpr double round = 6755399441055744.0;
  static constexpr double lowest = -709.0;
  static constexpr double p[] = {0.500000000000000106,     0.166666666666666675,
                                 0.041666666666622782,     0.00833333333332995833,
                                 0.00138888889178833015,   0.000198412698635685379,
                                 0.0000248015202595902141, 2.75572676630201927e-6,
                                 2.76205794813136257e-7,   2.51007631070101519e-8};
};

/// exp(y) = power + power * q, expm1(y) = power * q + (power - 1).
template <class L>
struct exp_parts {
  L power, q;
};

/// For y <= 0, or NaN.
template <class L>
SCANREC_HD SCANREC_INLINE exp_parts<L> split_exp(L y) {
  using R = scalar_of<L>;
  using numbers = exp_numbers<R>;
  using bits = real_bits<R>;
  const L lowest = splat<L>(numbers::lowest);
  y = larger(lowest, y);
  const L rounded = fma(y, splat<L>(numbers::log2e), splat<L>(numbers::round));
  const L n = rounded - splat<L>(numbers::round);
  L r = fma(n, splat<L>(-numbers::ln2_high), y);
  if constexpr (!numbers::one_ln2) r = fma(n, splat<L>(-numbers::ln2_low), r);
  constexpr int degree = static_cast<int>(sizeof(numbers::p) / sizeof(R)) - 1;
  L p = splat<L>(numbers::p[degree]);
  for (int i = degree - 1; i >= 0; --i) p = fma(p, r, splat<L>(numbers::p[i]));
  const L power = on_bits(rounded, rounded, [](auto b, auto) SCANREC_LAMBDA {
    return (b << bits::mantissa) + bits::one;
  });
  return {power, fma(mul(r, r), p, r)};
}

}  // namespace detail

// ---- the functions ----------------------------------------------------------------------------

/// exp(y) for y <= 0. Error: 4.5 ULP, 1.5 down to exp(-20); below the smallest normal number the
/// result may be 0.
template <class L>
SCANREC_HD SCANREC_INLINE L exp_of_negative(L y) {
  const auto e = detail::split_exp(y);
  return fma(e.power, e.q, e.power);
}
/// expm1(y) for y <= 0. Error: 1.5 ULP.
template <class L>
SCANREC_HD SCANREC_INLINE L expm1_of_negative(L y) {
  const auto e = detail::split_exp(y);
  return fma(e.power, e.q, e.power - constant<L>(1));
}

/// A function at one place: its value, 1 - value, and its derivative. What is not used is not
/// computed.
template <class L>
struct activated {
  L value, complement, slope;
};
/// 1 / (1 + exp(-x)). Error: 4.5 ULP for the value and for its complement, which does not cancel, 3
/// where they are above exp(-20); 5.5 for the slope. What would be below the smallest normal number
/// may be 0.
template <class L>
SCANREC_HD SCANREC_INLINE activated<L> sigmoid(L x) {
  const L e = exp_of_negative(negative_size(x));  // in [0, 1]
  const L large = divide(constant<L>(1), constant<L>(1) + e), small = mul(e, large);
  const L zero = constant<L>(0);
  return {select_less(x, zero, small, large), select_less(x, zero, large, small),
          mul(large, small)};
}

/// tanh(x), and as its slope 1 - tanh(x)^2, which does not cancel. Error: 3 ULP for the value, 6
/// for the slope, which may be 0 below four times the smallest normal number.
template <class L>
SCANREC_HD SCANREC_INLINE activated<L> tanh(L x) {
  const L one = constant<L>(1);
  const L y = negative_size(x);
  const auto e = detail::split_exp(y + y);
  const L all = fma(e.power, e.q, e.power), less_one = fma(e.power, e.q, e.power - one);
  const L part = divide(one, (one + one) + less_one);  // 1 / (1 + exp(-2|x|))
  const L twice = part + part;
  const L value = with_sign_of(x, mul(less_one, part));
  return {value, one - value, mul(mul(twice, twice), all)};
}

}  // namespace scanrec::inline SCANREC_ABI::simd

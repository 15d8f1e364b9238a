// SPDX-License-Identifier: BSD-3-Clause
// cos and sin of an angle, and exp of complex numbers, for scalars and packs. A scalar and every
// lane of a pack run the same operations.
//
//     k = round(2 x / pi),  r = x - k pi / 2,  w = r^2
//     sin(r) = r + r w S(w),  cos(r) = 1 - w / 2 + w^2 C(w)
//
// S and C are polynomials. The lowest two bits of k decide which of sin(r) and cos(r) gives sin(x),
// and the signs of sin(x) and cos(x).
#pragma once

#include <scanrec/detail/simd/exp.hpp>

namespace scanrec::inline SCANREC_ABI::simd {

namespace detail {

// pi / 2 is stored as a sum of three parts. The first two have at most 11 (float) or 33 (double)
// bits, so that their products with k are exact for k below 2^13 or 2^20. S and C are interpolated
// at Chebyshev nodes for w up to (1.004 pi / 4)^2. The errors of sin(r) and cos(r) are below
// 1.3e-8 sin(r) and 8e-10 (float), 1.4e-17 sin(r) and 6e-19 (double).
template <class R>
struct circle_numbers;
template <>
struct circle_numbers<float> {
  static constexpr float by_quarter = 0.636619772f, round = 12582912.0f, largest = 4194304.0f;
  static constexpr coefficients<float, 3> quarter{{0x1.92p+0f, 0x1.fb4p-12f, 0x1.4442d2p-24f}};
  static constexpr coefficients<float, 3> s{{-0.166666646f, 0.00833273889f, -0.000195858727f}};
  static constexpr coefficients<float, 3> c{{0.0416666646f, -0.00138882936f, 2.45459196e-5f}};
};
template <>
struct circle_numbers<double> {
  static constexpr double by_quarter = 0.63661977236758134, round = 6755399441055744.0,
                          largest = 2251799813685248.0;
  static constexpr coefficients<double, 3> quarter{
      {0x1.921fb544p+0, 0x1.0b4611a6p-34, 0x1.3198a2e037073p-69}};
  static constexpr coefficients<double, 6> s{{-0.166666666666666645, 0.00833333333333085149,
                                              -0.000198412698366124232, 2.75573160270455915e-6,
                                              -2.50511161710980635e-8, 1.59170045596316164e-10}};
  static constexpr coefficients<double, 6> c{{0.0416666666666666653, -0.00138888888888873366,
                                              0.0000248015872986742592, -2.75573172244939374e-7,
                                              2.08761364629767197e-9, -1.13819287983222594e-11}};
};

template <class L, class Terms>
SCANREC_HD SCANREC_INLINE L polynomial_of(L w, Terms terms) {
  constexpr int degree = static_cast<int>(sizeof(Terms) / sizeof(terms.of[0])) - 1;
  L p = splat<L>(terms.of[degree]);
  for (int i = degree - 1; i >= 0; --i) p = fma(p, w, splat<L>(terms.of[i]));
  return p;
}

}  // namespace detail

/// (cos(x), sin(x)). Error of each: 2 u + 2 u |x|, where u is the unit roundoff. If x is a rounded
/// product, that rounding alone causes an error of up to u |x|. From |x| = 2^22 (float) and 2^51
/// (double) on, the result is some point of the unit circle. A NaN gives NaNs.
template <class L>
SCANREC_HD SCANREC_INLINE complex_lanes<L> cos_sin(L x) {
  using R = scalar_of<L>;
  using numbers = detail::circle_numbers<R>;
  constexpr auto quarter = numbers::quarter;
  const L largest = splat<L>(numbers::largest);
  x = negative(larger(negative(largest), negative(larger(negative(largest), x))));
  const L rounded = fma(x, splat<L>(numbers::by_quarter), splat<L>(numbers::round));
  const L k = rounded - splat<L>(numbers::round);
  L r = fma(k, splat<L>(-quarter.of[0]), x);
  r = fma(k, splat<L>(-quarter.of[1]), r);
  r = fma(k, splat<L>(-quarter.of[2]), r);
  const L w = mul(r, r);
  const L sine = fma(mul(r, w), detail::polynomial_of(w, numbers::s), r);
  const L cosine = fma(mul(w, w), detail::polynomial_of(w, numbers::c),
                       fma(w, splat<L>(R(-0.5)), constant<L>(1)));
  // `odd` is nonzero where k is odd. The signs are bit 1 of k + 1 (cosine) and of k (sine).
  constexpr int top = 8 * sizeof(R) - 1;
  const L odd = detail::on_bits(
      rounded, rounded, [](auto bits, auto) SCANREC_LAMBDA { return (bits & 1) << (top - 2); });
  const auto signed_by = [](L number, L from, int more) SCANREC_LAMBDA {
    return detail::on_bits(number, from, [more](auto of, auto bits) SCANREC_LAMBDA {
      return of ^
             (((bits + static_cast<decltype(detail::real_bits<R>::sign)>(more)) >> 1 & 1) << top);
    });
  };
  return {signed_by(select(odd, sine, cosine), rounded, 1),
          signed_by(select(odd, cosine, sine), rounded, 0)};
}

/// exp(y) of a complex y. The modulus is exp_of_negative(y.re) with `Decays`, else
/// exp_of_any(y.re).
template <bool Decays, class L>
SCANREC_HD SCANREC_INLINE complex_lanes<L> exp_of(complex_lanes<L> y) {
  L size;
  if constexpr (Decays)
    size = exp_of_negative(y.re);
  else
    size = exp_of_any(y.re);
  const complex_lanes<L> point = cos_sin(y.im);
  return {mul(size, point.re), mul(size, point.im)};
}

}  // namespace scanrec::inline SCANREC_ABI::simd

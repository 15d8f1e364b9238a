// SPDX-License-Identifier: BSD-3-Clause
// softplus of scalars and packs. A scalar and every lane of a pack run the same operations.
#pragma once

#include <scanrec/detail/simd/math.hpp>

namespace scanrec::inline SCANREC_ABI::simd {

namespace detail {

// log1p(e) = 2 s (1 + w q(w)) with s = e / (2 + e) and w = s^2. The polynomial q is interpolated at
// Chebyshev nodes for w in [0, 1/9], with an error below 4e-9 (float) and 2e-18 (double).
template <class R>
struct log1p_polynomial;
template <>
struct log1p_polynomial<float> {
  static constexpr coefficients<float, 5> q{
      {0.333333337f, 0.199998532f, 0.14296179f, 0.108532879f, 0.116121646f}};
};
template <>
struct log1p_polynomial<double> {
  static constexpr coefficients<double, 11> q{
      {0.333333333333333334, 0.199999999999997613, 0.142857142858000496, 0.111111110991183853,
       0.0909090994898135732, 0.0769227198243027081, 0.0666758931572469885, 0.0586713953065077033,
       0.0542258919744593754, 0.0374607189775162895, 0.0781528890050220046}};
};

/// log1p(e) for e in [0, 1].
template <class L>
SCANREC_HD SCANREC_INLINE L log1p_of_fraction(L e) {
  using R = scalar_of<L>;
  const L s = divide(e, constant<L>(2) + e);
  const L w = mul(s, s);
  constexpr auto terms = log1p_polynomial<R>::q;
  constexpr int degree = static_cast<int>(sizeof(terms) / sizeof(R)) - 1;
  L q = splat<L>(terms.of[degree]);
  for (int i = degree - 1; i >= 0; --i) q = fma(q, w, splat<L>(terms.of[i]));
  const L twice = s + s;
  return fma(mul(twice, w), q, twice);
}

}  // namespace detail

/// The result of softplus().
template <class L>
struct value_and_slope {
  L value, slope;
};
/// log(1 + exp(x)) and its slope, the sigmoid. For x above 20 they are x and 1, as in PyTorch.
/// Error for other x: 6 ULP. A result below the smallest normal number may be 0.
template <class L>
SCANREC_HD SCANREC_INLINE value_and_slope<L> softplus(L x) {
  const L zero = constant<L>(0), threshold = constant<L>(20);
  const L e = exp_of_negative(negative_size(x));
  const L soft = select_less(zero, x, x, zero) + detail::log1p_of_fraction(e);
  const L large = reciprocal_of_one_to_two(constant<L>(1) + e), small = mul(e, large);
  return {select_less(threshold, x, x, soft),
          select_less(threshold, x, constant<L>(1), select_less(x, zero, small, large))};
}

}  // namespace scanrec::inline SCANREC_ABI::simd

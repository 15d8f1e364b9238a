// SPDX-License-Identifier: BSD-3-Clause
// Scans of the maps in the lanes of a pack, and operations on lanes of maps.
#pragma once

#include <scanrec/affine.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// Inclusive scan of the maps in the lanes of m, lane 0 first, by log2(lanes) doubling shifts.
template <int K = 1, class Lane>
SCANREC_INLINE affine<Lane> scan_lanes(affine<Lane> m) {
  if constexpr (K >= simd::lane_count<Lane>) {
    return m;
  } else {
    auto none = affine<Lane>::identity();
    const affine<Lane> earlier{simd::slide_in<K>(none.a, m.a), simd::slide_in<K>(none.u, m.u)};
    return scan_lanes<2 * K>(combine(earlier, m));
  }
}

/// The maps in lanes Odd, Odd + 2, ...
template <int Odd, class Lane>
SCANREC_INLINE auto every_other(affine<Lane> m) {
  return affine<decltype(simd::every_other<Odd>(m.a))>{simd::every_other<Odd>(m.a),
                                                       simd::every_other<Odd>(m.u)};
}
template <int Odd, class Map>
SCANREC_INLINE auto every_other(const segmented<Map>& m) {
  auto map = every_other<Odd>(m.map);
  return segmented<std::remove_const_t<decltype(map)>>{map, simd::every_other<Odd>(m.reset)};
}

/// The states before and after every step, the last state in the wide type, and whether the last
/// state is finite.
template <class Lane, class Carry>
struct scanned_states {
  Lane before, after;
  Carry last;
  bool finite;
};
/// Applies the scan of the maps in the lanes of m to a state, as a tree. Neighbouring maps are
/// composed until `Base` maps are left, which are scanned by doubling shifts. Then each composed
/// pair yields the state between its two steps. This moves about half as many lanes as doubling
/// shifts alone.
///
/// `factor()` is the product of all m.a in the wide type. Rounding a product of factors just below
/// 1 has a bias: (1 - i eps)(1 - j eps) always loses i j eps^2. If the product stays near 1, the
/// carry from pack to pack would accumulate this bias, so factor() is used. Otherwise the error
/// decays quickly. `seen` is called with the `Base` maps.
template <int Base, class Lane, class Carry, class Factor, class Seen>
SCANREC_INLINE scanned_states<Lane, Carry> scan_states(const affine<Lane>& m, Carry state,
                                                       Factor factor, Seen seen) {
  if constexpr (simd::lane_count<Lane> == Base) {
    seen(m);
    using scalar = simd::scalar_of<Lane>;
    Lane carried = simd::splat<Lane>(simd::from_wide<scalar>(state));
    affine<Lane> total = scan_lanes(m);
    Lane after = total.act(carried);
    Carry a = simd::to_wide<Carry>(simd::last(total.a));
    if constexpr (!std::is_same_v<Carry, scalar>)
      if (simd::size_of(simd::last(total.a)) > 0.875f) a = factor();
    Carry last = simd::fma(a, state, simd::to_wide<Carry>(simd::last(total.u)));
    const auto nonfinite = simd::zero_if_finite(simd::last(after)) +
                           simd::zero_if_finite(simd::from_wide<scalar>(last));
    return {simd::slide_in<1>(carried, after),
            simd::with_last(after, simd::from_wide<scalar>(last)), last, simd::all_zero(nonfinite)};
  } else {
    auto even = every_other<0>(m);
    auto pairs = scan_states<Base>(combine(even, every_other<1>(m)), state, factor, seen);
    auto middle = even.act(pairs.before);
    return {simd::interleave(pairs.before, middle), simd::interleave(middle, pairs.after),
            pairs.last, pairs.finite};
  }
}
/// Composes neighbours until `Base` maps are left.
template <int Base, class Lane>
SCANREC_INLINE auto combine_lanes(affine<Lane> m) {
  if constexpr (simd::lane_count<Lane> == Base)
    return m;
  else
    return combine_lanes<Base>(combine(every_other<0>(m), every_other<1>(m)));
}
/// Composes neighbours in the lanes of two packs until one pack of maps is left.
template <class Lane>
SCANREC_INLINE affine<Lane> combine_packs(affine<Lane> x, affine<Lane> y) {
  auto a = simd::join(x.a, y.a), u = simd::join(x.u, y.u);
  return combine_lanes<simd::lane_count<Lane>>(affine<std::remove_const_t<decltype(a)>>{a, u});
}

/// The factor of a map in the wide type.
template <class Wide, class Lane>
SCANREC_HD SCANREC_INLINE factor_t<Wide> wide_factor(affine<Lane> m) {
  return simd::to_wide<factor_t<Wide>>(m.a);
}
template <class Wide, class Lane>
SCANREC_HD SCANREC_INLINE Wide wide_factor(affine_with_rest<Lane> m) {
  return simd::to_wide<Wide>(m.a) + simd::to_wide<Wide>(m.rest);
}
template <class Wide, class Map>
SCANREC_HD SCANREC_INLINE affine<Wide> widen_map(const Map& m) {
  return {wide_factor<Wide>(m), simd::to_wide<Wide>(m.u)};
}
/// The products of the factors of the maps in a pack, in the wide lane type: halves are multiplied
/// until one Wide is left.
template <class Wide, class Lane>
SCANREC_INLINE Wide fold_factors(affine<Lane> m) {
  return simd::fold_product<Wide>(m.a);
}
template <class Wide, class Lane>
SCANREC_INLINE Wide fold_factors(affine_with_rest<Lane> m) {
  if constexpr (simd::lane_count<Lane> == simd::lane_count<Wide>) {
    return wide_factor<Wide>(m);
  } else {
    auto low = simd::half_of<0>(m.a), high = simd::half_of<1>(m.a);
    using half = affine_with_rest<std::remove_const_t<decltype(low)>>;
    return simd::mul(fold_factors<Wide>(half{low, simd::half_of<0>(m.rest), low}),
                     fold_factors<Wide>(half{high, simd::half_of<1>(m.rest), high}));
  }
}

/// Zero in lanes whose map is finite, NaN elsewhere.
template <class Lane>
SCANREC_HD SCANREC_INLINE auto zero_if_finite(affine<Lane> m) {
  return simd::zero_if_finite(m.a) + simd::zero_if_finite(m.u);
}

}  // namespace scanrec::detail::inline SCANREC_ABI

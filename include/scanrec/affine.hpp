// SPDX-License-Identifier: BSD-3-Clause
// Affine maps x -> a x + u, one per step, with and without resets, and their composition.
#pragma once

#include <concepts>
#include <limits>
#include <type_traits>

#include <scanrec/detail/simd/exp.hpp>
#include <scanrec/detail/simd/matrix_lanes.hpp>

namespace scanrec::inline SCANREC_ABI {

/// A type whose values compose associatively. `combine(earlier, later)` is the map that applies
/// `earlier`, then `later`; `identity()` leaves every state unchanged.
///
/// The concept checks the syntax only. The author must ensure `combine(combine(x, y), z) ==
/// combine(x, combine(y, z))`. Composition need not commute: the earlier map is always the first
/// argument.
template <class M>
concept composable = std::is_trivially_copyable_v<M> && requires(const M& m) {
  { M::identity() } -> std::same_as<M>;
  { combine(m, m) } -> std::same_as<M>;
};

/// A composable map that can also be applied to a state. Serial code applies maps, which takes one
/// multiply-add per step for affine maps. Only parallel code composes maps.
template <class M, class X>
concept acting_on = composable<M> && requires(const M& m, const X& x) {
  { m.act(x) } -> std::same_as<X>;
};

/// The map x -> a * x + u. `Lane` is a scalar, a SIMD pack, a complex number made of either, or a
/// vec of these; for a vec, a is a matrix.
///
///     (a_i, u_i) then (a_j, u_j)  =  (a_j * a_i, a_j * u_i + u_j),      identity (1, 0)
template <class Lane>
struct affine {
  using lane = Lane;
  factor_t<Lane> a;
  Lane u;

  SCANREC_HD static SCANREC_INLINE affine identity() {
    return {simd::constant<factor_t<Lane>>(1), simd::constant<Lane>(0)};
  }
  /// The map whose result is x for every state.
  SCANREC_HD static SCANREC_INLINE affine constant(Lane x) {
    return {simd::constant<factor_t<Lane>>(0), x};
  }
  SCANREC_HD SCANREC_INLINE Lane act(Lane x) const { return simd::fma(a, x, u); }
  /// a * x.
  SCANREC_HD SCANREC_INLINE Lane times(Lane x) const { return simd::mul(a, x); }

  SCANREC_HD friend SCANREC_INLINE affine combine(affine earlier, affine later) {
    return {simd::mul(later.a, earlier.a), simd::fma(later.a, earlier.u, later.u)};
  }
};

/// The map x -> (a + rest) x + u of real lanes, where `rest` is the rounding error of the factor a.
/// act(), times() and the conversion to a wider type (detail/maps/lane_scans.hpp) use `rest`.
/// Composition in the type of the lanes drops it: the map is converted to affine first.
template <class Lane>
struct affine_with_rest {
  using lane = Lane;
  Lane a, rest, u;

  SCANREC_HD SCANREC_INLINE operator affine<Lane>() const { return {a, u}; }
  SCANREC_HD SCANREC_INLINE Lane act(Lane x) const {
    return simd::fma(a, x, simd::fma(rest, finite(x), u));
  }
  /// (a + rest) * x.
  SCANREC_HD SCANREC_INLINE Lane times(Lane x) const {
    return simd::fma(a, x, simd::mul(rest, finite(x)));
  }

 private:
  // Clamps infinities to the largest number. Otherwise a * x and rest * x could be infinities of
  // opposite signs, whose sum is NaN.
  SCANREC_HD static SCANREC_INLINE Lane finite(Lane x) {
    constexpr auto most = std::numeric_limits<simd::scalar_of<Lane>>::max();
    return simd::smaller(simd::splat<Lane>(most), simd::larger(simd::splat<Lane>(-most), x));
  }
};

/// The map x -> A x + u of vectors.
template <class T, int N>
using affine_matrix = affine<vec<T, N>>;

/// A map with a reset. Where `reset` is not zero, a new sequence starts at this step and the result
/// does not depend on the earlier state. The reset is a select, not a product with zero, so it also
/// stops infinities and NaN.
template <class Map>
struct segmented {
  using lane = typename Map::lane;
  using mask = simd::real_lane_t<lane>;
  Map map;
  mask reset;  // 1: a sequence starts at this step; else 0

  SCANREC_HD static SCANREC_INLINE segmented identity() {
    return {Map::identity(), simd::constant<mask>(0)};
  }
  SCANREC_HD SCANREC_INLINE lane act(lane x) const {
    return simd::select(reset, map.u, map.act(x));
  }
  SCANREC_HD friend SCANREC_INLINE segmented combine(segmented earlier, segmented later) {
    const Map both = combine(earlier.map, later.map);
    return {{simd::select(later.reset, later.map.a, both.a),
             simd::select(later.reset, later.map.u, both.u)},
            simd::select(later.reset, later.reset, earlier.reset)};
  }
};

}  // namespace scanrec::inline SCANREC_ABI

// SPDX-License-Identifier: BSD-3-Clause
// affine: the map x -> a x + u of one step, and how maps compose. segmented: the same with resets.
#pragma once

#include <concepts>
#include <limits>
#include <type_traits>

#include <scanrec/detail/simd/exp.hpp>
#include <scanrec/detail/simd/matrix_lanes.hpp>

namespace scanrec::inline SCANREC_ABI {

/// A type whose values compose associatively: `combine(earlier, later)` is the one map that does
/// what `earlier` then `later` do, and `identity()` is the map that does nothing.
///
/// The syntax is checked here; the law `combine(combine(x, y), z) == combine(x, combine(y, z))` is
/// the author's duty. Composition need not commute: the order of the arguments is the contract.
template <class M>
concept composable = std::is_trivially_copyable_v<M> && requires(const M& m) {
  { M::identity() } -> std::same_as<M>;
  { combine(m, m) } -> std::same_as<M>;
};

/// A composable map that can also be applied: serial code acts on a state (one multiply-add), only
/// parallel code composes maps.
template <class M, class X>
concept acting_on = composable<M> && requires(const M& m, const X& x) {
  { m.act(x) } -> std::same_as<X>;
};

/// The map x -> a * x + u. `Lane` is a scalar, a SIMD pack, a complex number made of either, or a
/// vec of such; then a is a matrix.
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
  /// The map that ignores the earlier state.
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

/// The map x -> (a + rest) x + u of real lanes, where `rest` is what rounding took from the factor.
/// Applied to a state it keeps the rest, and so does its conversion to a wider type; as an affine
/// map, which is what composes, it forgets it.
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
  // The largest number for an infinity, which a rest of the other sign would make a NaN.
  SCANREC_HD static SCANREC_INLINE Lane finite(Lane x) {
    constexpr auto most = std::numeric_limits<simd::scalar_of<Lane>>::max();
    return simd::smaller(simd::splat<Lane>(most), simd::larger(simd::splat<Lane>(-most), x));
  }
};

/// The map x -> A x + u of vectors.
template <class T, int N>
using affine_matrix = affine<vec<T, N>>;

/// Any acting map with a reset: where `reset` is not zero a new sequence starts at this step, and
/// nothing from before it passes, not even an infinity (a select, not a product with zero).
template <class Map>
struct segmented {
  using lane = typename Map::lane;
  using mask = simd::real_lane_t<lane>;
  Map map;
  mask reset;  // 0: linked to the step before; 1: cut

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

// SPDX-License-Identifier: BSD-3-Clause
// What is carried from tile to tile where maps are affine.
#pragma once

#include <scanrec/operators.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// The carries of affine maps from tile to tile: states in the wide type.
template <class Carry>
struct affine_carries {
  using carry = Carry;
  template <class State>
  SCANREC_HD static Carry carry_of(const State& x) {
    return simd::to_wide<Carry>(x);
  }
  template <class State>
  SCANREC_HD static State state_of(const Carry& c) {
    return simd::from_wide<State>(c);
  }
  SCANREC_HD static bool finite(const Carry& c) { return simd::all_zero(simd::zero_if_finite(c)); }
  template <class Map>
  SCANREC_HD static bool finite(const Map& tile, const Carry& c) {
    return simd::all_zero(zero_if_finite(tile) + simd::zero_if_finite(c));
  }
  /// The carry after a tile, the `first` or another.
  template <class R, class Map>
  SCANREC_HD static Carry advance(const R&, bool /*first*/, const Map& tile, const Carry& c) {
    return tile.act(c);
  }
  /// The same where something is not finite: then what the walk found. Lane by lane, so that a
  /// neighbour's infinity changes no bit here. NaN counts as not zero.
  template <class Map, class State>
  static Carry advance_wild(const Map& tile, const Carry& c, const State& walked) {
    const auto wild = zero_if_finite(tile) + simd::zero_if_finite(c);
    return simd::select(wild, carry_of(walked), tile.act(c));
  }
};

}  // namespace scanrec::detail::inline SCANREC_ABI

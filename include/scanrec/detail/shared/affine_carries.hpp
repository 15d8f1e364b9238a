// SPDX-License-Identifier: BSD-3-Clause
// What is carried from tile to tile where maps are affine.
#pragma once

#include <scanrec/detail/shared/lane_scans.hpp>

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
  template <class Map>
  SCANREC_HD static bool finite(const Map& tile, const Carry& c) {
    return simd::all_zero(zero_if_finite(tile) + simd::zero_if_finite(c));
  }
  /// Whether the carry after a tile is finite as the state that the next tile takes it for: the
  /// wide type may hold what the loop would not. Then so are the map and the carry before.
  template <class State, class Map>
  SCANREC_HD static bool finite_after(const Map& tile, const Carry& c) {
    return simd::all_zero(simd::zero_if_finite(state_of<State>(tile.act(c))));
  }
  /// The carry after a tile, the `first` or another.
  template <class R, class Map>
  SCANREC_HD static Carry advance(const R&, bool /*first*/, const Map& tile, const Carry& c) {
    return tile.act(c);
  }
  /// The same where that is not finite: then what the walk found. Lane by lane, so that a
  /// neighbour's infinity changes no bit here. NaN counts as not zero.
  template <class Map, class State>
  static Carry advance_walked(const Map& tile, const Carry& c, const State& walked) {
    const Carry after = tile.act(c);
    return simd::select(zero_if_finite_state<State>(after), carry_of(walked), after);
  }

 private:
  template <class State>
  SCANREC_HD static auto zero_if_finite_state(const Carry& c) {
    return simd::zero_if_finite(carry_of(state_of<State>(c)));
  }
};

}  // namespace scanrec::detail::inline SCANREC_ABI

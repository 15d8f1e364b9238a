// SPDX-License-Identifier: BSD-3-Clause
// What is carried from tile to tile where maps are affine.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

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
  /// Whether a map or a carry is far from overflow. Of such maps and carries, a map after a map
  /// after a carry leads to a state that is finite in the compute type: the parts of the factors
  /// are below 2^21 for floats, all others below 2^72 (doubles: 2^170, 2^576), and states have
  /// fewer than 32 components.
  template <class State, class Map>
  SCANREC_HD static bool moderate(const Map& m) {
    return below<range_of<State> / 6>(m.a) && moderate_carry<State>(m.u);
  }
  template <class State>
  SCANREC_HD static bool moderate_carry(const Carry& c) {
    return below<range_of<State> / 16 * 9>(c);
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
  // Of the compute type the largest exponent; 0 where there is no overflow.
  template <class State>
  static constexpr int range_of = std::numeric_limits<simd::real_lane_t<State>>::max_exponent;
  // Whether the doubles that x consists of are below a power of two. Looks at their upper halves
  // as integers, which takes neither conversions nor the units for doubles.
  template <int Exponent, class T>
  SCANREC_HD static bool below([[maybe_unused]] const T& x) {
    bool all = true;
    if constexpr (Exponent > 0) {
      std::uint64_t parts[sizeof(T) / sizeof(double)];
      std::memcpy(parts, &x, sizeof x);
      for (const std::uint64_t part : parts)
        all = all & ((static_cast<std::uint32_t>(part >> 32) & 0x7fffffffu) <
                     static_cast<std::uint32_t>(1023 + Exponent) << 20);
    }
    return all;
  }
  template <class State>
  SCANREC_HD static auto zero_if_finite_state(const Carry& c) {
    return simd::zero_if_finite(carry_of(state_of<State>(c)));
  }
};

}  // namespace scanrec::detail::inline SCANREC_ABI

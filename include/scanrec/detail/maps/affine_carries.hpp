// SPDX-License-Identifier: BSD-3-Clause
// Carries between tiles for affine maps.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

#include <scanrec/detail/maps/lane_scans.hpp>

namespace scanrec::detail::inline SCANREC_ABI {

/// Carries of affine maps between tiles: states in the wide type.
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
  /// Whether the carry after a tile is finite in the compute type, whose range may be smaller than
  /// that of the carry. If so, the tile's map and the carry before the tile are finite as well.
  template <class State, class Map>
  SCANREC_HD static bool finite_after(const Map& tile, const Carry& c) {
    return simd::all_zero(simd::zero_if_finite(state_of<State>(tile.act(c))));
  }
  /// Whether a map is moderate, that is, far from overflow. Parts of its factor must be below 2^21
  /// in magnitude for floats (2^170 for doubles), and those of u below 2^72 (2^576), the limit of
  /// moderate carries. If two maps and a carry are moderate, then applying both maps gives a state
  /// that is finite in the compute type, for states of fewer than 32 components.
  template <class State, class Map>
  SCANREC_HD static bool moderate(const Map& m) {
    return below<range_of<State> / 6>(m.a) && moderate_carry<State>(m.u);
  }
  template <class State>
  SCANREC_HD static bool moderate_carry(const Carry& c) {
    return below<range_of<State> / 16 * 9>(c);
  }
  /// The carry after a tile; `first` marks the first tile.
  template <class R, class Map>
  SCANREC_HD static Carry advance(const R&, bool /*first*/, const Map& tile, const Carry& c) {
    return tile.act(c);
  }
  /// The carry after a tile. In lanes where it is not finite in the compute type, returns the state
  /// `last`, which was computed step by step. Selects lane by lane, so that an infinity in one lane
  /// does not change the bits of another. select() treats NaN as nonzero.
  template <class Map, class State>
  static Carry advance_from_state(const Map& tile, const Carry& c, const State& last) {
    Carry after = tile.act(c);
    return simd::select(zero_if_finite_state<State>(after), carry_of(last), after);
  }

 private:
  // The largest exponent of the compute type; 0 for integers.
  template <class State>
  static constexpr int range_of = std::numeric_limits<simd::real_lane_t<State>>::max_exponent;
  // Whether the magnitudes of the doubles in x are below 2^Exponent; always true for integers, for
  // which Exponent is 0. Compares the upper halves of the doubles as integers, which needs neither
  // conversions nor double-precision units.
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
